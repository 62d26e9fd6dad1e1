//! What a session's settings leave out while it runs: ranges, by filter and level, and all zones while it is stopped.
//!
//! Code that changes the session updates this, on any thread. Reports read it, for the whole session or since a given time. Its memory
//! is constant, however often the session changes.

use std::time::Instant;

use warpline_core::dynamic;
use warpline_report::figures::LeftOut;

/// What was left out, and until when.
#[derive(Debug, Default)]
pub(crate) struct LeavesOut {
    ranges: Phase,
    stopped: Phase,
}

/// A condition that holds now, or held before.
#[derive(Debug, Default)]
struct Phase {
    /// The number that is left out now.
    now: u64,
    /// The maximum so far.
    most: u64,
    /// The time at which it last ended.
    until: Option<Instant>,
}

impl Phase {
    fn set(&mut self, now: u64) {
        if now == 0 && self.now > 0 {
            self.until = Some(Instant::now());
        }
        self.now = now;
        self.most = self.most.max(now);
    }

    /// Returns the most that was left out since then, or, if that is no longer known, at one time of the session.
    fn since(&self, since: Option<Instant>) -> u64 {
        let was = match since {
            None => true,
            Some(since) => self.now > 0 || self.until.is_some_and(|until| until > since),
        };
        if was { self.most } else { 0 }
    }
}

impl LeavesOut {
    /// Counts the ranges that are left out, after the chances for new zones are set.
    pub(crate) fn see_ranges(&mut self) {
        self.ranges.set(dynamic::all_ranges().filter(|range| range.chance().is_left_out()).count() as u64);
    }

    /// Notes that the session is stopped, or starts again.
    pub(crate) fn set_stopped(&mut self, is_stopped: bool) {
        self.stopped.set(u64::from(is_stopped));
    }

    /// Returns what was left out since then, or in the whole session.
    pub(crate) fn since(&self, since: Option<Instant>) -> LeftOut {
        LeftOut {
            ranges: self.ranges.since(since),
            of_ranges: dynamic::all_ranges().count() as u64,
            while_stopped: self.stopped.since(since) > 0,
        }
    }
}

/// Returns the number of zones that ran since the session began and were not chosen for the sample.
pub(crate) fn not_sampled() -> u64 {
    dynamic::all_ranges().map(|range| range.chance().passed_over()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_over_before_is_not_what_was_left_out_since() {
        let mut phase = Phase::default();
        let begin = Instant::now();
        assert_eq!((phase.since(None), phase.since(Some(begin))), (0, 0));
        phase.set(3);
        phase.set(2);
        assert_eq!((phase.since(None), phase.since(Some(Instant::now()))), (3, 3));
        phase.set(0);
        let over = phase.until.expect("it is over");
        phase.set(0);
        assert_eq!((phase.since(None), phase.since(Some(begin)), phase.since(Some(over))), (3, 3, 0));
    }
}
