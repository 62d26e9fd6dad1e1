//! Marks on streams that are being captured into CUDA graphs, on a stub driver: which nodes are whose, what the capture sees
//! of it (one question), and what is left of captures that come to nothing. What belongs to a zone in every shape of a graph is
//! tested where it is worked out, in `warpline::graph`.
#![cfg(target_os = "linux")]

#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "cuda/told.rs"]
mod told;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::ffi::c_void;

use stub::*;
use warpline::graph::{GraphZones, NodeCount, RawGraph};
use warpline::{CollectiveKind, DataType, Message, ProcessGroup, RangeSpec};
use zones::*;

warpline::namespace!("cuda_graph", "zones that are captured");

warpline::range! {
    LAYER = "cuda_graph.layer": "A layer.";
    ATTENTION = "cuda_graph.attention": "Attention.", lane = "attention";
    MLP = "cuda_graph.mlp": "Feed-forward.", lane = "mlp";
    REDUCE = "cuda_graph.reduce": "Sums over the group.", kind = collective, lane = "comm: tp0";
    TIMED = "cuda_graph.timed": "Work that is not captured.";
}

/// All that a captured zone may call.
const OF_A_CAPTURE: [&str; 3] = ["cuStreamIsCapturing", "cuStreamGetCaptureInfo_v3", "cuCtxGetCurrent"];

fn begin(driver: &Stub, stream: Handle) {
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
}

fn end(driver: &Stub, stream: Handle) -> Handle {
    let mut graph = 0;
    assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
    graph
}

fn kernel(driver: &Stub, stream: Handle) {
    assert_eq!(driver.stub_launch(stream, 0), SUCCESS);
}

/// A zone with so many kernels.
fn zone(driver: &Stub, range: &'static RangeSpec, stream: Handle, kernels: usize) {
    let _zone = range.zone(&raw(stream)).field("kernels", kernels);
    (0..kernels).for_each(|_| kernel(driver, stream));
}

fn instantiate(driver: &Stub, graph: Handle) -> Handle {
    let mut exec = 0;
    assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
    exec
}

fn raw_graph(graph: Handle, exec: Handle) -> RawGraph {
    // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
    unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) }
}

fn register(graph: Handle, exec: Handle) -> GraphZones {
    GraphZones::of(&raw_graph(graph, exec)).expect("a graph that is alive")
}

fn validator() -> jsonschema::Validator {
    let schema = serde_json::from_str(include_str!("../docs/graph.schema.json")).unwrap();
    jsonschema::options().build(&schema).unwrap()
}

/// Annotations, as the schema wants them.
fn annotations(text: &str) -> serde_json::Value {
    let json = serde_json::from_str(text).unwrap();
    let faults: Vec<String> = validator().iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    json
}

/// A graph of one node.
fn single(driver: &Stub, stream: Handle) -> GraphZones {
    begin(driver, stream);
    kernel(driver, stream);
    register(end(driver, stream), 0)
}

/// The names of each node's zones, without the namespace, outermost first.
fn paths(zones: &GraphZones) -> Vec<String> {
    let name = |range: &RangeSpec| range.name().trim_start_matches("cuda_graph.").to_owned();
    zones.nodes().map(|node| node.zones.iter().map(|zone| name(zone.range)).collect::<Vec<_>>().join("/")).collect()
}

fn exec_id(driver: &Stub, exec: Handle) -> u32 {
    let mut id = 0;
    assert_eq!(driver.cuGraphExecGetId(exec, &mut id), SUCCESS);
    id
}

fn found(exec: Handle, index: u32) -> Vec<&'static str> {
    let zones = GraphZones::find(exec as *mut c_void, index).unwrap_or_default();
    zones.iter().map(|zone| zone.range.name()).collect()
}

#[test]
fn every_captured_node_knows_its_zones() {
    on_stub("every_captured_node_knows_its_zones", |driver| {
        driver.start();
        let (session, records) = start(|builder| builder);
        let stream = driver.stream();
        // Warpline opens the driver.
        assert!(GraphZones::of(&raw_graph(0, 0)).is_err());
        begin(driver, stream);
        driver.mark("capture");
        kernel(driver, stream);
        {
            let _layer = LAYER.zone(&raw(stream)).label("layer 0").field("batch", 4_u32);
            zone(driver, &ATTENTION, stream, 2);
            kernel(driver, stream);
            zone(driver, &MLP, stream, 1);
        }
        kernel(driver, stream);
        let calls = driver.since("capture", tid());
        let others: Vec<_> =
            calls.iter().filter(|call| *call != "stub_launch" && !OF_A_CAPTURE.contains(&call.as_str())).collect();
        assert!(others.is_empty(), "calls that a captured zone must not make: {others:?}");
        assert_eq!(
            calls.iter().filter(|call| *call == "cuStreamGetCaptureInfo_v3").count(),
            6,
            "one a begin and an end"
        );
        let graph = end(driver, stream);
        let zones = register(graph, instantiate(driver, graph)).named("block");
        assert_eq!(paths(&zones), ["", "layer/attention", "layer/attention", "layer", "layer/mlp", ""]);
        let attention = zones.nodes().nth(1).expect("it has six");
        assert_eq!(attention.kernel.as_deref(), Some("stub_kernel"));
        let layer = &attention.zones[0];
        assert_eq!(layer.label.as_deref(), Some("layer 0"));
        assert_eq!(layer.fields[0].1.to_string(), "4", "outer fields survive");
        assert_eq!(attention.zones[1].fields[0].1.to_string(), "2");
        let counts = zones.lanes();
        let lanes: Vec<_> =
            counts.iter().map(|NodeCount { name, kernels, .. }| (name.as_deref().unwrap_or("-"), *kernels)).collect();
        assert_eq!(lanes, [("-", 3), ("attention", 2), ("mlp", 1)]);
        let counts = zones.ranges();
        let ranges: Vec<_> = counts.iter().map(|count| (count.name.as_deref().unwrap_or("-"), count.nodes)).collect();
        assert_eq!(ranges, [("-", 2), ("cuda_graph.attention", 2), ("cuda_graph.layer", 1), ("cuda_graph.mlp", 1)]);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured, report.recorded), (3, 3, 0), "{report}");
        assert!(report.to_string().contains("3 captured into graphs"), "{report}");
        assert!(records.take().is_empty(), "a captured zone has no times");
        assert_eq!(driver.stub_live_events(), 0);
    });
}

#[test]
fn forked_streams_keep_their_zones_apart_and_inner_forks_belong() {
    on_stub("forked_streams_keep_their_zones_apart_and_inner_forks_belong", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (one, two) = (driver.stream(), driver.stream());
        begin(driver, one);
        kernel(driver, one); // 0
        let event = driver.record(one);
        driver.cuStreamWaitEvent(two, event, 0);
        // Interleaved, each with a zone of its own.
        let (attention, mlp) = (ATTENTION.zone(&raw(one)), MLP.zone(&raw(two)));
        kernel(driver, one); // 1
        kernel(driver, two); // 2
        kernel(driver, one); // 3
        drop(attention);
        kernel(driver, two); // 4
        drop(mlp);
        let joined = driver.record(two);
        driver.cuStreamWaitEvent(one, joined, 0);
        {
            // A fork inside, joined inside.
            let _layer = LAYER.zone(&raw(one));
            kernel(driver, one); // 5
            driver.cuEventRecord(event, one);
            driver.cuStreamWaitEvent(two, event, 0);
            zone(driver, &REDUCE, two, 1); // 6
            kernel(driver, one); // 7
            driver.cuEventRecord(joined, two);
            driver.cuStreamWaitEvent(one, joined, 0);
            kernel(driver, one); // 8
        }
        let graph = end(driver, one);
        assert_eq!(
            paths(&register(graph, 0)),
            ["", "attention", "mlp", "attention", "mlp", "layer", "layer/reduce", "layer", "layer"]
        );
        [event, joined].into_iter().for_each(|event| assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS));
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_zone_that_began_before_its_capture_holds_what_was_captured_in_it() {
    on_stub("a_zone_that_began_before_its_capture_holds_what_was_captured_in_it", |driver| {
        driver.start();
        let (session, records) = start(|builder| builder);
        let stream = driver.stream();
        zone(driver, &TIMED, stream, 1);
        // Around the whole capture: it is timed, and it labels.
        let around = LAYER.zone(&raw(stream)).label("around");
        begin(driver, stream);
        kernel(driver, stream);
        zone(driver, &MLP, stream, 1);
        let first = end(driver, stream);
        let registered = register(first, 0);
        assert_eq!(paths(&registered), ["", "mlp"], "it is still open");
        drop(around);
        assert_eq!(paths(&registered), ["layer", "layer/mlp"]);
        // Ended inside.
        let inside = ATTENTION.zone(&raw(stream));
        begin(driver, stream);
        kernel(driver, stream);
        drop(inside);
        kernel(driver, stream);
        let second = end(driver, stream);
        assert_eq!(paths(&register(second, 0)), ["attention", ""]);
        // Begun inside, and open when the graph is registered.
        begin(driver, stream);
        kernel(driver, stream);
        let after = MLP.zone(&raw(stream));
        kernel(driver, stream);
        let third = end(driver, stream);
        let registered = register(third, 0);
        drop(after);
        assert_eq!(paths(&register(third, 0)), ["", "mlp"]);
        assert_eq!(paths(&registered), ["", "mlp"], "the same graph");
        zone(driver, &TIMED, stream, 1);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured, report.recorded), (6, 3, 3), "{report}");
        assert_eq!(records.take().len(), 3);
        assert_clean(driver);
    });
}

#[test]
fn captures_that_come_to_nothing_leave_nothing_and_are_not_broken_by_us() {
    on_stub("captures_that_come_to_nothing_leave_nothing_and_are_not_broken_by_us", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, other) = (driver.stream(), driver.stream());
        // Broken in the middle of a zone; the driver gives the graph's handle again.
        begin(driver, stream);
        kernel(driver, stream);
        let broken = ATTENTION.zone(&raw(stream));
        kernel(driver, stream);
        assert_eq!(driver.cuStreamQuery(stream), CAPTURE_UNSUPPORTED);
        drop(broken);
        let mut graph = 0;
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), CAPTURE_INVALIDATED);
        begin(driver, stream);
        kernel(driver, stream);
        zone(driver, &MLP, stream, 1);
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), ["", "mlp"]);
        // Each call that a captured zone makes fails once: the zone is counted, and the capture goes on.
        for failing in ["cuStreamGetCaptureInfo_v3", "cuStreamIsCapturing"] {
            begin(driver, other);
            driver.fail(failing, 0, 1, NOT_PERMITTED);
            zone(driver, &MLP, other, 1);
            zone(driver, &ATTENTION, other, 1);
            let graph = end(driver, other);
            assert_eq!(paths(&register(graph, 0)), ["", "attention"], "{failing}");
            assert_eq!(driver.stub_graph_nodes(graph), 2);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured), (6, 3), "{report}");
        let dropped = report.dropped;
        assert_eq!((dropped.capture_failed, dropped.event_failed), (2, 1), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_graph_that_is_instantiated_updated_or_cloned_keeps_its_zones() {
    on_stub("a_graph_that_is_instantiated_updated_or_cloned_keeps_its_zones", |driver| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        let capture = |first: &'static RangeSpec, second| {
            begin(driver, stream);
            zone(driver, first, stream, 1);
            zone(driver, second, stream, 1);
            end(driver, stream)
        };
        let graph = capture(&ATTENTION, &MLP);
        let (once, twice) = (instantiate(driver, graph), instantiate(driver, graph));
        let zones = register(graph, once);
        assert_eq!(register(graph, twice).number(), zones.number(), "one graph, two executable ones");
        for exec in [once, twice] {
            assert_eq!((found(exec, 0), found(exec, 1)), (vec!["cuda_graph.attention"], vec!["cuda_graph.mlp"]));
        }
        // Updated with another graph of the same shape.
        let other = capture(&MLP, &LAYER);
        let others = register(other, 0);
        assert_eq!(driver.cuGraphExecUpdate_v2(twice, other, std::ptr::null_mut()), SUCCESS);
        // SAFETY: it is alive.
        unsafe { others.add_exec(twice as *mut c_void) }.expect("a driver");
        assert_eq!((found(twice, 0), found(once, 0)), (vec!["cuda_graph.mlp"], vec!["cuda_graph.attention"]));
        // Cloned, and the original destroyed.
        let mut clone = 0;
        assert_eq!(driver.cuGraphClone(&mut clone, graph), SUCCESS);
        let of_clone = instantiate(driver, clone);
        let cloned = zones.of_clone(&raw_graph(graph, 0), &raw_graph(clone, of_clone)).expect("a clone");
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        assert_eq!(paths(&cloned), ["attention", "mlp"]);
        assert_eq!(found(of_clone, 1), ["cuda_graph.mlp"]);
        // The ids of the driver are in the annotations.
        let file = scratch("graph_ids");
        warpline::graph::save(&file).expect("a file");
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(json["graphs"].as_array().unwrap().len(), 3);
        assert_eq!(json["graphs"][0]["ids"], "tools_id");
        let replay = u64::from(exec_id(driver, once)) << 32 | 1;
        assert_eq!(json["graphs"][0]["nodes"][1]["replay_ids"], serde_json::json!([replay.to_string()]));
        let replays = [twice].map(|exec| (u64::from(exec_id(driver, exec)) << 32).to_string());
        assert_eq!(json["graphs"][1]["nodes"][0]["replay_ids"], serde_json::json!(replays));
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_hundred_graphs_are_told_apart() {
    const GRAPHS: usize = 100;
    on_stub("a_hundred_graphs_are_told_apart", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        let graphs: Vec<_> = (0..GRAPHS)
            .map(|n| {
                begin(driver, stream);
                zone(driver, if n % 2 == 0 { &ATTENTION } else { &MLP }, stream, 1 + n % 3);
                kernel(driver, stream);
                let graph = end(driver, stream);
                (instantiate(driver, graph), graph)
            })
            .collect();
        let zones: Vec<_> = graphs.iter().map(|(exec, graph)| register(*graph, *exec)).collect();
        for (n, (zones, (exec, _))) in zones.iter().zip(&graphs).enumerate() {
            let name = if n % 2 == 0 { "attention" } else { "mlp" };
            let mut expected = vec![name; 1 + n % 3];
            expected.push("");
            assert_eq!(paths(zones), expected, "graph {n}");
            assert_eq!(found(*exec, 0), [format!("cuda_graph.{name}")]);
        }
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn graphs_inside_a_graph_are_where_their_node_is_and_bodies_nobody_sees_are_named() {
    on_stub("graphs_inside_a_graph_are_where_their_node_is_and_bodies_nobody_sees_are_named", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        (0..2).for_each(|_| kernel(driver, stream));
        let child = end(driver, stream);
        begin(driver, stream);
        zone(driver, &LAYER, stream, 1);
        {
            let _mlp = MLP.zone(&raw(stream));
            assert_eq!(driver.stub_conditional(stream), SUCCESS);
        }
        let graph = end(driver, stream);
        let mut node = 0;
        assert_eq!(driver.cuGraphAddChildGraphNode(&mut node, graph, std::ptr::null(), 0, child), SUCCESS);
        let zones = register(graph, 0);
        assert_eq!(paths(&zones), ["layer", "mlp", "", "", ""]);
        let within: Vec<_> = zones.nodes().map(|node| node.within).collect();
        assert_eq!(within, [None, None, None, Some(2), Some(2)]);
        let unlabelled = zones.unlabelled();
        assert_eq!((unlabelled.len(), unlabelled[0].node, unlabelled[0].kind.as_str()), (1, 1, "conditional"));
        // What the program knows of them: the child was captured with zones, and so was the body.
        let child = {
            begin(driver, stream);
            zone(driver, &ATTENTION, stream, 1);
            kernel(driver, stream);
            register(end(driver, stream), 0)
        };
        zones.inside(2, &child).expect("as many nodes");
        zones.inside(1, &child).expect("a body");
        assert_eq!(paths(&zones), ["layer", "mlp", "", "attention", "", "mlp/attention", "mlp"]);
        let within: Vec<_> = zones.nodes().map(|node| node.within).collect();
        assert_eq!(within, [None, None, None, Some(2), Some(2), Some(1), Some(1)]);
        assert!(zones.unlabelled().is_empty());
        for (node, why) in [(0, "no graph inside"), (9, "no graph inside"), (2, "has 2 nodes and the one given has 1")]
        {
            let other = if node == 2 { &single(driver, stream) } else { &child };
            let refused = zones.inside(node, other).expect_err("it cannot be");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn annotations_are_what_the_schema_says() {
    let mut broken = annotations(include_str!("../docs/graph.example.json"));
    broken["graphs"][0]["nodes"][0]["zones"] = "layer".into();
    assert!(!validator().is_valid(&broken), "the schema lets anything through");
    on_stub("annotations_are_what_the_schema_says", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 1));
        begin(driver, stream);
        {
            let message = Message::new(CollectiveKind::AllReduce).count(1024).dtype(DataType::F32).group(&group);
            let _reduce = REDUCE.zone(&raw(stream)).message(message).field("big", u64::MAX).field("nan", f64::NAN);
            let _empty = MLP.zone(&raw(stream));
        }
        {
            let _reduce = REDUCE
                .zone(&raw(stream))
                .message(Message::new(CollectiveKind::AllReduce).group(&group))
                .field("big", u64::MAX)
                .field("nan", f64::NAN);
            kernel(driver, stream);
        }
        let graph = end(driver, stream);
        let zones = register(graph, instantiate(driver, graph)).named("a \"name\"");
        let file = scratch("graph_annotations");
        zones.save(&file).expect("a file");
        let json = annotations(&std::fs::read_to_string(&file).unwrap());
        let graph = &json["graphs"][0];
        assert_eq!((graph["name"].as_str(), graph["ids"].as_str()), (Some("a \"name\""), Some("none")));
        assert_eq!(graph["zones"].as_array().unwrap().len(), 1, "zones without nodes are left out: {graph}");
        let zone = &graph["zones"][0];
        assert_eq!(zone["lane"], "comm: tp0");
        assert_eq!(
            (zone["fields"]["big"].as_str(), zone["fields"]["nan"].as_str()),
            (Some("18446744073709551615"), Some("NaN"))
        );
        let collective = &zone["collective"];
        assert_eq!(collective["Collective name"], "allreduce");
        assert_eq!((collective["Process Group Name"].as_str(), collective["Seq"].as_u64()), (Some("tp0"), Some(1)));
        assert_eq!(graph["nodes"][0]["zones"], serde_json::json!([0]));
        assert_eq!(graph["nodes"][0]["replay_ids"], serde_json::json!([null]));
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn without_a_session_nothing_is_asked_and_nothing_is_known() {
    on_stub("without_a_session_nothing_is_asked_and_nothing_is_known", |driver| {
        driver.start();
        let stream = driver.stream();
        begin(driver, stream);
        driver.mark("capture");
        zone(driver, &MLP, stream, 1);
        assert_eq!(driver.since("capture", tid()), ["stub_launch"]);
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), [""]);
        let gone = GraphZones::of(&raw_graph(0, 0)).expect_err("no graph");
        assert!(gone.to_string().contains("register a graph that is alive"), "{gone}");
    });
}

#[test]
fn captures_that_nobody_registers_are_bounded_and_told() {
    const CAPTURES: usize = 300;
    on_stub("captures_that_nobody_registers_are_bounded_and_told", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        for _ in 0..CAPTURES {
            begin(driver, stream);
            zone(driver, &MLP, stream, 1);
            end(driver, stream);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, CAPTURES as u64, "{report}");
        assert!(
            report.notes.iter().any(|note| note.contains("zones of 44 captured graphs were let go of")),
            "{report}"
        );
    });
}

#[test]
fn a_graph_is_asked_for_once_and_not_by_the_zones() {
    const NODES: u64 = 1_024;
    const DEPTH: usize = 64;
    on_stub("a_graph_is_asked_for_once_and_not_by_the_zones", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        let mut open = Vec::new();
        for node in 0..NODES as usize {
            if node % (NODES as usize / DEPTH) == 0 {
                open.push(LAYER.zone(&raw(stream)).field("depth", open.len()));
            }
            kernel(driver, stream);
        }
        while open.pop().is_some() {}
        let graph = end(driver, stream);
        assert_eq!(driver.calls("cuStreamGetCaptureInfo_v3"), 2 * DEPTH as u64);
        assert_eq!(driver.calls("cuGraphGetNodes"), 0, "nobody looks into a graph that is still captured");
        let zones = register(graph, 0);
        let depths: Vec<_> = zones.nodes().map(|node| node.zones.len()).collect();
        assert!((0..NODES as usize).all(|node| depths[node] == node / (NODES as usize / DEPTH) + 1), "{depths:?}");
        assert_eq!(
            (driver.calls("cuGraphGetNodes"), driver.calls("cuGraphGetEdges_v2")),
            (2, 2),
            "how many, and which"
        );
        assert_eq!(driver.calls("cuGraphNodeGetType"), NODES);
        assert_eq!(driver.calls("cuFuncGetName"), 1, "once a kernel");
        let registered = driver.all_calls();
        drop((zones.ranges(), zones.lanes(), zones.unlabelled(), GraphZones::find(std::ptr::null_mut(), 0)));
        zones.save(scratch("graph_asked")).expect("a file");
        assert_eq!(driver.all_calls(), registered, "what is known is not asked again");
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn zones_of_every_mode_thread_and_kind_of_guard_are_captured() {
    on_stub("zones_of_every_mode_thread_and_kind_of_guard_are_captured", |driver| {
        let context = driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, busy) = (driver.stream(), driver.stream());
        for mode in [GLOBAL, 1, RELAXED] {
            // The collector has something to ask for all the time.
            {
                let _busy = TIMED.zone(&raw(busy));
                assert_eq!(driver.stub_launch(busy, 5_000_000), SUCCESS);
            }
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
            kernel(driver, stream);
            let layer = LAYER.async_zone(&raw(stream));
            // Another thread puts its work into the same capture, and ends the zone.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    driver.cuCtxSetCurrent(context);
                    zone(driver, &MLP, stream, 2);
                    drop(layer);
                });
            });
            kernel(driver, stream);
            assert_eq!(paths(&register(end(driver, stream), 0)), ["", "layer/mlp", "layer/mlp", ""], "mode {mode}");
        }
        // The handle of the per-thread stream means another one on another thread.
        begin(driver, PER_THREAD);
        kernel(driver, PER_THREAD);
        zone(driver, &MLP, PER_THREAD, 1);
        let moved = LAYER.async_zone(&raw(PER_THREAD));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                driver.cuCtxSetCurrent(context);
                drop(moved);
            });
        });
        kernel(driver, PER_THREAD);
        assert_eq!(paths(&register(end(driver, PER_THREAD), 0)), ["", "mlp", ""]);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.captured, report.dropped.capture_failed, report.recorded), (7, 1, 3), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn of_a_graph_that_is_instantiated_for_ever_the_latest_are_known_and_the_report_counts_the_others() {
    on_stub(
        "of_a_graph_that_is_instantiated_for_ever_the_latest_are_known_and_the_report_counts_the_others",
        |driver| {
            const MOST: usize = 1 << 14;
            driver.start();
            let (session, _records) = start(|builder| builder);
            let stream = driver.stream();
            begin(driver, stream);
            zone(driver, &ATTENTION, stream, 1);
            let graph = end(driver, stream);
            let zones = register(graph, 0);
            // SAFETY: each is alive when it is added.
            let add = |exec: Handle| unsafe { zones.add_exec(exec as *mut c_void) }.expect("a driver");
            // Destroyed ones leave their handles to others, and no room is needed.
            for _ in 0..MOST + 10 {
                let exec = instantiate(driver, graph);
                add(exec);
                assert_eq!(driver.cuGraphExecDestroy(exec), SUCCESS);
            }
            let report = session.finish();
            assert!(report.notes.is_empty(), "{report}");
            let (session, _records) = start(|builder| builder);
            let execs: Vec<_> = (0..MOST + 6).map(|_| instantiate(driver, graph)).collect();
            execs.iter().for_each(|exec| add(*exec));
            for known in [&execs[6..16], &execs[MOST..]].concat() {
                assert_eq!(found(known, 0), ["cuda_graph.attention"]);
            }
            assert!(execs[..6].iter().all(|exec| found(*exec, 0).is_empty()));
            add(execs[0]);
            assert_eq!(found(execs[0], 0), ["cuda_graph.attention"], "one that is told of again");
            assert!(found(execs[6], 0).is_empty());
            let report = session.finish();
            let note = report.notes.iter().find(|note| note.contains("executable graphs made room for newer ones"));
            let note = note.unwrap_or_else(|| panic!("{report}"));
            assert!(note.starts_with("7 ") && note.contains("GraphZones::of"), "{note}");
            for exec in execs {
                assert_eq!(driver.cuGraphExecDestroy(exec), SUCCESS);
            }
            assert_clean(driver);
        },
    );
}

#[test]
fn a_collective_keeps_its_number_and_a_batch_counts_its_entries() {
    on_stub("a_collective_keeps_its_number_and_a_batch_counts_its_entries", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let message = || Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32).group(&group);
        begin(driver, stream);
        {
            let _reduce = REDUCE.zone(&raw(stream)).message(message());
            kernel(driver, stream);
        }
        {
            let mut batch = REDUCE.batch(&raw(stream));
            (0..3).for_each(|_| batch.add(&REDUCE, message));
            kernel(driver, stream);
        }
        let zones = register(end(driver, stream), 0);
        let nodes: Vec<_> = zones.nodes().collect();
        assert_eq!(nodes[0].zones[0].message.as_ref().and_then(|message| message.seq), Some(0));
        let seqs: Vec<_> = nodes[1].zones[0].entries.iter().map(|(_, message)| message.seq).collect();
        assert_eq!(seqs, [Some(1), Some(2), Some(3)]);
        let file = scratch("graph_batch");
        zones.save(&file).expect("a file");
        let json = annotations(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(json["graphs"][0]["zones"][1]["entries"][2]["collective"]["Seq"], 3, "{json}");
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured), (5, 5), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn threads_capture_and_register_beside_each_other() {
    const THREADS: usize = 4;
    const CAPTURES: usize = 200;
    on_stub("threads_capture_and_register_beside_each_other", |driver| {
        let context = driver.start();
        let (session, _records) = start(|builder| builder);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    driver.cuCtxSetCurrent(context);
                    let stream = driver.stream();
                    let (range, name) = if thread % 2 == 0 { (&ATTENTION, "attention") } else { (&MLP, "mlp") };
                    let mut kept = None;
                    for n in 0..CAPTURES {
                        // With times, and around every other capture.
                        let around = (n % 2 == 0).then(|| LAYER.zone(&raw(stream)));
                        assert_eq!(driver.cuStreamBeginCapture_v2(stream, 1), SUCCESS);
                        zone(driver, range, stream, 1 + n % 3);
                        let graph = end(driver, stream);
                        let zones = register(graph, 0);
                        let is_around = around.is_some();
                        drop(around);
                        let expected = if is_around { format!("layer/{name}") } else { name.to_owned() };
                        assert_eq!(paths(&zones), vec![expected; 1 + n % 3], "capture {n} of thread {thread}");
                        // The graph goes before its zones do, and its handle comes back.
                        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
                        kept = Some(zones);
                    }
                    drop(kept);
                });
            }
        });
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, (THREADS * CAPTURES) as u64, "{report}");
        assert!(report.notes.is_empty(), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_graph_that_is_captured_into_again_keeps_what_it_had() {
    on_stub("a_graph_that_is_captured_into_again_keeps_what_it_had", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        zone(driver, &ATTENTION, stream, 2);
        let graph = end(driver, stream);
        let zones = register(graph, 0);
        let nothing = std::ptr::null();
        assert_eq!(driver.cuStreamBeginCaptureToGraph(stream, graph, nothing, nothing.cast(), 0, GLOBAL), SUCCESS);
        kernel(driver, stream);
        zone(driver, &MLP, stream, 1);
        assert_eq!(end(driver, stream), graph);
        zones.extend(&raw_graph(graph, 0)).expect("a graph that is alive");
        assert_eq!(paths(&zones), ["attention", "attention", "", "mlp"]);
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_session_that_ends_during_a_capture_leaves_it_alone() {
    on_stub("a_session_that_ends_during_a_capture_leaves_it_alone", |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        zone(driver, &MLP, stream, 1);
        let open = LAYER.zone(&raw(stream));
        kernel(driver, stream);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.captured, report.dropped.unfinished), (1, 1), "{report}");
        driver.mark("over");
        drop(open);
        zone(driver, &MLP, stream, 1);
        assert_eq!(driver.since("over", tid()), ["stub_launch"], "nothing is asked after the session");
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), ["mlp", "", ""], "what was noted is not lost");
        assert_eq!(driver.stub_misuse(), 0);
    });
}
