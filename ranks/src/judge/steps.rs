//! What a rank did in steps in which it took longer than others: the columns of the step and its stages, beside those
//! of some of its peers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use warpline_judge::median;
use warpline_judge::tables::Table;

use super::prepare::Peers;
use crate::engine::{Engine, Scope};
use crate::error::Error;

/// The number of peers that are read for a suspect.
const PEERS_READ: usize = 8;

/// A step of a suspect.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub begin_ns: i64,
    pub wall_ns: i64,
    /// How much longer than in the median of its peers it was on its device, idle, and in launches.
    pub more: [i64; 3],
    /// How long its peers worked on their devices.
    pub device_ns: i64,
    /// The stage that was longest beyond those of its peers, and by how much; none if no stage is known.
    pub stage: Option<(Arc<str>, i64)>,
}

/// The data that is read of one step of a rank.
#[derive(Debug, Default)]
struct RankStep {
    win: i64,
    begin_ns: i64,
    wall_ns: i64,
    columns: [i64; 3],
    /// Without collectives, by name.
    stages: BTreeMap<Arc<str>, i64>,
}

/// Asks for these steps of ranks: by rank and step.
pub fn ask(engine: &Engine, peers: &Peers, wanted: &BTreeSet<(i64, i64)>) -> Result<BTreeMap<(i64, i64), Step>, Error> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let beside: HashMap<i64, Vec<i64>> =
        wanted.iter().map(|(rank, _)| (*rank, peers.some(*rank, PEERS_READ))).collect();
    let all: BTreeSet<(i64, i64)> =
        wanted.iter().flat_map(|(rank, step)| beside[rank].iter().chain([rank]).map(|rank| (*rank, *step))).collect();
    let rows = rows(engine, &all)?;
    let one = |(rank, step): &(i64, i64)| {
        let own = rows.get(&(*rank, *step))?;
        let others: Vec<&RankStep> = beside[rank].iter().filter_map(|peer| rows.get(&(*peer, *step))).collect();
        let usual = |of: &dyn Fn(&RankStep) -> i64| median(&mut others.iter().map(|row| of(row)).collect::<Vec<_>>());
        let stage = |(name, ns): (&Arc<str>, &i64)| {
            // A stage that most of its peers do not have counts in full.
            (name.clone(), ns - usual(&|row| row.stages.get(name).copied().unwrap_or(0)))
        };
        let more =
            |which: usize| if others.is_empty() { 0 } else { own.columns[which] - usual(&|row| row.columns[which]) };
        Some(Step {
            begin_ns: own.begin_ns,
            wall_ns: own.wall_ns,
            more: [more(0), more(1), more(2)],
            device_ns: usual(&|row| row.columns[0]),
            stage: own.stages.iter().map(stage).max_by_key(|(_, more)| *more),
        })
    };
    Ok(wanted.iter().filter_map(|of| Some((*of, one(of)?))).collect())
}

fn rows(engine: &Engine, all: &BTreeSet<(i64, i64)>) -> Result<HashMap<(i64, i64), RankStep>, Error> {
    let ranks: BTreeSet<i64> = all.iter().map(|one| one.0).collect();
    let column =
        |of: fn(&(i64, i64)) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(all.iter().map(of))) };
    engine.insert_columns("suspects", vec![("rank", column(|one| one.0)), ("step", column(|one| one.1))])?;
    engine.within(Table::Steps, Some(Scope { ranks: ranks.clone(), windows: None }))?;
    let steps = engine.keep("suspect_steps")?;
    engine.within(Table::Steps, None)?;
    let (rank, step, win) = (steps.ints("rank")?, steps.ints("step")?, steps.ints("win")?);
    let (begin, wall) = (steps.ints("begin_ns")?, steps.ints("wall_ns")?);
    let columns = [steps.ints("compute_ns")?, steps.ints("idle_ns")?, steps.ints("launch_ns")?];
    let mut found: HashMap<(i64, i64), RankStep> = HashMap::new();
    for at in 0..steps.len() {
        let columns = [columns[0][at], columns[1][at], columns[2][at]];
        let row = RankStep { win: win[at], begin_ns: begin[at], wall_ns: wall[at], columns, stages: BTreeMap::new() };
        found.insert((rank[at], step[at]), row);
    }
    // A collective belongs to the window of its end, which may be the next one.
    let windows: BTreeSet<i64> = found.values().flat_map(|row| [row.win - 1, row.win, row.win + 1]).collect();
    let scope = Scope { ranks, windows: Some(windows) };
    engine.within(Table::Collectives, Some(scope.clone()))?;
    let calls = engine.view("suspect_calls")?;
    engine.within(Table::Collectives, None)?;
    let mut spent: HashMap<(i64, i64), Vec<(i64, i64)>> = HashMap::new();
    let of_calls = calls.ints("rank")?.into_iter().zip(calls.ints("step")?);
    for (of, call) in of_calls.zip(calls.ints("begin_ns")?.into_iter().zip(calls.ints("dur_ns")?)) {
        spent.entry(of).or_default().push(call);
    }
    engine.within(Table::Stages, Some(scope))?;
    let stages = engine.view("suspect_stages")?;
    engine.within(Table::Stages, None)?;
    let (rank, step, idx) = (stages.ints("rank")?, stages.ints("step")?, stages.ints("idx")?);
    let (name, dur, early) = (stages.texts("name")?, stages.ints("dur_ns")?, stages.ints("early_ns")?);
    let mut order: Vec<usize> = (0..stages.len()).collect();
    order.sort_by_key(|row| (rank[*row], step[*row], idx[*row]));
    for rows in order.chunk_by(|a, b| (rank[*a], step[*a]) == (rank[*b], step[*b])) {
        let of = (rank[rows[0]], step[rows[0]]);
        let Some(into) = found.get_mut(&of) else { continue };
        let calls = spent.get(&of).map_or(&[][..], Vec::as_slice);
        // Stages follow one another.
        let mut at = into.begin_ns;
        for row in rows {
            let ends = at + dur[*row];
            let inside = calls.iter().filter(|(begin, _)| (at..ends).contains(begin));
            let in_calls: i64 = inside.map(|(_, dur)| *dur).sum();
            *into.stages.entry(name[*row].clone()).or_default() += (dur[*row] - early[*row] - in_calls).max(0);
            at = ends;
        }
    }
    Ok(found)
}
