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
        // An entry of a batch has its share of the batch's time.
        let share = |ns: i64| record.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let ns = share(record.duration_ns());
        self.count += 1;
        self.failed += u64::from(record.status != Status::Complete);
        self.total_ns += ns;
        self.launch_ns += share(record.host.duration_ns());
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
            // While all are recorded nobody counts: then what was recorded came by.
            seen: self.range.chance().seen().max(self.count + self.range.chance().passed_over()),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::spec::Facts;
    use crate::catalog::{Kind, Level};
    use crate::fields::Fields;
    use crate::record::{EndFound, Span, ThreadInfo};

    static RANGE: RangeSpec = RangeSpec::new(Facts {
        namespace: "test",
        label: "test.range\0",
        description: "A range of the test.",
        kind: Kind::Host,
        level: Level::Coarse,
        lane: None,
        color: None,
        fields: &[],
        undescribed: &[],
        module: "test",
        version: "",
        file: "test.rs",
        line: 1,
    });

    fn zone(ns: i64) -> ZoneRecord {
        ZoneRecord {
            range: &RANGE,
            stream: None,
            thread: Arc::new(ThreadInfo { id: 1, name: None }),
            depth: 0,
            parent: None,
            sequence: 0,
            host: Span { begin_ns: 1_000, end_ns: 1_000 + ns },
            gpu: None,
            sample_share: 1.0,
            end: EndFound::Event,
            end_early_by_ns: 0,
            begin_late_by_ns: 0,
            bracket_ns: 0,
            status: Status::Complete,
            error: None,
            fields: Fields::default(),
            message: None,
            entry: None,
        }
    }

    /// What the memory of a summary depends on: how many counters it has.
    fn counters(summary: &Summary) -> usize {
        let lengths = summary.ranges.values().filter_map(|figures| figures.lengths.as_ref());
        lengths.map(Histogram::distinct_values).sum()
    }

    #[test]
    fn ten_million_zones_take_constant_memory() {
        let mut summary = Summary::default();
        // From 100 ns to 100 s, so that the histogram has all the sizes that it will ever have.
        let batch: Vec<_> = (0..1_000).map(|n| zone(100 + n * n * 100_000)).collect();
        summary.add(&batch);
        let before = counters(&summary);
        for _ in 0..10_000 {
            summary.add(&batch);
        }
        assert_eq!(counters(&summary), before);
        assert!(before * size_of::<u64>() < 64 << 10, "{before} counters");
        let [stats] = &summary.stats()[..] else { panic!("one range") };
        assert_eq!(stats.count, 10_001_000);
    }

    #[test]
    fn percentiles_are_within_one_percent_and_the_ends_are_exact() {
        let mut summary = Summary::default();
        summary.add(&(1..=100_000).map(zone).collect::<Vec<_>>());
        let [stats] = &summary.stats()[..] else { panic!("one range") };
        assert_eq!((stats.min_ns, stats.max_ns, stats.total_ns), (1, 100_000, 5_000_050_000));
        assert!((stats.p50_ns - 50_000).abs() <= 500, "{stats:?}");
        assert!((stats.p99_ns - 99_000).abs() <= 990, "{stats:?}");
    }
}
