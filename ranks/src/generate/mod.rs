//! Writes the tables of a job that never ran, with known truth: for tests, and to learn what a job of some size costs
//! to read. The steps are simulated in true time; each host then reads its own clock, which is off, drifts and is
//! sometimes late. Only what `docs/ranks-tables.md` states about the tables is written.

mod progress;
mod random;
mod simulate;
mod write;

use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::folder::is_run;

pub use progress::{Hang, progress};
pub use write::{file as write_table, replace_file};

/// The Unix time at which every generated job begins; the begin of a window of a minute.
pub const BEGIN_NS: i64 = 1_763_999_940_000_000_000;

/// Ranks of a job: the largest have fewer, and a window of all of them is in memory.
const MOST_RANKS: u32 = 1 << 17;

/// Ranks times steps.
const MOST_ROWS: u64 = 1 << 31;

/// The most by which a rank is late: a day.
const MOST_LATE_NS: i64 = 86_400_000_000_000;

/// The most by which a device is slower, in percent.
const MOST_SLOW: f64 = 1_000.0;

/// The job to generate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The id of the run.
    pub run: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of steps.
    pub steps: u32,
    /// The number of hosts; neighbouring ranks share one.
    pub hosts: u32,
    /// Stages of a pipeline, each on as many hosts: a stage works a tenth longer than the one before it. It divides the
    /// hosts.
    pub pipeline: u32,
    /// Another seed gives other noise.
    pub seed: u64,
    /// About the length of a step.
    pub step_ns: i64,
    /// The length of a window.
    pub window_ns: i64,
    /// One in this many of the small collectives is kept.
    pub sampling: u64,
    /// How many ranks share a file; a real rank has one of its own.
    pub ranks_per_file: u32,
    /// The maximum offset of the hosts' clocks.
    pub offset_ns: i64,
    /// The maximum drift of the hosts' clocks.
    pub drift_ppm: f64,
    /// The share of collectives whose end a host sees late, of a thousand.
    pub tails_per_mille: u64,
    /// How late.
    pub tail_ns: i64,
    /// Ranks that are late.
    pub late: Vec<Late>,
    /// Ranks whose device is slow.
    pub slow: Vec<Slow>,
    /// Windows that are missing: a rank, and the number of the window from 0.
    pub missing: Vec<(u32, u32)>,
}

/// A rank that takes longer in one stage, in some steps.
#[derive(Debug, Clone, Serialize)]
pub struct Late {
    /// The rank.
    pub rank: u32,
    /// The stage.
    pub stage: Stage,
    /// By how much.
    pub ns: i64,
    /// The first such step.
    pub from: u32,
    /// The last one.
    pub to: u32,
}

/// A rank whose device takes longer for everything.
#[derive(Debug, Clone, Serialize)]
pub struct Slow {
    /// The rank.
    pub rank: u32,
    /// By how much.
    pub percent: f64,
    /// The first such step.
    pub from: u32,
}

/// The stages of a generated step, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The host prepares input.
    Load,
    /// Ends in an all-reduce of the host's ranks.
    Forward,
    /// Ends in an all-reduce of one rank of each host.
    Backward,
    /// No communication.
    Optimizer,
}

impl Stage {
    /// The range's name.
    pub const fn range(self) -> &'static str {
        match self {
            Self::Load => "demo.load",
            Self::Forward => "demo.forward",
            Self::Backward => "demo.backward",
            Self::Optimizer => "demo.optimizer",
        }
    }
}

/// The truth about a generated job.
#[derive(Debug, Clone, Serialize)]
pub struct Truth {
    /// The id of the run.
    pub run: String,
    /// The clock of each host.
    pub clocks: Vec<HostClock>,
    /// The late ranks.
    pub late: Vec<Late>,
    /// The slow ranks.
    pub slow: Vec<Slow>,
}

/// The clock of a host: it reads `boot_ns + t + offset_ns + drift * t` at the true time `t` after the begin.
#[derive(Debug, Clone, Serialize)]
pub struct HostClock {
    /// The host.
    pub host: String,
    /// Its boot.
    pub boot_id: String,
    /// The reading of its clock at the begin, if it were right.
    pub boot_ns: i64,
    /// How far it is off at the begin.
    pub offset_ns: i64,
    /// How much faster it runs.
    pub drift: f64,
}

impl HostClock {
    /// The reading of the clock.
    pub fn reads(&self, true_ns: i64) -> i64 {
        self.boot_ns + true_ns + self.offset_ns + (self.drift * true_ns as f64).round() as i64
    }

    /// How far it is off.
    pub fn error_ns(&self, true_ns: i64) -> f64 {
        self.offset_ns as f64 + self.drift * true_ns as f64
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            run: "generated".to_owned(),
            ranks: 16,
            steps: 60,
            hosts: 2,
            pipeline: 1,
            seed: 1,
            step_ns: 1_000_000_000,
            window_ns: 60_000_000_000,
            sampling: 1,
            ranks_per_file: 1,
            offset_ns: 500_000,
            drift_ppm: 50.0,
            tails_per_mille: 100,
            tail_ns: 1_000_000,
            late: Vec::new(),
            slow: Vec::new(),
            missing: Vec::new(),
        }
    }
}

impl Plan {
    fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::Asked(what.to_owned()));
        if self.ranks == 0 || self.hosts == 0 || self.steps == 0 || self.ranks_per_file == 0 {
            return wrong("there must be at least one rank, host, step and rank in a file");
        }
        if self.ranks > MOST_RANKS || u64::from(self.ranks) * u64::from(self.steps) > MOST_ROWS {
            return Err(Error::Asked(format!(
                "{} ranks and {} steps are too many: there are at most {MOST_RANKS} ranks, and {MOST_ROWS} rows in `steps`",
                self.ranks, self.steps
            )));
        }
        if self.run.len() > 100 || !is_run(&self.run) {
            return Err(Error::Asked(format!(
                "`{}` is not the id of a run: write at most 100 letters, digits, `.`, `_` and `-`",
                self.run
            )));
        }
        if !self.ranks.is_multiple_of(self.hosts) {
            return Err(Error::Asked(format!(
                "{} ranks cannot be distributed evenly over {} hosts; choose a number of hosts that divides the ranks",
                self.ranks, self.hosts
            )));
        }
        if self.pipeline == 0 || !self.hosts.is_multiple_of(self.pipeline) {
            return Err(Error::Asked(format!(
                "{} hosts cannot be distributed evenly over {} stages of a pipeline; choose a number that divides the hosts",
                self.hosts, self.pipeline
            )));
        }
        if self.step_ns < 1_000_000 || self.window_ns < self.step_ns || self.sampling == 0 {
            return wrong(
                "a step has at least a millisecond, a window at least a step, and the sampling is at least 1",
            );
        }
        if let Some(late) = self.late.iter().find(|late| late.from > late.to || !(0..=MOST_LATE_NS).contains(&late.ns))
        {
            return Err(Error::Asked(format!(
                "rank {} cannot be late by {} ms from step {} to {}: its first step is after its last one, or its delay is negative or more than a day",
                late.rank,
                late.ns / 1_000_000,
                late.from,
                late.to
            )));
        }
        if let Some(slow) = self.slow.iter().find(|slow| !(0.0..=MOST_SLOW).contains(&slow.percent)) {
            return Err(Error::Asked(format!(
                "rank {} cannot be slower by {} %: write 0 to {MOST_SLOW}",
                slow.rank, slow.percent
            )));
        }
        let begins = self.late.iter().map(|late| (late.rank, late.from));
        let mut begins = begins.chain(self.slow.iter().map(|slow| (slow.rank, slow.from)));
        if let Some((rank, from)) = begins.find(|(_, from)| *from >= self.steps) {
            return Err(Error::Asked(format!(
                "rank {rank} cannot be late or slow from step {from} on: the last step is {}",
                self.steps - 1
            )));
        }
        let named = self.late.iter().map(|late| late.rank).chain(self.slow.iter().map(|slow| slow.rank));
        match named.chain(self.missing.iter().map(|missing| missing.0)).find(|rank| *rank >= self.ranks) {
            Some(rank) => Err(Error::Asked(format!("there is no rank {rank}: the last one is {}", self.ranks - 1))),
            None => Ok(()),
        }
    }

    /// The ranks of one host.
    pub fn local(&self) -> u32 {
        self.ranks / self.hosts
    }

    /// The hosts of one stage of the pipeline.
    pub fn of_stage(&self) -> u32 {
        self.hosts / self.pipeline
    }

    /// The clocks of the hosts.
    pub fn clocks(&self) -> Vec<HostClock> {
        let mut random = random::Random::new(self.seed ^ 0xc10c);
        let clock = |host: u32| HostClock {
            host: format!("node{host:04}"),
            boot_id: format!("{:016x}-{host:04}", self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            boot_ns: 1_000_000_000_000 + random.below(2_000_000_000_000_000) as i64,
            offset_ns: (random.around() * self.offset_ns as f64) as i64,
            drift: random.around() * self.drift_ppm / 1e6,
        };
        (0..self.hosts).map(clock).collect()
    }
}

/// Writes the job, and its truth as `truth.json` beside the tables.
pub fn generate(folder: &Path, plan: &Plan) -> Result<Truth, Error> {
    plan.check()?;
    let clocks = plan.clocks();
    simulate::simulate(plan, &clocks, |window| write::window(folder, plan, &clocks, window))?;
    let truth = Truth { run: plan.run.clone(), clocks, late: plan.late.clone(), slow: plan.slow.clone() };
    let path = folder.join("truth.json");
    let text = serde_json::to_vec_pretty(&truth).map_err(|error| Error::write(&path, error))?;
    replace_file(&path, &text)?;
    Ok(truth)
}
