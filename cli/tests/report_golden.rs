//! The texts of `warpline report` on small traces: of a program with steps, of replays of a graph, of two ranks, and of a GPU. `WARPLINE_BLESS=1` writes what
//! is printed to `tests/report/`; read the difference before it is committed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use warpline::collective::ProcessGroup;
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, collective, gpu_zone, host_zone, step};
use warpline_core::fixture::{self, ATTENTION, STEP, main_thread, span, stream, zone};
use warpline_core::replay::{ReplayRecord, ReplayTiming, ReplayedZone};
use warpline_core::report::{GraphTimingCounts, Report};
use warpline_trace::perfetto::PerfettoSink;

warpline::namespace!("golden", "what the texts of reports are of");

/// Has another zone inside.
#[gpu_zone("golden.step", stream = stream)]
fn train(stream: &HostStream) {
    stream.launch(|| sleep(Duration::from_millis(4)));
    matmul(stream);
}

/// Is inside another zone.
#[gpu_zone("golden.matmul", stream = stream)]
fn matmul(stream: &HostStream) {
    stream.launch(|| sleep(Duration::from_millis(4)));
}

/// Works on its thread.
#[host_zone("golden.load")]
fn load() {
    sleep(Duration::from_millis(1));
}

/// Is the same on all ranks.
#[collective("golden.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| sleep(Duration::from_millis(1)));
}

/// A process has one session at a time.
static ONE: Mutex<()> = Mutex::new(());

fn report(trace: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(["report", trace.to_str().unwrap()])
        .env_remove("WARPLINE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report").join(name);
    if std::env::var_os("WARPLINE_BLESS").is_some() {
        fs::write(&golden, text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(golden).unwrap(), "\n{text}");
}

/// 20 steps of `examples/candle` on an H100, driver 580.159.04.
#[test]
fn the_text_of_a_gpus_trace() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/h100.pftrace.gz");
    assert_golden("h100.txt", &report(&trace));
}

/// The text without what another run may say differently: measured values, the spaces that align them, first calls, and the path.
fn masked(text: &str) -> String {
    let is_kept = |block: &&str| !block.starts_with("on the critical path");
    let blocks: Vec<String> = text
        .split("\n\n")
        .filter(is_kept)
        .map(|block| {
            let lines = block.lines().filter(|line| !line.contains("first call"));
            lines.map(masked_line).collect::<Vec<_>>().join("\n")
        })
        .collect();
    blocks.join("\n\n") + "\n"
}

/// Each number with a unit is `#` with it, and only one space is between words.
fn masked_line(line: &str) -> String {
    const UNITS: [(&str, &[&str]); 3] =
        [("time", &["ns", "µs", "ms", "s"]), ("%", &["%"]), ("rate", &["GB/s", "MB/s", "kB/s", "B/s"])];
    let mut words: Vec<String> = Vec::new();
    for word in line.replace(['│', '≥'], " ").split_whitespace() {
        let unit = word.trim_end_matches([',', ')', ';', ':']);
        let kind = UNITS.iter().find(|(_, units)| units.contains(&unit)).map(|(kind, _)| kind);
        match words.last_mut().filter(|last| is_number(last)).zip(kind) {
            Some((number, kind)) => *number = format!("#{kind}"),
            None => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['(', '±']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[test]
fn a_program_with_steps() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.pftrace");
    let session = Session::builder().perfetto(&trace).quiet().start().unwrap();
    let stream = HostStream::new("compute");
    for number in 0..6_u32 {
        step(number);
        load();
        train(&stream);
        stream.synchronize().unwrap();
    }
    session.finish();
    assert_golden("steps.txt", &masked(&report(&trace)));
}

#[test]
fn two_ranks() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        let trace = folder.path().join(format!("rank{rank}.pftrace"));
        let session = Session::builder().perfetto(trace).quiet().start().unwrap();
        let (compute, comm) = (HostStream::new("compute"), HostStream::new("comm"));
        let group = ProcessGroup::new("tp0", [0, 1], rank).with_comm_id(7);
        for _ in 0..5 {
            matmul(&compute);
            compute.synchronize().unwrap();
            sum(&comm, &group);
            comm.synchronize().unwrap();
        }
        session.finish();
    }
    assert_golden("ranks.txt", &masked(&report(folder.path())));
}

/// Three replays of a graph with a zone in another one, and an eager zone that launches it. All times are known.
#[test]
fn replays_of_a_graph() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("graph.pftrace");
    let (main, compute) = (main_thread(), stream(1, "compute"));
    let mut sink = PerfettoSink::create(&trace).unwrap();
    sink.start(&fixture::session()).unwrap();
    for replay in 0..3_i64 {
        let at = replay * 10_000;
        let launch = span(at, at + 200);
        let mut sequence = 0;
        let mut replayed = |range, from: i64, to: i64| {
            let mut zone = zone(range, Some(&compute), &main, launch, Some(span(at + from, at + to)));
            zone.sequence = sequence;
            sequence += 1;
            ReplayedZone { zone, lane: None, kernels: 1, captured_on: 1 }
        };
        let zones = vec![replayed(&STEP, 1_000, 6_000), replayed(&ATTENTION, 1_500, 3_500 + 100 * replay)];
        let record = ReplayRecord {
            graph: 1,
            name: Some("decode".into()),
            exec: 2,
            correlation: 3 + replay as u32,
            stream: compute.clone(),
            gpu: span(at + 1_000, at + 6_000),
            kernels: 2,
            unplaced: 0,
            zone: None,
            launch: None,
            timed_by: ReplayTiming::Kernels,
            zones,
        };
        sink.write(Batch::Replays(&[record])).unwrap();
    }
    let eager = zone(&ATTENTION, Some(&compute), &main, span(40_000, 40_100), Some(span(40_500, 42_500)));
    sink.write(Batch::Zones(&[eager])).unwrap();
    let graph_timing = GraphTimingCounts { by_kernels: 3, ..GraphTimingCounts::default() };
    let duration = Duration::from_micros(50);
    sink.finish(&Report { begun: 3, recorded: 1, captured: 2, graph_timing, duration, ..Report::default() }).unwrap();
    assert_golden("graph.txt", &report(&trace));
}
