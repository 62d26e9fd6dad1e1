//! A real trace: PyTorch 2.11 replayed a captured transformer block five times on an H200 (`tests/readers/make_torch_graph_trace.py`
//! made both files). That version writes no node ids, so kernels are joined by launch and order.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;
use warpline_annotate::{By, DEFAULT_LIMIT, Options, annotate};

const KERNELS: [(&str, u64); 4] =
    [("block.qkv_proj", 2), ("block.attention", 7), ("block.out_proj", 4), ("block.mlp", 6)];
const REPLAYS: u64 = 5;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn write(output: &Path) {
    let (annotations, trace) = (data().join("torch_graph.annotations.json"), data().join("torch_graph.json.gz"));
    let options = Options { annotations, trace, output: output.to_owned(), by: By::Order, limit: DEFAULT_LIMIT };
    annotate(&options, &()).unwrap();
}

/// For the trace gate, which compares its rows.
#[test]
fn write_gate_trace() {
    if let Some(folder) = std::env::var_os("WARPLINE_GATE_DIR") {
        write(&Path::new(&folder).join("torch.pftrace"));
    }
}

#[test]
fn a_trace_of_pytorch_keeps_all_events_and_every_kernel_of_its_replays_knows_its_zone() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.json");
    let mut trace = String::new();
    let packed = fs::File::open(data().join("torch_graph.json.gz")).unwrap();
    GzDecoder::new(packed).read_to_string(&mut trace).unwrap();
    write(&output);
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (before, after) = (parse(&trace), parse(&fs::read_to_string(&output).unwrap()));
    let events = |trace: &Value| trace["traceEvents"].as_array().unwrap().clone();
    let (before, mut after) = (events(&before), events(&after));
    // An arrow from each launch stands beside its launch.
    after.retain(|event| event["cat"] != "graph_launch");
    let mut of_zones = BTreeMap::<String, u64>::new();
    for (before, after) in before.iter().zip(&after) {
        let mut after = after.clone();
        if let Some(range) = after["args"]["range"].as_str() {
            *of_zones.entry(range.to_owned()).or_default() += 1;
        }
        if let (Some(after), Some(before)) = (after.get_mut("args").and_then(Value::as_object_mut), before.get("args"))
        {
            after.retain(|name, _| before.get(name).is_some());
        }
        assert_eq!(before, &after);
    }
    assert_eq!(of_zones, KERNELS.map(|(range, kernels)| (range.to_owned(), kernels * REPLAYS)).into());
    let added = &after[before.len()..];
    let replays = added.iter().filter(|event| event["cat"] == "graph_replay" && event["ph"] == "X");
    assert!(replays.map(|replay| replay["args"]["kernels"].as_u64()).eq([Some(19); REPLAYS as usize]));
}
