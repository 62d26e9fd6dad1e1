//! The cost of recording: how much faster roots come while they are only counted than while they are recorded.
//!
//! Each cycle records right after it counts, so that a change of the program's pace affects both alike. The count is scaled to the
//! length of the window. The ratio of the two rates is estimated over cycles; each cycle is one observation for the standard error.
//! This module does not depend on clocks or zones.

/// The minimum numbers of cycles and of roots for an estimate with its error.
const LEAST_CYCLES: f64 = 8.0;
const LEAST_ROOTS: f64 = 32.0;

/// Sums over cycles, with equal weights or with the most weight on the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    cycles: f64,
    /// The number of counted roots, scaled to the length of the window, and the number of recorded roots.
    counted: f64,
    recorded: f64,
    /// The sums of their squares and of their product.
    squares: [f64; 3],
}

/// An estimate with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Cost {
    /// Adds a cycle. The previous sums are multiplied by `keep`.
    pub(super) fn add(&mut self, counted: f64, recorded: f64, keep: f64) {
        self.cycles = self.cycles * keep + 1.0;
        self.counted = self.counted * keep + counted;
        self.recorded = self.recorded * keep + recorded;
        let products = [counted * counted, recorded * recorded, counted * recorded];
        for (sum, product) in self.squares.iter_mut().zip(products) {
            *sum = *sum * keep + product;
        }
    }

    /// Returns the number of recorded roots.
    pub(super) fn recorded(&self) -> f64 {
        self.recorded
    }

    /// Returns how many times faster roots come while they are only counted. The value is near 1 while few roots are known.
    pub(super) fn ratio(&self) -> f64 {
        (self.counted + 1.0) / (self.recorded + 1.0)
    }

    /// Returns the share by which recording slows the program; none while too little is known.
    pub(super) fn slowdown(&self) -> Option<Estimate> {
        if self.cycles < LEAST_CYCLES || self.counted < LEAST_ROOTS || self.recorded < LEAST_ROOTS {
            return None;
        }
        let ratio = self.counted / self.recorded;
        let [counted, recorded, both] = self.squares;
        // The squared residuals of a ratio of sums, linearised.
        let spread = (counted - 2.0 * ratio * both + ratio * ratio * recorded).max(0.0);
        let error = (spread * self.cycles / (self.cycles - 1.0)).sqrt() / self.recorded;
        Some(Estimate { value: ratio - 1.0, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::sample::Sequence;

    #[test]
    fn the_slowdown_is_the_ratio_of_the_rates_and_little_data_says_nothing() {
        let mut cost = Cost::default();
        for _ in 0..7 {
            cost.add(13.0, 10.0, 1.0);
        }
        assert_eq!(cost.slowdown(), None, "seven cycles");
        cost.add(13.0, 10.0, 1.0);
        let slowdown = cost.slowdown().expect("eight cycles");
        assert!((slowdown.value - 0.3).abs() < 1e-9 && slowdown.error < 1e-6, "{slowdown:?}");
        let mut few = Cost::default();
        (0..20).for_each(|_| few.add(1.0, 1.0, 1.0));
        assert_eq!(few.slowdown(), None, "twenty roots");
    }

    #[test]
    fn the_error_is_what_repeated_measurements_show() {
        let mut sequence = Sequence::new(88_172_645_463_325_252);
        let mut noise = || sequence.share();
        let runs: Vec<Estimate> = (0..2_000)
            .map(|_| {
                let mut cost = Cost::default();
                (0..50).for_each(|_| cost.add((10.0 + 4.0 * noise()).floor(), (8.0 + 4.0 * noise()).floor(), 1.0));
                cost.slowdown().expect("fifty cycles")
            })
            .collect();
        let mean = |value: &dyn Fn(&Estimate) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
        // The means are 11.5 and 9.5.
        let truth = 11.5 / 9.5 - 1.0;
        let off = mean(&|run| (run.value - truth).powi(2)).sqrt();
        let said = mean(&|run| run.error);
        assert!((mean(&|run| run.value) - truth).abs() < 0.01, "{}", mean(&|run| run.value));
        assert!((said / off - 1.0).abs() < 0.1, "it says {said}, and is {off} off");
    }
}
