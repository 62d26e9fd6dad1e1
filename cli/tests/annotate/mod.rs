//! `warpline annotate`: annotations of graphs and a profiler's trace become one trace, in which nothing is lost.

mod folder;
mod hostile;
mod large;
mod native;
mod order;
mod perfetto;
pub(crate) mod room;
mod torch;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use room::*;
use serde_json::{Value, json};

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
        "out.json: 30 of 30 kernels, copies and fills of graphs are annotated, in 5 replays (1 of 1 graph); 92 events read\n"
    );
    let said = room.annotate("a.json", "t.json", "out.{host}.json", &[]);
    assert!(!said.contains("{host}") && said.contains(".json: 30 of 30 "), "{said}");
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
            "torch.pkl: not a file of graph annotations: a pickle that",
        );
    }
    // What names a class or calls something is never carried out.
    room.write("torch.pkl", b"\x80\x04cos\nsystem\n\x8c\x02id\x85R.");
    room.refused(
        &["--annotations", "torch.pkl", "--trace", "t.json", "-o", "out.json"],
        "contains more than plain dicts, lists, texts and numbers",
    );
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn packed_files_are_read_and_written() {
    let room = Room::new(Ids::Mixed);
    room.write("a.gz", packed(annotations().to_string().as_bytes()));
    room.write("t.json.gz", packed(trace(Ids::Mixed).to_string().as_bytes()));
    room.annotate("a.json", "t.json", "plain.json", &[]);
    room.write("a.zst", zstd(annotations().to_string().as_bytes()));
    room.write("t.json.zst", zstd(trace(Ids::Mixed).to_string().as_bytes()));
    for (annotations, trace) in [("a.gz", "t.json.gz"), ("a.zst", "t.json.zst")] {
        room.annotate(annotations, trace, "out.json.gz", &[]);
        let mut text = String::new();
        GzDecoder::new(File::open(room.path().join("out.json.gz")).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, fs::read_to_string(room.path().join("plain.json")).unwrap(), "{trace}");
    }
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

/// What the trace gate reads; `cargo xtask gate --self-test` says where it is to be.
#[test]
fn write_gate_trace() {
    let Some(folder) = std::env::var_os("WARPLINE_GATE_DIR") else { return };
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.pftrace", &[]);
    fs::copy(room.path().join("out.pftrace"), Path::new(&folder).join("annotated.pftrace")).unwrap();
}

/// Both outputs have the replays' zones, the steps and the collectives of the input.
#[test]
fn the_reports_of_both_outputs_are_one() {
    let room = Room::new(Ids::Mixed);
    let mut trace = trace(Ids::Mixed);
    let more = trace["traceEvents"].as_array_mut().unwrap();
    for step in 0..3 {
        let name = format!("ProfilerStep#{step}");
        for (category, pid, tid) in [("user_annotation", 4242, 4243), ("gpu_user_annotation", 0, 7)] {
            more.push(json!({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": 900 + 300 * step, "dur": 290}));
        }
        more.push(json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 20, "ts": 950 + 300 * step, "dur": 40,
                         "args": {"correlation": 900, "Collective name": "broadcast", "In msg nelems": 10, "dtype": "Float",
                                  "Group size": 2, "Process Group Name": "dp", "Process Group Ranks": "[0, 1]"}}));
        more.push(json!({"ph": "X", "cat": "mtia", "name": "dma", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {}}));
    }
    room.write("t.json", trace.to_string());
    let report = |trace: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpline"));
        let output = command.args(["report", "--format", "json", trace]).current_dir(room.path()).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let reports = ["out.json", "out.pftrace"].map(|name| {
        room.annotate("a.json", "t.json", name, &[]);
        report(name)
    });
    let rows = |report: &Value, table: &str, on: &str| -> Vec<(String, u64, u64)> {
        let rows = report[table].as_array().unwrap().iter().filter(|row| on.is_empty() || row["on"] == on);
        let of = |row: &Value, key: &str| row[key].as_u64().unwrap();
        rows.map(|row| (row["name"].as_str().unwrap().to_owned(), of(row, "count"), of(row, "max_ns"))).collect()
    };
    for report in &reports {
        let zones = [("block.layer", 29_501), ("block.attention", 14_001), ("block.sync", 5_501)];
        let zones = zones.map(|(name, ns)| (name.to_owned(), REPLAYS, ns));
        assert_eq!(rows(report, "ranges", "replay"), zones);
        assert_eq!(rows(report, "steps", ""), [("step".to_owned(), 3, 290_000)]);
        assert_eq!(report["collectives"].as_array().unwrap().len(), 2, "{report:#}");
    }
    let [chrome, perfetto] = reports;
    for table in ["ranges", "steps", "range_steps", "collectives", "kernels", "streams", "host_waits", "notes"] {
        assert_eq!(chrome[table], perfetto[table], "{table}");
    }
}
