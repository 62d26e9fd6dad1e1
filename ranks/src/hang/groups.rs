//! The groups of a job, each with its members and with what its ranks have entered, once for the whole job: the files of 100,000 ranks say the same
//! members 100,000 times. `follow` asks who waits for whom. What files of others claim is bounded here, and what is left out is counted.

use std::collections::{BTreeMap, HashMap};

use super::{Group, Open, Progress};

/// The most ranks that one group may have.
const MOST_MEMBERS: usize = 1 << 20;

/// The most members that all groups may have together: a few million numbers. A job of 100,000 ranks with four groups for each has 400,000.
pub(super) const MOST_IN_ALL: usize = 2 << 20;

/// The groups of a job.
#[derive(Debug, Default)]
pub(super) struct Groups<'a> {
    /// In the order of the files that name them first.
    pub(super) all: Vec<Known<'a>>,
    /// Groups whose members are left out, because those of the groups before them are [`MOST_IN_ALL`] already.
    pub(super) left_out: usize,
}

/// A group, and where its ranks are in it.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) comm: &'a str,
    /// Its ranks, in their order.
    pub(super) members: Vec<u32>,
    /// The ranks that have entered a collective of it and not completed it.
    pub(super) waiting: Vec<Waiting>,
    /// What the ranks that wrote of it say, in the order of the ranks.
    of_rank: Vec<(u32, &'a Group)>,
}

/// A rank in a collective of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) rank: u32,
    /// The number of the collective.
    pub(super) seq: i64,
    /// Whether the rank's oldest open zone is that collective.
    pub(super) is_here: bool,
}

impl<'a> Groups<'a> {
    pub(super) fn of(files: &'a BTreeMap<u32, Progress>) -> Self {
        let mut groups = Self::default();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut room = MOST_IN_ALL;
        for (rank, file) in files {
            for group in &file.comms {
                let place = *places.entry(&group.comm).or_insert_with(|| {
                    let (members, waiting, of_rank) = (Vec::new(), Vec::new(), Vec::new());
                    groups.all.push(Known { comm: &group.comm, members, waiting, of_rank });
                    groups.all.len() - 1
                });
                let known = &mut groups.all[place];
                // A file that names a group twice says nothing more of it.
                if known.of_rank.last().is_some_and(|(last, _)| last == rank) {
                    continue;
                }
                known.of_rank.push((*rank, group));
                if let Some(seq) = pending(group).filter(|_| !file.ended) {
                    let is_here = file.open.as_ref().is_some_and(|open| open.is_in(&group.comm, seq));
                    known.waiting.push(Waiting { rank: *rank, seq, is_here });
                }
            }
        }
        for known in &mut groups.all {
            // The name has a hash of the members, so all ranks mean the same ones.
            let Some(ranges) = known.of_rank.iter().find_map(|(_, group)| group.ranges()) else { continue };
            let count = count(&ranges);
            if count > room {
                groups.left_out += 1;
                continue;
            }
            room -= count;
            known.members = expanded(&ranges);
        }
        groups
    }
}

impl Known<'_> {
    /// What a member says of the group.
    pub(super) fn of(&self, rank: u32) -> Option<&Group> {
        let at = self.of_rank.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.of_rank[at].1)
    }
}

impl Open {
    /// Whether it is this collective.
    pub(super) fn is_in(&self, comm: &str, seq: i64) -> bool {
        self.comm.as_deref() == Some(comm) && self.seq == Some(seq)
    }
}

impl Group {
    /// Its ranks, of a list such as `0-7,16`; none where the list is missing, damaged or longer than any job's.
    pub fn ranks(&self) -> Vec<u32> {
        self.ranges().map(|ranges| expanded(&ranges)).unwrap_or_default()
    }

    /// The first and the last ranks of the parts of its list.
    pub(super) fn ranges(&self) -> Option<Vec<(u32, u32)>> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some((first, last))
        };
        let parts = self.members.as_deref()?.split(',').filter(|part| !part.is_empty());
        let ranges = parts.map(range).collect::<Option<Vec<_>>>()?;
        (!ranges.is_empty() && count(&ranges) <= MOST_MEMBERS).then_some(ranges)
    }
}

fn count(ranges: &[(u32, u32)]) -> usize {
    ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum()
}

fn expanded(ranges: &[(u32, u32)]) -> Vec<u32> {
    let mut ranks: Vec<u32> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &str) -> Group {
        serde_json::from_value(serde_json::json!({ "comm": "g", "members": members })).unwrap()
    }

    #[test]
    fn a_list_of_ranks_is_read_and_bounded() {
        assert_eq!(group("0-3,16, 2-4").ranks(), [0, 1, 2, 3, 4, 16]);
        assert_eq!(group("0-1048575").ranks().len(), 1 << 20);
        for wrong in ["", "a", "3-1", "0-", "-1", "0-1048576", "0-1048575,7", "0-4294967295,0-4294967295"] {
            assert!(group(wrong).ranks().is_empty(), "{wrong}");
        }
    }
}
