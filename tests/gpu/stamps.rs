//! Replays that stamps time, on a real device: the right zones with plausible lengths, over few and over many replays; captures in every
//! mode unharmed; executable graphs that outlive their session; and what CUPTI says of the same zones.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaStream, sys};
use gpu::{Event, Gpu, Graph, Result};
use warpline::graph::NodeKind;
use warpline::record::{ReplayRecord, ReplayTiming};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::GraphTiming;
use warpline::{RangeSpec, RawStream, Session};
use warpline_tests::alone;

use super::captured::{GLOBAL, RELAXED, THREAD_LOCAL, capture, register, wait, zone};
use super::{MS, US, assert_exact, child_with, device, handle, start};

warpline::range! {
    LAYER = "cuda_tests.stamped_layer": "A layer.";
    ATTENTION = "cuda_tests.stamped_attention": "Attention.", lane = "attention";
    MLP = "cuda_tests.stamped_mlp": "Feed-forward.", lane = "mlp";
}

/// More than a bracket and a few launches within a graph.
const MARGIN_NS: i64 = 15_000;

const BOTH: [GraphTiming; 2] = [GraphTiming::Stamps, GraphTiming::LaunchOrderStamps];

fn stamped() -> (Session, MemorySink) {
    stamped_by(GraphTiming::Stamps)
}

fn stamped_by(timing: GraphTiming) -> (Session, MemorySink) {
    device();
    start(Session::builder().graph_timing(timing))
}

fn replay(graph: &Graph, exec: usize, stream: &Arc<CudaStream>, times: usize) {
    for _ in 0..times {
        graph.launch(exec, stream).expect("launched");
    }
    stream.synchronize().expect("no error");
}

fn lengths(replay: &ReplayRecord) -> Vec<(&'static str, u32, i64)> {
    let length = |of: &warpline::record::ReplayedZone| {
        (of.zone.range.name(), of.kernels, of.zone.gpu_ns_corrected().expect("timed"))
    };
    replay.zones.iter().map(length).collect()
}

/// The lengths of the zones of these ranges, about.
fn assert_lengths(replay: &ReplayRecord, expected: &[(&'static RangeSpec, u32, u64)]) {
    assert_eq!(replay.timed_by, ReplayTiming::Stamps);
    let is = lengths(replay);
    assert_eq!(is.len(), expected.len(), "{is:?}");
    for ((name, kernels, ns), (range, expected, us)) in is.iter().zip(expected) {
        let spin_ns = (us * US) as i64;
        assert_eq!((*name, *kernels), (range.name(), *expected), "{is:?}");
        // CUPTI counts some of a kernel that its spin does not; the bracket is as sure as that.
        assert!((spin_ns - 2_000..spin_ns + MARGIN_NS).contains(ns), "{name} of {us} us: {is:?}");
    }
}

fn assert_all_timed(report: &Report, replays: usize) {
    let counts = report.graph_timing;
    assert_eq!((counts.untimed(), counts.lost, counts.incomplete), (0, 0, 0), "{report}");
    assert_eq!((counts.mixed, counts.unknown, counts.replays), (0, 0, replays as u64), "{report}");
    assert!(super::notes(report).is_empty(), "{report}");
    assert_exact(report);
}

fn layer(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    gpu.null(stream)?;
    let _layer = LAYER.zone(stream).label("layer 0");
    zone(gpu, &ATTENTION, stream, 40)?;
    gpu.spin(stream, 10 * US, None)?;
    zone(gpu, &MLP, stream, 80)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn five_replays_have_their_zones_with_their_lengths() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for timing in BOTH {
        let (session, sink) = stamped_by(timing);
        let graph = capture(&stream, || layer(gpu, &stream));
        let zones = register(&graph, 0);
        let kinds: Vec<_> = zones.nodes().map(|node| node.kind).collect();
        use NodeKind::{Kernel, Stamp};
        assert_eq!(kinds, [Kernel, Stamp, Kernel, Stamp, Kernel, Stamp, Kernel, Stamp], "one for neighbours");
        replay(&graph, 0, &stream, 5);
        let report = session.finish();
        assert_all_timed(&report, 5);
        assert_eq!((report.graph_timing.captured, report.graph_timing.shared), (4, 2), "{report}");
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 5);
        for replay in &replays {
            assert_lengths(replay, &[(&LAYER, 3, 130), (&ATTENTION, 1, 40), (&MLP, 1, 80)]);
            assert_eq!((replay.kernels, replay.graph), (4, zones.number()));
        }
        assert!(replays.windows(2).all(|pair| pair[0].gpu.end_ns <= pair[1].gpu.begin_ns), "{replays:?}");
        println!("{report}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn ten_thousand_replays_are_all_timed_or_counted() {
    const REPLAYS: usize = 10_000;
    const ZONES: usize = 32;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for timing in BOTH {
        let (session, sink) = stamped_by(timing);
        let graph = capture(&stream, || {
            (0..ZONES).try_for_each(|_| {
                let _zone = ATTENTION.zone(&stream);
                gpu.null(&stream)
            })
        });
        let _zones = register(&graph, 0);
        // As fast as the device can: it may be faster than the collector.
        replay(&graph, 0, &stream, REPLAYS);
        let report = session.finish();
        let counts = report.graph_timing;
        println!("{report}");
        let stamps = REPLAYS as u64 * (ZONES as u64 + 1);
        assert_eq!(counts.stamps + counts.lost, stamps, "each is read or counted: {report}");
        assert!(
            counts.replays + counts.lost / (ZONES as u64 + 1) + counts.lost.min(100) + 1 >= REPLAYS as u64,
            "{report}"
        );
        assert_eq!((counts.mixed, sink.take_replays().len() as u64), (0, counts.replays), "{report}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn no_mode_of_capture_is_harmed_by_stamps() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for timing in BOTH {
        let (session, _sink) = stamped_by(timing);
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            for _ in 0..20 {
                let graph = Graph::capture(&stream, mode, || {
                    zone(gpu, &ATTENTION, &stream, 5)?;
                    // The collector has time to look.
                    std::thread::sleep(Duration::from_millis(1));
                    zone(gpu, &MLP, &stream, 5)
                });
                let graph = graph.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                let _zones = register(&graph, 0);
                replay(&graph, 0, &stream, 1);
            }
        }
        assert_all_timed(&session.finish(), 60);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_that_is_broken_between_stamps_is_the_applications_own() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _sink) = stamped();
    for _ in 0..50 {
        let broken = Graph::capture(&stream, GLOBAL, || {
            let _zone = ATTENTION.zone(&stream);
            gpu.null(&stream)?;
            // SAFETY: the stream lives. The driver refuses, and the capture is lost.
            let asked = unsafe { sys::cuStreamQuery(stream.cu_stream()) };
            assert_ne!(asked, sys::CUresult::CUDA_SUCCESS);
            Ok(())
        });
        assert!(broken.is_err());
        let graph = capture(&stream, || zone(gpu, &MLP, &stream, 5));
        let _zones = register(&graph, 0);
        replay(&graph, 0, &stream, 1);
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.graph_timing.replays, report.graph_timing.unknown), (50, 0), "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn forks_are_timed_on_both_streams() {
    let _turn = alone();
    let gpu = device();
    let (one, two) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let events = Event::many(2).expect("events");
    for timing in BOTH {
        let (session, sink) = stamped_by(timing);
        let graph = capture(&one, || {
            gpu.null(&one)?;
            let _layer = LAYER.zone(&one);
            wait(&two, &events[0], &one)?;
            zone(gpu, &ATTENTION, &one, 300)?;
            zone(gpu, &MLP, &two, 100)?;
            wait(&one, &events[1], &two)?;
            gpu.null(&one)
        });
        let _zones = register(&graph, 0);
        replay(&graph, 0, &one, 10);
        assert_all_timed(&session.finish(), 10);
        for replay in sink.take_replays() {
            let mut zones = lengths(&replay);
            zones.sort_unstable();
            let [(_, 1, attention), (_, 3, layer), (_, 1, mlp)] = zones[..] else { panic!("{zones:?}") };
            assert!((298_000..330_000).contains(&attention) && (98_000..130_000).contains(&mlp), "{zones:?}");
            assert!((298_000..350_000).contains(&layer), "they overlap: {zones:?}");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole() {
    let _turn = alone();
    let gpu = device();
    let (main, side) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let events = Event::many(2).expect("events");
    for timing in BOTH {
        let (session, sink) = stamped_by(timing);
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            let graph = Graph::capture(&main, mode, || {
                gpu.null(&main)?;
                wait(&side, &events[0], &main)?;
                // Nothing is ever captured in it.
                drop(LAYER.zone(&side));
                {
                    let _zone = ATTENTION.zone(&side);
                    gpu.spin(&side, 40 * US, None)?;
                    wait(&main, &events[1], &side)?;
                }
                // Behind the join.
                drop(LAYER.zone(&side));
                zone(gpu, &MLP, &main, 80)
            });
            let graph = graph.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            let _zones = register(&graph, 0);
            for _ in 0..5 {
                replay(&graph, 0, &main, 1);
            }
        }
        assert_all_timed(&session.finish(), 15);
        let replays = sink.take_replays();
        for replay in &replays {
            let lengths = lengths(replay);
            let of = |range: &RangeSpec| lengths.iter().find(|zone| zone.0 == range.name()).map_or(0, |zone| zone.2);
            assert!((38_000..70_000).contains(&of(&ATTENTION)) && (78_000..110_000).contains(&of(&MLP)), "{lengths:?}");
        }
        println!("{:?}", replays.first().map(lengths));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn instantiated_updated_and_cloned_graphs_are_timed_as_what_they_are() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = stamped();
    let mut graph = capture(&stream, || zone(gpu, &ATTENTION, &stream, 20));
    let other = capture(&stream, || zone(gpu, &MLP, &stream, 60));
    graph.instantiate().expect("a second one");
    let (zones, others) = (register(&graph, 0), register(&other, 0));
    replay(&graph, 0, &stream, 1);
    replay(&graph, 1, &stream, 1);
    // SAFETY: zero is a value of the structure, which the driver fills in.
    let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
    // SAFETY: both live; a valid out-pointer.
    unsafe { sys::cuGraphExecUpdate_v2(graph.execs[1], other.graph, &mut info) }.result().expect("of one shape");
    replay(&graph, 1, &stream, 1);
    let clone = graph.cloned().expect("a clone");
    replay(&clone, 0, &stream, 1);
    assert_all_timed(&session.finish(), 4);
    let replays = sink.take_replays();
    let graphs: Vec<_> = replays.iter().map(|replay| replay.graph).collect();
    assert_eq!(graphs, [zones.number(), zones.number(), others.number(), zones.number()]);
    for (replay, (range, us)) in replays.iter().zip([(&ATTENTION, 20), (&ATTENTION, 20), (&MLP, 60), (&ATTENTION, 20)])
    {
        assert_lengths(replay, &[(range, 1, us)]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_executable_graphs_at_once_are_not_mixed_up() {
    let _turn = alone();
    let gpu = device();
    let (one, two) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let (session, sink) = stamped();
    let mut graph = capture(&one, || {
        zone(gpu, &ATTENTION, &one, 500)?;
        zone(gpu, &MLP, &one, 500)
    });
    graph.instantiate().expect("a second one");
    let _zones = register(&graph, 0);
    replay(&graph, 0, &one, 1);
    for _ in 0..20 {
        graph.launch(0, &one).expect("launched");
        graph.launch(1, &two).expect("launched");
        one.synchronize().expect("no error");
        two.synchronize().expect("no error");
    }
    replay(&graph, 0, &one, 1);
    let report = session.finish();
    println!("{report}");
    let counts = report.graph_timing;
    assert_eq!((counts.replays + counts.mixed, counts.lost, counts.incomplete), (42, 0, 0), "{report}");
    // Whatever was taken for a replay is one.
    for replay in sink.take_replays() {
        assert_lengths(&replay, &[(&ATTENTION, 1, 500), (&MLP, 1, 500)]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_that_outlives_its_session_can_be_replayed() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _sink) = stamped();
    let graph = capture(&stream, || layer(gpu, &stream));
    let _zones = register(&graph, 0);
    replay(&graph, 0, &stream, 3);
    assert_all_timed(&session.finish(), 3);
    // More than the ring holds.
    replay(&graph, 0, &stream, 2_000);
    let (session, sink) = stamped();
    replay(&graph, 0, &stream, 4);
    assert_all_timed(&session.finish(), 4);
    for replay in sink.take_replays() {
        assert_lengths(&replay, &[(&LAYER, 3, 130), (&ATTENTION, 1, 40), (&MLP, 1, 80)]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_session_that_ends_while_a_replay_runs_does_not_wait_for_it() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = stamped();
    let graph = capture(&stream, || {
        let _layer = LAYER.zone(&stream);
        gpu.spin(&stream, 1_000 * MS, None)
    });
    let _zones = register(&graph, 0);
    graph.launch(0, &stream).expect("launched");
    let since = std::time::Instant::now();
    std::thread::sleep(Duration::from_millis(50));
    let report = session.finish();
    assert!(since.elapsed() < Duration::from_millis(700), "the end waited for the device");
    assert_eq!((report.graph_timing.replays, report.graph_timing.incomplete), (0, 1), "{report}");
    assert!(sink.take_replays().is_empty());
    stream.synchronize().expect("the stamp has somewhere to go");
}

/// The mark's thread has another context current than the stream's: the launch of a stamp is refused, and the capture goes on.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_raw_stream_of_another_context_keeps_its_capture() {
    let _turn = alone();
    let gpu = device();
    let (session, _sink) = stamped();
    let mut other = std::ptr::null_mut();
    let mut stream = std::ptr::null_mut();
    let mut graph = std::ptr::null_mut();
    // SAFETY: valid out-pointers; the context and the stream live until they are destroyed here, and no zone is open then.
    unsafe {
        sys::cuCtxCreate_v4(&mut other, std::ptr::null_mut(), 0, gpu.context.cu_device()).result().expect("a context");
        sys::cuStreamCreate(&mut stream, 1).result().expect("a stream");
        gpu.context.bind_to_thread().expect("the context lives");
        sys::cuCtxSetCurrent(gpu.context.cu_ctx()).result().expect("it is there");
        sys::cuStreamBeginCapture_v2(stream, THREAD_LOCAL).result().expect("the capture begins");
        drop(ATTENTION.zone(&RawStream::from_ptr(stream.cast())));
        let ended = sys::cuStreamEndCapture(stream, &mut graph).result();
        println!("the capture of another context: {ended:?}");
        assert!(ended.is_ok() && !graph.is_null(), "{ended:?}");
        sys::cuGraphDestroy(graph).result().expect("destroyed");
        sys::cuStreamDestroy_v2(stream).result().expect("destroyed");
        sys::cuCtxDestroy_v2(other).result().expect("destroyed");
        sys::cuCtxSetCurrent(gpu.context.cu_ctx()).result().expect("it is there");
    }
    let report = session.finish();
    println!("{report}");
    assert_eq!(report.graph_timing.untimed_refused, 1, "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_raw_stream_is_timed_in_the_current_context() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = stamped();
    // SAFETY: the stream lives until the end of the test.
    let raw = unsafe { RawStream::from_ptr(handle(&stream)) };
    let graph = capture(&stream, || {
        let _zone = ATTENTION.zone(&raw);
        gpu.spin(&stream, 30 * US, None)
    });
    let _zones = register(&graph, 0);
    replay(&graph, 0, &stream, 2);
    assert_all_timed(&session.finish(), 2);
    assert_lengths(&sink.take_replays()[0], &[(&ATTENTION, 1, 30)]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn stamps_and_cupti_agree() {
    const TEST: &str = "stamps::stamps_and_cupti_agree";
    const REPLAYS: usize = 50;
    if std::env::var_os(super::CHILD).is_none() {
        let _turn = alone();
        child_with(TEST, "both", &[]);
        return;
    }
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = stamped();
    let graph = capture(&stream, || layer(gpu, &stream));
    let zones = register(&graph, 0);
    (0..REPLAYS).for_each(|_| replay(&graph, 0, &stream, 1));
    assert_all_timed(&session.finish(), REPLAYS);
    let stamps = sink.take_replays();
    // The same graph, with its stamps, in a session in which CUPTI alone times it, and gives the ids of its nodes.
    let (session, sink) = start(Session::builder().kernels(true));
    let again = register(&graph, 0);
    (0..REPLAYS).for_each(|_| replay(&graph, 0, &stream, 1));
    let report = session.finish();
    let kernels = sink.take_replays();
    assert!(stamps.iter().all(|replay| (replay.timed_by, replay.graph) == (ReplayTiming::Stamps, zones.number())));
    assert!(kernels.iter().all(|replay| (replay.timed_by, replay.graph) == (ReplayTiming::Kernels, again.number())));
    assert_eq!((kernels.len(), stamps.len()), (REPLAYS, REPLAYS), "{report}");
    let mut errors = Vec::new();
    for (kernels, stamps) in kernels.iter().zip(&stamps) {
        assert_eq!((kernels.kernels, stamps.kernels), (4, 4));
        for (kernel, stamp) in kernels.zones.iter().zip(&stamps.zones) {
            let same = |of: &warpline::record::ReplayedZone| {
                (of.zone.range.name(), of.zone.depth, of.lane.clone(), of.kernels)
            };
            assert_eq!(same(kernel), same(stamp));
            if kernel.kernels == 1 {
                let (exact, corrected) = (kernel.zone.gpu_ns(), stamp.zone.gpu_ns_corrected());
                errors.push((corrected.unwrap_or(0) - exact.unwrap_or(0)).abs());
            }
        }
    }
    errors.sort_unstable();
    let median = errors[errors.len() / 2];
    assert!(median < 2_000, "{median} ns off: {errors:?}");
}
