//! The line between a device's clock and the host's, and when the next comparison of the two is due.
//!
//! The clocks of CUDA contexts, of stamps and of CUPTI use it on the collector's thread.

use std::time::{Duration, Instant};

use super::comparison::{COMPARE_EVERY, Comparison};
use super::correlation::Correlation;

/// The time between the first comparison and the second: the drift is still unknown.
const FIRST_EVERY: Duration = Duration::from_millis(5);
/// After a pause of this length, a new line begins.
const RESTED: Duration = Duration::from_secs(3);

/// The line between a device's clock and the host's, and the time of the next comparison.
#[derive(Debug)]
pub struct Comparisons {
    line: Correlation,
    compared: Instant,
    every: Duration,
}

impl Comparisons {
    /// A line through one comparison.
    pub fn new(first: Comparison) -> Comparisons {
        Comparisons { line: Correlation::new(first), compared: Instant::now(), every: FIRST_EVERY }
    }

    /// Returns the line, which converts times of one clock to the other.
    pub fn line(&self) -> &Correlation {
        &self.line
    }

    /// Whether the next comparison is due.
    pub fn is_due(&self) -> bool {
        self.compared.elapsed() >= self.every
    }

    /// Whether the last comparison is too old for the line to continue.
    pub fn has_rested(&self) -> bool {
        self.compared.elapsed() > RESTED
    }

    /// The last reading was not certain enough: the next one is due soon.
    pub fn retry_soon(&mut self) {
        // If the process's clock is younger than that, it is due later.
        let soon = Instant::now().checked_sub(self.every.saturating_sub(FIRST_EVERY));
        self.compared = soon.unwrap_or(self.compared);
    }

    /// Adds a comparison. A new line begins after a pause, or if the caller requests one.
    pub fn add(&mut self, comparison: Comparison, begins_anew: bool) {
        if begins_anew || self.has_rested() {
            self.line.resume(comparison);
            self.every = FIRST_EVERY;
        } else {
            self.line.compare(comparison);
            self.every = (self.every * 2).min(COMPARE_EVERY);
        }
        self.compared = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device_ns: i64, host_ns: i64, uncertainty_ns: i64) -> Comparison {
        Comparison { device_ns, host_ns, uncertainty_ns }
    }

    #[test]
    fn comparisons_become_rarer_and_one_that_is_not_sharp_is_repeated_soon() {
        let mut comparisons = Comparisons::new(at(0, 1_000, 50));
        for step in 1..=10 {
            comparisons.add(at(step * 1_000_000, step * 1_000_000 + 1_000, 50), false);
        }
        assert_eq!(comparisons.every, COMPARE_EVERY);
        assert!(!comparisons.is_due() && !comparisons.has_rested());
        comparisons.retry_soon();
        assert!(comparisons.compared.elapsed() >= COMPARE_EVERY - FIRST_EVERY);
        comparisons.add(at(20_000_000, 90_000_000, 50), true);
        assert_eq!((comparisons.every, comparisons.line().host_ns(20_000_000)), (FIRST_EVERY, 90_000_000));
    }
}
