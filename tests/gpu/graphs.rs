//! Captured graphs on a real driver: that its nodes come in the order of capture, that its answers during a capture break none,
//! and that zones are where they were marked, for graphs in every state that a program brings them into.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::{CudaStream, sys};
use gpu::{Event, Gpu, Graph, Result};
use warpline::RangeSpec;
use warpline::graph::{GraphZones, NodeKind};
use warpline_tests::alone;

use super::captured::{GLOBAL, RELAXED, THREAD_LOCAL, capture, register, wait};
use super::{MS, assert_exact, device, memory};

warpline::range! {
    LAYER = "cuda_tests.graph_layer": "A layer.";
    ATTENTION = "cuda_tests.graph_attention": "Attention.", lane = "attention";
    MLP = "cuda_tests.graph_mlp": "Feed-forward.", lane = "mlp";
    BUSY = "cuda_tests.graph_busy": "A zone that the collector looks at meanwhile.";
}

/// A zone with so many kernels.
fn zone(gpu: &Gpu, range: &'static RangeSpec, stream: &Arc<CudaStream>, kernels: usize) -> Result {
    let _zone = range.zone(stream).field("kernels", kernels);
    (0..kernels).try_for_each(|_| gpu.null(stream))
}

/// The last words of the names of each node's zones, outermost first.
fn paths(zones: &GraphZones) -> Vec<String> {
    let name = |range: &RangeSpec| range.name().trim_start_matches("cuda_tests.graph_").to_owned();
    zones.nodes().map(|node| node.zones.iter().map(|zone| name(zone.range)).collect::<Vec<_>>().join("/")).collect()
}

/// The replays run and come to an end.
fn replay(graph: &Graph, stream: &Arc<CudaStream>) {
    for exec in 0..graph.execs.len() {
        graph.launch(exec, stream).expect("launched");
    }
    stream.synchronize().expect("no error");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_node_of_a_captured_graph_knows_its_zones() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let graph = capture(&stream, || {
        gpu.null(&stream)?;
        {
            let _layer = LAYER.zone(&stream).label("layer 0");
            zone(gpu, &ATTENTION, &stream, 3)?;
            gpu.null(&stream)?;
            zone(gpu, &MLP, &stream, 2)?;
        }
        gpu.null(&stream)
    });
    let zones = register(&graph, 0);
    let attention = "layer/attention";
    assert_eq!(
        paths(&zones),
        ["", attention, attention, attention, "layer", "layer/mlp", "layer/mlp", ""],
        "the driver's order is that of capture"
    );
    assert!(zones.nodes().all(|node| node.kind == NodeKind::Kernel));
    // Drivers from 12.3 on tell the name.
    let names: Vec<_> = zones.nodes().filter_map(|node| node.kernel).collect();
    assert!(names.iter().all(|name| &**name == "null_kernel"), "{names:?}");
    assert!(names.is_empty() || names.len() == 8, "{names:?}");
    replay(&graph, &stream);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.captured), (3, 3), "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_thousand_nodes_in_nested_zones_are_all_where_they_were_captured() {
    const DEPTH: usize = 64;
    const EACH: usize = 16;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let graph = capture(&stream, || {
        let mut open = Vec::new();
        for depth in 0..DEPTH {
            open.push(LAYER.zone(&stream).field("depth", depth));
            (0..EACH).try_for_each(|_| gpu.null(&stream))?;
        }
        while open.pop().is_some() {}
        Ok(())
    });
    let zones = register(&graph, 0);
    for (index, node) in zones.nodes().enumerate() {
        assert_eq!(node.zones.len(), index / EACH + 1, "node {index}");
        let depth = node.zones.last().map(|zone| zone.fields[0].1.to_string());
        assert_eq!(depth, Some((index / EACH).to_string()), "node {index}");
    }
    assert_eq!(zones.nodes().count(), DEPTH * EACH);
    assert_exact(&session.finish());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn forked_captures_keep_their_zones_apart() {
    let _turn = alone();
    let gpu = device();
    let (one, two) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let events = Event::many(4).expect("events");
    let (session, _zones) = memory();
    let graph = capture(&one, || {
        gpu.null(&one)?; // 0
        wait(&two, &events[0], &one)?;
        let (attention, mlp) = (ATTENTION.zone(&one), MLP.zone(&two));
        gpu.null(&one)?; // 1
        gpu.null(&two)?; // 2
        gpu.null(&one)?; // 3
        drop(attention);
        gpu.null(&two)?; // 4
        drop(mlp);
        wait(&one, &events[1], &two)?;
        let _layer = LAYER.zone(&one);
        gpu.null(&one)?; // 5
        wait(&two, &events[2], &one)?;
        zone(gpu, &MLP, &two, 1)?; // 6
        gpu.null(&one)?; // 7
        wait(&one, &events[3], &two)?;
        gpu.null(&one) // 8
    });
    let expected = ["", "attention", "mlp", "attention", "mlp", "layer", "layer/mlp", "layer", "layer"];
    assert_eq!(paths(&register(&graph, 0)), expected);
    replay(&graph, &one);
    assert_exact(&session.finish());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn instantiated_updated_and_cloned_graphs_keep_their_zones() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let of = |first, second| {
        capture(&stream, || {
            zone(gpu, first, &stream, 2)?;
            zone(gpu, second, &stream, 1)
        })
    };
    let found = |exec: sys::CUgraphExec, index| {
        GraphZones::find(exec.cast(), index).unwrap_or_default().first().map(|zone| zone.range.name())
    };
    let (attention, mlp) = (Some("cuda_tests.graph_attention"), Some("cuda_tests.graph_mlp"));
    let mut graph = of(&ATTENTION, &MLP);
    let zones = register(&graph, 0);
    graph.instantiate().expect("a second one");
    assert_eq!(register(&graph, 1).number(), zones.number());
    for exec in &graph.execs {
        assert_eq!((found(*exec, 0), found(*exec, 2)), (attention, mlp));
    }
    // Updated: what it replays is the other graph's.
    let other = of(&MLP, &ATTENTION);
    let others = register(&other, 0);
    // SAFETY: zero is a value of the structure, which the driver fills in.
    let mut info: sys::CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
    // SAFETY: both live; a valid out-pointer.
    unsafe { sys::cuGraphExecUpdate_v2(graph.execs[1], other.graph, &mut info) }.result().expect("of one shape");
    // SAFETY: it lives.
    unsafe { others.add_exec(graph.execs[1].cast()) }.expect("a driver");
    assert_eq!((found(graph.execs[1], 0), found(graph.execs[0], 0)), (mlp, attention));
    // Cloned, and the original gone.
    let clone = graph.cloned().expect("a clone");
    let cloned = zones.of_clone(&graph.raw(0), &clone.raw(0)).expect("the driver knows the clone's nodes");
    replay(&graph, &stream);
    drop((graph, zones));
    assert_eq!(paths(&cloned), ["attention", "attention", "mlp"]);
    assert_eq!(found(clone.execs[0], 2), mlp);
    replay(&clone, &stream);
    assert_exact(&session.finish());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_hundred_graphs_at_once_are_told_apart() {
    const GRAPHS: usize = 100;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let range = |n: usize| if n.is_multiple_of(2) { &ATTENTION } else { &MLP };
    let graphs: Vec<_> = (0..GRAPHS)
        .map(|n| {
            capture(&stream, || {
                zone(gpu, range(n), &stream, 1 + n % 5)?;
                gpu.null(&stream)
            })
        })
        .collect();
    let zones: Vec<_> = graphs.iter().map(|graph| register(graph, 0)).collect();
    for (n, zones) in zones.iter().enumerate() {
        let name = if n.is_multiple_of(2) { "attention" } else { "mlp" };
        let mut expected = vec![name; 1 + n % 5];
        expected.push("");
        assert_eq!(paths(zones), expected, "graph {n}");
    }
    graphs.iter().for_each(|graph| replay(graph, &stream));
    assert_exact(&session.finish());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn nodes_of_a_child_graph_are_where_their_node_is() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let child = capture(&stream, || (0..3).try_for_each(|_| gpu.null(&stream)));
    let graph = capture(&stream, || {
        let _layer = LAYER.zone(&stream);
        gpu.null(&stream)?;
        child.add_to_capture(&stream)?;
        gpu.null(&stream)
    });
    let zones = register(&graph, 0);
    let nodes: Vec<_> = zones.nodes().collect();
    assert_eq!(nodes[1].kind, NodeKind::Graph, "{nodes:?}");
    let inside: Vec<_> = nodes.iter().filter(|node| node.within == Some(1)).collect();
    assert_eq!(inside.len(), 3, "{nodes:?}");
    assert!(nodes.iter().all(|node| node.zones.len() == 1), "{nodes:?}");
    assert!(zones.unlabelled().is_empty());
    replay(&graph, &stream);
    assert_exact(&session.finish());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_that_is_broken_inside_a_zone_leaves_nothing() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    for _ in 0..50 {
        let broken = Graph::capture(&stream, GLOBAL, || {
            gpu.null(&stream)?;
            let _zone = ATTENTION.zone(&stream);
            gpu.null(&stream)?;
            // SAFETY: the stream lives. The driver refuses, and the capture is lost.
            let asked = unsafe { sys::cuStreamQuery(stream.cu_stream()) };
            assert_ne!(asked, sys::CUresult::CUDA_SUCCESS);
            Ok(())
        });
        assert!(broken.is_err(), "the application's own error");
        let graph = capture(&stream, || {
            gpu.null(&stream)?;
            zone(gpu, &MLP, &stream, 1)
        });
        assert_eq!(paths(&register(&graph, 0)), ["", "mlp"], "nothing of the one before");
        replay(&graph, &stream);
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.captured, report.dropped.capture_failed), (100, 50, 50), "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn no_mode_of_capture_is_broken_while_another_thread_collects() {
    let _turn = alone();
    let gpu = device();
    let (stream, busy) = (gpu.stream().expect("a stream"), gpu.stream().expect("a stream"));
    let (session, _zones) = memory();
    let done = AtomicBool::new(false);
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        for _ in 0..20 {
            // The collector has something to ask for all the time.
            {
                let _busy = BUSY.zone(&busy);
                gpu.spin(&busy, 2 * MS, None).expect("launched");
            }
            let graph = Graph::capture(&stream, mode, || {
                zone(gpu, &ATTENTION, &stream, 2)?;
                std::thread::sleep(Duration::from_millis(1));
                zone(gpu, &MLP, &stream, 1)
            });
            let graph = graph.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            assert_eq!(paths(&register(&graph, 0)), ["attention", "attention", "mlp"], "{mode:?}");
            replay(&graph, &stream);
        }
    }
    // Another thread captures with zones of its own at the same time; its mode lets others be.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gpu.context.bind_to_thread().expect("the context lives");
            let own = gpu.stream().expect("a stream");
            while !done.load(Ordering::Relaxed) {
                let graph = capture(&own, || zone(gpu, &LAYER, &own, 2));
                assert_eq!(paths(&register(&graph, 0)), ["layer", "layer"]);
            }
        });
        for _ in 0..50 {
            let graph = capture(&stream, || zone(gpu, &MLP, &stream, 3));
            assert_eq!(paths(&register(&graph, 0)), ["mlp", "mlp", "mlp"]);
        }
        done.store(true, Ordering::Relaxed);
    });
    busy.synchronize().expect("no error");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.dropped.total(), report.recorded), (0, 60), "{report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cudarcs_own_graphs_are_taken() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, _zones) = memory();
    let around = LAYER.zone(&stream);
    stream.begin_capture(THREAD_LOCAL).expect("the capture begins");
    zone(gpu, &MLP, &stream, 2).expect("captured");
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).expect("the capture succeeds").expect("a graph");
    let zones = GraphZones::for_graph(&graph).expect("the driver tells the nodes");
    assert_eq!(paths(&zones), ["mlp", "mlp"]);
    drop(around);
    assert_eq!(paths(&zones), ["layer/mlp", "layer/mlp"], "a zone around the capture");
    let file = std::env::temp_dir().join(format!("warpline-graph-{}.json", std::process::id()));
    zones.save(&file).expect("a file");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let _ = std::fs::remove_file(&file);
    assert!(text.contains("cuda_tests.graph_mlp"), "{text}");
    graph.launch().expect("launched");
    stream.synchronize().expect("no error");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, report.captured), (1, 1), "{report}");
}
