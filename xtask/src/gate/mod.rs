//! The trace gate: a trace passes only if Perfetto's own reader loses nothing of it.
//!
//! `cargo xtask gate TRACE` checks one trace, Perfetto's or Chrome's. `cargo xtask gate --self-test` shows that the gate judges rightly:
//! `self_test.rs` says of what. The steps `gate` and `gate-ranks` of `cargo xtask test` run the self-test.

mod check;
mod pages;
mod parts;
mod report;
mod self_test;
mod tools;

use std::path::Path;
use std::process::ExitCode;

use crate::shell::{Stop, is_ci};

pub use self_test::{self_test, self_test_of_ranks};
use tools::Ended;
pub use tools::Tools;

/// Runs `cargo xtask gate` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let result = match options {
        ["--self-test"] => self_test::of(|_| true).map(judged),
        ["--self-test", name] => {
            self_test::check_name(name)?;
            self_test::of(|part| part == *name).map(judged)
        }
        [trace] => one(trace, None, Ended::Finished),
        [trace, "--expect", file] => one(trace, Some(file), Ended::Finished),
        [trace, "--killed"] => one(trace, None, Ended::Killed),
        [trace, "--pieces"] => one(trace, None, Ended::Pieces),
        [trace, "--foreign"] => one(trace, None, Ended::Foreign),
        _ => return Err(format!("`gate` does not know `{}`", options.join(" "))),
    };
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Lacks(what)) if !is_ci() => {
            println!("skipped: {what}");
            ExitCode::SUCCESS
        }
        Err(Stop::Lacks(what) | Stop::Failed(what) | Stop::Skipped(what)) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    })
}

fn one(trace: &str, expected: Option<&str>, ended: Ended) -> Result<(), Stop> {
    let tools = Tools::ready()?;
    pass(&tools, Path::new(trace), expected.map(Path::new), ended)?;
    println!("{trace}: nothing is lost");
    Ok(())
}

/// A trace that must pass.
fn pass(tools: &Tools, trace: &Path, expected: Option<&Path>, ended: Ended) -> Result<(), Stop> {
    let faults = check::faults(tools, trace, expected, ended)?;
    if faults.is_empty() {
        return Ok(());
    }
    Err(Stop::Failed(format!("{} has {} faults:\n{}", trace.display(), faults.len(), faults.join("\n"))))
}

fn judged(traces: u64) {
    println!("{traces} traces were judged rightly");
}
