//! Traces of other tools: `warpline report` says of them what `tests/foreign/truth.py` computes, which shares no code with warpline.
//! `tests/foreign/make.py` makes the traces.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a script of `tests/foreign` prints.
fn python(script: &str, argument: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/foreign").join(script);
    let output = Command::new("python3").arg("-B").arg(script).arg(argument).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The traces in a folder.
fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    python("make.py", folder.path());
    folder
}

fn report(trace: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline")).args(["report", "--format", "json"]).arg(trace).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {row}"))
}

fn int(row: &Value, key: &str) -> i64 {
    row[key].as_i64().unwrap_or_else(|| panic!("no `{key}` in {row}"))
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Asserts that the report of a trace has the true streams, collectives, kernels and steps, and no others.
fn check(folder: &Path, name: &str) -> Value {
    let trace = folder.join(format!("{name}.json"));
    let truth: Value = serde_json::from_str(&python("truth.py", &trace)).expect("JSON");
    let report = report(&trace);

    let device = |pid: &str| if pid.parse::<u32>().is_ok() { format!("GPU {pid}") } else { format!("GPU 0 of {pid}") };
    let busy: BTreeMap<_, _> = rows(&truth["streams"])
        .map(|row| ((device(text(row, "pid")), format!("stream {}", text(row, "tid"))), int(row, "busy_ns")))
        .collect();
    let said = rows(&report["streams"]).filter(|row| int(row, "busy_ns") > 0);
    let said: BTreeMap<_, _> =
        said.map(|row| ((text(row, "device").to_owned(), text(row, "name").to_owned()), int(row, "busy_ns"))).collect();
    assert_eq!(said, busy, "{name}: the busy time of streams");

    let group = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let collectives: BTreeMap<_, _> = rows(&truth["collectives"])
        .map(|row| {
            let hidden = int(row, "hidden_ns") as f64 / int(row, "total_ns") as f64;
            let key = (text(row, "kind").to_owned(), text(row, "group").to_owned());
            (key, (int(row, "count"), int(row, "total_ns"), (hidden * 1e6).round() as i64))
        })
        .collect();
    let said: BTreeMap<_, _> = rows(&report["collectives"])
        .map(|row| {
            let hidden = row["hidden_share"].as_f64().expect("a share");
            assert_eq!(row["hidden_by_kernels"], true, "{name}");
            let key = (text(row, "name").to_owned(), group(text(row, "group")));
            (key, (int(row, "count"), int(row, "total_ns"), (hidden * 1e6).round() as i64))
        })
        .collect();
    assert_eq!(said, collectives, "{name}: count, time and hidden millionths of collectives");

    let of = |rows: &Value| -> BTreeMap<String, (i64, i64)> {
        self::rows(rows).map(|row| (text(row, "name").to_owned(), (int(row, "count"), int(row, "total_ns")))).collect()
    };
    // The kernels of one name are one row for each zone that they are in.
    let mut kernels = BTreeMap::<String, (i64, i64)>::new();
    for row in rows(&report["kernels"]) {
        let sum = kernels.entry(text(row, "name").to_owned()).or_default();
        *sum = (sum.0 + int(row, "count"), sum.1 + int(row, "total_ns"));
    }
    assert_eq!(kernels, of(&truth["kernels"]), "{name}: kernels");
    let replayed = rows(&report["ranges"]).filter(|row| text(row, "on") == "replay").cloned().collect();
    assert_eq!(of(&Value::Array(replayed)), of(&truth["scopes"]), "{name}: zones in replays");

    let steps = rows(&report["steps"]).next().map_or((0, 0), |row| {
        let count = int(row, "count");
        (count, int(row, "mean_ns") * count)
    });
    assert_eq!(steps, (int(&truth["steps"], "count"), int(&truth["steps"], "total_ns")), "{name}: steps");
    report
}

#[test]
fn annotations_are_no_work_of_a_stream() {
    let folder = made();
    let report = check(folder.path(), "annotated");
    let idle =
        rows(&report["streams"]).find(|row| text(row, "name") == "stream 9").expect("the stream of an annotation");
    assert_eq!((int(idle, "busy_ns"), int(idle, "idle_ns")), (0, 2_000_000));
}

#[test]
fn a_collective_is_hidden_by_kernels_and_by_nothing_that_encloses_it() {
    check(made().path(), "hidden");
}

#[test]
fn all_names_of_collectives_are_known_and_an_unknown_one_is_said() {
    let report = check(made().path(), "names");
    let notes = report["notes"].to_string();
    assert!(notes.contains("the collective `teleport` is not known"), "{notes}");
    let world = rows(&report["collectives"]).find(|row| text(row, "group").starts_with("world")).expect("the group");
    assert_eq!(text(world, "group"), "world [64 ranks]");
    // 4,000 bytes in 100 us among 64 ranks, within the digits of the histogram.
    let bus = world["busbw_p50_bytes_per_s"].as_f64().expect("a bandwidth");
    assert!((bus / (4e7 * 2.0 * 63.0 / 64.0) - 1.0).abs() < 0.02, "{bus}");
}

#[test]
fn a_synchronisation_before_the_kernels_takes_no_stream_away_and_is_no_wait_of_a_thread() {
    let report = check(made().path(), "synchronized");
    assert_eq!(rows(&report["host_waits"]).count(), 0, "{report}");
}

#[test]
fn the_devices_of_two_ranks_in_one_trace_stay_apart() {
    check(made().path(), "merged");
}

#[test]
fn annotations_of_a_graph_are_zones_and_rows_that_are_made_up_are_no_streams() {
    let report = check(made().path(), "graphs");
    assert_eq!(text(&report["collectives"][0], "group"), "7 [0,1,2,3]");
    assert_eq!(int(&report["collectives"][0], "bytes"), 4 * 4_000);
    let gemm: Vec<_> = rows(&report["kernels"]).filter(|row| text(row, "name") == "gemm").collect();
    assert_eq!((gemm.len(), text(gemm[0], "range")), (1, "layer.0"));
}

/// The launches are those of the calls with the same correlation, and the calls that synchronise hand the critical path to the stream.
#[test]
fn the_critical_path_of_steps_that_synchronise_is_that_of_their_kernels() {
    let folder = made();
    for name in ["loop", "loop_kernels_first"] {
        let report = check(folder.path(), name);
        let part = |name: &str, on: &str| {
            let parts = rows(&report["critical_path"]);
            parts
                .filter(|part| text(part, "name") == name && text(part, "on") == on)
                .map(|part| int(part, "total_ns"))
                .sum::<i64>()
        };
        assert_eq!((part("gemm", "stream 7"), int(&report, "critical_path_ns")), (20 * 40_000_000, 20 * 45_000_000));
        assert_eq!(
            (part("train", "thread 4000"), &report["critical_path_is_assumed"]),
            (20 * 4_900_000, &Value::Bool(false))
        );
        let waits = &report["host_waits"][0];
        assert_eq!((text(waits, "name"), int(waits, "count")), ("cudaStreamSynchronize", 20));
    }
}

#[test]
fn begins_and_ends_are_slices() {
    let report = check(made().path(), "pairs");
    let of = |name: &str| {
        let range = rows(&report["ranges"]).find(|row| text(row, "name") == name).expect("the operator");
        (int(range, "total_ns"), int(range, "self_ns"))
    };
    assert_eq!((of("aten::linear"), of("aten::addmm")), ((50_000, 30_000), (20_000, 20_000)));
}

#[test]
fn work_of_categories_that_are_not_read_is_counted() {
    let report = check(made().path(), "others");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("4 slices of categories that are not read are in no figure: `mtia_ccp_events` (3), `cuda_profiler_range` (1)"),
        "{notes}"
    );
}

/// Each is called what it is, by `report` with the categories that are read, and by `catalog` and `check`.
#[test]
fn a_trace_of_which_nothing_is_read_is_named_with_what_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let onnx = r#"[{"cat":"Session","pid":1,"tid":1,"dur":61437,"ts":3,"ph":"X","name":"model_loading_uri","args":{}},
        {"cat":"Node","pid":1,"tid":1,"dur":2,"ts":70000,"ph":"X","name":"Conv_0_kernel_time","args":{"op_name":"Conv"}}]"#;
    let viztracer = r#"{"traceEvents":[{"pid":1,"tid":1,"ts":3.1,"ph":"X","dur":1.2,"name":"main (/a.py:1)","cat":"FEE"}],
        "viztracer_metadata":{"version":"1.0.4"}}"#;
    let jax = r#"{"displayTimeUnit":"ns","traceEvents":[{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},
        {"ph":"X","pid":1,"tid":20,"ts":1.5,"dur":3,"name":"fusion_1"},{}]}"#;
    let tracing = r#"[{"ph":"B","cat":"app","name":"load","pid":1,"tid":0,"ts":1.0,".file":"src/main.rs",".line":3},
        {"ph":"E","cat":"app","name":"load","pid":1,"tid":0,"ts":9.0,".file":"src/main.rs",".line":3}"#;
    // A packet with events of the kernel, and an id of its sequence.
    let ftrace = "\n\u{6}\n\u{2}\u{8}\u{0}P\u{1}";
    let cases = [
        ("onnx.json", onnx, "a trace of ONNX Runtime", "`Node` (1), `Session` (1)"),
        ("viztracer.json", viztracer, "a trace of viztracer", "`FEE` (1)"),
        ("jax.json", jax, "a trace of JAX or TensorFlow", "`(none)` (1)"),
        ("tracing.json", tracing, "a trace of tracing-chrome", "`app` (1)"),
        ("ftrace.pftrace", ftrace, "a Perfetto trace of the system (ftrace)", "record with"),
    ];
    for (name, content, what, categories) in cases {
        let trace = folder.path().join(name);
        std::fs::write(&trace, content).expect("the folder takes files");
        let run = |command: &str| {
            let output =
                Command::new(env!("CARGO_BIN_EXE_warpline")).arg(command).arg(&trace).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            said
        };
        let said = run("report");
        assert!(said.contains(&format!("in the file, which is {what}")) && said.contains(categories), "{said}");
        assert_eq!(
            said.contains("the categories of PyTorch's profiler are read: `kernel`"),
            name != "ftrace.pftrace",
            "{said}"
        );
        for command in ["catalog", "check"] {
            let said = run(command);
            assert!(said.contains(&format!("no catalog: the file is {what}; name a binary, or a trace")), "{said}");
        }
    }
    let config = folder.path().join("config.json");
    std::fs::write(&config, "{\"a\": 1}").expect("the folder takes files");
    let output = Command::new(env!("CARGO_BIN_EXE_warpline")).arg("catalog").arg(&config).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the file is JSON without `traceEvents`, and no trace"), "{said}");
}

#[test]
fn steps_are_those_of_the_thread() {
    check(made().path(), "steps");
}
