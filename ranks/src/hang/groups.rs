//! The groups of a job, each with its members and with what its ranks have entered, once for the whole job: the files
//! of 100,000 ranks say the same members 100,000 times. `follow` determines the waits between ranks. The claims of
//! files from others are bounded here, and groups that are left out are counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use warpline_judge::progress::{Group, Progress};

/// The most members that all groups may have together: a few million numbers. A job of 100,000 ranks with four groups
/// for each has 400,000.
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
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    pub(super) comm: &'a str,
    /// Its ranks, in their order.
    pub(super) members: Vec<u32>,
    /// The ranks that have entered a collective of it and not completed it.
    pub(super) waiting: Vec<Waiting<'a>>,
    /// Its ranks count separately: they also send to each other, and those that do take a number that the others do not
    /// take.
    pub(super) counts_apart: bool,
    /// The last number that any rank of it has completed.
    pub(super) most_completed: Option<i64>,
    /// The state of each rank that wrote about it, in the order of the ranks.
    of_rank: Vec<(u32, &'a Group)>,
}

/// A rank in a collective of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) rank: u32,
    /// The number of the collective.
    pub(super) seq: i64,
    /// Whether the rank's oldest open zone is that collective.
    pub(super) is_here: bool,
    /// For a transfer: the operation and the rank at its other end.
    pub(super) transfer: Option<(&'a str, u32)>,
}

impl<'a> Groups<'a> {
    /// Ranks that have moved wait for nobody.
    pub(super) fn of(files: &'a BTreeMap<u32, Progress>, moved: &BTreeSet<u32>) -> Self {
        let mut groups = Self::default();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut room = MOST_IN_ALL;
        for (rank, file) in files {
            // Calls that it launched behind its oldest open zone are queued behind that zone.
            let open = file.open.as_ref();
            let is_in_work = open.is_some_and(|open| open.comm.is_none() && open.launched);
            let open_in = open.and_then(|open| file.comms.iter().find(|group| open.comm.as_ref() == Some(&group.comm)));
            let waits_for_nobody = file.ended || moved.contains(rank) || is_in_work;
            for group in &file.comms {
                let place = *places.entry(&group.comm).or_insert_with(|| {
                    groups.all.push(Known { comm: &group.comm, ..Known::default() });
                    groups.all.len() - 1
                });
                let known = &mut groups.all[place];
                // A file that names a group twice says nothing more of it.
                if known.of_rank.last().is_some_and(|(last, _)| last == rank) {
                    continue;
                }
                known.of_rank.push((*rank, group));
                known.most_completed = known.most_completed.max(group.completed);
                if waits_for_nobody || open_in.is_some_and(|open_in| open_in.comm != group.comm) {
                    continue;
                }
                if let Some(seq) = pending(file, group) {
                    let open = file.open.as_ref().filter(|open| open.is_in(&group.comm, seq));
                    let transfer = open.and_then(|open| open.kind.as_deref().zip(open.peer));
                    known.waiting.push(Waiting { rank: *rank, seq, is_here: open.is_some(), transfer });
                }
            }
        }
        for known in &mut groups.all {
            // The name has a hash of the members, so all ranks mean the same ones.
            let named = known.of_rank.iter().find_map(|(_, group)| Some((group, group.ranges()?)));
            let Some((group, ranges)) = named else { continue };
            let count: usize = ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum();
            if count > room {
                groups.left_out += 1;
                continue;
            }
            room -= count;
            known.members = group.ranks();
            let has_transfers = known.of_rank.iter().any(|(_, group)| group.has_transfers());
            known.counts_apart = has_transfers && known.members.len() > 2;
        }
        groups
    }
}

impl Known<'_> {
    /// The group as one of its members reports it.
    pub(super) fn reported_by(&self, rank: u32) -> Option<&Group> {
        let at = self.of_rank.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.of_rank[at].1)
    }
}

/// The number that a rank has begun and not completed. What is queued behind it waits for it, not for others. Its
/// oldest open zone says so best.
fn pending(file: &Progress, group: &Group) -> Option<i64> {
    let entered = group.entered?;
    let open = file.open.as_ref().filter(|open| open.comm.as_deref() == Some(&group.comm));
    if let Some(seq) = open.and_then(|open| open.seq).filter(|seq| group.completed < Some(*seq) && *seq <= entered) {
        return Some(seq);
    }
    match group.completed {
        Some(completed) => (entered > completed).then(|| completed.saturating_add(1)),
        // It has completed none: it is in the first that it has entered.
        None => Some(group.first.map_or(entered, |first| first.min(entered))),
    }
}
