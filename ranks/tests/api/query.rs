//! `query` over one trace: the rows of records whose times are known, the figures of a session's own report, every query of docs/query.md and of
//! `--list`, and what is refused. `WARPLINE_BLESS=1` writes the golden rows; read the difference before it is committed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, collective, gpu_zone, host_zone};
use warpline_core::catalog::{Kind, RangeSpec};
use warpline_core::kernel::{KernelRecord, KernelWork, ZoneRef};
use warpline_core::record::{EndSource, Span};
use warpline_core::replay::{ReplayRecord, ReplayedZone};
use warpline_core::step::StepRecord;
use warpline_ranks::trace::{NAMED, TraceTable};
use warpline_report::Report;
use warpline_report::fixture::{self, ATTENTION, STEP, main_thread, span, stream, zone};
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

/// Has another zone inside.
#[gpu_zone("test.asked.step", stream = stream)]
fn train(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(Duration::from_micros(300)));
    matmul(stream);
}

/// Is inside another zone.
#[gpu_zone("test.asked.matmul", stream = stream)]
fn matmul(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(Duration::from_micros(200)));
}

/// Works on its thread.
#[host_zone("test.asked.load")]
fn load() {
    std::thread::sleep(Duration::from_micros(100));
}

/// Sums the gradients.
#[collective("test.asked.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group)]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| std::thread::sleep(Duration::from_micros(400)));
}

const STEPS: u64 = 12;

/// Records a session, and returns its report. A process has one session: tests take turns.
fn record(folder: &Path) -> Value {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let session = Session::builder().perfetto(folder.join("real.pftrace")).chrome(folder.join("real.json")).quiet();
    let session = session.start().unwrap();
    let (compute, comm) = (HostStream::new("compute"), HostStream::new("comm"));
    let group = ProcessGroup::new("dp0", [0, 1], 0);
    for step in 0..STEPS {
        warpline::step(step);
        load();
        train(&compute);
        sum(&comm, &group);
        compute.synchronize().unwrap();
        comm.synchronize().unwrap();
    }
    serde_json::from_str(&session.finish().to_json()).unwrap()
}

/// Two steps with a zone in another one, kernels, a copy, waits and two replays, at known times.
fn known(sink: &mut impl Sink) {
    let (main, compute, side) = (main_thread(), stream(1, "compute"), stream(2, "side"));
    sink.start(&fixture::session()).unwrap();
    for step in 0..2_i64 {
        let at = step * 10_000;
        let own = |range, on, host: Span, gpu: Span| zone(range, Some(on), &main, host, Some(gpu));
        // As a stream ends them.
        let inner = own(&ATTENTION, &compute, span(at + 1_100, at + 1_200), span(at + 3_000, at + 5_000 + 100 * step));
        let outer = own(&STEP, &compute, span(at + 1_000, at + 1_300), span(at + 2_000, at + 7_000));
        let other = own(&ATTENTION, &side, span(at + 1_400, at + 1_500), span(at + 6_000, at + 8_000));
        let in_zone = ZoneRef { range: &ATTENTION, stream: Some(1), sequence: inner.sequence };
        sink.write(Batch::Zones(&[inner, outer])).unwrap();
        sink.write(Batch::Zones(&[other])).unwrap();
        sink.write(Batch::Zones(&[zone(&STEP, None, &main, span(at + 900, at + 1_600), None)])).unwrap();
        let kernel = KernelRecord {
            work: KernelWork::Kernel {
                grid: [1, 1, 1],
                block: [32, 1, 1],
                registers_per_thread: 8,
                static_shared_bytes: 0,
                dynamic_shared_bytes: 0,
            },
            correlation: 7 + step as u32,
            zone: Some(in_zone),
            ..fixture::kernel("void scale<float>(float*, int)", &compute, span(at + 3_100, at + 4_900))
        };
        let copy = KernelRecord {
            name: "Memcpy HtoD (Pinned -> Device)".into(),
            work: KernelWork::Memcpy { bytes: 4_096, kind: "HtoD", from: "Pinned", to: "Device" },
            stream: side.clone(),
            gpu: span(at + 6_000, at + 6_500),
            zone: None,
            ..kernel.clone()
        };
        sink.write(Batch::Kernels(&[kernel, copy])).unwrap();
        let host = span(at + 800, at + 9_000 + 500 * step);
        sink.write(Batch::Steps(&[StepRecord { number: 40 + step as u64, thread: main.clone(), host }])).unwrap();
    }
    sink.write(Batch::Waits(&fixture::waits())).unwrap();
    for replay in 0..2_i64 {
        let at = 30_000 + replay * 10_000;
        let in_replay = zone(&ATTENTION, Some(&compute), &main, span(at, at + 200), Some(span(at + 1_000, at + 3_000)));
        let zones = vec![ReplayedZone { zone: in_replay, lane: None, kernels: 1, captured_on: 1 }];
        let gpu = span(at + 1_000, at + 3_000);
        let record = ReplayRecord { correlation: 20 + replay as u32, ..fixture::replay(&compute, gpu, zones) };
        sink.write(Batch::Replays(&[record])).unwrap();
    }
    sink.finish(&Report { begun: 8, recorded: 8, ..Report::default() }).unwrap();
}

/// Runs the command in a folder.
fn ran(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
    let output = command.arg("query").args(args).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn asked(folder: &Path, args: &[&str]) -> String {
    let (status, text, complaints) = ran(folder, args);
    assert_eq!((status, &*complaints), (Some(0), ""), "{args:?}: {text}");
    text
}

#[track_caller]
fn rows(folder: &Path, trace: &str, sql: &str) -> Vec<Value> {
    asked(folder, &[trace, sql, "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let (status, text, complaints) = ran(folder, args);
    assert_eq!((status, &*text, complaints.lines().count()), (Some(1), "", 1), "{args:?}: {complaints}");
    complaints
}

static SUM: RangeSpec = fixture::range("demo.sum\0", Kind::Collective, None, 50);

/// Two steps with zones and collectives on two streams. In the first one, the end of a zone is not timed, in the second one that of a collective; a third
/// zone in a zone around it may have ended a little earlier, which is not worth a word.
fn with_late_ends(sink: &mut impl Sink) {
    let (main, compute, comm) = (main_thread(), stream(1, "compute"), stream(2, "comm"));
    let group = ProcessGroup::new("dp0", [0, 1], 0);
    sink.start(&fixture::session()).unwrap();
    for step in 0..2_i64 {
        let at = step * 20_000;
        let zone = |range, on, host: i64, gpu: Span, early_by_ns| {
            let mut zone = zone(range, Some(on), &main, span(at + host, at + host + 100), Some(gpu));
            if early_by_ns > 0 {
                (zone.end, zone.end_early_by_ns) = (EndSource::Boundary, early_by_ns);
            }
            zone
        };
        let late = |of: i64, ns: i64| if step == of { ns } else { 0 };
        let inner = zone(&ATTENTION, &compute, 1_100, span(at + 3_000, at + 5_000 + late(0, 4_000)), late(0, 4_000));
        let a_little = zone(&ATTENTION, &compute, 1_200, span(at + 10_000, at + 12_000), late(0, 50));
        let outer = zone(&STEP, &compute, 1_000, span(at + 2_000, at + 13_000), 0);
        let mut sum = zone(&SUM, &comm, 1_300, span(at + 4_000, at + 6_000 + late(1, 9_000)), late(1, 9_000));
        sum.message = Some(Box::new(Message {
            seq: Some(step as u64),
            ..Message::new(CollectiveKind::AllReduce).count(1_000).dtype(DataType::F32).group(&group)
        }));
        let after = zone(&ATTENTION, &compute, 1_400, span(at + 13_500, at + 15_000 + late(0, 2_000)), late(0, 2_000));
        sink.write(Batch::Zones(&[inner, a_little, outer, after])).unwrap();
        sink.write(Batch::Zones(&[sum])).unwrap();
        let host = span(at + 800, at + 9_000);
        sink.write(Batch::Steps(&[StepRecord { number: 40 + step as u64, thread: main.clone(), host }])).unwrap();
    }
    sink.finish(&Report { begun: 10, recorded: 10, ..Report::default() }).unwrap();
}

#[test]
fn the_rows_of_records_are_known() {
    let folder = tempfile::tempdir().unwrap();
    known(&mut PerfettoSink::create(folder.path().join("known.pftrace")).unwrap());
    assert_rows(folder.path(), "known");
}

#[test]
fn no_query_takes_a_bound_for_a_length() {
    let folder = tempfile::tempdir().unwrap();
    with_late_ends(&mut PerfettoSink::create(folder.path().join("late_ends.pftrace")).unwrap());
    assert_rows(folder.path(), "late_ends");
    with_late_ends(&mut ChromeSink::create(folder.path().join("late_ends.json")).unwrap());
    let sql = "SELECT place, stream, dur_ns, dur_is_bound, self_ns, self_is_bound, end_early_by_ns FROM zones ORDER BY begin_ns, dur_ns";
    let [perfetto, chrome] = ["late_ends.pftrace", "late_ends.json"].map(|trace| rows(folder.path(), trace, sql));
    assert_eq!((&perfetto, perfetto.len()), (&chrome, 10));
}

/// Compares the rows of all tables and queries of a trace with those in the file of its name.
fn assert_rows(folder: &Path, name: &str) {
    let trace = format!("{name}.pftrace");
    let mut text = String::new();
    let base = "SELECT MIN(begin_ns) AS ns FROM steps";
    let base = rows(folder, &trace, base)[0]["ns"].as_i64().unwrap() - 800;
    for table in TraceTable::ALL {
        let mut all = rows(folder, &trace, &format!("SELECT * FROM {}", table.name()));
        if table == TraceTable::Ranges {
            // A sum has no order.
            all.sort_by_key(Value::to_string);
        }
        text += &golden(table.name(), all, base);
    }
    for query in NAMED {
        let args = [&*trace, "--name", query.name, "--json"];
        let all = asked(folder, &args).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        text += &golden(query.name, all, base);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/api/query/{name}.txt"));
    if std::env::var_os("WARPLINE_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(file).unwrap(), "\n{text}");
}

/// Rows as the test's file has them: times count from the begin of the records, and nulls are left out.
fn golden(name: &str, rows: Vec<Value>, base: i64) -> String {
    let mut text = format!("{name}\n");
    for row in rows {
        let cell = |(name, value): (&String, &Value)| match value.as_i64() {
            _ if value.is_null() => None,
            Some(ns) if name.ends_with("begin_ns") || name.ends_with("end_ns") => Some(format!("{name} {}", ns - base)),
            _ => Some(format!("{name} {value}")),
        };
        let cells: Vec<String> = row.as_object().unwrap().iter().filter_map(cell).collect();
        text += &format!("    {}\n", cells.join(", "));
    }
    text
}

#[test]
fn figures_are_those_of_the_report_and_of_every_format_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let report = record(folder.path());
    let plain = std::fs::read(folder.path().join("real.pftrace")).unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&plain).unwrap();
    std::fs::write(folder.path().join("real.pftrace.gz"), packed.finish().unwrap()).unwrap();
    for trace in ["real.pftrace", "real.pftrace.gz", "real.json"] {
        let of = |sql: &str| rows(folder.path(), trace, sql);
        let by = |rows: &[Value], name: &str, place: &str| -> BTreeMap<(String, String), Value> {
            // Chrome traces name collectives as the tools that read them expect it.
            let text = |value: &Value| value.as_str().unwrap_or_default().replace("ncclDevKernel_AllReduce ", "");
            rows.iter().map(|row| ((text(&row[name]), text(&row[place])), row.clone())).collect()
        };
        let told = by(report["ranges"].as_array().unwrap(), "name", "on");
        let found = by(&of("SELECT * FROM ranges"), "range", "place");
        assert!(told.len() >= 4 && told.keys().eq(found.keys()), "{trace}: {told:?} {found:?}");
        for (key, told) in &told {
            let found = &found[key];
            assert_eq!(told["count"], found["n"], "{trace}: {key:?}");
            for name in ["total_ns", "self_ns", "min_ns", "max_ns"] {
                assert_eq!(told[name], found[name], "{trace}: {key:?}: {name}");
            }
        }
        let steps = &report["steps"][0];
        let found = &of("SELECT COUNT(*) AS n, MIN(dur_ns) AS least, MAX(dur_ns) AS most FROM steps")[0];
        assert_eq!(
            [&steps["count"], &steps["min_ns"], &steps["max_ns"]],
            [&found["n"], &found["least"], &found["most"]]
        );
        let told = &report["collectives"][0];
        let found = &of(
            "SELECT COUNT(*) AS n, SUM(dur_ns) AS ns, MIN(bytes) AS bytes FROM collectives WHERE comm = 'dp0 [0,1]'",
        )[0];
        assert_eq!((&told["count"], &told["total_ns"]), (&found["n"], &found["ns"]), "{trace}: {told}");
        assert_eq!(found["bytes"], 4_000);
        let of_streams = |rows: &[Value], name: &str| -> BTreeMap<String, [Value; 3]> {
            let row = |row: &Value| {
                let figures = ["busy_ns", "waiting_ns", "uncertain_ns"].map(|figure| row[figure].clone());
                (row[name].as_str().unwrap().to_owned(), figures)
            };
            rows.iter().map(row).collect()
        };
        let told = of_streams(report["streams"].as_array().unwrap(), "name");
        assert_eq!((told.len(), &told), (2, &of_streams(&of("SELECT * FROM streams"), "stream")), "{trace}");
        let told = report["collectives"][0]["hidden_share"].as_f64().unwrap();
        let found = &of("SELECT SUM(hidden_ns) / CAST(SUM(comm_ns) AS DOUBLE) AS share FROM hidden_communication")[0];
        assert!((told - found["share"].as_f64().unwrap()).abs() < 1e-6, "{trace}: {told} {found}");
        // The last step has no end.
        let found = &of(
            "SELECT COUNT(DISTINCT step) AS steps, COUNT(*) AS n, MAX(call) AS last FROM zones WHERE range = 'test.asked.matmul'",
        )[0];
        assert_eq!(
            [&found["steps"], &found["n"], &found["last"]],
            [STEPS - 1, STEPS, STEPS].map(Value::from).each_ref(),
            "{trace}"
        );
    }
}

#[test]
fn the_figures_of_a_gpus_trace_are_those_of_its_report() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/golden");
    let report = std::fs::read_to_string(golden.join("report/h100.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let sql = "SELECT range, place, n, total_ns, self_ns, min_ns, max_ns FROM ranges ORDER BY total_ns DESC";
    let found = rows(&golden.join("traces"), "h100.pftrace.gz", sql);
    let told = report["ranges"].as_array().unwrap();
    assert_eq!((told.len(), found.len()), (4, 4), "{found:?}");
    for (told, found) in told.iter().zip(&found) {
        for (of_report, column) in [
            ("name", "range"),
            ("on", "place"),
            ("count", "n"),
            ("total_ns", "total_ns"),
            ("self_ns", "self_ns"),
            ("min_ns", "min_ns"),
            ("max_ns", "max_ns"),
        ] {
            assert_eq!(told[of_report], found[column], "{column}: {found}");
        }
    }
    // The page shows the answer over this trace.
    let (_, shown) =
        include_str!("../../../docs/query.md").split_once("$ warpline query trace.pftrace \"").expect("a command");
    let (sql, shown) = shown.split_once("\" --format csv\n").expect("its end");
    let (shown, _) = shown.split_once("```").expect("its answer");
    assert_eq!(asked(&golden.join("traces"), &["h100.pftrace.gz", sql, "--format", "csv"]), shown);
}

#[test]
fn all_sql_of_the_page_is_answered_and_the_page_has_all_columns() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/query.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let in_commands: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("warpline query "))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(blocks.len() >= 5 && !in_commands.is_empty(), "{blocks:?} {in_commands:?}");
    for sql in blocks.into_iter().chain(in_commands) {
        let csv = asked(folder.path(), &["real.pftrace", sql, "--format", "csv"]);
        assert!(csv.lines().count() >= 1, "{sql}: {csv}");
    }
    let listed = asked(folder.path(), &["--list"]);
    for query in NAMED {
        assert!(page.contains(&format!("| `{}` | ", query.name)), "the page lacks `{}`", query.name);
        assert!(listed.contains(&format!("  {}: {}\n", query.name, query.about())), "{listed}");
        let rows = asked(folder.path(), &["real.pftrace", "--name", query.name]);
        let has_none = ["slowest_kernels", "kernels_by_range", "waits_by_thread"].contains(&query.name);
        assert_eq!(rows.lines().count() <= 4, has_none, "{}: {rows}", query.name);
    }
    assert_eq!(NAMED.len(), 12);
    let tables = page.split("## Tables").nth(1).unwrap().split("## Queries").next().unwrap();
    for table in TraceTable::ALL {
        let section = tables.split(&format!("\n`{}`, a row", table.name())).nth(1);
        let section = section.unwrap_or_else(|| panic!("the page lacks the table `{}`", table.name()));
        let section = section.split("\n`").next().unwrap();
        let of_table = rows(folder.path(), "real.pftrace", &format!("DESCRIBE {}", table.name()));
        assert!(!of_table.is_empty());
        for column in of_table {
            let name = column["column_name"].as_str().unwrap();
            let is_there = [format!("`{name}`"), format!("`{name}?`")].iter().any(|name| section.contains(name));
            assert!(is_there, "the page lacks `{}.{name}`", table.name());
        }
    }
}

#[test]
fn what_cannot_be_answered_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record(root);
    let trace = "real.pftrace";
    let unknown = refused(root, &[trace, "SELECT * FROM slices"]);
    assert!(unknown.contains("there is no table `slices` in a trace; its tables are zones, launches, "), "{unknown}");
    for sql in [
        "INSERT INTO zones SELECT * FROM zones",
        "CREATE TABLE t AS SELECT 1",
        "DROP TABLE zones",
        "COPY zones TO 'z.csv'",
    ] {
        let writes = refused(root, &[trace, sql]);
        assert!(writes.contains("only reads") && writes.contains("write one SELECT"), "{writes}");
    }
    assert!(!root.join("z.csv").exists());
    let (status, _, column) = ran(root, &[trace, "SELECT length FROM zones"]);
    assert!(
        status == Some(1) && column.contains("No field named length") && column.contains("zones.dur_ns"),
        "{column}"
    );
    let nothing = refused(root, &["nowhere.pftrace", "SELECT 1 FROM zones"]);
    assert!(nothing.contains("nowhere.pftrace: ") && nothing.contains("name a trace"), "{nothing}");
    std::fs::write(root.join("text"), "no trace").unwrap();
    let text = refused(root, &["text", "SELECT 1 FROM zones"]);
    assert!(text.contains("neither a Perfetto trace nor Chrome JSON"), "{text}");
    let of_folder = refused(root, &[".", "SELECT * FROM zones"]);
    assert!(of_folder.contains("has traces and no tables of ranks") && of_folder.contains("real."), "{of_folder}");
    let run = refused(root, &[trace, "SELECT 1 FROM zones", "--run", "1"]);
    assert!(run.contains("`--run` is for folders"), "{run}");
    let view = refused(root, &[trace, "--name", "late"]);
    assert!(view.contains("`late` is a view over a folder of ranks' tables"), "{view}");
    let name = refused(root, &[trace, "--name", "slowest"]);
    assert!(name.contains("there is no query `slowest`; `query --list` shows them"), "{name}");
    // A cut trace is answered as far as it goes, and the warning says so.
    let whole = std::fs::read(root.join(trace)).unwrap();
    std::fs::write(root.join("cut.pftrace"), &whole[..whole.len() - 10]).unwrap();
    let (status, rows, warning) = ran(root, &["cut.pftrace", "SELECT COUNT(*) AS n FROM zones", "--format", "csv"]);
    assert!(status == Some(0) && rows.starts_with("n\n"), "{rows}");
    assert!(warning.contains("cut.pftrace: the trace is cut"), "{warning}");
}

#[test]
fn a_folder_of_tables_is_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let plan = warpline_ranks::generate::Plan { ranks: 4, hosts: 2, steps: 70, ..Default::default() };
    warpline_ranks::generate::generate(&folder.path().join("tables"), &plan).unwrap();
    let of_trace = refused(folder.path(), &["tables", "SELECT * FROM kernels"]);
    assert!(
        of_trace.contains("there is no table `kernels` in a folder of ranks; its tables are windows, "),
        "{of_trace}"
    );
    let named = refused(folder.path(), &["tables", "--name", "first_calls"]);
    assert!(named.contains("`first_calls` is a query over one trace, and `tables` is a folder"), "{named}");
    let writes = refused(folder.path(), &["tables", "DELETE FROM steps"]);
    assert!(writes.contains("begins with `DELETE FROM`"), "{writes}");
    // A row for each rank and window.
    let placed = asked(folder.path(), &["tables", "--name", "placed", "--format", "csv"]);
    assert!(placed.starts_with("run,win,rank,host,") && placed.lines().count() == 1 + 4 * 2, "{placed}");
}

#[test]
fn one_trace_is_the_same_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    known(&mut PerfettoSink::create(folder.path().join("known.pftrace")).unwrap());
    known(&mut ChromeSink::create(folder.path().join("known.json")).unwrap());
    for sql in [
        "SELECT range, place, stream, dur_ns, self_ns, launch_ns, call, step FROM zones ORDER BY begin_ns, dur_ns, place",
        "SELECT range, dur_ns, step FROM launches ORDER BY begin_ns",
        "SELECT name, kind, stream, dur_ns FROM kernels ORDER BY begin_ns",
        "SELECT step, dur_ns FROM steps ORDER BY begin_ns",
    ] {
        let [perfetto, chrome] = ["known.pftrace", "known.json"].map(|trace| rows(folder.path(), trace, sql));
        assert_eq!(perfetto, chrome, "{sql}");
        assert!(!perfetto.is_empty(), "{sql}");
    }
}
