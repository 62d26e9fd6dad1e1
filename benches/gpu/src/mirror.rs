//! What the NVTX mirror costs where no session records: a marked function on a CUDA stream with no tool, beside the same
//! function unmarked; and with CUPTI attached, in a process of its own, as a process looks for a tool once.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use gpu::{Gpu, Result};
use warpline::gpu_zone;

use crate::figures::{Table, median, verdict};
use crate::options::Options;

/// Calls in one timed round.
const CALLS: u64 = 1_000_000;

/// Says in a process that it is there for the tool.
const CHILD: &str = "WARPLINE_BENCH_MIRROR";

type Function = fn(&Arc<CudaStream>, u64) -> u64;

#[inline(never)]
fn unmarked(stream: &Arc<CudaStream>, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

/// The same, marked.
#[gpu_zone("gpu_bench.mirrored", fields(n = n))]
#[inline(never)]
fn marked(stream: &Arc<CudaStream>, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    if std::env::var_os(CHILD).is_some() {
        let rounds: Vec<f64> = (0..5).map(|_| round(&stream, marked, CALLS / 10)).collect();
        println!("attached: {}", median(&rounds));
        return Ok(());
    }
    let rounds = options.size("rounds", 40);
    let (mut without, mut with, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(round(&stream, unmarked, CALLS));
        with.push(round(&stream, marked, CALLS));
    }
    added.extend(with.iter().zip(&without).map(|(with, without)| with - without));
    let title = format!("mirror: ns of one call with no session, medians of {rounds} rounds of {CALLS}");
    let columns = ["unmarked", "marked, no tool", "adds", "goal 5", "marked, CUPTI attached"];
    let mut table = Table::new(&title, &columns);
    table.row(&[
        format!("{:.2}", median(&without)),
        format!("{:.2}", median(&with)),
        format!("{:.2}", median(&added)),
        verdict(median(&added), 5.0).to_owned(),
        attached().unwrap_or_else(|error| format!("none: {error}")),
    ]);
    table.print();
    Ok(())
}

fn round(stream: &Arc<CudaStream>, function: Function, calls: u64) -> f64 {
    let function = black_box(function);
    let begin = Instant::now();
    for n in 0..calls {
        black_box(function(stream, n));
    }
    begin.elapsed().as_nanos() as f64 / calls as f64
}

/// Measures in another process, whose tool is CUPTI.
fn attached() -> Result<String> {
    let tool = gpu::cupti_name().ok_or("there is no libcupti.so.13; add its folder to LD_LIBRARY_PATH")?;
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg("mirror").env("NVTX_INJECTION64_PATH", tool).env(CHILD, "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    let ns = said.lines().find_map(|line| line.strip_prefix("attached: ")?.parse::<f64>().ok());
    match ns {
        Some(ns) if complaint.is_empty() => Ok(format!("{ns:.0}")),
        _ => Err(format!("{} {complaint}", output.status).into()),
    }
}
