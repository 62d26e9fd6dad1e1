//! From CUPTI's clock to the host's.
//!
//! CUPTI counts in ns of `CLOCK_REALTIME`, which is `CLOCK_BOOTTIME` and a distance that changes when somebody sets the clock. So a
//! time is moved by a distance and lengths stay as they are. A comparison that differs by no more than it may be wrong changes
//! nothing: then no two kernels that follow one another come to overlap.
//!
//! A clock that is set back says some times twice. What is later than it says now ran before it was set; of the other times nobody
//! can tell, and they are taken for the later ones.

use std::collections::VecDeque;

use warpline_core::clock::Comparison;

/// Distances that are remembered: records come some time after what they tell of.
const STEPS: usize = 64;

pub(super) struct Clock {
    steps: VecDeque<Step>,
    /// What CUPTI's clock said at the last comparison.
    latest_ns: i64,
}

/// A distance, and from when on it holds on CUPTI's clock.
#[derive(Clone, Copy)]
struct Step {
    since_ns: i64,
    distance_ns: i64,
    uncertainty_ns: i64,
    /// Of one that ended when the clock was set back: what the clock had said by then, at most.
    until_ns: i64,
}

impl From<Comparison> for Step {
    fn from(Comparison { device_ns, host_ns, uncertainty_ns }: Comparison) -> Step {
        let distance_ns = host_ns.wrapping_sub(device_ns);
        Step { since_ns: device_ns, distance_ns, uncertainty_ns, until_ns: i64::MIN }
    }
}

impl Clock {
    pub(super) fn new(first: Comparison) -> Clock {
        Clock { steps: [Step { since_ns: i64::MIN, ..first.into() }].into(), latest_ns: first.device_ns }
    }

    /// Takes another comparison in.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        let step = Step::from(comparison);
        self.latest_ns = step.since_ns;
        let Some(last) = self.steps.back_mut() else { return };
        let back_ns = step.distance_ns.wrapping_sub(last.distance_ns);
        let uncertainty_ns = step.uncertainty_ns + last.uncertainty_ns;
        if back_ns.saturating_abs() > uncertainty_ns {
            if back_ns > 0 {
                last.until_ns = step.since_ns.saturating_add(back_ns).saturating_add(uncertainty_ns);
            }
            if self.steps.len() == STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(step);
        }
    }

    /// The clock was set back, and does not say yet what it said before: a comparison right before a time is asked for tells
    /// whether that can have been since.
    pub(super) fn is_torn(&self) -> bool {
        self.steps.iter().rev().skip(1).any(|step| step.until_ns > self.latest_ns)
    }

    /// The host's time at one of CUPTI's.
    pub(super) fn host_ns(&self, told_ns: u64) -> i64 {
        let told_ns = told_ns.cast_signed();
        let was_said = |step: &&Step| (step.since_ns..=step.until_ns).contains(&told_ns);
        let before = || self.steps.iter().rev().skip(1).find(was_said).filter(|_| told_ns > self.latest_ns);
        let now = || self.steps.iter().rfind(|step| step.since_ns <= told_ns).or(self.steps.front());
        let holds = before().or_else(now);
        told_ns.wrapping_add(holds.map_or(0, |step| step.distance_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device_ns: i64, host_ns: i64) -> Comparison {
        Comparison { device_ns, host_ns, uncertainty_ns: 100 }
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
    fn what_ran_before_the_clock_was_set_back_is_told_by_what_the_clock_said_then() {
        // Set back by a second, and found out at 10,100 ms, when the clock says 9,100.
        let mut clock = Clock::new(at(10_000_000_000, 10_000_000_000));
        clock.compare(at(9_100_000_000, 10_100_000_000));
        assert!(clock.is_torn());
        // It has run by then, and on the new clock that is still to come.
        assert_eq!(clock.host_ns(10_050_000_000), 10_050_000_000);
        // The newest that the clock has said, and what was said before the clocks were compared.
        assert_eq!((clock.host_ns(9_100_000_000), clock.host_ns(9_099_999_999)), (10_100_000_000, 9_099_999_999));
        // What is said of later looks is of the new clock.
        clock.compare(at(9_200_000_000, 10_200_000_000));
        assert_eq!((clock.host_ns(9_150_000_000), clock.host_ns(10_050_000_000)), (10_150_000_000, 10_050_000_000));
        // No clock ever said so before.
        assert_eq!(clock.host_ns(10_200_000_000), 11_200_000_000);
        clock.compare(at(10_101_000_000, 11_101_000_000));
        assert!(!clock.is_torn(), "the new clock says by now what the old one said");
        assert_eq!(clock.host_ns(10_050_000_000), 11_050_000_000);
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
