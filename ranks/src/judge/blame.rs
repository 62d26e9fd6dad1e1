//! The ranks that the judge names, and what each did in its steps: which column and which stage took longer than those
//! of its peers, and to which collective it came late.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use warpline_judge::own::{Own, Verdict};
use warpline_judge::{Met, median};

use super::late::Calls;
use super::prepare::Peers;
use super::since::since;
use super::steps::{Step, ask};
use crate::engine::{Engine, Rows};
use crate::error::Error;

/// Steps of a rank that are looked at, evenly spaced, and ranks of which they are.
const LOOKED_AT: usize = 64;
const RANKS: usize = 32;

/// A device is slow if its rank took longer in so many of the steps since the first.
const STEADY: f64 = 0.8;

/// The activity of a rank while the others waited.
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

/// A collective to which it came late.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Link {
    /// The group.
    pub comm: Arc<str>,
    /// The number of the collective.
    pub seq: i64,
    /// The rank that came last.
    pub rank: i64,
    /// How long the others waited.
    pub late_ns: i64,
}

/// A rank for which others waited.
#[derive(Debug, Clone, Serialize)]
pub struct LateRank {
    /// The rank.
    pub rank: i64,
    /// Its host.
    pub host: Arc<str>,
    /// In how many steps.
    pub steps: usize,
    /// The first one.
    pub first_step: i64,
    /// The last one.
    pub last_step: i64,
    /// By how much it is late in most steps.
    pub median_ns: i64,
    /// By how much it is late in the worst step.
    pub worst_ns: i64,
    /// The worst step.
    pub worst_step: i64,
    /// By how much ranks that are fine differ in a step.
    pub err_ns: i64,
    /// The sum over all steps.
    pub total_ns: i64,
    /// The share of the run's time.
    pub share: f64,
    /// Why.
    pub cause: Cause,
    /// The range in which it took longer; empty where no stage is known.
    pub stage: Arc<str>,
    /// The collective of the worst step to which it came latest, if one is known.
    pub chain: Vec<Link>,
}

/// A rank whose device is slower than those of its peers, to the end of the run.
#[derive(Debug, Clone, Serialize)]
pub struct SlowRank {
    /// The rank.
    pub rank: i64,
    /// Its host.
    pub host: Arc<str>,
    /// The first slow step.
    pub since_step: i64,
    /// The first one was not before this step, 99 of 100 times.
    pub since_least: i64,
    /// The first slow step was not after this step, 99 of 100 times.
    pub since_most: i64,
    /// How much longer its device works in a step since then.
    pub more_ns: i64,
    /// The same, of what is usual.
    pub share: f64,
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
    /// By how much ranks that are fine differ in a step.
    pub err_ns: i64,
    /// Why.
    pub cause: Cause,
    /// The range in which it took longer; empty where no stage is known.
    pub stage: Arc<str>,
    /// The collective to which it came latest, if one is known.
    pub chain: Vec<Link>,
}

/// The findings about the ranks that are named.
#[derive(Debug, Default)]
pub struct Blamed {
    pub ranks: Vec<LateRank>,
    pub slow: Vec<SlowRank>,
    /// Hosts of several ranks that are all late.
    pub hosts: Vec<Arc<str>>,
    /// Their steps, in order.
    pub steps: Vec<BlamedStep>,
    /// The late arrivals of these ranks, the latest first.
    pub arrivals: Vec<Met>,
}

/// Looks at the ranks that are named.
pub fn blame(engine: &Engine, own: &Own, verdict: &Verdict, calls: &Calls) -> Result<Blamed, Error> {
    let peers = Peers::new(engine)?;
    let mut wanted = BTreeSet::new();
    for named in verdict.named.iter().take(RANKS) {
        let spaced = named.steps.iter().step_by(named.steps.len().div_ceil(LOOKED_AT).max(1));
        let worst = named.steps.iter().max_by_key(|(_, more)| *more);
        wanted.extend(spaced.chain(worst).map(|(step, _)| (named.rank, *step)));
    }
    let looked = ask(engine, &peers, &wanted)?;
    let arrivals = Arrivals::new(calls, verdict);
    let hosts = hosts(&engine.query("placed", "SELECT rank, MIN(host) AS host FROM placed GROUP BY rank")?)?;
    let mut blamed = Blamed { arrivals: arrivals.latest(), ..Blamed::default() };
    for named in &verdict.named {
        let rank = named.rank;
        let of_rank = || named.steps.iter().filter_map(|(step, more)| Some((*more, looked.get(&(rank, *step))?)));
        // The cause and the stage of most of the time.
        let mut causes: BTreeMap<(Cause, Arc<str>), i64> = BTreeMap::new();
        for (more, step) in of_rank() {
            *causes.entry(why(step, more)).or_default() += more;
        }
        let most = causes.into_iter().max_by_key(|(_, ns)| *ns).map(|(cause, _)| cause);
        let (cause, stage) = most.unwrap_or((Cause::Unknown, "".into()));
        let host = hosts.get(&rank).cloned().unwrap_or_default();
        blamed.steps.extend(named.steps.iter().map(|(step, more)| {
            let seen = looked.get(&(rank, *step));
            let (cause, stage) = seen.map_or_else(|| (cause, stage.clone()), |seen| why(seen, *more));
            let chain = seen.and_then(|seen| arrivals.latest_in_step(rank, seen, calls)).into_iter().collect();
            BlamedStep { step: *step, rank, late_ns: *more, err_ns: verdict.deviation_ns, cause, stage, chain }
        }));
        let Some((worst_step, worst_ns)) = named.steps.iter().copied().max_by_key(|(_, more)| *more) else { continue };
        let worst = looked.get(&(rank, worst_step)).and_then(|seen| arrivals.latest_in_step(rank, seen, calls));
        if let Some(slow) = slow(own, rank, &named.steps, cause, of_rank().map(|(_, step)| step)) {
            blamed.slow.push(SlowRank { host: host.clone(), ..slow });
        }
        blamed.ranks.push(LateRank {
            rank,
            host,
            steps: named.steps.len(),
            first_step: named.steps.first().map_or(0, |(step, _)| *step),
            last_step: named.steps.last().map_or(0, |(step, _)| *step),
            median_ns: median(&mut named.steps.iter().map(|(_, more)| *more).collect::<Vec<_>>()),
            worst_ns,
            worst_step,
            err_ns: verdict.deviation_ns,
            total_ns: named.total_ns,
            share: named.share,
            cause,
            stage,
            chain: worst.into_iter().collect(),
        });
    }
    let mut of_host: BTreeMap<&Arc<str>, (usize, usize)> = BTreeMap::new();
    for (rank, host) in &hosts {
        let (all, late) = of_host.entry(host).or_default();
        *all += 1;
        *late += usize::from(blamed.ranks.iter().any(|late| late.rank == *rank));
    }
    let whole = of_host.into_iter().filter(|(_, (all, late))| *all > 1 && all == late);
    blamed.hosts = whole.map(|(host, _)| host.clone()).collect();
    blamed.steps.sort_by_key(|one| (one.step, one.rank));
    Ok(blamed)
}

fn hosts(rows: &Rows) -> Result<HashMap<i64, Arc<str>>, Error> {
    Ok(rows.ints("rank")?.into_iter().zip(rows.texts("host")?).collect())
}

/// The activity and the stage in which a rank took longer than the others, in a step in which it took this much longer.
fn why(step: &Step, more_ns: i64) -> (Cause, Arc<str>) {
    let causes = [Cause::Device, Cause::Idle, Cause::Launch];
    let most = causes.into_iter().zip(step.more).max_by_key(|(_, more)| *more);
    let cause = most.filter(|(_, more)| *more >= more_ns / 3).map_or(Cause::Unknown, |(cause, _)| cause);
    let stage = step.stage.as_ref().filter(|(_, more)| *more >= more_ns / 3);
    (cause, stage.map_or_else(|| "".into(), |(name, _)| name.clone()))
}

/// If the device of the rank worked longer in most steps up to the end of the run.
fn slow<'a>(
    own: &Own,
    rank: i64,
    blamed: &[(i64, i64)],
    cause: Cause,
    looked: impl Iterator<Item = &'a Step>,
) -> Option<SlowRank> {
    let (first, _) = blamed.first()?;
    let since_first = own.steps().iter().filter(|step| **step >= *first).count();
    if cause != Cause::Device || (blamed.len() as f64) < STEADY * since_first as f64 {
        return None;
    }
    let (more_ns, usual_ns): (Vec<i64>, Vec<i64>) = looked.map(|step| (step.more[0], step.device_ns)).unzip();
    let share = more_ns.iter().sum::<i64>() as f64 / usual_ns.iter().sum::<i64>().max(1) as f64;
    let at = own.ranks().binary_search(&rank).ok()?;
    let all = (0..own.steps().len()).filter_map(|step| Some((own.steps()[step], own.more_ns(at, step)? as f64)));
    let all: Vec<(i64, f64)> = all.collect();
    let typical = more_ns.iter().sum::<i64>() as f64 / more_ns.len().max(1) as f64;
    let changed = since(&all, typical / 4.0)?;
    Some(SlowRank {
        rank,
        host: "".into(),
        since_step: changed.step,
        since_least: changed.least,
        since_most: changed.most,
        more_ns: typical as i64,
        share,
    })
}

/// The collectives to which ranks that are named came last, beyond the errors of the clocks.
struct Arrivals {
    of_rank: HashMap<i64, Vec<Met>>,
}

impl Arrivals {
    fn new(calls: &Calls, verdict: &Verdict) -> Self {
        let mut of_rank: HashMap<i64, Vec<Met>> = verdict.named.iter().map(|named| (named.rank, Vec::new())).collect();
        for met in calls.met.judged().iter().filter(|met| met.is_beyond_noise()) {
            if let Some(of_rank) = of_rank.get_mut(&met.rank) {
                of_rank.push(*met);
            }
        }
        of_rank.values_mut().for_each(|of_rank| of_rank.sort_unstable_by_key(|met| met.begin_ns));
        Self { of_rank }
    }

    /// That of the step to which the rank came latest. What it does after its last collective of a step makes it late
    /// in the next one.
    fn latest_in_step(&self, rank: i64, step: &Step, calls: &Calls) -> Option<Link> {
        let all = self.of_rank.get(&rank)?;
        let from = all.partition_point(|met| met.begin_ns < step.begin_ns);
        let inside = all[from..].iter().take_while(|met| met.begin_ns < step.begin_ns + 2 * step.wall_ns);
        let met = inside.max_by_key(|met| met.late_ns)?;
        Some(Link { comm: calls.comm(&met.key), seq: met.key.seq as i64, rank, late_ns: met.late_ns })
    }

    fn latest(&self) -> Vec<Met> {
        let mut all: Vec<Met> = self.of_rank.values().flatten().copied().collect();
        all.sort_unstable_by(|a, b| b.late_ns.cmp(&a.late_ns).then(a.key.cmp(&b.key)));
        all
    }
}
