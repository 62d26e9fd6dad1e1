//! Drain barriers: for one stream, how many of the zones that began before a point in time are still pending.
//!
//! The collector creates a barrier to wait for the zones that have begun, while newer zones begin and end. It reports to the barriers each
//! slot that it gives back. Threads report the slots that they give back unread, which are few. A zone that is recorded therefore never
//! takes the lock, and only counting happens under it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;

/// The number of slots that were given back unread, and the barriers in use.
#[derive(Default)]
pub(super) struct DrainBarriers {
    given_up: AtomicU64,
    is_cut: AtomicBool,
    cuts: Mutex<Vec<Weak<DrainBarrier>>>,
}

/// One barrier. It ends when its last owner drops it.
pub struct DrainBarrier {
    /// Zones with this number or a greater one began after the barrier.
    at: u64,
    on_their_way: AtomicU64,
}

impl DrainBarrier {
    /// Returns the number of zones that began before the barrier and are neither recorded nor given up.
    pub fn on_their_way(&self) -> u64 {
        self.on_their_way.load(Ordering::Relaxed)
    }

    fn pass(&self, sequence: u64) {
        if sequence < self.at {
            self.on_their_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl DrainBarriers {
    /// Creates a barrier after everything that has begun. `taken` returns how many slots were taken, numbered from `first`. The collector
    /// has given back `given_back` of them. Only the collector may call this.
    pub(super) fn make(&self, first: u64, given_back: u64, taken: impl FnOnce() -> u64) -> Arc<DrainBarrier> {
        let mut cuts = lock(&self.cuts);
        // A slot that was given up before this lock was taken is in `given_up`; one that is given up later is reported to the barrier.
        let done = given_back + self.given_up();
        let taken = taken();
        let cut =
            Arc::new(DrainBarrier { at: first + taken, on_their_way: AtomicU64::new(taken.saturating_sub(done)) });
        cuts.retain(|known| known.strong_count() > 0);
        cuts.push(Arc::downgrade(&cut));
        self.is_cut.store(true, Ordering::Relaxed);
        cut
    }

    /// Reports that the collector gives back the slot with this number.
    #[inline]
    pub(super) fn give_back(&self, sequence: u64) {
        if self.is_cut.load(Ordering::Relaxed) {
            self.pass(sequence);
        }
    }

    #[cold]
    fn pass(&self, sequence: u64) {
        let mut cuts = lock(&self.cuts);
        cuts.retain(|known| known.upgrade().inspect(|cut| cut.pass(sequence)).is_some());
        self.is_cut.store(!cuts.is_empty(), Ordering::Relaxed);
    }

    /// Reports that a thread gives back the slot with this number unread.
    pub(super) fn give_up(&self, sequence: u64) {
        let cuts = lock(&self.cuts);
        self.given_up.fetch_add(1, Ordering::Relaxed);
        cuts.iter().filter_map(Weak::upgrade).for_each(|cut| cut.pass(sequence));
    }

    /// Returns how many slots were given back unread.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_zones_that_end_are_not_taken_for_older_ones() {
        let cuts = DrainBarriers::default();
        // Six zones have begun, the first with number 10: the collector gave two back and a thread one.
        cuts.give_back(10);
        cuts.give_back(11);
        cuts.give_up(12);
        let cut = cuts.make(10, 2, || 6);
        assert_eq!(cut.on_their_way(), 3);
        (16..110).for_each(|sequence| cuts.give_back(sequence));
        cuts.give_up(110);
        assert_eq!(cut.on_their_way(), 3, "they began later");
        let later = cuts.make(10, 2 + 94, || 101);
        assert_eq!(later.on_their_way(), 3);
        cuts.give_up(14);
        cuts.give_back(13);
        assert_eq!((cut.on_their_way(), later.on_their_way()), (1, 1));
        drop(cut);
        cuts.give_back(15);
        assert_eq!(later.on_their_way(), 0);
        drop(later);
        cuts.give_back(111);
        assert!(!cuts.is_cut.load(Ordering::Relaxed), "nobody looks any more");
    }

    #[test]
    fn each_zone_counts_once_whoever_gives_it_back_meanwhile() {
        const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let (cuts, taken) = (DrainBarriers::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            let sequence = taken.fetch_add(1, Ordering::Relaxed);
                            cuts.give_up(sequence);
                        }
                    })
                })
                .collect();
            let mut made = Vec::new();
            while threads.iter().any(|thread| !thread.is_finished()) {
                made.truncate(8);
                made.push(cuts.make(0, 0, || taken.load(Ordering::Relaxed)));
                std::thread::yield_now();
            }
            assert!(made.iter().all(|cut| cut.on_their_way() == 0), "all that began has been given up");
        });
        assert_eq!(cuts.given_up(), 3 * EACH);
    }
}
