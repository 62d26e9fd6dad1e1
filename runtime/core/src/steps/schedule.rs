//! Which steps a session records, and when the steps of the warm-up ran.
//!
//! The meaning is that of the schedule of PyTorch's profiler: in each cycle, some steps are not recorded, some are recorded and thrown away,
//! and some are recorded.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The steps of a cycle, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Steps in which nothing is recorded.
    pub wait: u64,
    /// Steps whose records are thrown away: they pay what the first zones cost.
    pub warmup: u64,
    /// Steps that are recorded; at least 1.
    pub active: u64,
    /// The number of cycles; 0 for no limit.
    pub repeat: u64,
}

/// What a session does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Warmup,
    Active,
}

impl Schedule {
    /// Returns what happens in a step, by the number of steps that have begun before it.
    pub(super) fn phase(&self, before: u64) -> Phase {
        let Schedule { wait, warmup, active, repeat } = *self;
        let cycle = wait.saturating_add(warmup).saturating_add(active).max(1);
        if repeat > 0 && before / cycle >= repeat {
            return Phase::Waiting;
        }
        match before % cycle {
            at if at < wait => Phase::Waiting,
            at if at - wait < warmup => Phase::Warmup,
            _ => Phase::Active,
        }
    }
}

/// The counts of a session's steps that are in no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotRecorded {
    /// Steps that the schedule left out.
    pub left_out: u64,
    /// Steps that a stop or the end of the session cut.
    pub cut: u64,
    /// Steps for which the queue had no room.
    pub dropped: u64,
}

/// The number of warm-ups that are remembered: a zone is read long before so many more begin.
const REMEMBERED: usize = 16;

/// The times of the last warm-ups. Launching threads write them, and the collector reads them.
pub(super) struct Warmups {
    /// The number of warm-ups that began.
    begun: AtomicU64,
    spans: [(AtomicI64, AtomicI64); REMEMBERED],
}

impl Warmups {
    pub(super) const fn new() -> Warmups {
        let spans = [const { (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)) }; REMEMBERED];
        Warmups { begun: AtomicU64::new(0), spans }
    }

    /// Notes that steps from now on belong to a warm-up, or do not. One thread at a time calls it.
    pub(super) fn set(&self, is_warmup: bool, now_ns: i64) {
        let begun = self.begun.load(Ordering::Relaxed);
        let last = begun.checked_sub(1).map(|last| &self.spans[last as usize % REMEMBERED]);
        let is_open = last.is_some_and(|(_, end)| end.load(Ordering::Relaxed) == i64::MAX);
        match (is_warmup, last) {
            (true, _) if !is_open => {
                let (begin, end) = &self.spans[begun as usize % REMEMBERED];
                begin.store(i64::MAX, Ordering::Relaxed);
                end.store(i64::MAX, Ordering::Relaxed);
                begin.store(now_ns, Ordering::Release);
                self.begun.store(begun + 1, Ordering::Release);
            }
            (false, Some((_, end))) if is_open => end.store(now_ns, Ordering::Release),
            _ => {}
        }
    }

    pub(super) fn contain(&self, ns: i64) -> bool {
        self.begun.load(Ordering::Acquire) > 0
            && self
                .spans
                .iter()
                .any(|(begin, end)| begin.load(Ordering::Acquire) <= ns && ns < end.load(Ordering::Acquire))
    }

    pub(super) fn clear(&self) {
        self.begun.store(0, Ordering::Relaxed);
        for (begin, end) in &self.spans {
            begin.store(i64::MAX, Ordering::Relaxed);
            end.store(i64::MAX, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_waits_then_warms_up_then_records() {
        let schedule = Schedule { wait: 2, warmup: 1, active: 2, repeat: 2 };
        let said: String = (0..12)
            .map(|step| match schedule.phase(step) {
                Phase::Waiting => '.',
                Phase::Warmup => 'w',
                Phase::Active => 'A',
            })
            .collect();
        assert_eq!(said, "..wAA..wAA..");
        let forever = Schedule { wait: 0, warmup: 0, active: 3, repeat: 0 };
        assert!((0..100).all(|step| forever.phase(step) == Phase::Active));
    }

    #[test]
    fn a_time_belongs_to_the_warm_up_that_it_is_in() {
        let warmups = Warmups::new();
        assert!(!warmups.contain(5));
        warmups.set(true, 10);
        warmups.set(true, 15);
        assert!(!warmups.contain(9) && warmups.contain(10) && warmups.contain(99));
        warmups.set(false, 20);
        assert!(warmups.contain(19) && !warmups.contain(20));
        warmups.set(true, 30);
        warmups.set(false, 40);
        assert!(warmups.contain(19) && warmups.contain(30) && !warmups.contain(25) && !warmups.contain(40));
    }
}
