//! Polling an event of the clock's own until it completes, and how well the host saw that.

use std::time::Instant;

use super::EventDevice;
use crate::clock::{Comparison, now_ns};

/// The interval of observation of its first event, in ns, above which a line is rough.
const ROUGH_NS: i64 = 100_000;
/// The maximum time from the completion of an event until the host can see it, in ns.
const VISIBLE_NS: i64 = 1_000;

/// The quality of the line between the clocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// None of the clock's events has completed, so the device's time is unknown and zones wait.
    None,
    /// The first event of the line was observed late. The next comparison that is used starts a new line.
    Rough,
    Sound,
}

/// The interval in which the host saw an event complete, in ns of its own clock.
pub(super) struct Seen {
    from_ns: i64,
    to_ns: i64,
    /// How much earlier than `from_ns` the device may have completed the event.
    visible_ns: i64,
}

/// The host's last observation of an event that was incomplete.
pub(super) struct NotYet {
    asked_ns: i64,
}

impl Line {
    /// Returns the quality of a line that begins with this event.
    pub(super) fn from(seen: &Seen) -> Line {
        if seen.width_ns() > ROUGH_NS { Line::Rough } else { Line::Sound }
    }
}

impl Seen {
    /// Narrows the interval by that of another clock. One that contradicts the observation changes nothing.
    pub(super) fn join(&mut self, (earliest_ns, latest_ns): (i64, i64)) {
        // The host sees the event a little after the device completes it.
        let from_ns = earliest_ns.max(self.from_ns - self.visible_ns);
        let to_ns = latest_ns.min(self.to_ns);
        if from_ns <= to_ns {
            *self = Seen { from_ns, to_ns, visible_ns: 0 };
        }
    }

    pub(super) fn width_ns(&self) -> i64 {
        self.to_ns - self.from_ns
    }

    /// Returns the comparison of this observation with the event's time on the device.
    pub(super) fn at(&self, device_ns: i64) -> Comparison {
        let host_ns = i64::midpoint(self.from_ns, self.to_ns);
        Comparison { device_ns, host_ns, uncertainty_ns: self.width_ns() / 2 + self.visible_ns }
    }
}

impl NotYet {
    /// Queries the event once more.
    pub(super) fn look_again<D: EventDevice>(&mut self, device: &D, event: D::Event) -> Result<Option<Seen>, D::Error> {
        match watch(device, event, self.asked_ns, Instant::now())? {
            Ok(seen) => Ok(Some(seen)),
            Err(not_yet) => {
                *self = not_yet;
                Ok(None)
            }
        }
    }
}

/// Polls a timed event until it is complete or the deadline has passed.
pub(super) fn watch<D: EventDevice>(
    device: &D,
    event: D::Event,
    recorded_ns: i64,
    deadline: Instant,
) -> Result<Result<Seen, NotYet>, D::Error> {
    let mut from_ns = recorded_ns;
    loop {
        let asked_ns = now_ns();
        if device.has_passed(event)? {
            return Ok(Ok(Seen { from_ns, to_ns: now_ns(), visible_ns: VISIBLE_NS }));
        }
        from_ns = asked_ns;
        if Instant::now() >= deadline {
            return Ok(Err(NotYet { asked_ns }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen { from_ns: 10_000, to_ns: 14_000, visible_ns: VISIBLE_NS }
    }

    #[test]
    fn another_clock_narrows_what_the_host_saw() {
        let mut joined = seen();
        assert_eq!((seen().at(0).host_ns, seen().at(0).uncertainty_ns), (12_000, 3_000));
        joined.join((9_500, 11_500));
        assert_eq!((joined.at(0).host_ns, joined.at(0).uncertainty_ns), (10_500, 1_000));
        // Only one of its ends is better.
        let mut joined = seen();
        joined.join((0, 12_000));
        assert_eq!((joined.at(0).host_ns, joined.at(0).uncertainty_ns), (10_500, 1_500));
    }

    #[test]
    fn a_clock_that_contradicts_what_the_host_saw_changes_nothing() {
        for interval in [(14_001, 20_000), (0, 8_999)] {
            let mut joined = seen();
            joined.join(interval);
            assert_eq!(joined.at(7), seen().at(7), "{interval:?}");
        }
    }
}
