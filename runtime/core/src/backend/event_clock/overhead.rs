//! The time that events, or stamps, add to the length of the work between them, estimated from many measured lengths.
//!
//! Work of other threads can only lengthen an otherwise empty pair, because the device then does something else between its events. The
//! shortest lengths are therefore the most accurate, and a session that measures several times keeps the least.

use crate::clock::EventOverhead;
use crate::sorting;

/// The largest plausible overhead. No known device needs more than a few us for an empty pair of events or two stamps.
const MOST_NS: i64 = 8_000;
/// The largest difference of lengths that agree, unless a quarter of the length is more.
const STEPS_NS: i64 = 250;
/// The length of an empty pair on an H100, below which no bound is assumed.
const LEAST_NS: i64 = 1_280;
/// The number of pairs that are measured, singly and in a row.
pub const PAIRS: usize = 32;
/// The number of sound measurements of one clock. Each can only be too long.
const MEASUREMENTS: u32 = 3;
/// The maximum number of attempts on a device that is never idle.
const ATTEMPTS: u32 = 40;

/// The overhead that some lengths show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The overhead, or an upper bound of it.
    pub ns: i64,
    /// Whether this is the overhead itself: it is plausible, and enough lengths agree.
    pub is_sound: bool,
}

/// Estimates the overhead from lengths of which `fixed_ns` are known.
pub fn estimate(mut lengths: Vec<i64>, fixed_ns: i64) -> Option<Estimate> {
    sorting::sort(&mut lengths);
    // Times have a resolution, so the very shortest length can be too short by one step.
    let ns = *lengths.get(lengths.len() / 8)?;
    let agree_to_ns = ns + STEPS_NS.max((ns - fixed_ns) / 4);
    let agree = lengths.iter().filter(|length| **length <= agree_to_ns).count();
    let ns = (ns - fixed_ns).max(0);
    Some(Estimate { ns, is_sound: ns <= MOST_NS && agree * 3 >= lengths.len() })
}

/// The measured overheads of a context's events.
#[derive(Debug, Default)]
pub(super) struct EventOverheads {
    least: EventOverhead,
    is_sound: bool,
    /// The time that a pair behind queued work adds to a kernel, if it was measured with one.
    calibrated_ns: Option<i64>,
    sound: u32,
    attempts: u32,
}

impl EventOverheads {
    /// Returns what events add; nothing if that is not certain.
    pub(super) fn known(&self) -> EventOverhead {
        let least = if self.is_sound { self.least } else { EventOverhead::default() };
        EventOverhead { busy_ns: self.calibrated_ns.unwrap_or(least.busy_ns), ..least }
    }

    /// Returns an upper bound of what events add, if only that is known.
    pub(super) fn bound(&self) -> Option<EventOverhead> {
        let is_known = self.is_sound || self.calibrated_ns.is_some();
        (!is_known && self.least != EventOverhead::default()).then_some(self.least)
    }

    /// Returns the maximum length of a pair on an idle stream.
    pub(super) fn idle_most_ns(&self) -> i64 {
        self.least.idle_ns.max(LEAST_NS)
    }

    /// Returns whether another measurement may be more accurate.
    pub(super) fn are_wanted(&self) -> bool {
        self.sound < MEASUREMENTS && self.attempts < ATTEMPTS
    }

    /// Adds a measurement of a pair on an idle stream and one behind queued work.
    pub(super) fn add(&mut self, idle: Estimate, busy: Estimate) {
        self.attempts += 1;
        let is_sound = idle.is_sound && busy.is_sound;
        self.sound += u32::from(is_sound);
        let measured = EventOverhead { idle_ns: idle.ns, busy_ns: busy.ns };
        if self.least == EventOverhead::default() || (is_sound && !self.is_sound) {
            self.least = measured;
        } else if is_sound == self.is_sound {
            self.least.idle_ns = self.least.idle_ns.min(measured.idle_ns);
            self.least.busy_ns = self.least.busy_ns.min(measured.busy_ns);
        }
        self.is_sound |= is_sound;
    }

    /// Counts a measurement that was not completed.
    pub(super) fn fail(&mut self) {
        self.attempts += 1;
    }

    /// Sets the time that a pair behind queued work adds to a kernel, as measured with one.
    pub(super) fn calibrate(&mut self, busy_ns: i64) {
        self.calibrated_ns = Some(busy_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_lengths(lengths: impl IntoIterator<Item = i64>, fixed_ns: i64) -> Estimate {
        estimate(lengths.into_iter().collect(), fixed_ns).expect("there are lengths")
    }

    #[test]
    fn lengths_that_agree_are_what_they_say() {
        assert_eq!(from_lengths([1_280; 32], 0), Estimate { ns: 1_280, is_sound: true });
        let stepping = (0..32).map(|n| 1_280 + n % 3 * 32);
        assert_eq!(from_lengths(stepping, 0), Estimate { ns: 1_280, is_sound: true });
        assert_eq!(from_lengths([14_000; 32], 10_850), Estimate { ns: 3_150, is_sound: true });
        assert_eq!(estimate(Vec::new(), 0), None);
    }

    #[test]
    fn work_of_others_in_half_of_the_pairs_changes_nothing() {
        let disturbed = (0..32).map(|n| if n % 2 == 0 { 1_300 } else { 5_000 + n * 2_000 });
        assert_eq!(from_lengths(disturbed, 0), Estimate { ns: 1_300, is_sound: true });
    }

    #[test]
    fn what_no_device_needs_is_a_bound() {
        // Two sessions measured these lengths of an empty pair while ten threads printed from kernels.
        for busy_ns in [12_900, 70_000] {
            assert_eq!(from_lengths([busy_ns; 32], 0), Estimate { ns: busy_ns, is_sound: false });
        }
    }

    #[test]
    fn lengths_that_do_not_agree_are_a_bound() {
        let spread = (0..32).map(|n| 1_300 + n * 700);
        assert!(!from_lengths(spread, 0).is_sound);
    }

    #[test]
    fn the_least_of_several_measurements_stays_and_a_sound_one_replaces_a_bound() {
        let estimate = |ns, is_sound| Estimate { ns, is_sound };
        let mut brackets = EventOverheads::default();
        assert_eq!((brackets.known(), brackets.bound()), (EventOverhead::default(), None));
        brackets.add(estimate(70_000, false), estimate(12_900, false));
        brackets.add(estimate(60_000, false), estimate(13_000, false));
        let bound = EventOverhead { idle_ns: 60_000, busy_ns: 12_900 };
        assert_eq!((brackets.known(), brackets.bound()), (EventOverhead::default(), Some(bound)));
        brackets.add(estimate(1_500, true), estimate(2_000, true));
        // Bounds are ignored from now on, even if one is lower.
        brackets.add(estimate(1_300, false), estimate(90_000, false));
        brackets.add(estimate(1_400, true), estimate(2_100, true));
        let known = EventOverhead { idle_ns: 1_400, busy_ns: 2_000 };
        assert_eq!((brackets.known(), brackets.bound()), (known, None));
        assert!(brackets.are_wanted());
        brackets.add(estimate(1_400, true), estimate(2_100, true));
        assert!(!brackets.are_wanted(), "three say enough");
    }

    #[test]
    fn what_was_measured_with_a_kernel_stays() {
        let estimate = |ns, is_sound| Estimate { ns, is_sound };
        let mut brackets = EventOverheads::default();
        brackets.add(estimate(70_000, false), estimate(12_900, false));
        brackets.calibrate(3_100);
        assert_eq!((brackets.known(), brackets.bound()), (EventOverhead { idle_ns: 0, busy_ns: 3_100 }, None));
        brackets.add(estimate(1_400, true), estimate(2_000, true));
        assert_eq!(brackets.known(), EventOverhead { idle_ns: 1_400, busy_ns: 3_100 });
    }

    #[test]
    fn a_device_that_is_never_quiet_is_asked_no_more_at_some_time() {
        let mut brackets = EventOverheads::default();
        (0..ATTEMPTS).for_each(|_| brackets.fail());
        assert!(!brackets.are_wanted());
    }
}
