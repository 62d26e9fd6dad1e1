//! Late ranks where nothing compares the clocks: no collective of several ranks is in the tables. Each rank's stages, in their order, are
//! set beside those of its peers: the first one that is longer is the cause, because those that wait do so after it. A rank that
//! only waited for one that was late in the step before did not take longer itself, and is not named.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blame::{Blamed, Cause, Found, name};
use crate::engine::Engine;
use crate::error::Error;

/// The share of a step that is named. Ranks differ by less.
const LEAST_SHARE: f64 = 0.02;

/// If more of the peers than one in this many took longer in a stage, they may all have waited for another one.
const FEW: i64 = 4;

/// From the view `late_stages`. `step_ns` is the length of a step, `run_ns` the time of one rank in the run.
pub fn without_clocks(engine: &Engine, step_ns: i64, run_ns: i64) -> Result<Blamed, Error> {
    let rows = engine.view("late_stages")?;
    let (rank, step, idx, stage) = (rows.ints("rank")?, rows.ints("step")?, rows.ints("idx")?, rows.texts("name")?);
    let (comm, role, ranks) = (rows.texts("comm")?, rows.ints("role")?, rows.ints("ranks")?);
    let (dur, n, sum, least) = (rows.ints("dur_ns")?, rows.ints("n")?, rows.ints("sum_ns")?, rows.ints("least_ns")?);
    let own = [rows.ints("compute_ns")?, rows.ints("idle_ns")?, rows.ints("launch_ns")?];
    let all = [rows.ints("all_compute_ns")?, rows.ints("all_idle_ns")?, rows.ints("all_launch_ns")?];
    let limit = (step_ns as f64 * LEAST_SHARE) as i64;
    let others = |row: usize| (sum[row] - dur[row]) / (n[row] - 1).max(1);
    let cause = |row: usize| {
        let more = |which: usize| own[which][row] - (all[which][row] - own[which][row]) / (ranks[row] - 1).max(1);
        let causes = [Cause::Device, Cause::Idle, Cause::Launch];
        let (which, more) = (0..3).map(|which| (which, more(which))).max_by_key(|(_, more)| *more)?;
        (2 * more > limit).then_some(causes[which])
    };
    let late: Vec<(usize, Cause)> = (0..rows.len())
        .filter(|row| dur[*row] - others(*row) > limit)
        .filter_map(|row| Some((row, cause(row)?)))
        .collect();
    // The first late stage of a step and group, and how many ranks were late in it.
    let mut first: BTreeMap<(i64, &Arc<str>, i64), (i64, i64)> = BTreeMap::new();
    for (row, _) in &late {
        let known = first.entry((step[*row], &comm[*row], role[*row])).or_insert((idx[*row], 0));
        if idx[*row] < known.0 {
            *known = (idx[*row], 0);
        }
        known.1 += i64::from(idx[*row] == known.0);
    }
    let mut by_step: BTreeMap<(i64, i64), Found> = BTreeMap::new();
    for (row, cause) in late {
        let (first_idx, many) = first[&(step[row], &comm[row], role[row])];
        if idx[row] != first_idx || many > 1 && FEW * many > n[row] {
            continue;
        }
        let found = Found {
            late_ns: dur[row] - others(row),
            // The others differ by that much as well.
            err_ns: others(row) - least[row],
            cause,
            stage: stage[row].clone(),
            chain: Vec::new(),
        };
        by_step.insert((rank[row], step[row]), found);
    }
    let mut blamed = Blamed::default();
    name(by_step, run_ns, &mut blamed);
    Ok(blamed)
}
