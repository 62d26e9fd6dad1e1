//! Warpline on a CUDA driver that counts every call and fails on demand: the application comes first, nothing is lost
//! silently, off means off. Here: which calls are made, and when none is. What the driver's failures cost is in `failures`,
//! contexts that come and go in `contexts`, streams of green contexts in `green`. No GPU is needed; the times are the stub driver's, which knows the truth.

mod contexts;
mod failures;
mod green;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, Message, ProcessGroup};
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::nvtx;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_rules.work": "Work on a stream.";
    OTHER = "stub.cuda_rules.other": "Other work on a stream.";
    BATCH = "stub.cuda_rules.batch": "Several collectives at once.", kind = collective;
    ENTRY = "stub.cuda_rules.entry": "One of them.", kind = collective;
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// All that a launching thread may call for a zone on a stream that it knows.
const STEADY: [&str; 4] = ["cuStreamGetId", "cuStreamIsCapturing", "cuEventRecord", "cuCtxGetCurrent"];

/// What it may call besides when a stream or a context is new to it, or events run short. None of it waits.
const FIRST: [&str; 13] = [
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDriverGetVersion",
    "cuStreamGetCtx_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetId",
    "cuCtxGetDevice",
    "cuDeviceGetName",
    "cuEventCreate",
    "cuThreadExchangeStreamCaptureMode",
    "cuGetErrorName",
];

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = WORK.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

#[test]
fn a_batch_of_collectives_takes_two_events_however_many_there_are() {
    const ENTRIES: usize = 64;
    const FIRST_ZONES: usize = 16;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder.ends(EndMode::Eager));
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        // The stream is known, and more events than the batch needs are free.
        let hold = driver.stub_hold(stream);
        (0..FIRST_ZONES).for_each(|_| launch(driver, stream, 0));
        driver.stub_release(hold);
        wait_for(&zones, FIRST_ZONES);
        driver.mark("batch");
        let mut batch = BATCH.batch(&raw(stream));
        for count in 0..ENTRIES {
            batch.add(&ENTRY, || Message::new(CollectiveKind::Broadcast).count(count).group(&group).root(0));
        }
        driver.stub_launch(stream, 100 * US);
        drop(batch);
        let calls = driver.since("batch", tid());
        assert_only(&calls, &[&STEADY, &["stub_launch"]]);
        assert_eq!(calls.iter().filter(|call| *call == "cuEventRecord").count(), 2);
        let entries = wait_for(&zones, 1 + ENTRIES);
        let counts = entries.iter().filter_map(|zone| zone.message.as_ref()?.count);
        assert!(counts.eq(0..ENTRIES as u64), "each is there, in order: {entries:?}");
        assert!(entries.iter().all(|zone| zone.gpu == entries[0].gpu), "with the time of the batch");
        assert_exact(&session.finish());
    });
}

#[test]
fn a_launching_thread_asks_records_and_nothing_else() {
    const MANY: usize = 1_300;
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        for ends in [EndMode::Eager, EndMode::Lazy, EndMode::Auto] {
            let (session, zones) = start(|builder| builder.ends(ends));
            // As many events as all zones below need, were none of them to come back in time.
            let stream = driver.stream();
            let hold = driver.stub_hold(stream);
            (0..MANY).for_each(|_| launch(driver, stream, 0));
            driver.stub_release(hold);
            wait_for(&zones, MANY);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        driver.cuCtxSetCurrent(context);
                        let stream = driver.stream();
                        let begin = format!("first {}", tid());
                        driver.mark(&begin);
                        launch(driver, stream, 10 * US);
                        thread::sleep(Duration::from_millis(50));
                        let first = driver.since(&begin, tid());
                        assert_only(&first, &[&STEADY, &FIRST, &["stub_launch"]]);

                        let steady = format!("steady {}", tid());
                        driver.mark(&steady);
                        for _ in 0..200 {
                            launch(driver, stream, 10 * US);
                            // As a program that does something besides.
                            thread::sleep(Duration::from_micros(200));
                        }
                        let calls = driver.since(&steady, tid());
                        let count = |symbol: &str| calls.iter().filter(|call| *call == symbol).count();
                        assert_only(&calls, &[&STEADY, &["stub_launch"]]);
                        assert_eq!((count("cuEventRecord"), count("stub_launch")), (400, 200));
                        assert!(count("cuStreamGetId") <= 200 && count("cuStreamIsCapturing") <= 400);
                    });
                }
            });
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.recorded, zones.take().len()), (MANY as u64 + 603, 603), "{report}");
            assert_clean(driver);
        }
        for waits in ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamQuery"] {
            assert_eq!(driver.calls(waits), 0, "no thread of ours calls {waits}");
        }
    });
}

#[test]
fn nothing_is_called_after_the_session_nor_at_exit() {
    let test = this_test!();
    let is_parent = in_child(test, Driver::Current, || {
        let (driver, log) = (Stub::load(), scratch(test));
        driver.start();
        let stream = driver.stream();
        let (session, _zones) = start(|builder| builder);
        launch(&driver, stream, US);
        let open = WORK.zone(&raw(stream));
        session.stop();
        thread::sleep(Duration::from_millis(20));
        driver.log_to(&log);
        driver.mark("stopped");
        (0..100).for_each(|_| launch(&driver, stream, US));
        assert_only(&driver.since("stopped", tid()), &[&["stub_launch"]]);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.recorded, report.dropped.unfinished), (1, 1), "{report}");
        driver.mark("finished");
        let calls = driver.all_calls();
        (0..100).for_each(|_| launch(&driver, stream, US));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(driver.all_calls(), calls + 100, "only the application's own");
        driver.mark("open zone ends");
        drop(open);
        // An event that an open zone held goes when the zone does; nothing goes on the stream.
        let late = driver.since("open zone ends", tid());
        assert_only(&late, &[&["cuCtxGetId", "cuEventDestroy_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]]);
        assert_clean(&driver);
        driver.mark("exit");
        // A thread that is not joined, and one with a zone in a destructor, are there at the exit.
        thread::spawn(move || thread::sleep(Duration::from_secs(60)));
    });
    if is_parent {
        let log = std::fs::read_to_string(path_of(test)).unwrap();
        let (_, at_exit) = log.split_once("# exit\n").unwrap();
        assert_eq!(at_exit, "", "calls while the process ends");
    }
}

#[test]
fn a_capture_is_neither_broken_nor_added_to() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (captured, busy) = (driver.stream(), driver.stream());
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let (session, _zones) = start(|builder| builder.ends(ends));
            // The collector has something to ask for all the time.
            driver.stub_launch(busy, 60 * MS);
            launch(driver, busy, US);
            let mut graph = 0;
            assert_eq!(driver.cuStreamBeginCapture_v2(captured, GLOBAL), SUCCESS);
            launch(driver, captured, MS); // a stream that the session has not met
            launch(driver, busy, US);
            drop(WORK.zone(&raw(LEGACY))); // a record there would break the capture
            thread::sleep(Duration::from_millis(30));
            launch(driver, captured, MS);
            assert_eq!(driver.cuStreamEndCapture(captured, &mut graph), SUCCESS);
            assert_eq!(driver.stub_graph_nodes(graph), 2, "the application's two kernels");

            // A zone that begins before the capture, and one that ends after it.
            let before = WORK.zone(&raw(captured));
            assert_eq!(driver.cuStreamBeginCapture_v2(captured, GLOBAL), SUCCESS);
            drop(before);
            let after = WORK.zone(&raw(captured));
            assert_eq!(driver.cuStreamEndCapture(captured, &mut graph), SUCCESS);
            drop(after);
            assert_eq!(driver.stub_graph_nodes(graph), 0);
            launch(driver, captured, US);
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.begun, report.recorded, report.captured), (8, 3, 4), "{report}");
            assert_eq!(report.dropped.capture_failed, 1, "the legacy stream is in no capture: {report}");
            assert_eq!(driver.stub_captured_records(), 0);
            assert_clean(driver);
        }
    });
}

#[test]
fn ten_thousand_streams_leave_nothing_behind() {
    const BUDGET: usize = 1_024;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder.event_budget(BUDGET));
        let (mut handles, mut taken) = (BTreeSet::new(), Vec::new());
        for n in 0..10_000_u64 {
            let stream = driver.stream();
            handles.insert(stream);
            driver.stub_launch(stream, n % 7 * 10 * US);
            launch(driver, stream, 5 * US);
            assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
            // The collector may be behind by some zones, also on a busy machine.
            for _ in 0..if n % 50 == 0 { 100 } else { 0 } {
                thread::sleep(Duration::from_millis(1));
                taken.extend(zones.take());
                if taken.len() as u64 + 300 > n {
                    break;
                }
            }
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.begun, 10_000);
        taken.extend(zones.take());
        let zones = taken;
        assert!(zones.len() as u64 == report.recorded && report.recorded > 9_000, "{report}");
        let ids: BTreeSet<_> = zones.iter().map(|zone| zone.stream.as_ref().unwrap().id).collect();
        assert_eq!(ids.len(), zones.len(), "as many streams as zones");
        // The session's own stream may have got one in between.
        assert!(handles.len() <= 2, "{} handles", handles.len());
        // The collector's clock has a few of its own.
        assert!(driver.stub_peak_events() <= BUDGET as u64 + 64, "{}", driver.stub_peak_events());
        assert_clean(driver);
    });
}

#[test]
fn a_session_that_rests_makes_no_call() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder);
        (0..10).for_each(|_| launch(driver, stream, US));
        wait_for(&zones, 10);
        // A loaded machine may let the collector rest later, but a session that asks each second has no such pause.
        let is_quiet = |pause| {
            let calls = driver.all_calls();
            thread::sleep(pause);
            driver.all_calls() == calls
        };
        let rests = (0..20).any(|_| is_quiet(Duration::from_millis(1_500)));
        assert!(rests, "the last calls: {:?}", driver.last_calls(4));
        // Longer than the clocks are compared for: the position is right all the same.
        thread::sleep(Duration::from_millis(1_500));
        let before = driver.record(stream);
        launch(driver, stream, US);
        let after = driver.record(stream);
        let [zone] = &wait_for(&zones, 1)[..] else { panic!("one zone") };
        // However long the thread waited for a core between two calls, the zone is between the events.
        let [from, to] = [before, after].map(|event| driver.stub_event_ns(event));
        let outside_ns = [from - zone.gpu.unwrap().begin_ns, zone.gpu.unwrap().end_ns - to];
        assert!(outside_ns.iter().all(|ns| *ns < 1_000_000), "{outside_ns:?} ns outside its events");
        assert_exact(&session.finish());
        [before, after].into_iter().for_each(|event| assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS));
        assert_clean(driver);
    });
}

#[test]
fn a_hundred_sessions_leave_what_they_found() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        for n in 0..100 {
            let (session, zones) =
                start(|builder| builder.ends(if n % 2 == 0 { EndMode::Eager } else { EndMode::Lazy }));
            (0..20).for_each(|_| launch(driver, stream, US));
            if n % 3 == 0 {
                session.stop();
            }
            let report = session.finish();
            assert_eq!((report.recorded, zones.take().len()), (20, 20), "{report}");
            assert_eq!((driver.stub_live_streams(), driver.stub_live_contexts()), (1, 1));
            assert_clean(driver);
        }
        assert_eq!((driver.cuDevicePrimaryCtxRelease_v2(0), driver.stub_live_contexts()), (SUCCESS, 0));
    });
}

#[test]
fn a_tool_learns_what_the_session_calls_the_streams() {
    let library = nvtx::library();
    on_stub(this_test!(), |driver| {
        // SAFETY: no other thread of this process looks at the environment now.
        unsafe { std::env::set_var(nvtx::PATH, &library) };
        driver.start();
        let stream = driver.stream();
        launch(driver, stream, 0);
        let tool = nvtx::Tool::open(library.as_os_str());
        let names = |tool: &nvtx::Tool| {
            let named = tool.log().into_iter().filter(|line| line.call == "stream");
            named.map(|line| line.arguments.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(names(&tool), [""; 0], "no session has met the stream");
        let (session, _zones) = start(|builder| builder);
        (0..3).for_each(|_| launch(driver, stream, 0));
        // Its handle stands for another stream in each context.
        launch(driver, LEGACY, 0);
        driver.cuCtxSynchronize();
        assert_exact(&session.finish());
        assert_eq!(names(&tool), [format!("{stream} stream 1")]);
    });
}

#[test]
fn a_calibration_leaves_the_captures_of_other_threads_whole() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let captured = driver.stream();
        assert_eq!(driver.cuStreamBeginCapture_v2(captured, GLOBAL), SUCCESS);
        let (session, mode) = thread::scope(|scope| {
            let started = scope.spawn(|| {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                let (session, _zones) = start(|builder| builder.calibrate());
                // What this thread does from now on is as before.
                let mut mode = RELAXED;
                assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut mode), SUCCESS);
                (session, mode)
            });
            started.join().expect("it starts")
        });
        let mut graph = 0;
        assert_eq!((driver.cuStreamEndCapture(captured, &mut graph), mode), (SUCCESS, GLOBAL));
        assert!(driver.calls("cuLaunchKernel") > 0, "it was calibrated");
        let report = session.finish();
        assert!(report.notes.is_empty(), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_context_that_is_met_while_the_session_ends_is_not_kept() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let stream = driver.stream();
        // On its way to the session's object of the context, before that is looked for, and where it would be made.
        for symbol in ["cuStreamGetCtx_v2", "cuCtxGetId"] {
            let (session, _zones) = start(|builder| builder);
            driver.stop_at(symbol);
            thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                    launch(driver, stream, US);
                });
                let since = Instant::now();
                while !driver.stub_is_stopped() {
                    assert!(since.elapsed() < Duration::from_secs(10), "the session does not meet the stream");
                    thread::sleep(Duration::from_millis(1));
                }
                let report = session.finish();
                assert_exact(&report);
                assert_eq!((report.begun, report.notes.len()), (0, 0), "{report}");
                driver.stub_go_on();
            });
        }
        assert_clean(driver);
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        assert_eq!(driver.stub_live_contexts(), 0, "nobody else holds it");
    });
}
