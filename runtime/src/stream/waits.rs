//! Waits of a timeline in the ring of a stream: how they take a slot, and their account, which is not that of the zones.
//!
//! `timeline/trace` calls this while a session records. A wait is in the ring because what is read of a stream is read in
//! order: the begin of a wait may be the end of the zone before it, and the begin of a zone the end of a wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::{Claim, NoSlot, StreamContext};
use super::slot::{Lost, Slot};
use super::thread;
use super::waited::Waited;
use crate::backend::Call;
use crate::clock::now_ns;
use crate::record::Span;
use crate::session::{Dropped, WaitCounts};

/// What became of the waits of one stream.
#[derive(Debug, Default)]
pub(crate) struct WaitTally {
    begun: AtomicU64,
    /// Slots of the ring that waits took.
    taken: AtomicU64,
    recorded: AtomicU64,
    ring_full: AtomicU64,
    event_failed: AtomicU64,
    stream_failed: AtomicU64,
    /// They count as unfinished, and never will be finished.
    abandoned: AtomicU64,
    /// The last signal: who gave it, where it stands, and when it was given.
    signal: Mutex<(u64, i64, i64)>,
}

/// A host thread launches nothing in less time than this.
pub(crate) const SHORTEST_LAUNCH_NS: i64 = 1_000;

impl WaitTally {
    /// Where a signal stands, which a thread gave from `called_ns` to `put_ns`: right behind the last one, it stands where that
    /// does.
    pub(crate) fn place_of_signal(&self, thread: u64, called_ns: i64, put_ns: i64) -> i64 {
        let mut last = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, stands_ns, given_ns) = *last;
        let is_next = by == thread && called_ns >= given_ns && called_ns - given_ns < SHORTEST_LAUNCH_NS;
        let stands_ns = if is_next { stands_ns } else { called_ns };
        *last = (thread, stands_ns, put_ns);
        stands_ns
    }

    pub(crate) fn begin(&self, waits: u64) {
        self.begun.fetch_add(waits, Ordering::Relaxed);
    }

    /// These were none.
    pub(crate) fn take_back(&self, waits: u64) {
        self.begun.fetch_sub(waits, Ordering::Relaxed);
    }

    pub(crate) fn add_recorded(&self, waits: u64) {
        self.recorded.fetch_add(waits, Ordering::Relaxed);
    }

    pub(crate) fn add_stream_failed(&self, waits: u64) {
        self.stream_failed.fetch_add(waits, Ordering::Relaxed);
    }

    /// Slots of the ring that were not zones'.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn abandoned(&self) -> u64 {
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

impl StreamContext {
    /// A slot for a new wait.
    pub(crate) fn claim_wait(self: Arc<Self>) -> Result<Claim, NoSlot> {
        let tally = Arc::clone(&self);
        let claim = self.claim_begun_wait();
        // A session that is over, or that has to meet the stream anew, has not begun to record it.
        if !matches!(claim, Err(NoSlot::Closed | NoSlot::Retired)) {
            tally.waits().begin(1);
        }
        claim
    }

    /// A slot for a wait that is counted as begun.
    pub(crate) fn claim_begun_wait(self: Arc<Self>) -> Result<Claim, NoSlot> {
        let context = Arc::clone(&self);
        let tally = context.waits();
        let claim = self.claim_counted(|_, why| match why {
            NoSlot::Full => drop(tally.ring_full.fetch_add(1, Ordering::Relaxed)),
            NoSlot::NotMade => drop(tally.event_failed.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        });
        if claim.is_ok() {
            tally.taken.fetch_add(1, Ordering::Relaxed);
        }
        claim
    }
}

impl Claim {
    /// Hands the wait to the collector.
    pub(crate) fn publish_wait(mut self) {
        self.publish();
    }

    /// Drops the wait, and counts it.
    #[cold]
    pub(crate) fn give_up_wait(mut self, why: Lost) {
        let tally = self.context().waits();
        match why {
            Lost::Abandoned => drop(tally.abandoned.fetch_add(1, Ordering::Relaxed)),
            Lost::Full => drop(tally.ring_full.fetch_add(1, Ordering::Relaxed)),
            Lost::EventFailed | Lost::Captured | Lost::CaptureFailed => {
                tally.event_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count_given_up();
        self.give_back();
    }
}

impl Slot {
    /// Puts the first point of a wait on its stream.
    pub(crate) fn begin_wait(&mut self, waited: Waited) -> Result<(), Lost> {
        self.range = None;
        self.wait = Some(Box::new(waited));
        self.thread = thread::with(|thread| thread.id());
        self.host.begin_ns = now_ns();
        let call = Call { thread: self.thread, host_ns: self.host.begin_ns };
        self.points.as_mut().map_or(Ok(()), |points| points.begin(call).map_err(Lost::from))
    }

    /// Puts the second one there.
    pub(crate) fn end_wait(&mut self) -> Result<(), Lost> {
        let thread = thread::with(|thread| thread.id());
        let ended = self.points.as_mut().map_or(Ok(()), |points| points.end(thread).map(drop).map_err(Lost::from));
        self.host.end_ns = now_ns();
        ended
    }

    /// A wait of the calling thread, which is over.
    pub(crate) fn take_host_wait(&mut self, waited: Waited, begin_ns: i64, end_ns: i64) {
        self.range = None;
        self.wait = Some(Box::new(waited));
        self.thread = thread::with(|thread| thread.id());
        self.host = Span { begin_ns, end_ns };
    }
}
