//! The first call of a group that differs between its ranks. A signature covers all calls up to its own, so ranks whose
//! signatures are equal called the same so far.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use warpline_judge::progress::{Call, Progress};

use super::words::listed;
use crate::engine::Engine;
use crate::error::Omission;
use crate::judge::{Called, Differs, differs};

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
    /// Some rank has not completed the number, so this is what holds the group up. Otherwise the job went on.
    pub is_open: bool,
    /// The call of most ranks.
    pub most_called: String,
    /// The ranks that called it.
    pub most: Vec<u32>,
    /// The ranks that called something else, and their calls.
    pub others: Vec<(u32, String)>,
    /// The files do not have the number, and the tables do.
    pub is_of_tables: bool,
}

impl Difference {
    /// In words.
    pub fn sentence(&self) -> String {
        let Self { comm, seq, most_called, most, .. } = self;
        let ranks: Vec<u32> = self.others.iter().map(|(rank, _)| *rank).collect();
        if self.is_before {
            return format!(
                "{} called something else than the {} others of {comm} before number {seq}: the last calls are equal, and neither the files nor the \
                 tables have the number",
                listed(&ranks),
                most.len(),
            );
        }
        let mut by_call: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        self.others.iter().for_each(|(rank, call)| by_call.entry(call).or_default().push(*rank));
        let number = format!("number {seq} of {comm}{}", if self.is_first { "" } else { " or before it" });
        let others: Vec<String> =
            by_call.iter().take(4).map(|(call, ranks)| format!("{} called {call}", listed(ranks))).collect();
        let more = by_call.len().saturating_sub(4);
        let more = if more > 0 { format!(", and {more} more calls differ") } else { String::new() };
        let others = others.join(", ") + &more;
        let source = if self.is_of_tables { ", as the tables say" } else { "" };
        match self.is_majority {
            true => format!("in {number}, {others}, and the {} others called {most_called}{source}", most.len()),
            false => format!(
                "the calls differ in {number}, and no side has more ranks: {} called {most_called}, {others}{source}",
                listed(most)
            ),
        }
    }

    /// Looks for the number among those that the tables have.
    fn search(&mut self, known: &[Differs]) {
        let Some(found) = known.iter().find(|found| *found.comm == *self.comm) else { return };
        let called = |called: &Called| format!("{} of {} bytes", called.kind, called.bytes);
        let other = found.called.as_ref().map_or("something else, which sampling left out".to_owned(), called);
        let others: Vec<(u32, String)> = found.ranks.iter().map(|rank| (*rank as u32, other.clone())).collect();
        let all = self.most.iter().copied().chain(self.others.iter().map(|(rank, _)| *rank));
        self.most = all.filter(|rank| !found.ranks.contains(&i64::from(*rank))).collect();
        self.most.sort_unstable();
        self.is_majority = others.len() < self.most.len();
        (self.seq, self.most_called, self.others) = (found.seq, called(&found.others), others);
        (self.is_first, self.is_before, self.is_of_tables) = (true, false, true);
    }
}

/// The last calls of a rank in a group.
struct OfRank<'a> {
    rank: u32,
    /// The first number that its signatures cover.
    first: Option<i64>,
    completed: Option<i64>,
    counts_apart: bool,
    calls: BTreeMap<i64, &'a Call>,
}

/// The calls of several ranks by number.
type Shared<'a> = BTreeMap<i64, Vec<(u32, &'a Call)>>;

/// Of every group. Where the files of a run in a folder do not have the number, its tables may; what cannot be read of
/// them goes to `left_out`.
pub fn differences(
    files: &BTreeMap<u32, Progress>,
    tables: Option<(&Path, &str)>,
    left_out: &mut Vec<Omission>,
) -> Vec<Difference> {
    let mut groups: BTreeMap<&str, Vec<OfRank<'_>>> = BTreeMap::new();
    for (rank, file) in files {
        for group in &file.comms {
            let calls = group.recent.iter().map(|call| (call.0, call)).collect();
            let counts_apart = group.size > 2 && group.has_transfers();
            let (first, completed) = (group.first, group.completed);
            let of = OfRank { rank: *rank, first, completed, counts_apart, calls };
            groups.entry(&group.comm).or_default().push(of);
        }
    }
    // Ranks that also send to each other count apart, so one number is another call on each.
    groups.retain(|_, ranks| !ranks.iter().any(|rank| rank.counts_apart));
    let mut all: Vec<Difference> = groups.into_iter().filter_map(|(comm, ranks)| difference(comm, &ranks)).collect();
    if let Some((path, run)) = tables.filter(|_| all.iter().any(|found| found.is_before)) {
        let search = |engine: Engine| {
            engine.keep("placed")?;
            differs(&engine)
        };
        match Engine::open(path, Some(run)).and_then(search) {
            Ok(known) => all.iter_mut().filter(|found| found.is_before).for_each(|found| found.search(&known)),
            Err(why) => left_out.push(Omission { file: "the tables".to_owned(), why: why.to_string() }),
        }
    }
    all
}

/// Signatures are compared among ranks that began to count at one number. A rank whose process or session began later
/// has signatures of its own, and its calls themselves are compared.
fn difference(comm: &str, ranks: &[OfRank<'_>]) -> Option<Difference> {
    let mut alike: BTreeMap<Option<i64>, Vec<&OfRank<'_>>> = BTreeMap::new();
    for rank in ranks {
        alike.entry(rank.first).or_default().push(rank);
    }
    let by_signature = alike.iter().filter_map(|(first, ranks)| {
        // Signatures that differ do so for good, but a rank that stopped at its call has no later ones, and the others
        // agree there.
        first_difference(comm, &shared(ranks), first.unwrap_or(0), |call| call.5.clone())
    });
    let all: Vec<&OfRank<'_>> = ranks.iter().collect();
    let by_call = Some(&all).filter(|_| alike.len() > 1);
    let by_call = by_call.and_then(|ranks| first_difference(comm, &shared(ranks), 0, Call::sentence));
    let mut found = by_signature.chain(by_call).min_by_key(|difference| difference.seq)?;
    found.is_open = ranks.iter().any(|rank| rank.completed < Some(found.seq));
    Some(found)
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
    let size = |(_, ranks): &(&String, &Vec<(u32, String)>)| (ranks.len(), std::cmp::Reverse(ranks[0].0));
    let most = by_call.iter().max_by_key(size).map(|(key, _)| key.clone())?;
    let most = by_call.remove(&most)?;
    let most_called = most.first()?.1.clone();
    let most: Vec<u32> = most.into_iter().map(|(rank, _)| rank).collect();
    let is_majority = by_call.values().all(|ranks| ranks.len() < most.len());
    let others: Vec<(u32, String)> = by_call.into_values().flatten().collect();
    let is_before = others.iter().all(|(_, called)| *called == most_called);
    let is_first = place > 0 || *seq == begin;
    let (comm, seq, is_open) = (comm.to_owned(), *seq, false);
    let is_of_tables = false;
    Some(Difference { comm, seq, is_first, is_before, is_majority, is_open, most_called, most, others, is_of_tables })
}
