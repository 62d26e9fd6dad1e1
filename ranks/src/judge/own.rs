//! The own time of all ranks in all steps, from the tables, as the judge has it. The report asks it who stands out, and
//! the heat map shows it.

use std::collections::HashMap;

use warpline_judge::own::{Own, Step};

use crate::engine::Engine;
use crate::error::Error;

/// The maximum number of rows that are read into memory: 10,000 ranks of 1,600 steps. Beyond it, one in so many steps
/// is read.
const READ: i64 = 16_000_000;

/// Returns n, where one in n steps is read of a run that has about this many rows.
pub fn one_in(rows: i64) -> i64 {
    (rows - 1).max(0) / READ + 1
}

/// The own time of the run of an engine that keeps `peers`, from one in so many steps. A step in which zones may have
/// ended at any time is not compared.
pub fn own(engine: &Engine, one_in: i64) -> Result<Own, Error> {
    let rows = engine.query("peers", "SELECT rank, comm, role FROM peers ORDER BY rank")?;
    let mut numbers = HashMap::new();
    let mut peers = HashMap::new();
    for (rank, of) in rows.ints("rank")?.into_iter().zip(rows.texts("comm")?.into_iter().zip(rows.ints("role")?)) {
        let next = numbers.len();
        peers.insert(rank, *numbers.entry(of).or_insert(next));
    }
    let sql = format!("SELECT rank, step, own_ns FROM cells WHERE 20 * uncertain_ns <= own_ns AND step % {one_in} = 0");
    let rows = engine.query("cells", &sql)?;
    let (rank, step, own) = (rows.ints("rank")?, rows.ints("step")?, rows.ints("own_ns")?);
    let step = |at: usize| Step { rank: rank[at], step: step[at], own_ns: own[at] };
    Ok(Own::new(&peers, &(0..rows.len()).map(step).collect::<Vec<_>>()))
}
