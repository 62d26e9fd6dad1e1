//! Reads the data that the judgement needs repeatedly once: columns of the files, kept in memory, and the views that
//! others build on, in their order. Called by the report; without it, the judgement is the same, and reads each file
//! many times.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpline_judge::tables::Table;

use crate::engine::{Engine, Rows};
use crate::error::Error;

/// Before the clocks: the ranks of the windows, and the collectives in which they met.
pub fn before_clocks(engine: &Engine) {
    engine.hold(
        Table::Windows,
        &[
            "win",
            "rank",
            "host",
            "boot_id",
            "pid",
            "begin_ns",
            "end_ns",
            "realtime_offset_ns",
            "steps",
            "steps_dropped",
            "zones_begun",
            "zones_dropped",
            "collectives_begun",
            "collectives_kept",
            "collectives_left_out",
            "coarsened",
        ],
    );
    engine.hold(Table::Comms, &["win", "rank", "host", "comm", "size", "last_seq", "signature"]);
    engine.hold(
        Table::Collectives,
        &["win", "rank", "comm", "seq", "kind", "bytes", "begin_ns", "dur_ns", "err_ns", "end_early_ns", "why"],
    );
}

/// After the clocks: which ranks are compared with each other.
pub fn after_clocks(engine: &Engine) -> Result<(), Error> {
    engine.keep("peers")?;
    engine.define("aligned")?;
    engine.define("cells")?;
    engine.hold(
        Table::Steps,
        &["win", "rank", "host", "step", "begin_ns", "wall_ns", "compute_ns", "idle_ns", "uncertain_ns", "launch_ns"],
    );
    Ok(())
}

/// Rows of collectives of which one query says who came last: their groups and the hash tables of its joins are in
/// memory at once.
const AT_ONCE: i64 = 2_000_000;

/// The view `late`, kept: in parts where there are many collectives.
pub fn late(engine: &Engine) -> Result<Rows, Error> {
    let rows = engine.query("rows", "SELECT COUNT(*) AS n FROM collectives")?.ints("n")?;
    let parts = rows.first().copied().unwrap_or(0) / AT_ONCE + 1;
    engine.keep_in_parts("late", "seq", parts as usize)
}

/// The groups of ranks that do the same work.
#[derive(Debug)]
pub struct Peers {
    group: BTreeMap<i64, (Arc<str>, i64)>,
    ranks: BTreeMap<(Arc<str>, i64), Vec<i64>>,
}

impl Peers {
    /// From the view `peers`, which is kept.
    pub fn new(engine: &Engine) -> Result<Self, Error> {
        let rows = engine.query("peers", "SELECT rank, comm, role FROM peers ORDER BY rank")?;
        let (rank, comm, role) = (rows.ints("rank")?, rows.texts("comm")?, rows.ints("role")?);
        let mut peers = Self { group: BTreeMap::new(), ranks: BTreeMap::new() };
        for ((rank, comm), role) in rank.into_iter().zip(comm).zip(role) {
            peers.ranks.entry((comm.clone(), role)).or_default().push(rank);
            peers.group.insert(rank, (comm, role));
        }
        Ok(peers)
    }

    /// At most this many of the others, evenly spaced.
    pub fn some(&self, rank: i64, most: usize) -> Vec<i64> {
        let all = self.group.get(&rank).and_then(|group| self.ranks.get(group)).map_or(&[][..], Vec::as_slice);
        let others: Vec<i64> = all.iter().copied().filter(|other| *other != rank).collect();
        others.iter().copied().step_by(others.len().div_ceil(most).max(1)).collect()
    }
}
