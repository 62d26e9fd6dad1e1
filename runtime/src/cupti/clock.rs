//! From CUPTI's clock to the host's.
//!
//! CUPTI counts in ns of `CLOCK_REALTIME`, which is `CLOCK_BOOTTIME` and a distance that changes when somebody sets the clock. So a
//! time is moved by a distance and lengths stay as they are. A comparison that differs by no more than it may be wrong changes
//! nothing: then no two kernels that follow one another come to overlap.

use std::collections::VecDeque;

/// Distances that are remembered: records come some time after what they tell of.
const STEPS: usize = 64;

pub(super) struct Clock {
    steps: VecDeque<Step>,
}

/// A distance, and from when on it holds on CUPTI's clock.
#[derive(Clone, Copy)]
struct Step {
    since_ns: i64,
    distance_ns: i64,
    uncertainty_ns: i64,
}

/// CUPTI's time, the host's at the same moment, and how far that may be off.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    pub(super) told_ns: i64,
    pub(super) host_ns: i64,
    pub(super) uncertainty_ns: i64,
}

impl Comparison {
    fn step(self) -> Step {
        let Comparison { told_ns, host_ns, uncertainty_ns } = self;
        Step { since_ns: told_ns, distance_ns: host_ns.wrapping_sub(told_ns), uncertainty_ns }
    }
}

impl Clock {
    pub(super) fn new(first: Comparison) -> Clock {
        Clock { steps: [Step { since_ns: i64::MIN, ..first.step() }].into() }
    }

    /// Takes another comparison in.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        let step = comparison.step();
        let Some(last) = self.steps.back() else { return };
        let off_ns = step.distance_ns.wrapping_sub(last.distance_ns).saturating_abs();
        if off_ns > step.uncertainty_ns + last.uncertainty_ns {
            if self.steps.len() == STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(step);
        }
    }

    /// The host's time at one of CUPTI's.
    pub(super) fn host_ns(&self, told_ns: u64) -> i64 {
        let told_ns = told_ns.cast_signed();
        let holds = self.steps.iter().rfind(|step| step.since_ns <= told_ns).or(self.steps.front());
        told_ns.wrapping_add(holds.map_or(0, |step| step.distance_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(told_ns: i64, host_ns: i64) -> Comparison {
        Comparison { told_ns, host_ns, uncertainty_ns: 100 }
    }

    #[test]
    fn a_comparison_within_its_uncertainty_changes_nothing() {
        let mut clock = Clock::new(at(1_000_000, 5_000_000));
        for (told, off) in [(2_000_000, 150), (3_000_000, -150), (4_000_000, 200)] {
            clock.compare(at(told, told + 4_000_000 + off));
        }
        assert_eq!((clock.host_ns(1_000), clock.host_ns(9_000_000)), (4_001_000, 13_000_000));
    }

    #[test]
    fn a_clock_that_was_set_holds_from_then_on() {
        let mut clock = Clock::new(at(1_000_000, 5_000_000));
        clock.compare(at(2_000_000, 9_000_000));
        assert_eq!((clock.host_ns(1_999_999), clock.host_ns(2_000_000)), (5_999_999, 9_000_000));
        for step in 0..200 {
            clock.compare(at(3_000_000 + step, 50_000_000 + step * 1_000));
        }
        assert!(clock.steps.len() <= STEPS);
    }
}
