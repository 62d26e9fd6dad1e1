//! Matches the collectives of different ranks, and determines which rank was late.

use std::collections::{HashMap, HashSet};

use warpline_core::collective::CollectiveKind;
use warpline_core::record::is_bound;
use warpline_judge::SYNCHRONISING;
use warpline_judge::clocks::Run;

use super::clocks::{Arrival, Clocks};
use super::findings::{Findings, Group, Late, LeftOut, Mismatch, Rank, RankKind};
use super::verdict::{Judged, conclude};
use super::{Call, Calls, GroupInfo, lives};

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
        Broadcast | Reduce | Gather | Scatter => Waits::Some,
        kind if SYNCHRONISING.contains(&kind.as_str()) => Waits::All,
        // Two peers, or a kind that this version does not know.
        _ => Waits::Pair,
    }
}

impl Calls {
    /// Matches and judges the collectives; `top` limits the number of worst ones.
    pub fn judge(mut self, top: usize) -> Findings {
        let mut calls = std::mem::take(&mut self.calls);
        let earlier = lives::keep_last(&self, &mut calls);
        number_replays(&mut calls);
        // Fully ordered, so that the result does not depend on the order of the files.
        calls.sort_unstable_by_key(|call| (call.group, call.turn, call.seq, call.rank, call.begin_ns));
        let labels = labels(&self.groups);
        let clocks = Clocks::estimate(&self.sessions);
        let mut findings = Findings {
            version: 3,
            summary: String::new(),
            verdict: None,
            worst: Vec::new(),
            ranks: Vec::new(),
            groups: Vec::new(),
            mismatches: Vec::new(),
            earlier,
        };
        let mut judged = Judged::default();
        let groups = calls.chunk_by(|a, b| a.group == b.group);
        let sorted = groups.map(|calls| Judge::new(&self, calls, &labels).sort(calls, &mut findings, &mut judged));
        let sorted: Vec<Judge<'_>> = sorted.collect();
        // All groups together say how far the clocks are apart.
        let met = || sorted.iter().flat_map(|group| group.whole.iter().chain(&group.partial));
        let run = clocks.compare(met().copied());
        for group in sorted {
            group.judge(&clocks, &run, top, &mut findings, &mut judged);
        }
        sort(&mut findings.worst, top);
        findings
            .ranks
            .sort_by(|a, b| b.waited_ns.cmp(&a.waited_ns).then_with(|| (&a.group, a.rank).cmp(&(&b.group, b.rank))));
        findings.groups.sort_by(|a, b| a.group.cmp(&b.group));
        conclude(&mut findings, &self, &calls, &labels, judged);
        findings
    }
}

/// Counts the replays of each captured collective of a rank, in the order in which they ran. If the ranks have replayed
/// one differently often, it is unknown which replays belong together.
fn number_replays(calls: &mut [Call]) {
    calls.sort_unstable_by_key(|call| (call.is_replayed, call.group, call.seq, call.rank, call.begin_ns));
    let first = calls.partition_point(|call| !call.is_replayed);
    for calls in calls[first..].chunk_by_mut(|a, b| (a.group, a.seq) == (b.group, b.seq)) {
        let mut counts = calls.chunk_by(|a, b| a.rank == b.rank).map(<[Call]>::len);
        let count = counts.next();
        let is_unmatched = counts.any(|other| Some(other) != count);
        for calls in calls.chunk_by_mut(|a, b| a.rank == b.rank) {
            for (turn, call) in (1..).zip(calls) {
                (call.turn, call.is_unmatched) = (turn, is_unmatched);
            }
        }
    }
}

/// Keeps the worst `top` collectives, worst first.
fn sort(worst: &mut Vec<Late>, top: usize) {
    let place = |late: &Late| (late.group.clone(), late.seq, late.replay);
    worst.sort_by(|a, b| b.late_by_ns.cmp(&a.late_by_ns).then_with(|| place(a).cmp(&place(b))));
    worst.truncate(top);
}

/// Returns the label of each group. Groups of several communicators can have one name, because each numbers its ranks
/// from 0.
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
    group: &'a GroupInfo,
    label: String,
    /// The ranks that have a trace.
    members: Vec<Member>,
    /// The collectives that all of them have.
    whole: Vec<&'a [Call]>,
    /// The number of collectives that lack some of them.
    partial: Vec<&'a [Call]>,
    judged: u64,
    left_out: LeftOut,
    uncertain_ends_ns: i64,
}

/// How often a rank was late, and how long the others waited: for certain, and as far as the ends tell.
#[derive(Clone, Copy, Default)]
struct Member {
    rank: u32,
    late: u64,
    waited_ns: i64,
    likely: u64,
    likely_ns: i64,
}

impl<'a> Judge<'a> {
    fn new(traces: &'a Calls, calls: &[Call], labels: &[String]) -> Judge<'a> {
        let group = calls[0].group as usize;
        let mut members: Vec<_> = calls.iter().map(|call| call.rank).collect();
        members.sort_unstable();
        members.dedup();
        let (whole, partial) = (Vec::new(), Vec::new());
        Judge {
            traces,
            group: &traces.groups[group],
            label: labels[group].clone(),
            members: members.into_iter().map(|rank| Member { rank, ..Member::default() }).collect(),
            whole,
            partial,
            judged: 0,
            left_out: LeftOut::default(),
            uncertain_ends_ns: 0,
        }
    }

    /// Sets aside what cannot be judged.
    fn sort(mut self, calls: &'a [Call], findings: &mut Findings, judged: &mut Judged) -> Judge<'a> {
        for calls in calls.chunk_by(|a, b| (a.turn, a.seq) == (b.turn, b.seq)) {
            if self.members.len() == 1 {
                break;
            }
            if let Some(left_out) = self.why_not(calls, findings) {
                *left_out += 1;
            } else if calls.len() < self.members.len() {
                self.left_out.incomplete += 1;
                if calls.len() > 1 {
                    self.partial.push(calls);
                }
            } else if self.whole.last().is_some_and(|before| is_same_batch(before, calls)) {
                self.left_out.batch_entries += 1;
                judged.entries.push(calls[0].key());
            } else {
                self.whole.push(calls);
            }
        }
        self
    }

    /// Judges the rest.
    fn judge(mut self, clocks: &Clocks, run: &Run, top: usize, findings: &mut Findings, judged: &mut Judged) {
        for calls in std::mem::take(&mut self.whole) {
            self.one(calls, &clocks.arrivals(run, calls), findings, judged);
            if findings.worst.len() >= top.saturating_mul(2).saturating_add(1 << 10) {
                sort(&mut findings.worst, top);
            }
        }
        for calls in std::mem::take(&mut self.partial) {
            let arrivals = clocks.arrivals(run, calls);
            if let Some(last) = last_of(&arrivals) {
                judged.add(self.traces, calls, &arrivals, last, false);
            }
        }
        self.end(findings);
    }

    /// Returns the counter of the reason why the collective is not judged, if there is one.
    fn why_not(&mut self, calls: &[Call], findings: &mut Findings) -> Option<&mut u64> {
        let left_out = &mut self.left_out;
        let all = |wanted| calls.iter().all(|call| waits(call.kind) == wanted);
        if all(Waits::Pair) {
            Some(&mut left_out.point_to_point)
        } else if calls.windows(2).any(|two| two[0].rank == two[1].rank) {
            Some(&mut left_out.repeated)
        } else if calls.iter().any(|call| call.kind != calls[0].kind) {
            if findings.mismatches.len() < MISMATCHES {
                let kind = |call: &Call| RankKind { rank: self.group.in_job(call.rank), kind: call.kind.as_str() };
                let (group, seq) = (self.label.clone(), calls[0].seq);
                findings.mismatches.push(Mismatch { group, seq, calls: calls.iter().map(kind).collect() });
            }
            Some(&mut left_out.mismatched)
        } else if all(Waits::Some) {
            Some(&mut left_out.rooted)
        } else if calls.iter().any(|call| call.failed) {
            Some(&mut left_out.failed)
        } else {
            calls.iter().any(|call| call.is_unmatched).then_some(&mut left_out.incomplete)
        }
    }

    /// Judges a collective in which all ranks took part. The calls are in the order of `members`.
    fn one(&mut self, calls: &[Call], arrivals: &[Arrival], findings: &mut Findings, judged: &mut Judged) {
        let Some((place, certain)) = last_of(arrivals) else { return };
        let last = &arrivals[place];
        let (ends_differ_by_ns, ends_differ_is_bound) = ends_differ(calls, arrivals);
        let one_clock = arrivals.iter().all(|arrival| arrival.shares_a_clock(last));
        judged.add(self.traces, calls, arrivals, (place, certain), true);
        let Some((late_by_ns, uncertain_ns)) = certain else {
            if one_clock {
                self.left_out.too_close += 1;
                return;
            }
            self.left_out.uncertain += 1;
            self.uncertain_ends_ns = self.uncertain_ends_ns.max(ends_differ_by_ns);
            let likely = longest_wait(arrivals, last, Arrival::likely_ns);
            if let Some((late_by_ns, _)) = likely.filter(|(late_by_ns, uncertain_ns)| late_by_ns > uncertain_ns) {
                let member = &mut self.members[place];
                member.likely += 1;
                member.likely_ns = member.likely_ns.saturating_add(late_by_ns);
            }
            return;
        };
        let as_late = |other: &&Arrival| last.ns.saturating_sub(other.ns) <= last.uncertain_ns(other);
        let as_late = arrivals.iter().filter(as_late).count() as u64 - 1;
        let call = &calls[place];
        self.judged += 1;
        let member = &mut self.members[place];
        member.late += 1;
        member.waited_ns = member.waited_ns.saturating_add(late_by_ns);
        findings.worst.push(Late {
            group: self.label.clone(),
            kind: call.kind.as_str(),
            seq: call.seq,
            replay: (call.turn > 0).then_some(call.turn),
            late_rank: self.group.in_job(call.rank),
            as_late,
            late_by_ns,
            uncertain_ns,
            ends_differ_by_ns,
            ends_differ_is_bound,
            one_clock,
            range: self.traces.ranges[call.range as usize].clone(),
            bytes: (call.bytes > 0).then_some(call.bytes),
        });
    }

    fn end(self, findings: &mut Findings) {
        let Judge { group, label, members, judged, left_out, uncertain_ends_ns, .. } = self;
        let ranks: Vec<u32> = members.iter().map(|member| group.in_job(member.rank)).collect();
        let have: HashSet<u32> = ranks.iter().copied().collect();
        let missing = group.ranks.iter().copied().filter(|rank| !have.contains(rank)).collect();
        if ranks.len() > 1 {
            let rank = |(rank, member): (&u32, &Member)| {
                let Member { late, waited_ns, likely, likely_ns, .. } = *member;
                Rank { group: label.clone(), rank: *rank, late, judged, waited_ns, likely, likely_ns }
            };
            findings.ranks.extend(ranks.iter().zip(&members).map(rank));
        }
        let comm_id = group.comm_id;
        findings.groups.push(Group { group: label, comm_id, ranks, missing, judged, left_out, uncertain_ends_ns });
    }
}

/// The place of the last arrival, and the length of the longest wait for it with its uncertainty; none if it is not
/// certain which rank came last.
fn last_of(arrivals: &[Arrival]) -> Option<(usize, Option<(i64, i64)>)> {
    // The first of several that came at once.
    let (place, last) = arrivals.iter().enumerate().rev().max_by_key(|(_, arrival)| arrival.ns)?;
    let longest = longest_wait(arrivals, last, Arrival::uncertain_ns);
    Some((place, longest.filter(|(late_by_ns, uncertain_ns)| late_by_ns > uncertain_ns)))
}

/// The time between the first and the last end, and whether that is only a bound: an end may be earlier than it was
/// seen.
fn ends_differ(calls: &[Call], arrivals: &[Arrival]) -> (i64, bool) {
    let (mut first, mut earliest, mut last) = (i64::MAX, i64::MAX, i64::MIN);
    for (call, arrival) in calls.iter().zip(arrivals) {
        let end = arrival.ns.saturating_add(call.length_ns);
        (first, last) = (first.min(end), last.max(end));
        earliest = earliest.min(end.saturating_sub(call.uncertain_ns));
    }
    let most = last.saturating_sub(earliest);
    match is_bound(most, first.saturating_sub(earliest)) {
        true => (most, true),
        false => (last.saturating_sub(first), false),
    }
}

/// How long the rank that certainly waited longest waited for the last one, and how uncertain that is. One with the
/// same clock can give more certainty than an earlier one with an uncertain clock.
fn longest_wait(arrivals: &[Arrival], last: &Arrival, uncertain: fn(&Arrival, &Arrival) -> i64) -> Option<(i64, i64)> {
    let waited = |other: &Arrival| (last.ns.saturating_sub(other.ns), uncertain(last, other));
    arrivals.iter().map(waited).max_by_key(|(late_by_ns, uncertain_ns)| late_by_ns.saturating_sub(*uncertain_ns))
}

/// Returns whether each rank has the same times in both collectives.
fn is_same_batch(before: &[Call], calls: &[Call]) -> bool {
    let times = |call: &Call| (call.rank, call.begin_ns, call.length_ns);
    before.len() == calls.len() && before.iter().map(times).eq(calls.iter().map(times))
}
