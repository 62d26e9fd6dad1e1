//! Kernels of a session, on the stub CUPTI: which zone each belongs to, that what CUPTI says arrives whole, and that
//! what is lost is counted. Kernels of graphs are in `replays`; when CUPTI is on, off and not to be had, in `library`.

mod buffers;
mod calls;
mod library;
mod memory;
mod names;
mod pauses;
mod replays;
mod submissions;
mod syncs;
mod times;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use warpline::Session;
use warpline::record::{KernelRecord, KernelWork, ZoneRecord, ZoneRef};
use warpline::report::Report;
use warpline::sink::{Batch, MemorySink, Sink};
use warpline_tests::{taken, this_test};

use crate::harness::cupti::*;
use crate::harness::driver::{self, Stub};
use crate::harness::zones::{self, assert_exact, boot_ns, raw};

warpline::range! {
    OUTER = "stub.cupti_test.outer": "A step.";
    INNER = "stub.cupti_test.inner": "A part of a step.";
    LAYER = "stub.cupti_test.layer": "A layer.", fields(batch);
    ATTENTION = "stub.cupti_test.attention": "Attention.", lane = "attention";
    REDUCE = "stub.cupti_test.reduce": "Sums over the group.", kind = collective, lane = "comm";
    SUM = "stub.cupti_test.sum": "Sums over the group, on its lane.", kind = collective;
    HOST = "stub.cupti_test.host": "Work of the host.", kind = host;
}

/// A session with kernels, and where its records go.
fn start() -> (Session, MemorySink) {
    zones::start(|builder| builder.kernels(true))
}

/// The zones and the kernels of a session that is over, kernels by correlation.
fn finish(session: Session, sink: &MemorySink) -> (Report, Vec<ZoneRecord>, Vec<KernelRecord>) {
    let report = session.finish();
    assert_exact(&report);
    let mut kernels = sink.take_kernels();
    assert_eq!(kernels.len() as u64, report.kernels.recorded, "{report}");
    kernels.sort_by_key(|kernel| kernel.correlation);
    (report, sink.take(), kernels)
}

fn is_of(zone: Option<ZoneRef>, record: &ZoneRecord) -> bool {
    zone.is_some_and(|zone| {
        std::ptr::eq(zone.range, record.range)
            && zone.sequence == record.sequence
            && zone.stream == record.stream.as_ref().map(|stream| stream.id)
    })
}

#[test]
fn a_kernel_belongs_to_the_innermost_zone_of_its_thread() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (one, other) = (driver.stream(), driver.stream());
        cupti.launch(kernel(c"before"));
        for _ in 0..3 {
            let _outer = OUTER.zone(&raw(one));
            cupti.launch(kernel(c"in_outer"));
            {
                let _inner = INNER.zone(&raw(other));
                cupti.launch(kernel(c"in_inner"));
            }
            cupti.launch(kernel(c"in_outer"));
            // Another thread is in no zone.
            thread::scope(|scope| {
                scope.spawn(|| cupti.launch(kernel(c"elsewhere")));
            });
        }
        {
            let _host = HOST.host();
            cupti.launch(kernel(c"in_host"));
        }
        cupti.launch(kernel(c"after"));
        let (_, zones, kernels) = finish(session, &sink);
        assert_eq!(kernels.len(), 3 * 4 + 3);
        let of = |name: &str| kernels.iter().filter(|kernel| &*kernel.name == name).collect::<Vec<_>>();
        for free in ["before", "elsewhere", "after"] {
            assert!(of(free).iter().all(|kernel| kernel.zone.is_none()), "{free}");
        }
        for (range, name, each) in [(&OUTER, "in_outer", 2), (&INNER, "in_inner", 1), (&HOST, "in_host", 1)] {
            let mut marked: Vec<_> = zones.iter().filter(|zone| std::ptr::eq(zone.range, range)).collect();
            marked.sort_by_key(|zone| zone.sequence);
            let kernels = of(name);
            assert_eq!(kernels.len(), marked.len() * each);
            for (zone, kernels) in marked.into_iter().zip(kernels.chunks(each)) {
                assert!(kernels.iter().all(|kernel| is_of(kernel.zone, zone)), "{kernels:?} are not of {zone:?}");
            }
        }
        assert_eq!(cupti.stub_cupti_depth(), 0);
    });
}

#[test]
fn the_stack_of_zones_stays_balanced_however_zones_end() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        // The outer one ends first.
        let outer = OUTER.zone(&raw(stream));
        let inner = INNER.zone(&raw(stream));
        drop(outer);
        let in_inner = cupti.launch(kernel(c"k"));
        drop(inner);
        assert_eq!(cupti.stub_cupti_depth(), 0);
        let free = cupti.launch(kernel(c"k"));
        // A panic.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _outer = OUTER.zone(&raw(stream));
            let _inner = INNER.zone(&raw(stream));
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(cupti.stub_cupti_depth(), 0);
        // A zone that ends on another thread says nothing of launches.
        let moving = OUTER.async_zone(&raw(stream));
        let in_moving = cupti.launch(kernel(c"k"));
        thread::spawn(move || drop(moving)).join().unwrap();
        // A zone that is never ended stays open; what comes after it has its own kernels.
        let outer = OUTER.zone(&raw(stream));
        std::mem::forget(INNER.zone(&raw(stream)));
        drop(outer);
        let next = OUTER.zone(&raw(stream));
        let in_next = cupti.launch(kernel(c"k"));
        drop(next);
        let (_, _, kernels) = finish(session, &sink);
        let range = |correlation: u32| {
            let kernel = kernels.iter().find(|kernel| kernel.correlation == correlation).expect("the kernel");
            kernel.zone.map(|zone| zone.range.name())
        };
        assert_eq!(range(in_inner), Some("stub.cupti_test.inner"));
        assert_eq!((range(free), range(in_moving)), (None, None));
        assert_eq!(range(in_next), Some("stub.cupti_test.outer"));
    });
}

#[test]
fn what_cupti_says_of_kernels_copies_and_sets_arrives_whole() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // CUDA 12.0, 12.9, 13.0, 13.1, 13.5: their records differ in length.
        for version in [18, 28, 130_001, 130_100, 130_500] {
            cupti.stub_cupti_version(version);
            let (session, sink) = start();
            let now_ns = boot_ns().cast_unsigned();
            let time = |launch: Launch, us: u64| Launch {
                begin_ns: now_ns + us * 1_000,
                end_ns: now_ns + us * 1_000 + 1_600,
                ..launch
            };
            let node = |launch: Launch| Launch { graph: 9, node: 9 << 32 | 3, ..launch };
            let of = |kind, bytes| Launch { kind, bytes, ..kernel(c"") };
            cupti.launch(time(kernel(c"_Z4gemmPf"), 10));
            cupti.launch(time(node(kernel(c"_Z4gemmPf")), 20));
            cupti.launch(time(of(MEMCPY, 16_000), 30));
            cupti.launch(time(node(of(MEMCPY2, 32_000)), 40));
            cupti.launch(time(of(MEMSET, 64), 50));
            let (report, _, kernels) = finish(session, &sink);
            assert_eq!((kernels.len(), report.kernels.lost()), (5, 0), "{version}: {report}");
            let names: Vec<_> = kernels.iter().map(|kernel| &*kernel.name).collect();
            let copies = ["Memcpy HtoD (Pinned -> Device)", "Memcpy PtoP (Device -> Device)", "Memset (Device)"];
            assert_eq!(names, ["gemm(float*)", "gemm(float*)", copies[0], copies[1], copies[2]]);
            let gemm = KernelWork::Kernel {
                grid: [8, 4, 2],
                block: [128, 2, 1],
                registers_per_thread: 40,
                static_shared_bytes: 1_024,
                dynamic_shared_bytes: 2_048,
            };
            assert_eq!((&kernels[0].work, &kernels[1].work), (&gemm, &gemm));
            let bytes: Vec<_> = kernels.iter().map(|kernel| kernel.work.bytes()).collect();
            assert_eq!(bytes, [None, None, Some(16_000), Some(32_000), Some(64)]);
            assert_eq!(kernels[2].bytes_per_second(), Some(1e10));
            for (index, kernel) in kernels.iter().enumerate() {
                assert_eq!((kernel.context, kernel.cuda_stream, kernel.duration_ns()), (1, 7, 1_600), "{kernel:?}");
                let wanted_ns = (now_ns + (index as u64 + 1) * 10_000).cast_signed();
                let off_ns = kernel.gpu.begin_ns - wanted_ns;
                assert!(off_ns.abs() < 1_000_000, "{version}: {index} is {off_ns} ns off");
                let graph = kernel.graph.map(|node| (node.graph, node.node));
                assert_eq!(graph, (index == 1 || index == 3).then_some((9, 9 << 32 | 3)), "{version}: {kernel:?}");
                let launch = kernel.launch.as_ref().expect("CUPTI has reported the call");
                assert_eq!((launch.thread.id, launch.host.duration_ns()), (driver::tid() as u64, 3_000));
            }
        }
    });
}

#[test]
fn kernels_stand_on_the_stream_of_the_zones() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (marked, late) = (driver.stream(), driver.stream());
        let on = |stream| Launch { stream: number(stream), ..kernel(c"k") };
        drop(OUTER.zone(&raw(marked)));
        let first = cupti.launch(on(marked));
        let second = cupti.launch(on(late));
        let third = cupti.launch(Launch { stream: 3, ..kernel(c"k") });
        drop(HOST.zone(&raw(driver::LEGACY)));
        let fourth = cupti.launch(Launch { stream: 0, ..kernel(c"k") });
        // Until the kernels have arrived: then a zone begins on a stream that only CUPTI has seen.
        let mut kernels = taken(4, || sink.take_kernels());
        drop(INNER.zone(&raw(late)));
        driver.cuStreamSynchronize(late);
        let report = session.finish();
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (4, 0), "{report}");
        let zones = sink.take();
        kernels.sort_by_key(|kernel| kernel.correlation);
        let stream = |correlation: u32| {
            &kernels.iter().find(|kernel| kernel.correlation == correlation).expect("the kernel").stream
        };
        let of_zone =
            |range| zones.iter().find(|zone| std::ptr::eq(zone.range, range)).and_then(|zone| zone.stream.clone());
        assert_eq!(of_zone(&OUTER).as_ref(), Some(stream(first)));
        assert_eq!(of_zone(&INNER).as_ref(), Some(stream(second)));
        assert_eq!((of_zone(&HOST).as_ref(), &*stream(fourth).name), (Some(stream(fourth)), "default stream"));
        assert_eq!(stream(third).name, "CUDA stream 3");
        assert_eq!(stream(third).device, stream(first).device);
    });
}

#[test]
fn a_kernel_that_still_runs_at_the_end_is_counted() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        cupti.launch(kernel(c"done"));
        cupti.launch(Launch { is_pending: 1, ..kernel(c"running") });
        // What CUPTI could not take a time of.
        cupti.launch(Launch { begin_ns: 0, end_ns: 0, ..kernel(c"untimed") });
        let (report, _, kernels) = finish(session, &sink);
        assert_eq!((kernels.len(), report.kernels.untimed, report.kernels.dropped), (1, 2, 0), "{report}");
        assert!(report.to_string().contains("1 kernel or copy recorded, 0 dropped by CUPTI, 2 without a time"));
    });
}

/// A sink that does not return before it may.
struct Slow {
    kernels: u64,
    is_in: mpsc::Sender<()>,
    may_go: mpsc::Receiver<()>,
}

impl Sink for Slow {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Batch::Kernels(batch) = batch else { return Ok(()) };
        if self.kernels == 0 {
            self.is_in.send(()).expect("the test waits");
            let _ = self.may_go.recv();
        }
        self.kernels += batch.len() as u64;
        Ok(())
    }
}

#[test]
fn memory_is_bounded_and_what_is_dropped_is_counted() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (is_in, waits) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let slow = Slow { kernels: 0, is_in, may_go };
        let session = Session::builder().kernels(true).sink(slow).finish_timeout(Duration::from_secs(60));
        let session = session.start().expect("no other session");
        cupti.launch(kernel(c"first"));
        waits.recv().expect("the sink is called");
        // 64 buffers of 1 MiB hold fewer.
        const MANY: u64 = 300_000;
        for _ in 0..MANY {
            cupti.launch(kernel(c"k"));
        }
        go.send(()).expect("the sink waits");
        let report = session.finish();
        let kernels = report.kernels;
        assert_eq!(kernels.recorded + kernels.lost(), MANY + 1, "{report}");
        assert!(kernels.dropped > 10_000 && kernels.buffers_refused > 0, "{report}");
        assert!(report.to_string().contains("times there was no buffer left"), "{report}");
        assert!(cupti.stub_cupti_most_lent() <= 64);
    });
}

#[test]
fn a_session_that_starts_and_ends_leaves_the_captures_of_other_threads_whole() {
    /// As the CUPTI of a driver may: a question that breaks a capture, unless the thread that asks has said otherwise.
    extern "C" fn ask() {
        static STUB: LazyLock<Stub> = LazyLock::new(Stub::load);
        STUB.cuEventQuery(EVENT.load(Ordering::Relaxed));
    }
    static EVENT: AtomicUsize = AtomicUsize::new(0);
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        EVENT.store(driver.record(stream), Ordering::Relaxed);
        cupti.stub_cupti_asks(ask);
        for is_refused in [false, true] {
            cupti.fail("cuptiActivityEnable", i32::from(is_refused));
            let questions = driver.calls("cuEventQuery");
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, driver::GLOBAL), driver::SUCCESS);
            let (session, modes) = thread::scope(|scope| {
                let session = scope.spawn(|| {
                    let (session, _sink) = start();
                    // What this thread does from now on is as before.
                    let mut mode = driver::RELAXED;
                    assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut mode), driver::SUCCESS);
                    (session, mode)
                });
                session.join().expect("it starts")
            });
            assert_eq!(modes, driver::GLOBAL);
            let report = session.finish();
            assert_eq!(report.notes.len(), usize::from(is_refused), "{report}");
            let mut graph = 0;
            assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), driver::SUCCESS);
            assert!(driver.calls("cuEventQuery") > questions + 2, "CUPTI was started");
        }
    });
}

#[test]
fn a_kernel_stays_where_it_ran_when_the_clock_is_set_back() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let at = |begin_ns, name| Launch { begin_ns, end_ns: begin_ns + 10_000, ..kernel(name) };
        // It is told of when the clock has been set, and the clocks have been compared since.
        let before_ns = boot_ns().cast_unsigned();
        cupti.launch(Launch { is_pending: 1, ..at(before_ns, c"before") });
        cupti.stub_cupti_set_back(10_000_000_000);
        let looks = cupti.calls("cuptiGetTimestamp");
        let since = Instant::now();
        while cupti.calls("cuptiGetTimestamp") < looks + 10 {
            assert!(since.elapsed() < Duration::from_secs(10), "the clocks are not compared");
            thread::sleep(Duration::from_millis(1));
        }
        let after_ns = boot_ns().cast_unsigned();
        cupti.launch(at(after_ns, c"after"));
        cupti.stub_cupti_complete();
        let (_, _, kernels) = finish(session, &sink);
        let begins: Vec<_> = kernels.iter().map(|kernel| kernel.gpu.begin_ns.cast_unsigned()).collect();
        assert!(begins[0].abs_diff(before_ns) < 100_000_000, "{begins:?}, and began at {before_ns}");
        assert!(begins[1].abs_diff(after_ns) < 100_000_000, "{begins:?}, and began at {after_ns}");
    });
}
