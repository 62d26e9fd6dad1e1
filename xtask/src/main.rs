//! `cargo xtask`: the project's own commands. Developers and CI call it; no published crate depends on it.

mod package;
mod sanitize;
mod shell;
mod steps;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask test [--list | --only STEP | --from STEP]

  test          everything that CI runs, step by step; the first failure ends it
  --list        the steps, in order
  --only STEP   this step alone
  --from STEP   this step and those after it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test", options @ ..] => test::run(options),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => Err("a command is missing".to_owned()),
        [other, ..] => Err(format!("unknown command `{other}`")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}\n\n{USAGE}");
        ExitCode::from(2)
    })
}
