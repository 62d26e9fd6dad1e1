//! A histogram of lengths whose buckets grow by 2^(1/32): ±1.1 %. It is OpenTelemetry's exponential histogram of scale 5.

use crate::buckets::{self, Buckets};

/// The bucket of zero lengths, which have no logarithm.
const ZERO: i32 = -1074 * 32;

/// Counts by bucket. Lengths of up to 2^63 ns fall into at most 2,017 buckets, so a histogram has at most 8 KB.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    zeros: u32,
    buckets: Buckets<u32>,
}

impl Sketch {
    pub(super) fn add(&mut self, ns: i64) {
        let bucket = bucket(ns);
        if bucket == ZERO {
            self.zeros = self.zeros.saturating_add(1);
            return;
        }
        let count = self.buckets.at(bucket);
        *count = count.saturating_add(1);
    }

    /// Returns the buckets that are not empty, in order, and their counts.
    pub(super) fn counts(&self) -> impl Iterator<Item = (i32, i64)> {
        let buckets = self.buckets.counts().iter().zip(self.buckets.first()..).map(|(n, bucket)| (bucket, *n));
        let all = std::iter::once((ZERO, self.zeros)).chain(buckets);
        all.filter(|(_, n)| *n > 0).map(|(bucket, n)| (bucket, i64::from(n)))
    }
}

/// Returns the bucket i of a length: base^i < ns <= base^(i+1), with base = 2^(1/32).
pub(super) fn bucket(ns: i64) -> i32 {
    if ns <= 0 {
        return ZERO;
    }
    // A power of two is the upper end of its bucket, exactly.
    if ns.count_ones() == 1 {
        return ns.trailing_zeros() as i32 * 32 - 1;
    }
    buckets::bucket(ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_in_its_bucket() {
        let base = 2_f64.powf(1.0 / 32.0);
        for ns in (1..5_000).chain((0..62).flat_map(|bits| [(1_i64 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let bucket = bucket(ns);
            if ns < 1 {
                assert_eq!(bucket, ZERO);
                continue;
            }
            let (low, high) = (base.powi(bucket), base.powi(bucket + 1));
            let ns = ns as f64;
            assert!(low * (1.0 - 1e-9) < ns && ns <= high * (1.0 + 1e-9), "{ns} in ({low}, {high}]");
        }
        assert_eq!((bucket(0), bucket(1), bucket(2), bucket(4)), (-34_368, -1, 31, 63));
    }

    #[test]
    fn every_length_is_counted_in_any_order() {
        let mut sketch = Sketch::default();
        for ns in [1_000_000, 0, 7, 1_000_000, i64::MAX, 1, 0] {
            sketch.add(ns);
        }
        let counts: Vec<_> = sketch.counts().collect();
        let expected = [(ZERO, 2), (-1, 1), (bucket(7), 1), (bucket(1_000_000), 2), (bucket(i64::MAX), 1)];
        assert_eq!(counts, expected);
        assert!(sketch.buckets.counts().len() <= 2_017);
    }
}
