//! What the ranks did that may have made others wait: their steps beside those of their peers, their stages and their collectives. Asked
//! for by the walk of `blame`, for a few ranks at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use warpline_judge::blame::{History, Spent};
use warpline_judge::tables::Table;

use super::late::Calls;
use super::prepare::Peers;
use crate::engine::{Engine, Scope};
use crate::error::Error;

/// Peers whose stages are read beside those of a suspect.
const PEERS_READ: usize = 64;

/// A stage.
#[derive(Debug, Clone)]
pub struct Stage {
    pub name: Arc<str>,
    pub dur_ns: i64,
    /// By how much it may be shorter, if that makes `dur_ns` a bound.
    pub early_ns: i64,
    /// The length of the shortest of its peers.
    pub least_ns: i64,
}

/// A collective of a rank.
#[derive(Debug, Clone)]
pub struct Call {
    pub begin_ns: i64,
    pub spent: Spent,
}

/// A step of a rank.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub step: i64,
    pub win: i64,
    pub begin_ns: i64,
    pub wall_ns: i64,
    /// How much longer than its peers it was on its device, idle, and in launches.
    pub more: [i64; 3],
    /// In order.
    pub stages: Vec<Stage>,
    /// In order.
    pub calls: Vec<Call>,
}

/// The steps of suspects, each asked for once.
pub struct Steps<'a> {
    engine: &'a Engine,
    calls: &'a Calls,
    known: BTreeMap<(i64, i64), Step>,
    asked: HashSet<(i64, i64)>,
}

impl<'a> Steps<'a> {
    pub fn new(engine: &'a Engine, calls: &'a Calls) -> Self {
        Self { engine, calls, known: BTreeMap::new(), asked: HashSet::new() }
    }

    /// The step of a rank at a time of its clock.
    pub fn at(&self, rank: i64, at_ns: i64) -> Option<&Step> {
        let (_, step) = self.known.range((rank, i64::MIN)..=(rank, at_ns)).next_back()?;
        (at_ns < step.begin_ns + step.wall_ns).then_some(step)
    }

    /// The step of that rank before `step`.
    pub fn before(&self, rank: i64, step: &Step) -> Option<&Step> {
        let (_, before) = self.known.range((rank, i64::MIN)..(rank, step.begin_ns)).next_back()?;
        (before.step == step.step - 1).then_some(before)
    }

    /// Asks for the steps of ranks at times of their clocks, for those before, and for their collectives.
    pub fn ask(&mut self, wanted: &BTreeSet<(i64, i64)>) -> Result<(), Error> {
        let new: Vec<(i64, i64)> = wanted.iter().copied().filter(|one| self.asked.insert(*one)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let ranks: BTreeSet<i64> = new.iter().map(|one| one.0).collect();
        suspect(self.engine, &new)?;
        self.engine.within(Table::Steps, Some(Scope { ranks: ranks.clone(), windows: None }))?;
        let steps = self.engine.keep("suspect_steps")?;
        self.engine.within(Table::Steps, None)?;
        let mut found: HashMap<(i64, i64), Step> = HashMap::new();
        {
            let (rank, step, begin) = (steps.ints("rank")?, steps.ints("step")?, steps.ints("begin_ns")?);
            let (win, wall, n) = (steps.ints("win")?, steps.ints("wall_ns")?, steps.ints("n")?);
            let own = [steps.ints("compute_ns")?, steps.ints("idle_ns")?, steps.ints("launch_ns")?];
            let all = [steps.ints("all_compute_ns")?, steps.ints("all_idle_ns")?, steps.ints("all_launch_ns")?];
            for row in 0..steps.len() {
                let more = |which: usize| {
                    let others = n[row] - 1;
                    if others > 0 { own[which][row] - (all[which][row] - own[which][row]) / others } else { 0 }
                };
                let step_row = Step {
                    step: step[row],
                    win: win[row],
                    begin_ns: begin[row],
                    wall_ns: wall[row],
                    more: [more(0), more(1), more(2)],
                    ..Step::default()
                };
                found.insert((rank[row], step[row]), step_row);
            }
        }
        // A collective stands in the window of its end, which may be the next one.
        let windows = found.values().flat_map(|step| [step.win - 1, step.win, step.win + 1]).collect();
        self.engine.within(Table::Collectives, Some(Scope { ranks, windows: Some(windows) }))?;
        let calls = self.engine.view("suspect_calls")?;
        self.engine.within(Table::Collectives, None)?;
        let (rank, step, comm, seq) =
            (calls.ints("rank")?, calls.ints("step")?, calls.texts("comm")?, calls.ints("seq")?);
        let (kind, bytes) = (calls.texts("kind")?, calls.ints("bytes")?);
        let (begin, dur, early) = (calls.ints("begin_ns")?, calls.ints("dur_ns")?, calls.ints("early_ns")?);
        for row in 0..calls.len() {
            if let Some(of) = found.get_mut(&(rank[row], step[row])) {
                let (key, form) = self.calls.called(&comm[row], seq[row], &kind[row], bytes[row]);
                let spent = Spent { key, form, dur_ns: dur[row], early_ns: early[row], arrivals: None };
                of.calls.push(Call { begin_ns: begin[row], spent });
            }
        }
        for ((rank, _), mut step) in found {
            step.calls.sort_by_key(|call| call.begin_ns);
            self.known.insert((rank, step.begin_ns), step);
        }
        Ok(())
    }

    /// Asks for the stages of these ranks in the steps at those times, and in the steps before.
    pub fn ask_stages(&mut self, peers: &Peers, wanted: &BTreeSet<(i64, i64)>) -> Result<(), Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        let ranks: BTreeSet<i64> = wanted.iter().map(|one| one.0).collect();
        let of_wanted = wanted.iter().filter_map(|(rank, at_ns)| self.at(*rank, *at_ns));
        let windows = of_wanted.flat_map(|step| [step.win - 1, step.win, step.win + 1]).collect();
        suspect(self.engine, &wanted.iter().copied().collect::<Vec<_>>())?;
        self.engine.within(Table::Steps, Some(Scope { ranks: ranks.clone(), windows: None }))?;
        self.engine.keep("suspect_steps")?;
        self.engine.within(Table::Steps, None)?;
        self.engine.within(Table::Stages, Some(peers.scope(&ranks, windows, PEERS_READ)))?;
        let stages = self.engine.view("suspect_stages")?;
        self.engine.within(Table::Stages, None)?;
        let (rank, step, idx, name) =
            (stages.ints("rank")?, stages.ints("step")?, stages.ints("idx")?, stages.texts("name")?);
        let (dur, early, least) = (stages.ints("dur_ns")?, stages.ints("early_ns")?, stages.ints("least_ns")?);
        let mut order: Vec<usize> = (0..stages.len()).collect();
        order.sort_by_key(|row| (rank[*row], step[*row], idx[*row]));
        let mut found: HashMap<(i64, i64), Vec<Stage>> = HashMap::new();
        for row in order {
            found.entry((rank[row], step[row])).or_default().push(Stage {
                name: name[row].clone(),
                dur_ns: dur[row],
                early_ns: early[row],
                least_ns: least[row],
            });
        }
        for ((rank, _), step) in &mut self.known {
            if let Some(stages) = found.remove(&(*rank, step.step)) {
                step.stages = stages;
            }
        }
        Ok(())
    }
}

impl History for Steps<'_> {
    fn own_ns(&self, rank: i64, at_ns: i64) -> Option<i64> {
        self.at(rank, at_ns).map(|step| step.more.into_iter().max().unwrap_or(0))
    }

    /// Of the step, and of the one before it: what a rank waited there makes it late in this one.
    fn calls_before(&self, rank: i64, at_ns: i64) -> impl Iterator<Item = Spent> {
        let step = self.at(rank, at_ns);
        let before = step.and_then(|step| self.before(rank, step));
        let both = step.into_iter().chain(before).flat_map(|step| step.calls.iter().rev());
        both.filter(move |call| call.begin_ns < at_ns).map(|call| call.spent)
    }
}

/// Makes the table `suspects`: ranks, and times of their clocks.
pub fn suspect(engine: &Engine, suspects: &[(i64, i64)]) -> Result<(), Error> {
    let column =
        |of: fn(&(i64, i64)) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(suspects.iter().map(of))) };
    engine.insert_columns("suspects", vec![("rank", column(|one| one.0)), ("begin_ns", column(|one| one.1))])
}
