//! What figures choose for series, and what an export costs.

use std::collections::BTreeMap;

use super::figures::{Figures, Series};
use super::ranges::{Place, Ranges};
use warpline_core::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_core::record::{EndSource, ZoneRecord};
use warpline_core::wait::WaitRecord;
use warpline_report::fixture::{COPY, LOAD, STEP, main_thread, span, stream, waits, zone};
use warpline_report::sink::Batch;

const SERIES: Series = Series { range: 1, collective: 3, steps: 1, waits: 2, rest: 4 };

fn of(range: &'static warpline_core::catalog::RangeSpec, ns: i64) -> ZoneRecord {
    zone(range, None, &main_thread(), span(0, ns), None)
}

fn counts(ranges: &Ranges) -> (BTreeMap<&'static str, u64>, u64) {
    (ranges.series().map(|range| (range.name, range.lengths.count)).collect(), ranges.other().count)
}

#[test]
fn a_range_keeps_its_series_and_what_was_shared_stays_shared() {
    let mut ranges = Ranges::new(2, 100);
    ranges.add(&of(&COPY, 50), Place::Thread);
    ranges.add(&of(&LOAD, 10), Place::Thread);
    ranges.add(&of(&STEP, 20), Place::Thread);
    // Of two free series, the first export gives one.
    ranges.give_series(200, false);
    assert_eq!(counts(&ranges), (BTreeMap::from([(COPY.name(), 1)]), 2));
    assert_eq!(ranges.left_out(), 2);
    ranges.add(&of(&LOAD, 1_000), Place::Thread);
    ranges.add(&of(&STEP, 900), Place::Thread);
    ranges.give_series(300, false);
    assert_eq!(counts(&ranges), (BTreeMap::from([(COPY.name(), 1), (LOAD.name(), 1)]), 3));
    let since: Vec<_> = ranges.series().map(|range| range.since_unix_ns).collect();
    assert_eq!(since, [100, 200], "what it did before is in `(other)`");
    // However long others take, no series changes hands.
    ranges.add(&of(&STEP, 1 << 40), Place::Thread);
    ranges.add(&of(&COPY, 1), Place::Thread);
    ranges.give_series(400, true);
    assert_eq!(counts(&ranges), (BTreeMap::from([(COPY.name(), 2), (LOAD.name(), 1)]), 4));
    assert_eq!(ranges.left_out(), 1);
}

#[test]
fn a_range_that_is_timed_in_two_ways_is_two_and_the_last_export_gives_all_series() {
    let mut ranges = Ranges::new(3, 0);
    for place in [Place::Thread, Place::Stream, Place::Replay] {
        ranges.add(&of(&STEP, 7), place);
    }
    ranges.give_series(1, true);
    assert_eq!((ranges.series().count(), ranges.other().count, ranges.left_out()), (3, 0, 0));
}

fn collective(group: &ProcessGroup, kind: CollectiveKind, count: u64, ns: i64) -> ZoneRecord {
    let mut zone = zone(&COPY, Some(&stream(1, "comm")), &main_thread(), span(0, 1), Some(span(0, ns)));
    zone.message = Some(Box::new(Message::new(kind).count(count).dtype(DataType::F32).group(group)));
    zone
}

#[test]
fn bandwidths_have_a_window_of_seconds_and_a_total() {
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let mut figures = Figures::new(SERIES, false, 0);
    figures.bandwidths = super::bandwidths::Bandwidths::new(1);
    let second = 1_000_000_000;
    // 4,000 bytes in 1 µs and in 4 µs: 4 GB/s and 1 GB/s, times 2 (n - 1) / n = 1.
    for ns in [1_000, 4_000] {
        figures.add(Batch::Zones(&[collective(&group, CollectiveKind::AllReduce, 1_000, ns)]), 0);
    }
    figures.add(Batch::Zones(&[collective(&group, CollectiveKind::AllGather, 1, 1)]), 0);
    figures.give_series(second, second, false);
    let means = |figures: &Figures| figures.bandwidths.series().next().expect("a series").means();
    let now = means(&figures).expect("it is now");
    assert!((now.bus / 1.6e9 - 1.0).abs() < 1e-9 && (now.bus_gbs / 2.0 - 1.0).abs() < 1e-9, "{now:?}");
    assert!((now.length_us / 2.5 - 1.0).abs() < 1e-9, "{now:?}");
    let series: Vec<_> = figures.bandwidths.series().map(|series| series.key.message_size()).collect();
    assert_eq!((series, figures.bandwidths.left_out()), (vec!["3-4KB".to_owned()], 1));
    // Closed after 15 s, and gone 15 s later.
    figures.give_series(16 * second, 16 * second, false);
    assert_eq!(means(&figures), Some(now));
    figures.give_series(32 * second, 32 * second, false);
    assert_eq!(means(&figures), None);
    assert_eq!(figures.bandwidths.series().next().map(|series| series.bus.count), Some(2));
}

#[test]
fn a_length_that_is_only_a_bound_is_counted_and_in_no_series() {
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let mut figures = Figures::new(SERIES, false, 0);
    figures.bandwidths = super::bandwidths::Bandwidths::new(1);
    let mut late = collective(&group, CollectiveKind::AllReduce, 1_000, 50_000);
    (late.end, late.end_early_by_ns) = (EndSource::Observed, 49_000);
    let known = collective(&group, CollectiveKind::AllReduce, 1_000, 1_000);
    figures.add(Batch::Zones(&[late.clone(), known]), 0);
    figures.give_series(1, 1, true);
    let range = figures.ranges.series().next().expect("a series");
    assert_eq!((range.lengths.count, range.lengths.max, figures.ranges.bounded()), (1, 1e-6, Some(1)));
    assert_eq!(figures.bandwidths.series().next().map(|series| series.bus.count), Some(1));
    // The stream certainly waited for none of it.
    let known = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
    let known = WaitRecord { gpu: Some(span(0, 1_000)), end_early_by_ns: 50, ..known };
    let late = WaitRecord { gpu: Some(span(0, 9_000)), end_early_by_ns: 9_000, ..known.clone() };
    figures.add(Batch::Waits(&[late, known]), 0);
    let waited: Vec<_> = figures.waits().map(|(place, waits)| (place, waits.count, waits.sum)).collect();
    assert_eq!((waited, figures.ranges.bounded()), (vec![(Place::Stream, 1, 1e-6)], Some(2)));
    // Without room for one more series, it is left out.
    let mut full = Ranges::new(1, 0);
    full.add(&of(&LOAD, 10), Place::Thread);
    full.give_series(1, false);
    full.add_bounded();
    full.give_series(2, false);
    assert_eq!((full.series().count(), full.bounded(), full.left_out()), (1, None, 1));
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
    use std::time::Duration;

    const ROUNDS: u32 = 2_000;
    // The time that this thread had a core: other programs do not disturb it.
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says it");
        Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number"))
    };
    let group = ProcessGroup::new("dp", 0..8, 0);
    let mut figures = Figures::new(SERIES, false, 0);
    figures.bandwidths = super::bandwidths::Bandwidths::new(2);
    figures.ranges = Ranges::new(6, 0);
    let ranges = warpline_report::fixture::session().ranges.unwrap_or(&[]);
    // Lengths from 100 ns to 100 s.
    let mut batch: Vec<ZoneRecord> =
        ranges.iter().flat_map(|range| (0..1_000).map(|n: i64| of(range, 100 + n * n * 100_000))).collect();
    for (kind, count) in [(CollectiveKind::AllReduce, 1 << 20), (CollectiveKind::AllGather, 1 << 10)] {
        batch.extend((1..1_000).map(|n| collective(&group, kind, count, n * 1_000)));
    }
    let begun = cpu();
    for _ in 0..100 {
        figures.add(Batch::Zones(black_box(&batch)), 1);
    }
    let zones = 100 * batch.len() as u32;
    println!("a zone: {} ns", (cpu() - begun).as_nanos() / u128::from(zones));
    figures.give_series(2, 2, true);
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
