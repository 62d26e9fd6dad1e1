//! The total of a range of which only a sample was recorded, and its standard error.
//!
//! Each zone is chosen independently (`warpline_core::sample`), so a record with the chance p stands for w = 1/p zones: the
//! Horvitz-Thompson estimate of a total is the sum of w y. Its variance, estimated by the sum of w (w - 1) y², comes mostly from the number
//! of chosen zones. If the number of zones that ran is known, the estimate is scaled to that number, which leaves only the variance of the
//! lengths: w (w - 1) (y - mean)². If no record stands for others and some zones are missing, the missing ones are assumed to be as long as
//! the records, with the variance that n records show: m s² + m² s²/n for m missing zones. Nothing here depends on ranges or sinks.

/// Sums over records, in constant memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) count: u64,
    /// The number of records that stand for more than one zone.
    pub(super) sampled: u64,
    /// The sum of w, which is the number of zones that the records stand for.
    pub(super) weight: f64,
    /// The sum of w y.
    weighted_ns: f64,
    /// The sum of w y².
    weighted_squares: f64,
    /// The sums of w (w - 1), times 1, y and y².
    spread: [f64; 3],
}

impl Sums {
    /// Adds a record that stands for `weight` zones of this length.
    pub(super) fn add(&mut self, ns: i64, weight: f64) {
        let (ns, more) = (ns as f64, weight * (weight - 1.0));
        self.count += 1;
        self.sampled += u64::from(weight > 1.0);
        self.weight += weight;
        self.weighted_ns += weight * ns;
        self.weighted_squares += weight * ns * ns;
        for (sum, term) in self.spread.iter_mut().zip([1.0, ns, ns * ns]) {
            *sum += more * term;
        }
    }

    /// Returns the mean length of the zones that the records stand for, in ns; 0 if there are none.
    pub(super) fn mean(&self) -> f64 {
        if self.weight > 0.0 { self.weighted_ns / self.weight } else { 0.0 }
    }

    /// Returns the sum of all zones that ran and its standard error, in ns. `came_by` is the number of these zones, if it is known.
    pub(super) fn total(&self, came_by: Option<u64>) -> (f64, f64) {
        let [ones, lengths, squares] = self.spread;
        let known = came_by.filter(|_| self.weight > 0.0);
        let Some(came_by) = known else { return (self.weighted_ns, squares.max(0.0).sqrt()) };
        if self.sampled == 0 {
            return self.total_with_missing(came_by.saturating_sub(self.count) as f64);
        }
        // One record does not show how lengths differ.
        if self.sampled == 1 {
            return (self.weighted_ns, squares.max(0.0).sqrt());
        }
        let (mean, scale) = (self.mean(), came_by as f64 / self.weight);
        let few = self.sampled as f64 / (self.sampled - 1) as f64;
        let variance = (squares - 2.0 * mean * lengths + mean * mean * ones).max(0.0) * few;
        (scale * self.weighted_ns, scale * variance.sqrt())
    }

    /// Returns the same if each record stands for one zone and this many zones have no record.
    fn total_with_missing(&self, missing: f64) -> (f64, f64) {
        let (mean, count) = (self.mean(), self.count as f64);
        let total = self.weighted_ns + missing * mean;
        // One record does not show how lengths differ.
        if self.count < 2 {
            return (total, missing * mean);
        }
        let variance = (self.weighted_squares - count * mean * mean).max(0.0) / (count - 1.0);
        (total, (variance * (missing + missing * missing / count)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::sample::Sequence;

    /// The estimate is right on average over repeated samples, and its standard error is the actual deviation.
    #[test]
    fn the_standard_error_is_what_repeated_samples_show() {
        let mut sequence = Sequence::new(88_172_645_463_325_252);
        // A thousand zones of 1 to 2 µs, whose chance changes halfway.
        let zones: Vec<(i64, f64)> =
            (0..1_000).map(|n| (1_000 + n % 100 * 10, if n < 500 { 0.05 } else { 0.4 })).collect();
        let truth: i64 = zones.iter().map(|(ns, _)| ns).sum();
        for known in [None, Some(zones.len() as u64)] {
            let runs: Vec<(f64, f64)> = (0..2_000)
                .map(|_| {
                    let mut sums = Sums::default();
                    let chosen = zones.iter().filter(|(_, chance)| sequence.share() < *chance);
                    chosen.for_each(|(ns, chance)| sums.add(*ns, 1.0 / chance));
                    sums.total(known)
                })
                .collect();
            let count = runs.len() as f64;
            let mean = runs.iter().map(|run| run.0).sum::<f64>() / count;
            let off = (runs.iter().map(|run| (run.0 - truth as f64).powi(2)).sum::<f64>() / count).sqrt();
            let said = runs.iter().map(|run| run.1).sum::<f64>() / count;
            assert!((mean / truth as f64 - 1.0).abs() < 0.01, "{mean} of {truth}, {known:?}");
            assert!((said / off - 1.0).abs() < 0.1, "it says {said}, and is {off} off, {known:?}");
            // A known number of zones makes the estimate much better.
            assert!(known.is_none() || off < 0.03 * truth as f64, "{off} of {truth}");
        }
    }

    /// Zones may be passed over before the session records all of them.
    #[test]
    fn zones_that_came_by_before_all_were_recorded_are_in_the_total() {
        let mut sums = Sums::default();
        [8, 10, 12].into_iter().for_each(|ns| sums.add(ns, 1.0));
        let (total, error) = sums.total(Some(5));
        assert_eq!(total, 50.0);
        // s² is 4, and 2 of 5 are missing.
        assert!((error - (4.0_f64 * (2.0 + 4.0 / 3.0)).sqrt()).abs() < 1e-9, "{error}");
        let mut one = Sums::default();
        one.add(10, 1.0);
        assert_eq!((one.total(Some(4)), one.total(Some(1)), one.total(None)), ((40.0, 30.0), (10.0, 0.0), (10.0, 0.0)));
    }

    #[test]
    fn what_was_recorded_whole_has_no_error() {
        let mut sums = Sums::default();
        (1..=4).for_each(|ns| sums.add(ns, 1.0));
        assert_eq!((sums.total(None), sums.total(Some(4)), sums.mean()), ((10.0, 0.0), (10.0, 0.0), 2.5));
    }
}
