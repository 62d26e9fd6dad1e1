//! Figures per range, in constant memory: what the report's table is made of.
//!
//! The collector always keeps one; it never writes anything. Counts, sums, minima and maxima are exact, percentiles come
//! from a histogram with two significant digits.

use std::collections::HashMap;
use std::ptr;

use hdrhistogram::Histogram;

use crate::catalog::RangeSpec;
use crate::record::{Status, ZoneRecord};
use crate::session::RangeStats;

/// The figures of every range that was recorded so far. Its size depends on the number of ranges, not of zones.
#[derive(Default)]
pub(crate) struct Summary {
    ranges: HashMap<*const RangeSpec, Figures>,
}

// SAFETY: the pointers are only compared; they stand for `&'static` references, which may go to any thread.
#[allow(unsafe_code)]
unsafe impl Send for Summary {}

struct Figures {
    range: &'static RangeSpec,
    count: u64,
    failed: u64,
    total_ns: i64,
    launch_ns: i64,
    min_ns: i64,
    max_ns: i64,
    /// None where the histogram could not be made; then there are no percentiles.
    lengths: Option<Histogram<u64>>,
}

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

impl Summary {
    pub(crate) fn add(&mut self, batch: &[ZoneRecord]) {
        for record in batch {
            let figures = self.ranges.entry(ptr::from_ref(record.range)).or_insert_with(|| Figures::new(record.range));
            figures.add(record);
        }
    }

    /// The figures, largest total first.
    pub(crate) fn stats(&self) -> Vec<RangeStats> {
        let mut stats: Vec<_> = self.ranges.values().map(Figures::stats).collect();
        stats.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.name.cmp(b.name)));
        stats
    }
}

impl Figures {
    fn new(range: &'static RangeSpec) -> Figures {
        Figures {
            range,
            count: 0,
            failed: 0,
            total_ns: 0,
            launch_ns: 0,
            min_ns: i64::MAX,
            max_ns: 0,
            lengths: Histogram::new(DIGITS).ok(),
        }
    }

    fn add(&mut self, record: &ZoneRecord) {
        let ns = record.duration_ns();
        self.count += 1;
        self.failed += u64::from(record.status != Status::Complete);
        self.total_ns += ns;
        self.launch_ns += record.host.duration_ns();
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        if let Some(lengths) = &mut self.lengths {
            // It grows to whatever range the values need; the digits bound its size.
            let _ = lengths.record(ns.max(0) as u64);
        }
    }

    fn stats(&self) -> RangeStats {
        let count = self.count.max(1) as i64;
        let percentile = |p| self.lengths.as_ref().map_or(0, |lengths| lengths.value_at_quantile(p) as i64);
        RangeStats {
            name: self.range.name(),
            count: self.count,
            failed: self.failed,
            total_ns: self.total_ns,
            mean_ns: self.total_ns / count,
            min_ns: self.min_ns,
            p50_ns: percentile(0.50).clamp(self.min_ns, self.max_ns),
            p99_ns: percentile(0.99).clamp(self.min_ns, self.max_ns),
            max_ns: self.max_ns,
            mean_launch_ns: self.launch_ns / count,
        }
    }
}
