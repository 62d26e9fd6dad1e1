//! `warpline annotate`: annotations of graphs and a profiler's trace become one trace, in which nothing is lost.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};
use warpline_cli::annotate::{By, Options, annotate};

/// The executable graph that the traces replay.
const EXEC: u64 = 14;
const REPLAYS: u64 = 5;

/// Nodes: their kinds, names as the driver has them, names as a profiler shows them, and zones.
const NODES: [(&str, &str, &str, &[u32]); 6] = [
    ("kernel", "_Z9layernormPfPKfi", "layernorm(float*, float const*, int)", &[0]),
    ("memset", "", "Memset (Device)", &[0, 1]),
    ("kernel", "sm90_xmma_gemm_qk", "sm90_xmma_gemm_qk", &[0, 1]),
    ("kernel", "_Z7softmaxPfi", "softmax(float*, int)", &[0, 1]),
    ("kernel", "ncclDevKernel_AllReduce", "ncclDevKernel_AllReduce", &[0, 2]),
    ("kernel", "_Z8residualPfi", "residual(float*, int)", &[]),
];

fn annotations() -> Value {
    let zone = |name: &str, lane: Value, label: Value, fields: Value, collective: Value| {
        json!({"name": name, "kind": "gpu", "lane": lane, "color": null, "label": label, "description": "What it does.",
               "status": "complete", "fields": fields, "collective": collective})
    };
    let nodes: Vec<_> = NODES
        .iter()
        .enumerate()
        .map(|(index, (kind, kernel, _, zones))| {
            let kernel = if kernel.is_empty() { Value::Null } else { (*kernel).into() };
            json!({"index": index, "within": null, "kind": kind, "kernel": kernel, "tools_id": null, "cupti_id": null,
                   "replay_ids": [(EXEC << 32 | index as u64).to_string()], "zones": zones})
        })
        .collect();
    let message = json!({"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024, "Group size": 2,
                         "Process Group Name": "tp0", "Process Group Ranks": "[0, 1]", "Seq": 3, "Is asynchronized op": false});
    json!({"format": "warpline-graph/1", "catalog": "0x8f3b0c5d12e4a697", "graphs": [{
        "graph": 1, "name": "block", "ids": "cupti_id", "graph_id": 12, "execs": [{"exec_id": EXEC}],
        "zones": [
            zone("block.layer", Value::Null, "layer 0".into(), json!({"batch": 4, "stream": "compute"}), Value::Null),
            zone("block.attention", "attention".into(), Value::Null, json!({"batch": 8, "scale": 0.5}), Value::Null),
            zone("block.sync", Value::Null, Value::Null, json!({}), message),
        ],
        "nodes": nodes, "unlabelled": [],
    }]})
}

/// How a trace says the nodes of its kernels.
#[derive(Clone, Copy, PartialEq)]
enum Ids {
    /// In one replay as numbers, in one as texts, in the others the lower half.
    Mixed,
    None,
}

/// A trace as PyTorch's profiler writes it, and some of everything else that the format has.
fn events(ids: Ids) -> Vec<Value> {
    let meta = |name: &str, pid: u64, tid: u64, args: Value| json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0.0, "args": args});
    let mut events = vec![
        meta("process_name", 4242, 0, json!({"name": "python"})),
        meta("process_labels", 4242, 0, json!({"labels": "CPU"})),
        meta("thread_name", 4242, 4243, json!({"name": "main"})),
        meta("process_name", 0, 0, json!({"name": "python"})),
        meta("process_labels", 0, 0, json!({"labels": "GPU 0"})),
        meta("thread_name", 0, 7, json!({"name": "stream 7 "})),
        meta("num_cpus", 4242, 4243, json!({"number": 96})),
    ];
    let flow = |ph: &str, pid: u64, tid: u64, ts: f64, id: u64| json!({"ph": ph, "bp": "e", "id": id, "pid": pid, "tid": tid, "ts": ts, "cat": "ac2g", "name": "ac2g"});
    for replay in 0..REPLAYS {
        let (correlation, begin) = (100 + replay, 1000.0 + 200.0 * replay as f64);
        events.push(
            json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 4242, "tid": 4243, "ts": begin,
                           "dur": 8.125, "args": {"correlation": correlation, "cbid": 311}}),
        );
        events.push(flow("s", 4242, 4243, begin, correlation));
        for (index, (kind, _, name, _)) in NODES.iter().enumerate() {
            // The fourth begins before the third has ended, and no two times are in the order of the file.
            let ts = begin + 12.0 + if index == 3 { 14.5 } else { 6.0 * index as f64 };
            let mut args = json!({"device": 0, "stream": 7, "correlation": correlation, "grid": [1, 2, 3]});
            let id = EXEC << 32 | index as u64;
            if ids == Ids::Mixed {
                args["graph id"] = EXEC.into();
                args["graph node id"] = match replay {
                    0 => id.into(),
                    1 => id.to_string().into(),
                    _ => index.into(),
                };
            }
            let category = if *kind == "kernel" { "kernel" } else { "gpu_memset" };
            events.push(json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": 5.501, "args": args}));
            events.push(flow("f", 0, 7, ts, correlation));
        }
    }
    events.extend([
        json!({"ph": "X", "cat": "kernel", "name": "eager", "pid": 0, "tid": 7, "ts": 900, "dur": 3, "args": {"correlation": 7, "graph node id": 0}}),
        json!({"ph": "i", "s": "g", "name": "Iteration Start", "pid": "Traces", "tid": "Trace 1", "ts": 1.5}),
        json!({"ph": "C", "name": "memory", "pid": 4242, "ts": 5, "args": {"bytes": 17, "kind": "x"}}),
        json!({"ph": "E", "pid": 4242, "tid": 9, "ts": 4}),
        json!({"ph": "B", "name": "outer", "pid": 4242, "tid": 9, "ts": 5, "args": {"a": 1}}),
        json!({"ph": "B", "name": "inner", "pid": 4242, "tid": 9, "ts": 6, "cname": "good"}),
        json!({"ph": "E", "pid": 4242, "tid": 9, "ts": 8}),
        json!({"ph": "E", "pid": 4242, "tid": 9, "ts": 9, "args": {"b": [1, {"c": -2.5}]}}),
        json!({"ph": "B", "name": "open", "pid": 4242, "tid": 9, "ts": 10}),
        json!({"ph": "b", "cat": "io", "id": "0x1", "name": "read", "pid": 4242, "tid": 9, "ts": 5}),
        json!({"ph": "e", "cat": "io", "id": "0x1", "name": "read", "pid": 4242, "tid": 9, "ts": 15}),
        json!({"ph": "O", "cat": "objects", "id": "0x2", "name": "snapshot", "pid": 4242, "tid": 9, "ts": 15, "args": {"deep": {"x": true}}}),
        json!({"ph": "s", "cat": "alone", "name": "alone", "id": 1, "pid": 4242, "tid": 4243, "ts": 1001}),
        json!({"ph": "X", "name": "no time", "pid": 4242, "tid": 9}),
        json!({"ph": "X", "name": "", "pid": 4242, "tid": 9, "ts": 20, "dur": 1.25}),
    ]);
    events
}

fn trace(ids: Ids) -> Value {
    json!({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a GPU"}], "baseTimeNanoseconds": 1_700_000_000_000_000_000_i64,
           "traceEvents": events(ids), "traceName": "trace.json"})
}

struct Room(tempfile::TempDir);

impl Room {
    /// With annotations and a trace in it.
    fn new(ids: Ids) -> Room {
        let room = Room(tempfile::tempdir().unwrap());
        room.write("a.json", annotations().to_string());
        room.write("t.json", trace(ids).to_string());
        room
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), content).unwrap();
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(name)).unwrap()).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.arg("annotate").args(args).current_dir(self.path());
        command
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// Annotates `trace` into `output`, which must succeed. Returns what was said.
    fn annotate(&self, annotations: &str, trace: &str, output: &str, more: &[&str]) -> String {
        let args = [&["--annotations", annotations, "--trace", trace, "-o", output], more].concat();
        let (status, said, complaints) = self.run(&args);
        assert_eq!((status, complaints.as_str()), (Some(0), ""));
        said
    }

    /// Must be refused, with this in the one line that is said, and leave nothing behind.
    fn refused(&self, args: &[&str], because: &str) {
        let before = self.files();
        let (status, said, complaints) = self.run(args);
        assert_eq!((status, said.as_str()), (Some(2), ""), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
        assert!(complaints.contains(because), "`{because}` is not in: {complaints}");
        assert_eq!(self.files(), before, "a file was left behind");
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What Chrome's output has beside the events of the trace.
fn added<'a>(output: &'a Value, category: &str) -> Vec<&'a Value> {
    output["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["cat"] == category && event["ph"] == "X")
        .collect()
}

#[test]
fn every_event_of_the_trace_is_in_the_chrome_output_as_it_was() {
    let room = Room::new(Ids::Mixed);
    let said = room.annotate("a.json", "t.json", "out.json", &[]);
    assert_eq!(
        said,
        "out.json: 30 of 30 kernels, copies and fills of graphs are annotated, in 5 replays of 1 of 1 graphs; 92 events read\n"
    );
    let (trace, output) = (room.json("t.json"), room.json("out.json"));
    for member in ["schemaVersion", "deviceProperties", "baseTimeNanoseconds", "traceName"] {
        assert_eq!(trace[member], output[member]);
    }
    let (before, after) = (trace["traceEvents"].as_array().unwrap(), output["traceEvents"].as_array().unwrap());
    let arrows = |event: &&Value| event["cat"] != "graph_launch";
    let mut kernels = 0;
    for (before, after) in before.iter().zip(after.iter().filter(arrows)) {
        let mut after = after.clone();
        if before["args"]["graph node id"].is_null()
            || before["args"]["graph node id"] == 0 && before["args"]["graph id"].is_null()
        {
            assert_eq!(before, &after);
            continue;
        }
        kernels += 1;
        let args = after["args"].as_object_mut().unwrap();
        assert_eq!(args["graph"], "graph 1 (block)");
        args.retain(|name, _| !before["args"][name].is_null());
        assert_eq!(before, &after);
    }
    assert_eq!(kernels, 30);
}

#[test]
fn a_kernel_says_its_zones_and_keeps_what_it_said_itself() {
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.json", &[]);
    let output = room.json("out.json");
    let find = |name: &str| {
        output["traceEvents"].as_array().unwrap().iter().find(|event| event["name"] == name).unwrap()["args"].clone()
    };
    let softmax = find("softmax(float*, int)");
    assert_eq!(softmax["zone"], "block.layer > block.attention");
    assert_eq!(
        (&softmax["range"], &softmax["lane"], &softmax["replay"]),
        (&json!("block.attention"), &json!("attention"), &json!(1))
    );
    // The inner zone's field, the outer zone's label, and the kernel's own stream.
    assert_eq!((&softmax["batch"], &softmax["label"]), (&json!(8), &json!("layer 0")));
    assert_eq!((&softmax["stream"], &softmax["zone_stream"]), (&json!(7), &json!("compute")));
    let sum = find("ncclDevKernel_AllReduce");
    assert_eq!(
        (&sum["Collective name"], &sum["In msg nelems"], &sum["lane"]),
        (&json!("allreduce"), &json!(1024), &json!("comm: tp0 [0,1]"))
    );
    let residual = find("residual(float*, int)");
    assert_eq!((&residual["zone"], &residual["graph"]), (&Value::Null, &json!("graph 1 (block)")));
    assert_eq!(find("eager")["graph"], Value::Null);
}

#[test]
fn replays_and_lanes_span_their_kernels() {
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.json", &[]);
    let output = room.json("out.json");
    let spans = |category: &str, name: &str| -> Vec<(f64, f64)> {
        let bars = added(&output, category).into_iter().filter(|bar| bar["name"] == name);
        bars.map(|bar| (bar["ts"].as_f64().unwrap(), bar["dur"].as_f64().unwrap())).collect()
    };
    let begins = (0..REPLAYS).map(|replay| 1012.0 + 200.0 * replay as f64);
    assert_eq!(spans("graph_replay", "graph 1 (block)"), begins.clone().map(|ts| (ts, 35.501)).collect::<Vec<_>>());
    assert_eq!(spans("graph_zone", "block.layer"), begins.clone().map(|ts| (ts, 29.501)).collect::<Vec<_>>());
    assert_eq!(spans("graph_zone", "block.attention"), begins.clone().map(|ts| (ts + 6.0, 14.001)).collect::<Vec<_>>());
    assert_eq!(spans("graph_zone", "block.sync"), begins.map(|ts| (ts + 24.0, 5.501)).collect::<Vec<_>>());
    let replay = added(&output, "graph_replay")[4];
    assert_eq!(
        replay["args"],
        json!({"replay": 5, "kernels": 6, "correlation": 104, "graph id": 14, "launch_to_begin_ns": 12000})
    );
    // An arrow from each launch.
    let arrows = |ph: &str| {
        let events = output["traceEvents"].as_array().unwrap().iter();
        events
            .filter(|event| event["cat"] == "graph_launch" && event["ph"] == ph)
            .map(|event| event["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!((arrows("s").len(), arrows("s")), (5, arrows("f")));
}

/// Of Perfetto's protos what the test looks at.
mod proto {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub packets: Vec<Packet>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Packet {
        #[prost(uint64, tag = "8")]
        pub timestamp: u64,
        #[prost(message, optional, tag = "11")]
        pub event: Option<Event>,
        #[prost(message, optional, tag = "12")]
        pub interned: Option<Interned>,
        #[prost(message, optional, tag = "60")]
        pub track: Option<Track>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Event {
        #[prost(int32, tag = "9")]
        pub kind: i32,
        #[prost(uint64, tag = "10")]
        pub name: u64,
        #[prost(uint64, tag = "11")]
        pub track: u64,
        #[prost(fixed64, repeated, packed = "false", tag = "47")]
        pub flows: Vec<u64>,
        #[prost(fixed64, repeated, packed = "false", tag = "48")]
        pub ending_flows: Vec<u64>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Interned {
        #[prost(message, repeated, tag = "2")]
        pub names: Vec<Name>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Name {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(string, tag = "2")]
        pub text: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Track {
        #[prost(uint64, tag = "1")]
        pub uuid: u64,
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(uint64, tag = "17")]
        pub merge_key: u64,
    }
}

/// Slices, instants and arrows of a Perfetto trace: name, row, begin and end; and what two slices each arrow connects.
struct Seen {
    slices: Vec<(String, String, u64, u64)>,
    instants: Vec<String>,
    arrows: Vec<(String, String)>,
}

fn perfetto(path: &Path) -> Seen {
    let trace = proto::Trace::decode(&*fs::read(path).unwrap()).unwrap();
    let (mut names, mut tracks) = (HashMap::new(), HashMap::new());
    let mut seen = Seen { slices: Vec::new(), instants: Vec::new(), arrows: Vec::new() };
    let (mut open, mut ends) = (None, (HashMap::new(), HashMap::new()));
    for packet in trace.packets {
        names.extend(packet.interned.into_iter().flat_map(|interned| interned.names).map(|name| (name.id, name.text)));
        tracks.extend(packet.track.map(|track| (track.uuid, track.name)));
        let Some(event) = packet.event else { continue };
        let name = names.get(&event.name).cloned().unwrap_or_default();
        ends.0.extend(event.flows.into_iter().map(|flow| (flow, name.clone())));
        ends.1.extend(event.ending_flows.into_iter().map(|flow| (flow, name.clone())));
        match event.kind {
            1 => open = Some((name, tracks[&event.track].clone(), packet.timestamp, event.track)),
            2 => {
                // A slice's end stands behind its begin.
                let (name, row, begin, track) = open.take().unwrap();
                assert_eq!(track, event.track);
                seen.slices.push((name, row, begin, packet.timestamp));
            }
            3 => seen.instants.push(name),
            _ => {}
        }
    }
    assert!(open.is_none());
    let mut flows: Vec<_> = ends.0.into_iter().map(|(flow, from)| (from, ends.1.remove(&flow).unwrap())).collect();
    assert!(ends.1.is_empty());
    flows.sort();
    seen.arrows = flows;
    seen
}

#[test]
fn the_perfetto_output_has_every_slice_at_its_time_and_says_what_it_has_not() {
    let room = Room::new(Ids::Mixed);
    let said = room.annotate("a.json", "t.json", "out.pftrace", &[]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines[1..],
        [
            "1 not as they were: events without a time",
            "1 not as they were: ends of slices without a begin",
            "1 not as they were: slices that never end, drawn to the end of the trace",
            "1 not as they were: ends of arrows without another end",
            "1 not as they were: values of counters that are no numbers, or of too many counters",
        ]
    );
    let seen = perfetto(&room.path().join("out.pftrace"));
    let ns = |us: &Value| (us.as_f64().unwrap() * 1e3).round() as u64;
    let mut expected: Vec<_> = events(Ids::Mixed)
        .iter()
        .filter(|event| event["ph"] == "X" && !event["ts"].is_null())
        .map(|event| {
            let name = event["name"].as_str().filter(|name| !name.is_empty()).unwrap_or("(no name)");
            (name.to_owned(), ns(&event["ts"]), ns(&event["ts"]) + ns(&event["dur"]))
        })
        .collect();
    // With begins and ends that are events of their own.
    let last = 1_000_000 + 800_000 + 12_000 + 30_000 + 5_501;
    expected.extend(
        [("outer", 5_000, 9_000), ("inner", 6_000, 8_000), ("open", 10_000, last), ("read", 5_000, 15_000)]
            .map(|(name, begin, end)| (name.to_owned(), begin, end)),
    );
    expected.sort();
    let added = |row: &str| ["graph replays", "attention", "zones", "comm: tp0 [0,1]"].contains(&row);
    let mut slices: Vec<_> =
        seen.slices.iter().filter(|slice| !added(&slice.1)).map(|slice| (slice.0.clone(), slice.2, slice.3)).collect();
    slices.sort();
    assert_eq!(slices, expected);
    assert_eq!(seen.slices.iter().filter(|slice| added(&slice.1)).count(), 5 * 4);
    assert_eq!(seen.instants, ["num_cpus", "Iteration Start", "snapshot"]);
    // Each launch leads to its kernels and to its replay.
    assert_eq!(seen.arrows.len(), 5 * 7);
    assert!(seen.arrows.iter().all(|(from, _)| from == "cudaGraphLaunch"));
    assert_eq!(seen.arrows.iter().filter(|(_, to)| to == "graph 1 (block)").count(), 5);
}

#[test]
fn slices_that_overlap_share_a_row_and_no_track() {
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.pftrace", &[]);
    let trace = proto::Trace::decode(&*fs::read(room.path().join("out.pftrace")).unwrap()).unwrap();
    let streams: Vec<_> = trace
        .packets
        .iter()
        .filter_map(|packet| packet.track.as_ref())
        .filter(|track| track.name == "stream 7")
        .collect();
    assert_eq!(streams.len(), 2);
    assert_ne!(streams[0].uuid, streams[1].uuid);
    assert_eq!(streams[0].merge_key, streams[1].merge_key);
}

#[test]
fn equal_inputs_become_equal_files() {
    let room = Room::new(Ids::Mixed);
    for output in ["one.pftrace", "two.pftrace"] {
        room.annotate("a.json", "t.json", output, &[]);
    }
    let [one, two] = ["one.pftrace", "two.pftrace"].map(|name| fs::read(room.path().join(name)).unwrap());
    assert!(one == two);
}

#[test]
fn a_trace_without_ids_is_joined_by_launch_and_order() {
    let room = Room::new(Ids::None);
    room.refused(
        &["--annotations", "a.json", "--trace", "t.json", "-o", "out.json"],
        "has a `graph node id` that a.json could be joined by; join by launch and order with `--by order`",
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

#[test]
fn annotations_of_pytorch_are_read_as_json_and_as_a_pickle() {
    let room = Room::new(Ids::Mixed);
    let base = EXEC << 32;
    let saved = json!({
        (base | 2).to_string(): [{"name": "attention", "heads": 8}],
        (base | 3).to_string(): [{"name": "attention", "heads": 8}],
        (base | 4).to_string(): [{"name": "sync", "Collective name": "allreduce", "stream": 60}],
        (base | 5).to_string(): ["tail"],
    });
    room.write("torch.json", saved.to_string());
    // pickle.dumps of the same, protocol 4, with the dict of the first two shared as PyTorch 2.12 does.
    let mut pickle = b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94(".to_vec();
    let key = |node: u64| [&[0x8A, 5][..], &(base | node).to_le_bytes()[..5]].concat();
    let text = |text: &str| [&[0x8C, text.len() as u8][..], text.as_bytes(), b"\x94"].concat();
    pickle.extend(
        [key(2), b"]\x94}\x94(".to_vec(), text("name"), text("attention"), text("heads"), b"K\x08ua".to_vec()].concat(),
    );
    pickle.extend([key(3), b"]\x94h\x02a".to_vec()].concat());
    pickle.extend(
        [
            key(4),
            b"]\x94}\x94(h\x03".to_vec(),
            text("sync"),
            text("Collective name"),
            text("allreduce"),
            text("stream"),
            b"K\x3cua".to_vec(),
        ]
        .concat(),
    );
    pickle.extend([key(5), b"]\x94".to_vec(), text("tail"), b"a".to_vec(), b"u.".to_vec()].concat());
    room.write("torch.pkl", &pickle);
    for (annotations, output) in [("torch.json", "json.json"), ("torch.pkl", "pickle.json")] {
        let said = room.annotate(annotations, "t.json", output, &[]);
        assert!(said.contains("20 of 30 kernels"), "{said}");
    }
    let (output, other) = (room.json("json.json"), room.json("pickle.json"));
    assert_eq!(output, other);
    let lanes: Vec<_> = added(&output, "graph_zone").into_iter().map(|zone| zone["name"].clone()).collect();
    assert_eq!(lanes.iter().filter(|name| **name == "attention").count(), 5);
    assert_eq!(lanes.len(), 15);
    for end in 1..pickle.len() {
        room.write("torch.pkl", &pickle[..end]);
        room.refused(
            &["--annotations", "torch.pkl", "--trace", "t.json", "-o", "out.json"],
            "torch.pkl: no annotations of graphs: a pickle that",
        );
    }
    // What names a class or calls something is never carried out.
    room.write("torch.pkl", b"\x80\x04cos\nsystem\n\x8c\x02id\x85R.");
    room.refused(
        &["--annotations", "torch.pkl", "--trace", "t.json", "-o", "out.json"],
        "holds more than plain dicts, lists, texts and numbers",
    );
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn packed_files_are_read_and_written() {
    let room = Room::new(Ids::Mixed);
    room.write("a.gz", packed(annotations().to_string().as_bytes()));
    room.write("t.json.gz", packed(trace(Ids::Mixed).to_string().as_bytes()));
    room.annotate("a.json", "t.json", "plain.json", &[]);
    room.annotate("a.gz", "t.json.gz", "out.json.gz", &[]);
    let mut text = String::new();
    GzDecoder::new(File::open(room.path().join("out.json.gz")).unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, fs::read_to_string(room.path().join("plain.json")).unwrap());
}

#[test]
fn an_array_of_events_is_a_trace_and_may_lack_its_end() {
    let room = Room::new(Ids::Mixed);
    let array = Value::from(events(Ids::Mixed)).to_string();
    for text in [&array[..], &array[..array.len() - 1], &format!("{},\n", &array[..array.len() - 1])] {
        room.write("t.json", text);
        assert!(room.annotate("a.json", "t.json", "out.json", &[]).contains("30 of 30"));
        assert!(room.annotate("a.json", "t.json", "out.pftrace", &[]).contains("92 events"));
    }
}

#[test]
fn a_trace_cut_short_anywhere_is_refused_and_leaves_nothing() {
    let room = Room::new(Ids::Mixed);
    // Small, so that every place can be tried.
    let events: Vec<_> = events(Ids::Mixed).into_iter().skip(7).take(4).collect();
    let whole = json!({"schemaVersion": 1, "traceEvents": events, "traceName": "a \"name\" \\"}).to_string();
    room.write("t.json", &whole);
    room.annotate("a.json", "t.json", "out.json", &[]);
    fs::remove_file(room.path().join("out.json")).unwrap();
    let packed = packed(whole.as_bytes());
    for (content, what) in [(whole.as_bytes(), "plain"), (&packed[..], "packed")] {
        for end in 0..content.len() {
            room.write("t.json", &content[..end]);
            let (status, _, complaints) = room.run(&["--annotations", "a.json", "--trace", "t.json", "-o", "out.json"]);
            assert_eq!(status, Some(2), "{what}, {end} bytes");
            assert!(complaints.starts_with("error: t.json: ") && complaints.lines().count() == 1, "{complaints}");
            assert_eq!(room.files(), ["a.json", "t.json"], "{what}, {end} bytes");
        }
    }
}

#[test]
fn what_cannot_be_used_ends_with_2_and_says_what_and_where() {
    let room = Room::new(Ids::Mixed);
    let args = ["--annotations", "a.json", "--trace", "x", "-o", "out.pftrace"];
    let bad = |content: &[u8], because: &str| {
        room.write("x", content);
        room.refused(&args, because);
    };
    bad(b"", "x: not a Chrome trace: neither an object nor an array");
    bad(b"{}", "x: not a Chrome trace: it has no `traceEvents`; export one with");
    bad(b"\x0a\x02\x50\x01", "x: not a Chrome trace");
    bad(b"{\"traceEvents\": {}}", "x: damaged at byte 16 (line 1): `traceEvents` is no array");
    bad(
        b"{\"traceEvents\": [\n{\"ph\": \"X\"},\n{\"ph\" \"X\"}]}",
        "x: damaged at byte 37 (line 3): expected `:`; export it again",
    );
    bad(b"{\"traceEvents\": [\n{\"ph\": \"X\"} {}]}", "x: damaged at byte 30 (line 2): no `,` or `]` behind an event");
    bad(b"{\"traceEvents\": [1]}", "x: damaged at byte 17 (line 1): an event that is no object");
    bad(b"{\"traceEvents\": []} x", "something behind the trace's end");
    bad(b"{\"a\": nul, \"traceEvents\": []}", "x: damaged at byte 8 (line 1): EOF while parsing a value");
    bad(b"{\"traceEvents\": [{\"ph\": \"\xFF\"}]}", "x: damaged at byte 25 (line 1): invalid unicode code point");
    bad(b"{\"traceEvents\": []}", "x: none of its 0 events has a `graph node id` that a.json could be joined by");
    bad(b"\x1f\x8b\x08\0\0\0\0\0\0\x03garbage that is not packed", "x: damaged as a gzip file");
    let other = json!({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "args": {"graph node id": 99_u64 << 32, "correlation": 1}}]});
    bad(
        other.to_string().as_bytes(),
        "x: it has 1 kernels of graphs, and none is in a.json; save the annotations in the run",
    );
    room.refused(&["--annotations", "a.json", "--trace", "missing", "-o", "o.json"], "missing: No such file");
    room.refused(&["--annotations", "a.json", "--trace", ".", "-o", "o.json"], ".: not a file");
    room.refused(&["--annotations", "a.json", "--trace", "t.json", "-o", "o.txt"], "o.txt: the name must end with");
    room.refused(
        &["--annotations", "a.json", "--trace", "t.json", "-o", "./t.json"],
        "./t.json: it is read, and cannot be the output",
    );
    room.refused(&["--annotations", "a.json", "--trace", "t.json", "-o", "none/o.json"], "cannot write none/o.json");
    for (content, because) in [
        ("{", "x: no annotations of graphs: EOF while parsing"),
        ("[]", "x: no annotations of graphs: neither warpline's"),
        ("{}", "x: no annotations of graphs: no node in it"),
        ("{\"format\": \"warpline-graph/2\"}", "update warpline-cli"),
        ("{\"format\": \"warpline-graph/1\"}", "missing field `graphs`"),
        ("{\"x\": []}", "`x` is no id of a node"),
    ] {
        room.write("x", content);
        room.refused(&["--annotations", "x", "--trace", "t.json", "-o", "o.json"], because);
    }
}

#[test]
fn a_bomb_is_refused_and_a_limit_can_be_raised() {
    let room = Room::new(Ids::Mixed);
    let args = |limit| ["--annotations", "a.json", "--trace", "x.gz", "-o", "out.json", "--limit", limit];
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(b"{\"traceEvents\": [").unwrap();
    let blank = vec![b' '; 1 << 20];
    for _ in 0..24 {
        bomb.write_all(&blank).unwrap();
    }
    bomb.write_all(&Value::from(events(Ids::Mixed)).to_string().as_bytes()[1..]).unwrap();
    bomb.write_all(b"}").unwrap();
    room.write("x.gz", bomb.finish().unwrap());
    room.refused(&args("16M"), "x.gz: more than 16777216 bytes, unpacked; if that is right, allow more with `--limit`");
    assert_eq!(room.run(&args("1G")).0, Some(0));
    fs::remove_file(room.path().join("out.json")).unwrap();
    // An event as large as no event is, and more events than the limit has room for.
    let mut large = GzEncoder::new(Vec::new(), Compression::fast());
    large.write_all(b"{\"traceEvents\": [{\"name\": \"").unwrap();
    for _ in 0..24 {
        large.write_all(&blank).unwrap();
    }
    room.write("x.gz", large.finish().unwrap());
    room.refused(&args("1G"), "x.gz: what begins at byte 17 (line 1) has more than 16 MiB");
    let many = format!("[{}{{}}]", "{},".repeat(5000));
    room.write("x.gz", packed(many.as_bytes()));
    room.refused(&args("1M"), "x.gz: more than 4096 events");
    let bomb = packed(&vec![b'['; 260 << 20]);
    room.write("x.gz", bomb);
    room.refused(&["--annotations", "x.gz", "--trace", "t.json", "-o", "out.json"], "x.gz: ");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A panic would end the test; an error leaves no file.
    #[test]
    fn no_damage_makes_it_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_usize..40), 1..6),
        of_annotations in any::<bool>(),
        by_order in any::<bool>(),
    ) {
        let room = Room::new(if by_order { Ids::None } else { Ids::Mixed });
        let name = if of_annotations { "a.json" } else { "t.json" };
        let mut content = fs::read(room.path().join(name)).unwrap();
        for (at, byte, cut) in damage {
            let at = at.index(content.len());
            // Most bytes of JSON are ASCII, and most of its structure is in these.
            content[at] = [byte, b'0' + byte % 10, b"{}[]\",:-.eE"[usize::from(byte % 11)]][usize::from(byte % 3)];
            if cut > 30 {
                content.drain(at..(at + cut).min(content.len()));
            }
            content.push(b' ');
        }
        room.write(name, content);
        for output in ["out.pftrace", "out.json"] {
            let path = |name: &str| room.path().join(name);
            let options = Options {
                annotations: path("a.json"),
                trace: path("t.json"),
                output: path(output),
                by: if by_order { By::Order } else { By::Id },
                limit: 1 << 20,
            };
            let result = annotate(&options, |_| ());
            prop_assert_eq!(result.is_ok(), options.output.exists());
            if let (Ok(_), "out.json") = (&result, output) {
                room.json(output);
            }
        }
    }
}

/// Writes a trace of about so many bytes: replays of the graph, each with a launch.
fn write_large(path: &Path, bytes: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(b"{\"traceEvents\": [\n").unwrap();
    let (mut written, mut replay) = (0, 0_u64);
    while written < bytes {
        let ts = replay * 100;
        let launch = format!(
            "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaGraphLaunch\", \"pid\": 1, \"tid\": 2, \"ts\": {ts}.001, \"dur\": 5.5, \"args\": {{\"correlation\": {replay}}}}},\n"
        );
        file.write_all(launch.as_bytes()).unwrap();
        written += launch.len() as u64;
        for index in 0..6 {
            let ts = ts + 10 + index * 9;
            let kernel = format!(
                "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"a_kernel_with_a_name_of_usual_length<float, 128, 4>(float const*, float*, int)\", \"pid\": 0, \"tid\": 7, \"ts\": {ts}.123, \"dur\": 8.001,\n  \"args\": {{\"External id\": 12, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {replay}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 0.5, \"grid\": [1, 2, 3], \"block\": [128, 1, 1], \"graph id\": {EXEC}, \"graph node id\": {index}}}}},\n"
            );
            file.write_all(kernel.as_bytes()).unwrap();
            written += kernel.len() as u64;
        }
        replay += 1;
    }
    file.write_all(b"{\"ph\": \"i\", \"name\": \"end\", \"ts\": 0, \"pid\": 1, \"tid\": 2}]}").unwrap();
    file.into_inner().unwrap().sync_all().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_small_beside_a_large_trace() {
    let room = Room::new(Ids::Mixed);
    // Without optimization it reads some MB a second.
    let bytes = if cfg!(debug_assertions) { 32 << 20 } else { 256 << 20 };
    write_large(&room.path().join("large.json"), bytes);
    let mut child = room
        .command(&["--annotations", "a.json", "--trace", "large.json", "-o", "out.pftrace"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    // The most that it ever had, as the kernel counts it. It has that when it begins to write, long before it ends.
    let mut peak_kib = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = high.unwrap_or(0).max(peak_kib);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("are annotated"), "{said}");
    assert!((1..bytes / 1024 * 3 / 4).contains(&peak_kib), "{peak_kib} KiB for a trace of {} KiB", bytes / 1024);
}

#[cfg(unix)]
#[test]
fn an_interrupted_command_leaves_nothing_behind() {
    let room = Room::new(Ids::Mixed);
    write_large(&room.path().join("large.json"), 16 << 20);
    let before = room.files();
    let mut child = room
        .command(&["--annotations", "a.json", "--trace", "large.json", "-o", "out.json"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Once it writes, and before it is done.
    while room.files() == before {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let is_large = || {
        fs::read_dir(room.path()).unwrap().flatten().any(|file| {
            file.file_name().to_string_lossy().ends_with(".part") && file.metadata().is_ok_and(|file| file.len() > 0)
        })
    };
    while !is_large() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(room.files(), before);
}

/// What the trace gate reads; `cargo xtask gate --self-test` says where it is to be.
#[test]
fn write_gate_trace() {
    let Some(folder) = std::env::var_os("WARPLINE_GATE_DIR") else { return };
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.pftrace", &[]);
    fs::copy(room.path().join("out.pftrace"), Path::new(&folder).join("annotated.pftrace")).unwrap();
}
