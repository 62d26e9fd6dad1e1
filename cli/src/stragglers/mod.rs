//! Finds the ranks that came late to collectives, from the Perfetto traces of several ranks.
//!
//! The callers are `warpline stragglers`, the fuzz target and the tests. `read` extracts the collectives from the traces, `judge` matches
//! them across ranks and determines which rank was late, `lives` leaves out what ran before a restart, `verdict` asks for the rank that
//! stands out, `show` formats the findings, and `run` is the command.
//!
//! In a collective in which every rank waits for all others, no rank leaves before the last one has arrived. A rank's begin is its arrival,
//! by its own clock. Ranks on one host share a clock, so their begins are compared directly. `clocks` finds which ranks share a clock. What
//! stands out, who waited for whom, and how far the clocks of hosts are apart is answered by `warpline_judge`, as for `warpline-ranks`.

mod clocks;
mod findings;
mod judge;
mod lives;
mod read;
pub(crate) mod run;
mod show;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::HashMap;
use std::fmt::Write;
use std::io::Read;

use warpline_core::collective::{CollectiveKind, ProcessGroup};
use warpline_judge::Key;

pub use findings::{Earlier, Findings, Group, Late, LeftOut, Mismatch, Rank, RankKind, Verdict};
pub use read::{MAX_CALLS, MAX_TEXTS, Skipped, TraceError};

use read::ENTRY;

/// The collectives of all traces.
#[derive(Debug)]
pub struct Calls {
    calls: Vec<Call>,
    groups: Vec<GroupInfo>,
    group_ids: HashMap<String, u32>,
    ranges: Vec<String>,
    range_ids: HashMap<String, u32>,
    sessions: Vec<Session>,
    /// How many more bytes of names are accepted.
    names_left: usize,
    key: String,
}

/// One rank's participation in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    group: u32,
    seq: u64,
    /// The rank within the group.
    rank: u32,
    kind: CollectiveKind,
    /// An index into [`Calls::sessions`].
    session: u32,
    range: u32,
    /// By `CLOCK_BOOTTIME` of the rank's host.
    begin_ns: i64,
    length_ns: i64,
    /// The true end is at most this much earlier than the recorded one.
    uncertain_ns: i64,
    /// The size of the message as NCCL's tests define it; 0 if it is not known.
    bytes: u64,
    failed: bool,
    /// Whether it ran in a replay of a CUDA graph: all replays have the number that it was captured with.
    is_replayed: bool,
    /// Counts its replays from 1; 0 if it was not replayed.
    turn: u64,
    /// Whether the ranks replayed it differently often.
    is_unmatched: bool,
}

impl Call {
    /// Which collective it belongs to.
    fn key(&self) -> Key {
        Key { group: self.group, turn: self.turn, seq: self.seq }
    }
}

/// The session that recorded a part of a trace: what is needed to interpret its times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// One instant at the session's begin, by the two clocks of its host.
    boot_ns: i64,
    wall_ns: i64,
    process: Option<i32>,
    /// Equal for all processes of one host until the host reboots.
    boot_id: Option<String>,
    /// The name of the host; empty if the trace has none.
    host: String,
    /// The largest error of the session's times against `CLOCK_BOOTTIME`. A session writes it at its end; none before that.
    uncertain_ns: Option<i64>,
}

#[derive(Debug)]
struct GroupInfo {
    name: String,
    comm_id: Option<u64>,
    /// The global ranks of the members, as the first trace lists them.
    ranks: Vec<u32>,
}

impl GroupInfo {
    /// Returns the name of the group in traces and reports: `tp0 [0,1]`.
    fn label(&self) -> String {
        let group = ProcessGroup::new(self.name.clone(), self.ranks.iter().copied(), 0);
        group.lane().strip_prefix("comm: ").unwrap_or(group.lane()).to_owned()
    }

    /// Returns the global rank of a rank of the group.
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
            // Range 0 is the range without a name.
            ranges: vec![String::new()],
            range_ids: HashMap::new(),
            sessions: Vec::new(),
            names_left: MAX_TEXTS,
            key: String::new(),
        }
    }
}

impl Calls {
    /// Adds the collectives of a trace, or of several concatenated traces.
    ///
    /// # Errors
    /// The trace cannot be read, is not a trace of warpline, or exceeds a limit. None of its collectives is added then.
    pub fn read(&mut self, trace: impl Read) -> Result<Skipped, TraceError> {
        let (calls, sessions) = (self.calls.len(), self.sessions.len());
        let result = read::read(trace, self);
        if result.is_err() {
            self.calls.truncate(calls);
            self.sessions.truncate(sessions);
        }
        result
    }

    /// Returns the number of collectives.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether there are no collectives.
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

    /// Returns the index of a group. The communicator's id identifies a group; without one, its name and ranks do.
    fn group(&mut self, name: &str, ranks: &str, comm_id: Option<u64>) -> Result<u32, TraceError> {
        self.key.clear();
        let _ = match comm_id {
            Some(id) => write!(self.key, "{id}"),
            None => write!(self.key, "{ranks}\0{name}"),
        };
        if let Some(id) = self.group_ids.get(&self.key) {
            return Ok(*id);
        }
        let ranks = ranks.trim_matches(['[', ']']).split(", ").map_while(|rank| rank.parse().ok());
        let group = GroupInfo { name: name.to_owned(), comm_id, ranks: ranks.collect() };
        self.spend(2 * (self.key.len() + ENTRY) + name.len() + 4 * group.ranks.len())?;
        let id = self.groups.len() as u32;
        self.groups.push(group);
        self.group_ids.insert(self.key.clone(), id);
        Ok(id)
    }

    /// Takes `bytes` from what is left for names.
    fn spend(&mut self, bytes: usize) -> Result<(), TraceError> {
        self.names_left = self.names_left.checked_sub(bytes).ok_or(TraceError::TooManyNames)?;
        Ok(())
    }

    fn range(&mut self, name: &str) -> Result<u32, TraceError> {
        if let Some(id) = self.range_ids.get(name) {
            return Ok(*id);
        }
        self.spend(2 * (name.len() + ENTRY))?;
        let id = self.ranges.len() as u32;
        self.ranges.push(name.to_owned());
        self.range_ids.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Adds a session, or another part of one.
    fn session(&mut self, session: Session) -> Result<u32, TraceError> {
        self.spend(2 * ENTRY)?;
        let id = self.sessions.len() as u32;
        self.sessions.push(session);
        Ok(id)
    }
}
