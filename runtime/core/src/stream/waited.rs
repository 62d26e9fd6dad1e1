//! What a slot holds of a timeline's wait, and of the signal that ended it.
//!
//! A timeline writes it while a session records, and the collector makes a record of it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::record::StreamInfo;
use crate::wait::WaitOutcome;

static SEMAPHORES_EXIST: AtomicBool = AtomicBool::new(false);

/// A semaphore is made. From now on the collector keeps where zones end, since that dates signals.
pub fn semaphore_is_made() {
    SEMAPHORES_EXIST.store(true, Ordering::Release);
}

/// Whether one was ever made.
pub fn semaphores_exist() -> bool {
    SEMAPHORES_EXIST.load(Ordering::Acquire)
}

/// What a slot holds of a wait, beside its times.
#[derive(Debug)]
pub struct Waited {
    pub semaphore: Arc<str>,
    pub value: Option<u64>,
    pub queue: Option<Arc<str>>,
    pub outcome: WaitOutcome,
    pub signal: Option<Arc<GivenSignal>>,
    /// How many values its thread waited for with it.
    pub of: usize,
}

/// A signal that a session saw.
#[derive(Debug)]
pub struct GivenSignal {
    /// None for one that was declared.
    pub value: Option<u64>,
    /// The session that saw it: its streams are no other's.
    pub epoch: NonZeroU32,
    /// None where the thread itself signalled.
    pub stream: Option<Arc<StreamInfo>>,
    pub thread: u64,
    pub queue: Option<Arc<str>>,
    /// When the thread called; for several signals in a row, when it called for the first.
    pub host_ns: i64,
    /// When it happened, where that is known; 0 where it is not.
    at_ns: AtomicI64,
    /// It tells by itself when it happens.
    pub tells: bool,
}

impl GivenSignal {
    pub fn new(
        value: Option<u64>,
        epoch: NonZeroU32,
        (stream, tells): (Option<Arc<StreamInfo>>, bool),
        (thread, host_ns): (u64, i64),
        queue: Option<&Arc<str>>,
    ) -> GivenSignal {
        let at_ns = AtomicI64::new(if stream.is_none() { host_ns } else { 0 });
        GivenSignal { value, epoch, stream, thread, queue: queue.cloned(), host_ns, at_ns, tells }
    }

    /// It happens now, says who sees it happen. The first call counts.
    pub fn set_at(&self, ns: i64) {
        let _ = self.at_ns.compare_exchange(0, ns, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// When it happened, where somebody saw it happen.
    pub fn at_ns(&self) -> Option<i64> {
        Some(self.at_ns.load(Ordering::Acquire)).filter(|ns| *ns != 0)
    }
}
