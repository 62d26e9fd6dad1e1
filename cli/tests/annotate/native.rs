//! Perfetto traces of PyTorch's profiler. They are GENERATED here, in the form that PyTorch's encoder writes: no build of PyTorch that writes
//! them was available.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Value, json};

use super::room::{EXEC, Ids, REPLAYS, Room};

/// A message in bytes.
#[derive(Clone, Default)]
struct Proto(Vec<u8>);

impl Proto {
    fn int(mut self, tag: u32, value: u64) -> Proto {
        encode_key(tag, WireType::Varint, &mut self.0);
        encode_varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, tag: u32, value: &[u8]) -> Proto {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(value.len() as u64, &mut self.0);
        self.0.extend_from_slice(value);
        self
    }

    fn text(self, tag: u32, value: &str) -> Proto {
        self.bytes(tag, value.as_bytes())
    }

    fn message(self, tag: u32, value: Proto) -> Proto {
        self.bytes(tag, &value.0)
    }
}

const LAUNCH: u64 = 1;
const SEQUENCE: u64 = 1;

/// The kernels of a replay: the index of the node, and the name.
const KERNELS: [(u64, &str); 3] =
    [(0, "layernorm(float*, float const*, int)"), (2, "sm90_xmma_gemm_qk"), (5, "residual(float*, int)")];

/// The trace of some replays of the graph that the annotations describe.
fn pftrace() -> Vec<u8> {
    let packet = |timestamp: u64| Proto::default().int(8, timestamp).int(10, SEQUENCE);
    let interned = |iid: u64, name: &str| Proto::default().int(1, iid).text(2, name);
    let process = Proto::default().int(1, 4242).text(6, "python");
    let thread = Proto::default().int(1, 4242).int(2, 4243).text(5, "main");
    let mut names = Proto::default().message(2, interned(LAUNCH, "cudaGraphLaunch"));
    for (index, (_, name)) in KERNELS.iter().enumerate() {
        names = names.message(1000, Proto::default().int(1, index as u64 + 1).text(3, name));
    }
    names = names
        .message(24, interned(1, "Kernel"))
        .message(24, interned(100, "[0007] stream 7"))
        .message(1001, interned(1, "registers_per_thread"));
    let mut trace = Proto::default()
        .message(1, Proto::default().message(60, Proto::default().int(1, 1).message(3, process)))
        .message(1, Proto::default().message(60, Proto::default().int(1, 2).int(5, 1).message(4, thread)))
        .message(1, Proto::default().int(10, SEQUENCE).int(13, 1).message(12, names));
    let begin = |replay: u64| 1_000_000 + 200_000 * replay;
    for replay in 0..REPLAYS {
        let correlation = Proto::default().text(10, "correlation").int(4, 100 + replay);
        // The first kernel; the others wait for one another.
        let submitted = Proto::default().int(1, 1 + 3 * replay);
        let event =
            Proto::default().int(9, 1).int(11, 2).int(10, LAUNCH).message(3000, submitted).message(4, correlation);
        trace = trace.message(1, packet(begin(replay)).int(13, 2).message(11, event));
    }
    // The ends of all launches, behind all begins.
    for replay in 0..REPLAYS {
        trace = trace.message(1, packet(begin(replay) + 8_125).message(11, Proto::default().int(9, 2).int(11, 2)));
    }
    for replay in 0..REPLAYS {
        for (index, (node, _)) in KERNELS.iter().enumerate() {
            let extra = |name: &str, value: u64| Proto::default().text(1, name).text(2, &value.to_string());
            let id = 1 + 3 * replay + index as u64;
            let registers = Proto::default().int(1, 1).int(4, 40);
            let mut stage =
                Proto::default().int(1, id).int(2, 5_501).message(21, Proto::default().message(3, registers));
            if index > 0 {
                stage = stage.int(18, id - 1);
            }
            let stage = stage
                .int(11, 0)
                .int(13, 100)
                .int(14, 1)
                .int(19, index as u64 + 1)
                .message(6, extra("correlation", 100 + replay))
                .message(6, extra("graph id", EXEC))
                .message(6, extra("graph node id", EXEC << 32 | node));
            trace = trace.message(1, packet(begin(replay) + 12_000 + 6_000 * node).int(13, 2).message(53, stage));
        }
    }
    trace.0
}

#[test]
fn kernels_of_a_perfetto_trace_join_as_those_of_the_chrome_form() {
    let room = Room::new(Ids::Mixed);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&pftrace()).unwrap();
    room.write("step.pftrace", packed.finish().unwrap());
    room.write("plain.pftrace", pftrace());
    for trace in ["step.pftrace", "plain.pftrace"] {
        let said = room.annotate("a.json", trace, "out.json", &["--before-after"]);
        assert!(
            said.starts_with(
                "out.json: 15 of 15 kernels, copies and fills of graphs are annotated, in 5 replays (1 of 1 graph)"
            ),
            "{said}"
        );
        let table: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(table.iter().any(|row| row == "GPU 0 stream 7 15 5"), "{said}");
        let output = room.json("out.json");
        let events = output["traceEvents"].as_array().unwrap();
        let find = |name: &str| events.iter().find(|event| event["name"] == name && event["ph"] == "X").unwrap();
        let gemm = find("sm90_xmma_gemm_qk");
        assert_eq!((&gemm["args"]["zone"], &gemm["dur"]), (&json!("block.layer > block.attention"), &json!(5.501)));
        // The launch has the length of its own end.
        assert_eq!((&find("cudaGraphLaunch")["ts"], &find("cudaGraphLaunch")["dur"]), (&json!(0.0), &json!(8.125)));
        let is_number =
            |event: &Value| ["ts", "dur"].iter().all(|key| event[*key].is_number() || event.get(*key).is_none());
        assert!(events.iter().all(is_number) && output.get("baseTimeNanoseconds").is_none(), "{output}");
        assert_eq!(gemm["args"]["registers per thread"], 40);
        let ends = |category: &str, phase: &str| {
            events.iter().filter(|event| event["cat"] == category && event["ph"] == phase).count() as u64
        };
        assert_eq!([ends("ac2g", "s"), ends("ac2g", "f")], [REPLAYS, REPLAYS]);
        assert_eq!([ends("wait", "s"), ends("wait", "f")], [2 * REPLAYS, 2 * REPLAYS]);
        let replays = events.iter().filter(|event| event["args"]["launch_to_begin_ns"] == 12_000).count();
        assert_eq!(replays as u64, REPLAYS);
    }
    // In Perfetto's own format, too, with an arrow from each launch to each of its kernels.
    let said = room.annotate("a.json", "step.pftrace", "out.pftrace", &[]);
    assert!(!said.contains("arrow"), "{said}");
    // Annotations beside such a trace are found.
    room.write("step.annotations.json", serde_json::to_vec(&super::room::annotations()).unwrap());
    let (status, said, _) = room.run(&["--trace", "step.pftrace", "-o", "found.json"]);
    assert!(status == Some(0) && said.starts_with("annotations: ./step.annotations.json\n"), "{said}");
}

#[test]
fn a_perfetto_trace_that_is_truncated_or_of_another_program_is_refused() {
    let room = Room::new(Ids::Mixed);
    let whole = pftrace();
    room.write("cut.pftrace", &whole[..whole.len() - 3]);
    let args = |trace| ["--annotations", "a.json", "--trace", trace, "-o", "out.json"];
    room.refused(&args("cut.pftrace"), "cut.pftrace: the trace is truncated in the packet at byte ");
    let other = Proto::default().message(1, Proto::default().int(8, 1).int(58, 64));
    room.write("other.pftrace", other.0);
    room.refused(&args("other.pftrace"), "times of a clock that PyTorch's profiler does not use");
}

/// A step of a profiler, in Perfetto's form and in Chrome's: an operation that launches, what the device did, and an annotation around it.
fn profiled() -> (Vec<u8>, String) {
    let named = |iid: u64, name: &str| Proto::default().int(1, iid).text(2, name);
    let process = Proto::default().int(1, 4242).text(6, "python");
    let thread = Proto::default().int(1, 4242).int(2, 4243).text(5, "main");
    let names = Proto::default()
        .message(2, named(1, "gemm"))
        .message(24, named(1, "Kernel"))
        .message(24, named(2, "Memcpy"))
        .message(24, named(3, "Annotation"))
        .message(24, named(100, "stream 0007"));
    let mut trace = Proto::default()
        .message(1, Proto::default().message(60, Proto::default().int(1, 1).message(3, process)))
        .message(1, Proto::default().message(60, Proto::default().int(1, 2).int(5, 1).message(4, thread)))
        .message(1, Proto::default().int(10, SEQUENCE).int(13, 1).message(12, names));
    let packet = |us: u64| Proto::default().int(8, 1_000 * us).int(10, SEQUENCE).int(13, 2);
    // Name, category, begin and end in us. Each encloses the next.
    let host = [
        ("ProfilerStep#3", "user_annotation", 1_000, 2_000),
        ("aten::mm", "cpu_op", 1_010, 1_910),
        ("cudaLaunchKernel", "cuda_runtime", 1_020, 1_025),
    ];
    for (name, category, begin, _) in host {
        let mut event = Proto::default().int(9, 1).int(11, 2).text(22, category).text(23, name);
        if category == "cuda_runtime" {
            event = event
                .message(3000, Proto::default().int(1, 17))
                .message(4, Proto::default().text(10, "correlation").int(4, 17));
        }
        trace = trace.message(1, packet(begin).message(11, event));
    }
    // The ends are in the order of the begins, and not in that of the times.
    for (.., end) in host {
        trace = trace.message(1, packet(end).message(11, Proto::default().int(9, 2).int(11, 2)));
    }
    let work = [
        ("gemm", "kernel", 1, 1_030, 5),
        ("Memcpy DtoH", "gpu_memcpy", 2, 1_040, 3),
        ("layer", "gpu_user_annotation", 3, 1_030, 13),
    ];
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": 0, "args": {"name": "python"}}),
        json!({"ph": "M", "name": "thread_name", "pid": 4242, "tid": 4243, "ts": 0, "args": {"name": "main"}}),
        json!({"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}),
        json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7"}}),
    ];
    for (name, category, begin, end) in host {
        let args = if category == "cuda_runtime" { json!({"correlation": 17}) } else { json!({}) };
        events.push(json!({"ph": "X", "cat": category, "name": name, "pid": 4242, "tid": 4243, "ts": begin, "dur": end - begin, "args": args}));
    }
    for (name, category, stage_of, begin, us) in work {
        let extra = Proto::default().text(1, "correlation").text(2, "17");
        let stage = Proto::default().int(1, 17).int(2, 1_000 * us).int(13, 100).int(14, stage_of).message(6, extra);
        let stage = if name == "gemm" { stage.int(20, 1) } else { stage.text(17, name) };
        trace = trace.message(1, packet(begin).message(53, stage));
        events.push(json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": begin, "dur": us, "args": {"correlation": 17}}));
    }
    (trace.0, json!({"schemaVersion": 1, "traceEvents": events}).to_string())
}

#[test]
fn the_report_of_a_perfetto_trace_is_that_of_the_chrome_form() {
    let room = Room::new(Ids::Mixed);
    let (perfetto, chrome) = profiled();
    room.write("step.json", chrome);
    room.write("step.pftrace", &perfetto);
    let report = |trace: &str, format: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpline"));
        let output = command.args(["report", "--format", format, trace]).current_dir(room.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for format in ["table", "json"] {
        let (status, text, complaints) = report("step.pftrace", format);
        assert_eq!((status, complaints.as_str()), (Some(0), ""), "{text}");
        assert_eq!(text.replace("step.pftrace", "step.json"), report("step.json", format).1);
    }
    let figures: serde_json::Value = serde_json::from_str(&report("step.pftrace", "json").1).unwrap();
    let times = |table: &str| -> Vec<_> {
        let rows = figures[table].as_array().unwrap().iter();
        rows.map(|row| (row["name"].as_str().unwrap(), row["max_ns"].as_u64().unwrap())).collect()
    };
    assert_eq!(times("kernels"), [("gemm", 5_000), ("Memcpy DtoH", 3_000)]);
    assert_eq!(times("steps"), [("step", 1_000_000)]);
    assert!(times("range_steps").contains(&("aten::mm", 900_000)), "{figures:#}");
    // A part of a trace gives no figures that look like those of all of it.
    room.write("cut.pftrace", &perfetto[..perfetto.len() - 3]);
    let (status, text, complaints) = report("cut.pftrace", "table");
    assert_eq!((status, text.as_str()), (Some(2), ""), "{complaints}");
    assert!(complaints.contains("cut.pftrace: the trace is truncated in the packet at byte "), "{complaints}");
}
