//! Contexts that come, go and come back: none of them is made current, kept or touched when it is gone.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use warpline::RawStream;
use warpline::timing::GraphTiming;
use warpline_tests::{Pace, this_test};

use super::{US, WORK, launch};
use crate::harness::driver::*;
use crate::harness::zones::*;

#[test]
fn the_current_context_stays_as_it_was() {
    on_stub(this_test!(), |driver| {
        driver.stub_devices(2);
        let first = driver.start();
        let (mut second, zone) = (0, |stream| launch(driver, stream, 10 * US));
        driver.cuDevicePrimaryCtxRetain(&mut second, 1);
        driver.cuCtxPushCurrent_v2(second);
        let away = driver.stream();
        driver.cuCtxPopCurrent_v2(None);
        let home = driver.stream();
        let (session, zones) = start(|builder| builder);
        for stream in [home, away, LEGACY, PER_THREAD, 0] {
            zone(stream);
            assert_eq!(driver.current(), first, "stream {stream:#x}");
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                // This thread has no context; then it has the other one, and its default streams are others.
                zone(home);
                assert_eq!(driver.current(), 0);
                driver.cuCtxSetCurrent(second);
                [LEGACY, PER_THREAD, home].into_iter().for_each(zone);
                assert_eq!(driver.current(), second);
            });
        });
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.recorded, 9, "{report}");
        let streams: BTreeSet<_> =
            zones.take().into_iter().map(|zone| zone.stream.unwrap()).map(|s| (s.device.ordinal, s.id)).collect();
        let on = |ordinal| streams.iter().filter(|(device, _)| *device == ordinal).count();
        assert_eq!((on(0), on(1)), (3, 3), "{streams:?}");
        let mut popped = 0;
        driver.cuCtxPopCurrent_v2(Some(&mut popped));
        assert_eq!((popped, driver.current()), (first, 0), "nothing of ours is left below it");
        assert_clean(driver);
    });
}

#[test]
fn a_per_thread_default_stream_carries_its_threads_name() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (session, zones) = start(|builder| builder);
        let on_a_thread = |thread: thread::Builder| {
            thread::scope(|scope| {
                let zone = || {
                    driver.cuCtxSetCurrent(context);
                    launch(driver, PER_THREAD, US);
                    // A second one belongs to the same stream.
                    launch(driver, PER_THREAD, US);
                };
                thread.spawn_scoped(scope, zone).unwrap().join().unwrap();
            });
        };
        on_a_thread(thread::Builder::new().name("loader".to_owned()));
        on_a_thread(thread::Builder::new().name("trainer".to_owned()));
        on_a_thread(thread::Builder::new());
        launch(driver, LEGACY, US);
        assert_eq!(session.finish().recorded, 7);
        let zones = zones.take();
        let names: BTreeSet<_> = zones.iter().map(|zone| zone.stream.as_ref().unwrap().name.clone()).collect();
        let unnamed = zones.iter().find(|zone| zone.thread.name.is_none()).unwrap();
        let unnamed = format!("per-thread default stream of thread {}", unnamed.thread.id);
        let expected =
            ["default stream", "per-thread default stream of loader", "per-thread default stream of trainer"];
        assert_eq!(names, expected.into_iter().map(str::to_owned).chain([unnamed]).collect());
        assert_clean(driver);
    });
}

/// A program that is compiled for per-thread default streams means its thread's own by a null handle.
#[test]
fn a_null_handle_is_the_threads_own_stream_in_a_program_that_is_compiled_so() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let null = std::ptr::null_mut();
        // SAFETY: the stub driver treats handles as numbers, and the default streams live.
        let (legacy, own) = unsafe { (RawStream::from_ptr(null), RawStream::from_ptr_per_thread(null)) };
        let stream = driver.stream();
        // SAFETY: as above.
        assert_eq!(unsafe { RawStream::from_ptr_per_thread(stream as *mut _) }, raw(stream), "no other handle changes");
        assert_eq!((own, own.as_ptr() as Handle), (raw(PER_THREAD), PER_THREAD));
        // A kernel of 50 µs on each is in the zone of its stream alone.
        let (session, zones) = start(|builder| builder.ends(warpline::timing::EndMode::Eager));
        for (raw, handle) in [(legacy, 0), (own, PER_THREAD), (own, PER_THREAD)] {
            let _zone = WORK.zone(&raw);
            assert_eq!(driver.stub_launch(handle, 50 * US), SUCCESS);
        }
        let of_thread = driver.id(PER_THREAD);
        assert_eq!(session.finish().recorded, 3);
        let zones = zones.take();
        let name = |zone: &warpline::record::ZoneRecord| zone.stream.as_ref().unwrap().name.clone();
        let (on_own, on_legacy): (Vec<_>, Vec<_>) =
            zones.iter().partition(|zone| name(zone).starts_with("per-thread default stream of "));
        assert_eq!((on_own.len(), on_legacy.len(), name(on_legacy[0])), (2, 1, "default stream".to_owned()));
        assert_ne!(of_thread, driver.id(LEGACY));
        assert!(zones.iter().all(|zone| zone.gpu_ns().is_some_and(|ns| ns >= 49_900)), "{zones:?}");
        assert_clean(driver);
    });
}

/// The driver as a C program sees it: a stream or an event whose context is gone is a dangling pointer.
fn assert_no_orphan_used(driver: &Stub) {
    let (uses, last) = (driver.stub_orphan_uses(), driver.last_calls(6));
    assert_eq!(uses, 0, "uses of streams and events whose context is gone; the last calls: {last:?}");
}

#[test]
fn a_session_that_rests_touches_no_context_that_is_gone() {
    on_stub(this_test!(), |driver| {
        let (context, mut again) = (driver.start(), 0);
        let (session, zones) = start(|builder| builder);
        launch(driver, driver.stream(), US);
        wait_for(&zones, 1);
        assert_eq!(driver.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
        // The clock would be compared now, twice.
        thread::sleep(Duration::from_millis(1_200));
        driver.cuDevicePrimaryCtxRetain(&mut again, 0);
        assert_eq!(again, context, "the same handle is another context now");
        launch(driver, driver.stream(), US);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.recorded, zones.take().len()), (2, 1), "{report}");
        assert_no_orphan_used(driver);
        assert_clean(driver);
    });
}

#[test]
fn a_context_that_comes_back_is_not_taken_for_the_one_that_went() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder);
        for _ in 0..3 {
            launch(driver, driver.stream(), US);
            wait_for(&zones, 1);
            assert_eq!(driver.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
            driver.cuDevicePrimaryCtxRetain(&mut 0, 0);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.recorded, 3, "{report}");
        assert_no_orphan_used(driver);
        assert_clean(driver);
    });
}

#[test]
fn a_primary_context_lives_as_long_as_the_session() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder);
        let hold = driver.stub_hold(stream);
        launch(driver, stream, US);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS, "the application lets go of it, a zone waits");
        driver.stub_release(hold);
        wait_for(&zones, 1);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.recorded, driver.stub_live_events()), (1, 0), "{report}");
        assert_no_orphan_used(driver);
        assert_ne!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS, "nobody holds it any more");
    });
}

#[test]
fn nothing_is_made_in_a_context_that_is_gone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder);
        let mut second = 0;
        driver.cuCtxCreate_v2(&mut second, 0, 0);
        launch(driver, driver.stream(), US);
        wait_for(&zones, 1);
        assert_eq!(driver.cuCtxDestroy_v2(second), SUCCESS);
        // Once no stream has come for a while, ends become eager, and events that are free get what they lack.
        for _ in 0..20 {
            launch(driver, stream, US);
            thread::sleep(Duration::from_millis(10));
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.recorded, 21, "{report}");
        assert_no_orphan_used(driver);
        assert_clean(driver);
    });
}

#[test]
fn a_context_that_goes_takes_its_pending_zones_and_no_others() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, zones) = start(|builder| builder);
        launch(driver, stream, US);
        wait_for(&zones, 1);
        let mut second = 0;
        driver.cuCtxCreate_v2(&mut second, 0, 0);
        let doomed = driver.stream();
        // Its zones are pending until it goes.
        driver.stub_hold(doomed);
        (0..5).for_each(|_| launch(driver, doomed, US));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(driver.cuCtxDestroy_v2(second), SUCCESS);
        thread::sleep(Duration::from_millis(20));
        launch(driver, stream, US);
        let pace = Pace::start();
        let report = session.finish();
        assert!(pace.elapsed() < Duration::from_secs(2), "nothing is waited for");
        assert_exact(&report);
        assert_eq!((report.begun, report.recorded, report.dropped.stream_failed), (7, 2, 5), "{report}");
        // One look may be under way when the context goes; after it, its handles are left alone.
        assert!(driver.stub_orphan_uses() <= 1, "{} uses: {:?}", driver.stub_orphan_uses(), driver.last_calls(6));
        assert_clean(driver);
    });
}

/// A reset does not release what was retained: the count of those that retain the context is as it was, and each release counts.
#[test]
fn a_context_that_is_reset_is_released_as_often_as_it_was_retained() {
    const RESETS: u64 = 3;
    on_stub(this_test!(), |driver| {
        for timing in [GraphTiming::Off, GraphTiming::Stamps] {
            let counts =
                || ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"].map(|symbol| driver.calls(symbol));
            let before = counts();
            driver.start();
            let (session, zones) = start(|builder| builder.graph_timing(timing));
            // Each context is retained for its zones; for its stamps while they are prepared, and as long as they are read.
            let for_each = if timing == GraphTiming::Stamps { 3 } else { 1 };
            for round in 1..=RESETS {
                launch(driver, driver.stream(), US);
                wait_for(&zones, 1);
                let wanted = before[0] + round + round * for_each;
                let since = Instant::now();
                while counts()[0] < wanted {
                    assert!(since.elapsed() < Duration::from_secs(10), "{} of {wanted} retained", counts()[0]);
                    thread::sleep(Duration::from_millis(1));
                }
                // No driver stands a reset while the collector measures in the context.
                let mut calls = 0;
                while driver.all_calls() != calls {
                    calls = driver.all_calls();
                    thread::sleep(Duration::from_millis(30));
                }
                assert_eq!(driver.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
                assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut 0, 0), SUCCESS);
            }
            assert_exact(&session.finish());
            let of_application = 1 + RESETS;
            let [retained, released] = counts();
            assert_eq!(retained - before[0] - of_application, released - before[1], "{timing:?}: ours");
            for left in (0..of_application).rev() {
                assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS, "{timing:?}: no count was taken from it");
                assert_eq!(driver.stub_live_contexts(), u64::from(left > 0), "{timing:?}: none is kept");
            }
            assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
            assert_no_orphan_used(driver);
            assert_clean(driver);
        }
    });
}

#[test]
fn a_context_that_the_session_meets_during_a_capture_is_retained_without_breaking_it() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (captured, other) = (driver.stream(), driver.stream());
        for mode in [GLOBAL, THREAD_LOCAL] {
            let (session, _zones) = start(|builder| builder);
            let retained = driver.calls_on("cuDevicePrimaryCtxRetain", tid());
            assert_eq!(driver.cuStreamBeginCapture_v2(captured, mode), SUCCESS);
            launch(driver, other, US);
            assert_eq!(driver.stub_launch(captured, US), SUCCESS);
            let graph = made(|graph| driver.cuStreamEndCapture(captured, graph));
            assert_eq!(driver.stub_graph_nodes(graph), 1);
            assert_eq!(driver.calls_on("cuDevicePrimaryCtxRetain", tid()), retained + 1, "by the capturing thread");
            // Its mode is what it was.
            let mut of_thread = RELAXED;
            assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut of_thread), SUCCESS);
            assert_eq!(of_thread, GLOBAL);
            assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut of_thread), SUCCESS);
            let report = session.finish();
            assert_eq!((report.recorded, report.dropped.total()), (1, 0), "{report}");
        }
        assert_clean(driver);
    });
}
