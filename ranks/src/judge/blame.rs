//! From a late arrival back to its cause: to what the rank did before it in that step; if it had waited itself, to the rank that it
//! waited for; until somebody worked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::prepare::Peers;
use super::steps::{Call, Stage, Step, Steps};
use super::{Calls, Event, median};
use crate::engine::Engine;
use crate::error::Error;

/// Events that are followed; further ones are counted.
const FOLLOWED: usize = 2_000;

/// A chain is not longer: then the walk stops where it is.
const LONGEST: usize = 32;

/// Queries for ranks that the first did not ask for.
const ROUNDS: usize = 4;

/// A late rank that takes less of the run is not named.
const LEAST_SHARE: f64 = 0.0005;

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

/// A rank that made others wait, by part of an event.
struct End {
    rank: i64,
    begin_ns: i64,
    late_ns: i64,
    chain: Vec<Link>,
}

/// Follows the events, and names the ranks at their ends. `run_ns` is the time of one rank in the run.
pub fn blame(engine: &Engine, calls: &Calls, events: &[Event], run_ns: i64) -> Result<Blamed, Error> {
    let followed = &events[..events.len().min(FOLLOWED)];
    let mut steps = Steps::new(engine);
    let mut wanted: BTreeSet<(i64, i64)> = followed.iter().map(|event| (event.rank, event.begin_ns)).collect();
    for _ in 0..ROUNDS {
        steps.ask(&wanted)?;
        let before = wanted.len();
        for event in followed {
            wanted.extend(walk(&steps, calls, event).0.iter().map(|end| (end.rank, end.begin_ns)));
        }
        if wanted.len() == before {
            break;
        }
    }
    let mut blamed = Blamed { not_followed: events.len() - followed.len(), ..Blamed::default() };
    let mut ends: Vec<(&Event, End)> = Vec::new();
    for event in followed {
        let (found, is_unknown) = walk(&steps, calls, event);
        blamed.unknown += usize::from(is_unknown);
        ends.extend(found.into_iter().map(|end| (event, end)));
    }
    let asked = ends.iter().map(|(_, end)| (end.rank, end.begin_ns)).collect();
    steps.ask_stages(&Peers::new(engine)?, &asked)?;
    // By rank and step: a step that was late in several groups is late once, by the most.
    let mut by_step: BTreeMap<(i64, i64), Found> = BTreeMap::new();
    for (event, end) in ends {
        let Some(step) = steps.at(end.rank, end.begin_ns) else {
            blamed.without_step += 1;
            continue;
        };
        let at_begin = |step: &Step| step.begin_ns + step.wall_ns;
        let now = why(step, end.begin_ns, end.late_ns, calls);
        let before =
            || steps.before(end.rank, step).map(|before| (before, why(before, at_begin(before), end.late_ns, calls)));
        // A stage that was longer says most; then a column of the step.
        let (step, (cause, stage, _)) = match (&now.2, now.0) {
            (true, _) => (step, now),
            (false, Cause::Unknown) => before().filter(|(_, why)| why.0 != Cause::Unknown).unwrap_or((step, now)),
            (false, _) => before().filter(|(_, why)| why.2).unwrap_or((step, now)),
        };
        let known = by_step.get(&(end.rank, step.step));
        if known.is_none_or(|known| known.late_ns < end.late_ns) {
            let found = Found { late_ns: end.late_ns, err_ns: event.err_ns, cause, stage, chain: end.chain };
            by_step.insert((end.rank, step.step), found);
        }
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
    let mut by_rank: BTreeMap<i64, Vec<(i64, Found)>> = BTreeMap::new();
    for ((rank, step), found) in by_step {
        by_rank.entry(rank).or_default().push((step, found));
    }
    for (rank, found) in by_rank {
        let total_ns: i64 = found.iter().map(|(_, one)| one.late_ns).sum();
        let share = total_ns as f64 / run_ns.max(1) as f64;
        if share < LEAST_SHARE {
            blamed.below += 1;
            continue;
        }
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
    blamed.ranks.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.rank.cmp(&b.rank)));
}

/// Back from the event to the ranks that made it late: those that did not wait for another one, or whose step is not known. Where a rank
/// was late in part because it took longer itself, and in part because it had waited, both are ends, each with its part. Also returns whether the walk ended in
/// a wait for an unknown rank: the collective lacks the row of a rank, or its kind is not judged.
fn walk(steps: &Steps<'_>, calls: &Calls, event: &Event) -> (Vec<End>, bool) {
    let link =
        |event: &Event, late_ns: i64| Link { comm: event.comm.clone(), seq: event.seq, rank: event.rank, late_ns };
    let mut end = End {
        rank: event.rank,
        begin_ns: event.begin_ns,
        late_ns: event.late_ns,
        chain: vec![link(event, event.late_ns)],
    };
    let mut ends = Vec::new();
    while end.chain.len() < LONGEST {
        let Some(step) = steps.at(end.rank, end.begin_ns) else { break };
        // What it took longer itself explains that part; what it waited before may explain the rest.
        let own = step.more.into_iter().max().unwrap_or(0).clamp(0, end.late_ns);
        let rest = end.late_ns - own;
        if rest < end.late_ns / 4 {
            break;
        }
        // In the collectives before, the last one first: who came last, and how long the rank waited, at least and at most.
        let waits_of = |step: &Step| -> Vec<(&Event, i64, i64)> {
            let earlier = step.calls.iter().rev().filter(|call| call.begin_ns < end.begin_ns);
            let wait = |call: &Call| {
                let place = *calls.at.get(&call.key)?;
                let met = calls.all.get(place)?;
                // Longer than for the one that came last: that is what it waited.
                let least = call.dur_ns - call.early_ns - calls.least_dur_ns.get(place)?;
                let most = call.dur_ns - calls.least_early_ns.get(place)?;
                let is_new = end.chain.iter().all(|link| link.comm != met.comm || link.seq != met.seq);
                (met.rank != end.rank && is_new).then_some((met, least, most))
            };
            earlier.filter_map(wait).collect()
        };
        let waited_in = |step: &Step| {
            waits_of(step).into_iter().find(|(_, least, _)| *least >= rest / 2).map(|(met, least, _)| (met, least))
        };
        // What a rank waited in the step before makes it late in this one.
        let before = steps.before(end.rank, step);
        let met = waited_in(step).or_else(|| before.and_then(waited_in));
        let is_unknown = |step: &Step| {
            // Ends that are not timed do not show whether it waited.
            if waits_of(step).into_iter().any(|(_, least, most)| least < rest / 2 && most >= rest / 2) {
                return true;
            }
            let earlier = step.calls.iter().filter(|call| call.begin_ns < end.begin_ns);
            let mut not_judged = earlier.filter(|call| !calls.at.contains_key(&call.key));
            not_judged.any(|call| calls.wait_ns(&call.shape, call.dur_ns) >= rest / 2)
        };
        let ends_unknown = met.is_none() && (is_unknown(step) || before.is_some_and(is_unknown));
        if own >= end.late_ns / 4 && (met.is_some() || ends_unknown) {
            ends.push(End { late_ns: own, chain: end.chain.clone(), ..end });
        }
        if ends_unknown {
            return (ends, true);
        }
        let Some((met, wait)) = met else { break };
        // It cannot have cost more than the rank that was late because of it.
        end.late_ns = rest.min(wait);
        end.chain.push(link(met, wait));
        end.rank = met.rank;
        end.begin_ns = met.begin_ns;
    }
    ends.push(end);
    (ends, false)
}

/// What a rank did longer than the others in a step, in which stage, and whether that stage was longer, before it came `late_ns` late at the time `until` of its clock.
fn why(step: &Step, until: i64, late_ns: i64, calls: &Calls) -> (Cause, Arc<str>, bool) {
    let causes = [Cause::Device, Cause::Idle, Cause::Launch];
    let most = causes.into_iter().zip(step.more).max_by_key(|(_, more)| *more);
    let cause = most.filter(|(_, more)| *more >= late_ns / 3).map_or(Cause::Unknown, |(cause, _)| cause);
    let waits = |from: i64, to: i64| -> i64 {
        let inside = step.calls.iter().filter(|call| (from..to).contains(&call.begin_ns));
        inside.filter_map(|call| Some(call.dur_ns - calls.least_dur_ns[*calls.at.get(&call.key)?])).sum()
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
