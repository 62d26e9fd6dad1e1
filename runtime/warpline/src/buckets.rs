//! The buckets of OpenTelemetry's exponential histogram of scale 5. They grow by 2^(1/32), so a quantile is within 1.1 %.

/// The scale: there are 2^5 buckets for each power of two.
pub(crate) const SCALE: i32 = 5;

const PER_OCTAVE: f64 = (1 << SCALE) as f64;

/// Returns the bucket i of a value above zero: base^i < value <= base^(i+1), with base = 2^(1/32).
pub(crate) fn bucket(value: f64) -> i32 {
    (value.log2() * PER_OCTAVE).ceil() as i32 - 1
}

/// Counts from the first bucket that has one to the last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buckets<N> {
    first: i32,
    counts: Vec<N>,
}

impl<N: Copy + Default> Buckets<N> {
    /// Returns the count of a bucket. The buckets up to it are made if they are not there.
    pub(crate) fn at(&mut self, bucket: i32) -> &mut N {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = self.first.abs_diff(bucket) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(N::default(), more));
            self.first = bucket;
        }
        let place = self.first.abs_diff(bucket) as usize;
        if place >= self.counts.len() {
            self.counts.resize(place + 1, N::default());
        }
        &mut self.counts[place]
    }

    /// Returns the bucket of the first count.
    pub(crate) fn first(&self) -> i32 {
        self.first
    }

    /// Returns the counts from the first bucket on.
    pub(crate) fn counts(&self) -> &[N] {
        &self.counts
    }
}
