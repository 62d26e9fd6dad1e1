//! Marks on streams that are being captured into CUDA graphs, on a stub driver: which nodes are whose, in graphs of every
//! state. What the capture sees of it (one question) is in `captures`, several threads with one capturing stream in
//! `threads`, what is written about it in `annotations`. What belongs
//! to a zone in every shape of a graph is tested where it is worked out, in `warpline::graph`.

mod annotations;
mod built;
mod captures;
mod threads;

use std::ffi::c_void;

use warpline::RangeSpec;
use warpline::graph::{GraphZones, NodeCount};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::graphs::{begin, end, exec_id, instantiate, raw_graph, register};
use crate::harness::zones::*;

warpline::range! {
    LAYER = "stub.cuda_graph.layer": "A layer.";
    ATTENTION = "stub.cuda_graph.attention": "Attention.", lane = "attention";
    MLP = "stub.cuda_graph.mlp": "Feed-forward.", lane = "mlp";
    REDUCE = "stub.cuda_graph.reduce": "Sums over the group.", kind = collective, lane = "comm: tp0";
    TIMED = "stub.cuda_graph.timed": "Work that is not captured.";
}

/// All that a captured zone may call.
const OF_A_CAPTURE: [&str; 3] = ["cuStreamIsCapturing", "cuStreamGetCaptureInfo_v3", "cuCtxGetCurrent"];

fn kernel(driver: &Stub, stream: Handle) {
    assert_eq!(driver.stub_launch(stream, 0), SUCCESS);
}

/// A zone with so many kernels.
fn zone(driver: &Stub, range: &'static RangeSpec, stream: Handle, kernels: usize) {
    let _zone = range.zone(&raw(stream)).field("kernels", kernels);
    (0..kernels).for_each(|_| kernel(driver, stream));
}

/// A graph of one node.
fn single(driver: &Stub, stream: Handle) -> GraphZones {
    begin(driver, stream);
    kernel(driver, stream);
    register(end(driver, stream), 0)
}

/// The names of each node's zones, without the namespace, outermost first.
fn paths(zones: &GraphZones) -> Vec<String> {
    let name = |range: &RangeSpec| range.name().trim_start_matches("stub.cuda_graph.").to_owned();
    zones.nodes().map(|node| node.zones.iter().map(|zone| name(zone.range)).collect::<Vec<_>>().join("/")).collect()
}

fn found(exec: Handle, index: u32) -> Vec<&'static str> {
    let zones = GraphZones::find(exec as *mut c_void, index).unwrap_or_default();
    zones.iter().map(|zone| zone.range.name()).collect()
}

#[test]
fn every_captured_node_knows_its_zones() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, records) = start(|builder| builder);
        let stream = driver.stream();
        // Warpline opens the driver.
        assert!(GraphZones::for_graph(&raw_graph(0, 0)).is_err());
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
        assert_only(&calls, &[&OF_A_CAPTURE, &["stub_launch"]]);
        assert_eq!(
            calls.iter().filter(|call| *call == "cuStreamGetCaptureInfo_v3").count(),
            12,
            "two a begin and an end: the second one confirms the first"
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
        assert_eq!(
            ranges,
            [("-", 2), ("stub.cuda_graph.attention", 2), ("stub.cuda_graph.layer", 1), ("stub.cuda_graph.mlp", 1)]
        );
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
    on_stub(this_test!(), |driver| {
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
    on_stub(this_test!(), |driver| {
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
fn a_graph_that_is_instantiated_updated_or_cloned_keeps_its_zones() {
    on_stub(this_test!(), |driver| {
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
            assert_eq!(
                (found(exec, 0), found(exec, 1)),
                (vec!["stub.cuda_graph.attention"], vec!["stub.cuda_graph.mlp"])
            );
        }
        // Updated with another graph of the same shape.
        let other = capture(&MLP, &LAYER);
        let others = register(other, 0);
        assert_eq!(driver.cuGraphExecUpdate_v2(twice, other, std::ptr::null_mut()), SUCCESS);
        // SAFETY: it is alive.
        unsafe { others.add_exec(twice as *mut c_void) }.expect("a driver");
        assert_eq!((found(twice, 0), found(once, 0)), (vec!["stub.cuda_graph.mlp"], vec!["stub.cuda_graph.attention"]));
        // Cloned, and the original destroyed.
        let mut clone = 0;
        assert_eq!(driver.cuGraphClone(&mut clone, graph), SUCCESS);
        let of_clone = instantiate(driver, clone);
        let cloned = zones.of_clone(&raw_graph(graph, 0), &raw_graph(clone, of_clone)).expect("a clone");
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        assert_eq!(paths(&cloned), ["attention", "mlp"]);
        assert_eq!(found(of_clone, 1), ["stub.cuda_graph.mlp"]);
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
    on_stub(this_test!(), |driver| {
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
            assert_eq!(found(*exec, 0), [format!("stub.cuda_graph.{name}")]);
        }
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn graphs_inside_a_graph_are_where_their_node_is_and_bodies_nobody_sees_are_named() {
    on_stub(this_test!(), |driver| {
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
fn of_a_graph_that_is_instantiated_for_ever_the_latest_are_known_and_the_report_counts_the_others() {
    on_stub(this_test!(), |driver| {
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
        assert!(report.notes.iter().all(|note| note.contains("no ids of their nodes")), "{report}");
        let (session, _records) = start(|builder| builder);
        let execs: Vec<_> = (0..MOST + 6).map(|_| instantiate(driver, graph)).collect();
        execs.iter().for_each(|exec| add(*exec));
        for known in [&execs[6..16], &execs[MOST..]].concat() {
            assert_eq!(found(known, 0), ["stub.cuda_graph.attention"]);
        }
        assert!(execs[..6].iter().all(|exec| found(*exec, 0).is_empty()));
        add(execs[0]);
        assert_eq!(found(execs[0], 0), ["stub.cuda_graph.attention"], "one that is told of again");
        assert!(found(execs[6], 0).is_empty());
        let report = session.finish();
        let note = report
            .notes
            .iter()
            .find(|note| note.contains("executable graphs were forgotten to make room for newer ones"));
        let note = note.unwrap_or_else(|| panic!("{report}"));
        assert!(note.starts_with("7 ") && note.contains("GraphZones::for_graph"), "{note}");
        for exec in execs {
            assert_eq!(driver.cuGraphExecDestroy(exec), SUCCESS);
        }
        assert_clean(driver);
    });
}

#[test]
fn a_graph_that_is_captured_into_again_keeps_what_it_had() {
    on_stub(this_test!(), |driver| {
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
