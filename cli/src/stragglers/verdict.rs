//! The verdict: the rank that stands out, since when, and what it waited for itself.
//!
//! `warpline_judge` has the rules: which late arrivals stand out, whom a late rank waited for itself, and which ranks are named. Here its model is
//! filled from traces, and its answer becomes sentences.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use warpline_judge::blame::{Cause, History, Loss, Open, Spent, cost, follow, named};
use warpline_judge::{Collectives, Form, Key, LEAST_CALLS, Met, median};

use super::clocks::{Arrival, early_ns};
use super::findings::{Findings, Link, Verdict};
use super::show::{self, Arrived};
use super::{Call, Calls};

/// The most late arrivals that are followed, the latest first.
const FOLLOWED: usize = 10_000;

/// The most collectives of a rank between two of one group that are looked at.
const LOOK_BACK: usize = 1_000;

/// What the verdict is made of.
#[derive(Default)]
pub(super) struct Judged {
    met: Vec<Met>,
    /// The same collectives.
    seen: Vec<Seen>,
    waits: Vec<Waited>,
    /// Further entries of batches, which have the times of the first one.
    pub(super) entries: Vec<Key>,
}

/// Who came last to a collective.
#[derive(Clone, Copy, Debug)]
struct Seen {
    last: Call,
    /// How long the longest wait was, and how uncertain that is; none if it is not certain who came last.
    certain: Option<(i64, i64)>,
    /// How many ranks the group has.
    size: u32,
    late_ns: i64,
    /// Whether all ranks that have a trace came, so that the tables have it.
    is_whole: bool,
}

/// How long a rank waited in a collective in which an end was not timed, as the arrivals tell.
#[derive(Clone, Copy, Debug)]
struct Waited {
    key: (Key, u32),
    least_ns: i64,
    most_ns: i64,
}

impl Judged {
    /// Adds a collective, whose last call has this place among its calls.
    pub(super) fn add(
        &mut self,
        traces: &Calls,
        calls: &[Call],
        arrivals: &[Arrival],
        (place, certain): (usize, Option<(i64, i64)>),
        is_whole: bool,
    ) {
        let (last, at_ns, ranks) = (calls[place], arrivals[place].ns, calls.len() as u32);
        let waits = arrivals.iter().map(|arrival| i128::from(at_ns.saturating_sub(arrival.ns)));
        let late_ns = (waits.sum::<i128>() / i128::from(ranks - 1).max(1)) as i64;
        let least = |of: fn(&Call) -> i64| calls.iter().map(of).min().unwrap_or(0);
        let size = ranks.max(traces.groups[last.group as usize].ranks.len() as u32);
        self.met.push(Met {
            key: last.key(),
            kind: last.kind.as_str(),
            bytes: calls.iter().map(|call| call.bytes).min().unwrap_or(0),
            ranks,
            size,
            rank: who(traces, &last).0.into(),
            begin_ns: last.begin_ns,
            at_ns,
            late_ns,
            err_ns: Arrival::err_ns(arrivals),
            is_certain: certain.is_some(),
            least_ns: least(|call| call.length_ns),
            least_early_ns: least(|call| call.length_ns.saturating_sub(early_ns(call))),
        });
        self.seen.push(Seen { last, certain, size, late_ns, is_whole });
        if calls.iter().any(|call| early_ns(call) > 0) {
            self.waits.extend(calls.iter().zip(arrivals).map(|(call, arrival)| {
                let ns = at_ns.saturating_sub(arrival.ns);
                let uncertain_ns = arrivals[place].uncertain_ns(arrival);
                let key = (call.key(), call.rank);
                Waited { key, least_ns: ns.saturating_sub(uncertain_ns), most_ns: ns.saturating_add(uncertain_ns) }
            }));
        }
    }

    /// Sorts what is looked up.
    fn sort(&mut self) {
        self.seen.sort_unstable_by_key(|seen| seen.last.key());
        self.waits.sort_unstable_by_key(|wait| wait.key);
        self.entries.sort_unstable();
    }

    /// The collective with this key.
    fn seen(&self, key: &Key) -> Option<&Seen> {
        self.seen.binary_search_by_key(key, |seen| seen.last.key()).ok().map(|at| &self.seen[at])
    }

    /// Those of the tables of which it is certain who came last.
    fn certain(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| seen.is_whole && seen.certain.is_some())
    }
}

/// Finds the rank that stands out, and writes the summary. `calls` are in the order in which they were judged.
pub(super) fn conclude(findings: &mut Findings, traces: &Calls, calls: &[Call], labels: &[String], mut judged: Judged) {
    judged.sort();
    let collectives = Collectives::new(std::mem::take(&mut judged.met));
    let history = Calendar::new(traces, calls, &judged);
    let open;
    (findings.verdict, open) = verdict(traces, &collectives, &history, labels);
    let latest = judged.certain().max_by_key(|seen| seen.late_ns);
    findings.summary = match (&findings.verdict, open, latest) {
        (Some(verdict), ..) => verdict.to_string(),
        (None, Some((open, why)), _) => {
            let latest = judged.seen(&open.key).and_then(|seen| arrived(traces, labels, seen));
            latest.map_or_else(String::new, |open| show::may_have_waited(&open, why))
        }
        (None, None, Some(latest)) => none_stands_out(traces, labels, &judged, latest),
        (None, None, None) => show::nothing_is_certain(findings),
    };
}

/// The sentence if no rank stands out.
fn none_stands_out(traces: &Calls, labels: &[String], judged: &Judged, latest: &Seen) -> String {
    let certain = judged.certain().count();
    let usual = |seen: &&Seen| (seen.last.kind, seen.size) == (latest.last.kind, latest.size);
    let usual = judged.seen.iter().filter(usual).count();
    arrived(traces, labels, latest)
        .map_or_else(String::new, |latest| show::none_stands_out(&latest, certain, usual, LEAST_CALLS))
}

/// A late arrival for a sentence, if it is certain.
fn arrived<'a>(traces: &'a Calls, labels: &'a [String], latest: &Seen) -> Option<Arrived<'a>> {
    let (late_by_ns, uncertain_ns) = latest.certain?;
    let (rank, _) = who(traces, &latest.last);
    Some(Arrived {
        rank,
        seq: latest.last.seq,
        replay: (latest.last.turn > 0).then_some(latest.last.turn),
        group: &labels[latest.last.group as usize],
        kind: latest.last.kind.as_str(),
        range: &traces.ranges[latest.last.range as usize],
        bytes: latest.last.bytes,
        late_by_ns,
        uncertain_ns,
    })
}

/// The global rank of a call, and its host.
fn who<'a>(traces: &'a Calls, call: &Call) -> (u32, &'a str) {
    let rank = traces.groups[call.group as usize].in_job(call.rank);
    (rank, &traces.sessions[call.session as usize].host)
}

/// Returns the verdict, and the latest arrival that stands out and whose rank may have waited itself.
fn verdict(
    traces: &Calls,
    collectives: &Collectives,
    history: &Calendar<'_>,
    labels: &[String],
) -> (Option<Verdict>, Option<(Met, Open)>) {
    let mut events = collectives.standing_out();
    events.truncate(FOLLOWED);
    let (mut causes, mut open): (Vec<Cause>, _) = (Vec::new(), None);
    for event in events {
        let followed = follow(collectives, history, &event);
        causes.extend(followed.causes);
        if let Some(why) = followed.open {
            open.get_or_insert((event, why));
        }
    }
    (verdict_of(traces, collectives, history, labels, causes), open)
}

fn verdict_of(
    traces: &Calls,
    collectives: &Collectives,
    history: &Calendar<'_>,
    labels: &[String],
    causes: Vec<Cause>,
) -> Option<Verdict> {
    // Traces do not say in which step a collective is.
    let loss = |cause: &Cause| Loss { rank: cause.met.rank, step: 0, key: cause.met.key, late_ns: cause.late_ns };
    let (named, _) = named(&cost(causes.iter().map(loss)), history.run_ns());
    let rank = named.first()?.rank;
    // One late arrival can hold up several groups, and counts once.
    let mut found: BTreeMap<Key, Cause> = BTreeMap::new();
    for cause in causes.into_iter().filter(|cause| cause.met.rank == rank) {
        match found.get_mut(&cause.met.key) {
            Some(known) if known.late_ns >= cause.late_ns => {}
            _ => drop(found.insert(cause.met.key, cause)),
        }
    }
    // The group in which it cost most.
    let mut by_group: HashMap<u32, Vec<(&Cause, &Seen)>> = HashMap::new();
    for cause in found.values() {
        if let Some(seen) = history.judged.seen(&cause.met.key) {
            by_group.entry(cause.met.key.group).or_default().push((cause, seen));
        }
    }
    let sum = |found: &[(&Cause, &Seen)]| found.iter().map(|(cause, _)| cause.late_ns).fold(0, i64::saturating_add);
    let (group, found) = by_group.into_iter().max_by_key(|(group, found)| (sum(found), Reverse(*group)))?;
    let (worst, seen) = *found.iter().max_by_key(|(cause, _)| (cause.late_ns, Reverse(cause.met.key)))?;
    let when = |seen: &Seen| since_begin(traces, &seen.last);
    let (_, first) = found.iter().min_by_key(|(_, seen)| when(seen))?;
    let (call, through) = (&seen.last, worst.chain.len() - 1);
    let (late_by_ns, uncertain_ns) = match seen.certain {
        Some(certain) if through == 0 => certain,
        // Its own clock shows how long the rank before it in the chain waited.
        _ => (worst.late_ns, 0),
    };
    let in_job = |rank: i64| u32::try_from(rank).unwrap_or(u32::MAX);
    let link = |(met, _): &(Met, i64)| Link {
        group: labels[met.key.group as usize].clone(),
        seq: met.key.seq,
        rank: in_job(met.rank),
    };
    let is_judged = |seen: &&Seen| seen.last.group == group && seen.certain.is_some();
    let judged = history.judged.seen.iter().filter(is_judged);
    Some(Verdict {
        rank: in_job(rank),
        host: who(traces, call).1.to_owned(),
        group: labels[group as usize].clone(),
        times: found.len() as u64,
        judged: judged.filter(|seen| collectives.get(&seen.last.key()).is_some()).count() as u64,
        median_ns: median(&mut found.iter().map(|(cause, _)| cause.late_ns).collect::<Vec<_>>()),
        total_ns: sum(&found),
        since_seq: first.last.seq,
        since_ns: when(first),
        seq: call.seq,
        replay: (call.turn > 0).then_some(call.turn),
        kind: call.kind.as_str(),
        range: traces.ranges[call.range as usize].clone(),
        bytes: (call.bytes > 0).then_some(call.bytes),
        late_by_ns,
        uncertain_ns,
        through: worst.chain[..through].iter().map(link).collect(),
    })
}

/// The time between the begin of the first session and the call, by the wall clocks of the hosts.
fn since_begin(traces: &Calls, call: &Call) -> i64 {
    let first_ns = traces.sessions.iter().map(|session| session.wall_ns).min().unwrap_or_default();
    let session = &traces.sessions[call.session as usize];
    let ahead_ns = session.wall_ns.wrapping_sub(session.boot_ns);
    call.begin_ns.saturating_add(ahead_ns).saturating_sub(first_ns)
}

/// The calls of each rank in the order in which they began.
struct Calendar<'a> {
    traces: &'a Calls,
    calls: &'a [Call],
    judged: &'a Judged,
    /// The global rank and the begin of each call, and its place.
    order: Vec<(i64, i64, u32)>,
}

impl<'a> Calendar<'a> {
    fn new(traces: &'a Calls, calls: &'a [Call], judged: &'a Judged) -> Calendar<'a> {
        let place = |(place, call): (usize, &Call)| (who(traces, call).0.into(), call.begin_ns, place as u32);
        let mut order: Vec<_> = calls.iter().enumerate().map(place).collect();
        order.sort_unstable();
        Calendar { traces, calls, judged, order }
    }

    /// The time of one rank in the run: from the begin of its first call to the end of its last one, on average.
    fn run_ns(&self) -> i64 {
        let of_rank = |calls: &[(i64, i64, u32)]| {
            let ends =
                calls.iter().map(|(_, begin_ns, place)| begin_ns.saturating_add(self.calls[*place as usize].length_ns));
            ends.max().unwrap_or(0).saturating_sub(calls[0].1)
        };
        let (mut sum, mut ranks) = (0_i128, 0);
        for calls in self.order.chunk_by(|a, b| a.0 == b.0) {
            sum += i128::from(of_rank(calls));
            ranks += 1;
        }
        (sum / i128::from(ranks.max(1))) as i64
    }

    fn spent(&self, call: &Call) -> Spent {
        let key = call.key();
        let wait = self.judged.waits.binary_search_by_key(&(key, call.rank), |wait| wait.key);
        Spent {
            key,
            form: Form { group: call.group, kind: call.kind.as_str(), bytes: call.bytes },
            dur_ns: call.length_ns,
            early_ns: call.uncertain_ns,
            arrivals: wait.ok().map(|at| (self.judged.waits[at].least_ns, self.judged.waits[at].most_ns)),
        }
    }
}

impl History for Calendar<'_> {
    fn own_ns(&self, _: i64, _: i64) -> Option<i64> {
        Some(0)
    }

    fn calls_before(&self, rank: i64, at_ns: i64) -> impl Iterator<Item = Spent> {
        let end = self.order.partition_point(|(other, begin_ns, _)| (*other, *begin_ns) < (rank, at_ns));
        let before = self.order[..end].iter().rev().take_while(move |(other, ..)| *other == rank).take(LOOK_BACK);
        let calls = before.map(|(_, _, place)| &self.calls[*place as usize]);
        // In a group of one, a rank waits for nobody.
        let is_alone = |call: &Call| self.traces.groups[call.group as usize].ranks.len() == 1;
        let is_entry = |call: &Call| self.judged.entries.binary_search(&call.key()).is_ok();
        calls.filter(move |call| !is_alone(call) && !is_entry(call)).map(|call| self.spent(call))
    }
}
