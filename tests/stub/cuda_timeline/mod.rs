//! Timelines on CUDA streams, on a driver that counts every call and fails on demand. No GPU is needed.

mod futures;

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cudarc::driver::CudaContext;
use warpline::HostStream;
use warpline::timeline::{Error, Queue, Semaphore, WhenFull, wait_all};
use warpline_tests::this_test;

use crate::harness::driver;
use crate::harness::driver::*;
use crate::harness::slow::{Driver, Slow, leaked};
use crate::harness::zones::raw;
use crate::timelines::cases;
use crate::timelines::device::{Code, Device, LONG, block_on, check_value, code_of, is_timeout};
use crate::timelines::graph;

const MS: u64 = 1_000_000;

warpline::range! {
    ONCE = "stub.cuda_timeline.once": "The only zone of a stream.";
}

/// Calls that wait for a stream, an event or a device, or that end one.
const BLOCKING: [&str; 4] = ["cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuEventDestroy_v2"];

fn assert_never_waited(driver: &Stub) {
    for symbol in BLOCKING {
        assert_eq!(driver.calls(symbol), 0, "{symbol}");
    }
    assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0), "misused handles, handles without a context");
}

#[test]
fn the_cases_hold_on_streams_of_a_driver() {
    macro_rules! all {
        ($($suite:ident: $($case:ident)*;)*) => {
            [$($((concat!(stringify!($suite), "::", stringify!($case)), cases::$suite::$case as fn(&Driver))),*),*]
        };
    }
    on_stub(this_test!(), |driver| {
        driver.start();
        let device = Driver(leaked());
        for (name, case) in with_timeline_cases!(all) {
            println!("{name}");
            case(&device);
        }
        assert_never_waited(driver);
    });
}

#[test]
fn random_graphs_of_work_end_on_streams_of_a_driver() {
    on_stub(this_test!(), |driver| {
        driver.start();
        graph::random_graphs(&Driver(leaked()), 16, 60);
        assert_never_waited(driver);
    });
}

#[test]
fn a_signal_and_a_wait_are_two_calls_each_beside_what_tells_a_stream_from_others() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (from, to) = (driver.stream(), driver.stream());
        let semaphore = Semaphore::new(0);
        // The stream is new to the thread, and there are no events yet.
        semaphore.signal_on(&raw(from), 1).unwrap();
        semaphore.wait_on(&raw(to), 1).unwrap();
        let hold = driver.stub_hold(from);
        driver.mark("steady");
        semaphore.signal_on(&raw(from), 2).unwrap();
        semaphore.wait_on(&raw(to), 2).unwrap();
        let calls = driver.since("steady", tid());
        let known = ["cuStreamIsCapturing", "cuStreamGetId"];
        assert_eq!(calls, [&known[..], &["cuEventRecord"], &known, &["cuStreamWaitEvent"]].concat());
        assert_eq!(driver.cuStreamQuery(to), NOT_READY, "the stream waits, this thread does not");
        driver.stub_release(hold);
        semaphore.wait(2, LONG).unwrap();
        // What is reached needs no wait.
        driver.mark("reached");
        semaphore.wait_on(&raw(to), 2).unwrap();
        assert!(driver.since("reached", tid()).is_empty());
        assert_never_waited(driver);
    });
}

#[test]
fn a_stream_of_cudarc_is_asked_for_its_id_once_a_thread() {
    on_stub(this_test!(), |driver| {
        let context = CudaContext::new(0).unwrap();
        let (from, to) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let semaphore = Semaphore::new(0);
        semaphore.signal_on(&from, 1).unwrap();
        semaphore.wait_on(&to, 1).unwrap();
        let hold = driver.stub_hold(from.cu_stream() as Handle);
        driver.mark("steady");
        semaphore.signal_on(&from, 2).unwrap();
        semaphore.wait_on(&to, 2).unwrap();
        let calls = driver.since("steady", tid());
        assert_eq!(calls, ["cuStreamIsCapturing", "cuEventRecord", "cuStreamIsCapturing", "cuStreamWaitEvent"]);
        driver.stub_release(hold);
        semaphore.wait(2, LONG).unwrap();
    });
}

/// The values that own streams come and go at the same addresses, on one thread.
#[test]
fn streams_of_cudarc_that_follow_each_other_are_different_streams() {
    const STREAMS: u64 = 100;
    on_stub(this_test!(), |driver| {
        let context = CudaContext::new(0).unwrap();
        let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
        let (session, zones) = crate::harness::zones::start(|builder| builder);
        let semaphore = Semaphore::new(0);
        for value in 1..=STREAMS {
            let stream = context.new_stream().unwrap();
            let (mut id, handle) = (0, stream.cu_stream() as Handle);
            assert_eq!(driver.cuStreamGetId(handle, &mut id), SUCCESS);
            addresses.insert(Arc::as_ptr(&stream).addr());
            drop(ONCE.zone(&stream));
            semaphore.signal_on(&stream, value).unwrap();
            semaphore.wait(value, LONG).unwrap();
            ids.insert(id);
        }
        assert!(addresses.len() < STREAMS as usize, "addresses are reused: {}", addresses.len());
        assert_eq!(ids.len(), STREAMS as usize);
        let report = session.finish();
        let streams: HashSet<u32> = zones.take().iter().map(|zone| zone.stream.as_ref().unwrap().id).collect();
        assert_eq!((streams.len() as u64, report.recorded), (STREAMS, STREAMS), "{report}");
        drop(context);
        assert_eq!((driver.stub_live_streams(), driver.stub_misuse()), (0, 0));
    });
}

/// The thread keeps free events of the first context alone, and those of the second one are used again all the same.
#[test]
fn events_of_a_second_context_are_used_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let first = driver.stream();
        let context = made(|context| driver.cuCtxCreate_v2(context, 0, 0));
        driver.cuCtxSetCurrent(context);
        let second = driver.stream();
        let (one, other) = (Semaphore::new(0), Semaphore::new(0));
        for value in 1..=200 {
            one.signal_on(&raw(first), value).unwrap();
            one.wait(value, LONG).unwrap();
            other.signal_on(&raw(second), value).unwrap();
            other.wait(value, LONG).unwrap();
        }
        assert!(driver.stub_peak_events() <= 64, "{} events", driver.stub_peak_events());
    });
}

#[test]
fn the_free_events_of_a_thread_that_ends_are_used_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        for _ in 0..50 {
            let signals = move || {
                let semaphore = Semaphore::new(0);
                (1..=20).for_each(|value| semaphore.signal_on(&raw(stream), value).unwrap());
                semaphore.wait(20, LONG).unwrap();
            };
            // Unlike the end of a scope, `join` waits until the thread's own values are dropped.
            thread::spawn(signals).join().unwrap();
        }
        assert!(driver.stub_peak_events() <= 48, "{} events", driver.stub_peak_events());
        assert_never_waited(driver);
    });
}

#[test]
fn eight_queues_of_ten_thousand_submissions_wait_for_no_device() {
    const EACH: u64 = 10_000;
    on_stub(this_test!(), |driver| {
        driver.start();
        let device = Driver(leaked());
        let done: Vec<Semaphore> = (0..8).map(|_| Semaphore::new(0)).collect();
        let queues: Vec<Queue<Slow>> = (0..8)
            .map(|_| Queue::<Slow>::builder("one of eight").when_full(WhenFull::Wait).build([device.stream()]).unwrap())
            .collect();
        thread::scope(|scope| {
            for (at, queue) in queues.iter().enumerate() {
                let (before, done) = (&done[(at + 7) % 8], &done[at]);
                scope.spawn(move || {
                    for value in 1..=EACH {
                        // The last one waits for nobody: it leads.
                        let waits = [(before, value - u64::from(at == 0))];
                        queue.submit(&waits, &[(done, value)], |_| Ok(())).unwrap();
                    }
                });
            }
        });
        let all: Vec<_> = done.iter().map(|done| (done, EACH)).collect();
        wait_all(&all, LONG).unwrap();
        assert_never_waited(driver);
        assert!(driver.stub_peak_events() < 8 * EACH / 4, "{} events at most", driver.stub_peak_events());
    });
}

#[test]
fn a_stream_that_is_being_captured_is_left_alone_and_the_error_says_so() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, other) = (driver.stream(), driver.stream());
        let semaphore = Semaphore::named("steps", 0);
        semaphore.signal_on(&raw(other), 1).unwrap();
        let hold = driver.stub_hold(other);
        semaphore.signal_on(&raw(other), 2).unwrap();
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        driver.mark("captured");
        for error in [semaphore.signal_on(&raw(stream), 3), semaphore.wait_on(&raw(stream), 2)] {
            assert!(matches!(error, Err(Error::Captured { .. })), "{error:?}");
        }
        assert_eq!(driver.since("captured", tid()), ["cuStreamIsCapturing", "cuStreamIsCapturing"]);
        // To ask how far another stream is breaks no capture either, on any thread.
        check_value(&semaphore, 1);
        assert!(is_timeout(semaphore.wait(2, Duration::from_millis(5))));
        thread::scope(|scope| {
            let future = scope.spawn(|| block_on(semaphore.wait_async(2)));
            thread::sleep(Duration::from_millis(20));
            driver.stub_release(hold);
            future.join().unwrap().unwrap();
        });
        let mut graph = 0;
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
        assert_eq!(driver.stub_graph_nodes(graph), 0);
        assert_eq!(semaphore.submitted().unwrap(), 2, "nothing was submitted");
        semaphore.signal_on(&raw(stream), 3).unwrap();
    });
}

#[test]
fn a_device_that_fails_fails_what_it_was_to_signal_and_all_that_depends_on_it() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let [first, second] = ["first", "second"].map(|name| Semaphore::named(name, 0));
        let queue = Queue::new("calls", Driver(leaked()).stream()).unwrap();
        let hold = driver.stub_hold(stream);
        driver.stub_launch_fault(stream, 5 * MS, ILLEGAL_ADDRESS);
        first.signal_on(&raw(stream), 1).unwrap();
        queue.submit_host(&[(&first, 1)], &[(&second, 1)], |_| Ok(())).unwrap();
        driver.stub_release(hold);
        let error = second.wait(1, LONG).expect_err("the kernel was bad").to_string();
        assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS") && error.contains("`first`"), "{error}");
        assert!(first.value().is_err() && first.signal(2).is_err(), "for good");
    });
}

#[test]
fn calls_that_fail_submit_nothing_and_the_next_ones_work() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (from, to) = (driver.stream(), driver.stream());
        let semaphore = Semaphore::named("steps", 0);
        for symbol in ["cuCtxPushCurrent_v2", "cuEventCreate", "cuEventRecord"] {
            driver.fail(symbol, 0, 1, OUT_OF_MEMORY);
            let error = semaphore.signal_on(&raw(from), 1).expect_err("it failed").to_string();
            assert!(error.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
            assert_eq!(semaphore.submitted().unwrap(), 0);
        }
        semaphore.signal_on(&raw(from), 1).unwrap();
        driver.fail("cuStreamWaitEvent", 0, 1, OUT_OF_MEMORY);
        assert!(semaphore.wait_on(&raw(to), 1).is_err());
        semaphore.wait_on(&raw(to), 1).unwrap();
        semaphore.wait(1, LONG).unwrap();
    });
}

#[test]
fn default_streams_and_streams_of_several_contexts_wait_for_one_another() {
    on_stub(this_test!(), |driver| {
        let primary = driver.start();
        let stream = driver.stream();
        let mut other = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut other, 0, 0), SUCCESS);
        let theirs = driver.stream();
        let [a, b, c] = [const { 0 }; 3].map(Semaphore::new);
        let hold = driver.stub_hold(theirs);
        a.signal_on(&raw(theirs), 1).unwrap();
        assert_eq!(driver.cuCtxSetCurrent(primary), SUCCESS);
        a.wait_on(&raw(stream), 1).unwrap();
        b.signal_on(&raw(stream), 1).unwrap();
        b.wait_on(&raw(LEGACY), 1).unwrap();
        c.signal_on(&raw(LEGACY), 1).unwrap();
        assert_eq!(driver.current(), primary, "what was current is");
        c.wait_on(&raw(PER_THREAD), 1).unwrap();
        assert!(is_timeout(c.wait(1, Duration::from_millis(1))));
        driver.stub_release(hold);
        c.wait(1, LONG).unwrap();
        check_value(&a, 1);
        assert_never_waited(driver);
    });
}

#[test]
fn a_context_that_goes_with_signals_pending_fails_them_and_is_not_touched() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let mut context = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        let stream = driver.stream();
        let [kept, dropped] = [const { 0 }; 2].map(Semaphore::new);
        let _hold = driver.stub_hold(stream);
        kept.signal_on(&raw(stream), 1).unwrap();
        dropped.signal_on(&raw(stream), 1).unwrap();
        assert_eq!(driver.cuCtxDestroy_v2(context), SUCCESS);
        drop(dropped);
        let mut another = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut another, 0, 0), SUCCESS);
        let elsewhere = kept.wait_on(&raw(driver.stream()), 1).expect_err("nobody gets there").to_string();
        assert!(elsewhere.contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{elsewhere}");
        let error = kept.wait(1, LONG).expect_err("nobody gets there").to_string();
        assert!(error.contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{error}");
        assert_never_waited(driver);
    });
}

#[test]
fn a_function_that_the_device_calls_may_signal_and_fail_and_makes_no_driver_call_by_that() {
    struct Both(Semaphore, Semaphore);
    extern "C" fn call(data: *mut c_void) {
        // SAFETY: it is the `Both` of below, which outlives the call.
        let Both(signal, fail) = unsafe { &*data.cast::<Both>() };
        signal.signal(2).expect("it goes forward");
        fail.fail(Code(1));
    }
    extern "C" fn ask(data: *mut c_void) {
        // SAFETY: as above.
        let Both(signal, _) = unsafe { &*data.cast::<Both>() };
        assert!(signal.value().is_ok(), "it may not ask, which says nothing of the semaphore");
    }
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, other) = (driver.stream(), driver.stream());
        let both = Both(Semaphore::new(0), Semaphore::new(0));
        let hold = driver.stub_hold(other);
        both.0.signal_on(&raw(other), 1).unwrap();
        both.1.signal_on(&raw(other), 1).unwrap();
        let data = (&raw const both).cast_mut().cast();
        assert_eq!(driver.cuLaunchHostFunc(stream, call, data), SUCCESS);
        both.0.wait(2, LONG).unwrap();
        assert_eq!(code_of(both.1.wait(1, LONG)), Code(1));
        assert_eq!(driver.stub_misuse(), 0, "driver calls of host functions");
        both.0.signal_on(&raw(other), 3).unwrap();
        assert_eq!(driver.cuLaunchHostFunc(stream, ask, data), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
        driver.stub_release(hold);
        both.0.wait(3, LONG).unwrap();
    });
}

#[test]
fn events_are_used_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (from, to) = (raw(driver.stream()), raw(driver.stream()));
        let semaphore = Semaphore::new(0);
        for value in 1..=2_000 {
            semaphore.signal_on(&from, value).unwrap();
            semaphore.wait_on(&to, value).unwrap();
        }
        semaphore.wait(2_000, LONG).unwrap();
        assert!(driver.stub_peak_events() < 400, "{} events", driver.stub_peak_events());
        for value in 1..=200 {
            let brief = Semaphore::new(0);
            brief.signal_on(&from, value).unwrap();
        }
        assert!(driver.stub_peak_events() < 400, "{} events", driver.stub_peak_events());
    });
}

/// Signals `count` values while the device hangs, so that each takes an event of its own, and returns when all are reached.
fn signal_at_once(driver: &Stub, stream: Handle, count: u64) {
    let semaphore = Semaphore::new(0);
    let hold = driver.stub_hold(stream);
    (1..=count).for_each(|value| semaphore.signal_on(&raw(stream), value).unwrap());
    driver.stub_release(hold);
    semaphore.wait(count, Duration::from_secs(5)).unwrap();
}

#[test]
fn the_report_says_what_signals_needed_and_a_capacity_bounds_the_free_events() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let start = |builder: fn(warpline::SessionBuilder) -> warpline::SessionBuilder| {
            builder(warpline::Session::builder()).sink(warpline::sink::MemorySink::new(1)).start().unwrap()
        };
        let session = start(|builder| builder);
        signal_at_once(driver, stream, 100);
        let report = session.finish();
        let pool = report.event_pool;
        assert_eq!((pool.held, pool.created, pool.exhausted), (112, 112, 7), "{report}");
        assert!(
            report
                .to_string()
                .contains("timelines hold 112 events, 112 created: 7 times no event was free for a signal"),
            "{report}"
        );
        // The next session needs no more, and its report counts its own alone.
        let session = start(|builder| builder);
        signal_at_once(driver, stream, 100);
        let report = session.finish();
        assert_eq!((report.event_pool.held, report.event_pool.created, report.event_pool.exhausted), (112, 0, 0));
        assert!(!report.to_string().contains("timelines hold"), "{report}");

        // The setting holds for the process, also after its session. The sessions themselves destroy the events of their clocks.
        start(|builder| builder.event_pool_capacity(8)).finish();
        let before = driver.calls("cuEventDestroy_v2");
        assert_eq!(driver.stub_live_events(), 112);
        signal_at_once(driver, stream, 40);
        let semaphore = Semaphore::new(0);
        for value in 1..=20 {
            semaphore.signal_on(&raw(stream), value).unwrap();
            semaphore.wait(value, Duration::from_secs(5)).unwrap();
        }
        let (live, destroyed) = (driver.stub_live_events(), driver.calls("cuEventDestroy_v2") - before);
        // The pool's own, and those that this thread has kept since before, and is using.
        assert!(live <= 8 + 32 + 1, "{live}");
        let pool = start(|builder| builder).finish().event_pool;
        assert_eq!((pool.held, driver.stub_live_events()), (live, live));
        assert!(destroyed >= 112 - live, "what is gone was destroyed");
        // A burst behind it creates no more at a time than the pool keeps beside the one that is used.
        signal_at_once(driver, stream, 100);
        assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses()), (0, 0));
    });
}

#[test]
fn a_queue_brings_together_what_streams_of_two_kinds_cannot() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (host, cuda) = (HostStream::new("loader"), driver.stream());
        let (loaded, done) = (Semaphore::named("loaded", 0), Semaphore::new(0));
        let (go, wait) = mpsc::channel::<()>();
        host.launch(move || wait.recv().unwrap_or_default());
        loaded.signal_on(&host, 1).unwrap();
        let text = loaded.wait_on(&raw(cuda), 1).expect_err("two kinds").to_string();
        assert!(text.contains("timeline::Queue"), "{text}");
        let queue = Queue::new("upload", raw(cuda)).unwrap();
        queue.barrier(&[(&loaded, 1)], &[(&done, 1)]).unwrap();
        assert_eq!(queue.flush(), 1);
        drop(go);
        done.wait(1, LONG).unwrap();
    });
}

#[test]
fn work_has_its_streams_context_current() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (queue, done) = (Queue::new("work", Driver(leaked()).stream()).unwrap(), Semaphore::new(0));
        let (sent, got) = mpsc::channel();
        queue.submit(&[], &[(&done, 1)], move |stream| Ok(sent.send(stream.driver.current())?)).unwrap();
        done.wait(1, LONG).unwrap();
        assert_eq!(got.recv().unwrap(), context);
    });
}

#[test]
fn without_a_driver_a_signal_is_an_error_with_a_remedy() {
    in_child(this_test!(), driver::Driver::Unloadable, || {
        let error = Semaphore::new(0).signal_on(&raw(64), 1).expect_err("there is no driver").to_string();
        assert!(error.contains("there is no CUDA driver") && error.contains("install one"), "{error}");
    });
}
