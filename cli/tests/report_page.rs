//! `warpline report --html`: what is in the page, and that no name of a trace becomes markup. With `WARPLINE_PAGES=FOLDER` it leaves its pages there,
//! for `tests/pages/report.test.mjs`, which opens them in a browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use warpline::fields::Fields;
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, gpu_zone};
use warpline_core::kernel::{KernelRecord, ZoneRef};
use warpline_core::record::{DeviceInfo, DeviceKind, StreamInfo};
use warpline_core::step::StepRecord;
use warpline_core::wait::{SignalInfo, WaitOutcome, WaitRecord};
use warpline_report::fixture::{self, ATTENTION, COPY, LOAD, STEP, main_thread, session, span, stream, zone};
use warpline_report::{ClockFigures, Report};
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::alone;

/// Is in the report of a session.
#[gpu_zone("cli.paged.work", stream = stream)]
fn work(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(Duration::from_micros(20)));
}

const STEPS: u64 = 200;
const SLOW: u64 = 77;

fn warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).env_remove("WARPLINE").output().unwrap()
}

/// Runs the command on a trace, and returns the page.
fn page_of(trace: &Path) -> String {
    let page = trace.with_extension("html");
    let output = warpline(&["report", trace.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let has_account = text.contains(" recorded") || text.contains("from another tool");
    assert!(has_account, "the table is printed, too: {text}");
    fs::read_to_string(page).unwrap()
}

fn data(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Leaves a page for the browser.
fn keep(name: &str, page: &str) {
    if let Some(folder) = std::env::var_os("WARPLINE_PAGES") {
        fs::write(PathBuf::from(folder).join(name), page).unwrap();
    }
}

/// 200 steps: a thread loads, `compute` runs a step with two zones in it, `side` waits for it and copies, and the
/// thread waits for the copy. Step 77 takes 3.5 ms more, and the
/// first load 30 ms more.
fn write_steps(path: &Path) {
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&session()).unwrap();
    let (main, compute, side) = (main_thread(), stream(1, "compute"), stream(2, "side"));
    let (mut at, mut sequence) = (0, 0);
    for number in 0..STEPS {
        let loaded = at + 210_000 + if number == 0 { 30_000_000 } else { 0 };
        let begin = loaded + 100_000;
        let end = begin + 500_000 + number as i64 % 10 * 10_000 + if number == SLOW { 3_500_000 } else { 0 };
        let mut add = |range, on, host, gpu| {
            sequence += 1;
            let mut zone = zone(range, on, &main, host, gpu);
            zone.sequence = sequence;
            zone
        };
        let load = add(&LOAD, None, span(at + 10_000, loaded), None);
        let launch = |at| span(loaded + at, loaded + at + 5_000);
        let inner = [10_000, 200_000].map(|from| {
            add(&ATTENTION, Some(&compute), launch(20_000), Some(span(begin + from, begin + from + 100_000)))
        });
        let mut outer = add(&STEP, Some(&compute), launch(10_000), Some(span(begin, end)));
        outer.fields.push("batch", number);
        outer.fields.push("phase", "warm-up");
        let copy = add(&COPY, Some(&side), launch(30_000), Some(span(end + 20_000, end + 120_000)));
        let signal = SignalInfo {
            value: Some(number),
            stream: Some(compute.clone()),
            thread: main.clone(),
            queue: None,
            host_ns: span(loaded, loaded).begin_ns,
            at_ns: span(end, end).begin_ns,
            early_by_ns: 0,
        };
        let wait = WaitRecord {
            semaphore: "computed".into(),
            value: Some(number),
            stream: Some(side.clone()),
            thread: main.clone(),
            queue: None,
            sequence,
            host: launch(28_000),
            gpu: Some(span(begin, end + 20_000)),
            end: warpline_core::record::EndSource::Event,
            end_early_by_ns: 0,
            outcome: WaitOutcome::Reached,
            signal: Some(signal.clone()),
        };
        // The thread waits for the copy.
        let copied = SignalInfo { stream: Some(side.clone()), at_ns: span(0, end + 120_000).end_ns, ..signal.clone() };
        let of_thread = WaitRecord {
            semaphore: "copied".into(),
            stream: None,
            host: span(loaded + 40_000, end + 150_000),
            gpu: None,
            signal: Some(copied),
            ..wait.clone()
        };
        let [first, second] = inner;
        let kernel = KernelRecord {
            correlation: number as u32,
            zone: Some(ZoneRef { range: &ATTENTION, stream: Some(1), sequence: first.sequence }),
            ..fixture::kernel("void gemm<float>(float*)", &compute, span(begin + 20_000, begin + 90_000))
        };
        sink.write(Batch::Zones(&[first, second, outer])).unwrap();
        sink.write(Batch::Kernels(&[kernel])).unwrap();
        sink.write(Batch::Waits(&[wait])).unwrap();
        sink.write(Batch::Zones(&[copy])).unwrap();
        sink.write(Batch::Waits(&[of_thread])).unwrap();
        sink.write(Batch::Zones(&[load])).unwrap();
        let host = span(at, end + 200_000);
        sink.write(Batch::Steps(&[StepRecord { number, thread: main.clone(), host }])).unwrap();
        at = end + 300_000;
    }
    let clocks = vec![ClockFigures {
        device: "host".to_owned(),
        uncertainty_ns: 40,
        worst_uncertainty_ns: 40,
        bracket_ns: 64,
        busy_bracket_ns: 96,
        bracket_is_bound: false,
    }];
    let (begun, recorded) = (5 * STEPS, 5 * STEPS);
    let duration = Duration::from_nanos(at as u64);
    sink.finish(&Report { begun, recorded, duration, clocks, ..Report::default() }).unwrap();
}

#[test]
fn the_page_has_the_figures_of_the_command_and_the_drawings_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.pftrace");
    write_steps(&trace);
    let page = page_of(&trace);
    keep("report.html", &page);
    let data = data(&page);
    let output = warpline(&["report", "--format", "json", trace.to_str().unwrap()]);
    assert_eq!(data["report"], serde_json::from_slice::<Value>(&output.stdout).unwrap(), "the same figures");
    let verdict: Vec<String> = data["verdict"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sentence| sentence["parts"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect())
        .collect();
    assert!(verdict[0].starts_with("demo.step takes "), "{verdict:?}");
    assert!(
        verdict.iter().any(|text| text.starts_with("a step takes ") && text.contains("the slowest of 200")),
        "{verdict:?}"
    );
    assert!(verdict.iter().any(|text| text.starts_with("the first call of demo.load takes 30.2 ms")), "{verdict:?}");

    let names: Vec<&str> =
        data["details"]["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let calls = &data["details"]["calls"];
    let node = |on: &str, at: usize| {
        let place = calls.as_array().unwrap().iter().find(|place| place["on"] == on).unwrap();
        let node = &place["nodes"][at];
        (
            node[0].as_u64().unwrap(),
            names[node[1].as_u64().unwrap() as usize],
            node[2].as_u64().unwrap(),
            node[3].as_i64().unwrap(),
            node[4].as_i64().unwrap(),
        )
    };
    let of_steps: i64 = 200 * 500_000 + 20 * 450_000 + 3_500_000;
    assert_eq!(node("stream", 0), (0, "demo.step", 200, of_steps, of_steps - 400 * 100_000));
    assert_eq!(node("stream", 1), (1, "demo.attention", 400, 40_000_000, 40_000_000));
    assert_eq!(node("stream", 2).1, "demo.copy");
    assert_eq!(node("thread", 0).1, "demo.load");

    let timelines = &data["details"]["timelines"];
    assert!(
        timelines[0]["title"].as_str().unwrap().starts_with("the slowest step after the first, 77"),
        "{}",
        timelines[0]["title"]
    );
    assert!(timelines[1]["title"].as_str().unwrap().starts_with("a usual step, "), "{}", timelines[1]["title"]);
    assert!(timelines[2]["title"].as_str().unwrap().starts_with("the first step, 0"), "{}", timelines[2]["title"]);
    assert_eq!(timelines[0]["rows"], json!(["steps", "main", "compute", "compute · kernels", "side", "side · copies"]));
    let slices: Vec<&str> = timelines[0]["slices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slice| names[slice[1].as_u64().unwrap() as usize])
        .collect();
    for (name, count) in [("demo.load", 1), ("demo.step", 1), ("demo.attention", 2), ("demo.copy", 1)] {
        assert_eq!(slices.iter().filter(|slice| **slice == name).count(), count, "{name}: {slices:?}");
    }
    assert!(!timelines[0]["path"].as_array().unwrap().is_empty());

    let bars = |name: &str| {
        let all = data["details"]["histograms"]["ranges"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["bars"].as_array().unwrap().clone()
    };
    let sum = |bars: &[Value]| bars.iter().map(|bar| bar[2].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(&bars("demo.step")), 200);
    assert_eq!(sum(&bars("demo.load")), 199, "a first call that is apart is in no histogram");
    for bar in bars("demo.step").iter().filter(|bar| bar[2].as_u64().unwrap() > 0) {
        let (from, to) = (bar[0].as_i64().unwrap(), bar[1].as_i64().unwrap());
        assert!(from < to && (460_000..=4_100_000).contains(&from), "{bar}");
    }
    let stretches = data["path"]["stretches"].as_array().unwrap();
    assert!(stretches.len() > 400, "{}", stretches.len());
}

/// A trace of two devices with zones that declare work: on an H100, a quarter of its memory's peak and a half of its tensor cores', and on a
/// device that is in no table. One zone has fields that only look like declared work.
fn write_work(sink: &mut impl Sink) {
    sink.start(&session()).unwrap();
    let main = main_thread();
    let on = |id, name: &str, ordinal, device: &str| {
        let device = DeviceInfo { ordinal, name: device.to_owned(), kind: DeviceKind::Cuda };
        Arc::new(StreamInfo { id, name: name.to_owned(), device })
    };
    let known = on(1, "compute", 0, "NVIDIA H100 80GB HBM3");
    let unknown = on(2, "other", 1, "NVIDIA Tomorrow");
    let (mut begin, mut sequence) = (0, 0);
    let mut add = |range, stream: &Arc<StreamInfo>, ns: i64, declare: &dyn Fn(&mut Fields)| {
        let mut zone = zone(range, Some(stream), &main, span(begin, begin + 1_000), Some(span(begin, begin + ns)));
        sequence += 1;
        zone.sequence = sequence;
        declare(&mut zone.fields);
        begin += ns;
        zone
    };
    let zones = [
        // 837.5 GB/s and 104.7 GFLOP/s: an eighth of an operation a byte.
        add(&COPY, &known, 1_000_000, &|fields| {
            fields.set_bytes(837_500_000_u64);
            fields.set_flops(104_687_500_u64);
        }),
        // 494.75 TFLOP/s, and 500 operations a byte.
        add(&STEP, &known, 4_000_000, &|fields| {
            fields.set_bytes(3_958_000_000_u64);
            fields.set_flops(1_979_000_000_000_u64);
        }),
        add(&ATTENTION, &unknown, 2_000_000, &|fields| {
            fields.set_bytes(2_000_000_u64);
            fields.set_flops(4_000_000_u64);
        }),
        add(&COPY, &known, 1_000_000, &|fields| {
            fields.push("bytes", 7_u64);
            fields.push("flops", 7_u64);
        }),
    ];
    sink.write(Batch::Zones(&zones)).unwrap();
    sink.finish(&Report { begun: 4, recorded: 4, ..Report::default() }).unwrap();
}

#[test]
fn declared_work_of_a_trace_has_rates_shares_and_a_roofline() {
    let folder = tempfile::tempdir().unwrap();
    let (packets, chrome) = (folder.path().join("work.pftrace"), folder.path().join("work.json"));
    write_work(&mut PerfettoSink::create(&packets).unwrap());
    write_work(&mut ChromeSink::create(&chrome).unwrap());
    let json = |path: &Path| -> Value {
        let output = warpline(&["report", "--format", "json", path.to_str().unwrap()]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for path in [&packets, &chrome] {
        let report = json(path);
        let rows = report["work"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
        let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 1e-6;
        assert_eq!(rows.len(), 3, "{rows:?}");
        let copy = row("demo.copy");
        assert_eq!((&copy["device"], &copy["on"]), (&json!("NVIDIA H100 80GB HBM3"), &json!("stream")));
        assert!(near(&copy["bytes_per_s"], 837.5e9) && near(&copy["bytes_share"], 0.25), "{copy}");
        assert!(near(&copy["flops_per_s"], 104.6875e9) && near(&copy["flops_per_byte"], 0.125), "{copy}");
        assert!(near(&copy["peak_bytes_per_s"], 3.35e12) && copy["peak_measured_on"].is_null(), "{copy}");
        assert!(near(&row("demo.step")["flops_share"], 0.5), "{rows:?}");
        let attention = row("demo.attention");
        assert!(near(&attention["bytes_per_s"], 1e9) && attention["bytes_share"].is_null(), "{attention}");
    }
    let text = String::from_utf8(warpline(&["report", packets.to_str().unwrap()]).stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("demo.copy") && line.contains("B/s")).unwrap();
    assert!(row.contains("838 GB/s   25.0 %   105 GFLOP/s    0.0 %"), "{row}");
    let markdown = warpline(&["report", "--format", "markdown", packets.to_str().unwrap()]).stdout;
    assert!(
        String::from_utf8(markdown)
            .unwrap()
            .contains("| demo.copy | stream | NVIDIA H100 80GB HBM3 | 838 GB/s | 25.0 % |")
    );
    keep("report-work.html", &page_of(&packets));

    // A peak that was measured on this host is named as such.
    let cache = folder.path().join("cache");
    fs::create_dir_all(cache.join("warpline")).unwrap();
    let line = "NVIDIA Tomorrow\t2000000000\t4000000000\t2026-11-25\tCUDA 13.0, 580.159.04\n";
    fs::write(cache.join("warpline/peaks.tsv"), line).unwrap();
    let page = folder.path().join("measured.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(["report", packets.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let output = command.env("XDG_CACHE_HOME", &cache).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("demo.attention") && line.contains("B/s")).unwrap();
    assert!(row.contains("1.00 GB/s   50.0 %  2.00 GFLOP/s   50.0 %"), "{row}");
    let said = "the peak of NVIDIA Tomorrow, measured on 2026-11-25:\n  with CUDA 13.0, 580.159.04: 2.00 GB/s copied, 4.00 GFLOP/s of FP32 FMAs\n";
    assert!(text.contains(said), "{text}");
    keep("report-measured.html", &fs::read_to_string(page).unwrap());
}

/// A trace of PyTorch's profiler with these names.
fn torch(path: &Path, names: &[&str], steps: u32) {
    let collective = json!({"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000, "Group size": 2, "Process Group Name": names[0], "Process Group Ranks": "[0, 1]"});
    let slice = |cat: &str, name: &str, (pid, tid): (u32, u32), (ts, dur): (u32, u32), args: Value| json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args});
    let mut events = Vec::new();
    for step in 0..steps {
        let at = step * 1_000;
        events.push(slice("user_annotation", &format!("ProfilerStep#{step}"), (900, 900), (at, 990), json!({})));
        for (number, name) in names.iter().enumerate() {
            let at = at + 20 + 100 * number as u32;
            events.push(slice("cpu_op", name, (900, 900), (at, 40), json!({})));
            events.push(slice("gpu_user_annotation", name, (0, 7), (at + 10, 80), json!({})));
            events.push(slice(
                "kernel",
                &format!("kernel of {name}"),
                (0, 7),
                (at + 15, 60),
                json!({"correlation": 7 + number, "stream": 7}),
            ));
        }
        events.push(slice("kernel", "ncclKernel_AllReduce", (0, 9), (at + 30, 100 + step % 7), collective.clone()));
    }
    fs::write(path, json!({"schemaVersion": 1, "traceEvents": events}).to_string()).unwrap();
}

const HOSTILE: &str = r#"</script><script>alert(1)</script><img src=x onerror="alert(1)"><!-- &amp; '{{DATA}}' "#;

#[test]
fn a_name_is_no_markup() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    torch(&path("clean.json"), &["forward", "backward", "optimizer"], 12);
    let clean = page_of(&path("clean.json"));
    keep("report-torch.html", &clean);
    assert!(data(&clean)["report"]["collectives"][0]["bytes"].as_u64().unwrap() > 0);
    let long = "very::long::".repeat(2_000);
    let names = [HOSTILE, "\u{202e}gnorw\u{2066} \u{1b}[31m\u{0}", "שלום عليكم", &long, "__proto__", "constructor"];
    torch(&path("hostile.json"), &names, 12);
    let page = page_of(&path("hostile.json"));
    for word in ["</script", "<script", "<img", "<!--"] {
        assert_eq!(page.matches(word).count(), clean.matches(word).count(), "{word}");
    }
    assert!(!page.contains(['\u{202e}', '\u{2066}', '\u{1b}', '\u{0}']));
    assert!(!page.contains(&"very::long::".repeat(200)), "long names are cut");
    let data = data(&page);
    assert!(data["report"]["ranges"].as_array().unwrap().iter().any(|range| range["name"] == HOSTILE));
    keep("report-hostile.html", &page);
}

#[test]
fn a_trace_of_one_step_and_one_without_steps_have_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    torch(&path("one.json"), &["forward"], 1);
    let one = page_of(&path("one.json"));
    let timelines = &data(&one)["details"]["timelines"];
    assert_eq!((timelines.as_array().unwrap().len(), &timelines[0]["title"]), (1, &json!("the first step, 0")));
    keep("report-one.html", &one);
    let event = json!({"ph": "X", "cat": "cpu_op", "name": "alone", "pid": 1, "tid": 1, "ts": 1, "dur": 0});
    fs::write(path("alone.json"), json!({"traceEvents": [event]}).to_string()).unwrap();
    let alone = page_of(&path("alone.json"));
    assert_eq!(data(&alone)["details"]["timelines"][0]["title"], "the whole trace");
    keep("report-alone.html", &alone);
    // Two traces have one page.
    let both = path("both.html");
    let output =
        warpline(&["report", folder.path().to_str().unwrap(), "--format", "json", "--html", both.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(data(&fs::read_to_string(both).unwrap())["details"]["traces"], json!(["alone.json", "one.json"]));
}

#[test]
fn what_is_cut_changed_or_nested_deeply_has_a_page_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_steps(&path("whole.pftrace"));
    let whole = fs::read(path("whole.pftrace")).unwrap();
    let mut pages = 0;
    for at in (1_500..whole.len()).step_by(whole.len() / 30) {
        let mut changed = whole[..whole.len() - at / 3].to_vec();
        (0..8_usize).for_each(|n| changed[(at * (n + 1) * 7_919) % at] ^= 0xff);
        fs::write(path("changed.pftrace"), changed).unwrap();
        let trace = path("changed.pftrace");
        let output = warpline(&["report", trace.to_str().unwrap(), "--html", path("r.html").to_str().unwrap()]);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{at}: {output:?}");
        pages += usize::from(output.status.success());
    }
    assert!(pages > 0);
    let slice = |n: i64| json!({"ph": "X", "cat": "cpu_op", "name": format!("n{}", n % 7), "pid": 1, "tid": 1, "ts": n, "dur": 20_000 - 2 * n});
    let deep: Vec<Value> = (0..9_000).map(slice).collect();
    fs::write(path("deep.json"), json!({"traceEvents": deep}).to_string()).unwrap();
    let data = data(&page_of(&path("deep.json")));
    let calls = &data["details"]["calls"][0];
    let nodes = calls["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node[0].as_u64().unwrap() < 64));
    let zones: u64 = nodes.iter().map(|node| node[2].as_u64().unwrap()).sum();
    assert_eq!(zones + calls["left_out"].as_u64().unwrap(), 9_000);
}

#[test]
fn what_is_too_short_to_be_drawn_alone_is_drawn_together() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("many.json");
    let slice = |n: u64| json!({"ph": "X", "cat": "cpu_op", "name": format!("n{}", n % 7), "pid": 1, "tid": 1, "ts": 10 * n, "dur": 1 + n % 9});
    fs::write(&trace, json!({"traceEvents": (0..9_000).map(slice).collect::<Vec<_>>()}).to_string()).unwrap();
    let page = page_of(&trace);
    keep("report-merged.html", &page);
    let data = data(&page);
    let timeline = &data["details"]["timelines"][0];
    let merged: u64 = timeline["merged"].as_array().unwrap().iter().map(|block| block[4].as_u64().unwrap()).sum();
    assert_eq!((timeline["slices"].as_array().unwrap().len(), merged), (4_000, 5_000));
    assert_eq!(timeline["left_out"], 0);
    let shares = timeline["merged"].as_array().unwrap().iter().map(|block| block[3].as_f64().unwrap());
    assert!(shares.clone().all(|share| (0.0..=1.0).contains(&share)));
    // Those of 1 to 5 us, a thousand of each. Shares are rounded up.
    let blocks = timeline["merged"].as_array().unwrap();
    let ns: f64 = blocks.iter().map(|block| block[3].as_f64().unwrap() * block[2].as_f64().unwrap()).sum();
    assert!((15_000_000.0..=15_100_000.0).contains(&ns), "{ns}");
}

#[test]
fn an_empty_trace_and_a_page_that_cannot_be_written_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (folder.path().join("empty.json"), folder.path().join("empty.html"));
    fs::write(&trace, r#"{"traceEvents":[]}"#).unwrap();
    let output = warpline(&["report", trace.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no zone, kernel or step in the trace"), "{output:?}");
    assert!(!page.exists());
    torch(&trace, &["forward"], 1);
    let output = warpline(&["report", trace.to_str().unwrap(), "--html", trace.join("r.html").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("choose another file with `--html`"), "{output:?}");
    // The page of a report without anything: what a session writes that recorded nothing.
    keep("report-empty.html", &Report::default().to_html());
}

#[test]
fn a_session_writes_its_report_to_files() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let start = |names: &[&str]| {
        let settings =
            names.iter().map(|name| format!("summary={}", path(name).display())).collect::<Vec<_>>().join(",");
        Session::builder().settings(&settings).unwrap().start()
    };
    // Endings that say nothing, a folder that is not there, and one file twice: no session starts, and no file stays.
    for (names, problem) in
        [(&["r.json", "none/r.md"][..], "cannot write the report to"), (&["r.json", "./r.json"], "is named twice")]
    {
        let error = start(names).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(!path("r.json").exists());
    }
    let error = Session::builder().summary_file(path("r.txt")).start().err().unwrap().to_string();
    assert!(error.contains("ends with `.html`, `.json` or `.md`"), "{error}");

    fs::write(path("r.md"), "older\n".repeat(10_000)).unwrap();
    let session = start(&["r.html", "r.json", "r.md", "r.{pid}.json"]).unwrap();
    let stream = HostStream::new("compute");
    (0..10).for_each(|_| work(&stream));
    stream.synchronize().unwrap();
    let report = session.finish();
    let read = |name: &str| fs::read_to_string(path(name)).unwrap();
    assert_eq!(read("r.json"), report.to_json());
    assert_eq!(read(&format!("r.{}.json", std::process::id())), report.to_json());
    assert_eq!(read("r.md"), report.to_markdown());
    let page = read("r.html");
    let data = data(&page);
    assert_eq!(data["report"], serde_json::from_str::<Value>(&report.to_json()).unwrap());
    assert_eq!(data["verdict"][0]["parts"][1], "cli.paged.work");
    keep("report-session.html", &page);
    // A file that cannot be written at the end.
    #[cfg(target_os = "linux")]
    {
        std::os::unix::fs::symlink("/dev/full", path("full.json")).unwrap();
        let report = start(&["full.json"]).unwrap().finish();
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.starts_with("the report is not in `") && note.contains("No space left")),
            "{:?}",
            report.notes
        );
    }
}
