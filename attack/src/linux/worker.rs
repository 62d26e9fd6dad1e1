//! Workers: processes of `warpline-attack` that are attacked or that try something that may crash, hang or take all memory.
//!
//! A worker that makes tries of its own says on standard output how many it has made, at least each tenth of a second between
//! two tries, and what failed. Before each try it writes down the input, or the seed, so that it is known when the process
//! is no more.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::child::{Child, command};
use super::harness::{Run, STEP};
use crate::readers;

/// Makes the process the command `warpline`, whatever its arguments are.
pub(crate) const AS_COMMAND: &str = "WARPLINE_ATTACK_AS_COMMAND";

/// What a worker tries now.
const NOW: &str = "now";

/// Between two lines of a worker.
const SAYS_EVERY: Duration = Duration::from_millis(100);

/// Has a worker make tries until the time is up, and a new one after each failure.
pub(crate) fn tries_of(run: &mut Run, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder for tries");
    while let Some(seed) = run.seed_for_worker() {
        let (tries, failed) = tries_of_one(run, arguments, seed, folder.path());
        // What it was at when it failed is a try, too.
        run.tried(tries.max(1));
        if let Err(what) = failed {
            let now = std::fs::read(folder.path().join(NOW)).unwrap_or_default();
            run.failed(seed.wrapping_add(STEP.wrapping_mul(tries.saturating_sub(1))), what, Some(&now));
        }
    }
}

fn tries_of_one(run: &Run, arguments: &[&str], seed: u64, folder: &Path) -> (u64, Result<(), String>) {
    let (seed, time) = (seed.to_string(), run.left().as_millis().to_string());
    let mut command = command(&run.program, folder, &[&["worker"], arguments].concat());
    command.env("WARPLINE_ATTACK_SEED", &seed).env("WARPLINE_ATTACK_MS", &time);
    command.env(readers::annotate::FOLDER, folder.join("annotate"));
    let child = match Child::start(command) {
        Ok(child) => child,
        Err(error) => return (0, Err(error)),
    };
    let mut tries = 0;
    loop {
        match child.line(run.patience) {
            Ok(Some(line)) => match line.split_once(' ') {
                Some(("tries", number)) => tries = number.parse().unwrap_or(tries),
                Some(("failed", what)) => {
                    return (tries, Err(what.to_owned()));
                }
                _ => {}
            },
            Ok(None) => break,
            // It made a try more than it has said.
            Err(_) => return (tries + 1, Err(format!("a try does not end within {:?}", run.patience))),
        }
    }
    match child.end(run.patience) {
        Ok((status, _)) if status.success() => (tries, Ok(())),
        Ok((status, said)) => {
            let how = status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
            (tries + 1, Err(format!("the process ended with {how}: {}", said.trim())))
        }
        Err(error) => (tries + 1, Err(error)),
    }
}

/// The tries of this worker.
pub(crate) struct Tries {
    seed: u64,
    made: u64,
    said: Instant,
    deadline: Instant,
    now: PathBuf,
}

impl Tries {
    /// As the attack has it.
    pub(crate) fn of_process() -> Tries {
        let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
        let now = Instant::now();
        Tries {
            seed: number("WARPLINE_ATTACK_SEED"),
            made: 0,
            said: now,
            deadline: now + Duration::from_millis(number("WARPLINE_ATTACK_MS")),
            now: PathBuf::from(NOW),
        }
    }

    /// The seed of the next try; none when the time is up. There is one try at least.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.made > 0 && now >= self.deadline {
            self.say();
            return None;
        }
        if now - self.said >= SAYS_EVERY {
            self.said = now;
            self.say();
        }
        let seed = self.seed.wrapping_add(STEP.wrapping_mul(self.made));
        self.made += 1;
        Some(seed)
    }

    /// Writes down what is tried now.
    pub(crate) fn is_now(&self, input: &[u8]) {
        std::fs::write(&self.now, input).expect("the folder can be written to");
    }

    /// This try failed: no further one is made.
    pub(crate) fn fail(&self, what: &str) -> ! {
        self.say();
        println!("failed {}", what.replace('\n', " | "));
        let _ = std::io::stdout().flush();
        std::process::exit(1)
    }

    fn say(&self) {
        println!("tries {}", self.made);
        let _ = std::io::stdout().flush();
    }
}
