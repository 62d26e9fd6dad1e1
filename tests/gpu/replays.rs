//! Replays of graphs by their kernels, on a real device: each kernel of CUPTI's is in the replay that launched it, those of child
//! graphs too, and in its zone by the ids that CUPTI and the driver tell, however the executable graph came about.
//!
//! Each test has a process of its own: a process opens CUPTI once, and a profiler that has been there leaves its marks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, sys};
use gpu::{Gpu, Graph, Result};
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::graph::GraphZones;
use warpline::record::{KernelRecord, ReplayRecord, ReplayTiming};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::{EndMode, GraphTiming};
use warpline::{RangeSpec, Session};
use warpline_tests::this_test;

use super::{US, alone_in_a_process, assert_exact, device, start};

warpline::range! {
    LAYER = "cuda_tests.replayed_layer": "A layer.";
    ATTENTION = "cuda_tests.replayed_attention": "Attention.", lane = "attention";
    MLP = "cuda_tests.replayed_mlp": "Feed-forward.", lane = "mlp";
    GRADIENTS = "cuda_tests.replayed_gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "cuda_tests.replayed_gradient": "Sums one gradient.", kind = collective;
}

use sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL;

/// What CUPTI counts of a kernel that its spin does not.
const MARGIN_NS: i64 = 15_000;

fn capture(stream: &Arc<CudaStream>, work: impl FnOnce() -> Result) -> Graph {
    Graph::capture(stream, THREAD_LOCAL, work).expect("the capture succeeds")
}

fn register(graph: &Graph, exec: usize) -> GraphZones {
    GraphZones::for_graph(&graph.raw(exec)).expect("the driver tells the nodes")
}

/// A zone with kernels that run so long.
fn zone(gpu: &Gpu, range: &'static RangeSpec, stream: &Arc<CudaStream>, us: &[u64]) -> Result {
    let _zone = range.zone(stream);
    us.iter().try_for_each(|us| gpu.spin(stream, us * US, None))
}

fn replay(graph: &Graph, exec: usize, stream: &Arc<CudaStream>) {
    graph.launch(exec, stream).expect("launched");
    stream.synchronize().expect("no error");
}

/// Waits until so many replays are complete.
fn wait_for_replays(sink: &MemorySink, count: usize) -> Vec<ReplayRecord> {
    let (mut taken, since) = (Vec::new(), Instant::now());
    while taken.len() < count && since.elapsed() < Duration::from_secs(20) {
        taken.extend(sink.take_replays());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.len(), count);
    taken
}

/// CUPTI's kernels of a replay.
fn own<'a>(replay: &ReplayRecord, kernels: &'a [KernelRecord]) -> Vec<&'a KernelRecord> {
    kernels.iter().filter(|kernel| kernel.correlation == replay.correlation).collect()
}

/// The replay has every kernel that CUPTI saw of its launch, from the first one's begin to the last one's end.
fn assert_whole(replay: &ReplayRecord, kernels: &[KernelRecord], count: usize) {
    let own = own(replay, kernels);
    assert_eq!((own.len(), replay.kernels as usize), (count, count), "{replay:?}: {own:?}");
    let begin_ns = own.iter().map(|kernel| kernel.gpu.begin_ns).min();
    let end_ns = own.iter().map(|kernel| kernel.gpu.end_ns).max();
    assert_eq!((Some(replay.gpu.begin_ns), Some(replay.gpu.end_ns)), (begin_ns, end_ns), "{replay:?}: {own:?}");
}

/// These zones with so many kernels, each as long as they are together.
fn assert_zones(replay: &ReplayRecord, expected: &[(&'static RangeSpec, u32, u64)]) {
    let zones: Vec<_> = replay.zones.iter().map(|of| (of.zone.range.name(), of.kernels)).collect();
    let names: Vec<_> = expected.iter().map(|(range, kernels, _)| (range.name(), *kernels)).collect();
    assert_eq!((zones, replay.unplaced), (names, 0), "{replay:?}");
    for (replayed, (range, kernels, us)) in replay.zones.iter().zip(expected) {
        let (ns, spin_ns) = (replayed.zone.gpu_ns().expect("it has kernels"), (us * US) as i64);
        let most_ns = spin_ns + i64::from(*kernels) * MARGIN_NS;
        assert!((spin_ns - 2_000..most_ns).contains(&ns), "{} of {us} us: {ns} ns", range.name());
    }
}

fn finish(session: Session, sink: &MemorySink) -> (Report, Vec<KernelRecord>) {
    let report = session.finish();
    assert_exact(&report);
    let kernels = sink.take_kernels();
    assert_eq!((kernels.len() as u64, report.kernels.lost()), (report.kernels.recorded, 0), "{report}");
    (report, kernels)
}

/// A collective of 300 µs beside 200 µs of compute, forked from a stream and joined to it again.
fn overlapped(gpu: &Gpu, compute: &Arc<CudaStream>, comm: &Arc<CudaStream>, group: &ProcessGroup) -> Result {
    zone(gpu, &LAYER, compute, &[50])?;
    comm.wait(&compute.record_event(None)?)?;
    {
        let message = Message::new(CollectiveKind::AllReduce).count(1 << 20).dtype(DataType::F32).group(group);
        let _gradient = GRADIENT.zone(comm).message(message);
        gpu.spin(comm, 300 * US, None)?;
    }
    zone(gpu, &ATTENTION, compute, &[200])?;
    Ok(compute.wait(&comm.record_event(None)?)?)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graphed_run_has_the_figures_of_the_eager_run() {
    const STEPS: usize = 20;
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let (compute, comm) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
        let group = ProcessGroup::new("tp0", [0, 1], 0);
        let step = || overlapped(gpu, &compute, &comm, &group);
        let (session, _sink) = start(Session::builder().ends(EndMode::Eager));
        (0..STEPS).for_each(|_| step().expect("launched"));
        compute.synchronize().expect("no error");
        let eager = session.finish();
        for settings in [Session::builder().graph_timing(GraphTiming::Stamps), Session::builder().kernels(true)] {
            let (session, sink) = start(settings);
            let graph = capture(&compute, step);
            let _zones = register(&graph, 0);
            (0..STEPS).for_each(|_| replay(&graph, 0, &compute));
            let mut replays = 0;
            let since = Instant::now();
            while replays < STEPS && since.elapsed() < Duration::from_secs(20) {
                replays += sink.take_replays().len();
                std::thread::sleep(Duration::from_millis(1));
            }
            let graphed = session.finish();
            assert_eq!((eager.ranges.len(), graphed.ranges.len()), (3, 3), "{eager}\n{graphed}");
            for one in &eager.ranges {
                let other = graphed.ranges.iter().find(|other| other.name == one.name).expect("the same ranges");
                assert_eq!((one.count, one.in_replays, other.in_replays), (other.count, false, true), "{graphed}");
                let apart_ns = (one.p50_ns - other.p50_ns).abs();
                assert!(apart_ns < MARGIN_NS, "{}: {} and {} ns", one.name, one.p50_ns, other.p50_ns);
            }
            let ([one], [other]) = (&eager.collectives[..], &graphed.collectives[..]) else {
                panic!("{eager}\n{graphed}")
            };
            assert_eq!((one.count, one.bytes, &one.group), (other.count, other.bytes, &other.group));
            assert!((one.hidden - 0.67).abs() < 0.1 && (one.hidden - other.hidden).abs() < 0.1, "{one:?} {other:?}");
            println!("{graphed}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn instantiated_updated_and_cloned_graphs_have_every_kernel_in_its_zone() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        let of = |first, second| {
            capture(&stream, || {
                gpu.null(&stream)?;
                zone(gpu, first, &stream, &[20, 20, 20])?;
                zone(gpu, second, &stream, &[60])
            })
        };
        let mut graph = of(&ATTENTION, &MLP);
        let other = of(&MLP, &ATTENTION);
        graph.instantiate().expect("a second one");
        let zones = register(&graph, 0);
        assert_eq!(register(&graph, 1).number(), zones.number());
        let others = register(&other, 0);
        for exec in [0, 1, 0] {
            replay(&graph, exec, &stream);
        }
        replay(&other, 0, &stream);
        // What is read after the update would be the other graph's.
        let mut replays = wait_for_replays(&sink, 4);
        // SAFETY: zero is a value of the structure, which the driver fills in.
        let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        // SAFETY: both live; a valid out-pointer.
        unsafe { sys::cuGraphExecUpdate_v2(graph.execs[1], other.graph, &mut info) }.result().expect("of one shape");
        // SAFETY: it lives.
        unsafe { others.add_exec(graph.execs[1].cast()) }.expect("a driver");
        replay(&graph, 1, &stream);
        replay(&graph, 0, &stream);
        let clone = graph.cloned().expect("a clone");
        let cloned = zones.of_clone(&graph.raw(0), &clone.raw(0)).expect("the driver knows the clone's nodes");
        replay(&clone, 0, &stream);
        let (report, kernels) = finish(session, &sink);
        replays.extend(sink.take_replays());
        assert!(super::notes(&report).is_empty(), "{report}");
        let graphs: Vec<_> = replays.iter().map(|replay| replay.graph).collect();
        let (first, second) = (zones.number(), others.number());
        assert_eq!(graphs, [first, first, first, second, second, first, cloned.number()], "{report}");
        for replay in &replays {
            assert_whole(replay, &kernels, 5);
            match replay.graph == second {
                false => assert_zones(replay, &[(&ATTENTION, 3, 60), (&MLP, 1, 60)]),
                true => assert_zones(replay, &[(&MLP, 3, 60), (&ATTENTION, 1, 60)]),
            }
        }
        let execs: std::collections::BTreeSet<_> = replays.iter().map(|replay| replay.exec).collect();
        assert_eq!(execs.len(), 4, "two of the first graph, one of the other, one of the clone: {execs:?}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_of_a_child_graph_are_in_its_replays_and_none_is_taken_for_another() {
    alone_in_a_process(this_test!(), || {
        const REPLAYS: usize = 5;
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        let child = capture(&stream, || {
            (0..3).try_for_each(|_| gpu.spin(&stream, 100 * US, None))?;
            gpu.null(&stream)
        });
        let graph = capture(&stream, || {
            let _layer = LAYER.zone(&stream);
            // The child has kernels of the same name at the same places.
            zone(gpu, &ATTENTION, &stream, &[20, 20])?;
            child.add_to_capture(&stream)?;
            zone(gpu, &MLP, &stream, &[40])
        });
        let zones = register(&graph, 0);
        assert_eq!(zones.nodes().filter(|node| node.within.is_some()).count(), 4);
        (0..REPLAYS).for_each(|_| replay(&graph, 0, &stream));
        let (report, kernels) = finish(session, &sink);
        let replays = sink.take_replays();
        assert_eq!(replays.len(), REPLAYS, "{report}");
        for of in &own(&replays[0], &kernels) {
            let node = of.graph.expect("a node");
            println!(
                "exec {}: graph {}, node {} << 32 | {}: {} ns",
                replays[0].exec,
                node.graph,
                node.node >> 32,
                node.node as u32,
                of.duration_ns()
            );
        }
        println!("unplaced {}\n{report}", replays[0].unplaced);
        for replay in &replays {
            assert_whole(replay, &kernels, 7);
            // The child's four where it is not known how the driver numbers them, and the others only where ids are not the nodes' alone.
            assert!(replay.unplaced == 0 || (4..=7).contains(&replay.unplaced), "{replay:?}");
            let layer = &replay.zones[0];
            assert_eq!((layer.zone.range.name(), layer.kernels, layer.zone.gpu), (LAYER.name(), 7, Some(replay.gpu)));
            for inner in &replay.zones[1..] {
                // Nothing of the child's, whose kernels are longer.
                let kernels = if std::ptr::eq(inner.zone.range, &ATTENTION) { 2 } else { 1 };
                assert_eq!(inner.kernels, kernels, "{inner:?}");
                let ns = inner.zone.gpu_ns().expect("it has kernels");
                assert!(ns < 40 * US as i64 + 2 * MARGIN_NS, "{inner:?}");
            }
        }
        let unplaced: u64 = replays.iter().map(|replay| u64::from(replay.unplaced)).sum();
        let is_noted = report.notes.iter().any(|note| note.starts_with(&format!("{unplaced} kernels and copies")));
        assert_eq!(is_noted, unplaced > 0, "{report}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_batch_has_its_entries_by_kernels_and_by_stamps() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let (stream, group) = (gpu.stream().expect("a stream"), ProcessGroup::new("tp0", [0, 1], 0));
        let builders = [
            (ReplayTiming::Stamps, Session::builder().graph_timing(GraphTiming::Stamps)),
            (ReplayTiming::Kernels, Session::builder().kernels(true)),
        ];
        let message =
            |count: u64| Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&group);
        for (timing, builder) in builders {
            let (session, sink) = start(builder);
            let graph = capture(&stream, || {
                let mut batch = GRADIENTS.batch(&stream);
                (1..=3).for_each(|n| batch.add(&GRADIENT, || message(1_000 * n)));
                gpu.spin(&stream, 60 * US, None)
            });
            let _zones = register(&graph, 0);
            (0..5).for_each(|_| replay(&graph, 0, &stream));
            let (report, _) = finish(session, &sink);
            let replays = sink.take_replays();
            assert_eq!((replays.len(), report.captured), (5, 4), "{report}");
            for replay in replays {
                let [batch, entries @ ..] = &replay.zones[..] else { panic!("{replay:?}") };
                assert_eq!((replay.timed_by, batch.kernels, entries.len()), (timing, 1, 3));
                assert_eq!(batch.zone.range.name(), GRADIENTS.name());
                for (entry, n) in entries.iter().zip(1..) {
                    assert_eq!((entry.zone.gpu, entry.lane.as_deref()), (batch.zone.gpu, Some(group.lane())));
                    let of = entry.zone.entry.expect("an entry");
                    assert_eq!((of.index + 1, of.share), (n, f64::from(n) / 6.0));
                }
            }
        }
    });
}
