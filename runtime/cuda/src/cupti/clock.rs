//! The conversion from CUPTI's clock to the host's.
//!
//! CUPTI counts in ns of `CLOCK_REALTIME`, which differs from `CLOCK_BOOTTIME` by a distance that changes when the clock is set. Times are
//! therefore moved by a distance, and lengths stay as they are. A comparison that differs by no more than its uncertainty changes nothing,
//! so that successive kernels never overlap.
//!
//! A clock that is set back repeats some times. Those later than its present time are from before the change. The others are ambiguous, and
//! are taken as the later ones.

use std::collections::VecDeque;

use warpline_core::clock::Comparison;
use warpline_core::record::Span;

/// The number of distances that are remembered, because records are delivered some time after the work.
const STEPS: usize = 64;

/// What CUPTI's times are off against the device's own clock at most: CUPTI places kernels on `CLOCK_REALTIME` by a line through few points.
/// Over five minutes and after rests, the bench `cupti-clock` read 1.1 µs on an H100, within 1 µs (`benches/RESULTS.md`).
const OF_CUPTI_NS: i64 = 2_100;

pub(super) struct Clock {
    steps: VecDeque<Step>,
    /// The largest uncertainty of a comparison so far.
    worst_ns: i64,
    /// The time of CUPTI's clock at the last comparison.
    latest_ns: i64,
}

/// A distance, and the time on CUPTI's clock from which it holds.
#[derive(Clone, Copy)]
struct Step {
    since_ns: i64,
    distance_ns: i64,
    uncertainty_ns: i64,
    /// If the clock was set back at the end of the step, the latest time that it can have shown before.
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
        let steps = [Step { since_ns: i64::MIN, ..first.into() }].into();
        Clock { steps, worst_ns: first.uncertainty_ns, latest_ns: first.device_ns }
    }

    /// Returns the largest error of a converted time, in ns.
    pub(super) fn worst_uncertainty_ns(&self) -> i64 {
        OF_CUPTI_NS + self.worst_ns
    }

    /// Adds a comparison.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        let step = Step::from(comparison);
        self.latest_ns = step.since_ns;
        self.worst_ns = self.worst_ns.max(comparison.uncertainty_ns);
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

    /// Returns whether the clock was set back and has not caught up with its earlier times. A comparison directly before a conversion then
    /// shows whether a time can be from after the change.
    pub(super) fn is_torn(&self) -> bool {
        self.steps.iter().rev().skip(1).any(|step| step.until_ns > self.latest_ns)
    }

    /// Converts a time of CUPTI's clock to the host's.
    pub(super) fn host_ns(&self, told_ns: u64) -> i64 {
        let told_ns = told_ns.cast_signed();
        let was_said = |step: &&Step| (step.since_ns..=step.until_ns).contains(&told_ns);
        let before = || self.steps.iter().rev().skip(1).find(was_said).filter(|_| told_ns > self.latest_ns);
        let now = || self.steps.iter().rfind(|step| step.since_ns <= told_ns).or(self.steps.front());
        let holds = before().or_else(now);
        told_ns.wrapping_add(holds.map_or(0, |step| step.distance_ns))
    }

    /// Converts a span of CUPTI's clock to the host's. The length is CUPTI's own.
    pub(super) fn span(&self, start: u64, end: u64) -> Span {
        let begin_ns = self.host_ns(start);
        Span { begin_ns, end_ns: begin_ns.saturating_add(end.saturating_sub(start).cast_signed()) }
    }

    /// Returns the middle of a call, on the host's clock.
    pub(super) fn called_ns(&self, start: u64, end: u64) -> i64 {
        self.host_ns(start) + (end.saturating_sub(start) / 2).cast_signed()
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
        // The clock was set back by a second, which is noticed at 10,100 ms, when it shows 9,100.
        let mut clock = Clock::new(at(10_000_000_000, 10_000_000_000));
        clock.compare(at(9_100_000_000, 10_100_000_000));
        assert!(clock.is_torn());
        // The old clock has shown this time, and the new one has not reached it.
        assert_eq!(clock.host_ns(10_050_000_000), 10_050_000_000);
        // The latest time of the clock, and one from before the comparison.
        assert_eq!((clock.host_ns(9_100_000_000), clock.host_ns(9_099_999_999)), (10_100_000_000, 9_099_999_999));
        // Times up to a later comparison are of the new clock.
        clock.compare(at(9_200_000_000, 10_200_000_000));
        assert_eq!((clock.host_ns(9_150_000_000), clock.host_ns(10_050_000_000)), (10_150_000_000, 10_050_000_000));
        // The old clock never showed this time.
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
