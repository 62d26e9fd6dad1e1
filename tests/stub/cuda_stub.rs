//! The stub driver itself: what the tests of warpline's CUDA side rely on.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline_tests::this_test;

use crate::harness::driver::*;

const MS: u64 = 1_000_000;

#[test]
fn streams_take_their_time_and_events_tell_it() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (long, short) = (driver.stream(), driver.stream());
        // Behind a kernel, so that the pace of a busy host is not in the times.
        for stream in [long, short] {
            assert_eq!(driver.stub_launch(stream, 100 * MS), SUCCESS);
        }
        let begin = driver.record(long);
        driver.stub_launch(long, 200 * MS);
        let (end, untimed) = (driver.record(long), driver.event());
        let (mut ms, mut handle) = (0.0, 0);
        assert_eq!(driver.cuEventQuery(end), NOT_READY);
        assert_eq!(driver.cuEventElapsedTime(&mut ms, begin, end), NOT_READY);
        assert_eq!(driver.cuStreamSynchronize(short), SUCCESS);
        assert_eq!(driver.cuStreamQuery(long), NOT_READY, "streams run side by side");
        assert_eq!(driver.cuStreamWaitEvent(short, end, 0), SUCCESS);
        let joined = driver.record(short);
        assert_eq!(driver.cuEventSynchronize(joined), SUCCESS);
        assert_eq!(driver.cuStreamQuery(long), SUCCESS, "`short` has waited for it");
        let ms = driver.elapsed_ms(begin, end);
        assert!((ms - 200.0).abs() < 100e-6, "{ms} ms");
        assert_eq!(driver.elapsed_ms(begin, begin), 0.0);
        assert_eq!(driver.stub_event_ns(end) - driver.stub_event_ns(begin), 200_000_000);

        assert_eq!(driver.cuEventQuery(untimed), SUCCESS, "never recorded is complete");
        assert_eq!(driver.cuEventElapsedTime(&mut 0.0, begin, untimed), INVALID_HANDLE);
        driver.cuEventCreate(&mut handle, DISABLE_TIMING);
        assert_eq!(driver.cuEventRecord(handle, long), SUCCESS);
        assert_eq!(driver.cuEventElapsedTime(&mut 0.0, begin, handle), INVALID_HANDLE, "it has no time");

        // A device's clock that runs fast by 500 ppm, in steps of 32 ns.
        driver.stub_drift(500);
        driver.stub_launch(long, 100 * MS);
        let begin = driver.record(long);
        driver.stub_launch(long, 10 * MS);
        let middle = driver.record(long);
        driver.stub_launch(long, 10);
        let end = driver.record(long);
        driver.cuEventSynchronize(end);
        let (fast, step) = (driver.elapsed_ms(begin, middle), driver.elapsed_ms(middle, end));
        assert!((fast - 10.005).abs() < 100e-6, "{fast} ms");
        assert!(step == 0.0 || step == 32e-6, "{step} ms");
    });
}

#[test]
fn handles_come_back_and_ids_do_not() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let stream = driver.stream();
        let (id, event) = (driver.id(stream), driver.record(stream));
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
        assert_eq!(driver.cuEventQuery(event), SUCCESS, "an event outlives its stream");
        assert_eq!(driver.cuEventRecord(event, stream), INVALID_HANDLE);
        assert_eq!(driver.stub_misuse(), 1);
        assert_eq!(driver.stream(), stream, "the handle is used again");
        assert_ne!(driver.id(stream), id, "for another stream");
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuEventDestroy_v2(event), INVALID_HANDLE);
        assert_eq!((driver.stub_misuse(), driver.stub_live_events(), driver.stub_peak_events()), (2, 0, 1));

        // An event of one context does not go on a stream of another.
        let (mut other, event) = (0, driver.event());
        assert_eq!(driver.cuCtxCreate_v2(&mut other, 0, 0), SUCCESS);
        let foreign = driver.stream();
        assert_eq!(driver.cuEventRecord(event, foreign), INVALID_HANDLE);
        assert_eq!(driver.cuEventRecord(event, stream), SUCCESS, "it does not matter which context is current");
        assert_eq!(driver.cuCtxDestroy_v2(other), SUCCESS);
        assert_eq!(driver.current(), context, "the destroyed context is off the stack");
        assert_eq!(driver.cuStreamQuery(foreign), CONTEXT_IS_DESTROYED);
        assert_eq!((driver.stub_leaked(), driver.stub_orphan_uses(), driver.stub_misuse()), (1, 1, 2));

        // A primary context that was reset keeps its handle and is a new one.
        let (mut before, mut after, mut again) = (0, 0, 0);
        driver.cuCtxGetId(context, &mut before);
        assert_eq!(driver.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
        assert_eq!(driver.cuEventRecord(event, stream), CONTEXT_IS_DESTROYED);
        assert_eq!(driver.cuEventCreate(&mut 0, 0), CONTEXT_IS_DESTROYED, "what is current is gone");
        assert_eq!(driver.stub_live_contexts(), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut again, 0), SUCCESS);
        driver.cuCtxGetId(context, &mut after);
        assert_eq!((again, before == after), (context, false));
        assert_eq!((driver.stub_live_events(), driver.stub_live_streams(), driver.stub_leaked()), (0, 0, 3));
    });
}

#[test]
fn a_query_breaks_the_captures_that_it_does_not_respect() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (stream, event) = (driver.stream(), driver.event());
        let (mut status, mut graph) = (0, 0);
        let elsewhere = |relaxed: bool, call: &(dyn Fn() -> u32 + Sync)| {
            thread::scope(|scope| {
                let run = move || {
                    let mut mode = RELAXED;
                    assert!(
                        !relaxed || driver.cuThreadExchangeStreamCaptureMode(&mut mode) == SUCCESS && mode == GLOBAL
                    );
                    driver.cuCtxSetCurrent(context);
                    call()
                };
                scope.spawn(run).join().unwrap()
            })
        };
        let mut capture = |mode: i32, call: &dyn Fn() -> u32| {
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
            assert_eq!(driver.stub_launch(stream, MS), SUCCESS);
            let called = call();
            driver.cuStreamIsCapturing(stream, &mut status);
            let ended = driver.cuStreamEndCapture(stream, &mut graph);
            assert_eq!((ended == SUCCESS, graph != 0), (status == 1, status == 1));
            (called, ended)
        };
        const BROKEN: (u32, u32) = (CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED);
        const HARMLESS: (u32, u32) = (SUCCESS, SUCCESS);
        let query = || driver.cuEventQuery(event);
        let wait = || driver.cuStreamSynchronize(LEGACY);
        assert_eq!(capture(GLOBAL, &|| elsewhere(false, &query)), BROKEN);
        assert_eq!(capture(GLOBAL, &|| elsewhere(false, &wait)), BROKEN);
        assert_eq!(capture(GLOBAL, &|| elsewhere(true, &query)), HARMLESS);
        assert_eq!(capture(RELAXED, &|| elsewhere(false, &query)), HARMLESS);
        assert_eq!(capture(GLOBAL, &query), BROKEN, "on the capturing thread, too");
        // The legacy stream would wait for the capturing one: work there breaks the capture, the question does not.
        let implicit = (CAPTURE_IMPLICIT, CAPTURE_INVALIDATED);
        assert_eq!(capture(GLOBAL, &|| driver.cuEventRecord(event, LEGACY)), implicit);
        assert_eq!(capture(GLOBAL, &|| driver.cuStreamIsCapturing(LEGACY, &mut 0)), (CAPTURE_IMPLICIT, SUCCESS));
        assert_eq!(driver.stub_captured_records(), 0);
        assert_eq!(capture(GLOBAL, &|| driver.cuEventRecord(event, stream)), HARMLESS);
        assert_eq!(driver.stub_captured_records(), 1);
        driver.cuStreamIsCapturing(stream, &mut status);
        assert_eq!((status, driver.stub_graph_nodes(graph)), (0, 1), "the kernel; a record is no node");
        assert_eq!((driver.cuGraphDestroy(graph), driver.stub_misuse()), (SUCCESS, 0));
    });
}

#[test]
fn contexts_and_default_streams_are_those_of_the_thread() {
    on_stub(this_test!(), |driver| {
        assert_eq!(driver.cuCtxGetDevice(&mut 0), 3, "cuInit comes first");
        driver.stub_devices(2);
        let first = driver.start();
        let (mut second, mut device) = (0, -1);
        driver.cuDevicePrimaryCtxRetain(&mut second, 1);
        assert_eq!(driver.id(0), driver.id(LEGACY));
        let (legacy, own) = (driver.id(LEGACY), driver.id(PER_THREAD));
        assert_ne!(legacy, own);
        driver.cuCtxPushCurrent_v2(second);
        driver.cuCtxGetDevice(&mut device);
        assert_eq!(device, 1);
        assert!(![legacy, own].contains(&driver.id(LEGACY)), "each context has its own");
        let mut popped = 0;
        driver.cuCtxPopCurrent_v2(Some(&mut popped));
        assert_eq!((popped, driver.current()), (second, first));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(driver.current(), 0, "a new thread has no context");
                assert_eq!(driver.cuStreamGetId(LEGACY, &mut 0), INVALID_CONTEXT);
                driver.cuCtxSetCurrent(first);
                assert_eq!(driver.id(LEGACY), legacy, "all threads share the legacy stream");
                assert_ne!(driver.id(PER_THREAD), own, "and none its own");
            });
        });
    });
}

#[test]
fn calls_fail_as_often_as_they_are_told() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        driver.fail("cuEventCreate", 1, 2, 2);
        let codes: Vec<_> = (0..4).map(|_| driver.cuEventCreate(&mut 0, 0)).collect();
        assert_eq!((codes, driver.stub_live_events()), (vec![0, 2, 2, 0], 2), "a call that fails does nothing");

        // A kernel that breaks the device: later than its launch, and for good.
        driver.stub_launch_fault(stream, 250 * MS, ILLEGAL_ADDRESS);
        let event = driver.record(stream);
        assert_eq!(driver.cuStreamSynchronize(stream), ILLEGAL_ADDRESS, "who waits for it is told");
        assert_eq!(driver.cuEventQuery(event), ILLEGAL_ADDRESS);
        assert_eq!(driver.cuStreamIsCapturing(stream, &mut 0), ILLEGAL_ADDRESS);
        assert_eq!(driver.cuEventDestroy_v2(event), ILLEGAL_ADDRESS);
        assert_eq!(driver.stub_live_events(), 2, "it is destroyed all the same");
        let current = driver.current();
        assert_eq!(driver.cuCtxPushCurrent_v2(current), SUCCESS, "this is no matter of the device");
        driver.stub_break(4);
        assert_eq!(driver.cuCtxGetCurrent(&mut 0), 4, "the driver shuts down");
        let mut name = std::ptr::null();
        assert_eq!(driver.cuGetErrorName(4, &mut name), SUCCESS);
        driver.stub_break(0);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
    });
}

/// The thread of the host function, and what the driver said to it.
static HOST_TID: AtomicI32 = AtomicI32::new(0);
static HOST_CALL: AtomicU32 = AtomicU32::new(0);

extern "C" fn host_function(driver: *mut c_void) {
    // SAFETY: the test gives its driver and waits for the function.
    let driver = unsafe { &*driver.cast::<Stub>() };
    thread::sleep(Duration::from_millis(200));
    HOST_CALL.store(driver.cuCtxSynchronize(), Ordering::SeqCst);
    HOST_TID.store(tid(), Ordering::SeqCst);
}

#[test]
fn a_hung_kernel_and_a_host_function_hold_what_is_behind_them() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (hung, waiting) = (driver.stream(), driver.stream());
        let before = driver.record(hung);
        let hold = driver.stub_hold(hung);
        let begin = driver.record(hung);
        driver.stub_launch(hung, MS);
        let end = driver.record(hung);
        driver.cuStreamWaitEvent(waiting, end, 0);
        thread::sleep(Duration::from_millis(20));
        assert_eq!((driver.cuEventQuery(before), driver.cuEventQuery(begin)), (SUCCESS, NOT_READY));
        assert_eq!((driver.cuStreamQuery(waiting), driver.stub_event_ns(end)), (NOT_READY, -1));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| (driver.cuStreamSynchronize(waiting), Instant::now()));
            thread::sleep(Duration::from_millis(30));
            let released = Instant::now();
            driver.stub_release(hold);
            let (code, woken) = waiter.join().unwrap();
            assert!(code == SUCCESS && woken >= released);
        });
        assert!((driver.elapsed_ms(begin, end) - 1.0).abs() < 100e-6);
        assert!(driver.elapsed_ms(before, begin) >= 50.0, "as long as it hung");

        let before = driver.record(hung);
        let data = std::ptr::from_ref(driver).cast_mut().cast();
        assert_eq!(driver.cuLaunchHostFunc(hung, host_function, data), SUCCESS);
        let after = driver.record(hung);
        assert_eq!(driver.cuEventQuery(after), NOT_READY);
        assert_eq!(driver.cuEventSynchronize(after), SUCCESS);
        assert!(driver.elapsed_ms(before, after) >= 200.0);
        assert_eq!(HOST_CALL.load(Ordering::SeqCst), NOT_PERMITTED);
        assert!(![0, tid()].contains(&HOST_TID.load(Ordering::SeqCst)));
        assert_eq!(driver.stub_misuse(), 1, "the host function's call");
    });
}

#[test]
fn the_journal_has_every_call_with_its_thread() {
    let test = this_test!();
    on_stub(test, |driver| {
        let file = scratch(test);
        driver.start();
        let stream = driver.stream();
        driver.log_to(&file);
        driver.mark("begin");
        let tids: Vec<i32> = thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|n| {
                    scope.spawn(move || {
                        (0..n * 100).for_each(|_| assert_eq!(driver.cuStreamQuery(stream), SUCCESS));
                        tid()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        driver.stub_launch(stream, 1);
        let counts: Vec<_> = tids.iter().map(|&tid| driver.calls_on("cuStreamQuery", tid)).collect();
        assert_eq!((counts, driver.calls("cuStreamQuery")), (vec![100, 200, 300, 400], 1_000));
        assert_eq!(driver.since("begin", tid()), ["stub_launch"]);
        assert_eq!(driver.since("begin", tids[1]), vec!["cuStreamQuery"; 200]);
        let log = driver.log();
        let begin = log.iter().position(|line| line == "# begin").unwrap();
        assert_eq!(log[..begin].last().unwrap(), &format!("cuStreamCreate {}", tid()));
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().collect::<Vec<_>>(), log[begin..]);

        driver.stub_reset();
        driver.start();
        (0..100_000).for_each(|_| assert!(driver.current() != 0));
        assert_eq!((driver.all_calls(), driver.calls("cuCtxGetCurrent")), (100_003, 100_000));
        assert_eq!(driver.log().last().unwrap(), "and 3 more");
        assert_eq!(driver.cuStreamDestroy_v2(stream), INVALID_HANDLE, "nothing of before is left");
    });
}

#[test]
fn an_old_driver_lacks_two_symbols() {
    in_child(this_test!(), Driver::Old, || {
        let driver = Stub::load();
        assert!(driver.has("cuStreamGetCtx") && !driver.has("cuStreamGetId") && !driver.has("cuCtxGetId"));
        let mut version = 0;
        assert_eq!((driver.cuDriverGetVersion(&mut version), version), (SUCCESS, 11_080));
        driver.stub_driver_version(12_020);
        assert_eq!((driver.cuDriverGetVersion(&mut version), version), (SUCCESS, 12_020));
    });
}

#[test]
fn where_no_driver_is_none_is_found() {
    in_child(this_test!(), Driver::Unloadable, || {
        for name in ["libcuda.so.1", "libcuda.so"] {
            // SAFETY: the file is none that could run anything.
            assert!(unsafe { libloading::Library::new(name) }.is_err());
        }
    });
}
