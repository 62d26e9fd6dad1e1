//! Zones on CUDA streams, on a real GPU: kinds of streams, threads, captures, lengths and a kernel that hangs; the rest in rooms
//! of their own. `cargo xtask gpu` packs these for a host with a driver.
//!
//! Here: `cargo test -p warpline-tests --features gpu --test gpu -- --ignored --test-threads=1`

#[macro_use]
#[path = "../support/timelines/mod.rs"]
mod timelines;

mod arrows;
mod begin;
mod block;
mod captured;
#[path = "../support/child.rs"]
mod child;
mod collectives;
mod collectives_graphed;
mod conditional;
mod contexts;
mod cupti;
mod ends;
mod flight;
mod graphs;
mod kernel_timing;
mod live;
mod memory;
mod memory_cupti;
mod nvtx;
mod replays;
mod stamps;
mod streams;
mod timeline;
#[path = "../support/told.rs"]
mod told;
#[path = "../support/trace.rs"]
mod trace;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, result, sys};
use gpu::{Gpu, Pinned};
use warpline::record::{DeviceKind, EndSource, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::EndMode;
use warpline::{AsStream, RawStream, Session, SessionBuilder};
use warpline_tests::{again, alone, resident_bytes};

warpline::namespace!("cuda_tests", "zones that the GPU tests make");

warpline::range! {
    MEET = "cuda_tests.meet": "The zone by which a session meets a stream.";
    OUTER = "cuda_tests.outer": "A zone around others.";
    INNER = "cuda_tests.inner": "A zone in another.";
    KERNEL = "cuda_tests.kernel": "A zone around one kernel.";
    HUNG = "cuda_tests.hung": "A zone around a kernel that does not end.";
    BAD = "cuda_tests.bad": "A zone around a kernel with an illegal access.";
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// One device context for all tests, current on the thread that asks.
fn device() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let gpu = GPU.get_or_init(|| Gpu::new(0).expect("these tests need a GPU"));
    gpu.context.bind_to_thread().expect("the context lives");
    gpu
}

fn start(builder: SessionBuilder) -> (Session, MemorySink) {
    let zones = MemorySink::new(200_000);
    let session = builder.sink(zones.clone()).start().expect("no other session");
    (session, zones)
}

fn memory() -> (Session, MemorySink) {
    start(Session::builder())
}

/// Ends the session; the account must be exact, and all zones recorded.
fn all_recorded(session: Session, zones: u64) -> Report {
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded), (zones, zones), "{report}");
    report
}

fn assert_exact(report: &Report) {
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
}

/// The notes of a report, without those that say what CUPTI costs where a graph is launched under it.
fn notes(report: &Report) -> Vec<&String> {
    let is_of_graphs = |note: &&String| note.contains("of CUDA graphs took") || note.contains("a graph was launched");
    report.notes.iter().filter(|note| !is_of_graphs(note)).collect()
}

/// Makes the session meet the stream, and waits until it has chosen how ends are found.
fn meet(gpu: &Gpu, stream: &Arc<CudaStream>) {
    drop(MEET.zone(stream));
    gpu.context.synchronize().expect("no error");
    std::thread::sleep(Duration::from_millis(60));
}

/// Resident memory of this process and memory in use on the device, in bytes; without what the allocator only keeps.
fn memory_in_use(gpu: &Gpu) -> (u64, usize) {
    // SAFETY: it gives free memory back to the system, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
    (resident_bytes(), gpu.memory_in_use().expect("the driver answers"))
}

/// The memory that was in use has grown by less than so many bytes.
fn assert_flat(gpu: &Gpu, before: (u64, usize), resident: u64, device: usize) {
    let after = memory_in_use(gpu);
    assert!(after.0 < before.0 + resident, "resident memory went from {} to {} bytes", before.0, after.0);
    assert!(after.1 < before.1 + device, "device memory went from {} to {} bytes", before.1, after.1);
}

fn gpu_ns(zone: &ZoneRecord) -> i64 {
    zone.gpu_ns().expect("a zone on a stream has GPU times")
}

fn handle(stream: &Arc<CudaStream>) -> *mut c_void {
    stream.cu_stream().cast()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_zone_on_an_idle_stream_says_what_it_waited_for_its_launch() {
    const PREPARATION: Duration = Duration::from_micros(500);
    let _turn = alone();
    let gpu = device();
    let (session, zones) = start(Session::builder().ends(EndMode::Eager));
    let stream = gpu.stream().expect("a stream");
    meet(gpu, &stream);
    for at_launch in [false, true] {
        let zone = KERNEL.zone(&stream);
        let zone = if at_launch { zone.begin_at_launch() } else { zone };
        let begin = Instant::now();
        while begin.elapsed() < PREPARATION {}
        gpu.spin(&stream, 100 * US, None).expect("launched");
        drop(zone);
        stream.synchronize().expect("no error");
    }
    all_recorded(session, 3);
    let zones = zones.take();
    let [_, whole, launched] = &zones[..] else { panic!("three zones: {zones:?}") };
    let prepared_ns = PREPARATION.as_nanos() as i64;
    // A few µs for the clocks, and for the launch.
    assert!(gpu_ns(whole) >= prepared_ns + 90_000 && whole.launch_wait_ns() >= prepared_ns - 20_000, "{whole:?}");
    // However long the thread was held up between the launch and the end.
    assert!(gpu_ns(launched) <= 160_000 && launched.begin_late_by_ns >= prepared_ns - 20_000, "{launched:?}");
    assert!(gpu_ns(launched) + launched.begin_late_by_ns >= prepared_ns + 90_000, "{launched:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_kind_of_stream_is_timed() {
    let _turn = alone();
    let gpu = device();
    let (session, zones) = memory();
    let own = gpu.stream().expect("a stream");
    let legacy = gpu.context.default_stream();
    let per_thread = gpu.context.per_thread_stream();
    // SAFETY: the stream lives until the end of the test.
    let raw = unsafe { RawStream::from_ptr(handle(&own)) };
    let plain: &Arc<CudaStream> = &own;
    let kinds: [(&dyn AsStream, &Arc<CudaStream>); 6] = [
        (plain, plain),
        (&&own, plain),
        (&raw, plain),
        (&legacy, &legacy),
        (&per_thread, &per_thread),
        (&Box::new(Arc::clone(&own)), plain),
    ];
    for (marked, stream) in kinds {
        {
            let _zone = KERNEL.zone(marked);
            gpu.spin(stream, 100 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
    }
    all_recorded(session, 6);
    let zones = zones.take();
    for zone in &zones {
        assert!(gpu_ns(zone) >= 100 * US as i64, "{zone:?}");
        assert!(zone.host.begin_ns <= zone.gpu.expect("on a stream").end_ns, "{zone:?}");
        assert_eq!(zone.stream.as_ref().expect("on a stream").device.kind, DeviceKind::Cuda);
    }
    let ids: std::collections::BTreeSet<_> = zones.iter().map(|zone| zone.stream.as_ref().map(|s| s.id)).collect();
    assert_eq!(ids.len(), 3, "one stream under four names, and two default streams: {ids:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zones_nest() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for ends in [EndMode::Eager, EndMode::Lazy] {
        let (session, zones) = start(Session::builder().ends(ends));
        {
            let _outer = OUTER.zone(&stream);
            gpu.spin(&stream, 200 * US, None).expect("launched");
            {
                let _inner = INNER.zone(&stream);
                gpu.spin(&stream, 300 * US, None).expect("launched");
            }
            gpu.spin(&stream, 200 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
        all_recorded(session, 2);
        let zones = zones.take();
        let find = |name| zones.iter().find(|zone| zone.range.name() == name).expect("recorded");
        let (outer, inner) = (find("cuda_tests.outer"), find("cuda_tests.inner"));
        let (o, i) = (outer.gpu.expect("timed"), inner.gpu.expect("timed"));
        assert!(o.begin_ns <= i.begin_ns && i.end_ns <= o.end_ns, "{ends:?}: {i:?} in {o:?}");
        assert!(gpu_ns(inner) >= 300 * US as i64 && gpu_ns(outer) >= 700 * US as i64, "{ends:?}: {zones:?}");
        assert_eq!((outer.depth, inner.depth), (0, 1));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_threads_on_one_stream_and_on_two() {
    let _turn = alone();
    let gpu = device();
    let (session, zones) = memory();
    let shared = gpu.stream().expect("a stream");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let gpu = device();
                let own = gpu.stream().expect("a stream");
                for _ in 0..500 {
                    for stream in [&own, &shared] {
                        let _zone = KERNEL.zone(stream);
                        gpu.null(stream).expect("launched");
                    }
                }
                own.synchronize().expect("no error");
            });
        }
    });
    shared.synchronize().expect("no error");
    all_recorded(session, 2_000);
    let mut of_shared: Vec<u64> = Vec::new();
    let zones = zones.take();
    for id in zones.iter().filter_map(|zone| Some(zone.stream.as_ref()?.id)).collect::<std::collections::BTreeSet<_>>()
    {
        let mut sequences: Vec<_> =
            zones.iter().filter(|z| z.stream.as_ref().is_some_and(|s| s.id == id)).map(|z| z.sequence).collect();
        sequences.sort_unstable();
        assert_eq!(sequences, (0..sequences.len() as u64).collect::<Vec<_>>(), "no number twice, none missing");
        if sequences.len() == 1_000 {
            of_shared = sequences;
        }
    }
    assert_eq!(of_shared.len(), 1_000, "both threads' zones are on the shared stream");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn streams_come_and_go() {
    let _turn = alone();
    let gpu = device();
    let round = |count: u64| {
        let (session, _zones) = memory();
        for n in 0..count {
            let stream = gpu.stream().expect("a stream");
            {
                let _zone = KERNEL.zone(&stream);
                gpu.null(&stream).expect("launched");
            }
            if n % 64 == 0 {
                gpu.context.synchronize().expect("no error");
            }
        }
        gpu.context.synchronize().expect("no error");
        all_recorded(session, count);
    };
    round(10_000); // the driver's own caches fill
    let before = memory_in_use(gpu);
    round(10_000);
    assert_flat(gpu, before, 48 << 20, 32 << 20);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_is_left_as_it_is() {
    let _turn = alone();
    let gpu = device();
    let (stream, busy) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let unmarked = capture(&stream, || gpu.null(&stream).expect("captured"));
    let (session, _zones) = memory();
    // The collector looks at this stream all the while: what it asks must not break a capture on this thread.
    for _ in 0..50 {
        {
            let _zone = KERNEL.zone(&busy);
            gpu.spin(&busy, 2 * MS, None).expect("launched");
        }
        let marked = capture(&stream, || {
            let _zone = KERNEL.zone(&stream);
            gpu.null(&stream).expect("captured");
            std::thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(marked, unmarked, "nodes of the graph");
    }
    busy.synchronize().expect("no error");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, report.captured), (50, 50 * CAPTURED as u64), "{report}");
}

/// How often a capture does its work.
const CAPTURED: usize = 3;

/// Captures `work`, some times over, in the strictest mode, and counts the nodes.
fn capture(stream: &Arc<CudaStream>, work: impl Fn()) -> usize {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream lives, and is this thread's.
    unsafe { result::stream::begin_capture(stream.cu_stream(), mode) }.expect("the capture begins");
    (0..CAPTURED).for_each(|_| work());
    // SAFETY: as above.
    let graph = unsafe { result::stream::end_capture(stream.cu_stream()) }.expect("the capture succeeds");
    let mut nodes = 0;
    // SAFETY: the graph is the one that was just made; without an array the call only counts.
    unsafe {
        sys::cuGraphGetNodes(graph, ptr::null_mut(), &mut nodes).result().expect("the driver answers");
        result::graph::destroy(graph).expect("the driver answers");
    }
    nodes
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn finish_does_not_wait_for_a_hung_kernel() {
    let _turn = alone();
    let gpu = device();
    let (hung, well) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let flag = Pinned::new(1).expect("memory");
    let (session, zones) = start(Session::builder().finish_timeout(Duration::from_secs(1)));
    for _ in 0..100 {
        let _zone = KERNEL.zone(&well);
        gpu.null(&well).expect("launched");
    }
    {
        let _zone = HUNG.zone(&hung);
        gpu.hang(&hung, flag.as_ptr()).expect("launched");
    }
    well.synchronize().expect("no error");
    let begin = Instant::now();
    let report = session.finish();
    let waited = begin.elapsed();
    // SAFETY: pinned memory that lives; the kernel reads it.
    unsafe { ptr::write_volatile(flag.as_ptr(), 1) };
    hung.synchronize().expect("the kernel ends now");
    assert!(waited < Duration::from_secs(2), "finish took {waited:?}");
    assert_exact(&report);
    assert_eq!((report.recorded, report.dropped.unfinished), (100, 1), "{report}");
    assert!(report.to_string().contains("cuda_tests.hung"), "the report names the zone that is open: {report}");
    assert_eq!(zones.take().len(), 100);
    // The next session is well.
    let (session, _zones) = memory();
    drop(KERNEL.zone(&hung));
    hung.synchronize().expect("no error");
    all_recorded(session, 1);
}

const CHILD: &str = "WARPLINE_TEST_CHILD";

/// Runs one test of this file in a process of its own: what it does to its context is lost with it.
fn child(test: &str, role: &str) -> String {
    child_with(test, role, &[])
}

/// The same, with these variables besides.
fn child_with(test: &str, role: &str, environment: &[(&str, &str)]) -> String {
    let output = again(test, CHILD, role).envs(environment.iter().copied()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    said.lines().filter_map(|line| Some(line.split_once("child: ")?.1)).collect()
}

/// Runs the body in a process of its own, as a process opens CUPTI once, and shows what that says.
fn alone_in_a_process(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let _turn = alone();
    println!("{}", child_with(test, "alone", &[]));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn lengths_are_right() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for (ends, most_us) in [(EndMode::Eager, 106.0), (EndMode::Lazy, 115.0)] {
        let (session, zones) = start(Session::builder().ends(ends));
        meet(gpu, &stream);
        gpu.spin(&stream, MS, None).expect("launched"); // what follows is queued behind it
        for _ in 0..50 {
            let _zone = KERNEL.zone(&stream);
            gpu.spin(&stream, 100 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
        all_recorded(session, 51);
        let mut zones = zones.take();
        zones.retain(|zone| zone.range.name() == "cuda_tests.kernel");
        let mut lengths: Vec<f64> = zones.iter().map(|zone| gpu_ns(zone) as f64 / 1e3).collect();
        lengths.sort_by(f64::total_cmp);
        let median = lengths[25];
        assert!((100.0..most_us).contains(&median), "{ends:?}: a spin of 100 us reads {median} us: {lengths:?}");
        for zone in &zones {
            let (raw, corrected) = (gpu_ns(zone), zone.gpu_ns_corrected().expect("timed"));
            assert!(corrected <= raw, "{zone:?}");
            // The events themselves may take 10 us of it.
            let least = raw - zone.end_early_by_ns - 10_000;
            assert!((least..=raw).contains(&100_000), "{ends:?}: 100 us are not in what is promised: {zone:?}");
            let is_event = zone.end == EndSource::Event;
            assert_eq!(is_event, ends == EndMode::Eager, "{zone:?}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn overlap_shows() {
    let _turn = alone();
    let gpu = device();
    let (session, zones) = memory();
    let streams = gpu.streams(2).expect("streams");
    for stream in &streams {
        let _zone = KERNEL.zone(stream);
        gpu.spin(stream, 10 * MS, None).expect("launched");
    }
    gpu.context.synchronize().expect("no error");
    all_recorded(session, 2);
    let spans: Vec<_> = zones.take().iter().map(|zone| zone.gpu.expect("timed")).collect();
    let common = spans[0].end_ns.min(spans[1].end_ns) - spans[0].begin_ns.max(spans[1].begin_ns);
    assert!(common >= 8 * MS as i64, "two kernels of 10 ms beside each other share {common} ns: {spans:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_hundred_sessions_leave_nothing_behind() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let mut before = (0, 0);
    for cycle in 0..110 {
        if cycle == 10 {
            before = memory_in_use(gpu);
        }
        let (session, _zones) = memory();
        for _ in 0..20 {
            let _zone = KERNEL.zone(&stream);
            gpu.null(&stream).expect("launched");
        }
        stream.synchronize().expect("no error");
        all_recorded(session, 20);
        drop(KERNEL.zone(&stream)); // nobody records it
    }
    assert_flat(gpu, before, 32 << 20, 16 << 20);
}
