//! The order of zones whose ends are events.
//!
//! The driver gives times between events as 32-bit floats, and the line between the clocks moves by some ns from one reading to the next. Two
//! points of one time may therefore be placed in the wrong order: a zone would overlap the one before it, or end before the one in it, and a
//! trace would need a second row for the stream.

use std::collections::VecDeque;

use warpline_core::record::Span;

/// The rounding error of a distance of one second, such as that to the anchor of the clock.
pub(super) const LOST_NS: i64 = 64;

/// The number of ends that are kept: the zones in one zone, without those that are in one of these.
const KEPT: usize = 256;

/// The end of a zone that an event has timed.
#[derive(Clone, Copy)]
struct TimedEnd {
    device_ns: i64,
    /// The same by the host's clock.
    placed_ns: i64,
    /// When the thread had recorded the event.
    recorded_ns: i64,
}

/// The ends of the zones that were read last.
#[derive(Default)]
pub(super) struct TimedEnds(VecDeque<TimedEnd>);

/// The ends that the points of a zone may not precede.
#[derive(Clone, Copy)]
pub(super) struct Neighbors {
    /// The last end before the zone began.
    before: Option<TimedEnd>,
    /// The last end in the zone.
    within: Option<TimedEnd>,
}

impl TimedEnds {
    /// Returns the neighbors of the zone with this launch, which is read next. Ends in it are followed by its own.
    pub(super) fn around(&mut self, launch: Span) -> Neighbors {
        let mut within = None;
        while let Some(last) = self.0.back().copied().filter(|end| end.recorded_ns > launch.begin_ns) {
            within = within.or(Some(last));
            self.0.pop_back();
        }
        Neighbors { before: self.0.back().copied(), within }
    }

    /// Adds the end of a zone on the device and by the host's clock.
    pub(super) fn add(&mut self, device_ns: i64, placed_ns: i64, launch: Span) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(TimedEnd { device_ns, placed_ns, recorded_ns: launch.end_ns });
    }
}

impl Neighbors {
    /// Returns the begin and end on the device without the rounding that puts them before a neighbor.
    pub(super) fn order(self, begin_ns: i64, end_ns: i64) -> (i64, i64) {
        let lost = |neighbor: Option<TimedEnd>, ns: i64| {
            let lost_ns = neighbor.map_or(0, |end| end.device_ns - ns);
            if (1..=2 * LOST_NS).contains(&lost_ns) { lost_ns } else { 0 }
        };
        let late_ns = lost(self.before, begin_ns);
        let end_ns = end_ns + late_ns;
        (begin_ns + late_ns, end_ns + lost(self.within, end_ns))
    }

    /// Returns the begin and end by the host's clock, in the order that they have on the device.
    pub(super) fn place(self, on_device: (i64, i64), placed: (i64, i64)) -> (i64, i64) {
        let not_before = |neighbor: Option<TimedEnd>, device_ns: i64, placed_ns: i64| match neighbor {
            Some(end) if device_ns >= end.device_ns => placed_ns.max(end.placed_ns),
            _ => placed_ns,
        };
        let begin_ns = not_before(self.before, on_device.0, placed.0);
        (begin_ns, not_before(self.within, on_device.1, placed.1).max(begin_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    #[test]
    fn points_of_one_time_are_in_the_order_in_which_they_were_recorded() {
        let mut ends = TimedEnds::default();
        // A step, then a step of two kernels: each begins where the one before it ends, and rounding puts it before that.
        for (at, begin, end) in [(launch(0, 10), 0, 1_000), (launch(22, 25), 1_500, 2_000)] {
            assert_eq!(ends.around(at).order(begin, end), (begin, end));
            ends.add(end, 50_000 + end, at);
        }
        let second = ends.around(launch(26, 29));
        assert_eq!(second.order(1_940, 2_440), (2_000, 2_500));
        assert_eq!(second.place((2_000, 2_500), (51_998, 52_498)), (52_000, 52_498));
        ends.add(2_500, 52_498, launch(26, 29));
        let step = ends.around(launch(20, 30));
        assert_eq!(
            step.order(960, 2_400),
            (1_000, 2_500),
            "after the first step, and not before its last kernel's end"
        );
        assert_eq!(step.place((1_000, 2_500), (50_999, 52_497)), (51_000, 52_498));
        ends.add(2_500, 52_498, launch(20, 30));
        assert_eq!(ends.0.len(), 2, "the ends in a zone make room for its own");
    }

    #[test]
    fn what_no_rounding_explains_stays() {
        let mut ends = TimedEnds::default();
        ends.add(10_000, 60_000, launch(0, 10));
        // On another thread: launched after it, and on the device before it.
        let other = ends.around(launch(11, 12));
        assert_eq!(other.order(9_000, 9_500), (9_000, 9_500));
        assert_eq!(other.place((9_000, 9_500), (59_000, 59_500)), (59_000, 59_500));
    }

    #[test]
    fn a_stream_without_end_keeps_few() {
        let mut ends = TimedEnds::default();
        for n in 0..10_000 {
            let at = launch(10 * n, 10 * n + 5);
            ends.around(at);
            ends.add(n, n, at);
        }
        assert_eq!(ends.0.len(), KEPT);
    }
}
