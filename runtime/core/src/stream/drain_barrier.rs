//! A cut through the zones of one stream: of those that began before it, how many are still on their way.
//!
//! The collector makes one when a guest leaves, since what began before then is waited for while newer zones begin and end.
//! It tells the cuts of each slot that it gives back, and threads tell them of those that they give back unread, which are
//! few: no zone that is recorded takes the lock here, and nothing is done under it but to count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;

/// Slots that were given back unread, and the cuts that somebody still looks at.
#[derive(Default)]
pub(super) struct DrainBarriers {
    given_up: AtomicU64,
    is_cut: AtomicBool,
    cuts: Mutex<Vec<Weak<DrainBarrier>>>,
}

/// One cut; it is over when nobody holds it any more.
pub struct DrainBarrier {
    /// Zones of this number and above began after it.
    at: u64,
    on_their_way: AtomicU64,
}

impl DrainBarrier {
    /// Zones that began before and are neither recorded nor given up.
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
    /// A cut behind all that has begun: `taken` says how many slots that are, numbered from `first` on, of which the collector
    /// gave so many back. Only the collector may call it.
    pub(super) fn make(&self, first: u64, given_back: u64, taken: impl FnOnce() -> u64) -> Arc<DrainBarrier> {
        let mut cuts = lock(&self.cuts);
        // Whoever gives a slot up before the lock was taken began before; whoever does later finds the cut.
        let done = given_back + self.given_up();
        let taken = taken();
        let cut =
            Arc::new(DrainBarrier { at: first + taken, on_their_way: AtomicU64::new(taken.saturating_sub(done)) });
        cuts.retain(|known| known.strong_count() > 0);
        cuts.push(Arc::downgrade(&cut));
        self.is_cut.store(true, Ordering::Relaxed);
        cut
    }

    /// The collector gives back the slot of this number.
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

    /// A thread gives back the slot of this number unread.
    pub(super) fn give_up(&self, sequence: u64) {
        let cuts = lock(&self.cuts);
        self.given_up.fetch_add(1, Ordering::Relaxed);
        cuts.iter().filter_map(Weak::upgrade).for_each(|cut| cut.pass(sequence));
    }

    /// Slots that were given back unread.
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
        // Six have begun, the first one as number 10: the collector gave two back, a thread one.
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
