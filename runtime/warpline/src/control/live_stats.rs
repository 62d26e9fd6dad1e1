//! Live statistics for `warpline top`: the zones of each range since the last tick, and the load of each device.
//!
//! A sink updates them on the collector's thread, and the server's thread reads them. Memory is bounded by the number of ranges
//! and devices, not by the number of zones.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use warpline_core::catalog::RangeSpec;
use warpline_core::intervals::Intervals;
use warpline_core::lock::lock;
use warpline_core::record::{DeviceKind, Span, Status, ZoneRecord, is_bound};
use warpline_core::sorting;
use warpline_report::sink::{Batch, Sink};

/// Zones that ended within this time before a tick may not have arrived yet.
const LATE_NS: i64 = 200_000_000;

/// The longest window over which device load is computed.
const BACK_NS: i64 = 10_000_000_000;

/// The maximum number of disjoint intervals that are kept for a device.
const APART: usize = 65_536;

/// The maximum number of ranges in one tick.
const MOST_RANGES: usize = 2_000;

#[derive(Default)]
pub(super) struct LiveStats {
    /// Keyed by the range's number.
    ranges: HashMap<u32, Figures>,
    devices: BTreeMap<(DeviceKind, u32), Load>,
}

struct Figures {
    range: &'static RangeSpec,
    /// Zones since the last tick.
    latest: Taken,
    max_ns: i64,
    /// The longest of the longest possible lengths.
    bounded_max_ns: i64,
    /// Zones since the subscription began.
    all: Taken,
    failed: u64,
    /// Whether at least one record was sampled and represents more than one zone.
    is_sampled: bool,
}

/// Recorded zones of a range, and the estimated totals: with sampling, each recorded zone represents several.
#[derive(Clone, Copy, Default)]
struct Taken {
    count: u64,
    scaled_count: f64,
    /// The time of those whose length is not only a bound.
    ns: i64,
    scaled_ns: f64,
    /// The others, with the sums of their longest possible and shortest possible lengths.
    bounded: u64,
    scaled_bounded_ns: f64,
    scaled_least_ns: f64,
}

impl Taken {
    fn add(&mut self, ns: i64, early_by_ns: i64, weight: f64) {
        self.count += 1;
        self.scaled_count += weight;
        if is_bound(ns, early_by_ns) {
            self.bounded += 1;
            self.scaled_bounded_ns += weight * ns as f64;
            self.scaled_least_ns += weight * (ns - early_by_ns).max(0) as f64;
        } else {
            self.ns += ns;
            self.scaled_ns += weight * ns as f64;
        }
    }
}

struct Load {
    name: String,
    busy: Busy,
    collectives: Busy,
}

/// The time in which zones ran, and that in which they certainly ran.
#[derive(Default)]
struct Busy {
    most: Coverage,
    least: Coverage,
}

impl Busy {
    fn add(&mut self, gpu: Span, certain: Span) {
        self.most.add(gpu);
        self.least.add(certain);
    }

    /// Returns its share of the window, and whether that is only an upper bound.
    fn within(&self, window: Span) -> (f64, bool) {
        let (most_ns, least_ns) = (self.most.within(window), self.least.within(window));
        (most_ns as f64 / window.duration_ns() as f64, is_bound(most_ns, most_ns - least_ns))
    }
}

impl LiveStats {
    fn add(&mut self, record: &ZoneRecord) {
        let figures = self.ranges.entry(record.range.number()).or_insert_with(|| Figures {
            range: record.range,
            latest: Taken::default(),
            max_ns: 0,
            bounded_max_ns: 0,
            all: Taken::default(),
            failed: 0,
            is_sampled: false,
        });
        // An entry of a batch is charged its share of the batch's time.
        let share = |ns: i64| record.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let (ns, early_by_ns) = (share(record.duration_ns()), share(record.gpu.map_or(0, |_| record.end_early_by_ns)));
        let weight = 1.0 / f64::from(record.sample_share).clamp(f64::MIN_POSITIVE, 1.0);
        figures.latest.add(ns, early_by_ns, weight);
        figures.all.add(ns, early_by_ns, weight);
        figures.is_sampled |= weight > 1.0;
        let max_ns = if is_bound(ns, early_by_ns) { &mut figures.bounded_max_ns } else { &mut figures.max_ns };
        *max_ns = (*max_ns).max(ns);
        figures.failed += u64::from(record.status != Status::Complete);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else { return };
        let load = self.devices.entry((stream.device.kind, stream.device.ordinal)).or_insert_with(|| Load {
            name: stream.device.name.clone(),
            busy: Busy::default(),
            collectives: Busy::default(),
        });
        let certain = if record.is_bounded() { gpu.without_tail(record.end_early_by_ns) } else { gpu };
        load.busy.add(gpu, certain);
        if record.message.is_some() {
            load.collectives.add(gpu, certain);
        }
    }

    /// Returns the load of each device over the last `length_ns`, and the figures of each range since the last call.
    pub(super) fn take_figures(&mut self, now_ns: i64, length_ns: i64) -> (Value, Value) {
        let end_ns = now_ns - LATE_NS;
        let window = Span { begin_ns: end_ns - length_ns.clamp(1, BACK_NS), end_ns };
        let devices: Vec<_> = self
            .devices
            .iter_mut()
            .map(|((kind, ordinal), load)| {
                let ((busy, busy_is_bound), (collectives, collectives_is_bound)) =
                    (load.busy.within(window), load.collectives.within(window));
                json!({
                    "name": load.name,
                    "kind": kind.name(),
                    "ordinal": ordinal,
                    "busy": busy,
                    "busy_is_bound": busy_is_bound,
                    "collectives": collectives,
                    "collectives_is_bound": collectives_is_bound,
                })
            })
            .collect();
        let mut ranges: Vec<_> = self.ranges.values_mut().collect();
        let most_ns = |figures: &Figures| figures.all.scaled_ns + figures.all.scaled_bounded_ns;
        sorting::sort_by(&mut ranges, |a, b| most_ns(b).total_cmp(&most_ns(a)));
        let ranges: Vec<_> = ranges
            .into_iter()
            .take(MOST_RANGES)
            .map(|figures| {
                let value = json!({
                    "name": figures.range.name(),
                    "kind": figures.range.kind().as_str(),
                    "count": figures.latest.count,
                    "total_ns": figures.latest.ns,
                    "scaled_count": figures.latest.scaled_count,
                    "scaled_ns": figures.latest.scaled_ns,
                    "max_ns": figures.max_ns,
                    "all": figures.all.count,
                    "all_ns": figures.all.ns,
                    "all_scaled_ns": figures.all.scaled_ns,
                    "is_sampled": figures.is_sampled,
                    "failed": figures.failed,
                    "bounded": figures.latest.bounded,
                    "scaled_bounded_ns": figures.latest.scaled_bounded_ns,
                    "scaled_bounded_least_ns": figures.latest.scaled_least_ns,
                    "bounded_max_ns": figures.bounded_max_ns,
                    "all_bounded": figures.all.bounded,
                    "all_scaled_bounded_ns": figures.all.scaled_bounded_ns,
                    "all_scaled_bounded_least_ns": figures.all.scaled_least_ns,
                });
                (figures.latest, figures.max_ns, figures.bounded_max_ns) = (Taken::default(), 0, 0);
                value
            })
            .collect();
        (devices.into(), ranges.into())
    }
}

/// The sink that feeds a [`LiveStats`].
pub(super) struct LiveStatsSink(pub(super) Arc<Mutex<LiveStats>>);

impl Sink for LiveStatsSink {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let mut watch = lock(&self.0);
        batch.zones().iter().for_each(|record| watch.add(record));
        if let Batch::Replays(replays) = batch {
            replays.iter().flat_map(|replay| &replay.zones).for_each(|replayed| watch.add(&replayed.zone));
        }
        Ok(())
    }
}

/// The union of the intervals of recent zones.
#[derive(Default)]
struct Coverage(Intervals);

impl Coverage {
    /// Adds an interval, and drops old intervals and those above the limit.
    fn add(&mut self, span: Span) {
        self.0.add(span);
        let oldest = self.0.until_ns().saturating_sub(2 * BACK_NS);
        while self.0.len() > APART || self.0.first().is_some_and(|first| first.end_ns <= oldest) {
            self.0.pop_first();
        }
    }

    /// Returns how much of the window is covered, in ns.
    fn within(&self, window: Span) -> i64 {
        self.0.within(window).map(|part| part.duration_ns()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    #[test]
    fn what_several_zones_cover_counts_once() {
        let mut coverage = Coverage::default();
        for (begin, end) in [(10, 20), (12, 15), (18, 30), (40, 50), (50, 60), (0, 5)] {
            coverage.add(span(begin, end));
        }
        assert_eq!(coverage.within(span(0, 100)), 5 + 20 + 20);
        assert_eq!(coverage.within(span(15, 45)), 15 + 5);
        coverage.add(span(0, 100));
        assert_eq!(coverage.within(span(15, 45)), 30, "a zone around others comes last");
        assert_eq!(coverage.within(span(200, 300)), 0);
    }

    #[test]
    fn millions_of_zones_take_bounded_memory() {
        let mut coverage = Coverage::default();
        for n in 0..2_000_000_i64 {
            coverage.add(span(n * 2_000, n * 2_000 + 1_000));
        }
        assert!(coverage.0.len() <= APART, "{}", coverage.0.len());
        let end = 2_000_000 * 2_000;
        assert_eq!(coverage.within(span(end - 10_000_000, end)), 5_000_000);
    }

    #[test]
    fn a_zone_whose_length_is_only_a_bound_is_counted_and_makes_the_load_a_bound() {
        use warpline_core::record::EndSource;
        use warpline_report::fixture;

        let (stream, thread) = (fixture::stream(1, "compute"), fixture::thread(1, None));
        let begin_ns = fixture::BEGIN_NS;
        let zone = |begin, end, early_by_ns| {
            let gpu = Some(fixture::span(begin, end));
            let mut zone = fixture::zone(&fixture::STEP, Some(&stream), &thread, fixture::span(0, 1), gpu);
            (zone.end, zone.end_early_by_ns) = (EndSource::Observed, early_by_ns);
            zone
        };
        let mut stats = LiveStats::default();
        stats.add(&zone(0, 1_000, 50));
        let (devices, ranges) = stats.take_figures(begin_ns + 10_000 + LATE_NS, 10_000);
        assert_eq!((&devices[0]["busy"], &devices[0]["busy_is_bound"]), (&json!(0.1), &json!(false)));
        assert_eq!((&ranges[0]["bounded"], &ranges[0]["max_ns"]), (&json!(0), &json!(1_000)));
        stats.add(&zone(1_000, 1_400, 0));
        stats.add(&zone(2_000, 6_000, 3_000));
        let (devices, ranges) = stats.take_figures(begin_ns + 10_000 + LATE_NS, 10_000);
        assert_eq!((&devices[0]["busy"], &devices[0]["busy_is_bound"]), (&json!(0.54), &json!(true)));
        assert_eq!(devices[0]["collectives_is_bound"], json!(false));
        let of = |key: &str| ranges[0][key].as_f64().unwrap_or(f64::NAN);
        assert_eq!(["count", "bounded", "total_ns", "max_ns"].map(of), [2.0, 1.0, 400.0, 400.0], "{ranges}");
        let keys = ["scaled_bounded_ns", "scaled_bounded_least_ns", "bounded_max_ns"];
        assert_eq!(keys.map(of), [4_000.0, 1_000.0, 4_000.0], "{ranges}");
        assert_eq!(["all", "all_bounded", "all_ns", "all_scaled_bounded_ns"].map(of), [3.0, 1.0, 1_400.0, 4_000.0]);
    }
}
