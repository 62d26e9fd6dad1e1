//! What an attack has: a time, a seed, and a place where its tries and failures are counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// An attack that failed so often has said enough.
const MOST_FAILURES: usize = 5;

/// The same where the failures are made on purpose, and waited for.
const MOST_PLANTED: usize = 3;

/// Seeds of tries that follow one another.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// An attack.
pub struct Attack {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Runs it until its time is up.
    pub run: fn(&mut Run),
}

/// What failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was wrong.
    pub what: String,
    /// With this seed the same try is the first one.
    pub seed: u64,
    /// The input that made it fail, where there is one.
    pub input: Option<PathBuf>,
}

/// How an attack went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How often it tried.
    pub tries: u64,
    /// What failed.
    pub failures: Vec<Failure>,
}

/// One run of an attack.
pub struct Run {
    name: &'static str,
    seed: u64,
    deadline: Instant,
    /// The program whose processes are attacked: `warpline-attack`.
    pub(crate) program: PathBuf,
    /// The program `warpline-ranks`, for [`ON_RANKS`](super::ON_RANKS).
    pub(crate) ranks: Option<PathBuf>,
    /// What hangs for so long hangs for ever.
    pub(crate) patience: Duration,
    /// Where inputs that failed are kept.
    kept: PathBuf,
    most_failures: usize,
    outcome: Outcome,
}

impl Run {
    /// A run of `attack` for `time`. `program` is the binary `warpline-attack`; inputs that fail are kept in the folder `kept`.
    pub fn new(name: &'static str, seed: u64, time: Duration, program: &Path, kept: &Path) -> Run {
        Run {
            name,
            seed,
            deadline: Instant::now() + time,
            program: program.to_owned(),
            ranks: None,
            patience: Duration::from_secs(60),
            kept: kept.to_owned(),
            most_failures: MOST_FAILURES,
            outcome: Outcome::default(),
        }
    }

    /// On the program `warpline-ranks` at this path.
    pub fn on_ranks(self, program: &Path) -> Run {
        Run { ranks: Some(program.to_owned()), ..self }
    }

    /// For a planted fault: with the patience that it takes to know that something hangs.
    pub fn planted(self, patience: Duration) -> Run {
        Run { patience, most_failures: MOST_PLANTED, ..self }
    }

    /// Runs `attack`, and says how it went.
    pub fn finish(mut self, attack: &Attack) -> Outcome {
        (attack.run)(&mut self);
        self.outcome
    }

    /// The seed of the next try; none when the time is up or enough has failed. There is one try at least.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let is_over = self.outcome.tries > 0 && self.left().is_zero();
        if is_over || self.outcome.failures.len() >= self.most_failures {
            return None;
        }
        let seed = self.seed;
        self.seed = seed.wrapping_add(STEP);
        self.outcome.tries += 1;
        Some(seed)
    }

    /// Tries that a worker made with seeds from this one on.
    pub(crate) fn tried(&mut self, tries: u64) {
        self.outcome.tries += tries;
        self.seed = self.seed.wrapping_add(STEP.wrapping_mul(tries));
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The seed of the next try, for a worker that makes its own tries; none when the time is up or enough has failed.
    pub(crate) fn seed_for_worker(&self) -> Option<u64> {
        let is_over = self.outcome.tries > 0 && self.left().is_zero();
        (!is_over && self.outcome.failures.len() < self.most_failures).then_some(self.seed)
    }

    /// The try with this seed failed, with this input.
    pub(crate) fn failed(&mut self, seed: u64, what: impl Into<String>, input: Option<&[u8]>) {
        let (what, name) = (what.into(), self.name);
        let input = input.and_then(|input| {
            let path = self.kept.join(format!("{name}-{seed:016x}"));
            fs::create_dir_all(&self.kept).and_then(|()| fs::write(&path, input)).ok()?;
            Some(path)
        });
        eprintln!("{name}: seed {seed}: {what}");
        self.outcome.failures.push(Failure { what, seed, input });
    }
}

/// A number from `low` to `high`, evenly distributed over its number of bits rather than its value: small ones are common.
pub(crate) fn skewed(random: &mut Rng, low: u64, high: u64) -> u64 {
    let bits = random.u32(0..=u64::BITS - (high - low).leading_zeros());
    low + random.u64(..=(high - low).min(1_u64.checked_shl(bits).map_or(u64::MAX, |limit| limit - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_is_given_again_makes_the_same_try_first() {
        let run = |seed| Run::new("none", seed, Duration::from_secs(600), Path::new(""), Path::new(""));
        let mut first = run(7);
        let seeds: Vec<_> = (0..3).filter_map(|_| first.next()).collect();
        assert_eq!(run(seeds[2]).next(), Some(seeds[2]));
        first.tried(2);
        assert_eq!(first.seed_for_worker(), Some(7_u64.wrapping_add(STEP.wrapping_mul(5))));
    }

    #[test]
    fn skewed_numbers_stay_in_their_bounds() {
        let mut random = Rng::with_seed(1);
        let numbers: Vec<_> = (0..10_000).map(|_| skewed(&mut random, 3, 300)).collect();
        assert!(numbers.iter().all(|number| (3..=300).contains(number)));
        assert!(numbers.contains(&3) && numbers.iter().any(|number| *number > 250));
        assert_eq!(skewed(&mut random, 5, 5), 5);
    }
}
