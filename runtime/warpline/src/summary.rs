//! Figures per range, in constant memory, for the report's table.
//!
//! The collector always keeps one summary, and each recording from outside has its own; neither writes anything. Counts, sums, minima and
//! maxima are exact, and percentiles come from a histogram with two significant digits. If only a sample of a range was recorded, each
//! record stands for several zones (`sums`).

mod clusters;
mod sums;

use std::borrow::Cow;

use hdrhistogram::Histogram;

use clusters::Clusters;
use sums::Sums;
use warpline_core::catalog::RangeSpec;
use warpline_core::record::{DeviceKind, Span, Status, ZoneRecord};
use warpline_core::replay::ReplayedZone;
use warpline_core::report::figures::RangeStats;

/// The figures of every range that was recorded so far. Its size depends on the number of ranges and devices, not of zones.
#[derive(Default)]
pub(crate) struct Summary {
    /// Whether it began in the middle of a session, so that the first zone that it gets may not be the first.
    is_of_part: bool,
    /// The figures of each range's zones in each place, by the range's number.
    ranges: Vec<[Option<Box<Figures>>; Place::ALL.len()]>,
    /// The time from the begin of the first zone to the end of the last.
    window: Option<Span>,
    /// The first and the last of the session's windows in which something was recorded; zero without a budget.
    windows: (u32, u32),
}

/// Where zones have their times. The number is the index in [`Summary::ranges`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Threads,
    Streams,
    /// Replays of CUDA graphs.
    Replays,
}

impl Place {
    const ALL: [Place; 3] = [Place::Threads, Place::Streams, Place::Replays];
}

/// The source of the number of a range's zones that ran, in a session that records a sample of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CameBy {
    /// The range's chance has counted them. Each of them was recorded or passed over.
    Counted,
    /// The range's chance has counted them, but some have no time of their own (captured or dropped), so the number does not scale the
    /// total.
    CountedWithOthers,
    /// The zones were not counted since this summary began, or only those in windows.
    Unknown,
}

struct Figures {
    range: &'static RangeSpec,
    count: u64,
    failed: u64,
    recorded_ns: i64,
    min_ns: i64,
    max_ns: i64,
    /// The sums of all zones.
    all: Sums,
    /// The sums of zones that were recorded in windows.
    clusters: Clusters,
    /// The sums of zones that were not the first on their device.
    later: Sums,
    launch_ns: f64,
    firsts: Vec<First>,
    /// None if the histogram could not be created; then there are no percentiles.
    lengths: Option<Histogram<u64>>,
}

/// The first zone of a range on a device or, without one, on the host.
struct First {
    device: Option<(DeviceKind, u32)>,
    begin_ns: i64,
    ns: i64,
}

/// A first zone is shown separately if it took more than this many times the median of the later ones.
const FIRST_BY: i64 = 10;

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

/// The count of a record of one zone in a histogram, so that a record that stands for 1.3 zones does not count as one.
const PARTS: f64 = 8.0;

impl Summary {
    /// Returns a summary that begins in the middle of a session.
    pub(crate) fn of_part() -> Summary {
        Summary { is_of_part: true, ..Summary::default() }
    }

    pub(crate) fn add(&mut self, batch: &[ZoneRecord]) {
        batch.iter().for_each(|record| self.add_one(record));
    }

    pub(crate) fn add_one(&mut self, record: &ZoneRecord) {
        self.add_in(if record.gpu.is_some() { Place::Streams } else { Place::Threads }, record);
    }

    /// Adds a zone of a replay of a CUDA graph.
    pub(crate) fn add_replayed(&mut self, replayed: &ReplayedZone) {
        self.add_in(Place::Replays, &replayed.zone);
    }

    fn add_in(&mut self, place: Place, record: &ZoneRecord) {
        let gpu = record.gpu.unwrap_or(record.host);
        let (begin_ns, end_ns) = (gpu.begin_ns.min(record.host.begin_ns), gpu.end_ns.max(record.host.end_ns));
        let window = self.window.get_or_insert(Span { begin_ns, end_ns });
        window.begin_ns = window.begin_ns.min(begin_ns);
        window.end_ns = window.end_ns.max(end_ns);
        if record.window > 0 {
            let (first, last) = self.windows;
            self.windows = (if first == 0 { record.window } else { first.min(record.window) }, last.max(record.window));
        }
        let number = record.range.number() as usize;
        if number >= self.ranges.len() {
            self.ranges.resize_with(number + 1, Default::default);
        }
        let figures = self.ranges[number][place as usize].get_or_insert_with(|| Box::new(Figures::new(record.range)));
        figures.add(record, self.is_of_part);
    }

    /// Returns the figures, with the largest total first.
    pub(crate) fn stats(&self, came_by: CameBy) -> Vec<RangeStats> {
        let window_ns = self.window.map_or(0, |window| window.duration_ns()).max(1);
        let (first, last) = self.windows;
        let windows = if last > 0 { last - first + 1 } else { 0 };
        let stats = self.ranges.iter().flat_map(|figures| {
            // Zones that ran are counted per range, not separately for threads and streams, and zones of replays are not counted.
            let is_split = [Place::Threads, Place::Streams].iter().all(|place| figures[*place as usize].is_some());
            let stats = move |place: Place| {
                let is_counted = !is_split && place != Place::Replays;
                let came_by = if is_counted { came_by } else { CameBy::Unknown };
                let stats = figures[place as usize].as_ref()?.stats(came_by, window_ns, windows);
                Some(match place {
                    Place::Threads => stats,
                    Place::Streams => RangeStats { on_stream: true, ..stats },
                    Place::Replays => RangeStats { on_stream: true, in_replays: true, mean_launch_ns: 0, ..stats },
                })
            };
            Place::ALL.into_iter().filter_map(stats)
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        stats
    }
}

impl Figures {
    fn new(range: &'static RangeSpec) -> Figures {
        Figures {
            range,
            count: 0,
            failed: 0,
            recorded_ns: 0,
            min_ns: i64::MAX,
            max_ns: 0,
            all: Sums::default(),
            clusters: Clusters::default(),
            later: Sums::default(),
            launch_ns: 0.0,
            firsts: Vec::new(),
            lengths: Histogram::new(DIGITS).ok(),
        }
    }

    fn add(&mut self, record: &ZoneRecord, is_of_part: bool) {
        // An entry of a batch has its share of the batch's time.
        let share = |ns: i64| record.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let ns = share(record.duration_ns());
        let weight = 1.0 / f64::from(record.sample_share).clamp(f64::MIN_POSITIVE, 1.0);
        self.count += 1;
        self.failed += u64::from(record.status != Status::Complete);
        self.recorded_ns += ns;
        self.launch_ns += weight * share(record.host.duration_ns()) as f64;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.all.add(ns, weight);
        if record.window > 0 {
            self.clusters.add(record.window, weight * ns as f64);
        }
        // In a sampled session the first zone may not be recorded. Launching threads write the counts, so they are read last.
        let is_sample = || self.all.sampled > 0 || self.range.chance().passed_over() > 0;
        let may_be_first = !is_of_part && weight <= 1.0 && (self.has_first(record) || !is_sample());
        let later = if may_be_first { self.keep_first(record, ns) } else { Some(ns) };
        if let Some(ns) = later {
            self.later.add(ns, weight);
            add_length(self.lengths.as_mut(), ns, weight);
        }
    }

    /// Returns whether a zone on the record's device is known.
    fn has_first(&self, record: &ZoneRecord) -> bool {
        self.firsts.iter().any(|first| first.device == device_of(record))
    }

    /// Keeps the zone if it is the first on its device so far, and returns the one that is not. Streams are read one after another, and the
    /// first zone of a later one may have been launched before that of an earlier one.
    fn keep_first(&mut self, record: &ZoneRecord, ns: i64) -> Option<i64> {
        let device = device_of(record);
        let first = First { device, begin_ns: record.host.begin_ns, ns };
        match self.firsts.iter_mut().find(|first| first.device == device) {
            None => {
                self.firsts.push(first);
                None
            }
            Some(known) if first.begin_ns < known.begin_ns => Some(std::mem::replace(known, first).ns),
            Some(_) => Some(ns),
        }
    }

    /// Returns the longest of the first zones that took more than [`FIRST_BY`] times the median of the later zones, and all first zones
    /// that did not.
    fn firsts_apart(&self) -> (Option<i64>, Vec<i64>) {
        let later = self.lengths.as_ref().filter(|lengths| !lengths.is_empty());
        let limit_ns = later.map_or(i64::MAX, |later| FIRST_BY.saturating_mul(later.value_at_quantile(0.50) as i64));
        let (apart, usual): (Vec<i64>, Vec<i64>) =
            self.firsts.iter().map(|first| first.ns).partition(|&ns| ns > limit_ns);
        (apart.into_iter().max(), usual)
    }

    fn stats(&self, came_by: CameBy, window_ns: i64, windows: u32) -> RangeStats {
        let chance = self.range.chance();
        let seen = match came_by {
            CameBy::Unknown => (self.all.weight.round() as u64).max(self.count),
            // While all zones are recorded, the recorded ones are those that ran.
            CameBy::Counted | CameBy::CountedWithOthers => chance.seen().max(self.count + chance.passed_over()),
        };
        let known = (came_by == CameBy::Counted).then_some(seen);
        let (total, error) = self.all.total(known);
        // Zones of a window are not chosen independently.
        let is_in_windows = windows > 0 && self.all.sampled > 0;
        let error = if is_in_windows { self.clusters.error(windows).unwrap_or(0.0) } else { error };
        let is_whole = self.all.sampled == 0 && known.is_none_or(|seen| seen <= self.count);
        let total_ns = if is_whole { self.recorded_ns } else { total.round() as i64 };
        let (apart, usual) = self.firsts_apart();
        let (mut typical, mut lengths) = (self.later, self.lengths.clone());
        for ns in usual {
            typical.add(ns, 1.0);
            add_length(lengths.as_mut(), ns, 1.0);
        }
        let percentile = |p| lengths.as_ref().map_or(0, |lengths| lengths.value_at_quantile(p) as i64);
        RangeStats {
            name: Cow::Borrowed(self.range.name()),
            on_stream: false,
            in_replays: false,
            count: self.count,
            seen,
            failed: self.failed,
            total_ns,
            total_error_ns: error.round() as i64,
            recorded_ns: self.recorded_ns,
            share: total_ns as f64 / window_ns as f64,
            first_ns: apart,
            mean_ns: typical.mean() as i64,
            min_ns: self.min_ns,
            p50_ns: percentile(0.50).clamp(self.min_ns, self.max_ns),
            p99_ns: percentile(0.99).clamp(self.min_ns, self.max_ns),
            max_ns: self.max_ns,
            mean_launch_ns: (self.launch_ns / self.all.weight.max(1.0)) as i64,
        }
    }
}

fn add_length(lengths: Option<&mut Histogram<u64>>, ns: i64, weight: f64) {
    if let Some(lengths) = lengths {
        // The histogram grows with the range of the values, and the digits bound its size.
        let _ = lengths.record_n(ns.max(0) as u64, (weight * PARTS).round() as u64);
    }
}

/// Returns the device of a record; none on the host.
fn device_of(record: &ZoneRecord) -> Option<(DeviceKind, u32)> {
    let on_stream = record.gpu.and(record.stream.as_ref());
    on_stream.map(|stream| (stream.device.kind, stream.device.ordinal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::catalog::spec::RangeMeta;
    use warpline_core::catalog::{Kind, Level};
    use warpline_core::fixture;
    use warpline_core::record::Span;

    static RANGE: RangeSpec = RangeSpec::new(RangeMeta {
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
        let host = Span { begin_ns: 1_000, end_ns: 1_000 + ns };
        fixture::zone(&RANGE, None, &fixture::thread(1, None), host, None)
    }

    /// Returns the number of a summary's counters, which determines its memory.
    fn counters(summary: &Summary) -> usize {
        let lengths = summary.ranges.iter().flatten().flatten().filter_map(|figures| figures.lengths.as_ref());
        lengths.map(Histogram::distinct_values).sum()
    }

    #[test]
    fn ten_million_zones_take_constant_memory() {
        let mut summary = Summary::default();
        // The times are from 100 ns to 100 s, so the histogram reaches its final size.
        let batch: Vec<_> = (0..1_000).map(|n| zone(100 + n * n * 100_000)).collect();
        summary.add(&batch);
        let before = counters(&summary);
        for _ in 0..10_000 {
            summary.add(&batch);
        }
        assert_eq!(counters(&summary), before);
        assert!(before * size_of::<u64>() < 64 << 10, "{before} counters");
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!(stats.count, 10_001_000);
    }

    fn sampled(ns: i64, share: f32) -> ZoneRecord {
        ZoneRecord { sample_share: share, ..zone(ns) }
    }

    #[test]
    fn a_long_first_call_is_the_first_that_was_launched_and_in_no_mean_or_percentile() {
        let mut summary = Summary::default();
        let at = |begin_ns, ns| ZoneRecord { host: Span { begin_ns, end_ns: begin_ns + ns }, ..zone(ns) };
        // The zone of the first launch is not read first.
        summary.add(&[at(2_000, 10), at(3_000, 20), at(1_000, 100_000), at(4_000, 30)]);
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!((stats.first_ns, stats.mean_ns, stats.p50_ns, stats.p99_ns), (Some(100_000), 20, 20, 30));
        assert_eq!((stats.count, stats.total_ns, stats.max_ns, stats.total_error_ns), (4, 100_060, 100_000, 0));
        let mut summary = Summary::default();
        summary.add(&[zone(70)]);
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!((stats.first_ns, stats.mean_ns, stats.p50_ns, stats.p99_ns), (None, 70, 70, 70));
    }

    #[test]
    fn a_first_call_that_is_not_shown_apart_is_in_the_mean_and_the_percentiles() {
        let mut summary = Summary::default();
        summary.add(&[zone(23_600_000), zone(13_900_000)]);
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!((stats.first_ns, stats.mean_ns), (None, stats.total_ns / 2));
        assert!(stats.p99_ns >= 23_400_000, "{stats:?}");
    }

    #[test]
    fn a_record_of_a_sample_counts_for_as_many_as_came_by_for_it() {
        let mut summary = Summary::default();
        // One in ten of the long zones is recorded and, at another time, each of the short ones.
        summary.add(&(0..10).map(|_| sampled(1_000, 0.1)).collect::<Vec<_>>());
        summary.add(&(0..100).map(|_| sampled(10, 1.0)).collect::<Vec<_>>());
        let [stats] = &summary.stats(CameBy::Unknown)[..] else { panic!("one range") };
        assert_eq!((stats.count, stats.seen, stats.recorded_ns, stats.total_ns), (110, 200, 11_000, 101_000));
        // The square root of the sum of y² (1 - p) / p².
        assert_eq!(stats.total_error_ns, (10.0_f64 * 1e6 * 0.9 / 0.01).sqrt().round() as i64);
        // Half of the zones that ran were long, regardless of which were recorded.
        assert!((500..=510).contains(&stats.mean_ns) && stats.p99_ns >= 990, "{stats:?}");
    }

    #[test]
    fn after_a_sample_and_in_a_part_of_a_session_no_zone_is_the_first_call() {
        let zones = [zone(900), zone(10), zone(20)];
        let mut part = Summary::of_part();
        part.add(&zones);
        let mut sample = Summary::default();
        sample.add(&[sampled(10, 0.5)]);
        sample.add(&zones);
        for (summary, mean_ns) in [(part, 310), (sample, 190)] {
            let [stats] = &summary.stats(CameBy::Unknown)[..] else { panic!("one range") };
            assert_eq!((stats.first_ns, stats.mean_ns), (None, mean_ns));
        }
    }

    #[test]
    fn percentiles_are_within_one_percent_and_the_ends_are_exact() {
        let mut summary = Summary::default();
        summary.add(&(1..=100_000).map(zone).collect::<Vec<_>>());
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!((stats.min_ns, stats.max_ns, stats.total_ns), (1, 100_000, 5_000_050_000));
        assert!((stats.p50_ns - 50_000).abs() <= 500, "{stats:?}");
        assert!((stats.p99_ns - 99_000).abs() <= 990, "{stats:?}");
    }
}
