//! `warpline annotate` and batches of collectives: each entry is in every replay, with its batch's time and what it moves.

use std::fs;

use serde_json::{Value, json};
use warpline_annotate::{By, DEFAULT_LIMIT, Options, annotate};

/// The executable graph that the trace replays.
const EXEC: u64 = 14;
const REPLAYS: u64 = 3;

/// A layer with a kernel, and in it a batch with one kernel and these entries.
fn annotations(entries: Vec<Value>, status: &str) -> Value {
    let zone = |name: &str, kind: &str, lane: Value| {
        json!({"name": name, "kind": kind, "lane": lane, "color": null, "label": null, "description": "What it does.",
               "status": "complete", "fields": {}, "collective": null})
    };
    let mut batch = zone("block.gradients", "collective", Value::Null);
    batch["entries"] = entries.into();
    batch["status"] = status.into();
    let node = |index: u64, zones: &[u32]| {
        json!({"index": index, "within": null, "kind": "kernel", "kernel": null, "tools_id": null, "cupti_id": null,
               "replay_ids": [(EXEC << 32 | index).to_string()], "zones": zones})
    };
    json!({"format": "warpline-graph/1", "catalog": "0x8f3b0c5d12e4a697", "graphs": [{
        "graph": 1, "name": "block", "ids": "cupti_id", "graph_id": 12, "execs": [{"exec_id": EXEC}],
        "zones": [zone("block.layer", "gpu", "layers".into()), batch],
        "nodes": [node(0, &[0]), node(1, &[0, 1])], "unlabelled": [],
    }]})
}

fn message(seq: u64) -> Value {
    json!({"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024, "Group size": 2,
           "Process Group Name": "tp0", "Process Group Ranks": "[0, 1]", "Seq": seq, "Is asynchronized op": false})
}

/// Kernels of 10 us.
fn trace() -> Value {
    let kernel = |replay: u64, node: u64| {
        json!({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 100 * replay + 10 * node, "dur": 10,
               "args": {"correlation": 100 + replay, "graph id": EXEC, "graph node id": EXEC << 32 | node}})
    };
    let events: Vec<_> = (0..REPLAYS).flat_map(|replay| (0..2).map(move |node| kernel(replay, node))).collect();
    json!({ "traceEvents": events })
}

/// The events of the output.
fn annotated(annotations: &Value) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("a.json"), annotations.to_string()).unwrap();
    fs::write(file("t.json"), trace().to_string()).unwrap();
    for name in ["out.json", "out.pftrace"] {
        let options = Options {
            annotations: file("a.json"),
            trace: file("t.json"),
            output: file(name),
            by: By::Id,
            limit: DEFAULT_LIMIT,
        };
        annotate(&options, &()).unwrap();
    }
    // Each format has what the other has.
    let packets = fs::read(file("out.pftrace")).unwrap();
    let has = |text: &str| packets.windows(text.len()).any(|at| at == text.as_bytes());
    assert!(has("block.gradient_a") && has("comm: tp0 [0,1]"));
    let output: Value = serde_json::from_slice(&fs::read(file("out.json")).unwrap()).unwrap();
    output["traceEvents"].as_array().unwrap().clone()
}

/// The bars of a zone: begin, length and the row's name.
fn bars(events: &[Value], name: &str) -> Vec<(f64, f64, String)> {
    let row = |bar: &Value| {
        let is_it = |row: &&Value| row["name"] == "thread_name" && row["pid"] == bar["pid"] && row["tid"] == bar["tid"];
        events.iter().find(is_it).unwrap()["args"]["name"].as_str().unwrap().to_owned()
    };
    let bars = events.iter().filter(|event| event["cat"] == "graph_zone" && event["name"] == name);
    bars.map(|bar| (bar["ts"].as_f64().unwrap(), bar["dur"].as_f64().unwrap(), row(bar))).collect()
}

#[test]
fn each_entry_of_a_batch_is_in_every_replay_with_the_batchs_time_and_what_it_moves() {
    let entries = vec![
        json!({"name": "block.gradient_a", "lane": null, "collective": message(4)}),
        json!({"name": "block.norm", "lane": "norms", "collective": message(5)}),
        // As earlier versions wrote it, and without a group.
        json!({"name": "block.signal", "collective": {"Collective name": "signal"}}),
    ];
    let events = annotated(&annotations(entries, "error"));
    let at = |row: &str| -> Vec<_> { (0..REPLAYS).map(|n| (100.0 * n as f64 + 10.0, 10.0, row.to_owned())).collect() };
    assert_eq!(bars(&events, "block.gradients"), at("layers"));
    assert_eq!(bars(&events, "block.gradient_a"), at("comm: tp0 [0,1]"));
    assert_eq!(bars(&events, "block.norm"), at("norms"));
    assert_eq!(bars(&events, "block.signal"), at("layers"));
    let first = events.iter().find(|event| event["name"] == "block.gradient_a").unwrap();
    let args = &first["args"];
    assert_eq!((&args["Seq"], &args["In msg nelems"], &args["replay"]), (&4.into(), &1024.into(), &1.into()));
    assert_eq!((&args["graph"], &args["status"]), (&"graph 1 (block)".into(), &"error".into()));
    // The batch's kernel is one.
    let kernel = events.iter().find(|event| event["name"] == "k" && event["args"]["range"] == "block.gradients");
    assert_eq!(kernel.unwrap()["args"]["zone"], "block.layer > block.gradients");
}

#[test]
fn a_large_batch_stands_on_several_rows_of_its_lane() {
    let entry = |seq| json!({"name": "block.gradient_a", "lane": null, "collective": message(seq)});
    let events = annotated(&annotations((0..300).map(entry).collect(), "complete"));
    let all = events.iter().filter(|event| event["cat"] == "graph_zone" && event["name"] == "block.gradient_a");
    let rows: std::collections::BTreeSet<_> = all.clone().map(|bar| bar["tid"].to_string()).collect();
    assert_eq!((all.count() as u64, rows.len()), (300 * REPLAYS, 3));
}
