//! What a zone costs and hides when the driver fails: each one is accounted for, the application sees its own errors, and nobody
//! waits.

use std::thread;
use std::time::{Duration, Instant};

use warpline::timing::EndMode;
use warpline::{Session, SessionBuilder};
use warpline_tests::{Pace, this_test};

use super::{MS, OTHER, STEADY, US, WORK, launch};
use crate::harness::driver::*;
use crate::harness::zones::*;

#[test]
fn finish_does_not_wait_for_a_hung_kernel() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (hung, sound) = (driver.stream(), driver.stream());
        let (session, zones) = start(|builder| builder.finish_timeout(Duration::from_millis(200)));
        launch(driver, hung, US);
        let hold = driver.stub_hold(hung);
        drop(OTHER.zone(&raw(hung)));
        launch(driver, sound, US);
        let (started, pace) = (Instant::now(), Pace::start());
        let report = session.finish();
        let (took, waited) = (started.elapsed(), pace.elapsed());
        assert!(took >= Duration::from_millis(200) && waited < Duration::from_secs(2), "{took:?}, {waited:?}");
        assert_exact(&report);
        assert_eq!((report.recorded, report.dropped.unfinished, zones.take().len()), (2, 1, 2), "{report}");
        assert!(report.notes.iter().any(|note| note.contains("stub.cuda_rules.other")), "{report}");
        assert_clean(driver);
        let calls = driver.all_calls();
        driver.stub_release(hold);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(driver.all_calls(), calls, "nobody comes back to it");
        assert_eq!(driver.cuStreamSynchronize(hung), SUCCESS);
    });
}

#[test]
fn a_broken_device_costs_what_was_pending_and_hides_no_error() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (broken, waiting) = (driver.stream(), driver.stream());
        let (session, zones) = start(|builder| builder);
        (0..10).for_each(|_| launch(driver, broken, 10 * US));
        let before = wait_for(&zones, 10);
        assert!(before.iter().all(|zone| zone.gpu.is_some()));
        // The device breaks when all is queued, however slow the machine is.
        let holds = [broken, waiting].map(|stream| driver.stub_hold(stream));
        driver.stub_launch_fault(broken, US, ILLEGAL_ADDRESS);
        (0..5).for_each(|_| launch(driver, broken, US));
        launch(driver, waiting, US);
        driver.stub_release(holds[0]);
        let since = Instant::now();
        while driver.cuStreamQuery(broken) != ILLEGAL_ADDRESS {
            assert!(since.elapsed() < Duration::from_secs(10), "the device does not break");
            thread::sleep(Duration::from_millis(1));
        }
        // The application sees its error, however often it asks; a zone does not see it in its place.
        drop(WORK.zone(&raw(broken)));
        assert_eq!(driver.stub_launch(broken, US), ILLEGAL_ADDRESS);
        assert_eq!(driver.cuStreamSynchronize(broken), ILLEGAL_ADDRESS);
        assert_eq!(driver.cuCtxSynchronize(), ILLEGAL_ADDRESS);
        let pace = Pace::start();
        let report = session.finish();
        assert!(pace.elapsed() < Duration::from_secs(2), "nothing is waited for");
        driver.stub_release(holds[1]);
        assert_exact(&report);
        assert_eq!((report.begun, report.recorded, report.dropped.stream_failed), (17, 10, 6), "{report}");
        assert!(report.notes.iter().any(|note| note.contains("ILLEGAL_ADDRESS")), "{report}");
        assert_clean(driver);
    });
}

/// The driver promises the errors of pending work from `cuEventQuery` and not from `cuEventElapsedTime_v2`, which here goes on saying
/// that nothing is complete.
#[test]
fn an_error_that_only_a_query_returns_is_named_and_not_waited_for() {
    on_stub(this_test!(), |driver| {
        driver.start();
        for ends in [EndMode::Eager, EndMode::Lazy] {
            // Also where no time is left for a second look.
            for timeout in [Duration::from_secs(60), Duration::ZERO] {
                let stream = driver.stream();
                let (session, zones) = start(|builder| builder.ends(ends).finish_timeout(timeout));
                launch(driver, stream, US);
                wait_for(&zones, 1);
                let hold = driver.stub_hold(stream);
                (0..5).for_each(|_| launch(driver, stream, US));
                driver.fail("cuEventQuery", 0, u64::MAX, LAUNCH_FAILED);
                let pace = Pace::start();
                let report = session.finish();
                let (took, case) = (pace.elapsed(), format!("{ends:?}, {timeout:?}: {report}"));
                assert!(took < Duration::from_secs(5), "{took:?} {case}");
                assert_exact(&report);
                assert_eq!((report.recorded, report.dropped.stream_failed), (1, 5), "{case}");
                assert!(report.notes.iter().any(|note| note.contains("CUDA_ERROR_LAUNCH_FAILED")), "{case}");
                driver.fail("cuEventQuery", 0, 0, LAUNCH_FAILED);
                driver.stub_release(hold);
                assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
                assert_clean(driver);
            }
        }
    });
}

#[test]
fn a_device_that_breaks_in_a_session_is_named_before_its_end() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, _zones) = start(|builder| builder.ends(EndMode::Eager));
        let hold = driver.stub_hold(stream);
        launch(driver, stream, US);
        driver.fail("cuEventQuery", 0, 1, LAUNCH_FAILED);
        let since = Instant::now();
        while driver.calls("cuEventQuery") == 0 {
            assert!(since.elapsed() < Duration::from_secs(10), "nobody asks for errors");
            thread::sleep(Duration::from_millis(1));
        }
        driver.stub_release(hold);
        let report = session.finish();
        assert_eq!(report.dropped.stream_failed, 1, "{report}");
        assert!(report.notes.iter().any(|note| note.contains("CUDA_ERROR_LAUNCH_FAILED")), "{report}");
    });
}

#[test]
fn a_stream_is_queried_for_errors_now_and_then_while_nothing_completes_and_never_while_it_goes_on() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder.ends(EndMode::Eager));
        let queries = || driver.calls("cuEventQuery");
        // At each look something is incomplete, and something has been completed shortly before.
        let begin = Instant::now();
        (0..40).for_each(|_| launch(driver, stream, 5 * MS));
        while begin.elapsed() < Duration::from_millis(400) {
            launch(driver, stream, 5 * MS);
            thread::sleep(Duration::from_millis(5));
        }
        driver.cuStreamSynchronize(stream);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(queries(), 0, "the stream went on");
        assert!(!zones.take().is_empty());
        let begin = Instant::now();
        let hold = driver.stub_hold(stream);
        (0..500).for_each(|_| launch(driver, stream, US));
        while begin.elapsed() < Duration::from_millis(1_500) || queries() < 3 {
            assert!(begin.elapsed() < Duration::from_secs(20), "{} queries for 500 zones", queries());
            thread::sleep(Duration::from_millis(100));
        }
        let (asked, most) = (queries(), begin.elapsed().as_millis() as u64 / 100);
        assert!((3..=most).contains(&asked), "{asked} queries for 500 zones");
        driver.stub_release(hold);
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_eq!(report.dropped.total(), 0, "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_driver_that_shuts_down_is_left_alone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, _zones) = start(|builder| builder);
        driver.stub_launch(stream, 50 * MS);
        (0..5).for_each(|_| launch(driver, stream, US));
        driver.stub_break(4);
        drop(WORK.zone(&raw(stream)));
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.dropped.total()), (6, 6), "{report}");
        assert_eq!(driver.stub_misuse(), 0);
    });
}

/// Lets one call fail in several ways: each zone is accounted for, the application's work is not touched, and a session
/// after it is as good as ever.
fn each_zone_is_accounted_for_when_it_fails(test: &str, symbol: &str) {
    const ZONES: u64 = 40;
    on_stub(test, |driver| {
        let context = driver.start();
        let streams = [driver.stream(), driver.stream(), LEGACY];
        for code in [OUT_OF_MEMORY, ILLEGAL_ADDRESS, CONTEXT_IS_DESTROYED] {
            for (skip, times) in [(0, u64::MAX), (0, 1), (1, 1), (7, 3), (20, u64::MAX)] {
                let ends = if skip == 1 { EndMode::Eager } else { EndMode::Lazy };
                let builder = |builder: SessionBuilder| builder.ends(ends).finish_timeout(Duration::from_millis(500));
                let (session, zones) = start(builder);
                driver.fail(symbol, skip, times, code);
                for n in 0..ZONES {
                    launch(driver, streams[n as usize % streams.len()], 10 * US);
                    if n % 8 == 0 {
                        thread::sleep(Duration::from_millis(3));
                    }
                }
                let report = session.finish();
                let case = format!("{symbol} gives {code}, {times} times after {skip}: {report}");
                assert_exact(&report);
                assert_eq!((report.begun, report.recorded), (ZONES, zones.take().len() as u64), "{case}");
                driver.fail(symbol, 0, 0, code);
                assert_eq!((driver.current(), driver.stub_misuse()), (context, 0), "{case}");
                // Without its `Destroy`, or in a context that may be gone, an event cannot be given back.
                if code == OUT_OF_MEMORY && !["cuEventDestroy_v2", "cuCtxGetId"].contains(&symbol) {
                    assert_eq!(driver.stub_live_events(), 0, "{case}");
                }
            }
        }
        let (session, zones) = start(|builder| builder);
        streams.iter().for_each(|&stream| launch(driver, stream, 10 * US));
        let report = session.finish();
        assert_eq!((report.recorded, zones.take().len()), (3, 3), "the next session: {report}");
        let mut popped = 0;
        driver.cuCtxPopCurrent_v2(Some(&mut popped));
        assert_eq!((popped, driver.current()), (context, 0), "the stack of contexts is as it was");
    });
}

macro_rules! failing {
    ($($test:ident: $symbol:literal;)*) => {
        $(
            #[test]
            fn $test() {
                each_zone_is_accounted_for_when_it_fails(this_test!(), $symbol);
            }
        )*
    };
}

failing! {
    event_create_fails: "cuEventCreate";
    event_record_fails: "cuEventRecord";
    event_query_fails: "cuEventQuery";
    event_elapsed_time_fails: "cuEventElapsedTime_v2";
    event_destroy_fails: "cuEventDestroy_v2";
    stream_get_id_fails: "cuStreamGetId";
    stream_get_ctx_fails: "cuStreamGetCtx_v2";
    stream_create_fails: "cuStreamCreate";
    stream_is_capturing_fails: "cuStreamIsCapturing";
    ctx_push_current_fails: "cuCtxPushCurrent_v2";
    ctx_get_id_fails: "cuCtxGetId";
    ctx_get_device_fails: "cuCtxGetDevice";
    exchange_capture_mode_fails: "cuThreadExchangeStreamCaptureMode";
}

#[test]
fn a_calibration_that_cannot_be_is_a_note() {
    on_stub(this_test!(), |driver| {
        let before_there_is_a_context = Session::builder().calibrate().start().expect("no other session").finish();
        let [note] = &before_there_is_a_context.notes[..] else { panic!("{before_there_is_a_context}") };
        assert!(note.contains("nothing was calibrated: no zone began on a CUDA stream"), "{note}");
        let context = driver.start();
        const NOT_SUPPORTED: u32 = 801;
        driver.fail("cuModuleLoadData", 0, u64::MAX, NOT_SUPPORTED);
        let (session, zones) = start(|builder| builder.calibrate());
        launch(driver, driver.stream(), US);
        wait_for(&zones, 1);
        let report = session.finish();
        assert!(
            report.notes.iter().any(|note| note.contains("`cuModuleLoadData` gave CUDA_ERROR_NOT_SUPPORTED")),
            "{report}"
        );
        assert_eq!((report.recorded, driver.current()), (1, context), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_session_that_starts_before_cuda_calibrates_with_the_first_context() {
    on_stub(this_test!(), |driver| {
        let (session, zones) = start(|builder| builder.calibrate());
        assert_eq!(driver.calls("cuInit"), 0, "the program decides when CUDA starts");
        driver.start();
        // Around a kernel a pair of events reads 3 µs more here, and CUPTI counts 0.85 of a kernel.
        driver.stub_events_take(3_000, 3_000, 0);
        launch(driver, driver.stream(), US);
        wait_for(&zones, 1);
        let report = session.finish();
        assert!(report.notes.is_empty(), "{report}");
        let busy_ns = report.clocks[0].busy_bracket_ns;
        assert!((2_000..=2_300).contains(&busy_ns), "{report}");
        assert_eq!(driver.calls_on("cuModuleLoadData", tid()), 0, "not on a launching thread");
        assert_clean(driver);
    });
}

#[test]
fn a_calibration_that_is_given_up_leaves_its_kernel_loaded_for_the_next_one() {
    on_stub(this_test!(), |driver| {
        driver.start();
        driver.stub_events_take(3_000, 3_000, 0);
        // The stream of the calibration shares a queue with one that waits.
        let hold = driver.stub_hold_next();
        let (session, zones) = start(|builder| builder.calibrate());
        let calls = || ["cuModuleLoadData", "cuModuleUnload"].map(|call| driver.calls(call));
        assert_eq!(calls(), [1, 0], "to unload what may still run is undefined, or waits for the application's work");
        driver.stub_release(hold);
        launch(driver, driver.stream(), US);
        wait_for(&zones, 1);
        let report = session.finish();
        assert!(report.notes.is_empty(), "{report}");
        assert!((2_000..=2_300).contains(&report.clocks[0].busy_bracket_ns), "{report}");
        assert_eq!(calls(), [1, 0]);
        assert_clean(driver);
    });
}

#[test]
fn a_budget_that_is_spent_costs_zones_and_no_time() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (hung, other) = (driver.stream(), driver.stream());
        let (session, _zones) = start(|builder| builder.event_budget(128).ends(EndMode::Lazy));
        let hold = driver.stub_hold(hung);
        (0..1_000).for_each(|_| launch(driver, hung, US));
        driver.mark("spent");
        (0..100).for_each(|_| launch(driver, hung, US));
        assert_only(&driver.since("spent", tid()), &[&STEADY, &["stub_launch"]]);
        assert!(driver.stub_peak_events() <= 128 + 64, "{}", driver.stub_peak_events());
        driver.stub_release(hold);
        driver.cuStreamSynchronize(hung);
        thread::sleep(Duration::from_millis(50));
        launch(driver, other, US);
        let report = session.finish();
        assert_exact(&report);
        let (kept, full) = (report.recorded, report.dropped.ring_full);
        assert!(kept >= 60 && kept + full == 1_101, "the oldest are kept: {report}");
        assert_clean(driver);
    });
}

/// Without a driver that can be used, a zone is counted and the report says what to do.
fn there_is_a_note(says: &str) {
    let (session, zones) = start(|builder| builder);
    // The collector has been round before the first zone comes, as in any program.
    thread::sleep(Duration::from_millis(50));
    for _ in 0..3 {
        drop(WORK.zone(&raw(0x1234_5600)));
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.dropped.event_failed, zones.take().len()), (3, 3, 0), "{report}");
    let notes: Vec<_> = report.notes.iter().filter(|note| note.contains(says) && note.contains("install")).collect();
    assert_eq!(notes.len(), 1, "{report}");
}

#[test]
fn a_missing_driver_is_a_note() {
    in_child(this_test!(), Driver::Unloadable, || {
        there_is_a_note("/libcuda.so.1: file too short; install one");
    });
}

#[test]
fn a_missing_symbol_is_a_note() {
    in_child(this_test!(), Driver::Old, || there_is_a_note("has no `cuCtxGetId`"));
}

#[test]
fn an_old_driver_is_a_note() {
    on_stub(this_test!(), |driver| {
        driver.stub_driver_version(11_080);
        there_is_a_note("is for CUDA 11.8");
        assert_only(
            &driver.log().iter().map(|line| line[..line.find(' ').unwrap()].to_owned()).collect::<Vec<_>>(),
            &[&["cuDriverGetVersion"]],
        );
    });
}
