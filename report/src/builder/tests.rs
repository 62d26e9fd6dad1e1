//! The figures of records by hand.

use std::sync::Arc;

use warpline_core::catalog::RangeSpec;
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::fixture::{COPY, STEP, kernel, replay, span, stream, thread, waits, zone};
use warpline_core::kernel::ZoneRef;
use warpline_core::record::{EndSource, Span, Status, ThreadInfo, ZoneRecord};
use warpline_core::replay::ReplayedZone;
use warpline_core::synchronization::{SyncKind, SyncRecord};
use warpline_core::wait::WaitRecord;

use super::{CameBy, SessionFigures};
use crate::sink::Batch;
use crate::{RangeStats, Report};

static RANGE: RangeSpec = RangeSpec::new(RangeMeta {
    namespace: "test",
    label: "test.range\0",
    description: "A range of the test.",
    module: "test",
    file: "test.rs",
    line: 1,
    ..RangeMeta::EMPTY
});

fn on_thread(ns: i64) -> ZoneRecord {
    let host = Span { begin_ns: 1_000, end_ns: 1_000 + ns };
    zone(&RANGE, None, &thread(1, None), host, None)
}

/// Returns the number of the counters of lengths, which determines their memory.
fn counters(figures: &SessionFigures) -> usize {
    figures.builder.lengths().map(|(.., lengths)| lengths.counters()).sum()
}

fn ranges(figures: &SessionFigures, came_by: CameBy) -> Vec<RangeStats> {
    report(figures, came_by).ranges
}

fn report(figures: &SessionFigures, came_by: CameBy) -> Report {
    let mut report = Report::default();
    figures.add_to(&mut report, came_by);
    report
}

#[test]
fn a_million_zones_take_constant_memory() {
    let mut figures = SessionFigures::default();
    // The times are from 100 ns to 100 s, so the histogram reaches its final size.
    let batch: Vec<_> = (0..1_000).map(|n| on_thread(100 + n * n * 100_000)).collect();
    figures.add_zones(&batch);
    let before = counters(&figures);
    for _ in 0..1_000 {
        figures.add_zones(&batch);
    }
    assert_eq!(counters(&figures), before);
    assert!(before * size_of::<u64>() < 64 << 10, "{before} counters");
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!(stats.count, 1_001_000);
}

fn sampled(ns: i64, share: f32) -> ZoneRecord {
    ZoneRecord { sample_share: share, ..on_thread(ns) }
}

#[test]
fn a_long_first_call_is_the_first_that_was_launched_and_in_no_mean_or_percentile() {
    let mut figures = SessionFigures::default();
    let at = |begin_ns, ns| ZoneRecord { host: Span { begin_ns, end_ns: begin_ns + ns }, ..on_thread(ns) };
    // The zone of the first launch is not read first.
    figures.add_zones(&[at(2_000, 10), at(3_000, 20), at(1_000, 100_000), at(4_000, 30)]);
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!((stats.first_ns, stats.mean_ns, stats.p50_ns, stats.p99_ns), (Some(100_000), 20, 20, 30));
    assert_eq!((stats.count, stats.total_ns, stats.max_ns, stats.total_error_ns), (4, 100_060, 100_000, 0));
    let mut figures = SessionFigures::default();
    figures.add_zones(&[on_thread(70)]);
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!((stats.first_ns, stats.mean_ns, stats.p50_ns, stats.p99_ns), (None, 70, 70, 70));
}

#[test]
fn a_first_call_that_is_not_shown_apart_is_in_the_mean_and_the_percentiles() {
    let mut figures = SessionFigures::default();
    figures.add_zones(&[on_thread(23_600_000), on_thread(13_900_000)]);
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!((stats.first_ns, stats.mean_ns), (None, stats.total_ns / 2));
    assert!(stats.p99_ns >= 23_400_000, "{stats:?}");
}

#[test]
fn a_record_of_a_sample_counts_for_as_many_as_came_by_for_it() {
    let mut figures = SessionFigures::default();
    // One in ten of the long zones is recorded and, at another time, each of the short ones.
    figures.add_zones(&(0..10).map(|_| sampled(1_000, 0.1)).collect::<Vec<_>>());
    figures.add_zones(&(0..100).map(|_| sampled(10, 1.0)).collect::<Vec<_>>());
    let [stats] = &ranges(&figures, CameBy::Unknown)[..] else { panic!("one range") };
    assert_eq!((stats.count, stats.seen, stats.recorded_ns, stats.total_ns), (110, 200, 11_000, 101_000));
    // The square root of the sum of y² (1 - p) / p².
    assert_eq!(stats.total_error_ns, (10.0_f64 * 1e6 * 0.9 / 0.01).sqrt().round() as i64);
    // Half of the zones that ran were long, regardless of which were recorded.
    assert!((500..=510).contains(&stats.mean_ns) && stats.p99_ns >= 990, "{stats:?}");
}

#[test]
fn after_a_sample_and_in_a_part_of_a_session_no_zone_is_the_first_call() {
    let zones = [on_thread(900), on_thread(10), on_thread(20)];
    let mut part = SessionFigures::new(true, None);
    part.add_zones(&zones);
    let mut sample = SessionFigures::default();
    sample.add_zones(&[sampled(10, 0.5)]);
    sample.add_zones(&zones);
    for (figures, mean_ns) in [(part, 310), (sample, 190)] {
        let [stats] = &ranges(&figures, CameBy::Unknown)[..] else { panic!("one range") };
        assert_eq!((stats.first_ns, stats.mean_ns), (None, mean_ns));
    }
}

/// A range with a lane.
const fn on_lane(label: &'static str, lane: &'static str) -> RangeSpec {
    RangeSpec::new(RangeMeta {
        namespace: "test",
        label,
        description: "A range with a lane.",
        lane: Some(lane),
        module: "test",
        file: "test.rs",
        line: 2,
        ..RangeMeta::EMPTY
    })
}

static ONE_LANE: RangeSpec = on_lane("test.one\0", "one");
static OTHER_LANE: RangeSpec = on_lane("test.other\0", "other");

/// The time of each range in no other zone of its row, by name.
fn own_times(figures: &SessionFigures) -> Vec<(String, i64)> {
    let ranges = ranges(figures, CameBy::Counted);
    let mut own: Vec<_> = ranges.iter().map(|range| (range.name.to_string(), range.self_ns)).collect();
    own.sort();
    own
}

#[test]
fn zones_nest_on_their_stream_lane_or_thread_alone() {
    let main = thread(1, None);
    let (first, second) = (stream(1, "first"), stream(2, "second"));
    let on = |range, stream, from, to| zone(range, Some(stream), &main, span(from, from + 10), Some(span(from, to)));
    let mut figures = SessionFigures::default();
    figures.add_zones(&[
        // Each lies in the one before it, on another lane.
        on(&RANGE, &first, 1_000, 2_000),
        on(&ONE_LANE, &first, 1_200, 1_500),
        on(&OTHER_LANE, &first, 1_300, 1_400),
        // In the first one, and beside it on another stream and on the thread.
        on(&STEP, &first, 1_600, 1_700),
        on(&COPY, &second, 1_600, 1_700),
    ]);
    figures.builder.end_batch();
    let own = |name: &str, ns| (name.to_owned(), ns);
    let (copy, step) = (COPY.name(), STEP.name());
    let mut expected =
        vec![own("test.range", 900), own("test.one", 300), own("test.other", 100), own(step, 100), own(copy, 100)];
    expected.sort();
    assert_eq!(own_times(&figures), expected);
}

#[test]
fn zones_of_a_replay_nest_on_the_stream_that_they_were_captured_on() {
    let (main, first) = (thread(1, None), stream(1, "first"));
    let replayed = |range, captured_on, lane: Option<&str>, from, to| ReplayedZone {
        zone: zone(range, Some(&first), &main, span(1, 2), Some(span(from, to))),
        lane: lane.map(Into::into),
        kernels: 1,
        captured_on,
    };
    let mut figures = SessionFigures::default();
    let mut record = replay(
        &first,
        span(1_000, 2_000),
        vec![
            replayed(&RANGE, 0, None, 1_000, 2_000),
            replayed(&STEP, 0, None, 1_100, 1_200),
            replayed(&COPY, 1, None, 1_300, 1_400),
            replayed(&ONE_LANE, 0, Some("one"), 1_500, 1_600),
        ],
    );
    figures.add_replay(&record, |_| true);
    // Another graph, at the same time.
    (record.graph, record.zones) = (2, vec![replayed(&OTHER_LANE, 0, None, 1_700, 1_800)]);
    figures.add_replay(&record, |_| true);
    let mut expected = vec![(STEP.name(), 100), (COPY.name(), 100), ("test.one", 100), ("test.other", 100)];
    expected.push(("test.range", 900));
    expected.sort();
    let own = own_times(&figures);
    assert_eq!(own.iter().map(|(name, ns)| (&**name, *ns)).collect::<Vec<_>>(), expected);
}

#[test]
fn zones_that_end_with_an_error_or_a_panic_are_counted() {
    let mut figures = SessionFigures::default();
    let with = |status| ZoneRecord { status, ..on_thread(10) };
    figures.add_zones(&[with(Status::Complete), with(Status::Error), with(Status::Panicked), with(Status::Complete)]);
    assert_eq!(ranges(&figures, CameBy::Counted)[0].failed, 2);
}

#[test]
fn percentiles_are_within_one_percent_and_the_ends_are_exact() {
    let mut figures = SessionFigures::default();
    figures.add_zones(&(1..=100_000).map(on_thread).collect::<Vec<_>>());
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!((stats.min_ns, stats.max_ns, stats.total_ns), (1, 100_000, 5_000_050_000));
    assert!((stats.p50_ns - 50_000).abs() <= 500, "{stats:?}");
    assert!((stats.p99_ns - 99_000).abs() <= 990, "{stats:?}");
}

#[test]
fn zones_whose_length_is_only_a_bound_are_in_no_figure_but_the_total() {
    use warpline_core::record::EndSource;

    let (stream, thread) = (stream(1, "compute"), thread(1, None));
    let lazy = |begin, end, early_by_ns| {
        let (host, gpu) = (span(begin, begin + 1), span(begin, end));
        let mut zone = zone(&RANGE, Some(&stream), &thread, host, Some(gpu));
        (zone.end, zone.end_early_by_ns) = (EndSource::Boundary, early_by_ns);
        zone.fields.set_flops(1_000_000_u64);
        zone
    };
    let mut figures = SessionFigures::default();
    // A zone around a bounded one, whose own time is 600 to 900 ns; and a long bounded one.
    figures.add_zones(&[lazy(100, 500, 300), lazy(0, 1_000, 0), lazy(2_000, 50_000, 47_000)]);
    let [stats] = &ranges(&figures, CameBy::Counted)[..] else { panic!("one range") };
    assert_eq!((stats.count, stats.bounded, stats.seen), (3, 2, 3));
    assert_eq!((stats.mean_ns, stats.min_ns, stats.max_ns, stats.recorded_ns), (1_000, 1_000, 1_000, 1_000));
    assert_eq!((stats.self_ns, stats.self_early_ns, stats.total_ns), (900, 300, 49_400));
    assert_eq!((stats.bounded_total_ns, stats.bounded_least_ns, stats.bounded_max_ns), (48_400, 1_100, 48_000));
    assert!(stats.total_is_bound() && stats.self_is_bound());
    let flops = stats.work.as_ref().and_then(|work| work.rates.flops_per_s);
    assert!(flops.is_some_and(|flops| (flops / 1e12 - 1.0).abs() < 1e-9), "{stats:?}");
}

#[test]
fn streams_that_are_gone_are_counted_together_and_those_in_use_stay_by_themselves() {
    let (mut figures, main) = (SessionFigures::default(), thread(1, None));
    let mut zones = 0;
    let mut pass = |figures: &mut SessionFigures, id: u32| {
        let (stream, at) = (stream(id, &format!("stream {id}")), 100 * zones);
        figures.add_zones(&[zone(&STEP, Some(&stream), &main, span(0, 1), Some(span(at, at + 10)))]);
        zones += 1;
    };
    for id in 2..10_002 {
        pass(&mut figures, id);
        // One stream that is always in use, and one that comes back.
        pass(&mut figures, 1);
    }
    pass(&mut figures, 2);
    let report = report(&figures, CameBy::Counted);
    let [main, rest @ .., folded] = &report.streams[..] else { panic!("{} streams", report.streams.len()) };
    assert_eq!((main.name.as_str(), main.busy_ns), ("stream 1", 10 * 10_000));
    assert!(report.streams.len() <= 1_024 + 1 && rest.iter().all(|stream| stream.streams == 1));
    assert!(
        rest.iter().any(|stream| stream.name == "stream 2") && rest.iter().any(|stream| stream.name == "stream 10001")
    );
    // The stream that came back is in both.
    assert_eq!((folded.name.as_str(), folded.streams), ("…", 10_001 - rest.len() as u64));
    assert_eq!(report.streams.iter().map(|stream| stream.busy_ns).sum::<i64>(), 10 * zones);
}

#[test]
fn time_in_which_a_zone_may_have_ended_makes_busy_and_idle_bounds() {
    let (mut figures, main, compute) = (SessionFigures::default(), thread(1, None), stream(1, "compute"));
    let lazy = |begin, end, early_by_ns| {
        let mut zone = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(begin, end)));
        (zone.end, zone.end_early_by_ns) = (EndSource::Observed, early_by_ns);
        zone
    };
    // One is known within 5 %; the tails of the two others overlap.
    figures.add_zones(&[lazy(0, 1_000, 50), lazy(1_100, 2_000, 500), lazy(1_000, 2_000, 600)]);
    figures.add_zones(&[lazy(3_000, 4_000, 0)]);
    let report = report(&figures, CameBy::Counted);
    let [stream] = &report.streams[..] else { panic!("one stream") };
    assert_eq!((stream.busy_ns, stream.uncertain_ns, stream.idle_ns), (3_000, 600, Some(1_000)));
    assert!(stream.busy_is_bound() && stream.rest_is_bound());
    assert!(report.critical_path.is_some_and(|path| path.parts.iter().any(|part| part.name == "(end not timed)")));
}

#[test]
fn time_in_which_a_wait_may_have_ended_makes_waiting_and_idle_bounds() {
    let (mut figures, main, compute) = (SessionFigures::default(), thread(1, None), stream(1, "compute"));
    let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
    let lazy = |semaphore: &str, begin, end, end_early_by_ns| WaitRecord {
        semaphore: semaphore.into(),
        stream: Some(Arc::clone(&compute)),
        gpu: Some(span(begin, end)),
        end: EndSource::Boundary,
        end_early_by_ns,
        ..wait.clone()
    };
    figures.add_zones(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(0, 1_000)))]);
    // The second one may have ended before it began, as far as its bound says.
    figures.add(Batch::Waits(&[lazy("known", 1_000, 2_000, 50), lazy("bound", 2_000, 3_000, 4_000)]));
    figures.add_zones(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(3_500, 4_000)))]);
    let report = report(&figures, CameBy::Counted);
    let [stream] = &report.streams[..] else { panic!("one stream") };
    let times = (stream.busy_ns, stream.uncertain_ns, stream.waiting_ns, stream.waiting_early_ns, stream.idle_ns);
    assert_eq!(times, (1_500, 0, 2_000, 1_000, Some(500)));
    assert!(!stream.busy_is_bound() && stream.waiting_is_bound() && stream.rest_is_bound());
    let waited: Vec<_> = stream.waited_for.iter().map(|on| (on.count, on.ns, on.early_ns, on.is_bound())).collect();
    assert_eq!(waited, [(2, 2_000, 1_050, true)]);
    let semaphores = report.semaphores.iter().map(|stats| (&*stats.name, stats.waited_ns, stats.is_bound()));
    assert_eq!(semaphores.collect::<Vec<_>>(), [("bound", 1_000, true), ("known", 1_000, false)]);
}

#[test]
fn ever_new_signallers_take_bounded_memory() {
    let mut figures = SessionFigures::default();
    let mut wait = waits().into_iter().find(|wait| wait.gpu.is_some() && wait.signal.is_some()).expect("a signal");
    for id in 0..40_000 {
        if let Some(signal) = &mut wait.signal {
            signal.stream = Some(stream(id, &format!("stream {id}")));
        }
        figures.add(Batch::Waits(std::slice::from_ref(&wait)));
    }
    assert!(figures.names.count() <= (1 << 15) + 100, "{} names", figures.names.count());
    let report = report(&figures, CameBy::Counted);
    let waited: Vec<_> = report.streams.iter().flat_map(|stream| &stream.waited_for).collect();
    assert_eq!(waited.iter().map(|by| by.count).sum::<u64>(), 40_000);
    assert!(waited.iter().any(|by| by.by == "(more)" && by.count > 30_000), "{} rows", waited.len());
}

#[test]
fn kernels_are_counted_by_name_and_range_whoever_made_the_name() {
    let stream = stream(1, "compute");
    let mut figures = SessionFigures::new(false, Some(|kernel| (kernel.correlation == 2).then_some(&COPY)));
    let of = |range, at, ns| {
        // Each record has a name of its own, with the same text.
        let mut kernel = kernel("scale", &stream, span(at, at + ns));
        (kernel.correlation, kernel.zone) = (1, None);
        kernel.zone = range;
        kernel
    };
    let step = Some(ZoneRef { range: &STEP, stream: None, sequence: 0 });
    let mut in_replay = of(None, 300, 13);
    in_replay.correlation = 2;
    let records = [of(step, 0, 10), of(step, 100, 11), of(step, 200, 12), in_replay, of(None, 400, 5)];
    figures.add(Batch::Kernels(&records));
    let report = report(&figures, CameBy::Counted);
    let rows = report.top_kernels.iter().map(|row| (row.range.as_deref(), row.count, row.total_ns, row.max_ns));
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows, [(Some("demo.step"), 3, 33, 12), (Some("demo.copy"), 1, 13, 13), (None, 1, 5, 5)]);
}

fn wait(kind: SyncKind, of: &Arc<ThreadInfo>, ns: i64, is_in_step: bool) -> SyncRecord {
    SyncRecord {
        kind,
        thread: Arc::clone(of),
        host: span(0, ns),
        stream: None,
        cuda_stream: None,
        context: 1,
        event: None,
        correlation: 1,
        zone: is_in_step.then_some(ZoneRef { range: &STEP, stream: None, sequence: 0 }),
    }
}

#[test]
fn waits_are_counted_by_thread_call_and_range_and_queued_waits_are_not() {
    let (main, loader) = (thread(1, Some("main")), thread(2, None));
    let mut waits = SessionFigures::default();
    for (kind, of, ns, is_in_step) in [
        (SyncKind::StreamSynchronize, &main, 10, true),
        (SyncKind::StreamSynchronize, &main, 30, true),
        (SyncKind::StreamSynchronize, &main, 7, false),
        (SyncKind::ContextSynchronize, &main, 5, true),
        (SyncKind::EventSynchronize, &loader, 90, false),
        (SyncKind::StreamWaitEvent, &main, 1_000, true),
    ] {
        waits.add(Batch::Synchronizations(&[wait(kind, of, ns, is_in_step)]));
    }
    let stats = report(&waits, CameBy::Counted).host_waits;
    let rows: Vec<_> = stats
        .iter()
        .map(|row| (row.thread.clone(), &*row.call, row.range.is_some(), row.count, row.total_ns, row.max_ns))
        .collect();
    let (main, other) = (|| "main".to_owned(), || "thread 2".to_owned());
    assert_eq!(
        rows,
        [
            (other(), "cuEventSynchronize", false, 1, 90, 90),
            (main(), "cuStreamSynchronize", true, 2, 40, 30),
            (main(), "cuStreamSynchronize", false, 1, 7, 7),
            (main(), "cuCtxSynchronize", true, 1, 5, 5),
        ]
    );
}
