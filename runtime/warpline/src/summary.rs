//! Figures per range, in constant memory, for the report's table.
//!
//! The collector always keeps one summary, and each recording from outside has its own; neither writes anything. Counts, sums, minima and
//! maxima are exact, and percentiles come from a histogram with two significant digits (`lengths` of the report).

use std::borrow::Cow;
use std::collections::HashMap;

use warpline_core::catalog::RangeSpec;
use warpline_core::record::{DeviceKind, Span, Status, ZoneRecord};
use warpline_core::replay::ReplayedZone;
use warpline_core::work::WorkSum;
use warpline_report::figures::RangeStats;
use warpline_report::lengths::{Coverage, Length, Lengths};
use warpline_report::nesting::{self, Nesting};

/// The figures of every range that was recorded so far. Its size depends on the number of ranges and devices, not of zones.
#[derive(Default)]
pub(crate) struct Summary {
    /// Whether it began in the middle of a session, so that the first zone that it gets may not be the first.
    is_of_part: bool,
    /// The figures of each range's zones in each place, by the range's number.
    ranges: Vec<[Option<Box<Figures>>; Place::ALL.len()]>,
    /// The zones of each row that no zone has enclosed so far.
    rows: HashMap<Row, Nesting>,
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
    lengths: Lengths,
    work: WorkSum,
}

/// The largest number of rows in which zones are known to be within others; beyond it, all are forgotten.
const ROWS: usize = 1 << 12;

/// A row of zones that nest: a stream or a thread, and a lane of its own.
type Row = (bool, u64, Option<&'static str>);

impl Summary {
    /// Returns a summary that begins in the middle of a session.
    pub(crate) fn of_part() -> Summary {
        Summary { is_of_part: true, ..Summary::default() }
    }

    /// Adds zones in the order of the collector.
    pub(crate) fn add(&mut self, batch: &[ZoneRecord]) {
        batch.iter().for_each(|record| self.add_one(record));
        self.subtract_inner(batch);
    }

    /// Finds which zones of a batch are within others.
    fn subtract_inner(&mut self, batch: &[ZoneRecord]) {
        let mut order: Vec<_> = batch.iter().filter_map(|record| Some((row_of(record)?, record))).collect();
        order.sort_by_key(|(row, record)| {
            (*row, nesting::key(record.gpu.unwrap_or(record.host), u64::from(record.depth)))
        });
        for (row, record) in order {
            if self.rows.len() >= ROWS && !self.rows.contains_key(&row) {
                self.rows.clear();
            }
            let inner = self.rows.entry(row).or_default().add(record.gpu.unwrap_or(record.host), early_by_ns(record));
            if inner.most_ns > 0 {
                self.figures(if record.gpu.is_some() { Place::Streams } else { Place::Threads }, record)
                    .lengths
                    .subtract_inner(inner, record.is_bounded());
            }
        }
    }

    fn add_one(&mut self, record: &ZoneRecord) {
        self.add_in(if record.gpu.is_some() { Place::Streams } else { Place::Threads }, record);
    }

    /// Adds the zones of one replay of a CUDA graph.
    pub(crate) fn add_replay(&mut self, zones: &[&ReplayedZone]) {
        zones.iter().for_each(|replayed| self.add_in(Place::Replays, &replayed.zone));
        // Zones that were captured on one stream nest.
        let placed = zones.iter().filter(|replayed| replayed.zone.entry.is_none());
        let mut order: Vec<_> = placed.filter_map(|replayed| Some((replayed, replayed.zone.gpu?))).collect();
        let row = |replayed: &ReplayedZone| (replayed.captured_on, replayed.lane.clone());
        order.sort_by_cached_key(|(replayed, gpu)| (row(replayed), nesting::key(*gpu, u64::from(replayed.zone.depth))));
        for zones in order.chunk_by(|(one, _), (other, _)| row(one) == row(other)) {
            let mut nesting = Nesting::default();
            for (replayed, gpu) in zones {
                let inner = nesting.add(*gpu, early_by_ns(&replayed.zone));
                let is_bounded = replayed.zone.is_bounded();
                self.figures(Place::Replays, &replayed.zone).lengths.subtract_inner(inner, is_bounded);
            }
        }
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
        let is_of_part = self.is_of_part;
        self.figures(place, record).add(record, is_of_part);
    }

    fn figures(&mut self, place: Place, record: &ZoneRecord) -> &mut Figures {
        let number = record.range.number() as usize;
        if number >= self.ranges.len() {
            self.ranges.resize_with(number + 1, Default::default);
        }
        self.ranges[number][place as usize].get_or_insert_with(|| Box::new(Figures::new(record.range)))
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
        Figures { range, lengths: Lengths::default(), work: WorkSum::default() }
    }

    fn add(&mut self, record: &ZoneRecord, is_of_part: bool) {
        // An entry of a batch has its share of the batch's time.
        let share = |ns: i64| record.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let zone = Length {
            ns: share(record.duration_ns()),
            early_by_ns: share(early_by_ns(record)),
            launch_ns: record.entry.is_none().then(|| record.host.duration_ns()),
            begin_ns: record.host.begin_ns,
            weight: 1.0 / f64::from(record.sample_share).clamp(f64::MIN_POSITIVE, 1.0),
            window: record.window,
            device: device_of(record),
            has_failed: record.status != Status::Complete,
        };
        if !record.work().is_none()
            && let Some(ns) = record.work_ns()
        {
            let device = record.stream.as_ref().map_or("", |stream| &stream.device.name);
            self.work.add(record.work(), ns, device);
        }
        // In a sampled session the first zone may not be recorded. Launching threads write the counts, so they are read last.
        let range = self.range;
        self.lengths.add(&zone, || is_of_part || range.chance().passed_over() > 0);
    }

    fn stats(&self, came_by: CameBy, window_ns: i64, windows: u32) -> RangeStats {
        let chance = self.range.chance();
        let seen = match came_by {
            CameBy::Unknown => None,
            // While all zones are recorded, the recorded ones are those that ran.
            CameBy::Counted | CameBy::CountedWithOthers => {
                Some(chance.seen().max(self.lengths.count() + chance.passed_over()))
            }
        };
        let coverage = Coverage { seen, scales: came_by == CameBy::Counted, window_ns, windows };
        RangeStats { work: self.work.stats(), ..self.lengths.stats(Cow::Borrowed(self.range.name()), coverage) }
    }
}

/// Returns the time by which the record's end may be earlier, in ns; 0 on the host.
fn early_by_ns(record: &ZoneRecord) -> i64 {
    record.gpu.map_or(0, |_| record.end_early_by_ns)
}

/// Returns the device of a record; none on the host.
fn device_of(record: &ZoneRecord) -> Option<(DeviceKind, u32)> {
    let on_stream = record.gpu.and(record.stream.as_ref());
    on_stream.map(|stream| (stream.device.kind, stream.device.ordinal))
}

/// Returns the row of a record. The entries of a batch repeat the batch, and have none.
fn row_of(record: &ZoneRecord) -> Option<Row> {
    let lane = record.named_lane();
    match (&record.stream, record.gpu, record.entry) {
        (_, _, Some(_)) => None,
        (Some(stream), Some(_), None) => Some((true, u64::from(stream.id), lane)),
        _ => Some((false, record.thread.id, lane)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::catalog::spec::RangeMeta;
    use warpline_core::record::Span;
    use warpline_report::fixture;

    static RANGE: RangeSpec = RangeSpec::new(RangeMeta {
        namespace: "test",
        label: "test.range\0",
        description: "A range of the test.",
        module: "test",
        file: "test.rs",
        line: 1,
        ..RangeMeta::EMPTY
    });

    fn zone(ns: i64) -> ZoneRecord {
        let host = Span { begin_ns: 1_000, end_ns: 1_000 + ns };
        fixture::zone(&RANGE, None, &fixture::thread(1, None), host, None)
    }

    /// Returns the number of a summary's counters, which determines its memory.
    fn counters(summary: &Summary) -> usize {
        summary.ranges.iter().flatten().flatten().map(|figures| figures.lengths.counters()).sum()
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

    #[test]
    fn zones_whose_length_is_only_a_bound_are_in_no_figure_but_the_total() {
        use warpline_core::record::EndSource;

        let (stream, thread) = (fixture::stream(1, "compute"), fixture::thread(1, None));
        let lazy = |begin, end, early_by_ns| {
            let (host, gpu) = (fixture::span(begin, begin + 1), fixture::span(begin, end));
            let mut zone = fixture::zone(&RANGE, Some(&stream), &thread, host, Some(gpu));
            (zone.end, zone.end_early_by_ns) = (EndSource::Boundary, early_by_ns);
            zone.fields.set_flops(1_000_000_u64);
            zone
        };
        let mut summary = Summary::default();
        // A zone around a bounded one, whose own time is 600 to 900 ns; and a long bounded one.
        summary.add(&[lazy(100, 500, 300), lazy(0, 1_000, 0), lazy(2_000, 50_000, 47_000)]);
        let [stats] = &summary.stats(CameBy::Counted)[..] else { panic!("one range") };
        assert_eq!((stats.count, stats.bounded, stats.seen), (3, 2, 3));
        assert_eq!((stats.mean_ns, stats.min_ns, stats.max_ns, stats.recorded_ns), (1_000, 1_000, 1_000, 1_000));
        assert_eq!((stats.self_ns, stats.self_early_ns, stats.total_ns), (900, 300, 49_400));
        assert_eq!((stats.bounded_total_ns, stats.bounded_least_ns, stats.bounded_max_ns), (48_400, 1_100, 48_000));
        assert!(stats.total_is_bound() && stats.self_is_bound());
        let flops = stats.work.as_ref().and_then(|work| work.rates.flops_per_s);
        assert!(flops.is_some_and(|flops| (flops / 1e12 - 1.0).abs() < 1e-9), "{stats:?}");
    }
}
