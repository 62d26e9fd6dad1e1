//! The waits of timelines on one stream: what a slot holds of a wait and of the signal that ended it, the counts of waits, and the
//! depths of queues.
//!
//! A timeline writes them while a session records, and the collector makes records of them.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::counts::{Dropped, WaitCounts};
use crate::lock::lock;
use crate::observer;
use crate::record::StreamInfo;
use crate::switch;
use crate::wait::{QueueDepth, WaitOutcome};

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

/// The most entries that wait for the collector, which takes them many times a second.
const MOST_DEPTHS: usize = 1 << 16;

/// The depths that queues have reported.
#[derive(Debug, Default)]
pub struct Depths(Mutex<WaitingDepths>);

#[derive(Debug, Default)]
struct WaitingDepths {
    waiting: Vec<QueueDepth>,
    begun: u64,
    dropped: u64,
    is_closed: bool,
}

impl Depths {
    pub fn add(&self, depth: QueueDepth) {
        let mut state = lock(&self.0);
        if state.is_closed {
            return;
        }
        state.begun += 1;
        if state.waiting.len() < MOST_DEPTHS {
            state.waiting.push(depth);
        } else {
            state.dropped += 1;
        }
    }

    /// Takes the entries that were added since the last call.
    pub fn take(&self) -> Vec<QueueDepth> {
        std::mem::take(&mut lock(&self.0).waiting)
    }

    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    /// Returns how many depths were reported, and how many were dropped because the list was full.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.begun, state.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_in_a_row_of_one_thread_have_one_place() {
        let stats = WaitStats::default();
        assert_eq!(stats.place_of_signal(1, 5_000, 5_400), 5_000);
        // The next call begins sooner than a thread can launch work, counted from the end of the one before.
        assert_eq!(stats.place_of_signal(1, 6_399, 6_500), 5_000);
        assert_eq!(stats.place_of_signal(1, 6_500, 6_600), 5_000);
        assert_eq!(stats.place_of_signal(1, 7_600, 7_700), 7_600, "work may have been launched between them");
        assert_eq!(stats.place_of_signal(2, 7_701, 7_800), 7_701, "another thread launches when it likes");
        assert_eq!(stats.place_of_signal(2, 7_799, 7_900), 7_799, "the calls overlap");
    }

    #[test]
    fn what_becomes_of_waits_adds_up() {
        let stats = WaitStats::default();
        stats.begin(10);
        stats.take_back(1);
        stats.add_recorded(4);
        stats.add_stream_failed(2);
        let counts = stats.counts();
        assert_eq!((counts.begun, counts.recorded, counts.dropped.stream_failed), (9, 4, 2));
        assert_eq!((counts.dropped.unfinished, counts.dropped.total()), (3, 5));
    }

    #[test]
    fn depths_beyond_the_bound_are_counted() {
        let depths = Depths::default();
        let depth = |at_ns| QueueDepth { queue: "decode".into(), at_ns, depth: 1 };
        (0..MOST_DEPTHS as i64 + 2).for_each(|at_ns| depths.add(depth(at_ns)));
        assert_eq!(depths.counts(), (MOST_DEPTHS as u64 + 2, 2));
        assert_eq!((depths.take().len(), depths.take().len()), (MOST_DEPTHS, 0));
        depths.add(depth(-1));
        depths.close();
        depths.add(depth(-2));
        let waiting: Vec<_> = depths.take().iter().map(|depth| depth.at_ns).collect();
        assert_eq!((waiting, depths.counts()), (vec![-1], (MOST_DEPTHS as u64 + 3, 2)));
    }
}
