//! Runs the attacks for a given time and prints a table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use warpline_attack::{ATTACKS, Attack, ON_RANKS, Run, is_command, run_as_worker};

const USAGE: &str = "usage: warpline-attack [--seconds N] [--only NAME] [--seed N] [--keep FOLDER] [--ranks PROGRAM]";

struct Options {
    time: Duration,
    only: Option<String>,
    seed: u64,
    keep: PathBuf,
    ranks: Option<PathBuf>,
}

impl Options {
    /// The attacks that are asked for, and can run.
    fn attacks(&self) -> Vec<&'static Attack> {
        let on_ranks = if self.ranks.is_some() { ON_RANKS } else { &[] };
        let is_asked = |attack: &&Attack| self.only.as_ref().is_none_or(|only| attack.name == only);
        ATTACKS.iter().chain(on_ranks).filter(is_asked).collect()
    }
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
    let mut options = Options { time, only: None, seed: since.as_nanos() as u64, keep, ranks: None };
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("`{option}` has no value\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("`{option} {value}`: {error}; write a number"));
        match option.as_str() {
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--keep" => options.keep = value.into(),
            "--ranks" => options.ranks = Some(value.into()),
            "--only" => options.only = Some(value),
            _ => return Err(format!("there is no option `{option}`\n{USAGE}")),
        }
    }
    match &options.only {
        Some(only) if options.attacks().is_empty() && ON_RANKS.iter().any(|attack| attack.name == only) => {
            Err(format!("`--only {only}` attacks `warpline-ranks`; name that program with `--ranks PROGRAM`"))
        }
        Some(only) if options.attacks().is_empty() => {
            let names: Vec<_> = ATTACKS.iter().chain(ON_RANKS).map(|attack| attack.name).collect();
            Err(format!("there is no attack `{only}`; there are {}", names.join(", ")))
        }
        _ => Ok(options),
    }
}

/// Runs one attack after the other, each for its share of the time.
fn run(options: &Options) -> ExitCode {
    let attacks = options.attacks();
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
        let run = Run::new(attack.name, options.seed, share, &program, &options.keep);
        let run = options.ranks.iter().fold(run, |run, ranks| run.on_ranks(ranks));
        let outcome = run.finish(attack);
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
