//! Replays that are timed by events, on a real device: the right lengths, launches that find no events, captures unharmed in every mode,
//! and the same zones by CUPTI's clock of spins.

use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};
use gpu::{Graph, Result};
use warpline::graph::{GraphZones, NodeKind};
use warpline::{GraphTiming, MemorySink, RangeSpec, ReplayRecord, ReplayTiming, Report, Session};
use warpline_tests::{alone, taken};

use super::captured::{GLOBAL, RELAXED, THREAD_LOCAL, register, zone};
use super::{MS, US, assert_exact, device, start};

warpline::range! {
    LAYER = "cuda_tests.evented_layer": "A layer.";
    ATTENTION = "cuda_tests.evented_attention": "Attention.", lane = "attention";
    MLP = "cuda_tests.evented_mlp": "Feed-forward.", lane = "mlp";
}

/// More than events add, and a few launches within a graph.
const MARGIN_NS: i64 = 25_000;
/// So many launches of one executable graph may wait to be read.
const MOST_WAITING: usize = 64;

fn timed() -> (Session, MemorySink) {
    device();
    start(Session::builder().graph_timing(GraphTiming::Events))
}

fn capture(
    stream: &Arc<CudaStream>,
    mode: sys::CUstreamCaptureMode,
    work: impl FnOnce() -> Result,
) -> (Graph, GraphZones) {
    let graph = Graph::capture(stream, mode, work).expect("the capture succeeds");
    let zones = register(&graph, 0);
    (graph, zones)
}

fn replay((graph, zones): &(Graph, GraphZones), stream: &Arc<CudaStream>, times: usize) {
    for _ in 0..times {
        zones.before_launch(&graph.raw(0)).expect("the events are exchanged");
        graph.launch(0, stream).expect("launched");
    }
}

/// The lengths of the zones of these ranges, about.
fn assert_lengths(replay: &ReplayRecord, expected: &[(&'static RangeSpec, u64)]) {
    assert_eq!(replay.timed_by, ReplayTiming::Events);
    let zones = replay.zones.iter().map(|of| (of.zone.range.name(), of.zone.gpu_ns().expect("timed")));
    let is: Vec<_> = zones.collect();
    assert_eq!(is.len(), expected.len(), "{is:?}");
    for ((name, ns), (range, us)) in is.iter().zip(expected) {
        let spin_ns = (us * US) as i64;
        assert_eq!(*name, range.name(), "{is:?}");
        assert!((spin_ns - 1_000..spin_ns + MARGIN_NS).contains(ns), "{name} of {us} us: {is:?}");
    }
}

/// Replays, launches without events, launches that nobody told of, incomplete and mixed ones.
fn account(report: &Report) -> (u64, u64, u64, u64, u64) {
    let counts = report.graph_timing;
    (counts.replays, counts.launches_lost, counts.launches_untold, counts.incomplete, counts.mixed)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn five_replays_have_their_zones_with_their_lengths() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let (session, sink) = timed();
        let captured = capture(&stream, mode, || {
            gpu.null(&stream)?;
            let _layer = LAYER.zone(&stream).label("layer 0");
            zone(gpu, &ATTENTION, &stream, 40)?;
            gpu.spin(&stream, 10 * US, None)?;
            zone(gpu, &MLP, &stream, 80)
        });
        let kinds: Vec<_> = captured.1.nodes().map(|node| node.kind).collect();
        use NodeKind::{EventRecord, Kernel};
        assert_eq!(kinds, [Kernel, EventRecord, Kernel, EventRecord, Kernel, EventRecord, Kernel, EventRecord]);
        replay(&captured, &stream, 5);
        stream.synchronize().expect("no error");
        let report = session.finish();
        assert_eq!(account(&report), (5, 0, 0, 0, 0), "{report}");
        assert!(report.notes.is_empty() && report.graph_timing.untimed() == 0, "{report}");
        assert_exact(&report);
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 5);
        for replay in &replays {
            assert_lengths(replay, &[(&LAYER, 130), (&ATTENTION, 40), (&MLP, 80)]);
            assert_eq!((replay.kernels, replay.graph), (4, captured.1.number()));
        }
        assert!(replays.windows(2).all(|pair| pair[0].gpu.end_ns <= pair[1].gpu.begin_ns + 1_000), "{replays:?}");
        println!("{report}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn sets_of_events_come_round() {
    const REPLAYS: usize = 5_000;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = timed();
    let captured = capture(&stream, THREAD_LOCAL, || zone(gpu, &ATTENTION, &stream, 100));
    for _ in 0..REPLAYS {
        replay(&captured, &stream, 1);
        stream.synchronize().expect("no error");
    }
    let report = session.finish();
    let (replays, lost, ..) = account(&report);
    assert_eq!(account(&report), (replays, lost, 0, 0, 0), "{report}");
    assert_eq!(replays + lost, REPLAYS as u64, "{report}");
    assert!(replays > MOST_WAITING as u64, "{report}");
    let records = sink.take_replays();
    // Of thousands a few find the device at something else between an event and the kernel.
    let lengths = records.iter().map(|replay| replay.zones[0].zone.gpu_ns().expect("timed"));
    let (shortest, longest) = ((100 * US) as i64 - 1_000, (100 * US) as i64 + MARGIN_NS);
    assert!(lengths.clone().all(|ns| ns > shortest), "{:?}", lengths.min());
    let long = lengths.filter(|ns| *ns > longest).count();
    assert!(long * 100 < records.len(), "{long} of {} are longer than {longest} ns", records.len());
    assert!(records.windows(2).all(|pair| pair[0].gpu.begin_ns < pair[1].gpu.begin_ns), "each has its own times");
    println!("{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn launches_that_find_no_events_are_counted() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = timed();
    let captured = capture(&stream, THREAD_LOCAL, || zone(gpu, &ATTENTION, &stream, 50));
    gpu.spin(&stream, 200 * MS, None).expect("launched");
    replay(&captured, &stream, MOST_WAITING + 10);
    stream.synchronize().expect("no error");
    let report = session.finish();
    assert_eq!(account(&report), (MOST_WAITING as u64, 10, 0, 0, 0), "{report}");
    sink.take_replays().iter().for_each(|replay| assert_lengths(replay, &[(&ATTENTION, 50)]));
    println!("{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn launches_that_nobody_told_of_and_those_that_never_came_are_counted() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, sink) = timed();
    let captured = capture(&stream, THREAD_LOCAL, || zone(gpu, &ATTENTION, &stream, 50));
    let read = |count: usize| {
        stream.synchronize().expect("no error");
        taken(count, || sink.take_replays());
    };
    replay(&captured, &stream, 1);
    read(1);
    captured.0.launch(0, &stream).expect("launched");
    replay(&captured, &stream, 1);
    read(1);
    captured.1.before_launch(&captured.0.raw(0)).expect("exchanged");
    replay(&captured, &stream, 1);
    read(1);
    let report = session.finish();
    assert_eq!(account(&report), (3, 0, 1, 1, 0), "{report}");
    println!("{report}");
}
