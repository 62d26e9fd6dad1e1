//! Zones that CUPTI's records time: which work belongs to which zone, what is said where there is none or where records are missing, and
//! what a session does that cannot have CUPTI.

use std::thread;
use std::time::{Duration, Instant};

use warpline::record::{EndSource, Span, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::Timing;
use warpline::{Session, SessionBuilder};
use warpline_tests::this_test;

use super::{HOST, INNER, LAYER, OUTER};
use crate::harness::cupti::*;
use crate::harness::driver::{self, Handle, Stub, in_child};
use crate::harness::zones::{self, assert_clean, assert_exact, boot_ns, raw};

/// What two reads of two clocks can be apart, and more.
const APART: Duration = Duration::from_micros(100);

fn start() -> (Session, MemorySink) {
    start_with(|builder| builder)
}

fn start_with(change: impl FnOnce(SessionBuilder) -> SessionBuilder) -> (Session, MemorySink) {
    zones::start(|builder| change(builder.timing(Timing::Kernels)))
}

/// The report and the zones of a session that is over.
fn finish(session: Session, sink: &MemorySink) -> (Report, Vec<ZoneRecord>) {
    let report = session.finish();
    assert_exact(&report);
    let mut zones = sink.take();
    zones.sort_by_key(|zone| zone.host.begin_ns);
    (report, zones)
}

/// A launch now on a stream, whose work lasts for so long: see [`Cupti::launch`]. Returns when it ran.
fn run(cupti: &Cupti, stream: Handle, ns: u64, launch: Launch) -> Span {
    thread::sleep(APART);
    // The stub's call lasts from 5 to 2 µs before its work.
    let begin_ns = boot_ns().cast_unsigned() + 3_500;
    let end_ns = begin_ns + ns;
    cupti.launch(Launch { begin_ns, end_ns, stream: number(stream), ..launch });
    thread::sleep(APART);
    Span { begin_ns: begin_ns.cast_signed(), end_ns: end_ns.cast_signed() }
}

/// The zone's span is that of this work, but for what the clocks differ; its length is the work's own.
#[track_caller]
fn assert_span(zone: &ZoneRecord, work: &[Span]) {
    let begin_ns = work.iter().map(|span| span.begin_ns).min().expect("work");
    let end_ns = work.iter().map(|span| span.end_ns).max().expect("work");
    let gpu = zone.gpu.unwrap_or_else(|| panic!("no span: {zone:?}"));
    assert_eq!((gpu.duration_ns(), zone.end), (end_ns - begin_ns, EndSource::Kernels), "{zone:?}");
    assert_eq!((zone.bracket_ns, zone.end_early_by_ns, zone.begin_late_by_ns), (0, 0, 0), "{zone:?}");
    assert!((gpu.begin_ns - begin_ns).abs() < 1_000_000, "{zone:?} does not begin at {begin_ns}");
}

#[track_caller]
fn assert_without(zone: &ZoneRecord, end: EndSource) {
    assert_eq!((zone.gpu, zone.end), (None, end), "{zone:?}");
}

#[test]
fn a_zone_lasts_from_its_first_work_to_its_last_and_puts_nothing_on_the_stream() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (one, other) = (driver.stream(), driver.stream());
        run(cupti, one, 900_000, kernel(c"before"));
        let (inner, outer) = {
            let _outer = OUTER.zone(&raw(one));
            let first = run(cupti, one, 5_001, kernel(c"k"));
            let inner = {
                let _inner = INNER.zone(&raw(one));
                // On a stream that no mark names, a copy and a set.
                let copy = run(cupti, other, 20_003, Launch { kind: MEMCPY, bytes: 64, ..kernel(c"") });
                vec![copy, run(cupti, one, 7, Launch { kind: MEMSET, bytes: 64, ..kernel(c"") })]
            };
            // Another thread's work is not this zone's.
            thread::scope(|scope| _ = scope.spawn(|| run(cupti, one, 800_000, kernel(c"elsewhere"))));
            (inner.clone(), [vec![first], inner].concat())
        };
        run(cupti, one, 700_000, kernel(c"after"));
        drop(LAYER.zone(&raw(one)));
        let (report, zones) = finish(session, &sink);
        assert_eq!(zones.len(), 3, "{report}");
        assert_span(&zones[0], &outer);
        assert_span(&zones[1], &inner);
        assert_without(&zones[2], EndSource::NoWork);
        let counts = report.kernel_timing;
        assert_eq!((counts.timed, counts.without_work, counts.lost), (2, 1, 0), "{report}");
        assert!(report.to_string().contains("2 GPU zones are timed by kernels, 1 without device work"), "{report}");
        // Kernels are records only where they are asked for, and no zone is named to CUPTI.
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (0, 0));
        assert_eq!(cupti.calls("cuptiActivityPushExternalCorrelationId"), 0);
        for symbol in ["cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamCreate"] {
            let own = if symbol == "cuStreamCreate" { 2 } else { 0 };
            assert_eq!(driver.calls(symbol), own, "{symbol}");
        }
        assert_eq!(cupti.calls("cuptiActivityFlushAll(forced)"), 1);
        assert!(!cupti.stub_cupti_is_attached(), "no graph was launched: {report}");
        assert_clean(driver);
    });
}

#[test]
fn each_thread_has_its_own_work() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let of_thread = |ns: u64| {
            let _zone = OUTER.zone(&raw(stream));
            (driver::tid() as u64, run(cupti, stream, ns, kernel(c"k")))
        };
        let work: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (1..=4).map(|n| scope.spawn(move || of_thread(n * 1_000 + n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (_, zones) = finish(session, &sink);
        for (thread, span) in work {
            let zone = zones.iter().find(|zone| zone.thread.id == thread).expect("its zone");
            assert_span(zone, &[span]);
        }
    });
}

#[test]
fn a_zone_that_can_end_elsewhere_has_the_work_on_its_stream() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (one, other) = (driver.stream(), driver.stream());
        let zone = OUTER.async_zone(&raw(one));
        let first = run(cupti, one, 3_000, kernel(c"k"));
        run(cupti, other, 900_000, kernel(c"another task's"));
        let last = thread::scope(|scope| {
            let there = scope.spawn(|| run(cupti, one, 4_000, kernel(c"k")));
            there.join().expect("no panic")
        });
        thread::scope(|scope| _ = scope.spawn(move || drop(zone)));
        let (_, zones) = finish(session, &sink);
        assert_span(&zones[0], &[first, last]);
    });
}

/// Waits until so many zones have been handed on.
fn wait_for(sink: &MemorySink, count: usize) -> Vec<ZoneRecord> {
    zones::wait_for(sink, count)
}

#[test]
fn a_zone_is_recorded_when_its_work_is_complete_and_not_before() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let span = {
            let _zone = OUTER.zone(&raw(stream));
            run(cupti, stream, 9_001, Launch { is_pending: 1, ..kernel(c"k") })
        };
        drop(INNER.zone(&raw(stream)));
        // The one behind it has nothing to wait for.
        assert_without(&wait_for(&sink, 1)[0], EndSource::NoWork);
        thread::sleep(Duration::from_millis(300));
        assert!(sink.take().is_empty(), "its kernel still runs");
        cupti.stub_cupti_complete();
        assert_span(&wait_for(&sink, 1)[0], &[span]);
        assert_eq!(cupti.calls("cuptiActivityFlushAll(forced)"), 0);
        finish(session, &sink);
    });
}

#[test]
fn a_kernel_that_does_not_end_keeps_a_bounded_number_of_zones() {
    const WAIT: u64 = 1 << 17;
    const NESTED: u64 = 64;
    const EXCESS: u64 = 4 * NESTED;
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // There is room for all of them, however late the collector comes.
        let (session, sink) = start_with(|builder| builder.ring(1 << 18).finish_timeout(zones::MUCH_TO_READ));
        let stream = driver.stream();
        for _ in 0..(WAIT + EXCESS) / NESTED {
            let _zones: Vec<_> = (0..NESTED).map(|_| INNER.zone(&raw(stream))).collect();
            // The call is in the middle of the zones.
            thread::sleep(Duration::from_micros(10));
            let begin_ns = boot_ns().cast_unsigned() + 3_500;
            let end_ns = begin_ns + 1_000;
            cupti.launch(Launch { is_pending: 1, begin_ns, end_ns, stream: number(stream), ..kernel(c"k") });
            thread::sleep(Duration::from_micros(10));
        }
        let given_up = wait_for(&sink, EXCESS as usize);
        given_up.iter().for_each(|zone| assert_without(zone, EndSource::Lost));
        thread::sleep(Duration::from_millis(300));
        assert!(sink.take().is_empty(), "the others wait");
        cupti.stub_cupti_complete();
        let (report, _) = finish(session, &sink);
        let counts = report.kernel_timing;
        assert_eq!((counts.timed, counts.lost, report.dropped.total()), (WAIT, EXCESS, 0), "{report}");
        let note =
            report.notes.iter().find(|note| note.starts_with("256 zones are without a GPU time")).expect("a note");
        assert!(note.contains("more than 131072 zones waited"), "{note}");
    });
}

#[test]
fn a_zone_whose_records_are_missing_has_no_length() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // It waits for the record for so long.
        let (session, sink) = start_with(|builder| builder.finish_timeout(Duration::from_millis(300)));
        let stream = driver.stream();
        {
            let _outer = OUTER.zone(&raw(stream));
            run(cupti, stream, 1_000, kernel(c"k"));
            let _inner = INNER.zone(&raw(stream));
            run(cupti, stream, 1_000, Launch { is_unreported: 1, ..kernel(c"k") });
        }
        let (report, zones) = finish(session, &sink);
        assert_eq!(zones.len(), 2);
        zones.iter().for_each(|zone| assert_without(zone, EndSource::Lost));
        assert_eq!((report.kernel_timing.timed, report.kernel_timing.lost), (0, 2), "{report}");
    });
}

#[test]
fn what_cupti_drops_makes_spans_unsure_and_the_report_says_so() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        {
            let _zone = OUTER.zone(&raw(stream));
            run(cupti, stream, 1_000, kernel(c"k"));
        }
        cupti.stub_cupti_drop(3);
        let (report, _) = finish(session, &sink);
        assert_eq!(report.kernels.dropped, 3, "{report}");
        let said = "GPU spans of zones may be incomplete: 3 records are missing from CUPTI";
        assert!(report.notes.iter().any(|note| note.contains(said)), "{report}");
    });
}

#[test]
fn calls_of_the_runtime_are_launches_too() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let work = {
            let _zone = OUTER.zone(&raw(stream));
            cupti.stub_cupti_runtime(1);
            let alone = run(cupti, stream, 2_001, kernel(c"k"));
            cupti.stub_cupti_runtime(2);
            // The driver's call within the runtime's is the same launch.
            let both = run(cupti, stream, 2_003, kernel(c"k"));
            cupti.stub_cupti_runtime(0);
            [alone, both]
        };
        let (report, zones) = finish(session, &sink);
        assert_span(&zones[0], &work);
        assert_eq!(report.kernel_timing.lost, 0, "{report}");
    });
}

#[test]
fn a_zone_that_was_open_while_the_session_stood_still_has_no_length() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let timed = || {
            let _zone = INNER.zone(&raw(stream));
            run(cupti, stream, 6_001, kernel(c"k"))
        };
        let until = |is_on: bool| {
            let begin = Instant::now();
            while cupti.stub_cupti_is_on(KERNEL) != is_on {
                assert!(begin.elapsed() < Duration::from_secs(20), "kernels should be on: {is_on}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        let open = OUTER.zone(&raw(stream));
        let before = timed();
        let one = wait_for(&sink, 1).remove(0);
        session.stop();
        until(false);
        session.start();
        until(true);
        // It is on a moment before it counts as on, and a zone of that moment has no length.
        let since = Instant::now();
        let (two, after) = loop {
            let after = timed();
            let zone = wait_for(&sink, 1).remove(0);
            if zone.end != EndSource::Lost {
                break (zone, after);
            }
            assert!(since.elapsed() < Duration::from_secs(20), "kernels do not count as on");
            assert_without(&zone, EndSource::Lost);
        };
        drop(open);
        let (report, zones) = finish(session, &sink);
        let [outer] = &zones[..] else { panic!("one zone: {zones:?}, {report}") };
        assert_without(outer, EndSource::Lost);
        assert_span(&one, &[before]);
        assert_span(&two, &[after]);
    });
}

#[test]
fn kernels_as_records_as_well_are_the_same_records() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start_with(|builder| builder.kernels(true));
        let stream = driver.stream();
        let span = {
            let _zone = OUTER.zone(&raw(stream));
            run(cupti, stream, 4_321, kernel(c"k"))
        };
        {
            let _host = HOST.host();
            run(cupti, stream, 1_000, kernel(c"k"));
        }
        let (report, zones) = finish(session, &sink);
        let kernels = sink.take_kernels();
        assert_eq!((zones.len(), kernels.len(), report.kernels.recorded), (2, 2, 2), "{report}");
        assert_span(&zones[0], &[span]);
        assert_eq!(zones[0].gpu, Some(kernels[0].gpu));
        assert!(kernels[0].zone.is_some_and(|zone| std::ptr::eq(zone.range, &OUTER)));
        // A host zone has no stream, and is timed as ever.
        assert_eq!((zones[1].gpu, zones[1].end), (None, EndSource::Event));
        assert_eq!(report.kernel_timing.timed, 1);
    });
}

#[test]
fn a_graph_is_work_of_the_zone_that_launches_it_and_the_report_says_what_that_costs() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        {
            let _zone = OUTER.zone(&raw(stream));
            thread::sleep(APART);
            cupti.replay(stream, 9, 5, boot_ns().cast_unsigned() + 3_500, 1_501);
            thread::sleep(APART);
        }
        let (report, zones) = finish(session, &sink);
        assert_eq!(zones[0].gpu_ns(), Some(4 * 10_000 + 1_501), "{report}");
        let says = |text: &str| report.notes.iter().any(|note| note.contains(text));
        assert!(says("of CUDA graphs took") && says("`timing=kernels`"), "{report}");
        assert!(says("CUPTI stays in this process") && cupti.stub_cupti_is_attached(), "{report}");
    });
}

/// Zones with times, by events, and one line that says why.
fn assert_by_events(driver: &Stub, said: &[&str]) {
    let (session, sink) = start();
    let stream = driver.stream();
    {
        let _zone = OUTER.zone(&raw(stream));
        driver.stub_launch(stream, 10_000);
    }
    driver.cuStreamSynchronize(stream);
    let (report, zones) = finish(session, &sink);
    assert!(zones.len() == 1 && zones[0].gpu.is_some(), "{zones:?}");
    assert_eq!(zones[0].end, EndSource::Event, "{zones:?}");
    let [note] = &report.notes[..] else { panic!("one note: {report}") };
    assert!(note.starts_with("zones are timed by events instead of kernels: "), "{note}");
    said.iter().for_each(|said| assert!(note.contains(said), "`{said}` is not in: {note}"));
    assert_eq!(report.kernel_timing, Default::default());
}

#[test]
fn where_another_tool_has_cupti_zones_are_timed_by_events() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        cupti.fail("cuptiSubscribe", 39);
        assert_by_events(driver, &["another tool uses CUPTI"]);
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn without_cupti_zones_are_timed_by_events() {
    let test = this_test!();
    in_child(test, driver::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("/nowhere/libcupti.so".as_ref());
        assert_by_events(&driver, &["/nowhere/libcupti.so"]);
    });
}

#[test]
fn a_request_for_one_zone_gets_it_with_its_times() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let request = warpline::profile::next(&raw(stream));
        let span = {
            let _zone = OUTER.zone(&raw(stream));
            run(cupti, stream, 8_765, kernel(c"k"))
        };
        let zone = request.wait(Duration::from_secs(20)).expect("the zone");
        assert_span(&zone, &[span]);
        finish(session, &sink);
    });
}
