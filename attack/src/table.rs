//! Runs the attacks for a given time and prints a table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use warpline_attack::{ATTACKS, Attack, Run, is_command, run_as_worker};

const USAGE: &str = "usage: warpline-attack [--seconds N] [--only NAME] [--seed N] [--keep FOLDER]";

struct Options {
    time: Duration,
    only: Option<String>,
    seed: u64,
    keep: PathBuf,
}

/// The process as its arguments say.
pub fn main() -> ExitCode {
    if let Some(code) = is_command() {
        return code;
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == "worker"
    {
        return run_as_worker(rest);
    }
    match options(arguments.iter().map(|argument| argument.to_string_lossy().into_owned())) {
        Ok(options) => run(&options),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (time, keep) = (Duration::from_secs(60), PathBuf::from("target/attack"));
    let mut options = Options { time, only: None, seed: since.as_nanos() as u64, keep };
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("`{option}` has no value\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("`{option} {value}`: {error}; write a number"));
        match option.as_str() {
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--keep" => options.keep = value.into(),
            "--only" if ATTACKS.iter().any(|attack| attack.name == value) => options.only = Some(value),
            "--only" => {
                let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
                return Err(format!("there is no attack `{value}`; there are {}", names.join(", ")));
            }
            _ => return Err(format!("there is no option `{option}`\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Runs one attack after the other, each for its share of the time.
fn run(options: &Options) -> ExitCode {
    let is_asked = |attack: &&Attack| options.only.as_ref().is_none_or(|only| attack.name == only);
    let attacks: Vec<_> = ATTACKS.iter().filter(is_asked).collect();
    let share = options.time / u32::try_from(attacks.len()).unwrap_or(1).max(1);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("error: this program does not know where it is: {error}");
            return ExitCode::from(2);
        }
    };
    let mut is_clean = true;
    println!("| attack | what it does | tries | failures | seed |\n|---|---|---:|---:|---|");
    for attack in attacks {
        let outcome = Run::new(attack.name, options.seed, share, &program, &options.keep).finish(attack);
        is_clean &= outcome.failures.is_empty();
        let (tries, failures) = (outcome.tries, outcome.failures.len());
        println!("| {} | {} | {tries} | {failures} | {} |", attack.name, attack.about, options.seed);
        for failure in outcome.failures {
            let input = failure.input.map_or(String::new(), |path| format!(", input in {}", path.display()));
            let what: String = failure.what.chars().take(2_000).collect();
            eprintln!("{}: `--only {} --seed {}`{input}: {what}", attack.name, attack.name, failure.seed);
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
