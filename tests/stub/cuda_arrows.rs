//! Waits of CUDA streams in a session, on a driver that counts every call: what they cost, when they were, and what a session
//! leaves alone. No GPU is needed.

use warpline::Session;
use warpline::record::{EndSource, WaitRecord};
use warpline::sink::MemorySink;
use warpline::timeline::{Error, Semaphore, declare_wait};
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::slow::{Driver, leaked};
use crate::harness::zones::{self, raw};
use crate::timelines::arrows;
use crate::timelines::device::LONG;

warpline::range! {
    COPY = "stub.cuda_arrows.copy": "A kernel that others wait for.";
    USE = "stub.cuda_arrows.use": "A kernel that waited.";
}

const US: u64 = 1_000;

/// What tells a stream from others.
const KNOWN: [&str; 2] = ["cuStreamIsCapturing", "cuStreamGetId"];

fn start(ends: EndMode) -> (Session, MemorySink) {
    zones::start(|builder| builder.ends(ends))
}

/// The calls of a signal and of a wait, on this thread.
fn calls(driver: &Stub, semaphore: &Semaphore, value: u64, from: Handle, to: Handle) -> [Vec<String>; 2] {
    driver.mark("signal");
    semaphore.signal_on(&raw(from), value).unwrap();
    let signal = driver.since("signal", tid());
    driver.mark("wait");
    semaphore.wait_on(&raw(to), value).unwrap();
    [signal, driver.since("wait", tid())]
}

#[test]
fn a_session_puts_two_points_around_a_wait_and_nothing_on_the_stream_that_signals() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (from, to) = (driver.stream(), driver.stream());
        let hold = driver.stub_hold(from);
        let semaphore = Semaphore::new(0);
        let plain = [[&KNOWN[..], &["cuEventRecord"]].concat(), [&KNOWN[..], &["cuStreamWaitEvent"]].concat()];
        // Events come into being with the first calls.
        calls(driver, &semaphore, 1, from, to);
        assert_eq!(calls(driver, &semaphore, 2, from, to), plain);
        for (ends, value) in [(EndMode::Eager, 10), (EndMode::Lazy, 20)] {
            let (session, _) = start(ends);
            calls(driver, &semaphore, value, from, to);
            let [signal, wait] = calls(driver, &semaphore, value + 1, from, to);
            assert_eq!(signal, plain[0], "{ends:?}");
            let around = ["cuEventRecord", "cuStreamWaitEvent", "cuStreamIsCapturing", "cuEventRecord"];
            assert_eq!(wait, [&KNOWN[..], &around].concat(), "{ends:?}");
            session.stop();
            assert_eq!(calls(driver, &semaphore, value + 2, from, to), plain, "a stopped session");
            if ends == EndMode::Lazy {
                driver.stub_release(hold);
            }
            driver.cuStreamQuery(to);
            drop(session);
            assert_eq!(calls(driver, &semaphore, value + 3, from, to), plain, "no session");
        }
    });
}

/// A kernel, a signal, a wait, a kernel; what the session knows of the wait.
fn recorded(driver: &Stub, ends: EndMode) -> (WaitRecord, [(i64, i64); 2], EndSource) {
    let (copy, compute) = (driver.stream(), driver.stream());
    let semaphore = Semaphore::named("copied", 0);
    // The device begins when all is queued. The times of both streams are then close together, where an error in the rate of
    // the clocks changes nothing, however slow the machine is.
    let hold = driver.stub_hold_device();
    let (session, memory) = start(ends);
    {
        let _zone = COPY.zone(&raw(copy));
        driver.stub_launch(copy, 500 * US);
    }
    semaphore.signal_on(&raw(copy), 1).unwrap();
    semaphore.wait_on(&raw(compute), 1).unwrap();
    {
        let _zone = USE.zone(&raw(compute));
        driver.stub_launch(compute, 500 * US);
    }
    driver.stub_release(hold);
    driver.cuStreamSynchronize(compute);
    let report = session.finish();
    assert_eq!((report.waits.begun, report.waits.recorded, report.begun, report.recorded), (1, 1, 2, 2), "{report}");
    let zones = memory.take();
    let gpu = |name| {
        let zone = zones.iter().find(|zone| zone.range.name() == name).expect("it was recorded");
        zone.gpu.map(|gpu| (gpu.begin_ns, gpu.end_ns)).expect("it has times")
    };
    let mut waits = memory.take_waits();
    let found = waits[0].end;
    (waits.remove(0), [gpu("stub.cuda_arrows.copy"), gpu("stub.cuda_arrows.use")], found)
}

#[test]
fn a_wait_ends_with_its_signal_which_has_the_time_of_the_zone_that_ended_there() {
    on_stub(this_test!(), |driver| {
        driver.start();
        for (ends, end) in [(EndMode::Eager, EndSource::Event), (EndMode::Lazy, EndSource::Boundary)] {
            let (wait, [copy, used], found) = recorded(driver, ends);
            let (gpu, signal) = (wait.gpu.expect("a stream waited"), wait.signal.as_ref().expect("a stream signalled"));
            assert_eq!(found, end);
            assert_eq!((signal.by(), signal.stream.is_some()), ("stream 1".to_owned(), true), "{wait:?}");
            // Where ends are lazy, nothing behind the copy says when it ended: the wait does.
            assert!(signal.at_ns <= gpu.end_ns && signal.at_ns + 10_000 >= gpu.end_ns.min(copy.1), "{wait:?} {copy:?}");
            assert!(gpu.end_ns <= used.0, "{wait:?} {used:?}");
            assert!(gpu.begin_ns < signal.at_ns, "{wait:?}");
        }
        assert_clean_but_for_semaphores(driver);
    });
}

/// Events of semaphores stay with their context, to be used again.
fn assert_clean_but_for_semaphores(driver: &Stub) {
    assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0));
    assert_eq!(driver.stub_live_events(), 16, "one step of them, and none of the session's");
}

#[test]
fn a_stream_that_is_being_captured_is_left_alone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (copy, compute) = (driver.stream(), driver.stream());
        let semaphore = Semaphore::new(0);
        semaphore.signal(1).unwrap();
        let (session, _) = start(EndMode::Eager);
        assert_eq!(driver.cuStreamBeginCapture_v2(compute, GLOBAL), SUCCESS);
        driver.mark("captured");
        // What is there already takes no call at all without a session, and here only the one that captures allow.
        semaphore.wait_on(&raw(compute), 1).unwrap();
        assert!(matches!(semaphore.signal_on(&raw(compute), 2), Err(Error::Captured { .. })));
        assert_eq!(declare_wait("plain", &raw(compute), &raw(copy), || 7), 7);
        assert_eq!(declare_wait("plain", &raw(copy), &raw(compute), || 8), 8);
        let calls = driver.since("captured", tid());
        let of_capture = calls.iter().filter(|call| !["cuStreamIsCapturing", "cuStreamGetId"].contains(&call.as_str()));
        let of_capture: Vec<_> = of_capture.collect();
        assert_eq!(driver.stub_captured_records(), 0, "{calls:?}");
        assert!(of_capture.iter().all(|call| !call.contains("Wait")), "{of_capture:?}");
        assert_eq!(end_capture(driver, compute), SUCCESS, "the capture did not notice");
        let report = session.finish();
        assert_eq!((report.waits.begun, report.begun), (0, 0), "{report}");
    });
}

fn end_capture(driver: &Stub, stream: Handle) -> u32 {
    let mut graph = 0;
    driver.cuStreamEndCapture(stream, &mut graph)
}

#[test]
fn a_device_that_fails_drops_waits_and_counts_them() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (copy, compute) = (driver.stream(), driver.stream());
        let (session, memory) = start(EndMode::Eager);
        let semaphore = Semaphore::new(0);
        let hold = driver.stub_hold(copy);
        semaphore.signal_on(&raw(copy), 1).unwrap();
        semaphore.wait_on(&raw(compute), 1).unwrap();
        driver.stub_break(ILLEGAL_ADDRESS);
        semaphore.wait(1, LONG).expect_err("the device failed");
        let report = session.finish();
        driver.stub_break(0);
        driver.stub_release(hold);
        assert_eq!((report.waits.begun, report.waits.dropped.stream_failed), (2, 1), "{report}");
        assert_eq!(report.begun, 0, "a wait is no zone");
        assert_eq!(memory.take_waits().len(), 1, "the thread's");
        assert_eq!(driver.stub_misuse(), 0);
    });
}

#[test]
fn arrows_in_the_trace_are_the_edges_of_random_graphs_on_streams_of_a_driver() {
    on_stub(this_test!(), |driver| {
        driver.start();
        arrows::random_graphs(&Driver(leaked()), 8, 60);
        assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0));
    });
}
