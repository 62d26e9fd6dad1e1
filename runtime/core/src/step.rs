//! The record of a step, and which steps a session records, as plain data.
//!
//! Sinks, tests and users' own analysis read it. `steps` has the boundaries from which the collector makes it.

use std::sync::Arc;

use crate::record::{Span, ThreadInfo};

/// One step of the program: an iteration of its loop, from [`step`](crate::zone::step::step) or from a mark with `step`.
///
/// `Send` and `Sync`; cloning shares the name of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The number of the step, as the program gives it.
    pub number: u64,
    /// The thread that began it.
    pub thread: Arc<ThreadInfo>,
    /// The time from its begin to its end on that thread. Work that it launched may still run on streams when it ends.
    pub host: Span,
}

impl StepRecord {
    /// Returns the duration, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.host.duration_ns()
    }
}

/// Which steps a session records: the steps of a cycle, in their order.
///
/// The meaning is that of the schedule of PyTorch's profiler: in each cycle, some steps are not recorded, some are recorded and thrown
/// away, and some are recorded.
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
pub(crate) enum Phase {
    Waiting,
    Warmup,
    Active,
}

impl Schedule {
    /// Returns what happens in a step, by the number of steps that have begun before it.
    pub(crate) fn phase(&self, before: u64) -> Phase {
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
}
