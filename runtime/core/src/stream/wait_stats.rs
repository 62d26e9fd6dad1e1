//! What becomes of the waits of one stream: an account beside that of the zones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::report::Dropped;
use crate::report::counts::WaitCounts;

/// What became of the waits of one stream.
#[derive(Debug, Default)]
pub struct WaitStats {
    begun: AtomicU64,
    /// Slots of the ring that waits took.
    pub(super) taken: AtomicU64,
    recorded: AtomicU64,
    pub(super) ring_full: AtomicU64,
    pub(super) event_failed: AtomicU64,
    stream_failed: AtomicU64,
    /// They count as unfinished, and never will be finished.
    pub(super) abandoned: AtomicU64,
    /// The last signal: who gave it, where it stands, and when it was given.
    signal: Mutex<(u64, i64, i64)>,
}

/// A host thread launches nothing in less time than this.
pub const SHORTEST_LAUNCH_NS: i64 = 1_000;

impl WaitStats {
    /// Where a signal stands, which a thread gave from `called_ns` to `put_ns`: right behind the last one, it stands where that
    /// does.
    pub fn place_of_signal(&self, thread: u64, called_ns: i64, put_ns: i64) -> i64 {
        let mut last = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, stands_ns, given_ns) = *last;
        let is_next = by == thread && called_ns >= given_ns && called_ns - given_ns < SHORTEST_LAUNCH_NS;
        let stands_ns = if is_next { stands_ns } else { called_ns };
        *last = (thread, stands_ns, put_ns);
        stands_ns
    }

    pub fn begin(&self, waits: u64) {
        self.begun.fetch_add(waits, Ordering::Relaxed);
    }

    /// These were none.
    pub fn take_back(&self, waits: u64) {
        self.begun.fetch_sub(waits, Ordering::Relaxed);
    }

    pub fn add_recorded(&self, waits: u64) {
        self.recorded.fetch_add(waits, Ordering::Relaxed);
    }

    pub fn add_stream_failed(&self, waits: u64) {
        self.stream_failed.fetch_add(waits, Ordering::Relaxed);
    }

    /// Slots of the ring that were not zones'.
    pub(super) fn slots_taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn slots_abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> WaitCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let dropped = Dropped {
            ring_full: count(&self.ring_full),
            event_failed: count(&self.event_failed),
            stream_failed: count(&self.stream_failed),
            ..Dropped::default()
        };
        let (begun, recorded) = (count(&self.begun), count(&self.recorded));
        let unfinished = begun.saturating_sub(recorded + dropped.total());
        WaitCounts { begun, recorded, dropped: Dropped { unfinished, ..dropped }, ..WaitCounts::default() }
    }
}
