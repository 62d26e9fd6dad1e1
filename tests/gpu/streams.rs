//! What a mark takes as its stream on a real GPU: a cuBLAS handle, an optional stream, default streams of threads, and the
//! stream that a graph was captured on. Streams that are dropped under their zones, and a capturing stream of two threads.

use std::collections::BTreeSet;
use std::sync::Arc;

use cudarc::cublas::CudaBlas;
use cudarc::driver::sys::CUgraphInstantiate_flags;
use cudarc::driver::{CudaGraph, CudaStream, DriverError};
use warpline::graph::GraphZones;
use warpline::record::ZoneRecord;
use warpline::{RawStream, gpu_zone, name_stream};
use warpline_tests::alone;

use super::captured::{RELAXED, THREAD_LOCAL};
use super::{US, all_recorded, assert_exact, device, gpu_ns, memory};

const FREED: CUgraphInstantiate_flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

warpline::range! {
    HELD = "cuda_tests.stream_held": "Work on the stream of a handle.";
    STEP = "cuda_tests.stream_step": "What a graph captures.";
}

fn stream_of(zone: &ZoneRecord) -> (u32, &str) {
    let stream = zone.stream.as_ref().expect("on a stream");
    (stream.id, &stream.name)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_cublas_handle_is_the_stream_that_it_works_on() {
    let _turn = alone();
    let gpu = device();
    let (first, second) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let mut blas = CudaBlas::new(Arc::clone(&first)).map(Arc::new).expect("cuBLAS is installed");
    let (session, zones) = memory();
    for stream in [&first, &second] {
        let only = Arc::get_mut(&mut blas).expect("a zone that has ended keeps nothing");
        // SAFETY: nothing is multiplied.
        unsafe { only.set_stream(Arc::clone(stream)) }.expect("cuBLAS takes the stream");
        for work in 0..2 {
            let _zone = if work == 0 { HELD.zone(stream) } else { HELD.zone(&blas) };
            gpu.spin(stream, 100 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
    }
    all_recorded(session, 4);
    // Records are in order on each stream alone.
    let mut zones = zones.take();
    zones.sort_by_key(|zone| zone.host.begin_ns);
    assert!(zones.iter().all(|zone| gpu_ns(zone) >= 100 * US as i64), "{zones:?}");
    let streams: Vec<_> = zones.iter().map(|zone| stream_of(zone).0).collect();
    let [a, b, c, d] = streams[..] else { panic!("four zones: {zones:?}") };
    assert!(a == b && c == d && a != c, "the handle's stream is the one that it was given: {streams:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cudarcs_streams_have_the_names_that_the_application_gives() {
    let _turn = alone();
    let gpu = device();
    let (copy, compute) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    // SAFETY: `compute` outlives the zones.
    let handle = unsafe { RawStream::from_ptr(compute.cu_stream().cast()) };
    assert!(name_stream(&copy, "copy") && name_stream(&handle, "compute"));
    compute.begin_capture(THREAD_LOCAL).expect("it begins");
    assert!(!name_stream(&compute, "captured"));
    compute.end_capture(FREED).expect("the capture holds");
    let (session, zones) = memory();
    for stream in [&copy, &compute] {
        let _zone = HELD.zone(stream);
        gpu.spin(stream, 100 * US, None).expect("launched");
    }
    gpu.context.synchronize().expect("no error");
    all_recorded(session, 2);
    let zones = zones.take();
    let names: BTreeSet<_> = zones.iter().map(|zone| stream_of(zone).1).collect();
    assert_eq!(names, ["compute", "copy"].into());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_cublas_handle_on_a_stream_that_captures_labels_the_graph() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let blas = CudaBlas::new(Arc::clone(&stream)).map(Arc::new).expect("cuBLAS is installed");
    let (session, _zones) = memory();
    stream.begin_capture(THREAD_LOCAL).expect("it begins");
    {
        let _zone = HELD.zone(&blas);
        gpu.null(&stream).expect("captured");
    }
    let graph = stream.end_capture(FREED).expect("the capture holds").expect("a graph");
    let zones = GraphZones::for_graph(&graph).expect("the driver tells the nodes");
    let held: Vec<_> = zones.nodes().map(|node| node.zones.len()).collect();
    assert_eq!(held, [1]);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.captured), (1, 1), "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_zone_on_a_stream_that_is_not_there_has_the_threads_time_alone() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, zones) = memory();
    for there in [Some(&stream), None] {
        let _zone = HELD.zone(&there);
        gpu.spin(&stream, 100 * US, None).expect("launched");
    }
    stream.synchronize().expect("no error");
    all_recorded(session, 2);
    let zones = zones.take();
    let on: Vec<_> = zones.iter().filter(|zone| zone.stream.is_some() && zone.gpu.is_some()).collect();
    let off: Vec<_> = zones.iter().filter(|zone| zone.stream.is_none() && zone.gpu.is_none()).collect();
    assert_eq!((on.len(), off.len()), (1, 1), "{zones:?}");
    assert!(gpu_ns(on[0]) >= 100 * US as i64, "{on:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn per_thread_default_streams_carry_their_threads_names() {
    let _turn = alone();
    let gpu = device();
    let (session, zones) = memory();
    let stream = gpu.context.per_thread_stream();
    std::thread::scope(|scope| {
        for name in ["loader", "trainer"] {
            let work = || {
                gpu.context.bind_to_thread().expect("the context lives");
                let zone = HELD.zone(&stream);
                gpu.spin(&stream, 100 * US, None).expect("launched");
                drop(zone);
                stream.synchronize().expect("no error");
            };
            std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).expect("a thread");
        }
    });
    all_recorded(session, 2);
    let zones = zones.take();
    let names: BTreeSet<_> = zones.iter().map(|zone| stream_of(zone).1).collect();
    assert_eq!(names, ["per-thread default stream of loader", "per-thread default stream of trainer"].into());
}

/// As docs/graphs.md has it: cudarc keeps a graph's stream private, so the mark is given the one that it was captured on.
#[gpu_zone("cuda_tests.stream_replay")]
fn replay(stream: &Arc<CudaStream>, graph: &CudaGraph) -> Result<(), DriverError> {
    graph.launch()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_of_cudarcs_memory_holds_without_event_tracking() {
    let _turn = alone();
    let gpu = device(); // without event tracking
    let stream = gpu.stream().expect("a stream");
    let mut numbers = stream.clone_htod(&[1_u32; 1_024]).expect("copied");
    let (session, zones) = memory();
    stream.begin_capture(THREAD_LOCAL).expect("it begins");
    {
        let _zone = STEP.zone(&stream);
        stream.memset_zeros(&mut numbers).expect("captured");
        gpu.spin(&stream, 100 * US, None).expect("captured");
    }
    let graph = stream.end_capture(FREED).expect("the capture holds").expect("a graph");
    assert_eq!(GraphZones::for_graph(&graph).expect("the driver tells the nodes").nodes().count(), 2);
    replay(&stream, &graph).expect("launched");
    assert_eq!(stream.clone_dtoh(&numbers).expect("copied"), [0; 1_024]);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.captured, report.recorded), (2, 1, 1), "{report}");
    let zones = zones.take();
    assert_eq!(zones[0].range.name(), "cuda_tests.stream_replay");
    assert!(gpu_ns(&zones[0]) >= 100 * US as i64, "the replay is in the zone: {zones:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_stream_may_be_dropped_while_zones_on_it_are_open() {
    let _turn = alone();
    let gpu = device();
    let (session, zones) = memory();
    let begin = || {
        let stream = gpu.stream().expect("a stream");
        let blas = CudaBlas::new(Arc::clone(&stream)).map(Arc::new).expect("cuBLAS is installed");
        let open = [HELD.async_zone(&stream), STEP.async_zone(&blas)];
        gpu.spin(&stream, 100 * US, None).expect("launched");
        open
    };
    drop(begin());
    // The thread that ends them has no context current, and has none behind that.
    let open = begin();
    std::thread::spawn(|| drop(open)).join().expect("no panic");
    gpu.context.synchronize().expect("nothing of it is an error");
    all_recorded(session, 4);
    let zones = zones.take();
    assert!(zones.iter().all(|zone| gpu_ns(zone) >= 100 * US as i64), "{zones:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_threads_may_use_one_capturing_stream() {
    const ROUNDS: u64 = 5_000;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    stream.begin_capture(RELAXED).expect("it begins");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                gpu.context.bind_to_thread().expect("the context lives");
                for _ in 0..ROUNDS {
                    let _zone = STEP.zone(&stream);
                    gpu.null(&stream).expect("captured");
                }
            });
        }
    });
    let graph = stream.end_capture(FREED).expect("the capture holds").expect("a graph");
    let zones = GraphZones::for_graph(&graph).expect("the driver tells the nodes");
    assert_eq!(zones.nodes().count() as u64, 2 * ROUNDS);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.begun, 2 * ROUNDS, "{report}");
    assert_eq!(report.captured + report.dropped.capture_failed, report.begun, "{report}");
    // Each of them is asked for again until two answers agree, which the other thread rarely prevents so often.
    assert!(report.captured > ROUNDS, "{report}");
}
