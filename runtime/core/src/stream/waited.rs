//! The data of a timeline's wait in a slot, and of the signal that ended the wait.
//!
//! A timeline writes it while a session records, and the collector makes a record of it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::observer;
use crate::record::StreamInfo;
use crate::switch;
use crate::wait::WaitOutcome;

static SEMAPHORES_EXIST: AtomicBool = AtomicBool::new(false);

/// Notes that a semaphore exists. From now on the collector keeps the ends of zones, because they date signals.
///
/// The first use of warpline looks for tools, and a program may have semaphores and no zones.
pub fn semaphore_is_made() {
    SEMAPHORES_EXIST.store(true, Ordering::Release);
    if cfg!(feature = "enable") && switch::is_unknown() {
        observer::first_zone();
    }
}

/// Returns whether a semaphore was ever created.
pub fn semaphores_exist() -> bool {
    SEMAPHORES_EXIST.load(Ordering::Acquire)
}

/// The data of a wait in a slot, except for its times.
#[derive(Debug)]
pub struct Waited {
    pub semaphore: Arc<str>,
    pub value: Option<u64>,
    pub queue: Option<Arc<str>>,
    pub outcome: WaitOutcome,
    pub signal: Option<Arc<GivenSignal>>,
    /// The number of values that the thread waited for in the same call.
    pub of: usize,
}

/// A signal that a session observed.
#[derive(Debug)]
pub struct GivenSignal {
    /// None for a declared signal.
    pub value: Option<u64>,
    /// The session that observed it. Streams of different sessions are not related.
    pub epoch: NonZeroU32,
    /// None if the thread itself signalled.
    pub stream: Option<Arc<StreamInfo>>,
    pub thread: u64,
    pub queue: Option<Arc<str>>,
    /// When the thread made the call; for several signals in a row, the time of the first call.
    pub host_ns: i64,
    /// When the signal happened; 0 if unknown.
    at_ns: AtomicI64,
    /// The stream reports by itself when the signal happens.
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

    /// Sets the time of the signal to the time at which it was observed. Only the first call has an effect.
    pub fn set_at(&self, ns: i64) {
        let _ = self.at_ns.compare_exchange(0, ns, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns when the signal happened, if that was observed.
    pub fn at_ns(&self) -> Option<i64> {
        Some(self.at_ns.load(Ordering::Acquire)).filter(|ns| *ns != 0)
    }
}
