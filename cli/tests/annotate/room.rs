//! Annotations and traces for the tests, and a folder to run the command in.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// The executable graph that the traces replay.
pub const EXEC: u64 = 14;
pub const REPLAYS: u64 = 5;

/// Nodes: their kinds, names as the driver has them, names as a profiler shows them, and zones.
const NODES: [(&str, &str, &str, &[u32]); 6] = [
    ("kernel", "_Z9layernormPfPKfi", "layernorm(float*, float const*, int)", &[0]),
    ("memset", "", "Memset (Device)", &[0, 1]),
    ("kernel", "sm90_xmma_gemm_qk", "sm90_xmma_gemm_qk", &[0, 1]),
    ("kernel", "_Z7softmaxPfi", "softmax(float*, int)", &[0, 1]),
    ("kernel", "ncclDevKernel_AllReduce", "ncclDevKernel_AllReduce", &[0, 2]),
    ("kernel", "_Z8residualPfi", "residual(float*, int)", &[]),
];

pub fn annotations() -> Value {
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
pub enum Ids {
    /// In one replay as numbers, in one as texts, in the others the lower half.
    Mixed,
    None,
}

/// A trace as PyTorch's profiler writes it, and some of everything else that the format has.
pub fn events(ids: Ids) -> Vec<Value> {
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

pub fn trace(ids: Ids) -> Value {
    json!({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a GPU"}], "baseTimeNanoseconds": 1_700_000_000_000_000_000_i64,
           "traceEvents": events(ids), "traceName": "trace.json"})
}

pub struct Room(tempfile::TempDir);

impl Room {
    /// With annotations and a trace in it.
    pub fn new(ids: Ids) -> Room {
        let room = Room(tempfile::tempdir().unwrap());
        room.write("a.json", annotations().to_string());
        room.write("t.json", trace(ids).to_string());
        room
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), content).unwrap();
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(name)).unwrap()).unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.arg("annotate").args(args).current_dir(self.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// Annotates `trace` into `output`, which must succeed. Returns what was said.
    pub fn annotate(&self, annotations: &str, trace: &str, output: &str, more: &[&str]) -> String {
        let args = [&["--annotations", annotations, "--trace", trace, "-o", output], more].concat();
        let (status, said, complaints) = self.run(&args);
        assert_eq!((status, complaints.as_str()), (Some(0), ""));
        said
    }

    /// Must be refused, with this in the one line that is said, and leave nothing behind.
    pub fn refused(&self, args: &[&str], because: &str) {
        let before = self.files();
        let (status, said, complaints) = self.run(args);
        assert_eq!((status, said.as_str()), (Some(2), ""), "{complaints}");
        assert_eq!(complaints.lines().count(), 1, "{complaints}");
        assert!(complaints.contains(because), "`{because}` is not in: {complaints}");
        assert_eq!(self.files(), before, "a file was left behind");
    }

    pub fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
