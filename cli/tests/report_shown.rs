//! What `warpline report` shows of a trace: ranges by the values of a field, one step, some ranges, in an order of the reader's. The figures are
//! computed beside it, from the records.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, gpu_zone, host_zone};

use crate::support::alone;

/// Multiplies matrices.
#[gpu_zone("cli.shown.matmul", stream = stream, label = if n > 8 { "large" } else { "small" }, fields(n = n, dtype = "f16", shape = &[n, 4][..]))]
fn matmul(stream: &HostStream, n: u64) {
    stream.launch(move || std::thread::sleep(Duration::from_micros(20 * n)));
}

/// Moves memory, with a declared size.
#[gpu_zone("cli.shown.copy", stream = stream, bytes = 1_024)]
fn copy(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(Duration::from_micros(50)));
}

/// Reads a file.
#[host_zone("cli.shown.load")]
fn load() {
    std::thread::sleep(Duration::from_micros(30));
}

/// The lengths of multiplications in ns, by step and size.
type Lengths = BTreeMap<(u64, u64), Vec<i64>>;

/// Records three steps in both formats, and returns the traces and the lengths of the multiplications by step and size.
fn record(folder: &Path) -> ([PathBuf; 2], Lengths) {
    let _turn = alone();
    let [perfetto, chrome] = ["t.pftrace", "t.json"].map(|name| folder.join(name));
    let zones = MemorySink::new(1_000);
    let session = Session::builder().perfetto(&perfetto).chrome(&chrome).sink(zones.clone()).quiet().start().unwrap();
    let (stream, mut calls) = (HostStream::new("compute"), Vec::new());
    for step in 1..=3 {
        warpline::step(step);
        load();
        for n in [4, 16, 4] {
            matmul(&stream, n);
            calls.push((step, n));
        }
        copy(&stream);
        stream.synchronize().unwrap();
    }
    warpline::step(4);
    session.finish();
    let mut lengths = Lengths::new();
    let mut matmuls: Vec<_> = zones.take().into_iter().filter(|zone| zone.range.name() == "cli.shown.matmul").collect();
    matmuls.sort_by_key(|zone| zone.host.begin_ns);
    assert_eq!(matmuls.len(), calls.len());
    for (call, zone) in calls.into_iter().zip(matmuls) {
        lengths.entry(call).or_default().push(zone.duration_ns());
    }
    ([perfetto, chrome], lengths)
}

fn report(arguments: &[&str], trace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).arg("report").arg(trace).args(arguments).output().unwrap()
}

/// The names of the ranges in their order, each with its count and its total.
fn ranges(arguments: &[&str], trace: &Path) -> Vec<(String, u64, i64)> {
    let output = report(&[arguments, &["--format", "json"]].concat(), trace);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_i64().unwrap_or_else(|| panic!("{key} in {row}"));
        (row["name"].as_str().unwrap().to_owned(), number("count") as u64, number("total_ns"))
    };
    read["ranges"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn ranges_are_split_limited_and_ordered_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (traces, lengths) = record(folder.path());
    let total = |is_in: &dyn Fn(u64, u64) -> bool| -> (u64, i64) {
        let chosen = lengths.iter().filter(|((step, n), _)| is_in(*step, *n)).flat_map(|(_, lengths)| lengths);
        chosen.fold((0, 0), |(count, ns), length| (count + 1, ns + length))
    };
    for trace in &traces {
        let named = |arguments: &[&str]| -> BTreeMap<String, (u64, i64)> {
            ranges(arguments, trace).into_iter().map(|(name, count, ns)| (name, (count, ns))).collect()
        };
        let by = named(&["--by", "n"]);
        assert_eq!(by["cli.shown.matmul [n=4]"], total(&|_, n| n == 4));
        assert_eq!(by["cli.shown.matmul [n=16]"], total(&|_, n| n == 16));
        assert!(by.contains_key("cli.shown.load") && by.contains_key("cli.shown.copy") && by.len() == 4, "{by:?}");
        assert_eq!(named(&["--by", "label"])["cli.shown.matmul [label=large]"], total(&|_, n| n == 16));
        assert_eq!(named(&["--by", "shape"])["cli.shown.matmul [shape=[16,4]]"], total(&|_, n| n == 16));
        // The declared size is no field.
        assert_eq!(named(&["--by", "bytes"]), named(&[]));

        let step = named(&["--step", "2", "--by", "n"]);
        assert_eq!(step["cli.shown.matmul [n=4]"], total(&|step, n| step == 2 && n == 4));
        assert_eq!((step["cli.shown.copy"].0, step["cli.shown.load"].0), (1, 1));

        let filtered: Vec<_> = named(&["--filter", "cli.shown.*,!cli.shown.l*"]).into_keys().collect();
        assert_eq!(filtered, ["cli.shown.copy", "cli.shown.matmul"]);
        assert_eq!(named(&["--filter", "cli.shown.matmul", "--by", "n"]).len(), 2);

        let order = |arguments: &[&str]| ranges(arguments, trace).into_iter().map(|range| range.0).collect::<Vec<_>>();
        assert_eq!(order(&["--sort", "name"]), ["cli.shown.copy", "cli.shown.load", "cli.shown.matmul"]);
        assert_eq!(order(&["--sort", "count"])[0], "cli.shown.matmul");

        let text = String::from_utf8(report(&["--top", "1", "--filter", "cli.shown.m*"], trace).stdout).unwrap();
        assert!(
            text.contains(
                "2 ranges do not match `--filter cli.shown.m*`, and are not shown; shares refer to all ranges"
            ),
            "{text}"
        );
        let text = String::from_utf8(report(&["--top", "1"], trace).stdout).unwrap();
        assert_eq!(text.matches("and 2 more ranges").count(), 2, "{text}");

        let missing = report(&["--step", "77"], trace);
        let error = String::from_utf8(missing.stderr).unwrap();
        assert!(missing.status.code() == Some(2) && error.contains("no step 77 in the trace"), "{error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_field_of_a_tool_splits_too() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.json");
    let op = |at: u64, shapes: &Value| json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": at, "dur": 5, "args": {"Input Dims": shapes}});
    let events = [op(0, &json!([[8, 4], [4, 4]])), op(10, &json!([[8, 4], [4, 4]])), op(20, &json!([[1, 4], [4, 4]]))];
    fs::write(&trace, json!({ "traceEvents": events }).to_string()).unwrap();
    let found = ranges(&["--by", "Input Dims"], &trace);
    let named = |dims: &str, count, ns| (format!("aten::mm [Input Dims={dims}]"), count, ns);
    assert_eq!(found, [named("[[8,4],[4,4]]", 2, 10_000), named("[[1,4],[4,4]]", 1, 5_000)]);
}

#[test]
fn a_stream_that_works_for_another_step_is_not_idle() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pftrace");
    let session = Session::builder().perfetto(&trace).quiet().start().unwrap();
    let [compute, memory] = ["compute", "memory"].map(HostStream::new);
    warpline::step(1);
    matmul(&compute, 1_000);
    warpline::step(2);
    copy(&memory);
    memory.synchronize().unwrap();
    // Behind the multiplication of step 1.
    matmul(&compute, 16);
    warpline::step(3);
    compute.synchronize().unwrap();
    copy(&memory);
    memory.synchronize().unwrap();
    warpline::step(4);
    session.finish();
    let report = |step: &str| -> (Value, String) {
        let [json, text] =
            [&["--format", "json"][..], &[]].map(|more| report(&[&["--step", step], more].concat(), &trace));
        (serde_json::from_slice(&json.stdout).unwrap(), String::from_utf8(text.stdout).unwrap())
    };
    let note = "streams also worked for other steps between the begin and the end of this step's work";
    let (step, text) = report("2");
    assert!(text.contains(note) && !text.contains("critical path of"), "{text}");
    assert!(text.contains("waiting  not recorded"), "{text}");
    assert!(step["critical_path"].is_null(), "{step}");
    let (step, text) = report("3");
    assert!(!text.contains(note) && text.contains("critical path of"), "{text}");
    assert!(!step["critical_path"].is_null(), "{step}");
}
