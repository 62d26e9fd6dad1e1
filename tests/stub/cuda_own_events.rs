//! Events of the caller's own behind the end of the next zone, on the stub driver: with a session and without one, whatever times the zone.

use std::ffi::c_void;
use std::time::Duration;

use warpline::profile::{self, PendingZone, ProfileError};
use warpline::timing::EndMode;
use warpline::{HostStream, RawEvent};
use warpline_tests::this_test;

use crate::harness::driver::{GLOBAL, Handle, SUCCESS, Stub, on_stub, tid};
use crate::harness::zones::{assert_exact, raw, start};

warpline::range! {
    WORK = "stub.own_event.work": "Work that the caller waits for.";
}

const MS: u64 = 1_000_000;

/// Far more than it takes on the slowest of machines.
const LONG: Duration = Duration::from_secs(20);

fn next(stream: Handle, event: Handle) -> PendingZone {
    // SAFETY: the stub driver treats handles as numbers.
    profile::next_with_event(&raw(stream), unsafe { RawEvent::from_ptr(event as *mut c_void) })
}

/// Runs a zone of a kernel, then another kernel, and returns when the zone's thread was in the driver.
fn work(driver: &Stub, stream: Handle) {
    {
        let _work = WORK.zone(&raw(stream));
        driver.stub_launch(stream, 3 * MS);
    }
    driver.stub_launch(stream, 40 * MS);
}

/// Checks that the event is right behind the zone, and that the caller can wait for it.
#[track_caller]
fn assert_behind(driver: &Stub, event: Handle, pending: &PendingZone) {
    assert_eq!(driver.cuEventSynchronize(event), SUCCESS);
    let zone = pending.wait(LONG).expect("the stream is sound");
    // A lazy end may be later than the true one; the begin is not.
    let after_ns = driver.stub_event_ns(event) - zone.gpu.expect("it is on a stream").begin_ns;
    assert!((2_900_000..40_000_000).contains(&after_ns), "the event is {after_ns} ns after the zone's begin");
}

#[test]
fn an_event_is_recorded_right_behind_the_next_zone_however_zones_end() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, event) = (driver.stream(), driver.event());
        let pending = next(stream, event);
        driver.mark("zone");
        work(driver, stream);
        let calls = driver.since("zone", tid());
        let own = calls.iter().rposition(|call| call == "cuEventRecord").expect("the event is recorded");
        assert_eq!(calls[own - 1], "cuStreamIsCapturing", "{calls:?}");
        assert_eq!(calls[own + 1..], ["stub_launch"], "{calls:?}");
        assert_behind(driver, event, &pending);
        // Only the one zone has it.
        driver.mark("next");
        work(driver, stream);
        assert!(!driver.since("next", tid()).iter().any(|call| call == "cuEventRecord"));
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let (session, sink) = start(|builder| builder.ends(ends));
            let pending = next(stream, event);
            work(driver, stream);
            assert_behind(driver, event, &pending);
            driver.cuStreamSynchronize(stream);
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.recorded, sink.take().len()), (1, 1), "{ends:?}: {report}");
        }
        // It is the caller's: warpline has neither queried nor destroyed it.
        assert_eq!((driver.cuEventDestroy_v2(event), driver.stub_misuse()), (SUCCESS, 0));
    });
}

#[test]
fn a_request_that_is_taken_back_or_without_a_zone_records_no_event() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, event) = (driver.stream(), driver.event());
        let (session, sink) = start(|builder| builder.ends(EndMode::Lazy));
        drop(next(stream, event));
        work(driver, stream);
        // While the zone is open.
        let pending = next(stream, event);
        let zone = WORK.zone(&raw(stream));
        drop(pending);
        drop(zone);
        driver.cuStreamSynchronize(stream);
        assert_eq!((session.finish().recorded, sink.take().len()), (2, 2));
        assert_eq!(driver.stub_event_ns(event), -1, "it was never recorded");
        driver.cuEventDestroy_v2(event);

        let host = HostStream::new("host");
        // SAFETY: nothing uses it.
        let refused = profile::next_with_event(&host, unsafe { RawEvent::from_ptr(event as *mut c_void) });
        let error = refused.wait(Duration::ZERO).expect_err("it is no CUDA stream");
        assert!(matches!(&error, ProfileError::Event(why) if why.contains("is not a CUDA stream")), "{error}");
    });
}

#[test]
fn captures_are_refused_and_stay_whole() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, event) = (driver.stream(), driver.event());
        let capture = |graph: &mut Handle, work: &dyn Fn()| {
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
            work();
            assert_eq!(driver.cuStreamEndCapture(stream, graph), SUCCESS, "the capture is whole");
        };
        let mut graph = 0;
        capture(&mut graph, &|| {
            let refused = next(stream, event).wait(Duration::ZERO).expect_err("it is captured");
            assert_eq!(refused, ProfileError::Captured);
        });
        // A zone that begins before the capture and ends within it.
        let pending = next(stream, event);
        let zone = WORK.zone(&raw(stream));
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        drop(zone);
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS, "the capture is whole");
        assert_eq!(driver.stub_captured_records(), 0, "no event is in the graph");
        assert_eq!(pending.wait(LONG).expect_err("it is captured"), ProfileError::Captured);
        // A captured zone does not count as the next one; the one after it has the event.
        let pending = next(stream, event);
        capture(&mut graph, &|| drop(WORK.zone(&raw(stream))));
        assert_eq!(driver.stub_captured_records(), 0);
        work(driver, stream);
        assert_behind(driver, event, &pending);
        driver.cuEventDestroy_v2(event);
    });
}

#[test]
fn what_the_driver_says_of_the_event_goes_to_the_callers_handle_alone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, event) = (driver.stream(), driver.event());
        driver.cuEventDestroy_v2(event);
        let (session, sink) = start(|builder| builder.ends(EndMode::Lazy));
        let pending = next(stream, event);
        let other = profile::next(&raw(stream));
        work(driver, stream);
        let error = pending.wait(LONG).expect_err("there is no such event");
        assert!(matches!(&error, ProfileError::Event(why) if why.contains("cuEventRecord")), "{error}");
        assert!(error.to_string().contains("a live event of the stream's context"), "{error}");
        assert!(other.wait(LONG).is_ok(), "the other request has the zone");
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_eq!((report.recorded, report.dropped.total(), sink.take().len()), (1, 0, 1), "{report}");
    });
}
