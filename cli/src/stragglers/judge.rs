//! Matches the collectives of different ranks, and determines which rank was late.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use warpline_core::collective::CollectiveKind;

use super::clocks::{Arrival, Clocks, Offsets};
use super::{Call, Calls, GroupInfo};

/// The findings from all traces. `docs/collectives.md` describes their JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// The version of the JSON format.
    pub version: u32,
    /// The collectives with the longest delays, longest first.
    pub worst: Vec<Late>,
    /// How often each rank was late, in descending order of the time that others waited for it.
    pub ranks: Vec<Rank>,
    /// The process groups, with counts of the collectives that could not be judged.
    pub groups: Vec<Group>,
    /// The first collectives whose ranks call different operations with one sequence number.
    pub mismatches: Vec<Mismatch>,
}

/// A collective for which one rank came last.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Late {
    /// The process group.
    pub group: String,
    /// The operation.
    pub kind: &'static str,
    /// The sequence number in the group.
    pub seq: u64,
    /// The global rank of the rank that came last.
    pub late_rank: u32,
    /// How many other ranks came equally late within the uncertainty of the clocks.
    pub as_late: u64,
    /// The lateness in ns, relative to the rank that certainly waited longest. It is greater than `uncertain_ns`.
    pub late_by_ns: i64,
    /// The uncertainty of `late_by_ns`, in ns, from the clocks of the two ranks.
    pub uncertain_ns: i64,
    /// The time between the first and the last end, in ns.
    pub ends_differ_by_ns: i64,
    /// Whether all ranks share a clock, so that no offset is estimated.
    pub one_clock: bool,
    /// The late rank's range.
    pub range: String,
}

/// How often one rank of a group came last.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rank {
    /// The process group.
    pub group: String,
    /// The global rank.
    pub rank: u32,
    /// The number of collectives in which it came last.
    pub late: u64,
    /// The number of collectives that were judged.
    pub judged: u64,
    /// The sum of `late_by_ns` over the collectives in which it came last, in ns.
    pub waited_ns: i64,
}

/// A process group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// The name of the group in traces, with the communicator id if another group has the same name and ranks.
    pub group: String,
    /// The communicator id, if the program gave one.
    pub comm_id: Option<u64>,
    /// The global ranks that have a trace.
    pub ranks: Vec<u32>,
    /// The global ranks that have no trace.
    pub missing: Vec<u32>,
    /// The number of collectives that were judged.
    pub judged: u64,
    /// The numbers of collectives that were not judged, by reason.
    pub left_out: LeftOut,
    /// The greatest time between the first and the last end of a collective in `left_out.uncertain`, in ns.
    pub uncertain_ends_ns: i64,
}

/// The reasons why collectives are not judged. Except for `batch_entries`, each sequence number of a group counts once for all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Further entries of a batch. They have the times of its first entry, which was judged.
    pub batch_entries: u64,
    /// The ranks share a clock and arrived at the same time within its uncertainty.
    pub too_close: u64,
    /// The ranks share no clock, and the uncertainty of the offsets does not allow a decision.
    pub uncertain: u64,
    /// `broadcast`, `reduce`, `gather`, `scatter`: not every rank waits for the others.
    pub rooted: u64,
    /// `send`, `recv` and other operations between two peers.
    pub point_to_point: u64,
    /// Some rank lacks the sequence number: it was dropped, or the rank did not reach it.
    pub incomplete: u64,
    /// One rank has the sequence number twice.
    pub repeated: u64,
    /// The collective ended with an error or a panic.
    pub failed: u64,
    /// The ranks do not call the same operation.
    pub mismatched: u64,
}

/// Ranks that call different operations with one sequence number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Mismatch {
    /// The process group.
    pub group: String,
    /// The sequence number in the group.
    pub seq: u64,
    /// The operation of each rank.
    pub calls: Vec<RankKind>,
}

/// The operation that one rank calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankKind {
    /// The global rank.
    pub rank: u32,
    /// The operation.
    pub kind: &'static str,
}

/// The most mismatches that are listed individually.
const MISMATCHES: usize = 5;

/// Which ranks wait in a collective.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    /// Every rank waits for all others.
    All,
    /// Not every rank waits: a root continues after it has sent, and so does a rank that has sent its part to the root.
    Some,
    /// One peer waits for the other.
    Pair,
}

fn waits(kind: CollectiveKind) -> Waits {
    use CollectiveKind::*;
    match kind {
        AllReduce | AllGather | AllGatherV | ReduceScatter | AllToAll => Waits::All,
        Broadcast | Reduce | Gather | Scatter => Waits::Some,
        // Two peers, or a kind that this version does not know.
        _ => Waits::Pair,
    }
}

impl Calls {
    /// Matches and judges the collectives; `top` limits the number of worst ones.
    pub fn judge(mut self, top: usize) -> Findings {
        // Fully ordered, so that the result does not depend on the order of the files.
        self.calls.sort_unstable_by_key(|call| (call.group, call.seq, call.rank, call.begin_ns));
        let calls = std::mem::take(&mut self.calls);
        let labels = labels(&self.groups);
        let clocks = Clocks::estimate(&self.sessions);
        let mut findings =
            Findings { version: 2, worst: Vec::new(), ranks: Vec::new(), groups: Vec::new(), mismatches: Vec::new() };
        for calls in calls.chunk_by(|a, b| a.group == b.group) {
            let label = labels[calls[0].group as usize].clone();
            Judge::new(&self, &clocks, calls, label, &mut findings).all(calls, top);
        }
        sort(&mut findings.worst, top);
        findings
            .ranks
            .sort_by(|a, b| b.waited_ns.cmp(&a.waited_ns).then_with(|| (&a.group, a.rank).cmp(&(&b.group, b.rank))));
        findings.groups.sort_by(|a, b| a.group.cmp(&b.group));
        findings
    }
}

/// Keeps the worst `top` collectives, worst first.
fn sort(worst: &mut Vec<Late>, top: usize) {
    worst.sort_by(|a, b| b.late_by_ns.cmp(&a.late_by_ns).then_with(|| (&a.group, a.seq).cmp(&(&b.group, b.seq))));
    worst.truncate(top);
}

/// Returns the label of each group. Groups of several communicators can have one name, because each numbers its ranks from 0.
fn labels(groups: &[GroupInfo]) -> Vec<String> {
    let mut labels: Vec<String> = groups.iter().map(GroupInfo::label).collect();
    let mut times = HashMap::new();
    for label in &labels {
        *times.entry(label.clone()).or_insert(0) += 1;
    }
    for (label, group) in labels.iter_mut().zip(groups) {
        if let (Some(2..), Some(id)) = (times.get(label), group.comm_id) {
            *label += &format!(" #{id}");
        }
    }
    labels
}

/// Judges the collectives of one group.
struct Judge<'a> {
    traces: &'a Calls,
    clocks: &'a Clocks,
    group: &'a GroupInfo,
    label: String,
    /// The ranks that have a trace, with how often each was late and how long the others waited.
    members: Vec<(u32, u64, i64)>,
    judged: u64,
    left_out: LeftOut,
    uncertain_ends_ns: i64,
    findings: &'a mut Findings,
}

impl<'a> Judge<'a> {
    fn new(
        traces: &'a Calls,
        clocks: &'a Clocks,
        calls: &[Call],
        label: String,
        findings: &'a mut Findings,
    ) -> Judge<'a> {
        let group = &traces.groups[calls[0].group as usize];
        let mut members: Vec<_> = calls.iter().map(|call| call.rank).collect();
        members.sort_unstable();
        members.dedup();
        let members = members.into_iter().map(|rank| (rank, 0, 0)).collect();
        let (left_out, uncertain_ends_ns) = (LeftOut::default(), 0);
        Judge { traces, clocks, group, label, members, judged: 0, left_out, uncertain_ends_ns, findings }
    }

    fn all(mut self, calls: &[Call], top: usize) {
        let mut whole: Vec<&[Call]> = Vec::new();
        for calls in calls.chunk_by(|a, b| a.seq == b.seq) {
            if self.members.len() == 1 {
                break;
            }
            if let Some(left_out) = self.why_not(calls) {
                *left_out += 1;
            } else if whole.last().is_some_and(|before| is_same_batch(before, calls)) {
                self.left_out.batch_entries += 1;
            } else {
                whole.push(calls);
            }
        }
        let clocks = self.clocks;
        for (block, offsets) in Offsets::blocks(clocks, &whole) {
            for calls in block {
                self.one(calls, &offsets);
                if self.findings.worst.len() >= top.saturating_mul(2).saturating_add(1 << 10) {
                    sort(&mut self.findings.worst, top);
                }
            }
        }
        self.end();
    }

    /// Returns the counter of the reason why the collective is not judged, if there is one.
    fn why_not(&mut self, calls: &[Call]) -> Option<&mut u64> {
        let left_out = &mut self.left_out;
        let all = |wanted| calls.iter().all(|call| waits(call.kind) == wanted);
        if all(Waits::Pair) {
            Some(&mut left_out.point_to_point)
        } else if calls.windows(2).any(|two| two[0].rank == two[1].rank) {
            Some(&mut left_out.repeated)
        } else if calls.iter().any(|call| call.kind != calls[0].kind) {
            if self.findings.mismatches.len() < MISMATCHES {
                let kind = |call: &Call| RankKind { rank: self.group.in_job(call.rank), kind: call.kind.as_str() };
                let (group, seq) = (self.label.clone(), calls[0].seq);
                self.findings.mismatches.push(Mismatch { group, seq, calls: calls.iter().map(kind).collect() });
            }
            Some(&mut left_out.mismatched)
        } else if all(Waits::Some) {
            Some(&mut left_out.rooted)
        } else if calls.iter().any(|call| call.failed) {
            Some(&mut left_out.failed)
        } else {
            (calls.len() < self.members.len()).then_some(&mut left_out.incomplete)
        }
    }

    /// Judges a collective in which all ranks took part. The calls are in the order of `members`.
    fn one(&mut self, calls: &[Call], offsets: &Offsets) {
        let arrivals: Vec<Arrival> = calls.iter().map(|call| offsets.arrival(self.clocks, call)).collect();
        let by_time = |(_, arrival): &(usize, &Arrival)| arrival.ns;
        let ends = calls.iter().zip(&arrivals).map(|(call, arrival)| arrival.ns.saturating_add(call.length_ns));
        let (first_end, last_end) = ends.fold((i64::MAX, i64::MIN), |(a, b), end| (a.min(end), b.max(end)));
        let ends_differ_by_ns = last_end.saturating_sub(first_end);
        let Some((place, last)) = arrivals.iter().enumerate().max_by_key(by_time) else { return };
        // Take the rank that certainly waited longest: one with the same clock can give more certainty than an earlier one with an
        // uncertain clock.
        let waited = |other: &Arrival| (last.ns.saturating_sub(other.ns), last.uncertain_ns(other));
        let surely = |(late_by_ns, uncertain_ns): &(i64, i64)| late_by_ns.saturating_sub(*uncertain_ns);
        let Some((late_by_ns, uncertain_ns)) = arrivals.iter().map(waited).max_by_key(surely) else { return };
        let one_clock = arrivals.iter().all(|arrival| arrival.shares_a_clock(last));
        if late_by_ns <= uncertain_ns {
            if one_clock {
                self.left_out.too_close += 1;
            } else {
                self.left_out.uncertain += 1;
                self.uncertain_ends_ns = self.uncertain_ends_ns.max(ends_differ_by_ns);
            }
            return;
        }
        let as_late = |other: &&Arrival| last.ns.saturating_sub(other.ns) <= last.uncertain_ns(other);
        let as_late = arrivals.iter().filter(as_late).count() as u64 - 1;
        let call = &calls[place];
        self.judged += 1;
        let (_, late, waited_ns) = &mut self.members[place];
        *late += 1;
        *waited_ns = waited_ns.saturating_add(late_by_ns);
        self.findings.worst.push(Late {
            group: self.label.clone(),
            kind: call.kind.as_str(),
            seq: call.seq,
            late_rank: self.group.in_job(call.rank),
            as_late,
            late_by_ns,
            uncertain_ns,
            ends_differ_by_ns,
            one_clock,
            range: self.traces.ranges[call.range as usize].clone(),
        });
    }

    fn end(self) {
        let Judge { group, label, members, judged, left_out, uncertain_ends_ns, findings, .. } = self;
        let ranks: Vec<u32> = members.iter().map(|(rank, ..)| group.in_job(*rank)).collect();
        let have: HashSet<u32> = ranks.iter().copied().collect();
        let missing = group.ranks.iter().copied().filter(|rank| !have.contains(rank)).collect();
        if ranks.len() > 1 {
            findings.ranks.extend(ranks.iter().zip(members).map(|(rank, (_, late, waited_ns))| Rank {
                group: label.clone(),
                rank: *rank,
                late,
                judged,
                waited_ns,
            }));
        }
        let comm_id = group.comm_id;
        findings.groups.push(Group { group: label, comm_id, ranks, missing, judged, left_out, uncertain_ends_ns });
    }
}

/// Returns whether each rank has the same times in both collectives.
fn is_same_batch(before: &[Call], calls: &[Call]) -> bool {
    let times = |call: &Call| (call.rank, call.begin_ns, call.length_ns);
    before.len() == calls.len() && before.iter().map(times).eq(calls.iter().map(times))
}
