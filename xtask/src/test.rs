//! `cargo xtask test`: picks the steps, runs them in order, times them and sums up.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::shell::{Stop, is_ci, target};
use crate::steps::{STEPS, Step};

/// With less than this the disk is what fails: linking the tests takes more.
const LITTLE_MB: u64 = 512;

/// Runs `cargo xtask test` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let steps = match options {
        [] => STEPS,
        ["--list"] => {
            STEPS.iter().for_each(|step| println!("{:<12} {}", step.name, step.about));
            return Ok(ExitCode::SUCCESS);
        }
        ["--only", name] => std::slice::from_ref(&STEPS[index_of(name)?]),
        ["--from", name] => &STEPS[index_of(name)?..],
        _ => return Err(format!("`test` does not know `{}`", options.join(" "))),
    };
    Ok(run_steps(steps))
}

fn index_of(name: &str) -> Result<usize, String> {
    let found = STEPS.iter().position(|step| step.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step `{name}`; there are {}", names.join(", "))
    })
}

fn run_steps(steps: &[Step]) -> ExitCode {
    let begin = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    let mut lines = Vec::new();
    for (done, step) in steps.iter().enumerate() {
        println!("\n=== {} ({} of {}): {}", step.name, done + 1, steps.len(), step.about);
        let step_begin = Instant::now();
        let result = (step.run)();
        let time = seconds(step_begin.elapsed());
        match result {
            Ok(0) => {
                passed += 1;
                lines.push(format!("{:<12} {time:>7}  passed", step.name));
            }
            Ok(tests) => {
                passed += 1;
                lines.push(format!("{:<12} {time:>7}  passed, {tests} tests", step.name));
            }
            Err(Stop::Skipped(what)) => {
                passed += 1;
                println!("skipped: {what}");
                lines.push(format!("{:<12} {time:>7}  passed, but {what}", step.name));
            }
            Err(Stop::Lacks(what)) if !is_ci() => {
                println!("skipped: {what}");
                lines.push(format!("{:<12} {time:>7}  skipped: {what}", step.name));
            }
            Err(Stop::Lacks(why) | Stop::Failed(why)) => {
                failed += 1;
                println!("\nfailed: {why}\nwhat to do: {}", step.remedy);
                if let Some(mb) = free_mb().filter(|mb| *mb < LITTLE_MB) {
                    println!(
                        "the disk of {} is full, {mb} MB are free; make room first: cargo clean",
                        target().display()
                    );
                }
                println!("run it again: cargo xtask test --only {name}, then --from {name}", name = step.name);
                lines.push(format!("{:<12} {time:>7}  FAILED: {why}", step.name));
                break;
            }
        }
    }
    println!("\n{}\n{:<12} {:>7}", lines.join("\n"), "in all", seconds(begin.elapsed()));
    let left = steps.len() - lines.len();
    if left > 0 {
        println!("{left} steps were not run");
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is free on the disk that holds what is built.
fn free_mb() -> Option<u64> {
    let disk = rustix::fs::statvfs(target().as_path()).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
