//! One reading of a device's clock and the host's.
//!
//! It never reads a device's clock: the caller does, and passes the values.

use std::time::Duration;

/// The time between two comparisons, after the first few.
pub(super) const COMPARE_EVERY: Duration = Duration::from_millis(500);

/// A device's time, the host's at the same moment, and the uncertainty of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The device's time, in ns since any point of its own.
    pub device_ns: i64,
    /// The host's time, in ns of [`now_ns`](super::now_ns).
    pub host_ns: i64,
    /// The maximum error of the host's time, in ns.
    pub uncertainty_ns: i64,
}

impl Comparison {
    /// The most certain of up to `looks` readings. It stops at the first one whose uncertainty is at most `sharp_ns`, and at one
    /// that returns nothing.
    ///
    /// # Errors
    /// The first error of a reading.
    pub fn best_of<E>(
        looks: usize,
        sharp_ns: i64,
        mut look: impl FnMut() -> Result<Option<Comparison>, E>,
    ) -> Result<Option<Comparison>, E> {
        let mut best: Option<Comparison> = None;
        for _ in 0..looks {
            let Some(seen) = look()? else { break };
            if best.is_none_or(|best| seen.uncertainty_ns < best.uncertainty_ns) {
                best = Some(seen);
            }
            if seen.uncertainty_ns <= sharp_ns {
                break;
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device_ns: i64, host_ns: i64, uncertainty_ns: i64) -> Comparison {
        Comparison { device_ns, host_ns, uncertainty_ns }
    }

    #[test]
    fn the_most_certain_reading_counts_and_a_sharp_one_ends_the_search() {
        let best = |answers: &[Option<i64>]| {
            let mut answers = answers.iter();
            let mut looks = 0;
            let best = Comparison::best_of(5, 20, || {
                looks += 1;
                Ok::<_, ()>(answers.next().copied().flatten().map(|uncertainty| at(0, 0, uncertainty)))
            });
            (best.expect("no error").map(|best| best.uncertainty_ns), looks)
        };
        assert_eq!(best(&[Some(90), Some(40), Some(60), Some(50), Some(70)]), (Some(40), 5));
        assert_eq!(best(&[Some(90), Some(15), Some(10)]), (Some(15), 2));
        assert_eq!(best(&[Some(90), None, Some(10)]), (Some(90), 2));
        assert_eq!(best(&[None]), (None, 1));
        assert_eq!(Comparison::best_of(5, 0, || Err::<Option<Comparison>, _>("gone")), Err("gone"));
    }
}
