//! What the judgement asks for again and again, read once: columns of the files, kept in memory, and the views that others build on, in
//! their order. Called by the report; without it the judgement is the same, and reads each file many times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpline_judge::tables::Table;

use crate::engine::{Engine, Rows, Scope};
use crate::error::Error;

/// Before the clocks: whose windows they are, and which collectives they met in.
pub fn before_clocks(engine: &Engine) {
    engine.hold(
        Table::Windows,
        &[
            "win",
            "rank",
            "host",
            "boot_id",
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
    engine.hold(Table::Comms, &["win", "rank", "host", "comm", "size"]);
    engine.hold(
        Table::Collectives,
        &["win", "rank", "comm", "seq", "kind", "bytes", "begin_ns", "dur_ns", "err_ns", "end_early_ns", "why"],
    );
}

/// After the clocks: who is compared with whom.
pub fn after_clocks(engine: &Engine) -> Result<(), Error> {
    engine.keep("peers")?;
    engine.define("aligned")?;
    engine.hold(
        Table::Steps,
        &["win", "rank", "host", "step", "begin_ns", "wall_ns", "compute_ns", "idle_ns", "uncertain_ns", "launch_ns"],
    );
    engine.keep("pace")?;
    engine.keep("peer_steps")?;
    Ok(())
}

/// Rows of collectives of which one query says who came last: their groups and the hash tables of its joins are in memory at once.
const AT_ONCE: i64 = 2_000_000;

/// The view `late`, kept: in parts where there are many collectives.
pub fn late(engine: &Engine) -> Result<Rows, Error> {
    let rows = engine.query("rows", "SELECT COUNT(*) AS n FROM collectives")?.ints("n")?;
    let parts = rows.first().copied().unwrap_or(0) / AT_ONCE + 1;
    engine.keep_in_parts("late", "seq", parts as usize)
}

/// Who does the same work as whom.
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

    /// A scope of these ranks, and for each at most `most` of its peers, evenly spaced.
    pub fn scope(&self, ranks: &BTreeSet<i64>, windows: BTreeSet<i64>, most: usize) -> Scope {
        let groups: BTreeSet<&(Arc<str>, i64)> = ranks.iter().filter_map(|rank| self.group.get(rank)).collect();
        let mut all = ranks.clone();
        for peers in groups.into_iter().filter_map(|group| self.ranks.get(group)) {
            all.extend(peers.iter().step_by(peers.len().div_ceil(most).max(1)));
        }
        Scope { ranks: all, windows: Some(windows) }
    }
}
