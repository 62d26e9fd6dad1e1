//! Traces without ids, whose kernels are joined by launch and order.

use serde_json::{Value, json};

use super::room::*;

#[test]
fn a_trace_without_ids_is_joined_by_launch_and_order() {
    let room = Room::new(Ids::None);
    room.refused(
        &["--annotations", "a.json", "--trace", "t.json", "-o", "out.json"],
        "has a `graph node id` to join a.json by; join by launch and order with `--by order`",
    );
    let said = room.annotate("a.json", "t.json", "out.json", &["--by", "order"]);
    assert!(said.contains("30 of 30 kernels, copies and fills of graphs are annotated, in 5 replays"), "{said}");
    let output = room.json("out.json");
    let zones: Vec<_> = output["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["args"]["replay"] == 4 && event["ph"] == "X")
        .filter(|event| event["pid"] == 0)
        .map(|event| event["args"]["range"].clone())
        .collect();
    assert_eq!(
        zones,
        [
            json!("block.layer"),
            json!("block.attention"),
            json!("block.attention"),
            json!("block.attention"),
            json!("block.sync"),
            Value::Null
        ]
    );
}

#[test]
fn branches_of_a_graph_may_run_in_another_order_where_names_are_known() {
    let room = Room::new(Ids::None);
    let mut trace = trace(Ids::None);
    // The sum runs first in one of the replays.
    let events = trace["traceEvents"].as_array_mut().unwrap();
    events.iter_mut().rfind(|event| event["name"] == "ncclDevKernel_AllReduce").unwrap()["ts"] = json!(1810.0);
    room.write("t.json", trace.to_string());
    room.annotate("a.json", "t.json", "out.json", &["--by", "order"]);
    let sums = room.json("out.json");
    let sums: Vec<_> = sums["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "ncclDevKernel_AllReduce")
        .map(|event| event["args"]["range"].clone())
        .collect();
    assert_eq!(sums, vec![json!("block.sync"); 5]);
}

#[test]
fn by_order_a_replay_of_another_size_or_with_other_kernels_is_refused() {
    let room = Room::new(Ids::None);
    let args = ["--annotations", "a.json", "--trace", "t.json", "-o", "out.pftrace", "--by", "order"];
    let mut trace = trace(Ids::None);
    let events = trace["traceEvents"].as_array_mut().unwrap();
    let at = events.iter().rposition(|event| event["name"] == "softmax(float*, int)").unwrap();
    events[at]["name"] = "other(float*)".into();
    room.write("t.json", trace.to_string());
    room.refused(&args, "launch 5 (correlation 104) has 6 kernels, copies and fills, and graph 1 (block) has as many nodes that do work, but no node left for number 4 of them, `other`");
    trace["traceEvents"].as_array_mut().unwrap().remove(at);
    room.write("t.json", trace.to_string());
    room.refused(
        &args,
        "launch 5 (correlation 104) has 5 kernels, copies and fills, and graph 1 (block) has 6 nodes that do work",
    );
    let mut two = annotations();
    let graph = two["graphs"][0].clone();
    two["graphs"].as_array_mut().unwrap().push(graph);
    room.write("a.json", two.to_string());
    room.write("t.json", self::trace(Ids::None).to_string());
    room.refused(&args, "may be graph 1 (block) or graph 1 (block)");
}
