//! `cargo xtask soak`: eight ranks that run for minutes while ranks die and clocks step (`tests/soak`). `warpline-ranks` must blame no rank for what
//! it has not done.

use std::process::ExitCode;

use crate::needs;
use crate::shell::{Stop, line};

/// How long it runs by default.
const MINUTES: &str = "30";

/// Runs the soak with these options.
///
/// # Errors
/// Options that it does not have, and values that they cannot have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let (minutes, keep) = match options {
        [] => (MINUTES, None),
        ["--minutes", minutes] => (*minutes, None),
        ["--minutes", minutes, "--keep", folder] => (*minutes, Some(*folder)),
        _ => return Err(format!("`soak` does not know `{}`; write `--minutes 30 --keep FOLDER`", options.join(" "))),
    };
    if !minutes.parse::<f64>().is_ok_and(|minutes| (0.5..=10_000.0).contains(&minutes)) {
        return Err(format!("`--minutes {minutes}` is not a number from 0.5 to 10000; write `--minutes 30`"));
    }
    Ok(match soak(minutes, keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}

fn soak(minutes: &str, keep: Option<&str>) -> Result<(), Stop> {
    let program = needs::example("soak")?;
    let keep = keep.map(|folder| format!(" --keep {folder}")).unwrap_or_default();
    line(&format!("{} --minutes {minutes} --reader {}{keep}", program.display(), needs::reader()?.display())).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_used_are_errors_that_say_what_to_write() {
        for options in [&["--minutes", "0"][..], &["--minutes", "x"], &["--minutes"], &["--hours", "1"]] {
            assert!(run(options).is_err_and(|error| error.contains("write `--minutes 30")), "{options:?}");
        }
    }
}
