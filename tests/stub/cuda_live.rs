//! What warpline asks of a CUDA driver while a session stops and starts, and for single zones: nothing, once it has stopped or
//! the zone is there. The driver is a stub that counts every call; no GPU is needed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline::profile::ProfileError;
use warpline::timing::EndMode;
use warpline::{Value, profile};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_live.work": "Work on a stream.";
}

const US: u64 = 1_000;

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = WORK.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

/// The application launches; nobody else calls the driver meanwhile, on no thread.
fn assert_left_alone(driver: &Stub, stream: Handle, during: Duration) {
    let calls = driver.all_calls();
    for _ in 0..20 {
        launch(driver, stream, US);
        thread::sleep(during / 20);
    }
    let others = driver.all_calls() - calls - 20;
    assert_eq!(others, 0, "calls that nobody asked for, among {:?}", driver.last_calls(40));
}

#[test]
fn a_stopped_session_asks_the_driver_nothing() {
    on_stub(this_test!(), |driver| {
        driver.start();
        for ends in [EndMode::Eager, EndMode::Lazy, EndMode::Auto] {
            let stream = driver.stream();
            let (session, zones) = start(|builder| builder.ends(ends));
            for cycle in 0..12 {
                session.start();
                let open = WORK.zone(&raw(stream));
                (0..40).for_each(|_| launch(driver, stream, 5 * US));
                session.stop();
                launch(driver, stream, 5 * US);
                drop(open);
                wait_for(&zones, 41);
                // Once long enough for the collector's rests, and for whatever it does now and then.
                let millis = if cycle == 0 { 1_500 } else { 20 };
                assert_left_alone(driver, stream, Duration::from_millis(millis));
            }
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.begun, report.recorded), (12 * 41, 12 * 41), "{report}");
            assert_clean(driver);
        }
    });
}

#[test]
fn a_hundred_cycles_under_load_leave_nothing_behind() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let mut begun = 0;
        for cycle in 0..100 {
            let (session, zones) = start(|builder| builder);
            thread::scope(|scope| {
                let threads: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            driver.cuCtxSetCurrent(context);
                            let stream = driver.stream();
                            (0..20).for_each(|_| launch(driver, stream, 5 * US));
                            stream
                        })
                    })
                    .collect();
                session.stop();
                if cycle % 2 == 0 {
                    session.start();
                }
                for thread in threads {
                    let stream = thread.join().expect("no thread panics");
                    assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
                    assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
                }
            });
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.recorded, report.dropped.total()), (zones.take().len() as u64, 0), "{report}");
            begun += report.begun;
            assert_clean(driver);
        }
        assert!(begun > 0);
        let stream = driver.stream();
        assert_left_alone(driver, stream, Duration::from_millis(300));
    });
}

const MS: u64 = 1_000_000;

/// Far more than it takes on the slowest of machines.
const LONG: Duration = Duration::from_secs(20);

/// Waits until what was made for single zones is given back.
fn until_given_back(driver: &Stub) {
    let begin = Instant::now();
    while driver.stub_live_events() > 0 {
        assert!(begin.elapsed() < LONG, "events are left: {:?}", driver.last_calls(20));
        thread::sleep(Duration::from_millis(5));
    }
    while warpline_tests::threads("warpline-profile") > 0 {
        assert!(begin.elapsed() < LONG, "the thread that did it does not end");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_single_zone_is_timed_without_a_session_and_nothing_is_called_before_or_after() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        assert_left_alone(driver, stream, Duration::from_millis(20));
        for _ in 0..3 {
            let pending = profile::next(&raw(stream));
            let begin = Instant::now();
            launch(driver, stream, 3 * MS);
            launch(driver, stream, 10 * US);
            let zone = pending.wait(LONG).expect("the stream is sound");
            let gpu_ns = zone.gpu_ns().expect("it is on a stream");
            let most_ns = begin.elapsed().as_nanos() as i64;
            assert!((3_000_000..most_ns).contains(&gpu_ns), "{gpu_ns} ns, of which the kernel takes 3 ms");
            assert_eq!((zone.end.as_str(), zone.sample_share), ("event", 1.0));
            drop(pending);
            until_given_back(driver);
            assert_left_alone(driver, stream, Duration::from_millis(300));
            assert_clean(driver);
        }
        for waits in ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamQuery"] {
            assert_eq!(driver.calls(waits), 0, "no thread of ours calls {waits}");
        }
    });
}

#[test]
fn a_request_that_is_taken_back_leaves_no_call() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        // The first one loads the driver's symbols.
        drop(profile::next(&raw(stream)));
        driver.mark("ask");
        drop(profile::next(&raw(stream)));
        drop(profile::range(&WORK, 7));
        let asked = driver.since("ask", tid());
        assert!(asked.iter().all(|call| call == "cuStreamIsCapturing" || call == "cuStreamGetId"), "{asked:?}");
        assert_left_alone(driver, stream, Duration::from_millis(600));
        // While the zone is open: its end is not put on the stream.
        let pending = profile::next(&raw(stream));
        let open = WORK.zone(&raw(stream));
        assert!(open.is_active());
        driver.mark("taken back");
        drop(pending);
        drop(open);
        assert!(!driver.since("taken back", tid()).iter().any(|call| call == "cuEventRecord"));
        until_given_back(driver);
        assert_left_alone(driver, stream, Duration::from_millis(300));
        assert_clean(driver);
    });
}

#[test]
fn a_capture_is_left_alone_and_the_zone_after_it_is_the_next() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let pending = profile::next(&raw(stream));
        let mut graph = 0;
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        driver.mark("captured");
        let refused = profile::next(&raw(stream));
        launch(driver, stream, US);
        let calls = driver.since("captured", tid());
        assert!(calls.iter().all(|call| call == "cuStreamIsCapturing" || call == "stub_launch"), "{calls:?}");
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS, "the capture is whole");
        assert_eq!((driver.stub_captured_records(), driver.stub_graph_nodes(graph)), (0, 1));
        assert_eq!(refused.wait(LONG).expect_err("it is captured"), ProfileError::Captured);
        let error = pending.wait(Duration::from_millis(10)).expect_err("nothing else came by");
        assert_eq!(error, ProfileError::TimedOut { has_begun: false, captured: 1 });
        assert!(error.to_string().contains("captured into a graph"), "{error}");
        launch(driver, stream, US);
        assert!(pending.wait(LONG).is_ok());
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        until_given_back(driver);
        assert_clean(driver);
    });
}

#[test]
fn each_request_gets_its_own_threads_zone_on_a_shared_stream() {
    on_stub(this_test!(), |driver| {
        const THREADS: u64 = 8;
        let context = driver.start();
        let stream = driver.stream();
        let (is_over, ready) = (AtomicBool::new(false), Barrier::new(THREADS as usize));
        thread::scope(|scope| {
            for n in 1..THREADS {
                let (is_over, ready) = (&is_over, &ready);
                scope.spawn(move || {
                    driver.cuCtxSetCurrent(context);
                    ready.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        let _zone = WORK.zone(&raw(stream)).field("thread", n);
                        driver.stub_launch(stream, 0);
                        thread::yield_now();
                    }
                });
            }
            ready.wait();
            for round in 0..500_u64 {
                let pending = profile::next(&raw(stream));
                let zone = WORK.zone(&raw(stream)).field("round", round);
                driver.stub_launch(stream, 0);
                drop(zone);
                let zone = pending.wait(LONG).unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert_eq!(zone.fields.get("round"), Some(&Value::U64(round)));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        until_given_back(driver);
        assert_clean(driver);
    });
}

#[test]
fn a_session_and_single_zones_do_not_disturb_each_other() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder);
        let recorded = profile::next_n(&raw(stream), 3);
        (0..5).for_each(|_| launch(driver, stream, 10 * US));
        assert!(recorded.wait(LONG).iter().all(Result::is_ok));
        session.set_filter("none.*").expect("a pattern");
        let begin = Instant::now();
        let left_out = profile::next(&raw(stream));
        launch(driver, stream, MS);
        let gpu_ns = left_out.wait(LONG).expect("it is timed").gpu_ns();
        let most_ns = begin.elapsed().as_nanos() as i64;
        assert!(gpu_ns.is_some_and(|ns| (1_000_000..most_ns).contains(&ns)), "{gpu_ns:?}");
        let begin = Instant::now();
        let (value, pending) = warpline::time!(raw(stream), driver.stub_launch(stream, MS));
        assert_eq!(value, SUCCESS);
        let gpu_ns = pending.wait(LONG).expect("it is timed").gpu_ns();
        let most_ns = begin.elapsed().as_nanos() as i64;
        assert!(gpu_ns.is_some_and(|ns| (1_000_000..most_ns).contains(&ns)), "{gpu_ns:?}");
        let report = session.finish();
        assert_eq!((report.begun, report.recorded, zones.take().len()), (5, 5, 5), "{report}");
        until_given_back(driver);
        assert_clean(driver);
    });
}

#[test]
fn a_device_that_breaks_answers() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let hold = driver.stub_hold(stream);
        let pending = profile::next(&raw(stream));
        launch(driver, stream, US);
        driver.stub_break(ILLEGAL_ADDRESS);
        driver.stub_release(hold);
        let error = pending.wait(LONG).expect_err("the device is broken");
        assert!(matches!(error, ProfileError::Stream(_) | ProfileError::Unfinished), "{error}");
        let next = profile::next(&raw(stream)).wait(Duration::ZERO).expect_err("it is still broken");
        assert!(matches!(next, ProfileError::Stream(_) | ProfileError::TimedOut { .. }), "{next}");
        driver.stub_break(SUCCESS);
    });
}

#[test]
fn a_trace_that_is_asked_for_has_the_zones_of_a_device_that_began_just_before() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let folder = tempfile::tempdir().unwrap();
        let (file, trace) = (folder.path().join("run.flight"), folder.path().join("asked.pftrace"));
        let stream = driver.stream();
        let (session, _zones) = start(|builder| builder.ends(EndMode::Eager).flight_at(1 << 20, &file));
        // The device is left alone for longer than this takes.
        (0..20).for_each(|_| launch(driver, stream, US));
        let found = session.dump(&trace).expect("it has zones");
        assert!(found.zones + found.open_zones >= 20, "{found:?}");
        assert_exact(&session.finish());
    });
}
