//! The counts of one stream's waits, separate from those of its zones.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counts::Dropped;
use crate::counts::WaitCounts;
use crate::lock::lock;

/// The counts of one stream's waits.
#[derive(Debug, Default)]
pub struct WaitStats {
    begun: AtomicU64,
    /// Slots of the ring that waits have taken.
    pub(super) taken: AtomicU64,
    recorded: AtomicU64,
    pub(super) ring_full: AtomicU64,
    pub(super) event_failed: AtomicU64,
    stream_failed: AtomicU64,
    /// Abandoned waits. They count as unfinished for ever.
    pub(super) abandoned: AtomicU64,
    /// The last signal: its thread, the host time of its position on the stream, and when its call returned.
    signal: Mutex<(u64, i64, i64)>,
}

/// The shortest time in which a host thread can launch work.
pub const SHORTEST_LAUNCH_NS: i64 = 1_000;

impl WaitStats {
    /// Returns the host time that gives the position of a signal on its stream. A thread submitted the signal from `called_ns` to `put_ns`.
    /// If the signal directly follows another one, both have the same position, because the thread can launch no work between them.
    pub fn place_of_signal(&self, thread: u64, called_ns: i64, put_ns: i64) -> i64 {
        let mut last = lock(&self.signal);
        let (by, stands_ns, given_ns) = *last;
        let is_next = by == thread && called_ns >= given_ns && called_ns - given_ns < SHORTEST_LAUNCH_NS;
        let stands_ns = if is_next { stands_ns } else { called_ns };
        *last = (thread, stands_ns, put_ns);
        stands_ns
    }

    pub fn begin(&self, waits: u64) {
        self.begun.fetch_add(waits, Ordering::Relaxed);
    }

    /// Removes waits from the count of those begun.
    pub fn take_back(&self, waits: u64) {
        self.begun.fetch_sub(waits, Ordering::Relaxed);
    }

    pub fn add_recorded(&self, waits: u64) {
        self.recorded.fetch_add(waits, Ordering::Release);
    }

    pub fn add_stream_failed(&self, waits: u64) {
        self.stream_failed.fetch_add(waits, Ordering::Release);
    }

    /// Returns how many slots of the ring waits have taken.
    pub(super) fn slots_taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn slots_abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> WaitCounts {
        // As for zones: what became of waits is read before how many have begun.
        let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let dropped = Dropped {
            ring_full: count(&self.ring_full),
            event_failed: count(&self.event_failed),
            stream_failed: count(&self.stream_failed),
            ..Dropped::default()
        };
        let recorded = count(&self.recorded);
        let begun = count(&self.begun);
        let unfinished = begun.saturating_sub(recorded + dropped.total());
        WaitCounts { begun, recorded, dropped: Dropped { unfinished, ..dropped }, ..WaitCounts::default() }
    }
}
