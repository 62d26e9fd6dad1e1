//! The error of a total that was recorded in windows. Zones of one window are not independent, so each window is one observation.
//!
//! A record stands for w zones, so the sum of w y in a window estimates the range's time in that cycle of the session. With n windows, the
//! total T is the sum of the windows' sums Y, and its variance is estimated by (n ΣY² − T²) / (n − 1), as for n independent observations
//! of the same distribution. Windows without a zone of the range are observations of zero.

/// The number of windows that are open at once. Records come window by window on each stream, but one stream after another.
const AT_ONCE: usize = 4;

/// The minimum number of windows. Fewer do not show how much windows differ.
const LEAST: f64 = 5.0;

/// The sums of a range's windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clusters {
    /// The sum of the squares of the complete windows.
    squares: f64,
    total: f64,
    /// The sums of the newest windows, by their number.
    newest: [(u32, f64); AT_ONCE],
}

impl Clusters {
    /// Adds a record of a window.
    pub(super) fn add(&mut self, window: u32, weighted_ns: f64) {
        self.total += weighted_ns;
        if let Some((_, sum)) = self.newest.iter_mut().find(|(known, _)| *known == window) {
            *sum += weighted_ns;
            return;
        }
        if let Some(oldest) = self.newest.iter_mut().min_by_key(|(known, _)| *known) {
            self.squares += oldest.1 * oldest.1;
            *oldest = (window, weighted_ns);
        }
    }

    /// Returns the standard error of the total over this number of windows; none if they are too few.
    pub(super) fn error(&self, windows: u32) -> Option<f64> {
        let n = f64::from(windows);
        if n < LEAST {
            return None;
        }
        let squares = self.squares + self.newest.iter().map(|(_, sum)| sum * sum).sum::<f64>();
        Some(((n * squares - self.total * self.total).max(0.0) / (n - 1.0)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::sample::Sequence;

    #[test]
    fn windows_that_are_alike_have_no_error_and_few_windows_have_none_to_show() {
        let mut clusters = Clusters::default();
        for window in 1..=20 {
            clusters.add(window, 30.0);
            clusters.add(window, 70.0);
        }
        assert!(clusters.error(20).is_some_and(|error| error < 1e-3), "{clusters:?}");
        assert_eq!(clusters.error(4), None);
        // The range did not run in twenty of these windows.
        assert!((clusters.error(40).unwrap_or_default() - (40.0_f64 * 2e5 - 4e6).sqrt() / 39_f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn streams_that_come_one_after_another_add_to_the_same_windows() {
        let (mut turns, mut mixed) = (Clusters::default(), Clusters::default());
        for window in 1..=30 {
            turns.add(window, f64::from(window) * 3.0);
        }
        for first in (1..=30).step_by(3) {
            for part in [1.0, 2.0] {
                (first..first + 3).for_each(|window| mixed.add(window, f64::from(window) * part));
            }
        }
        assert_eq!(turns.error(30), mixed.error(30));
    }

    /// The estimate is the actual deviation of repeated samples of whole windows.
    #[test]
    fn the_standard_error_is_what_repeated_windows_show() {
        let mut sequence = Sequence::new(88_172_645_463_325_252);
        let mut noise = || sequence.share();
        // One window in ten; all zones of a step are as slow as the step.
        let steps: Vec<f64> = (0..2_000).map(|_| 50.0 + 100.0 * noise()).collect();
        let truth: f64 = steps.iter().map(|ns| 20.0 * ns).sum();
        let runs: Vec<(f64, f64)> = (0..500)
            .map(|_| {
                let mut clusters = Clusters::default();
                for (cycle, steps) in steps.chunks(10).enumerate() {
                    let ns = steps[(noise() * 10.0) as usize % 10];
                    (0..20).for_each(|_| clusters.add(cycle as u32 + 1, 10.0 * ns));
                }
                (clusters.total, clusters.error(200).unwrap_or_default())
            })
            .collect();
        let count = runs.len() as f64;
        let off = (runs.iter().map(|run| (run.0 - truth).powi(2)).sum::<f64>() / count).sqrt();
        let said = runs.iter().map(|run| run.1).sum::<f64>() / count;
        assert!((said / off - 1.0).abs() < 0.15, "it says {said}, and is {off} off");
    }
}
