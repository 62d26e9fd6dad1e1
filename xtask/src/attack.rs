//! `cargo xtask attack`: builds the attacks once and runs them, one after the other, for some minutes.

use std::process::ExitCode;

use crate::shell::{Stop, line, target};

/// How long all of them run, if nothing else is said.
const MINUTES: u64 = 5;

/// Runs the attacks with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let (mut minutes, mut rest) = (MINUTES, String::new());
    for option in options.chunks(2) {
        match *option {
            ["--minutes", number] => {
                minutes = number.parse().map_err(|error| format!("`--minutes {number}`: {error}"))?;
            }
            ["--only", name] => rest += &format!(" --only {name}"),
            ["--seed", number] => rest += &format!(" --seed {number}"),
            _ => return Err(format!("`attack` does not know `{}`", option.join(" "))),
        }
    }
    let target = target();
    // Not optimised: overflows and the assertions of debug builds are failures, too.
    let attacked = line("cargo build --package warpline-attack").run().and_then(|()| {
        let (program, keep) = (target.join("debug/warpline-attack"), target.join("attack"));
        line(&format!("{} --seconds {} --keep {}{rest}", program.display(), minutes * 60, keep.display())).run()
    });
    Ok(match attacked {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}
