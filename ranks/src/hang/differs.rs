//! The first call of a group that differs between its ranks. A signature covers all calls up to its own, so ranks whose signatures are equal
//! called the same so far.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Call, Progress};

/// Ranks of a group called different things.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Difference {
    /// The group.
    pub comm: String,
    /// The first number that differs among those that the files have.
    pub seq: i64,
    /// The call before it is the same: this is the first one of all.
    pub is_first: bool,
    /// The calls of this number are equal, and only the signatures of all calls up to it differ: they differ before it.
    pub is_before: bool,
    /// More ranks than any others called what most ranks called.
    pub is_majority: bool,
    /// What most ranks called.
    pub most_called: String,
    /// Who called something else, and what.
    pub others: Vec<(u32, String)>,
}

impl Difference {
    /// In words.
    pub fn sentence(&self) -> String {
        let others: Vec<String> =
            self.others.iter().take(4).map(|(rank, call)| format!("rank {rank} called {call}")).collect();
        let more = self.others.len().saturating_sub(4);
        let more = if more > 0 { format!(" and {more} more differ") } else { String::new() };
        if self.is_before {
            let ranks: Vec<u32> = self.others.iter().map(|(rank, _)| *rank).collect();
            return format!(
                "the calls of {} differ before number {}, in {}: the last calls are equal; `report` looks for the number in the tables",
                self.comm,
                self.seq,
                crate::report::ranks(&ranks, 4)
            );
        }
        let first = if self.is_first { "" } else { " or before it" };
        let most = if self.is_majority { "most ranks called" } else { "as many ranks as others called" };
        format!(
            "the calls of {} differ in number {}{first}: {most} {}, {}{more}",
            self.comm,
            self.seq,
            self.most_called,
            others.join(", ")
        )
    }
}

/// The last calls of a rank in a group.
struct OfRank<'a> {
    rank: u32,
    /// The first number that its signatures cover.
    first: Option<i64>,
    calls: BTreeMap<i64, &'a Call>,
}

/// The calls of several ranks by number.
type Shared<'a> = BTreeMap<i64, Vec<(u32, &'a Call)>>;

/// Of every group.
pub fn differences(files: &BTreeMap<u32, Progress>) -> Vec<Difference> {
    let mut groups: BTreeMap<&str, Vec<OfRank<'_>>> = BTreeMap::new();
    for (rank, file) in files {
        for group in &file.comms {
            let calls = group.recent.iter().map(|call| (call.0, call)).collect();
            groups.entry(&group.comm).or_default().push(OfRank { rank: *rank, first: group.first, calls });
        }
    }
    groups.into_iter().filter_map(|(comm, ranks)| difference(comm, &ranks)).collect()
}

/// Signatures are compared among ranks that began to count at one number. A rank whose process or session began later has signatures of
/// its own, and its calls themselves are compared.
fn difference(comm: &str, ranks: &[OfRank<'_>]) -> Option<Difference> {
    let mut alike: BTreeMap<Option<i64>, Vec<&OfRank<'_>>> = BTreeMap::new();
    for rank in ranks {
        alike.entry(rank.first).or_default().push(rank);
    }
    let by_signature = alike.iter().filter_map(|(first, ranks)| {
        // Signatures that differ do so for good, but a rank that stopped at its call has no later ones, and the others agree there.
        first_difference(comm, &shared(ranks), first.unwrap_or(0), |call| call.5.clone())
    });
    let all: Vec<&OfRank<'_>> = ranks.iter().collect();
    let by_call = Some(&all).filter(|_| alike.len() > 1);
    let by_call = by_call.and_then(|ranks| first_difference(comm, &shared(ranks), 0, Call::sentence));
    by_signature.chain(by_call).min_by_key(|difference| difference.seq)
}

/// The numbers that several ranks have: where one rank alone has a number, nothing differs.
fn shared<'a>(ranks: &[&OfRank<'a>]) -> Shared<'a> {
    let mut shared = Shared::new();
    for rank in ranks {
        rank.calls.iter().for_each(|(seq, call)| shared.entry(*seq).or_default().push((rank.rank, *call)));
    }
    shared.retain(|_, calls| calls.len() > 1);
    shared
}

/// The first number at which the keys differ. All calls before it are known only from the number `begin` on.
fn first_difference(comm: &str, shared: &Shared<'_>, begin: i64, key: fn(&Call) -> String) -> Option<Difference> {
    let differ = |calls: &[(u32, &Call)]| calls.windows(2).any(|two| key(two[0].1) != key(two[1].1));
    let (place, (seq, calls)) = shared.iter().enumerate().find(|(_, (_, calls))| differ(calls))?;
    let mut by_call: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for (rank, call) in calls {
        by_call.entry(key(call)).or_default().push((*rank, call.sentence()));
    }
    let most = by_call.iter().max_by_key(|(_, ranks)| ranks.len()).map(|(key, _)| key.clone())?;
    let most = by_call.remove(&most)?;
    let most_called = most.first()?.1.clone();
    let is_majority = by_call.values().all(|ranks| ranks.len() < most.len());
    let others: Vec<(u32, String)> = by_call.into_values().flatten().collect();
    let is_before = others.iter().all(|(_, called)| *called == most_called);
    let is_first = place > 0 || *seq == begin;
    Some(Difference { comm: comm.to_owned(), seq: *seq, is_first, is_before, is_majority, most_called, others })
}
