//! Sampling: which zones a session records so that it costs the program no more than it may.
//!
//! Every range has a *chance*, which each of its zones takes on its own, so that what is recorded of a range is an unbiased
//! sample. The collector counts what comes by and shares the zones that the budget pays for among the ranges: rare ones
//! are recorded whole, frequent ones get the same number each.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::catalog::{RangeSpec, catalog};
use crate::clock::{now_ns, thread_id};

/// Between two adjustments of the chances.
const ADJUST_EVERY: Duration = Duration::from_millis(50);

/// Before anything is known of how often ranges come by.
const FIRST_CHANCE: f64 = 1.0 / 16.0;

/// How much of a new rate counts against what was known.
const NEWEST: f64 = 0.5;

/// Every zone is recorded, and nobody counts.
const ALWAYS: u32 = u32::MAX;

/// A range's chance, and how many of its zones took it.
#[derive(Debug)]
pub(crate) struct Chance {
    /// Of 2³² − 1; 0 for a range that is left out.
    chance: AtomicU32,
    seen: AtomicU64,
    /// Those that were not chosen.
    passed_over: AtomicU64,
}

impl Chance {
    pub(crate) const fn new() -> Chance {
        Chance { chance: AtomicU32::new(ALWAYS), seen: AtomicU64::new(0), passed_over: AtomicU64::new(0) }
    }

    /// Whether a zone that begins now is recorded.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        match self.chance.load(Ordering::Relaxed) {
            ALWAYS => true,
            0 => false,
            chance => self.draw(chance),
        }
    }

    #[cold]
    fn draw(&self, chance: u32) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let is_chosen = random() < chance;
        if !is_chosen {
            self.passed_over.fetch_add(1, Ordering::Relaxed);
        }
        is_chosen
    }

    /// What of the range's zones is recorded now.
    #[inline]
    pub(crate) fn now(&self) -> Sampled {
        Sampled(self.chance.load(Ordering::Relaxed))
    }

    /// The range's zones that came by, recorded or not; none where all are recorded and nobody counts.
    pub(crate) fn seen(&self) -> Option<u64> {
        Some(self.seen.load(Ordering::Relaxed)).filter(|seen| *seen > 0)
    }

    /// How many of the range's zones came by and were not chosen.
    pub(crate) fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    /// For a new session: records all, none, or a sample that a budget will pay for.
    pub(crate) fn reset(&self, leave_out: bool, sample: bool) {
        self.seen.store(0, Ordering::Relaxed);
        self.passed_over.store(0, Ordering::Relaxed);
        let chance = match (leave_out, sample) {
            (true, _) => 0,
            (false, true) => parts(FIRST_CHANCE),
            (false, false) => ALWAYS,
        };
        self.chance.store(chance, Ordering::Relaxed);
    }
}

/// A chance that a zone took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sampled(u32);

impl Sampled {
    /// Up to 1.
    pub(crate) fn share(self) -> f32 {
        (f64::from(self.0) / f64::from(ALWAYS)) as f32
    }
}

/// A share as a chance that is counted and never left out.
fn parts(share: f64) -> u32 {
    ((share * f64::from(ALWAYS)) as u32).clamp(1, ALWAYS - 1)
}

/// A number of this thread's own sequence (xorshift64).
fn random() -> u32 {
    thread_local!(static STATE: Cell<u64> = const { Cell::new(0) });
    let next = |state: &Cell<u64>| {
        let mut x = match state.get() {
            0 => (now_ns() as u64 ^ thread_id().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            x => x,
        };
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x >> 32) as u32
    };
    STATE.try_with(next).unwrap_or(0)
}

/// The chances of a session with a budget.
pub(crate) struct Budget {
    /// Of a launching thread's time.
    share: f64,
    ranges: Vec<Known>,
    adjusted: Instant,
}

/// What is known of a range that is sampled.
struct Known {
    range: &'static RangeSpec,
    seen: u64,
    /// Zones in a second.
    rate: f64,
}

impl Budget {
    pub(crate) fn new(share: f64) -> Budget {
        let ranges = catalog().iter().filter(|range| (1..ALWAYS).contains(&range.chance().now().0));
        let ranges = ranges.map(|range| Known { range, seen: 0, rate: 0.0 }).collect();
        Budget { share, ranges, adjusted: Instant::now() }
    }

    /// Adjusts the chances, when it is time, to what a zone costs its thread now.
    pub(crate) fn adjust(&mut self, zone_ns: i64) {
        let since = self.adjusted.elapsed();
        if since < ADJUST_EVERY {
            return;
        }
        self.adjusted = Instant::now();
        for known in &mut self.ranges {
            let seen = known.range.chance().seen().unwrap_or(0);
            let rate = seen.saturating_sub(known.seen) as f64 / since.as_secs_f64();
            known.rate += (rate - known.rate) * if known.seen == 0 { 1.0 } else { NEWEST };
            known.seen = seen;
        }
        let paid = self.share * 1e9 / zone_ns.max(1) as f64;
        let rates: Vec<f64> = self.ranges.iter().map(|known| known.rate).collect();
        let level = level(&rates, paid);
        for known in &self.ranges {
            let share = if known.rate > level { level / known.rate } else { 1.0 };
            known.range.chance().chance.store(parts(share), Ordering::Relaxed);
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

    #[test]
    fn a_chance_is_taken_as_often_as_it_says() {
        let chance = Chance::new();
        assert!(chance.take() && chance.seen().is_none());
        chance.reset(true, true);
        assert!(!chance.take());
        chance.reset(false, true);
        let taken = (0..160_000).filter(|_| chance.take()).count();
        assert_eq!(chance.seen(), Some(160_000));
        assert!((9_500..10_500).contains(&taken), "{taken} of 160,000 at 1 in 16");
        assert_eq!(chance.passed_over(), 160_000 - taken as u64);
    }
}
