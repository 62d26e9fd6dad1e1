//! The next submission of a thread on a stream, on the stub CUPTI: whatever it is, with a session and without one.

use std::ffi::CStr;
use std::thread;
use std::time::{Duration, Instant};

use warpline::profile::{self, PendingSubmission, ProfileError, SubmittedWork};
use warpline::record::{KernelWork, SyncKind};

use warpline::timing::Timing;
use warpline::{HostStream, Session, SessionBuilder};
use warpline_tests::{this_test, threads};

use super::OUTER;
use crate::harness::cupti::*;
use crate::harness::driver::{self, GLOBAL, Handle, SUCCESS};
use crate::harness::zones::{self, boot_ns, raw};

const SYNCHRONIZATION: u32 = 38;

/// Far more than it takes on the slowest of machines.
const LONG: Duration = Duration::from_secs(20);

fn next(stream: Handle) -> PendingSubmission {
    profile::next_submission(&raw(stream))
}

/// A launch on a stream, from now on, for so many µs.
fn on(stream: Handle, us: u64, launch: Launch) -> Launch {
    let begin_ns = boot_ns().cast_unsigned() + 20_000;
    Launch { stream: number(stream), begin_ns, end_ns: begin_ns + us * 1_000, ..launch }
}

fn named(stream: Handle, name: &'static CStr) -> Launch {
    on(stream, 10, kernel(name))
}

fn of(kind: u32) -> Launch {
    Launch { kind, bytes: 64, ..kernel(c"") }
}

fn wait_event(stream: Handle) -> Sync {
    let sync = stream_sync(number(stream), 3);
    // The call of a launch begins as far ahead, so calls have the order in which the test makes them.
    let (begin_ns, end_ns) = (sync.begin_ns + 15_000, sync.end_ns + 15_000);
    Sync { sync_type: 2, call: 295, event: 5, begin_ns, end_ns, ..sync }
}

/// Waits until CUPTI, which a request has started, is ended.
fn until_ended(cupti: &Cupti) {
    let begin = Instant::now();
    while cupti.stub_cupti_is_attached() || threads("warpline-cupti") > 0 {
        assert!(begin.elapsed() < LONG, "CUPTI is not ended");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((cupti.stub_cupti_on(), cupti.stub_cupti_depth()), (0, 0));
}

#[test]
fn the_next_submission_is_this_threads_on_this_stream_without_a_session() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (stream, other) = (driver.stream(), driver.stream());
        let pending = next(stream);
        assert!(pending.try_get().is_none());
        assert_eq!(pending.wait(Duration::ZERO), Err(ProfileError::NotSubmitted));
        thread::scope(|scope| _ = scope.spawn(|| cupti.launch(named(stream, c"elsewhere"))));
        cupti.launch(named(other, c"beside"));
        let launch = named(stream, c"_Z4gemmPf");
        let correlation = cupti.launch(launch);
        cupti.launch(named(stream, c"after"));
        let found = pending.wait(LONG).expect("it was launched");
        assert_eq!((&*found.name, found.gpu_ns(), found.correlation), ("gemm(float*)", Some(10_000), correlation));
        assert!(matches!(found.work, SubmittedWork::Single(KernelWork::Kernel { grid: [8, 4, 2], .. })), "{found:?}");
        assert_eq!((found.launch.thread.id, found.launch.host.duration_ns()), (driver::tid() as u64, 3_000));
        let begin_ns = found.gpu.expect("it ran").begin_ns;
        assert!((begin_ns - launch.begin_ns.cast_signed()).abs() < 1_000_000, "{found:?}");
        drop(pending);
        until_ended(cupti);
        // What was launched before the request is not the next.
        cupti.launch(named(stream, c"before"));
        let pending = next(stream);
        cupti.launch(named(stream, c"now"));
        assert_eq!(&*pending.wait(LONG).expect("it was launched").name, "now");
        until_ended(cupti);
        // A request that is taken back leaves nothing.
        drop(next(stream));
        until_ended(cupti);
        assert_eq!(cupti.calls("cuptiActivityPushExternalCorrelationId"), 0);
    });
}

#[test]
fn copies_sets_barriers_and_graphs_are_submissions() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let said = |submit: &dyn Fn()| {
            let pending = next(stream);
            // Queries submit nothing.
            cupti.sync(Sync { call: 125, ..stream_sync(number(stream), 1) });
            submit();
            cupti.launch(named(stream, c"after"));
            let found = pending.wait(LONG).expect("it was submitted");
            (found.name.to_string(), found.work.clone(), found.gpu_ns())
        };
        let (name, work, gpu_ns) = said(&|| _ = cupti.launch(on(stream, 7, of(MEMCPY))));
        assert_eq!((&*name, gpu_ns), ("Memcpy HtoD (Pinned -> Device)", Some(7_000)));
        assert!(matches!(work, SubmittedWork::Single(KernelWork::Memcpy { bytes: 64, .. })), "{work:?}");
        let (name, _, gpu_ns) = said(&|| _ = cupti.launch(on(stream, 2, of(MEMSET))));
        assert_eq!((&*name, gpu_ns), ("Memset (Device)", Some(2_000)));
        let barrier = said(&|| _ = cupti.sync(wait_event(stream)));
        assert_eq!(barrier, ("cuStreamWaitEvent".into(), SubmittedWork::Barrier(SyncKind::StreamWaitEvent), None));
        let barrier = said(&|| _ = cupti.sync(stream_sync(number(stream), 9)));
        assert_eq!(barrier, ("cuStreamSynchronize".into(), SubmittedWork::Barrier(SyncKind::StreamSynchronize), None));
        let (name, work, gpu_ns) = said(&|| cupti.replay(stream, 3, 4, boot_ns().cast_unsigned() + 20_000, 6_000));
        // Four kernels, which begin 10 µs apart.
        assert_eq!((&*name, gpu_ns), ("node", Some(36_000)));
        assert!(matches!(work, SubmittedWork::Graph { nodes: 4, first } if first.graph == 3), "{work:?}");
    });
}

#[test]
fn a_barrier_that_is_read_before_earlier_work_is_not_taken_for_the_next() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (stream, other) = (driver.stream(), driver.stream());
        let pending = next(stream);
        cupti.launch(Launch { is_pending: 1, ..named(stream, c"long") });
        // CUPTI delivers the wait at once, and the kernel when it is complete.
        cupti.sync(wait_event(stream));
        assert_eq!(pending.wait(Duration::from_millis(600)), Err(ProfileError::NotSubmitted));
        cupti.stub_cupti_complete();
        assert_eq!(&*pending.wait(LONG).expect("it is complete").name, "long");
        // Work that still runs on another stream does not delay a copy for ever.
        let pending = next(stream);
        cupti.launch(Launch { is_pending: 1, ..named(other, c"long") });
        cupti.launch(on(stream, 7, of(MEMSET)));
        assert_eq!(&*pending.wait(LONG).expect("it is complete").name, "Memset (Device)");
        cupti.stub_cupti_complete();
    });
}

#[test]
fn a_sessions_cupti_serves_requests_and_records_no_more_than_the_session_wants() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        type Change = fn(SessionBuilder) -> SessionBuilder;
        let sessions: [(Change, [bool; 2], [usize; 2]); 4] = [
            (|builder| builder.kernels(true), [false, true], [2, 0]),
            (|builder| builder.synchronizations(true), [true, false], [0, 1]),
            (|builder| builder.timing(Timing::Kernels), [false, true], [0, 0]),
            (|builder| builder.kernels(true).synchronizations(true), [true, true], [2, 1]),
        ];
        for (change, wanted, counts) in sessions {
            let (session, sink) = zones::start(change);
            let on = || [SYNCHRONIZATION, KERNEL].map(|kind| cupti.stub_cupti_is_on(kind));
            assert_eq!(on(), wanted);
            let pending = next(stream);
            assert_eq!(on(), [true, true]);
            {
                let _outer = OUTER.zone(&raw(stream));
                cupti.launch(named(stream, c"first"));
                cupti.sync(wait_event(stream));
            }
            cupti.launch(named(stream, c"second"));
            assert_eq!(&*pending.wait(LONG).expect("it was launched").name, "first");
            let begin = Instant::now();
            while on() != wanted {
                assert!(begin.elapsed() < LONG, "{:?} instead of {wanted:?}", on());
                thread::sleep(Duration::from_millis(5));
            }
            let report = session.finish();
            let taken = [sink.take_kernels().len(), sink.take_synchronizations().len()];
            assert_eq!(taken, counts, "{report}");
            assert_eq!(
                (report.kernels.recorded, report.synchronizations.recorded),
                (counts[0] as u64, counts[1] as u64)
            );
            assert_eq!((sink.take().len(), cupti.stub_cupti_on(), threads("warpline-cupti")), (1, 0, 0));
        }
    });
}

#[test]
fn what_cannot_be_timed_says_what_to_do() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let why = |pending: PendingSubmission| match pending.wait(Duration::ZERO) {
            Err(ProfileError::NoKernels(why)) => why,
            other => panic!("{other:?}"),
        };
        let host = HostStream::new("host");
        assert!(why(profile::next_submission(&host)).contains("use `time!`"));
        until_ended(cupti);
        // Another tool has CUPTI.
        cupti.fail("cuptiSubscribe", 39);
        assert!(why(next(stream)).contains("another tool uses CUPTI in this process"));
        cupti.fail("cuptiSubscribe", 0);
        assert_eq!(cupti.stub_cupti_on(), 0);
        // A session that begins while a request has CUPTI, and a request in a session that is stopped.
        let pending = next(stream);
        let report = Session::builder().kernels(true).start().expect("no other session").finish();
        let note = report.notes.iter().find(|note| note.contains("no kernels are recorded")).expect("a note");
        assert!(note.contains("`profile::next_submission`"), "{note}");
        cupti.launch(named(stream, c"k"));
        assert!(pending.wait(LONG).is_ok(), "the request is not disturbed");
        until_ended(cupti);
        let (session, _sink) = zones::start(|builder| builder.kernels(true));
        let pending = next(stream);
        session.stop();
        assert_eq!(pending.wait(LONG), Err(ProfileError::Unfinished));
        assert!(why(next(stream)).contains("a session that is stopped uses CUPTI"));
        session.start();
        session.finish();
        // A capture.
        let mut graph = 0;
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        assert_eq!(next(stream).wait(Duration::ZERO), Err(ProfileError::Captured));
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS, "the capture is whole");
        // The session ends first.
        let (session, _sink) = zones::start(|builder| builder.kernels(true));
        let pending = next(stream);
        session.finish();
        assert_eq!(pending.wait(LONG), Err(ProfileError::Unfinished));
    });
}
