//! Timeline waits in the ring of a stream: how they take slots, and how they are counted separately from zones.
//!
//! `timeline/trace` calls this while a session records. Waits are in the same ring as zones because a stream is read in order: the begin of
//! a wait can be the end of the zone before it, and the begin of a zone can be the end of a wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{NoSlot, SlotGuard, StreamContext};
use crate::stream::slot::Lost;

impl StreamContext {
    /// Takes a slot for a new wait.
    pub fn claim_wait(self: Arc<Self>) -> Result<SlotGuard, NoSlot> {
        let context = Arc::clone(&self);
        // First, so that no wait is dropped or recorded that has not begun.
        context.waits().begin(1);
        let claim = self.claim_begun_wait();
        // If the session has ended or must add the stream again, the wait has not begun there.
        if matches!(claim, Err(NoSlot::Closed | NoSlot::Retired)) {
            context.waits().take_back(1);
        }
        claim
    }

    /// Takes a slot for a wait that is already counted as begun.
    pub fn claim_begun_wait(self: Arc<Self>) -> Result<SlotGuard, NoSlot> {
        let context = Arc::clone(&self);
        let stats = context.waits();
        let lose = |_: &StreamContext, why: &NoSlot| match why {
            NoSlot::Full => drop(stats.ring_full.fetch_add(1, Ordering::Relaxed)),
            NoSlot::NotMade => drop(stats.event_failed.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        };
        let claim = self.claim_counted(lose, |_| {});
        if claim.is_ok() {
            stats.taken.fetch_add(1, Ordering::Release);
        }
        claim
    }
}

impl SlotGuard {
    /// Passes the wait to the collector.
    pub fn publish_wait(mut self) {
        self.publish();
    }

    /// Drops the wait and counts it.
    #[cold]
    pub fn give_up_wait(mut self, why: Lost) {
        let stats = self.context().waits();
        match why {
            Lost::Abandoned => drop(stats.abandoned.fetch_add(1, Ordering::Relaxed)),
            Lost::Full => drop(stats.ring_full.fetch_add(1, Ordering::Relaxed)),
            Lost::EventFailed | Lost::Captured | Lost::CaptureFailed => {
                stats.event_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count_given_up();
        self.give_back();
    }
}
