//! The zones that wait for their step to be closed, in the order of their begins on their threads.
//!
//! Streams deliver zones in batches, each in the order of its ends, so the newest part is sorted where a step is closed, and no more.

use warpline_core::record::Span;

/// The most zones that wait.
const MOST: usize = 1 << 16;

/// A zone until its step is closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) name: &'static str,
    pub(super) host: Span,
    pub(super) thread: u64,
    pub(super) depth: u32,
    pub(super) ns: i64,
    pub(super) launch_ns: i64,
    pub(super) end_early_ns: i64,
}

/// All of them.
#[derive(Default)]
pub(super) struct PendingZones {
    zones: Vec<Pending>,
    /// Those before were taken.
    from: usize,
    /// Those before are in order.
    sorted: usize,
}

impl PendingZones {
    /// Adds a zone. Returns whether there was room for all.
    pub(super) fn push(&mut self, zone: Pending) -> bool {
        let has_room = self.zones.len() - self.from < MOST;
        if !has_room {
            self.from += 1;
            self.sorted = self.sorted.max(self.from);
        }
        self.make_room();
        self.zones.push(zone);
        has_room
    }

    /// Forgets what was taken, once that is the larger part.
    fn make_room(&mut self) {
        if self.from > 256 && self.from * 2 > self.zones.len() {
            self.zones.drain(..self.from);
            self.sorted -= self.from;
            self.from = 0;
        }
    }

    /// Puts all in order.
    pub(super) fn sort(&mut self) {
        let Some(new) = self.zones.get(self.sorted..).filter(|new| !new.is_empty()) else { return };
        let first_ns = new.iter().map(|zone| zone.host.begin_ns).min().unwrap_or(i64::MIN);
        let known = &self.zones[self.from..self.sorted];
        let place = self.from + known.partition_point(|zone| zone.host.begin_ns <= first_ns);
        self.zones[place..].sort_by_key(|zone| zone.host.begin_ns);
        self.sorted = self.zones.len();
    }

    /// Takes the zones that began before the end of a step, and returns those that began in it. Call [`sort`](Self::sort) before.
    pub(super) fn take(&mut self, step: Span) -> &[Pending] {
        let known = &self.zones[self.from..self.sorted];
        let before = known.partition_point(|zone| zone.host.begin_ns < step.begin_ns);
        let until = known.partition_point(|zone| zone.host.begin_ns < step.end_ns).max(before);
        let (first, last) = (self.from + before, self.from + until);
        self.from = last;
        &self.zones[first..last]
    }

    /// Forgets the zones that ended before this time, where many wait.
    pub(super) fn forget(&mut self, until_ns: i64) {
        if self.zones.len() - self.from > MOST / 2 {
            self.zones.drain(..self.from);
            self.from = 0;
            self.zones.retain(|zone| zone.host.end_ns > until_ns);
            self.sorted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(begin_ns: i64) -> Pending {
        let host = Span { begin_ns, end_ns: begin_ns + 1 };
        Pending { name: "test", host, thread: 1, depth: 0, ns: 1, launch_ns: 0, end_early_ns: 0 }
    }

    proptest! {
        /// In whichever order zones come, each step gets those that began in it, in order.
        #[test]
        fn each_step_gets_its_own(batches in prop::collection::vec(prop::collection::vec(0_i64..100, 0..20), 0..40)) {
            let mut pending = PendingZones::default();
            let (mut all, mut taken) = (Vec::new(), Vec::new());
            for (round, batch) in batches.iter().enumerate() {
                let first_ns = round as i64 * 50;
                for at in batch {
                    prop_assert!(pending.push(zone(first_ns + at)));
                    all.push(first_ns + at);
                }
                pending.sort();
                let step = Span { begin_ns: first_ns, end_ns: first_ns + 50 };
                let begins: Vec<_> = pending.take(step).iter().map(|zone| zone.host.begin_ns).collect();
                prop_assert!(begins.iter().all(|at| (step.begin_ns..step.end_ns).contains(at)) && begins.is_sorted());
                taken.extend(begins);
            }
            let end_ns = batches.len() as i64 * 50;
            let expected: i64 = all.iter().filter(|at| **at < end_ns).count() as i64;
            prop_assert_eq!(taken.len() as i64, expected);
        }
    }

    #[test]
    fn they_are_bounded() {
        let mut pending = PendingZones::default();
        let kept = (0..300_000).filter(|at| pending.push(zone(*at))).count();
        assert_eq!(kept, MOST);
        assert!(pending.zones.capacity() <= 4 * MOST, "{}", pending.zones.capacity());
        pending.sort();
        assert_eq!(pending.take(Span { begin_ns: 0, end_ns: i64::MAX }).len(), MOST);
        assert!((0..MOST as i64).all(|at| pending.push(zone(at))));
        pending.forget(10_000);
        pending.sort();
        assert_eq!(pending.take(Span { begin_ns: 0, end_ns: i64::MAX }).len(), MOST - 10_000);
    }
}
