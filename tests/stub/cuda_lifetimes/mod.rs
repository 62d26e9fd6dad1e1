//! Streams, cuBLAS handles and contexts that a program of safe code drops in every order while zones, batches, requests and
//! timelines use them: no call of warpline's names a stream that was destroyed. cudarc and warpline are on the stub driver,
//! which counts every use of a dead handle. What the program does is in `program`, which has no unsafe code.

mod program;

use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};
use warpline::report::Report;
use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::*;

/// No call named a stream, an event or a context that is gone, nothing is lost, and nothing is left.
#[track_caller]
fn assert_alive(driver: &Stub, report: &Report) {
    let dead = (driver.stub_misuse(), driver.stub_orphan_uses());
    assert_eq!(
        dead,
        (0, 0),
        "calls on dead handles, and on handles of dead contexts; the last calls: {:#?}",
        driver.last_calls(24)
    );
    assert_exact(report);
    assert_eq!((driver.stub_live_streams(), driver.stub_live_events()), (0, 0), "live streams and events");
}

#[test]
fn a_zone_keeps_its_stream_until_it_has_ended() {
    on_stub(this_test!(), |driver| {
        let (session, zones) = start(|builder| builder);
        let begun = program::drop_before_the_zone();
        let report = session.finish();
        assert_alive(driver, &report);
        assert_eq!((report.begun, report.recorded), (begun, begun), "{report}");
        assert_eq!(zones.take().len() as u64, begun);
    });
}

#[test]
fn a_zone_that_outlives_its_session_keeps_its_stream() {
    on_stub(this_test!(), |driver| {
        let (session, _zones) = start(|builder| builder);
        let open = program::Open::begin();
        let report = session.finish();
        assert_eq!(report.dropped.unfinished, 2, "{report}");
        open.end();
        assert_alive(driver, &report);
    });
}

#[test]
fn a_zone_in_a_capture_keeps_its_stream() {
    on_stub(this_test!(), |driver| {
        for timing in [GraphTiming::Off, GraphTiming::Stamps] {
            let (session, _zones) = start(|builder| builder.graph_timing(timing));
            program::drop_in_a_capture();
            let open = program::open_in_a_capture();
            let report = session.finish();
            assert_exact(&report);
            // After the session its stream is still led back to where it stood before the stamp.
            drop(open);
            assert_eq!(driver.stub_misuse(), 0, "{timing:?}: calls on dead handles: {:#?}", driver.last_calls(24));
        }
    });
}

#[test]
fn a_zone_that_was_asked_for_keeps_its_stream() {
    on_stub(this_test!(), |driver| {
        let timed = program::drop_while_asked_for();
        assert_eq!(timed, 3);
        // Requests have a recorder of their own, which lets go of its events a while after the last answer.
        while driver.stub_live_events() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0), "{:#?}", driver.last_calls(24));
    });
}

#[test]
fn a_zone_of_a_cublas_handle_keeps_the_handle() {
    on_stub(this_test!(), |driver| {
        let (session, _zones) = start(|builder| builder);
        program::drop_the_cublas_handle();
        let report = session.finish();
        assert_alive(driver, &report);
        assert_eq!((report.begun, report.recorded), (2, 2), "{report}");
    });
}

#[test]
fn a_timeline_outlives_its_streams() {
    on_stub(this_test!(), |driver| {
        let (session, _zones) = start(|builder| builder);
        program::drop_behind_a_timeline();
        let report = session.finish();
        assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0), "{:#?}", driver.last_calls(24));
        assert_exact(&report);
    });
}

#[test]
fn the_thread_that_ends_the_zone_destroys_its_stream_behind_the_end() {
    on_stub(this_test!(), |driver| {
        driver.stub_devices(2);
        let (session, _zones) = start(|builder| builder);
        let (here, there) = program::end_on_another_thread(|| driver.mark("end"), || (tid(), driver.current()));
        let [(tid, before), (_, after)] = there;
        let calls = driver.since("end", tid);
        let position = |symbol: &str| calls.iter().position(|call| call == symbol);
        assert!(
            position("cuEventRecord").is_some() && position("cuEventRecord") < position("cuStreamDestroy_v2"),
            "{calls:?}"
        );
        assert_eq!(driver.calls_on("cuStreamDestroy_v2", tid), 1);
        assert_eq!(driver.calls_on("cuStreamDestroy_v2", here.0), 0, "the thread that let go of it first");
        assert_eq!(before, after, "the current context of the thread that ended the zone");
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(driver.stub_misuse(), 0);
    });
}

#[test]
fn only_a_zone_that_records_keeps_its_stream() {
    on_stub(this_test!(), |_driver| {
        let stream = program::stream(0);
        assert_eq!(program::owners_in_a_zone(&stream), 1, "nobody records");
        let (session, _zones) = start(|builder| builder);
        assert_eq!(program::owners_in_a_zone(&stream), 2);
        assert_eq!(Arc::strong_count(&stream), 1, "the zone has ended");
        session.finish();
        assert_eq!(program::owners_in_a_zone(&stream), 1);
    });
}

/// The collector stops in a call about an event, and the program drops the last handle of the event's context.
#[test]
fn a_session_keeps_the_contexts_that_its_collector_asks() {
    on_stub(this_test!(), |driver| {
        // Only markers are asked by this call.
        let (session, _zones) = start(|builder| builder.ends(EndMode::Lazy));
        driver.start();
        let context = made(|context| driver.cuCtxCreate_v2(context, 0, 0));
        // SAFETY: it was made for this device, and nobody else destroys it.
        let context = unsafe { CudaContext::from_raw_context(0, 0, context as sys::CUcontext) }.expect("a context");
        let stream = context.new_stream().expect("a stream");
        drop(context);
        driver.stop_at("cuEventQuery");
        program::one_zone(&stream);
        while !driver.stub_is_stopped() {
            std::thread::yield_now();
        }
        drop(stream);
        driver.stub_go_on();
        let report = session.finish();
        assert_alive(driver, &report);
        assert_eq!(
            (report.begun, report.recorded, driver.stub_live_contexts()),
            (1, 1, 1),
            "{report}: only the primary one is left"
        );
    });
}

/// A thread stops in a call about the event of a signal, and the program drops the last handle of the event's context.
#[test]
fn a_signal_keeps_the_context_of_its_stream() {
    on_stub(this_test!(), |driver| {
        driver.stub_devices(2);
        for symbol in ["cuStreamWaitEvent", "cuEventQuery"] {
            let held = program::drop_the_context_of_a_signal(symbol == "cuEventQuery", || {
                driver.stop_at(symbol);
                || {
                    while !driver.stub_is_stopped() {
                        std::thread::yield_now();
                    }
                }
            });
            driver.stub_go_on();
            held.join().expect("no panic");
            let dead = (driver.stub_misuse(), driver.stub_orphan_uses());
            assert_eq!((dead, driver.stub_live_contexts()), ((0, 0), 0), "{symbol}: {:#?}", driver.last_calls(12));
        }
    });
}

/// The collector stops before it takes a context that a capture has met, and again where it makes the context current, and the
/// program drops the last handle of the context.
#[test]
fn a_session_keeps_the_contexts_that_its_captures_have_met() {
    on_stub(this_test!(), |driver| {
        driver.start();
        for is_taken in [false, true] {
            // No other context is prepared.
            assert_eq!(driver.cuCtxSetCurrent(0), SUCCESS);
            let (session, _zones) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
            let stream = stream_of_a_new_context(driver);
            driver.stop_at("cuDevicePrimaryCtxGetState");
            program::capture_one_zone(&stream);
            wait_until_stopped(driver);
            if is_taken {
                driver.stop_at("cuCtxPushCurrent_v2");
                driver.stub_go_on();
                wait_until_stopped(driver);
            }
            drop(stream);
            driver.stub_go_on();
            let report = session.finish();
            assert_exact(&report);
            let dead = (driver.stub_misuse(), driver.stub_orphan_uses());
            assert_eq!((dead, driver.stub_live_contexts()), ((0, 0), 1), "{is_taken}: {:#?}", driver.last_calls(24));
        }
    });
}

/// The collector stops where it makes the context current that the session started in, and the program drops its last handle.
#[test]
fn a_session_keeps_the_context_that_it_prepares() {
    on_stub(this_test!(), |driver| {
        let context = CudaContext::new(0).expect("a context");
        driver.stop_at("cuCtxPushCurrent_v2");
        let session = std::thread::scope(|scope| {
            // The session may wait for its collector before it has started.
            let started = scope.spawn({
                let context = context.clone();
                move || {
                    context.bind_to_thread().expect("it is current");
                    drop(context);
                    start(|builder| builder.graph_timing(GraphTiming::Stamps)).0
                }
            });
            wait_until_stopped(driver);
            drop(context);
            assert_eq!(driver.stub_live_contexts(), 1, "the collector makes it current");
            driver.stub_go_on();
            started.join().expect("no panic")
        });
        let report = session.finish();
        assert_eq!((report.notes.len(), driver.stub_live_contexts()), (0, 0), "{report}");
        assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0), "{:#?}", driver.last_calls(24));
    });
}

/// A stream that owns the only handle of a context that is not a primary one.
fn stream_of_a_new_context(driver: &Stub) -> Arc<cudarc::driver::CudaStream> {
    let context = made(|context| driver.cuCtxCreate_v2(context, 0, 0));
    // SAFETY: it was made for this device, and nobody else destroys it.
    let context = unsafe { CudaContext::from_raw_context(0, 0, context as sys::CUcontext) }.expect("a context");
    context.new_stream().expect("a stream")
}

fn wait_until_stopped(driver: &Stub) {
    while !driver.stub_is_stopped() {
        std::thread::yield_now();
    }
}
