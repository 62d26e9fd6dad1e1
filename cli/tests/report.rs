//! `warpline report` on traces that sessions and sinks write, on traces of PyTorch's profiler, and on what is no trace.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use warpline::record::{DeviceInfo, DeviceKind, StreamInfo};
use warpline::sink::{Batch, SessionInfo, Sink};
use warpline::{HostStream, Session, block, gpu_zone, host_zone, memory, step};
use warpline_report::fixture;
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::{alone, texts};

/// Has another zone inside.
#[gpu_zone("cli.told.outer", stream = stream)]
fn outer(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(std::time::Duration::from_micros(50)));
    inner(stream);
    inner(stream);
}

/// Is inside another zone.
#[gpu_zone("cli.told.inner", stream = stream)]
fn inner(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(std::time::Duration::from_micros(20)));
}

/// Works on its thread.
#[host_zone("cli.told.load")]
fn load() {
    parse();
}

/// Works on its thread, too.
#[host_zone("cli.told.parse")]
fn parse() {}

fn warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).env_remove("WARPLINE").output().unwrap()
}

fn report(path: &Path) -> String {
    let output = warpline(&["report", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(path: &Path) -> String {
    let output = warpline(&["report", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The blocks of a text whose head begins with one of these.
fn tables(text: &str) -> Vec<&str> {
    let heads = ["on streams", "on threads", "in a step"];
    text.split("\n\n").filter(|block| heads.iter().any(|head| block.starts_with(head))).collect()
}

#[test]
fn device_memory_is_that_of_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let [packets, json] = ["m.pftrace", "m.json"].map(|name| folder.path().join(name));
    let _turn = alone();
    let session = Session::builder().perfetto(&packets).chrome(&json).start().unwrap();
    let stream = HostStream::new("compute");
    memory::allocated_named("kv cache: of (all) ranks", &stream, 0x1000, 64 << 10);
    block::host_zone!("cli.told.allocate", description = "Allocates.", {
        memory::allocated(&stream, 0x2000, 16 << 10);
        memory::allocated(&stream, 0x3000, 16 << 10);
    });
    memory::freed(0x2000);
    memory::allocated(&stream, 0x4000, 1 << 10);
    load();
    let said = session.finish();
    let own: Value = serde_json::from_str(&said.to_json()).unwrap();
    assert_eq!(own["memory_holders"].as_array().unwrap().len(), 5, "{own:#}");
    let at_peak = &own["memory_holders"][1];
    assert_eq!((&at_peak["name"], &at_peak["at"]), (&"cli.told.allocate".into(), &"peak".into()), "{own:#}");
    assert_eq!((&at_peak["bytes"], &at_peak["allocations"]), (&(32 << 10).into(), &2.into()), "{own:#}");
    for (trace, has_base) in [(&packets, false), (&json, true)] {
        let output = warpline(&["report", "--format", "json", trace.to_str().unwrap()]);
        let mut told: Value = serde_json::from_slice(&output.stdout).unwrap();
        if has_base {
            // Times in Chrome JSON are relative to the session's begin.
            told["memory"][0]["peak_at_ns"] = own["memory"][0]["peak_at_ns"].clone();
        }
        assert_eq!((&told["memory"], &told["memory_holders"]), (&own["memory"], &own["memory_holders"]));
        let (text, said) = (report(trace), said.to_string());
        let of_memory = |text: &str| {
            let blocks =
                text.split("\n\n").filter(|block| block.starts_with("memory ") || block.starts_with("at the peak"));
            blocks.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((of_memory(&text), of_memory(&text).len()), (of_memory(&said), 2), "{text}\n{said}");
        assert!(text.contains("5 allocations and frees of device memory, 5 recorded, 0 dropped"), "{text}");
    }
}

#[test]
fn it_says_what_the_session_said() {
    let folder = tempfile::tempdir().unwrap();
    let [packets, json] = ["t.pftrace", "t.json"].map(|name| folder.path().join(name));
    let _turn = alone();
    let session = Session::builder().perfetto(&packets).chrome(&json).start().unwrap();
    let stream = HostStream::new("compute");
    for number in 0..30_u32 {
        step(number);
        load();
        outer(&stream);
        inner(&stream);
        stream.synchronize().unwrap();
    }
    let said = session.finish();
    let said_text = said.to_string();
    assert_eq!(tables(&said_text).len(), 3, "{said_text}");
    // As wide as a terminal is.
    for columns in [80, 120] {
        let text = format!("{said:columns$}");
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
    }
    for trace in [&packets, &json] {
        let text = report(trace);
        assert_eq!(tables(&text), tables(&said_text), "{text}\n{said_text}");
        assert!(text.contains("180 zones begun, 180 recorded, 0 dropped"), "{text}");
        assert!(text.contains("29 steps recorded"), "{text}");
    }
    // The same figures in all formats, and all of them in the JSON that a session writes.
    let output = warpline(&["report", "--format", "json", packets.to_str().unwrap()]);
    let (told, own): (Value, Value) =
        (serde_json::from_slice(&output.stdout).unwrap(), serde_json::from_str(&said.to_json()).unwrap());
    assert_eq!((&told["ranges"], &told["range_steps"]), (&own["ranges"], &own["range_steps"]));
    assert_eq!(told["steps"], own["steps"]);
    let range = |name: &str| told["ranges"].as_array().unwrap().iter().find(|range| range["name"] == name).unwrap();
    let [outer, inner] = ["cli.told.outer", "cli.told.inner"].map(range);
    assert_eq!((&outer["count"], &inner["count"], &outer["on"]), (&30.into(), &90.into(), &"stream".into()));
    assert_eq!(inner["self_ns"], inner["total_ns"]);
    assert!(outer["self_ns"].as_i64() < outer["total_ns"].as_i64());
    let csv = String::from_utf8(warpline(&["report", "--format", "csv", packets.to_str().unwrap()]).stdout).unwrap();
    let total = outer["total_ns"].to_string();
    assert!(
        csv.starts_with("table,name,on,count,")
            && csv.lines().any(|line| line.contains("cli.told.outer") && line.contains(&total))
    );
    let markdown = warpline(&["report", "--format", "markdown", packets.to_str().unwrap()]).stdout;
    assert!(String::from_utf8(markdown).unwrap().contains("| cli.told.outer | stream | 30 |"));
}

/// Writes the trace of every shape of record.
fn write_fixture<S: Sink>(mut sink: S) {
    sink.start(&fixture::session()).unwrap();
    for batch in fixture::records() {
        sink.write(Batch::Zones(&batch)).unwrap();
    }
    sink.write(Batch::Spans(&fixture::spans())).unwrap();
    sink.write(Batch::Waits(&fixture::waits())).unwrap();
    sink.write(Batch::Depths(&fixture::depths())).unwrap();
    sink.finish(&fixture::report()).unwrap();
}

#[test]
fn a_trace_of_every_record_reads_like_this() {
    let folder = tempfile::tempdir().unwrap();
    let [packets, json] = ["good.pftrace", "good.json"].map(|name| folder.path().join(name));
    write_fixture(PerfettoSink::create(&packets).unwrap());
    write_fixture(ChromeSink::create(&json).unwrap());
    let text = report(&packets);
    texts::assert_golden("report/every_record.txt", &text);
    assert_eq!(tables(&report(&json)), tables(&text));
    // Twice the trace is twice the zones, and a packed file and a folder are read.
    let mut packed =
        GzEncoder::new(fs::File::create(folder.path().join("again.pftrace.gz")).unwrap(), Compression::fast());
    packed.write_all(&fs::read(&packets).unwrap()).unwrap();
    packed.finish().unwrap();
    fs::remove_file(&json).unwrap();
    let both = report(folder.path());
    assert!(both.contains("24 zones begun, 18 recorded, 6 dropped (ring_full 4, unfinished 2)"), "{both}");
}

#[test]
fn a_program_with_process_id_1_and_devices_of_several_kinds_reads_the_same_from_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let [packets, json] = ["one.pftrace", "one.json"].map(|name| folder.path().join(name));
    // The numbers of the process and its thread are those of a device and of a stream in other traces.
    let main = fixture::thread(1, Some("main"));
    let devices = [(DeviceKind::Cuda, 1), (DeviceKind::Host, 0), (DeviceKind::Cuda, 0)];
    let streams = [1, 2, 3].map(|id| {
        let (kind, ordinal) = devices[id as usize - 1];
        let device = DeviceInfo { ordinal, name: kind.name().to_owned(), kind };
        Arc::new(StreamInfo { id, name: "compute".to_owned(), device })
    });
    let mut zones = vec![fixture::zone(&fixture::LOAD, None, &main, fixture::span(0, 1_000), None)];
    for (at, stream) in (0_i64..).zip(&streams) {
        let gpu = fixture::span(100 * at + 10, 600 + 500 * at);
        zones.push(fixture::zone(
            &fixture::STEP,
            Some(stream),
            &main,
            fixture::span(10 * at + 1, 10 * at + 5),
            Some(gpu),
        ));
    }
    let mut waits = fixture::waits();
    for wait in &mut waits {
        wait.thread = fixture::thread(2, Some("waits"));
        if let Some(signal) = &mut wait.signal {
            signal.thread = Arc::clone(&main);
            signal.stream = signal.stream.take().map(|_| Arc::clone(&streams[2]));
        }
        wait.stream = wait.stream.take().map(|_| Arc::clone(&streams[1]));
    }
    let write = |mut sink: Box<dyn Sink>| {
        sink.start(&SessionInfo { process_id: 1, ..fixture::session() }).unwrap();
        sink.write(Batch::Zones(&zones)).unwrap();
        sink.write(Batch::Waits(&waits)).unwrap();
        sink.finish(&fixture::report()).unwrap();
    };
    write(Box::new(PerfettoSink::create(&packets).unwrap()));
    write(Box::new(ChromeSink::create(&json).unwrap()));
    let [packets, json] = [packets, json].map(|trace| {
        let output = warpline(&["report", "--format", "json", trace.to_str().unwrap()]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    let rows = |part: &Value| {
        let mut rows: Vec<_> = part.as_array().into_iter().flatten().map(Value::to_string).collect();
        rows.sort_unstable();
        rows
    };
    for part in ["ranges", "critical_path", "streams", "stream_waits", "waits", "semaphores", "collectives"] {
        assert_eq!(rows(&json[part]), rows(&packets[part]), "{part}");
    }
    assert_eq!((rows(&json["ranges"]).len(), rows(&json["stream_waits"]).len()), (2, 2));
}

#[test]
fn a_trace_of_pytorch_has_its_ranges_steps_kernels_and_collectives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("torch.json");
    let slice = |cat: &str, name: &str, (pid, tid): (u32, u32), (ts, dur): (u32, u32), args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
        )
    };
    let collective = r#""Collective name":"allreduce","dtype":"Float","In msg nelems":1000,"Out msg nelems":1000,"Group size":2,"Process Group Name":"0","Process Group Ranks":"[0, 1]""#;
    let events = [
        slice("user_annotation", "ProfilerStep#1", (900, 900), (0, 100), ""),
        slice("user_annotation", "ProfilerStep#2", (900, 900), (100, 100), ""),
        slice("cpu_op", "aten::mm", (900, 900), (10, 20), ""),
        slice("cuda_runtime", "cudaLaunchKernel", (900, 900), (12, 5), r#""correlation":7"#),
        slice("kernel", "gemm", (0, 7), (20, 40), r#""correlation":7,"stream":7"#),
        slice("kernel", "gemm", (0, 7), (120, 60), r#""correlation":8,"stream":7"#),
        slice("kernel", "ncclKernel_AllReduce", (0, 9), (30, 10), collective),
        slice("gpu_user_annotation", "forward", (0, 7), (20, 160), ""),
    ];
    fs::write(&path, format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(","))).unwrap();
    let text = report(&path);
    for line in ["forward", "aten::mm", "gemm", "all_reduce 0 [0,1]", "4.00 kB", "2 steps recorded: p50 100 µs"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("zones, from another tool: it is not known whether the trace is complete"), "{text}");
    assert!(!text.contains("dropped") && !text.contains("#[gpu_zone]"), "{text}");
}

/// The text without the breaks of its lines.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_cut_or_no_trace_gets_a_clear_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let packets = folder.path().join("good.pftrace");
    write_fixture(PerfettoSink::create(&packets).unwrap());
    let whole = fs::read(&packets).unwrap();
    for end in (whole.len() / 3..whole.len()).step_by(whole.len() / 24) {
        let output = warpline(&["report", file("cut.pftrace", &whole[..end]).to_str().unwrap()]);
        let (text, warnings) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.code() {
            Some(0) => {
                let note = "the program ended without finishing the session (it aborted, crashed or was killed), or the file was cut";
                assert!(text.contains("account") && unwrapped(&text).contains(note), "{end}: {text}");
            }
            code => assert!(code == Some(2) && warnings.contains("no zone, kernel or step"), "{end}: {warnings}"),
        }
    }
    // Every byte of some packets, changed.
    for at in (0..whole.len().min(6_000)).step_by(97) {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        let output = warpline(&["report", file("changed.pftrace", &changed).to_str().unwrap()]);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{at}: {output:?}");
    }
    let random: Vec<u8> = (0_u32..100_000).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (name, bytes, what) in [
        ("random", &random[..], "neither a Perfetto trace nor Chrome JSON"),
        ("lines", b"\nhello\n", "not a Perfetto trace"),
        ("empty", b"", "an empty file"),
        ("program", b"\x7fELF\x02\x01\x01\0", "neither a Perfetto trace nor Chrome JSON"),
        ("t.flight", b"warpline flight\x01", "warpline recover"),
        ("other.json", b"{\"a\":1}", "JSON without `traceEvents`"),
        ("nothing.json", b"{\"traceEvents\":[]}", "no zone, kernel or step in the trace; record with"),
        ("packed.gz", b"\x1f\x8b\x08\0\0\0\0\0", "name a trace"),
    ] {
        let said = refusal(&file(name, bytes));
        assert!(said.contains(what) && said.starts_with("error: "), "{name}: {said}");
    }
    assert!(refusal(&folder.path().join("missing")).contains("name a trace"));
    let empty = folder.path().join("runs");
    fs::create_dir(&empty).unwrap();
    assert!(refusal(&empty).contains("no file in the folder has a name that ends in `.pftrace`"));
}

#[test]
fn processes_and_threads_whose_ids_are_texts_are_called_by_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let kernel = |pid: Value, tid: Value| json!({"ph": "X", "cat": "kernel", "name": "k", "pid": pid, "tid": tid, "ts": 1, "dur": 5});
    let events = [
        kernel(json!("GPU 0"), json!("stream 7")),
        kernel(json!("GPU 1"), json!("stream 7")),
        kernel(json!(2), json!(9)),
    ];
    std::fs::write(&path, json!({"traceEvents": events}).to_string()).unwrap();
    let output = warpline(&["report", "--format", "json", path.to_str().unwrap()]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let streams = told["streams"].as_array().unwrap().iter();
    let mut names: Vec<_> =
        streams.map(|row| [row["device"].as_str().unwrap(), row["name"].as_str().unwrap()]).collect();
    names.sort_unstable();
    assert_eq!(names, [["GPU 0", "stream 7"], ["GPU 1", "stream 7"], ["GPU 2", "stream 9"]]);
}
