//! The figures of the program's steps for the report. The stage of steps adds to them.

use std::borrow::Cow;
use std::collections::HashMap;

use hdrhistogram::Histogram;
use warpline_core::catalog::RangeSpec;
use warpline_core::record::ZoneRecord;
use warpline_core::step::StepRecord;
use warpline_core::steps::NotRecorded;
use warpline_report::figures::{RangeStepStats, StepStats};
use warpline_report::per_step::PerStep;

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

/// The figures of the steps, in constant memory.
#[derive(Default)]
pub(crate) struct StepFigures {
    lengths: Option<Histogram<u64>>,
    count: u64,
    sum_ns: i128,
    min_ns: i64,
    max_ns: i64,
    per_step: PerStep,
    /// The ranges that `per_step` numbers, and whether their times are those of streams.
    ranges: HashMap<u32, (&'static RangeSpec, bool)>,
}

impl StepFigures {
    /// Returns whether a step was recorded.
    pub(super) fn has_steps(&self) -> bool {
        self.count > 0
    }

    /// Adds zones, which belong to the steps in which they were launched.
    pub(super) fn add_zones(&mut self, batch: &[ZoneRecord]) {
        for zone in batch.iter().filter(|zone| zone.entry.is_none()) {
            let on_stream = zone.gpu.is_some();
            let number = zone.range.number() * 2 + u32::from(on_stream);
            self.ranges.entry(number).or_insert((zone.range, on_stream));
            let early_by_ns = zone.gpu.map_or(0, |_| zone.end_early_by_ns);
            self.per_step.zone(number, zone.host.begin_ns, zone.duration_ns(), early_by_ns);
        }
    }

    /// Returns what each range took in a step, the longest first.
    pub(crate) fn range_stats(&self) -> Vec<RangeStepStats> {
        let figures = self.per_step.figures();
        let stats = figures.iter().filter_map(|(number, sums)| {
            let (range, on_stream) = self.ranges.get(number)?;
            Some(RangeStepStats::new(Cow::Borrowed(range.name()), *on_stream, sums))
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| (b.mean_ns, &a.name, a.on_stream).cmp(&(a.mean_ns, &b.name, b.on_stream)));
        stats
    }

    pub(super) fn add(&mut self, batch: &[StepRecord]) {
        for step in batch {
            let ns = step.duration_ns();
            self.per_step.step(step.host);
            self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
            self.max_ns = self.max_ns.max(ns);
            self.count += 1;
            self.sum_ns += i128::from(ns);
            if self.lengths.is_none() {
                self.lengths = Histogram::new(DIGITS).ok();
            }
            if let Some(lengths) = &mut self.lengths {
                // The histogram grows with the range of the values, which `saturating_record` would not let it do.
                let _ = lengths.record(ns.max(0) as u64);
            }
        }
    }

    pub(crate) fn stats(&self, not_recorded: NotRecorded) -> StepStats {
        let NotRecorded { left_out, cut, dropped } = not_recorded;
        let at = |quantile: f64| {
            let lengths = self.lengths.as_ref().filter(|_| self.count > 0);
            lengths.map_or(0, |lengths| lengths.value_at_quantile(quantile) as i64).clamp(self.min_ns, self.max_ns)
        };
        StepStats {
            count: self.count,
            left_out,
            cut,
            dropped,
            mean_ns: (self.sum_ns / i128::from(self.count.max(1))) as i64,
            min_ns: self.min_ns,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: self.max_ns,
        }
    }
}
