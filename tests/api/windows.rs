//! Sessions with a budget: they record windows of their time, in which steps are whole.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpline::record::ZoneRecord;
use warpline::report::{RangeStats, Report};
use warpline::sink::MemorySink;
use warpline::{HostStream, Session};
use warpline_tests::alone;

warpline::range! {
    STEP = "api.windows.step": "A step.";
    PART = "api.windows.part": "A part of a step.";
    SMALL = "api.windows.small": "A part of a part, and work between steps.";
    LOOSE = "api.windows.loose": "A zone that does not nest.";
    FRAME = "api.windows.frame": "What all steps are in.";
    RARE = "api.windows.rare": "Rare and long.", kind = host;
    OFTEN = "api.windows.often": "Frequent and short.", kind = host;
    CYCLE = "api.windows.cycle": "The step of those two.", kind = host;
    SYNC = "api.windows.sync": "What ranks match by number.", kind = collective;
}

/// Zones in a step, itself included.
const STEP_ZONES: usize = 4;

/// However busy the host is, it takes no longer.
const SOON: Duration = Duration::from_secs(60);

fn budgeted(share: f64) -> (Session, MemorySink) {
    let zones = MemorySink::new(1_000_000);
    let builder = Session::builder().budget(share).ring(1 << 16).sink(zones.clone());
    (builder.start().expect("no other session"), zones)
}

/// Returns how long it took.
fn spin(time: Duration) -> Duration {
    let begin = Instant::now();
    loop {
        let elapsed = begin.elapsed();
        if elapsed >= time {
            return elapsed;
        }
        std::hint::spin_loop();
    }
}

fn step(stream: &HostStream) {
    let _step = STEP.zone(stream);
    drop(PART.zone(stream));
    let part = PART.zone(stream);
    spin(Duration::from_micros(20));
    drop(SMALL.zone(stream));
    drop(part);
}

/// Does the same on a stream of its own until it is over.
fn until(is_over: &AtomicBool, name: &str, work: impl Fn(&HostStream)) {
    let stream = HostStream::new(name);
    while !is_over.load(Ordering::Relaxed) {
        work(&stream);
    }
}

/// Waits until what is recorded is enough.
#[track_caller]
fn until_recorded(sink: &MemorySink, zones: &mut Vec<ZoneRecord>, mut is_enough: impl FnMut(&[ZoneRecord]) -> bool) {
    let begin = Instant::now();
    while !is_enough(zones) {
        assert!(begin.elapsed() < SOON, "{} zones are not enough", zones.len());
        std::thread::sleep(Duration::from_millis(10));
        zones.extend(sink.take());
    }
}

fn named<'a>(zones: &'a [ZoneRecord], name: &str) -> Vec<&'a ZoneRecord> {
    zones.iter().filter(|zone| zone.range.name() == name).collect()
}

fn assert_exact(report: &Report) {
    assert_eq!(report.begun, report.recorded + report.captured + report.dropped.total(), "{report}");
}

/// By thread and begin, for [`inside`].
fn in_order(zones: &[ZoneRecord]) -> Vec<&ZoneRecord> {
    let mut sorted: Vec<_> = zones.iter().collect();
    sorted.sort_by_key(|zone| (zone.thread.id, zone.host.begin_ns));
    sorted
}

/// The number of zones of the thread that lie in this one, which is not among them.
fn inside(sorted: &[&ZoneRecord], outer: &ZoneRecord) -> usize {
    let begin = (outer.thread.id, outer.host.begin_ns);
    let first = sorted.partition_point(|zone| (zone.thread.id, zone.host.begin_ns) < begin);
    let rest = sorted[first..].iter();
    rest.take_while(|zone| zone.thread.id == outer.thread.id && zone.host.begin_ns <= outer.host.end_ns)
        .filter(|zone| zone.host.end_ns <= outer.host.end_ns && !std::ptr::eq(**zone, outer))
        .count()
}

#[test]
fn steps_are_recorded_whole_or_not_at_all() {
    let _turn = alone();
    // The budget is so small that the first windows have a small part of the time however little recording seems to cost.
    let (session, sink) = budgeted(0.01);
    let is_over = AtomicBool::new(false);
    let (steps, small) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut zones = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                until(&is_over, "compute", |stream| {
                    step(stream);
                    steps.fetch_add(1, Ordering::Relaxed);
                    spin(Duration::from_micros(20));
                });
            });
        }
        // A range that is a part of a step elsewhere is a root here.
        scope.spawn(|| {
            until(&is_over, "small", |stream| {
                drop(SMALL.zone(stream));
                small.fetch_add(1, Ordering::Relaxed);
                spin(Duration::from_micros(30));
            });
        });
        let has =
            |zones: &[ZoneRecord], root: &str| zones.iter().any(|zone| zone.depth == 0 && zone.range.name() == root);
        until_recorded(&sink, &mut zones, |zones| {
            let windows: BTreeSet<_> = zones.iter().map(|zone| zone.window).collect();
            windows.len() > 1 && has(zones, "api.windows.step") && has(zones, "api.windows.small")
        });
        is_over.store(true, Ordering::Relaxed);
    });
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.dropped.ring_full, 0, "{report}");
    zones.extend(sink.take());
    let whole = named(&zones, "api.windows.step");
    assert!(!whole.is_empty() && (whole.len() as u64) < steps.into_inner(), "{} steps", whole.len());
    let sorted = in_order(&zones);
    for step in &whole {
        assert_eq!(inside(&sorted, step), STEP_ZONES - 1, "{step:?}");
    }
    let roots: Vec<_> = zones.iter().filter(|zone| zone.depth == 0).collect();
    assert!(roots.iter().all(|zone| zone.range.name() != "api.windows.part"), "a part without its step");
    let loose = roots.iter().filter(|zone| zone.range.name() == "api.windows.small").count();
    assert_eq!(roots.len(), whole.len() + loose);
    assert_eq!(zones.len(), STEP_ZONES * whole.len() + loose, "no part is without its step");
    assert!(loose > 0 && (loose as u64) < small.into_inner(), "{loose} small ones");
    assert!(zones.iter().all(|zone| zone.window > 0 && zone.sample_share < 1.0));
    let figures = report.windows.expect("there is a budget");
    assert!(figures.windows > 0 && figures.recorded < 0.5, "{figures:?}");
    assert!(report.to_string().contains("of the time in "), "{report}");
}

#[test]
fn a_session_that_stops_and_changes_records_no_part_without_its_step() {
    let _turn = alone();
    let (session, sink) = budgeted(0.5);
    let is_over = AtomicBool::new(false);
    let mut zones = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| until(&is_over, "compute", step));
        }
        let begin = Instant::now();
        let mut rounds = 0;
        // On a busy host, few windows open between two stops.
        while rounds < 30 || (zones.is_empty() && begin.elapsed() < SOON) {
            std::thread::sleep(Duration::from_millis(20));
            session.stop();
            session.set_sample([1.0, 0.5][rounds % 2]).expect("a share");
            session.start();
            zones.extend(sink.take());
            rounds += 1;
        }
        session.set_sample(1.0).expect("a share");
        is_over.store(true, Ordering::Relaxed);
    });
    let report = session.finish();
    assert_exact(&report);
    zones.extend(sink.take());
    assert!(!zones.is_empty(), "{report}");
    assert_eq!(zones.len() as u64, report.recorded);
    let parts = named(&zones, "api.windows.part");
    assert!(!parts.is_empty() && parts.iter().all(|zone| zone.depth > 0), "a part without its step");
    assert!(
        zones.iter().all(|zone| zone.window > 0 && zone.sample_share < 1.0),
        "nothing is recorded outside of windows"
    );
}

#[test]
fn a_session_with_few_steps_between_stops_reaches_its_windows() {
    let _turn = alone();
    let (session, sink) = budgeted(0.01);
    let stream = HostStream::new("compute");
    // No part of the session counts the roots for which the first window waits, or lasts as long as a gap and the longest wait.
    let (mut parts, mut zones) = (0, Vec::new());
    while zones.is_empty() && parts < 500 {
        session.stop();
        std::thread::sleep(Duration::from_millis(30));
        session.start();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {
            step(&stream);
            std::thread::sleep(Duration::from_millis(5));
        }
        parts += 1;
        zones.extend(sink.take());
    }
    let report = session.finish();
    zones.extend(sink.take());
    assert!(!zones.is_empty(), "nothing in {parts} parts: {report}");
    assert!(report.windows.is_some_and(|figures| figures.windows > 0 && figures.recorded < 0.5), "{report}");
}

#[test]
fn a_session_that_ends_before_its_first_window_says_what_to_write() {
    let _turn = alone();
    // The first gap lasts for minutes.
    let (session, sink) = budgeted(0.000_001);
    step(&HostStream::new("compute"));
    let report = session.finish();
    assert!(sink.take().is_empty());
    let text = report.to_string();
    assert!(text.contains("no window of the budget opened before the end") && text.contains("`budget=100%`"), "{text}");
}

#[test]
fn steps_are_found_inside_a_zone_that_lasts() {
    let _turn = alone();
    let (session, sink) = budgeted(0.5);
    let stream = HostStream::new("compute");
    let frame = FRAME.zone(&stream);
    let (begin, mut zones) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_millis(2_500) || named(&zones, "api.windows.step").len() <= 10 {
        assert!(begin.elapsed() < SOON, "{} zones are not enough", zones.len());
        (0..100).for_each(|_| step(&stream));
        zones.extend(sink.take());
    }
    drop(frame);
    let report = session.finish();
    assert_exact(&report);
    zones.extend(sink.take());
    let steps = named(&zones, "api.windows.step");
    assert!(steps.len() > 10, "{} steps were recorded: {report}", steps.len());
    // One may have been recorded from its middle, before it was known what the frame is.
    let sorted = in_order(&zones);
    let whole = steps.iter().filter(|step| inside(&sorted, step) == STEP_ZONES - 1).count();
    assert!(whole + 2 >= steps.len(), "{whole} of {} are whole", steps.len());
}

#[test]
fn collectives_are_recorded_completely_and_zones_that_do_not_nest_in_windows() {
    let _turn = alone();
    let (session, sink) = budgeted(0.1);
    let stream = HostStream::new("compute");
    let begin = Instant::now();
    let (mut collectives, mut loose, mut zones) = (0, 0, Vec::new());
    while begin.elapsed() < Duration::from_millis(1_000) || named(&zones, "api.windows.loose").is_empty() {
        assert!(begin.elapsed() < SOON, "{} zones are not enough", zones.len());
        for _ in 0..100 {
            step(&stream);
            drop(SYNC.zone(&stream));
            drop(LOOSE.async_zone(&stream));
            (collectives, loose) = (collectives + 1, loose + 1);
        }
        zones.extend(sink.take());
    }
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert_exact(&report);
    zones.extend(sink.take());
    assert_eq!(named(&zones, "api.windows.sync").len(), collectives);
    let sampled = named(&zones, "api.windows.loose");
    assert!(!sampled.is_empty() && sampled.len() < loose, "{} of {loose}", sampled.len());
    let sorted = in_order(&zones);
    for step in named(&zones, "api.windows.step") {
        assert_eq!(inside(&sorted, step), STEP_ZONES - 1, "{step:?}");
    }
    assert!(named(&zones, "api.windows.sync").iter().all(|zone| zone.sample_share == 1.0 && zone.window == 0));
}

/// What ran in a session, from the program's own clock.
#[derive(Default)]
struct Ran {
    cycles: u64,
    rare: Duration,
    often: Duration,
}

/// A session of rare zones and of frequent ones, ten for each, all much longer than what their recording takes. Returns its report and
/// what ran.
fn rare_and_often() -> (Report, Ran) {
    let (session, sink) = budgeted(0.2);
    let begin = Instant::now();
    let (mut ran, mut windows) = (Ran::default(), BTreeSet::new());
    while begin.elapsed() < Duration::from_millis(3_000) || windows.len() < 10 {
        assert!(begin.elapsed() < SOON, "{} windows are not enough", windows.len());
        let _cycle = CYCLE.host();
        ran.cycles += 1;
        let begin = Instant::now();
        for _ in 0..10 {
            let _often = OFTEN.host();
            ran.often += spin(Duration::from_micros(50));
        }
        // In each cycle the ten take less time than the one, also where the machine runs other programs meanwhile.
        let often = begin.elapsed();
        {
            let _rare = RARE.host();
            ran.rare += spin((2 * often).max(Duration::from_micros(2_000)));
        }
        if ran.cycles.is_multiple_of(100) {
            windows.extend(sink.take().iter().map(|zone| zone.window));
        }
    }
    (session.finish(), ran)
}

#[test]
fn scaled_totals_rank_ranges_and_have_an_error() {
    let _turn = alone();
    let begin = Instant::now();
    loop {
        let (report, ran) = rare_and_often();
        let of = |name: &str| -> RangeStats {
            report.ranges.iter().find(|range| range.name == name).expect("it was recorded").clone()
        };
        let (rare, often) = (of("api.windows.rare"), of("api.windows.often"));
        assert!(rare.count < ran.cycles && often.count == 10 * rare.count, "{report}");
        // The total of the ten is less than that of the one.
        assert!(rare.total_ns > often.total_ns && often.total_ns > often.recorded_ns, "{report}");
        // Windows sample the time.
        for (range, truth) in [(&rare, ran.rare), (&often, ran.often)] {
            assert!(range.total_error_ns > 0, "{range:?}");
            let error = range.total_error_ns as f64 / range.total_ns as f64;
            let off = range.total_ns as f64 / truth.as_nanos() as f64 - 1.0;
            assert!(off.abs() < 5.0 * error.max(0.03), "{off} off, and says {error}: {range:?}");
        }
        let text = report.to_string();
        assert!(text.contains("a sample: ≈ is scaled to all zones that ran, ± its standard error"), "{text}");
        // A busy machine makes some zones thousands of times longer than others. Then the error is large and right, and the number of zones
        // varies more than their time.
        let is_known = |(range, ran): (&RangeStats, u64)| {
            let error = range.total_error_ns as f64 / range.total_ns as f64;
            error < 0.5 && (range.seen as f64 / ran as f64 - 1.0).abs() < 5.0 * error.max(0.03)
        };
        if [(&rare, ran.cycles), (&often, 10 * ran.cycles)].into_iter().all(is_known) {
            break;
        }
        assert!(begin.elapsed() < SOON, "no session knows the totals to a half, and the numbers: {rare:?}, {often:?}");
    }
}

#[test]
fn a_flight_recorder_alone_has_a_budget_and_a_session_with_another_sink_has_none() {
    let _turn = alone();
    let folder = warpline_tests::empty_folder("windows_default");
    let recorder = |name: &str| Session::builder().flight_at(256 << 10, folder.join(name));
    let windows = |builder: warpline::SessionBuilder| builder.start().expect("no other session").finish().windows;
    assert!(windows(recorder("alone")).is_some());
    assert!(windows(recorder("every").budget(1.0)).is_none());
    assert!(windows(recorder("beside").sink(MemorySink::new(16))).is_none());
}

#[test]
fn a_session_whose_zones_take_much_of_a_threads_time_names_the_remedy() {
    let _turn = alone();
    let notes = |share: f64, pause: Duration| {
        let (session, _sink) = budgeted(share);
        let stream = HostStream::new("busy");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1_200) {
            (0..20).for_each(|_| drop(PART.zone(&stream)));
            std::thread::sleep(pause);
        }
        stream.synchronize().expect("nothing panics");
        let report = session.finish();
        // A zone on an in-process stream counts as 400 ns, and 5 % of the time is much.
        let share = report.recorded as f64 * 400.0 / report.duration.as_nanos() as f64 / 0.05;
        (share, report.duration, report.notes)
    };
    // How many zones there are in the time depends on the machine.
    for _ in 0..3 {
        let (share, duration, all) = notes(1.0, Duration::ZERO);
        let note = all.iter().find(|note| note.contains("`budget=1%`"));
        assert!(note.is_some() == (share > 1.0) || (0.95..1.05).contains(&share), "{share} of the limit: {all:?}");
        let in_time = format!(" µs each, in {:.1} s)", duration.as_secs_f64());
        let is_whole = |note: &String| note.contains("stream `busy` (estimated: ") && note.contains(&in_time);
        assert!(note.is_none_or(is_whole), "{note:?}, not {in_time}");
    }
    assert_eq!(notes(1.0, Duration::from_millis(2)).2, [""; 0], "zones that cost little");
    assert_eq!(notes(0.01, Duration::ZERO).2, [""; 0], "a session with a budget");
}
