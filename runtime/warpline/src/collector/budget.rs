//! The stage of the budget: it chooses which share of each range is recorded, so that recording costs the program no more than it may.
//!
//! It counts what comes by and divides the zones that the budget pays for among the ranges: rare ones are recorded whole, and
//! frequent ones get the same number each. It never reads a device.

use std::time::{Duration, Instant};

use super::context::Context;
use super::stage::Stage;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::sample::{Share, may_be_sampled, parts};

/// Between two adjustments of the chances.
const ADJUST_EVERY: Duration = Duration::from_millis(50);

/// How much of a new rate counts against what was known.
const NEWEST: f64 = 0.5;

/// The chances of a session with a budget.
pub(crate) struct Budget {
    /// Of a launching thread's time.
    share: f64,
    /// The greatest chance of a zone: the session's `sample`.
    most: Share,
    ranges: Vec<Rate>,
    adjusted: Instant,
}

/// What is known of a range that is sampled.
struct Rate {
    range: &'static RangeSpec,
    seen: u64,
    /// Zones in a second.
    rate: f64,
}

impl Stage for Budget {
    fn pass(&mut self, cx: &mut Context) -> usize {
        let zone_ns = cx.streams.clocks.zone_ns();
        if cx.recorder.is_on() {
            self.adjust(zone_ns);
        } else {
            // What comes by while the session is stopped is no rate of its own.
            self.adjusted = Instant::now();
        }
        0
    }
}

impl Budget {
    pub(crate) fn new(share: f64, most: Share) -> Budget {
        // Those that are left out now may be wanted later.
        let ranges = catalog().iter().filter(|range| may_be_sampled(range));
        let ranges = ranges.map(|range| Rate { range, seen: 0, rate: 0.0 }).collect();
        Budget { share, most, ranges, adjusted: Instant::now() }
    }

    /// Adjusts the chances, when it is time, to what a zone costs its thread now.
    fn adjust(&mut self, zone_ns: i64) {
        let since = self.adjusted.elapsed();
        if since < ADJUST_EVERY {
            return;
        }
        self.adjusted = Instant::now();
        for known in &mut self.ranges {
            let seen = known.range.chance().seen();
            let rate = seen.saturating_sub(known.seen) as f64 / since.as_secs_f64();
            known.rate += (rate - known.rate) * if known.seen == 0 { 1.0 } else { NEWEST };
            known.seen = seen;
        }
        let paid = self.share * 1e9 / zone_ns.max(1) as f64;
        let rates: Vec<f64> = self.ranges.iter().map(|known| known.rate).collect();
        let level = level(&rates, paid);
        let most = self.most.get();
        for known in &self.ranges {
            let share = if known.rate > level { level / known.rate } else { 1.0 };
            known.range.chance().adjust(parts(share.min(most)));
        }
    }
}

/// The rate up to which a range is recorded, so that all together are recorded at the rate `paid`.
fn level(rates: &[f64], paid: f64) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    let (mut left, mut ranges) = (paid, rates.len());
    for rate in rates {
        let equal = left / ranges as f64;
        if rate > equal {
            return equal;
        }
        left -= rate;
        ranges -= 1;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_ranges_share_what_rare_ones_leave() {
        assert_eq!(level(&[10.0, 1_000.0, 5_000.0], 210.0), 100.0);
        assert_eq!(level(&[10.0, 20.0], 100.0), f64::INFINITY);
        assert_eq!(level(&[50.0, 50.0], 50.0), 25.0);
        assert_eq!(level(&[], 50.0), f64::INFINITY);
    }
}
