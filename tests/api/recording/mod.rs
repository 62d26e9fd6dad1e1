//! From a mark to a record: nesting, threads, streams, fields, errors, panics, and the ways in which a session ends.

mod sinks;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use warpline::catalog::{Kind, Level};
use warpline::record::{Status, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, Value};
use warpline_tests::{Pace, alone};

warpline::range! {
    OUTER = "api.recording.outer": "A zone around others.";
    INNER = "api.recording.inner": "A zone in another.", level = fine;
    HOST = "api.recording.host": "Work with no stream.", kind = host;
}

/// However busy the machine is, it takes no longer.
const LONG: Duration = Duration::from_secs(60);

fn memory() -> (Session, MemorySink) {
    let zones = MemorySink::new(100_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    (session, zones)
}

fn assert_exact(report: &Report) {
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
}

#[test]
fn zones_nest_and_carry_what_they_were_given() {
    let _turn = alone();
    let (session, zones) = memory();
    let stream = HostStream::new("compute");
    const WORK: Duration = Duration::from_millis(100);
    let (launched, wait) = mpsc::channel();
    {
        let outer = OUTER.zone(&stream).field("n", 3_u32).field("ok", true).label(format_args!("layer {}", 12));
        assert!(outer.is_active());
        let _inner = INNER.zone(&stream).field("text", "fixed").field("x", -1.5_f32);
        // The work begins when the launching thread has left both zones.
        stream.launch(move || {
            wait.recv_timeout(LONG).expect("the launching thread does not wait for the work");
            std::thread::sleep(WORK);
        });
    }
    launched.send(()).expect("the work waits for it");
    let report = session.finish();
    assert_exact(&report);
    let zones = zones.take();
    let [inner, outer] = &zones[..] else { panic!("two zones: {zones:?}") };
    assert_eq!((inner.range.name(), outer.range.name()), ("api.recording.inner", "api.recording.outer"));
    assert_eq!((inner.depth, outer.depth), (1, 0));
    assert_eq!(outer.fields.get("n"), Some(&Value::U64(3)));
    assert_eq!(outer.fields.get("ok"), Some(&Value::Bool(true)));
    assert_eq!(outer.fields.label(), Some("layer 12"));
    assert_eq!(inner.fields.get("text"), Some(&Value::Text("fixed".into())));
    assert_eq!(inner.fields.get("x"), Some(&Value::F64(-1.5)));
    let (i, o) = (inner.gpu.expect("on a stream"), outer.gpu.expect("on a stream"));
    assert!(o.begin_ns <= i.begin_ns && i.end_ns <= o.end_ns, "{i:?} in {o:?}");
    assert!(i.duration_ns() >= WORK.as_nanos() as i64, "{i:?}");
    assert!(inner.host.begin_ns <= i.begin_ns, "the launch comes before the GPU");
    let left_by_ns = i.end_ns - WORK.as_nanos() as i64;
    assert!(outer.host.end_ns <= left_by_ns, "the launching thread does not wait: {:?}, {i:?}", outer.host);
    let stream = inner.stream.as_ref().expect("on a stream");
    assert_eq!((stream.name.as_str(), stream.device.name.as_str()), ("compute", "host"));
    assert_ne!(inner.sequence, outer.sequence);
}

#[test]
fn host_zones_have_no_stream() {
    let _turn = alone();
    let (session, zones) = memory();
    {
        let _zone = HOST.host();
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = session.finish();
    let zones = zones.take();
    assert_eq!(zones.len(), 1);
    assert!(zones[0].stream.is_none() && zones[0].gpu.is_none() && zones[0].duration_ns() >= 1_000_000);
    assert_eq!(HOST.kind(), Kind::Host);
    assert_eq!(report.ranges[0].name, "api.recording.host");
}

#[test]
fn many_threads_on_one_stream_and_one_thread_on_many() {
    let _turn = alone();
    let (session, zones) = memory();
    let shared = HostStream::new("shared");
    let own: Vec<_> = (0..12).map(|n| HostStream::new(&format!("own {n}"))).collect();
    std::thread::scope(|scope| {
        for n in 0..4_u64 {
            let shared = &shared;
            std::thread::Builder::new()
                .name(format!("launcher {n}"))
                .spawn_scoped(scope, move || {
                    for _ in 0..100 {
                        let _zone = OUTER.zone(shared).field("thread", n);
                    }
                })
                .expect("a thread");
        }
    });
    for stream in &own {
        drop(INNER.zone(stream));
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded), (412, 412), "{report}");
    let zones = zones.take();
    for n in 0..4_u64 {
        let mine: Vec<_> = zones.iter().filter(|zone| zone.fields.get("thread") == Some(&Value::U64(n))).collect();
        assert_eq!(mine.len(), 100);
        assert!(mine.iter().all(|zone| zone.thread.name.as_deref() == Some(&format!("launcher {n}")[..])));
    }
    let mut sequences: Vec<_> = zones
        .iter()
        .filter(|zone| zone.stream.as_ref().is_some_and(|s| s.name == "shared"))
        .map(|z| z.sequence)
        .collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (0..400).collect::<Vec<_>>(), "no number twice, none missing");
    let streams: std::collections::BTreeSet<_> =
        zones.iter().filter_map(|zone| Some(zone.stream.as_ref()?.id)).collect();
    assert_eq!(streams.len(), 13);
}

#[test]
fn level_and_filter_leave_ranges_out() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let count = |session: Session| {
        drop(OUTER.zone(&stream));
        drop(INNER.zone(&stream));
        drop(HOST.host());
        let report = session.finish();
        assert_exact(&report);
        report.ranges.iter().map(|range| range.name.clone().into_owned()).collect::<Vec<_>>()
    };
    let start = |builder: warpline::SessionBuilder| builder.start().expect("no other session");
    let mut coarse = count(start(Session::builder().level(Level::Coarse)));
    coarse.sort_unstable();
    assert_eq!(coarse, ["api.recording.host", "api.recording.outer"]);
    assert_eq!(count(start(Session::builder().filter("*.inner"))), ["api.recording.inner"]);
    assert_eq!(count(start(Session::builder().filter("api.recording.*").filter("!*r"))), ["api.recording.host"]);
    assert_eq!(count(start(Session::builder())).len(), 3, "the next session starts anew");
}

#[test]
fn nothing_records_without_a_session_or_after_stop() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    assert!(!OUTER.zone(&stream).is_active());
    let (session, zones) = memory();
    assert!(session.is_recording());
    let open = OUTER.zone(&stream);
    session.stop();
    assert!(!session.is_recording() && !INNER.zone(&stream).is_active());
    drop(open);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (1, 1), "what was open at the stop is whole: {report}");
    assert_eq!(zones.take().len(), 1);
    assert!(!OUTER.zone(&stream).is_active());
}

#[test]
fn a_zone_that_outlives_its_session_is_counted_and_harmless() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, _zones) = memory();
    let open = OUTER.zone(&stream);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.unfinished), (1, 0, 1));
    let (second, zones) = memory();
    drop(open);
    drop(INNER.zone(&stream));
    let report = second.finish();
    assert_eq!((report.begun, report.recorded), (1, 1), "{report}");
    assert_eq!(zones.take()[0].range.name(), "api.recording.inner");
}

#[test]
fn one_session_at_a_time() {
    let _turn = alone();
    let (session, _zones) = memory();
    let error = Session::builder().start().expect_err("one is on");
    assert!(error.to_string().contains("finish it before"), "{error}");
    session.finish();
    drop(Session::builder().start().expect("it is over"));
    drop(Session::builder().start().expect("a dropped one is over, too"));
}

#[test]
fn a_panic_ends_its_zones_and_is_said() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, zones) = memory();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _zone = OUTER.zone(&stream);
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    drop(INNER.zone(&stream));
    let report = session.finish();
    assert_exact(&report);
    let zones = zones.take();
    assert_eq!(zones.iter().map(|zone| zone.status).collect::<Vec<_>>(), [Status::Panicked, Status::Complete]);
    assert_eq!(zones[1].depth, 0, "the nesting is as before the panic");
    assert_eq!(report.ranges.iter().map(|range| range.failed).sum::<u64>(), 1);
}

#[test]
fn events_that_fail_drop_their_zone_and_nothing_else() {
    let _turn = alone();
    let stream = HostStream::new("failing");
    let (session, zones) = memory();
    stream.faults().fail_records(1);
    assert!(!OUTER.zone(&stream).is_active(), "its begin could not be recorded");
    let open = INNER.zone(&stream);
    stream.faults().fail_records(1);
    drop(open);
    drop(OUTER.zone(&stream));
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded, report.dropped.event_failed), (3, 1, 2), "{report}");
    assert_eq!(zones.take().len(), 1);
}

#[test]
fn events_that_cannot_be_made_drop_the_zone() {
    let _turn = alone();
    let stream = HostStream::new("failing");
    let (session, _zones) = memory();
    stream.faults().fail_creates(2);
    assert!(!OUTER.zone(&stream).is_active());
    assert!(OUTER.zone(&stream).is_active());
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded, report.dropped.event_failed), (2, 1, 1), "{report}");
}

#[test]
fn a_stream_that_fails_for_good_drops_what_waits_on_it() {
    let _turn = alone();
    let (failing, sound) = (HostStream::new("failing"), HostStream::new("sound"));
    let (session, _zones) = memory();
    // The worker stays here until the stream has failed, however slow the machine is.
    let (release, wait) = mpsc::channel::<()>();
    failing.launch(move || {
        let _ = wait.recv();
    });
    for _ in 0..10 {
        drop(OUTER.zone(&failing));
        drop(INNER.zone(&sound));
    }
    failing.faults().fail_stream("an illegal address was used");
    drop(release);
    drop(OUTER.zone(&failing));
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded), (21, 10), "{report}");
    assert_eq!((report.dropped.stream_failed, report.dropped.event_failed), (10, 1), "{report}");
    assert!(report.notes.iter().any(|note| note.contains("`failing`") && note.contains("illegal address")), "{report}");
}

#[test]
fn finish_does_not_wait_for_a_stream_beyond_its_limit() {
    let _turn = alone();
    let stream = HostStream::new("hung");
    let session = Session::builder().finish_timeout(Duration::from_millis(50)).start().expect("no other session");
    let (release, wait) = mpsc::channel::<()>();
    stream.launch(move || {
        let _ = wait.recv();
    });
    drop(OUTER.zone(&stream));
    let pace = Pace::start();
    let report = session.finish();
    assert!(pace.elapsed() < Duration::from_secs(1), "{:?}", pace.elapsed());
    drop(release);
    assert_exact(&report);
    assert_eq!((report.begun, report.dropped.unfinished), (1, 1), "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("`hung`") && note.contains("api.recording.outer")),
        "{report}"
    );
}

#[test]
fn streams_that_are_gone_leave_their_account() {
    let _turn = alone();
    let (session, zones) = memory();
    for n in 0..1_000 {
        let stream = HostStream::new(&format!("short-lived {n}"));
        drop(OUTER.zone(&stream));
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded), (1_000, 1_000), "{report}");
    assert_eq!(zones.take().len(), 1_000);
}

#[test]
fn the_report_has_figures_and_says_how_good_they_are() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, _zones) = memory();
    // Each zone is longer than the one before it: its work lasts as long as the time from the launch of that one to its own
    // begin.
    let mut before = Instant::now();
    for ms in [1, 2, 3] {
        let launched = Instant::now();
        let _zone = OUTER.zone(&stream);
        stream.launch(move || {
            let begin = Instant::now();
            std::thread::sleep(begin.duration_since(before).max(Duration::from_millis(ms)));
        });
        before = launched;
    }
    let report = session.finish();
    let outer = &report.ranges[0];
    assert_eq!(outer.count, 3);
    assert!(outer.min_ns >= 1_000_000 && outer.max_ns >= 3_000_000 && outer.min_ns < outer.max_ns, "{outer:?}");
    assert!(outer.total_ns >= 6_000_000 && outer.count == 3, "{outer:?}");
    // The first took no longer than the others, so it is one of them.
    assert_eq!((outer.first_ns, outer.mean_ns), (None, outer.total_ns / 3), "{outer:?}");
    assert_eq!((outer.recorded_ns, outer.total_error_ns), (outer.total_ns, 0));
    assert!((outer.min_ns..=outer.max_ns).contains(&outer.p50_ns) && outer.p50_ns >= 2_000_000, "{outer:?}");
    assert!(outer.p99_ns <= outer.max_ns && outer.p99_ns >= outer.p50_ns, "{outer:?}");
    assert_eq!(report.clocks.len(), 1);
    let text = report.to_string();
    assert!(text.contains("api.recording.outer") && text.contains("3 zones begun, 3 recorded, 0 dropped"), "{text}");
    assert!(text.contains("host: begins are exact,\n  and its events make a zone longer by "), "{text}");
}

struct ZoneAtTheEnd(HostStream);

impl Drop for ZoneAtTheEnd {
    fn drop(&mut self) {
        let zone = OUTER.zone(&self.0);
        assert!(zone.is_active());
    }
}

#[test]
fn zones_of_a_thread_that_ends_are_recorded() {
    thread_local!(static LAST: ZoneAtTheEnd = ZoneAtTheEnd(HostStream::new("end")));
    let _turn = alone();
    let (session, zones) = memory();
    std::thread::spawn(|| {
        // Touched first, so destroyed last: when nothing of warpline's is left on this thread.
        LAST.with(|last| drop(INNER.zone(&last.0)));
    })
    .join()
    .expect("a zone in a destructor does not panic");
    let report = session.finish();
    assert_exact(&report);
    let names: Vec<_> = zones.take().iter().map(|zone| zone.range.name()).collect();
    assert_eq!(names, ["api.recording.inner", "api.recording.outer"]);
}

/// A field that panics when it is told to.
#[warpline::gpu_zone("api.recording.panicking_field", fields(n = if fails { panic!("as told") } else { 1 }))]
fn panicking_field(stream: &HostStream, fails: bool) {
    stream.launch(|| ());
}

#[test]
fn a_field_that_panics_costs_its_zone_and_no_slot() {
    let _turn = alone();
    let zones = MemorySink::new(10);
    let session = Session::builder().ring(1).sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("compute");
    for _ in 0..3 {
        panicking_field(&stream, true);
        stream.synchronize().expect("nothing panics");
    }
    panicking_field(&stream, false);
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.unfinished), (4, 1, 3), "{report}");
    assert_eq!(zones.take().len(), 1);
}

warpline::range! {
    OFTEN = "api.recording.often": "Comes by very often.";
    SELDOM = "api.recording.seldom": "Comes by now and then.";
}

#[test]
fn a_budget_pays_for_a_sample_of_what_is_frequent() {
    let _turn = alone();
    let zones = MemorySink::new(1_000_000);
    // How much of the time the budget pays for depends on the machine, once the cost of recording is measured. The tests of
    // the schedule have a clock of their own for that. The first window lasts for 2 ms, after a gap of at least 23 ms.
    let session = Session::builder().budget(0.02).sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("compute");
    let begin = Instant::now();
    let (mut often, mut seldom) = (0_u64, 0_u64);
    let mut records = Vec::new();
    let is_there = |records: &[ZoneRecord], name: &str| records.iter().any(|zone| zone.range.name() == name);
    while ["api.recording.often", "api.recording.seldom"].iter().any(|name| !is_there(&records, name)) {
        assert!(begin.elapsed() < LONG, "{often} zones came by, and {} were recorded", records.len());
        for _ in 0..200 {
            drop(OFTEN.zone(&stream));
            often += 1;
        }
        drop(SELDOM.zone(&stream));
        seldom += 1;
        std::thread::sleep(Duration::from_millis(1));
        records.extend(zones.take());
    }
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert_exact(&report);
    records.extend(zones.take());
    let of = |name: &str| report.ranges.iter().find(|range| range.name == name).expect("it came by");
    let (frequent, rare) = (of("api.recording.often"), of("api.recording.seldom"));
    assert!(frequent.count < often, "{} of {often} were recorded", frequent.count);
    assert!(rare.count < seldom, "{} of {seldom} were recorded", rare.count);
    let first = records.iter().map(|zone| zone.window).min().expect("something was recorded");
    let shares: Vec<_> = records.iter().filter(|zone| zone.window == first).map(|zone| zone.sample_share).collect();
    assert!(first > 0 && shares.iter().all(|share| *share > 0.0 && *share < 2.0 / 25.0), "{shares:?}");
    // Each record counts for as many as came by for it: their sum is an estimate of all.
    let estimate: f64 = records
        .iter()
        .filter(|zone| zone.range.name() == "api.recording.often")
        .map(|zone| 1.0 / f64::from(zone.sample_share))
        .sum();
    assert!((0.99..1.01).contains(&(frequent.seen as f64 / estimate)), "{} and {estimate}", frequent.seen);
    let text = report.to_string();
    assert!(text.contains("a sample: ≈ is scaled to all zones that ran") && text.contains("of the time in "), "{text}");
}

#[test]
fn a_budget_that_is_no_share_is_refused() {
    let _turn = alone();
    for share in [0.0, -0.1, 1.5, f64::NAN] {
        let error = Session::builder().budget(share).start().expect_err("no share").to_string();
        assert!(error.contains("a budget is a share of the launching thread's time"), "{error}");
    }
}
