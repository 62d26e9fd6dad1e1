//! The trace gate: a trace passes only if Perfetto's own reader loses nothing of it.
//!
//! `cargo xtask gate TRACE` checks one trace, Perfetto's or Chrome's. `cargo xtask gate --self-test` has the sinks write one
//! of each, compares every row that a reader sees with `tests/gate/*.expected.json`, and shows that each trace of a corpus of
//! broken ones is refused for the right reason. `cargo xtask test` runs the self-test.

mod check;
mod tools;

use std::path::Path;
use std::process::ExitCode;

use crate::shell::{Stop, is_ci, line, root};

use check::Ended;
pub use tools::Tools;

/// Runs `cargo xtask gate` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let result = match options {
        ["--self-test"] => self_test().map(|checks| println!("{checks} traces were judged rightly")),
        [trace] => one(trace, None, Ended::Finished),
        [trace, "--expect", file] => one(trace, Some(file), Ended::Finished),
        [trace, "--killed"] => one(trace, None, Ended::Killed),
        _ => return Err(format!("`gate` does not know `{}`", options.join(" "))),
    };
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Lacks(what)) if !is_ci() => {
            println!("skipped: {what}");
            ExitCode::SUCCESS
        }
        Err(Stop::Lacks(what) | Stop::Failed(what)) => {
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

/// Checks the traces that the sinks write by hand-made records, and that broken ones are refused. Returns how many traces
/// it looked at.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn self_test() -> Result<u64, Stop> {
    let tools = Tools::ready()?;
    let folder = root().join(".gate/corpus");
    std::fs::create_dir_all(&folder).map_err(|error| Stop::Failed(format!("`{}`: {error}", folder.display())))?;
    line("cargo test -p warpline --features enable --lib write_gate_traces")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let expected = |name: &str| root().join("tests/gate").join(name);
    let (packets, json) = (folder.join("good.pftrace"), folder.join("good.json"));
    let (of_packets, of_json) = (expected("perfetto.expected.json"), expected("chrome.expected.json"));
    pass(&tools, &packets, Some(&of_packets), Ended::Finished)?;
    pass(&tools, &json, Some(&of_json), Ended::Finished)?;
    let mut judged = 2;
    for (file, fault) in tools.break_traces(&packets, &json, &folder)? {
        let expected = if file.ends_with(".json") { &of_json } else { &of_packets };
        let faults = check::faults(&tools, &folder.join(&file), Some(expected), Ended::Finished)?;
        let Some(found) = faults.iter().find(|text| text.contains(&fault)) else {
            let said = if faults.is_empty() { "nothing".to_owned() } else { faults.join("\n") };
            return Err(Stop::Failed(format!(
                ".gate/corpus/{file} must be refused because of `{fault}`; the gate said:\n{said}"
            )));
        };
        println!("refused, as it must be: {file}: {}", found.replace('\n', " "));
        judged += 1;
    }
    Ok(judged)
}
