//! Streams of green contexts, which may be current to one thread only: warpline makes none current, and still times their zones.

use std::thread;

use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::this_test;

use super::{US, WORK, launch};
use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

/// A green context, the context that it is converted to, and a stream of it.
struct Green {
    green: Handle,
    context: Handle,
    stream: Handle,
}

impl Green {
    fn new(driver: &Stub) -> Green {
        let green = made(|green| driver.cuGreenCtxCreate(green, 0, 0, 1));
        let context = made(|context| driver.cuCtxFromGreenCtx(context, green));
        let stream = made(|stream| driver.cuGreenCtxStreamCreate(stream, green, 1, 0));
        Green { green, context, stream }
    }

    fn destroy(self, driver: &Stub) {
        let codes = [driver.cuStreamDestroy_v2(self.stream), driver.cuGreenCtxDestroy(self.green)];
        assert_eq!(codes, [SUCCESS; 2]);
    }
}

#[test]
fn zones_on_a_stream_of_a_green_context_are_timed_and_it_is_current_to_no_second_thread() {
    on_stub(this_test!(), |driver| {
        let primary = driver.start();
        let plain = driver.stream();
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let green = Green::new(driver);
            let (session, zones) = start(|builder| builder.ends(ends).calibrate());
            // It is current to this thread as long as the session runs.
            assert_eq!(driver.cuCtxPushCurrent_v2(green.context), SUCCESS);
            for stream in [green.stream, plain] {
                launch(driver, stream, 50 * US);
                launch(driver, stream, 50 * US);
            }
            assert_eq!(driver.current(), green.context);
            thread::scope(|scope| {
                // A thread without a context, and one with the primary one.
                for context in [0, primary] {
                    scope.spawn(move || {
                        assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                        launch(driver, green.stream, 50 * US);
                        assert_eq!(driver.current(), context);
                    });
                }
            });
            let timed = wait_for(&zones, 6);
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.recorded, driver.current()), (6, green.context), "{report}");
            assert!(timed.iter().all(|zone| zone.gpu_ns().is_some_and(|ns| ns >= 49_900)), "{timed:?}");
            // One clock and one set of events for the device.
            assert_eq!(report.clocks.len(), 1, "{report}");
            assert_eq!(driver.cuCtxPopCurrent_v2(None), SUCCESS);
            assert_clean(driver);
            green.destroy(driver);
        }
        assert_eq!((driver.cuDevicePrimaryCtxRelease_v2(0), driver.stub_live_contexts()), (SUCCESS, 0));
    });
}

#[test]
fn a_default_stream_of_a_green_context_is_refused_with_a_remedy() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let green = Green::new(driver);
        let (session, _zones) = start(|builder| builder);
        launch(driver, LEGACY, US);
        assert_eq!(driver.cuCtxPushCurrent_v2(green.context), SUCCESS);
        launch(driver, LEGACY, US);
        launch(driver, 0, US);
        assert_eq!(driver.cuCtxPopCurrent_v2(None), SUCCESS);
        launch(driver, LEGACY, US);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.recorded, report.dropped.event_failed), (2, 2), "{report}");
        let notes = report.notes.iter().filter(|note| note.contains("create a stream with `cuGreenCtxStreamCreate`"));
        assert_eq!(notes.count(), 1, "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_driver_that_does_not_tell_the_primary_context_is_a_note() {
    in_child(this_test!(), Driver::ElapsedV1, || {
        let driver = &Stub::load();
        driver.start();
        assert!(driver.has("cuStreamGetGreenCtx") && !driver.has("cuStreamGetCtx_v2"));
        let green = Green::new(driver);
        let (session, _sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
        launch(driver, driver.stream(), US);
        launch(driver, green.stream, US);
        assert_eq!(driver.cuCtxPushCurrent_v2(green.context), SUCCESS);
        let graph = capture(driver, green.stream, GLOBAL, || launch(driver, green.stream, US));
        assert_eq!(driver.stub_graph_nodes(graph), 1, "no stamps");
        assert_eq!(driver.cuCtxPopCurrent_v2(None), SUCCESS);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.recorded, report.captured, report.dropped.event_failed), (1, 1, 1), "{report}");
        assert_eq!(report.graph_timing.untimed_refused, 1, "{report}");
        let notes = report.notes.iter().filter(|note| note.contains("install a driver for CUDA 12.5 or newer"));
        assert_eq!(notes.count(), 1, "{report}");
        assert_clean(driver);
    });
}

/// The stamps are those of the primary context, which the session's own thread may make current.
#[test]
fn captures_on_a_stream_of_a_green_context_are_stamped() {
    on_stub(this_test!(), |driver| {
        // The first use of the context is the capture, and a session's first context is the green one.
        driver.start();
        let green = Green::new(driver);
        assert_eq!(driver.cuCtxPushCurrent_v2(green.context), SUCCESS);
        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
        let plain = driver.stream();
        // Also a stream of the primary context, while the green one is current.
        for stream in [plain, green.stream, green.stream, plain] {
            let captured = Captured::new(driver, stream, || {
                zone(driver, &WORK, stream, 10);
                zone(driver, &WORK, stream, 20);
            });
            assert_eq!(driver.stub_graph_nodes(captured.graph), 5);
            captured.launch(driver, stream, 2);
            for replay in wait_for_replays(&sink, 2) {
                assert_eq!(replay.zones.len(), 2, "{replay:?}");
            }
        }
        assert_eq!(driver.calls("cuModuleLoadData"), 1, "one context has the stamps of all");
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.graph_timing.replays, report.graph_timing.untimed()), (8, 0), "{report}");
        assert_eq!(driver.current(), green.context);
        assert_eq!(driver.cuCtxPopCurrent_v2(None), SUCCESS);
        assert_clean(driver);
    });
}

#[cfg(feature = "timeline")]
#[test]
fn a_timeline_on_a_stream_of_a_green_context_makes_it_current_to_no_second_thread() {
    use warpline::timeline::Semaphore;
    on_stub(this_test!(), |driver| {
        driver.start();
        let green = Green::new(driver);
        let (plain, semaphore) = (driver.stream(), Semaphore::new(0));
        assert_eq!(driver.cuCtxPushCurrent_v2(green.context), SUCCESS);
        thread::scope(|scope| {
            scope.spawn(|| {
                semaphore.signal_on(&raw(green.stream), 1).expect("an event of the primary context");
                semaphore.wait_on(&raw(plain), 1).expect("as above");
                semaphore.signal_on(&raw(plain), 2).expect("as above");
                semaphore.wait_on(&raw(green.stream), 2).expect("as above");
            });
        });
        semaphore.wait(2, std::time::Duration::from_secs(10)).expect("both streams come to it");
        let refused = semaphore.signal_on(&raw(LEGACY), 3).expect_err("its handle means another stream elsewhere");
        assert!(refused.to_string().contains("create a stream with `cuGreenCtxStreamCreate`"), "{refused}");
        assert_eq!((driver.stub_misuse(), driver.current()), (0, green.context));
        assert_eq!(driver.cuCtxPopCurrent_v2(None), SUCCESS);
    });
}
