//! Which rank came late to a collective, from the Perfetto traces of several ranks.
//!
//! Called by `warpline stragglers`, by the fuzz target and by the tests. `read` takes the collectives out of the traces,
//! `judge` matches those of different ranks and says who was late, `show` makes it text, `proto` knows the wire format.
//!
//! All ranks of such a collective leave it once the last one has arrived, and each rank's begin is its arrival, by its own
//! clock. Ranks on one host share a clock, so their begins are compared as they are. `clocks` finds which ranks share one, and
//! estimates how far the clocks of different hosts are apart, with a bound for the error.

mod clocks;
mod judge;
mod proto;
mod read;
mod show;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write;
use std::io::BufRead;

use warpline_core::collective::{CollectiveKind, ProcessGroup};

pub use judge::{Findings, Group, Late, LeftOut, Mismatch, Rank, RankKind};
pub use read::{MAX_CALLS, MAX_PACKET, MAX_TEXTS, Skipped, TraceError};

use read::{ENTRY, GroupKey, Reader, spend};

/// The collectives of all traces.
#[derive(Debug)]
pub struct Calls {
    calls: Vec<Call>,
    groups: Vec<GroupInfo>,
    group_ids: HashMap<String, u32>,
    ranges: Vec<String>,
    range_ids: HashMap<String, u32>,
    sessions: Vec<Session>,
    /// How many more bytes of names are taken.
    names_left: usize,
    key: String,
}

/// One rank's part of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    group: u32,
    seq: u64,
    /// The rank's number in the group.
    rank: u32,
    kind: CollectiveKind,
    /// Its place in [`Calls::sessions`].
    session: u32,
    range: u32,
    /// `CLOCK_BOOTTIME` of its host.
    begin_ns: i64,
    length_ns: i64,
    /// The end is late by at most this.
    uncertain_ns: i64,
    failed: bool,
}

/// The session that recorded a part of a trace, as far as it says what its times mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// One instant at its begin, by the two clocks of its host.
    boot_ns: i64,
    wall_ns: i64,
    process: Option<i32>,
    /// Equal for all processes on one host until it is booted again.
    boot_id: Option<String>,
    /// How far its times may be off `CLOCK_BOOTTIME`, once the session has said it: at its end.
    uncertain_ns: Option<i64>,
}

#[derive(Debug)]
struct GroupInfo {
    name: String,
    comm_id: Option<u64>,
    /// Their numbers in the job, as the first trace says them.
    ranks: Vec<u32>,
}

impl GroupInfo {
    /// What traces and reports call it: `tp0 [0,1]`.
    fn label(&self) -> String {
        let group = ProcessGroup::new(self.name.clone(), self.ranks.iter().copied(), 0);
        group.lane().strip_prefix("comm: ").unwrap_or(group.lane()).to_owned()
    }

    /// The number in the job of the group's rank.
    fn in_job(&self, rank: u32) -> u32 {
        self.ranks.get(rank as usize).copied().unwrap_or(rank)
    }
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            calls: Vec::new(),
            groups: Vec::new(),
            group_ids: HashMap::new(),
            // The name of what has none.
            ranges: vec![String::new()],
            range_ids: HashMap::new(),
            sessions: Vec::new(),
            names_left: MAX_TEXTS,
            key: String::new(),
        }
    }
}

impl Calls {
    /// Adds the collectives of a trace, or of several that stand one behind the other.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(&mut self, trace: impl BufRead) -> Result<Skipped, TraceError> {
        Reader::new(self).read(trace)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn add(&mut self, call: Call) -> Result<(), TraceError> {
        if self.calls.len() == MAX_CALLS {
            return Err(TraceError::TooManyCalls);
        }
        self.calls.push(call);
        Ok(())
    }

    /// The number of a group: of its communicator's id, if it has one, else of its name and ranks.
    fn group(&mut self, said: &GroupKey<'_>) -> Result<u32, TraceError> {
        self.key.clear();
        let _ = match said.comm_id {
            Some(id) => write!(self.key, "{id}"),
            None => write!(self.key, "{}\0{}", said.ranks, said.name),
        };
        if let Some(id) = self.group_ids.get(&self.key) {
            return Ok(*id);
        }
        let ranks = said.ranks.trim_matches(['[', ']']).split(", ").map_while(|rank| rank.parse().ok());
        let group = GroupInfo { name: said.name.to_owned(), comm_id: said.comm_id, ranks: ranks.collect() };
        spend(&mut self.names_left, 2 * (self.key.len() + ENTRY) + said.name.len() + 4 * group.ranks.len())?;
        let id = self.groups.len() as u32;
        self.groups.push(group);
        self.group_ids.insert(self.key.clone(), id);
        Ok(id)
    }

    fn range(&mut self, name: String) -> Result<u32, TraceError> {
        if let Some(id) = self.range_ids.get(&name) {
            return Ok(*id);
        }
        spend(&mut self.names_left, 2 * (name.len() + ENTRY))?;
        let id = self.ranges.len() as u32;
        self.ranges.push(name.clone());
        self.range_ids.insert(name, id);
        Ok(id)
    }

    /// Another session, or another part of one.
    fn session(&mut self, session: Session) -> Result<u32, TraceError> {
        spend(&mut self.names_left, 2 * ENTRY)?;
        let id = self.sessions.len() as u32;
        self.sessions.push(session);
        Ok(id)
    }
}
