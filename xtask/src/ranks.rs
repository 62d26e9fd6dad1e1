//! The step that runs ranks that work together, on in-process streams: as threads and as processes. The example checks its
//! sums itself; here the rank that was told to be late must be the one that `warpline stragglers` names.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::needs;
use crate::shell::{Stop, line, target};

/// Longer than whatever else holds a rank up on a machine with other work.
const LATE_MS: u64 = 400;

/// The number of the collective that it is late to: an all-reduce of the third step.
const AT: u64 = 15;

/// Runs the example both ways, and judges what its traces say.
pub fn run() -> Result<u64, Stop> {
    line("cargo build --release --example nccl_all_reduce").little_optimized().run()?;
    let folder = target().join("ranks");
    let failed = |error| Stop::Failed(format!("cannot make the folder `{}`: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    judge("--ranks 2", &folder.join("threads.pftrace"), &[folder.join("threads.pftrace")])?;
    let traces = ["rank0.pftrace", "rank1.pftrace"].map(|name| folder.join(name));
    judge("--processes 2", &folder.join("rank{rank}.pftrace"), &traces)?;
    Ok(0)
}

/// Runs a job of in-process ranks with each of the faults, which `warpline-ranks` must name; `warpline stragglers` must name the same rank from the traces.
/// Then both are asked about generated jobs. On GPUs, `run.sh --faults` of the bundle runs the job.
pub fn faults() -> Result<u64, Stop> {
    let (judge, command) = (needs::reader()?, needs::command()?);
    let job = needs::program("faults")?;
    let judges = format!("--judge {} --stragglers {}", judge.display(), command.display());
    line(&format!("{} --host --ranks 4 --repeat 1 {judges}", job.display())).run()?;
    needs::ranks_crate("test --test api same_verdict -- --ignored")
        .with("WARPLINE_COMMAND", command.display().to_string())
        .run_tests()
}

fn judge(how: &str, trace: &Path, traces: &[PathBuf]) -> Result<(), Stop> {
    let program = target().join("release/examples/nccl_all_reduce");
    let late = format!("--late-rank 1 --late-ms {LATE_MS} --late-at {AT}");
    line(&format!("{} --host {how} {late} --trace {}", program.display(), trace.display())).run()?;
    let traces: Vec<String> = traces.iter().map(|trace| trace.display().to_string()).collect();
    let command = format!("{} stragglers {} --format json", needs::command()?.display(), traces.join(" "));
    println!("$ {command}");
    let said = line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?;
    let found: Value = serde_json::from_str(&said).map_err(|error| Stop::Failed(format!("`{command}`: {error}")))?;
    let is_it = |late: &&Value| late["seq"] == AT && late["group"] == "tp0 [0,1]";
    let late = found["worst"].as_array().into_iter().flatten().find(is_it);
    let by_ns = late.filter(|late| late["late_rank"] == 1).and_then(|late| late["late_by_ns"].as_u64());
    match by_ns {
        Some(ns) if ns > LATE_MS / 2 * 1_000_000 => {
            println!("rank 1 was {:.1} ms late to number {AT}", ns as f64 / 1e6);
            Ok(())
        }
        _ => Err(Stop::Failed(format!(
            "rank 1 was {LATE_MS} ms late to number {AT}, and the last command does not say so: {said}"
        ))),
    }
}
