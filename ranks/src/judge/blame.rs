//! From late arrivals back to their causes, as the judge follows them, and what each rank at the end did in that step: which column and which stage of it
//! took longer than those of its peers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use warpline_judge::blame::{self as judge, Loss};
use warpline_judge::{Met, median};

use super::late::Calls;
use super::prepare::Peers;
use super::steps::{Stage, Step, Steps};
use crate::engine::Engine;
use crate::error::Error;

/// Events that are followed; further ones are counted.
const FOLLOWED: usize = 2_000;

/// Queries for ranks that the first did not ask for.
const ROUNDS: usize = 4;

/// What a rank did while the others waited.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Its device worked longer than the others' did.
    Device,
    /// Its device had nothing to do for longer: input, or the host.
    Idle,
    /// Its launches took longer.
    Launch,
    /// No column of its step is longer than that of the others.
    Unknown,
}

/// A wait on the way back.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Link {
    /// The group.
    pub comm: Arc<str>,
    /// The number of the collective.
    pub seq: i64,
    /// Who came last.
    pub rank: i64,
    /// How long the others, or the rank before it in the chain, waited.
    pub late_ns: i64,
}

/// A rank for which others waited.
#[derive(Debug, Clone, Serialize)]
pub struct LateRank {
    /// The rank.
    pub rank: i64,
    /// In how many steps.
    pub steps: usize,
    /// The first one.
    pub first_step: i64,
    /// The last one.
    pub last_step: i64,
    /// By how much, of most steps.
    pub median_ns: i64,
    /// By how much, at worst.
    pub worst_ns: i64,
    /// The worst step.
    pub worst_step: i64,
    /// How wrong the worst may be.
    pub err_ns: i64,
    /// What all steps add up to.
    pub total_ns: i64,
    /// Of the run's time.
    pub share: f64,
    /// Why.
    pub cause: Cause,
    /// The range in which it took longer; empty where no stage is known.
    pub stage: Arc<str>,
    /// How the worst step was followed: from the wait that was seen to the one that this rank caused.
    pub chain: Vec<Link>,
}

/// A step in which others waited for a rank that is named.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct BlamedStep {
    /// The step.
    pub step: i64,
    /// The rank.
    pub rank: i64,
    /// By how much it was late.
    pub late_ns: i64,
    /// How wrong that may be.
    pub err_ns: i64,
    /// Why.
    pub cause: Cause,
    /// The range in which it took longer; empty where no stage is known.
    pub stage: Arc<str>,
    /// From the wait that was seen to the one that this rank caused.
    pub chain: Vec<Link>,
}

/// What was found and what was not followed.
#[derive(Debug, Default)]
pub struct Blamed {
    pub ranks: Vec<LateRank>,
    /// Their steps, in order.
    pub steps: Vec<BlamedStep>,
    /// The ranks that were late too rarely to name, with their time.
    pub below: usize,
    pub not_followed: usize,
    /// Events whose step is not in the tables.
    pub without_step: usize,
    /// Events that lead to a wait for an unknown rank.
    pub unknown: usize,
}

/// Follows the events, and names the ranks at their ends. `run_ns` is the time of one rank in the run.
pub fn blame(engine: &Engine, calls: &Calls, events: &[Met], run_ns: i64) -> Result<Blamed, Error> {
    let followed = &events[..events.len().min(FOLLOWED)];
    let mut steps = Steps::new(engine, calls);
    let mut wanted: BTreeSet<(i64, i64)> = followed.iter().map(|event| (event.rank, event.begin_ns)).collect();
    let place = |cause: &judge::Cause| (cause.met.rank, cause.met.begin_ns);
    for _ in 0..ROUNDS {
        steps.ask(&wanted)?;
        let before = wanted.len();
        for event in followed {
            wanted.extend(judge::follow(&calls.met, &steps, event).causes.iter().map(place));
        }
        if wanted.len() == before {
            break;
        }
    }
    let mut blamed = Blamed { not_followed: events.len() - followed.len(), ..Blamed::default() };
    let mut causes: Vec<(&Met, judge::Cause)> = Vec::new();
    for event in followed {
        let found = judge::follow(&calls.met, &steps, event);
        blamed.unknown += usize::from(found.open.is_some());
        causes.extend(found.causes.into_iter().map(|cause| (event, cause)));
    }
    let asked = causes.iter().map(|(_, cause)| place(cause)).collect();
    steps.ask_stages(&Peers::new(engine)?, &asked)?;
    let mut by_step: BTreeMap<(i64, i64), Found> = BTreeMap::new();
    let mut losses = Vec::new();
    for (event, found) in causes {
        let (rank, begin_ns, late_ns) = (found.met.rank, found.met.begin_ns, found.late_ns);
        let Some(step) = steps.at(rank, begin_ns) else {
            blamed.without_step += 1;
            continue;
        };
        let at_begin = |step: &Step| step.begin_ns + step.wall_ns;
        let now = why(step, begin_ns, late_ns, calls);
        let before = || steps.before(rank, step).map(|before| (before, why(before, at_begin(before), late_ns, calls)));
        // A stage that was longer says most; then a column of the step.
        let (step, (cause, stage, _)) = match (&now.2, now.0) {
            (true, _) => (step, now),
            (false, Cause::Unknown) => before().filter(|(_, why)| why.0 != Cause::Unknown).unwrap_or((step, now)),
            (false, _) => before().filter(|(_, why)| why.2).unwrap_or((step, now)),
        };
        losses.push(Loss { rank, step: step.step, key: found.met.key, late_ns });
        let known = by_step.get(&(rank, step.step));
        if known.is_none_or(|known| known.late_ns < late_ns) {
            let link = |(met, late_ns): &(Met, i64)| Link {
                comm: calls.comm(&met.key),
                seq: met.key.seq as i64,
                rank: met.rank,
                late_ns: *late_ns,
            };
            let chain = found.chain.iter().map(link).collect();
            by_step.insert((rank, step.step), Found { late_ns, err_ns: event.err_ns, cause, stage, chain });
        }
    }
    for (step, late_ns) in judge::cost(losses) {
        by_step.entry(step).and_modify(|found| found.late_ns = late_ns);
    }
    name(by_step, run_ns, &mut blamed);
    Ok(blamed)
}

/// Why a rank was late in a step.
#[derive(Debug)]
pub struct Found {
    pub late_ns: i64,
    pub err_ns: i64,
    pub cause: Cause,
    pub stage: Arc<str>,
    pub chain: Vec<Link>,
}

/// Names the ranks that cost the run enough, the most costly first. `by_step` is by rank and step.
pub fn name(by_step: BTreeMap<(i64, i64), Found>, run_ns: i64, blamed: &mut Blamed) {
    let cost = by_step.iter().map(|(step, found)| (*step, found.late_ns)).collect();
    let (named, below) = judge::named(&cost, run_ns);
    blamed.below += below;
    let mut by_rank: BTreeMap<i64, Vec<(i64, Found)>> = BTreeMap::new();
    for ((rank, step), found) in by_step {
        by_rank.entry(rank).or_default().push((step, found));
    }
    for judge::Named { rank, total_ns, share } in named {
        let found = by_rank.remove(&rank).unwrap_or_default();
        blamed.steps.extend(found.iter().map(|(step, one)| BlamedStep {
            step: *step,
            rank,
            late_ns: one.late_ns,
            err_ns: one.err_ns,
            cause: one.cause,
            stage: one.stage.clone(),
            chain: one.chain.clone(),
        }));
        let Some((worst_step, worst)) = found.iter().max_by_key(|(_, one)| one.late_ns) else { continue };
        // The cause and the stage of most of the time.
        let mut causes: BTreeMap<(Cause, Arc<str>), i64> = BTreeMap::new();
        for (_, one) in &found {
            *causes.entry((one.cause, one.stage.clone())).or_default() += one.late_ns;
        }
        let most = causes.into_iter().max_by_key(|(_, ns)| *ns).map(|(cause, _)| cause);
        let (cause, stage) = most.unwrap_or((Cause::Unknown, "".into()));
        blamed.ranks.push(LateRank {
            rank,
            steps: found.len(),
            first_step: found.first().map_or(0, |(step, _)| *step),
            last_step: found.last().map_or(0, |(step, _)| *step),
            median_ns: median(&mut found.iter().map(|(_, one)| one.late_ns).collect::<Vec<_>>()),
            worst_ns: worst.late_ns,
            worst_step: *worst_step,
            err_ns: worst.err_ns,
            total_ns,
            share,
            cause,
            stage,
            chain: worst.chain.clone(),
        });
    }
    blamed.steps.sort_by_key(|one| (one.step, one.rank));
}

/// What a rank did longer than the others in a step, in which stage, and whether that stage was longer, before it came `late_ns` late at the time `until` of its clock.
fn why(step: &Step, until: i64, late_ns: i64, calls: &Calls) -> (Cause, Arc<str>, bool) {
    let causes = [Cause::Device, Cause::Idle, Cause::Launch];
    let most = causes.into_iter().zip(step.more).max_by_key(|(_, more)| *more);
    let cause = most.filter(|(_, more)| *more >= late_ns / 3).map_or(Cause::Unknown, |(cause, _)| cause);
    let waits = |from: i64, to: i64| -> i64 {
        let inside = step.calls.iter().filter(|call| (from..to).contains(&call.begin_ns));
        inside.filter_map(|call| Some(call.spent.dur_ns - calls.met.get(&call.spent.key)?.least_ns)).sum()
    };
    let mut at = step.begin_ns;
    let mut longest: Option<(i64, &Arc<str>)> = None;
    let mut inside = None;
    for Stage { name, dur_ns, early_ns, least_ns } in &step.stages {
        let ends = at + dur_ns;
        let more = dur_ns - early_ns - waits(at, ends) - least_ns;
        if at < until && more >= late_ns / 3 && longest.is_none_or(|known| known.0 < more) {
            longest = Some((more, name));
        }
        if (at..ends).contains(&until) {
            inside = Some(name);
        }
        at = ends;
    }
    let stage = longest.map(|(_, name)| name).or(inside).cloned().unwrap_or_else(|| "".into());
    (cause, stage, longest.is_some())
}
