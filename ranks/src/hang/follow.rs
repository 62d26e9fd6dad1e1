//! Which rank waits for which: a rank that has entered a collective of a group, and has not completed it, waits for each member that has not
//! entered it. Where all have entered it, because their threads run ahead of their streams, it waits for the members whose streams are still in
//! another collective. The waits lead from rank to rank, to a rank that waits for no other rank, or around a cycle.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::{Group, Open, Progress};

/// One rank waits for another.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Wait {
    /// Who waits.
    pub rank: u32,
    /// In which group.
    pub comm: String,
    /// In which number of it.
    pub seq: i64,
    /// For whom.
    pub waits_for: u32,
}

impl Wait {
    /// In words.
    pub fn sentence(&self) -> String {
        format!("rank {} waits in number {} of {} for rank {}", self.rank, self.seq, self.comm, self.waits_for)
    }
}

/// Ranks that wait for each other.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Cycle {
    /// Each waits for the next, and the last for the first.
    pub waits: Vec<Wait>,
}

impl Cycle {
    /// In words.
    pub fn sentence(&self) -> String {
        const SHOWN: usize = 6;
        let mut parts: Vec<String> = self.waits.iter().take(SHOWN).map(Wait::sentence).collect();
        if self.waits.len() > SHOWN {
            parts.push(format!("and {} more", self.waits.len() - SHOWN));
        }
        format!("the ranks call collectives in different orders: {}", parts.join(", "))
    }
}

/// What was followed.
#[derive(Debug, Default)]
pub struct Followed {
    /// Ranks that wait for no other rank: how many ranks wait for them, and one of the longest chains of waits.
    pub sinks: BTreeMap<u32, (usize, Vec<Wait>)>,
    pub cycles: Vec<Cycle>,
    pub waiting: usize,
}

/// Follows every wait.
pub fn follow(files: &BTreeMap<u32, Progress>) -> Followed {
    let group = |rank: u32, comm: &str| files.get(&rank)?.comms.iter().find(|group| group.comm == comm);
    // What each rank waits in: its open zone says it if it is a collective; otherwise every group with one begun and not completed.
    let mut waits: BTreeMap<u32, Vec<Wait>> = BTreeMap::new();
    let mut waiting = 0;
    // The members of a group that are behind a number, once for each.
    let mut behind: HashMap<(String, i64), Vec<u32>> = HashMap::new();
    for (rank, file) in files.iter().filter(|(_, file)| !file.ended) {
        let pending: Vec<(&Group, i64)> =
            file.comms.iter().filter_map(|group| Some((group, pending(group)?))).collect();
        if pending.is_empty() {
            continue;
        }
        waiting += 1;
        let mut of_rank = Vec::new();
        for (of, seq) in pending {
            let late = behind.entry((of.comm.clone(), seq)).or_insert_with(|| {
                let is_behind = |other: &u32| match group(*other, &of.comm) {
                    Some(theirs) => theirs.entered.is_none_or(|entered| entered < seq),
                    None => true,
                };
                of.ranks().into_iter().filter(is_behind).collect()
            });
            let is_here = file.open.as_ref().is_some_and(|open| is_in(open, &of.comm, seq));
            let elsewhere: Vec<u32> = match late.is_empty() && is_here {
                true => of.ranks().into_iter().filter(|other| is_elsewhere(files, *other, &of.comm, seq)).collect(),
                false => Vec::new(),
            };
            let late = late.iter().chain(&elsewhere);
            let wait = |other: &u32| Wait { rank: *rank, comm: of.comm.clone(), seq, waits_for: *other };
            of_rank.extend(late.filter(|other| *other != rank).map(wait));
        }
        waits.insert(*rank, of_rank);
    }
    let mut followed = Followed { waiting, ..Followed::default() };
    let mut in_a_cycle: BTreeSet<u32> = BTreeSet::new();
    for start in waits.iter().filter(|(_, all)| !all.is_empty()).map(|(rank, _)| *rank) {
        // Breadth first: the shortest chain to each rank that waits for no other rank.
        let mut came: BTreeMap<u32, Wait> = BTreeMap::new();
        let mut next = std::collections::VecDeque::from([start]);
        let mut seen = BTreeSet::from([start]);
        while let Some(at) = next.pop_front() {
            let of = waits.get(&at).filter(|all| !all.is_empty());
            let Some(of) = of else {
                let way = way(&came, start, at);
                let known = followed.sinks.entry(at).or_default();
                known.0 += 1;
                if way.len() > known.1.len() {
                    known.1 = way;
                }
                continue;
            };
            for wait in of {
                if wait.waits_for == start && !in_a_cycle.contains(&start) {
                    let mut round = way(&came, start, at);
                    round.push(wait.clone());
                    in_a_cycle.extend(round.iter().map(|wait| wait.rank));
                    followed.cycles.push(Cycle { waits: round });
                }
                if seen.insert(wait.waits_for) {
                    came.insert(wait.waits_for, wait.clone());
                    next.push_back(wait.waits_for);
                }
            }
        }
    }
    followed
}

fn is_in(open: &Open, comm: &str, seq: i64) -> bool {
    open.comm.as_deref() == Some(comm) && open.seq == Some(seq)
}

/// Whether the oldest open zone of a rank is another collective, behind which this one is queued.
fn is_elsewhere(files: &BTreeMap<u32, Progress>, rank: u32, comm: &str, seq: i64) -> bool {
    let Some(file) = files.get(&rank).filter(|file| !file.ended) else { return false };
    let has_ended =
        file.comms.iter().any(|group| group.comm == comm && group.completed.is_some_and(|completed| completed >= seq));
    let open = file.open.as_ref().filter(|open| open.comm.is_some());
    !has_ended && open.is_some_and(|open| !is_in(open, comm, seq))
}

/// The number that a rank has begun and not completed. What is queued behind it waits for it, not for others.
fn pending(group: &Group) -> Option<i64> {
    let entered = group.entered?;
    match group.completed {
        Some(completed) => (entered > completed).then(|| completed.saturating_add(1)),
        // Where the device's side is unknown, the last that was entered.
        None => Some(entered),
    }
}

fn way(came: &BTreeMap<u32, Wait>, start: u32, to: u32) -> Vec<Wait> {
    let mut way = Vec::new();
    let mut at = to;
    while at != start {
        let Some(wait) = came.get(&at) else { break };
        way.push(wait.clone());
        at = wait.rank;
    }
    way.reverse();
    way
}
