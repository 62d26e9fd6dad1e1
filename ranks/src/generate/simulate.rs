//! The steps in true time: stages, and collectives that begin when the last rank has come.

use warpline_core::hashing::{fnv1a64, splitmix64};

use super::random::Random;
use super::{Error, HostClock, Plan, Stage};

/// Collectives of all ranks come once in this many steps.
pub const WORLD_EVERY: u32 = 10;

/// A collective of one rank, in true time; `end` is when the rank's host sees it end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call {
    pub begin: i64,
    pub end: i64,
    /// When the last rank came.
    pub ready: i64,
}

/// A step of one rank, in true time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RankStep {
    pub begin: i64,
    pub end: i64,
    /// The work of each stage, without its collective.
    pub work: [i64; 4],
    pub tp: Call,
    pub dp: Call,
    pub world: Call,
    /// From stage to stage of the pipeline.
    pub pp: Call,
}

/// A window of all ranks.
#[derive(Debug)]
pub struct Window {
    /// `win=N`.
    pub number: i64,
    /// Its number from 0.
    pub index: u32,
    /// Its first step.
    pub first: u32,
    /// Step by step, all ranks.
    pub steps: Vec<Vec<RankStep>>,
}

/// A communicator.
#[derive(Debug, Clone)]
pub struct Comm {
    pub name: String,
    pub members: String,
    pub size: u32,
}

impl Comm {
    fn new(name: &str, members: String, size: u32) -> Self {
        let hash = fnv1a64(members.as_bytes()) >> 32;
        Self { name: format!("{name}#{hash:08x}"), members, size }
    }

    /// The ranks of a host.
    pub fn tp(plan: &Plan, host: u32) -> Self {
        let first = host * plan.local();
        Self::new(&format!("tp{host}"), format!("{first}-{}", first + plan.local() - 1), plan.local())
    }

    /// The rank at one place of each host of a stage of the pipeline.
    pub fn dp(plan: &Plan, stage: u32, place: u32) -> Self {
        let hosts = stage * plan.of_stage()..(stage + 1) * plan.of_stage();
        let members: Vec<String> = hosts.map(|host| (host * plan.local() + place).to_string()).collect();
        Self::new(&format!("dp{}", stage * plan.local() + place), members.join(","), plan.of_stage())
    }

    /// The ranks of one pipeline: of each stage, the rank at that place of the host with that number in its stage.
    pub fn pp(plan: &Plan, host: u32, place: u32) -> Self {
        let rank = |stage: u32| ((stage * plan.of_stage() + host) * plan.local() + place).to_string();
        let members: Vec<String> = (0..plan.pipeline).map(rank).collect();
        Self::new(&format!("pp{}", host * plan.local() + place), members.join(","), plan.pipeline)
    }

    /// All ranks.
    pub fn world(plan: &Plan) -> Self {
        Self::new("world", format!("0-{}", plan.ranks - 1), plan.ranks)
    }

    /// Whether all members keep this number.
    pub fn is_kept(&self, seq: i64, one_in: u64) -> bool {
        one_in <= 1 || splitmix64(fnv1a64(self.name.as_bytes()) ^ seq as u64).is_multiple_of(one_in)
    }
}

/// Runs the job, and hands over each window.
pub fn simulate(
    plan: &Plan,
    clocks: &[HostClock],
    mut take: impl FnMut(&Window) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut random = Random::new(plan.seed);
    let mut at = vec![0_i64; plan.ranks as usize];
    let number = |at: i64| (super::BEGIN_NS + at).div_euclid(plan.window_ns);
    let mut window = Window { number: number(0), index: 0, first: 0, steps: Vec::new() };
    for step in 0..plan.steps {
        let now = number(at[0]);
        // A window has ten steps at least.
        if now != window.number && window.steps.len() >= 10 {
            take(&window)?;
            window = Window { number: now, index: window.index + 1, first: step, steps: Vec::new() };
        }
        let row = one_step(plan, step, &mut at, &mut random);
        window.steps.push(row);
    }
    debug_assert_eq!(clocks.len(), plan.hosts as usize);
    take(&window)
}

fn one_step(plan: &Plan, step: u32, at: &mut [i64], random: &mut Random) -> Vec<RankStep> {
    let mut row: Vec<RankStep> = at.iter().map(|begin| RankStep { begin: *begin, ..RankStep::default() }).collect();
    let local = plan.local() as usize;
    stage(plan, step, Stage::Load, 0.02, at, &mut row, random);
    stage(plan, step, Stage::Forward, 0.3, at, &mut row, random);
    if local > 1 {
        for host in 0..plan.hosts as usize {
            let members = host * local..(host + 1) * local;
            meet(plan, members, 0.002, at, &mut row, random, |step| &mut step.tp);
        }
    }
    stage(plan, step, Stage::Backward, 0.55, at, &mut row, random);
    let of_stage = plan.of_stage() as usize * local;
    if plan.of_stage() > 1 {
        for first in (0..plan.ranks as usize).step_by(of_stage) {
            for place in 0..local {
                let members = (first + place..first + of_stage).step_by(local);
                meet(plan, members, 0.02, at, &mut row, random, |step| &mut step.dp);
            }
        }
    }
    if plan.pipeline > 1 {
        for first in 0..of_stage {
            let members = (first..plan.ranks as usize).step_by(of_stage);
            meet(plan, members, 0.001, at, &mut row, random, |step| &mut step.pp);
        }
    }
    stage(plan, step, Stage::Optimizer, 0.06, at, &mut row, random);
    if step % WORLD_EVERY == WORLD_EVERY - 1 {
        meet(plan, 0..plan.ranks as usize, 0.001, at, &mut row, random, |step| &mut step.world);
    }
    for (step, end) in row.iter_mut().zip(at) {
        step.end = *end;
    }
    row
}

fn stage(plan: &Plan, step: u32, stage: Stage, share: f64, at: &mut [i64], row: &mut [RankStep], random: &mut Random) {
    let of_stage = (plan.of_stage() * plan.local()) as usize;
    for (rank, (now, of_rank)) in at.iter_mut().zip(row.iter_mut()).enumerate() {
        let heavier = if stage == Stage::Load { 0.0 } else { 0.1 * (rank / of_stage) as f64 };
        let typical = plan.step_ns as f64 * share * (1.0 + heavier);
        let ns = (typical * (1.0 + 0.003 * random.normal())) as i64;
        of_rank.work[stage as usize] = ns;
        *now += ns;
    }
    for slow in plan.slow.iter().filter(|slow| stage != Stage::Load && step >= slow.from) {
        let rank = slow.rank as usize;
        let more = (row[rank].work[stage as usize] as f64 * slow.percent / 100.0) as i64;
        row[rank].work[stage as usize] += more;
        at[rank] += more;
    }
    for late in plan.late.iter().filter(|late| late.stage == stage && (late.from..=late.to).contains(&step)) {
        row[late.rank as usize].work[stage as usize] += late.ns;
        at[late.rank as usize] += late.ns;
    }
}

/// A collective: no rank completes it before the last rank has entered it.
fn meet(
    plan: &Plan,
    members: impl Iterator<Item = usize> + Clone,
    share: f64,
    at: &mut [i64],
    row: &mut [RankStep],
    random: &mut Random,
    call: impl Fn(&mut RankStep) -> &mut Call,
) {
    let ready = members.clone().map(|rank| at[rank]).max().unwrap_or(0);
    let wire = (plan.step_ns as f64 * share * (1.0 + 0.02 * random.normal().abs())) as i64;
    let (mut host, mut tail) = (usize::MAX, 0);
    for rank in members {
        // A tail is the host's: all its ranks see that end late.
        if rank / plan.local() as usize != host {
            host = rank / plan.local() as usize;
            tail = if random.below(1000) < plan.tails_per_mille {
                random.below(plan.tail_ns as u64 + 1) as i64
            } else {
                0
            };
        }
        let end = ready + wire + (2_000.0 * random.normal().abs()) as i64;
        *call(&mut row[rank]) = Call { begin: at[rank], end: end + tail, ready };
        at[rank] = end;
    }
}
