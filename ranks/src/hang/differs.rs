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
        let first = if self.is_first { "" } else { " or before it" };
        format!(
            "the calls of {} differ in number {}{first}: most ranks called {}, {}{more}",
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

impl OfRank<'_> {
    fn at(&self, seq: i64) -> Option<(u32, &Call)> {
        Some((self.rank, *self.calls.get(&seq)?))
    }
}

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
    let signature: fn(&Call) -> String = |call| call.5.clone();
    let by_signature = alike.values().filter_map(|ranks| {
        let shared = shared(ranks);
        // Signatures that differ do so for good, but a rank that stopped at its call has no later ones, and the others agree there.
        let place = shared.iter().position(|seq| !agree(ranks, *seq, signature))?;
        let seq = shared[place];
        Some((seq, of(comm, ranks, seq, place > 0 || seq == ranks[0].first.unwrap_or(0), signature)?))
    });
    let all: Vec<&OfRank<'_>> = ranks.iter().collect();
    let by_call = Some(&all).filter(|_| alike.len() > 1).and_then(|ranks| {
        let shared = shared(ranks);
        let place = shared.iter().position(|seq| !agree(ranks, *seq, Call::sentence))?;
        let seq = shared[place];
        Some((seq, of(comm, ranks, seq, place > 0 || seq == 0, Call::sentence)?))
    });
    by_signature.chain(by_call).min_by_key(|(seq, _)| *seq).map(|(_, difference)| difference)
}

/// The numbers that several ranks have: where one rank alone has a number, nothing differs.
fn shared(ranks: &[&OfRank<'_>]) -> Vec<i64> {
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    ranks.iter().flat_map(|rank| rank.calls.keys()).for_each(|seq| *times.entry(*seq).or_default() += 1);
    times.into_iter().filter(|(_, ranks)| *ranks > 1).map(|(seq, _)| seq).collect()
}

fn agree(ranks: &[&OfRank<'_>], seq: i64, key: fn(&Call) -> String) -> bool {
    let mut keys = ranks.iter().filter_map(|rank| rank.at(seq)).map(|(_, call)| key(call));
    let first = keys.next();
    keys.all(|other| Some(other) == first)
}

fn of(comm: &str, ranks: &[&OfRank<'_>], seq: i64, is_first: bool, key: fn(&Call) -> String) -> Option<Difference> {
    let mut by_call: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for (rank, call) in ranks.iter().filter_map(|rank| rank.at(seq)) {
        by_call.entry(key(call)).or_default().push((rank, call.sentence()));
    }
    let most = by_call.iter().max_by_key(|(_, ranks)| ranks.len()).map(|(key, _)| key.clone())?;
    let most_called = by_call.remove(&most)?.first()?.1.clone();
    let others = by_call.into_values().flatten().collect();
    Some(Difference { comm: comm.to_owned(), seq, is_first, most_called, others })
}
