//! A histogram whose buckets grow by 2^(1/32), so a quantile is within 1.1 %: OpenTelemetry's exponential histogram of scale 5.

use crate::buckets::{self, Buckets};

/// The range of buckets: values from 2^-32 (below a nanosecond, in seconds) to 2^64 (above 10^19 bytes per second). Others are counted in the outermost.
const LEAST: i32 = -1024;
const MOST: i32 = 2047;

/// Counts by bucket, with their sum, least and greatest value. At most 24 KiB.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Values of zero, which have no logarithm.
    pub(super) zeros: u64,
    pub(super) buckets: Buckets<u64>,
}

impl Histogram {
    /// Adds a value. Negative ones count as zero, and those that are no number do not count.
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let value = value.max(0.0);
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum += value;
        if value > 0.0 {
            *self.buckets.at(bucket(value)) += 1;
        } else {
            self.zeros += 1;
        }
    }

    /// Adds a length in nanoseconds, in seconds.
    pub(super) fn add_ns(&mut self, ns: i64) {
        self.add(ns as f64 / 1e9);
    }
}

/// Returns the bucket of a value above zero.
fn bucket(value: f64) -> i32 {
    buckets::bucket(value).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[f64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    #[test]
    fn a_value_is_in_its_bucket_and_every_value_in_one() {
        let base = 2_f64.powf(1.0 / 32.0);
        for value in (0..3000).map(|n| 1e-9 * 1.02_f64.powi(n)) {
            let (low, high) = (base.powi(bucket(value)), base.powi(bucket(value) + 1));
            assert!(low * (1.0 - 1e-9) < value && value <= high * (1.0 + 1e-9) || bucket(value) == MOST, "{value}");
        }
        assert_eq!((bucket(1.0), bucket(2.0), bucket(0.5), bucket(1.0001)), (-1, 31, -33, 0));
        assert_eq!((bucket(f64::MIN_POSITIVE), bucket(f64::MAX)), (LEAST, MOST));
        let all = histogram(&[1e-9, 3.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300]);
        assert_eq!((all.count, all.zeros), (6, 2));
        assert_eq!(all.buckets.counts().iter().sum::<u64>() + all.zeros, all.count);
        assert!(size_of_val(all.buckets.counts()) <= 24 << 10);
    }
}
