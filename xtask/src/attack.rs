//! `cargo xtask attack`: builds the attacks once and runs them, one after the other, for some minutes.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::needs;
use crate::shell::{Stop, line, target};

/// How long all of them run by default.
const MINUTES: u64 = 5;

/// The longest run: a week.
const MOST_MINUTES: u64 = 7 * 24 * 60;

/// Runs the attacks with these options.
///
/// # Errors
/// Options that it does not have, and values that they cannot have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let (minutes, rest) = parse(options)?;
    let target = target();
    // Not optimised: overflows and the assertions of debug builds are failures, too.
    let attacked = line("cargo build --package warpline-attack").run().and_then(|()| {
        let (program, keep) = (target.join("debug/warpline-attack"), target.join("attack"));
        let ranks = ranks_of(&rest)?.map_or_else(String::new, |path| format!(" --ranks {}", path.display()));
        line(&format!("{} --seconds {} --keep {}{ranks}{rest}", program.display(), minutes * 60, keep.display())).run()
    });
    Ok(match attacked {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}

/// The program `warpline-ranks`, which is built unless another attack alone is asked for.
fn ranks_of(options: &str) -> Result<Option<PathBuf>, Stop> {
    let is_needed = !options.contains("--only ") || options.contains("--only parquet");
    if is_needed { needs::reader().map(Some) } else { Ok(None) }
}

/// The minutes, and the options for `warpline-attack`, which knows the names of the attacks.
fn parse(options: &[&str]) -> Result<(u64, String), String> {
    let (mut minutes, mut rest) = (MINUTES, String::new());
    for option in options.chunks(2) {
        match *option {
            ["--minutes" | "--only" | "--seed"] => {
                return Err(format!(
                    "`{}` needs a value, as in `--minutes 10`, `--only kill-flight` or `--seed 7`",
                    option[0]
                ));
            }
            ["--minutes", number] => {
                minutes =
                    number.parse().ok().filter(|minutes| (1..=MOST_MINUTES).contains(minutes)).ok_or_else(|| {
                        format!("`--minutes {number}` is not a number from 1 to {MOST_MINUTES}; write `--minutes 10`")
                    })?;
            }
            ["--only", name] if name.is_empty() || name.contains(char::is_whitespace) => {
                return Err(format!("`--only {name:?}` names no attack; CONTRIBUTING.md lists them"));
            }
            ["--only", name] => rest += &format!(" --only {name}"),
            ["--seed", number] => {
                let seed: u64 =
                    number.parse().map_err(|_| format!("`--seed {number}` is not a number from 0 to 2^64 - 1"))?;
                rest += &format!(" --seed {seed}");
            }
            _ => return Err(format!("`attack` does not know `{}`", option[0])),
        }
    }
    Ok((minutes, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_used_are_errors_that_say_what_to_write() {
        assert_eq!(parse(&[]), Ok((MINUTES, String::new())));
        let all = ["--minutes", "10", "--only", "forks", "--seed", "7"];
        assert_eq!(parse(&all), Ok((10, " --only forks --seed 7".to_owned())));
        for (options, says) in [
            (&["--minutes"][..], "`--minutes` needs a value"),
            (&["--seed", "7", "--only"], "`--only` needs a value"),
            (&["--minutes", "0"], "`--minutes 0` is not a number from 1 to"),
            (&["--minutes", "-1"], "is not a number from 1 to"),
            (&["--minutes", "307445734561825861"], "is not a number from 1 to"),
            (&["--minutes", "--only"], "is not a number from 1 to"),
            (&["--seed", "x"], "`--seed x` is not a number"),
            (&["--only", "forks --keep /"], "names no attack"),
            (&["--hours", "1"], "does not know `--hours`"),
        ] {
            let error = parse(options).expect_err("it is wrong");
            assert!(error.contains(says), "{options:?}: {error}");
        }
    }
}
