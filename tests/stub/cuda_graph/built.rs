//! Labels of nodes in graphs that are built without a capture: which nodes have them, in which order, and what is refused.

use warpline::Value;
use warpline::graph::{GraphError, GraphZones};
use warpline::record::Status;
use warpline::timing::GraphTiming;
use warpline_tests::this_test;

use super::{ATTENTION, LAYER, MLP, found, kernel, paths, zone};
use crate::harness::driver::*;
use crate::harness::graphs::{begin, end, instantiate, pointer, raw_graph, register};
use crate::harness::zones::*;

/// Labels nodes.
fn label(graph: Handle, nodes: &[Handle], range: &'static warpline::RangeSpec) -> Result<(), GraphError> {
    GraphZones::label(&raw_graph(graph, 0), nodes.iter().map(|node| pointer(*node)), range, &[])
}

#[test]
fn nodes_of_a_built_graph_have_the_zones_that_the_program_gives_them() {
    on_stub(this_test!(), |driver| {
        driver.start();
        // No session: a label records nothing.
        let graph = driver.graph();
        let first = driver.add_kernel(graph, &[]);
        let raw_graph = raw_graph(graph, 0);
        let layer = GraphZones::label_added(&raw_graph, &LAYER).expect("alive").label("layer 0").field("batch", 4_u32);
        let one = driver.add_kernel(graph, &[first]);
        let two = driver.add_kernel(graph, &[one]);
        let nodes = [pointer(one), pointer(two), pointer(one)];
        let fields = [("heads", Value::U64(8)), ("name", Value::Str("self"))];
        GraphZones::label(&raw_graph, nodes, &ATTENTION, &fields).expect("nodes of the graph");
        {
            let _mlp = GraphZones::label_added(&raw_graph, &MLP).expect("alive");
            driver.add_kernel(graph, &[two]);
        }
        assert_eq!(layer.end().expect("alive"), 3);
        let last = driver.add_kernel(graph, &[two]);
        let exec = instantiate(driver, graph);
        let zones = register(graph, exec).named("built");
        assert_eq!(paths(&zones), ["", "layer/attention", "layer/attention", "layer/mlp", ""]);
        let node = zones.nodes().nth(1).expect("it has five");
        assert_eq!(node.zones[0].label.as_deref(), Some("layer 0"));
        assert_eq!(node.zones[0].fields[0].1.to_string(), "4", "outer fields survive");
        assert_eq!((node.zones[1].fields[1].0, node.zones[1].status), ("name", Status::Complete));
        let counts = zones.lanes();
        let lanes: Vec<_> = counts.iter().map(|count| (count.name.as_deref().unwrap_or("-"), count.kernels)).collect();
        assert_eq!(lanes, [("-", 2), ("attention", 2), ("mlp", 1)]);
        assert_eq!(found(exec, 3), ["stub.cuda_graph.layer", "stub.cuda_graph.mlp"]);
        // A label behind the registration, and behind the instantiation: it holds for what is read from now on.
        label(graph, &[last], &MLP).expect("a node of the graph");
        assert_eq!(found(exec, 4), ["stub.cuda_graph.mlp"]);
        assert_eq!(paths(&zones)[4], "mlp");
        // Nodes that were added since wait for `extend`.
        let more = driver.add_kernel(graph, &[last]);
        label(graph, &[more, last], &LAYER).expect("nodes of the graph");
        assert_eq!(paths(&zones).len(), 5);
        zones.extend(&raw_graph).expect("alive");
        assert_eq!(paths(&zones)[4..], ["layer/mlp", "layer"]);
        assert_eq!(register(graph, 0).number(), zones.number());
        // What annotations say of it is what they say of captured zones.
        let file = scratch("built");
        zones.save(&file).expect("a file");
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let graph_json = &json["graphs"][0];
        let of = |node: usize| -> Vec<_> {
            let zones = graph_json["nodes"][node]["zones"].as_array().expect("zones");
            zones
                .iter()
                .map(|zone| graph_json["zones"][zone.as_u64().expect("a number") as usize]["name"].clone())
                .collect()
        };
        assert_eq!(of(1), ["stub.cuda_graph.layer", "stub.cuda_graph.attention"]);
        assert_eq!(graph_json["zones"][0]["fields"], serde_json::json!({"batch": 4}));
        assert_clean(driver);
    });
}

#[test]
fn the_zone_with_more_nodes_is_around_the_other_whichever_is_labelled_first_or_captured() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let graph = driver.graph();
        let nodes: Vec<_> = (0..3).map(|_| driver.add_kernel(graph, &[])).collect();
        label(graph, &nodes[1..2], &MLP).expect("a node");
        label(graph, &nodes[..2], &ATTENTION).expect("nodes");
        label(graph, &nodes[..], &LAYER).expect("nodes");
        label(graph, &nodes[2..], &ATTENTION).expect("a node");
        label(graph, &nodes[2..], &MLP).expect("a node");
        assert_eq!(paths(&register(graph, 0)), ["layer/attention", "layer/attention/mlp", "layer/attention/mlp"]);
        // A captured zone inside a label, and around another one.
        let (graph, stream) = (driver.graph(), driver.stream());
        let into = raw_graph(graph, 0);
        let layer = GraphZones::label_added(&into, &LAYER).expect("alive");
        let first = driver.add_kernel(graph, &[]);
        let nothing = std::ptr::null();
        assert_eq!(driver.cuStreamBeginCaptureToGraph(stream, graph, &first, nothing, 1, GLOBAL), SUCCESS);
        zone(driver, &ATTENTION, stream, 2);
        assert_eq!(end(driver, stream), graph);
        drop(layer);
        let mut nodes = [0; 3];
        assert_eq!(driver.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut 3), SUCCESS);
        label(graph, &nodes[1..2], &MLP).expect("a node");
        let zones = register(graph, 0);
        assert_eq!(paths(&zones), ["layer", "layer/attention/mlp", "layer/attention"]);
        // A clone has them, too.
        let mut clone = 0;
        assert_eq!(driver.cuGraphClone(&mut clone, graph), SUCCESS);
        let cloned = zones.of_clone(&into, &raw_graph(clone, 0)).expect("a clone");
        assert_eq!(paths(&cloned), paths(&zones));
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_child_graph_is_in_the_zones_of_its_node_and_may_have_its_own() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let child = driver.graph();
        let inner = driver.add_kernel(child, &[]);
        driver.add_kernel(child, &[inner]);
        let graph = driver.graph();
        let into = raw_graph(graph, 0);
        let layer = GraphZones::label_added(&into, &LAYER).expect("alive");
        let node = driver.add_child(graph, &[], child);
        assert_eq!(layer.end().expect("alive"), 1);
        let mut inside = 0;
        assert_eq!(driver.cuGraphChildGraphNodeGetGraph(node, &mut inside), SUCCESS);
        let mut nodes = [0; 2];
        assert_eq!(driver.cuGraphGetNodes(inside, nodes.as_mut_ptr(), &mut 2), SUCCESS);
        label(graph, &nodes[1..], &MLP).expect("a node of a graph inside");
        assert_eq!(paths(&register(graph, 0)), ["layer", "layer", "layer/mlp"]);
        // The graph from which it was made has other nodes.
        let refused = label(graph, &[inner], &MLP).expect_err("another graph's");
        assert!(refused.to_string().contains("is not in the graph"), "{refused}");
        assert_clean(driver);
    });
}

#[test]
fn what_cannot_be_labelled_is_refused_and_nothing_of_it_is() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (graph, other) = (driver.graph(), driver.graph());
        let (node, foreign) = (driver.add_kernel(graph, &[]), driver.add_kernel(other, &[]));
        let refused = |graph, nodes: &[Handle]| label(graph, nodes, &MLP).expect_err("it cannot be").to_string();
        let text = refused(graph, &[node, foreign]);
        assert!(text.contains(&format!("node {foreign:#x} is not in the graph")), "{text}");
        let text = refused(graph, &[node, 0]);
        assert!(text.contains("node 1 of those given is null"), "{text}");
        assert!(refused(0, &[node]).contains("the graph's handle is null"));
        let into = raw_graph(0, 0);
        assert!(GraphZones::label_added(&into, &MLP).is_err());
        label(graph, &[], &MLP).expect("nothing to label");
        assert_eq!(paths(&register(graph, 0)), [""]);
        // A graph that is gone.
        let gone = driver.graph();
        let into = raw_graph(gone, 0);
        let mlp = GraphZones::label_added(&into, &MLP).expect("alive");
        let dropped = GraphZones::label_added(&into, &MLP).expect("alive");
        assert_eq!(driver.cuGraphDestroy(gone), SUCCESS);
        assert!(mlp.end().expect_err("gone").to_string().contains("does not list the graph's nodes"));
        drop(dropped);
        assert!(refused(gone, &[node]).contains("does not list the graph's nodes"));
        // A node that is destroyed before its graph is registered.
        let labelled = driver.graph();
        let nodes = [driver.add_kernel(labelled, &[]), driver.add_kernel(labelled, &[])];
        label(labelled, &nodes, &MLP).expect("nodes");
        label(labelled, &nodes[1..], &LAYER).expect("a node");
        assert_eq!(driver.cuGraphDestroyNode(nodes[0]), SUCCESS);
        assert_eq!(paths(&register(labelled, 0)), ["layer"]);
        let report = session.finish();
        for note in ["1 label of nodes was discarded, because the graph", "1 label of added nodes was discarded"] {
            assert!(report.notes.iter().any(|of| of.starts_with(note)), "{note}: {report}");
        }
        assert_exact(&report);
    });
}

#[test]
fn a_session_with_stamps_says_once_that_labels_have_none() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        kernel(driver, stream);
        let notes_of = |timing| {
            let (session, _records) = start(|builder| builder.graph_timing(timing));
            let graph = driver.graph();
            let node = driver.add_kernel(graph, &[]);
            label(graph, &[node], &MLP).expect("a node");
            label(graph, &[node], &LAYER).expect("a node");
            let zones = register(graph, instantiate(driver, graph));
            assert_eq!(paths(&zones), ["mlp/layer"]);
            // Its capture is timed as ever.
            begin(driver, stream);
            zone(driver, &ATTENTION, stream, 1);
            end(driver, stream);
            let report = session.finish();
            assert_exact(&report);
            report.notes.into_iter().filter(|note| note.contains("not timed by stamps")).collect::<Vec<_>>()
        };
        let notes = notes_of(GraphTiming::Stamps);
        assert!(
            matches!(&notes[..], [note] if note.starts_with("2 labels of nodes are not timed by stamps")),
            "{notes:?}"
        );
        assert!(notes_of(GraphTiming::Off).is_empty());
    });
}
