//! What figures choose for series, the own time of steps, and what an export costs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::figures::{Figures, Plan};
use super::ranges::{Chosen, MOST_RANGES, OTHER, Place, RESERVED, Ranges};
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::catalog::{Kind, Level, RangeSpec};
use warpline_core::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_core::record::{EndSource, ZoneRecord};
use warpline_core::step::StepRecord;
use warpline_core::wait::WaitRecord;
use warpline_report::fixture::{COPY, STEP, main_thread, span, stream, waits, zone};
use warpline_report::sink::{Batch, Progress};

fn record(range: &'static RangeSpec, ns: i64) -> ZoneRecord {
    zone(range, None, &main_thread(), span(0, ns), None)
}

/// Ranges with the names `test.0000`, `test.0001` and so on.
fn many(count: usize, level: Level) -> Vec<&'static RangeSpec> {
    let range = |at: usize| -> &'static RangeSpec {
        let label = format!("test.{}.{at:04}\0", level.as_str()).leak();
        Box::leak(Box::new(RangeSpec::new(RangeMeta { label, level, ..RangeMeta::EMPTY })))
    };
    (0..count).map(range).collect()
}

/// The names of ranges with series, with their places and counts.
fn counts(ranges: &Ranges) -> BTreeSet<(&'static str, &'static str, u64)> {
    ranges.series().iter().map(|range| (range.name, range.place.as_str(), range.lengths.count)).collect()
}

/// Two ranks run the same ranges, one of them backwards and with other lengths.
fn two_ranks(catalog: &[&'static RangeSpec]) -> [Ranges; 2] {
    let [mut one, mut other] = [(); 2].map(|()| Ranges::new(Chosen::of(catalog.iter().copied())));
    for (at, range) in catalog.iter().enumerate() {
        one.add(&record(range, at as i64), Place::Thread);
    }
    for (at, range) in catalog.iter().rev().enumerate() {
        other.add(&record(range, 7 * at as i64), Place::Thread);
    }
    [one, other]
}

#[test]
fn all_ranks_give_series_to_the_same_ranges() {
    let [one, other] = two_ranks(&many(MOST_RANGES, Level::Fine));
    assert_eq!(counts(&one), counts(&other));
    assert_eq!((counts(&one).len(), one.left_out()), (MOST_RANGES, 0));
    // Of more, coarse ranges come first, then names in order.
    let ranks = two_ranks(&[many(MOST_RANGES, Level::Fine), many(20, Level::Coarse)].concat());
    let reserved = many(20, Level::Coarse).into_iter().chain(many(RESERVED - 20, Level::Fine));
    let reserved: BTreeSet<_> = reserved.map(|range| (range.name(), "thread", 1)).collect();
    for rank in &ranks {
        let counts = counts(rank);
        assert!(counts.is_superset(&reserved), "{counts:?}");
        assert!(counts.contains(&(OTHER, "thread", 20)));
        assert_eq!((counts.len(), rank.left_out()), (MOST_RANGES + 1, 20));
    }
}

#[test]
fn what_has_no_series_of_its_own_keeps_its_place() {
    let catalog = many(MOST_RANGES + 1, Level::Fine);
    let mut ranges = Ranges::new(Chosen::of(catalog.iter().copied()));
    for range in &catalog {
        ranges.add(&record(range, 7), Place::Replay);
    }
    ranges.add(&record(catalog[0], 7), Place::Stream);
    ranges.add(&record(catalog[MOST_RANGES], 7), Place::Stream);
    let counts = counts(&ranges);
    for name in [catalog[0].name(), OTHER] {
        assert!(counts.contains(&(name, "replay", 1)) && counts.contains(&(name, "stream", 1)), "{name}: {counts:?}");
    }
    assert_eq!((counts.len(), ranges.left_out()), (MOST_RANGES + 3, 1));
}

/// Zones are added as they are read, and the session counts them later.
#[test]
fn zones_in_ranges_are_never_more_than_the_zones_that_ended() {
    let mut figures = Figures::default();
    let recorded = |figures: &Figures| figures.outcomes()[0];
    figures.add(Batch::Zones(&[record(&COPY, 1), record(&COPY, 2)]), 0);
    assert_eq!(recorded(&figures), ("recorded", 2));
    figures.progress(&Progress { recorded: 1, captured: 4, dropped: 5, ..Progress::default() }, 0);
    assert_eq!(figures.outcomes(), [("recorded", 2), ("captured", 4), ("dropped", 5)]);
    figures.progress(&Progress { recorded: 3, ..Progress::default() }, 0);
    assert_eq!(recorded(&figures), ("recorded", 3), "one was in a step of the warm-up");
}

static SUM: RangeSpec = RangeSpec::new(RangeMeta { label: "test.sum\0", kind: Kind::Collective, ..RangeMeta::EMPTY });

/// When a zone or a wait begins, how long it lasts, and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Compute,
    Communication,
    Wait,
}

fn parts() -> impl Strategy<Value = Vec<(i64, i64, Part)>> {
    let part = prop_oneof![Just(Part::Compute), Just(Part::Communication), Just(Part::Wait)];
    prop::collection::vec((0_i64..300, 1_i64..60, part), 0..30)
}

proptest! {
    /// Looks at each moment of each step: it is the rank's own unless the rank only communicates or waits.
    #[test]
    fn own_time_is_a_step_without_open_communication_and_waits(parts in parts(), ends in prop::collection::btree_set(1_i64..300, 1..6)) {
        let mut figures = Figures::default();
        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        for (at, (begin, ns, part)) in parts.iter().enumerate() {
            let gpu = Some(span(*begin, begin + ns));
            let stream = stream(at as u32, "one");
            let zone = |range| zone(range, Some(&stream), &main_thread(), span(0, 1), gpu);
            match part {
                Part::Compute => figures.add(Batch::Zones(&[zone(&STEP)]), 0),
                Part::Communication => figures.add(Batch::Zones(&[zone(&SUM)]), 0),
                Part::Wait => figures.add(Batch::Waits(&[WaitRecord { gpu, end_early_by_ns: 0, ..wait.clone() }]), 0),
            }
        }
        let is_in = |at: i64, wanted: Part| {
            parts.iter().any(|(begin, ns, part)| *part == wanted && (*begin..begin + ns).contains(&at))
        };
        let (mut own_ns, mut begin) = (0, 0);
        for end in &ends {
            let host = span(begin, *end);
            figures.add(Batch::Steps(&[StepRecord { number: 0, thread: main_thread(), host }]), 0);
            let is_own = |at: &i64| is_in(*at, Part::Compute) || !is_in(*at, Part::Communication) && !is_in(*at, Part::Wait);
            own_ns += (begin..*end).filter(is_own).count();
            begin = *end;
        }
        // Nothing is known before zones have had the time to arrive.
        figures.progress(&Progress::default(), span(0, 1_000_000_000).end_ns);
        prop_assert_eq!(figures.own.lengths.count, 0);
        figures.progress(&Progress::default(), span(0, 1_000_000_300).end_ns);
        prop_assert_eq!(figures.own.lengths.count, ends.len() as u64);
        prop_assert!((figures.own.lengths.sum * 1e9 - own_ns as f64).abs() < 1e-3, "{} for {own_ns}", figures.own.lengths.sum);
    }
}

#[test]
fn own_time_that_is_not_known_is_not_counted() {
    let mut figures = Figures::default();
    let mut late = zone(&SUM, Some(&stream(1, "comm")), &main_thread(), span(0, 1), Some(span(100, 200)));
    (late.end, late.end_early_by_ns) = (EndSource::Observed, 50);
    figures.add(Batch::Zones(&[late]), 0);
    // Of the first step, 50 ns of 150 may be communication; of the second one, which is long, less than 5 %.
    for host in [span(0, 200), span(150, 2_000)] {
        figures.add(Batch::Steps(&[StepRecord { number: 0, thread: main_thread(), host }]), 0);
    }
    figures.progress(&Progress::default(), i64::MAX);
    let own = &figures.own.lengths;
    assert_eq!((own.count, own.sum, figures.steps.count), (1, 1_800e-9, 2));
}

#[test]
fn times_that_no_step_asks_for_are_bounded() {
    let mut figures = Figures::default();
    for round in 0..4 {
        for at in 0..50_000_i64 {
            let gpu = Some(span(1_000 * (50_000 * round + at), 1_000 * (50_000 * round + at) + 1));
            let zone = zone(&STEP, Some(&stream(1, "one")), &main_thread(), span(0, 1), gpu);
            figures.own.times.zone(&zone);
        }
        figures.progress(&Progress::default(), i64::MAX);
    }
    let whole = figures.own.times.parts(span(0, i64::MAX / 2));
    assert_eq!(whole.compute_ns, 1 << 16);
}

fn collective(group: &ProcessGroup, kind: CollectiveKind, count: u64, ns: i64) -> ZoneRecord {
    let mut zone = zone(&COPY, Some(&stream(1, "comm")), &main_thread(), span(0, 1), Some(span(0, ns)));
    zone.message = Some(Box::new(Message::new(kind).count(count).dtype(DataType::F32).group(group)));
    zone
}

#[test]
fn bandwidths_have_a_window_of_seconds_and_a_total() {
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let mut figures = Figures::default();
    let second = 1_000_000_000;
    // 4,000 bytes in 1 µs and in 4 µs: 4 GB/s and 1 GB/s, times 2 (n - 1) / n = 1.
    for ns in [1_000, 4_000] {
        figures.add(Batch::Zones(&[collective(&group, CollectiveKind::AllReduce, 1_000, ns)]), 0);
    }
    // The four with the most bytes have series, however long the others take: a late rank waits for nobody, and its peers wait for it.
    for (count, ns) in [(1, 1 << 40), (2_000, 1), (3_000, 1), (4_000, 1)] {
        figures.add(Batch::Zones(&[collective(&group, CollectiveKind::AllGather, count, ns)]), 0);
    }
    figures.bandwidths.give_series(second);
    let means = |figures: &Figures| figures.bandwidths.series().next().expect("a series").means();
    let now = means(&figures).expect("it is now");
    assert!((now.bus / 1.6e9 - 1.0).abs() < 1e-9 && (now.bus_gbs / 2.0 - 1.0).abs() < 1e-9, "{now:?}");
    assert!((now.length_us / 2.5 - 1.0).abs() < 1e-9, "{now:?}");
    let series: Vec<_> = figures.bandwidths.series().map(|series| series.key.message_size()).collect();
    assert_eq!((series.join(" "), figures.bandwidths.left_out()), ("3-4KB 15-16KB 23-24KB 31-32KB".to_owned(), 1));
    // Closed after 15 s, and gone 15 s later.
    figures.bandwidths.give_series(16 * second);
    assert_eq!(means(&figures), Some(now));
    figures.bandwidths.give_series(32 * second);
    assert_eq!(means(&figures), None);
    assert_eq!(figures.bandwidths.series().next().map(|series| series.bus.count), Some(2));
}

#[test]
fn a_length_that_is_only_a_bound_is_counted_and_in_no_series() {
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let mut figures = Figures::default();
    let mut late = collective(&group, CollectiveKind::AllReduce, 1_000, 50_000);
    (late.end, late.end_early_by_ns) = (EndSource::Observed, 49_000);
    let known = collective(&group, CollectiveKind::AllReduce, 1_000, 1_000);
    figures.add(Batch::Zones(&[late.clone(), known]), 0);
    figures.bandwidths.give_series(1);
    let [range] = figures.ranges.series() else { panic!("one series") };
    assert_eq!((range.lengths.count, range.lengths.max, figures.ranges.bounded), (1, 1e-6, 1));
    assert_eq!(figures.bandwidths.series().next().map(|series| series.bus.count), Some(1));
    // The stream certainly waited for none of it.
    let known = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
    let known = WaitRecord { gpu: Some(span(0, 1_000)), end_early_by_ns: 50, ..known };
    let late = WaitRecord { gpu: Some(span(0, 9_000)), end_early_by_ns: 9_000, ..known.clone() };
    figures.add(Batch::Waits(&[late, known]), 0);
    let waited: Vec<_> = figures.waits().map(|(place, waits)| (place, waits.count, waits.sum)).collect();
    assert_eq!((waited, figures.ranges.bounded), (vec![(Place::Stream, 1, 1e-6)], 2));
    let _job = super::job::Job::new(&warpline_report::fixture::session());
    #[cfg(feature = "prometheus")]
    {
        let page = super::prometheus::page(&figures, &_job);
        assert!(page.contains("\nwarpline_bounded_total{"), "{page}");
        assert!(page.lines().any(|line| line.starts_with("warpline_bounded_total{") && line.ends_with(" 2")));
    }
    #[cfg(feature = "otlp")]
    {
        let body = super::otlp::body(&figures, &_job);
        let name = b"warpline.bounded";
        assert!(body.windows(name.len()).any(|bytes| bytes == name));
    }
}

/// `cargo test --release -p warpline --features enable,otlp,prometheus --lib metrics::tests::cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: the figures of docs/metrics.md"]
fn cost() {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    const ROUNDS: u32 = 2_000;
    // The time that this thread had a core: other programs do not disturb it.
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says it");
        Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number"))
    };
    let group = ProcessGroup::new("dp", 0..8, 0);
    let mut figures = Figures::new(Plan::default(), 0);
    let ranges = warpline_report::fixture::session().ranges.unwrap_or(&[]);
    let (compute, mut until_ns) = (stream(1, "compute"), 0);
    let mut spent = Vec::new();
    for _ in 0..ROUNDS / 100 {
        let begin_ns = until_ns;
        let mut next = |ns| {
            until_ns += ns + 1_000;
            Some(span(until_ns - ns, until_ns))
        };
        // Lengths from 100 ns to 100 s, one after the other.
        let mut batch = Vec::new();
        for range in ranges {
            let of = |n: i64| zone(range, Some(&compute), &main_thread(), span(0, 1), next(100 + n * n * 100_000));
            batch.extend((0..1_000).map(of));
        }
        for (kind, count) in [(CollectiveKind::AllReduce, 1 << 20), (CollectiveKind::AllGather, 1 << 10)] {
            let of = |n: i64| ZoneRecord { gpu: next(n * 1_000), ..collective(&group, kind, count, 1) };
            batch.extend((1..1_000).map(of));
        }
        let step = StepRecord { number: 0, thread: main_thread(), host: span(begin_ns, until_ns) };
        // Too short for the other clock. The median has no break by other programs.
        let begun = Instant::now();
        figures.add(Batch::Zones(black_box(&batch)), 1);
        figures.add(Batch::Steps(&[step]), 1);
        figures.progress(&Progress::default(), i64::MAX);
        spent.push(begun.elapsed() / batch.len() as u32);
    }
    spent.sort_unstable();
    println!("a zone: {:?}", spent[spent.len() / 2]);
    figures.bandwidths.give_series(2);
    let _job = super::job::Job::new(&warpline_report::fixture::session());
    #[cfg(feature = "prometheus")]
    {
        let begun = cpu();
        for _ in 0..ROUNDS {
            black_box(super::prometheus::page(&figures, &_job));
        }
        let (each, bytes) = ((cpu() - begun) / ROUNDS, super::prometheus::page(&figures, &_job).len());
        println!("a page of Prometheus: {each:?}, {bytes} bytes");
    }
    #[cfg(feature = "otlp")]
    {
        let begun = cpu();
        for _ in 0..ROUNDS {
            black_box(super::otlp::body(&figures, &_job));
        }
        let (each, bytes) = ((cpu() - begun) / ROUNDS, super::otlp::body(&figures, &_job).len());
        println!("a message of OTLP: {each:?}, {bytes} bytes");
    }
}
