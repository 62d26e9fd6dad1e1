//! The first table of a short program: what the report says with the default settings, beside `ends=eager`.
//!
//! Each run is a process of its own, since the first zones of a process are in question. The four programs are those of a new user: one copy
//! on the device, one kernel, replays of a graph, and a layer of four zones.

use std::process::Command;
use std::sync::Arc;

use cudarc::driver::{CudaStream, result};
use gpu::{DeviceMemory, Gpu, Graph, Result, require_driver};
use warpline::Session;
use warpline::timing::EndMode;

use crate::figures::{Table, median, ratio, verdict};
use crate::graph;
use crate::options::Options;

warpline::range! {
    FIRST = "gpu_bench.first": "A zone of a short program.";
}

type Program = fn(&Gpu, &Arc<CudaStream>) -> Result;

const PROGRAMS: [(&str, Program); 4] = [
    ("one copy of 64 MiB", copy),
    ("one kernel of 28 us", sine),
    ("20 replays", replays),
    ("a layer of 4 zones", layer),
];
const COPIED: usize = 64 << 20;

pub fn run(options: &Options) -> Result {
    if let Some(program) = options.program {
        return one_process(program as usize, options.is_eager);
    }
    let rounds = options.size("rounds", 7);
    require_driver()?;
    let title =
        format!("first: means of a short program's zones as its report says them, medians of {rounds} processes");
    let columns =
        ["program", "default us", "eager us", "default / eager", "goal 1.00 ± 0.10", "bounded zones by default"];
    let mut table = Table::new(&title, &columns);
    for (program, (name, _)) in PROGRAMS.iter().enumerate() {
        let (mut default, mut eager, mut bounded) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..rounds {
            let [mean_us, are_bounded] = in_process(program, &[])?;
            default.push(mean_us);
            bounded += are_bounded;
            eager.push(in_process(program, &["--eager=1"])?[0]);
        }
        let over = ratio(&default, &eager);
        table.row(&[
            (*name).to_owned(),
            format!("{:.2}", median(&default)),
            format!("{:.2}", median(&eager)),
            format!("{over:.3}"),
            verdict((over - 1.0).abs(), 0.1).to_owned(),
            format!("{bounded}"),
        ]);
    }
    table.print();
    Ok(())
}

/// The mean length in us and the number of bounded zones, as the report of one process says them.
fn in_process(program: usize, more: &[&str]) -> Result<[f64; 2]> {
    let output = Command::new(std::env::current_exe()?)
        .args(["first", &format!("--program={program}")])
        .args(more)
        .env_remove("WARPLINE")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let row = said.lines().find_map(|line| line.strip_prefix("row "));
    let row = row.ok_or_else(|| format!("{}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr)))?;
    let numbers: Vec<f64> = row.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("`{row}` is not two numbers").into())
}

/// A program as a new user marks it: the session begins first, and ends right after the last result.
fn one_process(program: usize, is_eager: bool) -> Result {
    let (_, work) = PROGRAMS.get(program).ok_or("there is no such program")?;
    let ends = if is_eager { EndMode::Eager } else { EndMode::Auto };
    let session = Session::builder().ends(ends).start()?;
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    // The driver loads a kernel at its first launch, which may take longer than the kernel.
    gpu.spin(&stream, 1_000, None)?;
    stream.synchronize()?;
    work(&gpu, &stream)?;
    stream.synchronize()?;
    let report = session.finish();
    let [range] = &report.ranges[..] else { return Err(format!("not one range: {report}").into()) };
    // The longest possible length where no zone has a time.
    let mean_ns = if range.timed() > 0 { range.mean_ns } else { range.bounded_mean_ns() };
    println!("row {} {}", mean_ns as f64 / 1e3, range.bounded);
    Ok(())
}

fn copy(_: &Gpu, stream: &Arc<CudaStream>) -> Result {
    let (from, to) = (DeviceMemory::zeroed(COPIED)?, DeviceMemory::zeroed(COPIED)?);
    // SAFETY: both are so large and live until the stream is synchronised.
    let copy = || unsafe { result::memcpy_dtod_async(to.0, from.0, COPIED, stream.cu_stream()) };
    copy()?;
    stream.synchronize()?;
    let zone = FIRST.zone(stream);
    copy()?;
    drop(zone);
    Ok(stream.synchronize()?)
}

fn sine(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    let _zone = FIRST.zone(stream);
    gpu.spin(stream, 28_000, None)
}

fn replays(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    let graph = Graph::capture(stream, graph::MODE, || (0..4).try_for_each(|_| gpu.spin(stream, 10_000, None)))?;
    for _ in 0..20 {
        let _zone = FIRST.zone(stream);
        graph.launch(0, stream)?;
    }
    Ok(stream.synchronize()?)
}

fn layer(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    for ns in [150_000, 40_000, 40_000, 180_000] {
        let _zone = FIRST.zone(stream);
        gpu.spin(stream, ns, None)?;
    }
    Ok(())
}
