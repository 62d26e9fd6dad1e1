//! The inputs of the golden texts, in a folder with short names.
//!
//! Three were recorded, and are in `tests/golden/traces/`: `h100.pftrace.gz`, 20 steps of `examples/candle` on an H100 with driver 580.159.04;
//! `quickstart.pftrace.gz` and `quickstart.flight.zst`, 8 steps of `examples/quickstart.rs` on the host with
//! `WARPLINE=perfetto=quickstart.pftrace,flight=256KiB:quickstart.flight`; and `ranks/`, the two processes of `tests/stragglers.rs`, of which rank 1
//! comes late. PyTorch's trace of a graph's replays is that of the tests of `warpline-annotate`. The others are written here, at known times,
//! as is a binary, `program`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use warpline::sink::{Batch, Sink};
use warpline_core::kernel::KernelRecord;
use warpline_core::replay::{ReplayRecord, ReplayedZone};
use warpline_core::step::StepRecord;
use warpline_report::fixture::{self, ATTENTION, COPY, LOAD, STEP, main_thread, span, stream, zone};
use warpline_report::{GraphTimingCounts, Report};
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::{binaries, texts};

/// Writes all inputs into the folder.
pub fn write(folder: &Path) {
    let path = |name: &str| folder.join(name);
    let recorded = texts::folder().join("traces");
    for name in ["h100.pftrace.gz", "quickstart.pftrace.gz", "quickstart.flight.zst"] {
        fs::copy(recorded.join(name), path(name)).unwrap();
    }
    fs::create_dir(path("ranks")).unwrap();
    for name in ["ranks/rank0.pftrace.gz", "ranks/rank1.pftrace.gz"] {
        fs::copy(recorded.join(name), path(name)).unwrap();
    }
    let of_annotate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../annotate/tests/data");
    fs::create_dir(path("torch")).unwrap();
    fs::copy(of_annotate.join("torch_graph.json.gz"), path("torch/graph.json.gz")).unwrap();
    fs::copy(of_annotate.join("torch_graph.annotations.json"), path("torch/graph.annotations.json")).unwrap();
    graph(&path("graph.pftrace"));
    version(&path("old.pftrace"), false);
    version(&path("new.pftrace"), true);
    killed(&path("killed.json"));
    fs::write(path("program"), binaries::elf()).unwrap();
}

/// Three replays of a graph with a zone in another one, and an eager zone that launches it.
fn graph(path: &Path) {
    let (main, compute) = (main_thread(), stream(1, "compute"));
    let mut sink = PerfettoSink::create(path).unwrap();
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
        let gpu = span(at + 1_000, at + 6_000);
        let record = ReplayRecord { correlation: 3 + replay as u32, ..fixture::replay(&compute, gpu, zones) };
        sink.write(Batch::Replays(&[record])).unwrap();
    }
    let eager = zone(&ATTENTION, Some(&compute), &main, span(40_000, 40_100), Some(span(40_500, 42_500)));
    sink.write(Batch::Zones(&[eager])).unwrap();
    let graph_timing = GraphTimingCounts { by_kernels: 3, ..GraphTimingCounts::default() };
    let duration = Duration::from_micros(50);
    sink.finish(&Report { begun: 3, recorded: 1, captured: 2, graph_timing, duration, ..Report::default() }).unwrap();
}

/// A version of a program with 48 steps. In the new one, `demo.attention` takes 12 % more and `demo.load` half of the time, another kernel computes
/// the softmax, and nothing else differs but by a few ns.
fn version(path: &Path, is_new: bool) {
    let (main, compute, side) = (main_thread(), stream(1, "compute"), stream(2, "side"));
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&fixture::session()).unwrap();
    let (attention_ns, load_ns) = if is_new { (22_400, 4_000) } else { (20_000, 8_000) };
    for step in 0..48_i64 {
        let at = step * 100_000;
        // The versions differ in their noise, too.
        let noise = (step + i64::from(is_new)) * 7_919 % 13 * 25;
        let launch = |from: i64| span(at + from, at + from + 300);
        let on = |stream, range, from: i64, ns: i64| {
            zone(range, Some(stream), &main, launch(from - 800), Some(span(at + from, at + from + ns + noise)))
        };
        let zones = [
            on(&compute, &ATTENTION, 12_000, attention_ns),
            on(&compute, &ATTENTION, 36_000, attention_ns),
            on(&compute, &STEP, 11_000, 56_000),
        ];
        sink.write(Batch::Zones(&zones)).unwrap();
        sink.write(Batch::Zones(&[on(&side, &COPY, 20_000, 9_000)])).unwrap();
        sink.write(Batch::Zones(&[zone(&LOAD, None, &main, span(at + 500, at + 500 + load_ns + noise), None)]))
            .unwrap();
        let kernel = |name: &str, from: i64, ns: i64| KernelRecord {
            correlation: step as u32 + 1,
            ..fixture::kernel(name, &compute, span(at + from, at + from + ns + noise))
        };
        let softmax = if is_new { "void softmax_online(float*, int)" } else { "void softmax(float*, int)" };
        sink.write(Batch::Kernels(&[
            kernel("void gemm<float>(float*)", 12_500, 9_000),
            kernel(softmax, 22_000, 6_000),
        ]))
        .unwrap();
        let host = span(at, at + 90_000 + noise);
        sink.write(Batch::Steps(&[StepRecord { number: step as u64, thread: main.clone(), host }])).unwrap();
    }
    let duration = Duration::from_micros(4_800);
    sink.finish(&Report { begun: 240, recorded: 240, duration, ..Report::default() }).unwrap();
}

/// A Chrome trace of a program that was killed.
fn killed(path: &Path) {
    let mut sink = ChromeSink::create(path).unwrap();
    sink.start(&fixture::session()).unwrap();
    for batch in fixture::records() {
        sink.write(Batch::Zones(&batch)).unwrap();
    }
    sink.finish(&fixture::report()).unwrap();
    let whole = fs::read(path).unwrap();
    fs::write(path, &whole[..whole.len() * 2 / 3]).unwrap();
}
