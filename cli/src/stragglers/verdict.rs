//! The verdict: the rank that stands out, since when, and what it waited for itself.
//!
//! In every collective some rank comes last, so the last one is no finding. A late arrival stands out if it is far later than such
//! collectives usually are, or if the same rank is last again and again, as in `warpline-ranks`. Then the verdict goes back from the late
//! arrival: if the late rank had itself waited in a collective of another group for most of that time, the rank that it waited for is the
//! cause. An end that was not timed shows only between what and what that wait was; then the arrivals at that collective narrow it, and what
//! remains open makes no verdict.

use std::cmp::Reverse;
use std::collections::HashMap;

use warpline_core::collective::CollectiveKind;
use warpline_core::record::is_bound;

use super::clocks::Arrival;
use super::findings::{Findings, Link, Verdict};
use super::show::{self, Arrived};
use super::{Call, Calls};

/// Robust deviations beyond what is usual.
const DEVIATIONS: f64 = 10.0;

/// Deviations of a binomial count beyond which a rank is not last by chance.
const NOT_BY_CHANCE: f64 = 6.0;

/// The number of collectives of one kind and group that shows what is usual.
const LEAST_CALLS: usize = 10;

/// A smaller lateness never matters.
const LEAST_NS: i64 = 50_000;

/// The most late arrivals that are followed, the latest first.
const FOLLOWED: usize = 10_000;

/// The longest chain of ranks that waited for one another.
const LONGEST: usize = 32;

/// The most collectives of a rank between two of one group that are looked at.
const LOOK_BACK: usize = 1_000;

/// A collective in which all ranks took part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    group: u32,
    turn: u64,
    seq: u64,
    /// Who came last, and its place among the calls.
    last: Call,
    /// How much later than the median of the others.
    late_ns: i64,
    /// How long the longest wait was, and how uncertain that is; none if it is not certain who came last.
    certain: Option<(i64, i64)>,
    /// The shortest call: that of a rank that did not wait. If its end was not timed, it may have been as short as `least_early_ns`.
    least_ns: i64,
    least_early_ns: i64,
    ranks: u32,
}

/// How long a rank waited in a collective in which an end was not timed, as the arrivals tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    key: (u32, u64, u64, u32),
    least_ns: i64,
    most_ns: i64,
}

impl Waited {
    /// Adds the waits of a collective, if an end of it was not timed.
    pub(super) fn add(calls: &[Call], arrivals: &[Arrival], last: &Arrival, waits: &mut Vec<Waited>) {
        if calls.iter().all(|call| early_ns(call) == 0) {
            return;
        }
        waits.extend(calls.iter().zip(arrivals).map(|(call, arrival)| {
            let (ns, uncertain_ns) = (last.ns.saturating_sub(arrival.ns), last.uncertain_ns(arrival));
            let key = (call.group, call.turn, call.seq, call.rank);
            Waited { key, least_ns: ns.saturating_sub(uncertain_ns), most_ns: ns.saturating_add(uncertain_ns) }
        }));
    }
}

/// By how much the call may have ended earlier, if that is much of its length.
fn early_ns(call: &Call) -> i64 {
    if is_bound(call.length_ns, call.uncertain_ns) { call.uncertain_ns } else { 0 }
}

impl Met {
    pub(super) fn new(calls: &[Call], place: usize, arrivals: &[Arrival], certain: Option<(i64, i64)>) -> Met {
        let (last, at_ns) = (calls[place], arrivals[place].ns);
        let others = arrivals.iter().enumerate().filter(|(other, _)| *other != place);
        let mut waits: Vec<i64> = others.map(|(_, arrival)| at_ns.saturating_sub(arrival.ns)).collect();
        let least_ns = calls.iter().map(|call| call.length_ns).min().unwrap_or(0);
        let least_early_ns = calls.iter().map(|call| call.length_ns.saturating_sub(early_ns(call))).min().unwrap_or(0);
        Met {
            group: last.group,
            turn: last.turn,
            seq: last.seq,
            last,
            late_ns: median(&mut waits),
            certain,
            least_ns,
            least_early_ns,
            ranks: calls.len() as u32,
        }
    }

    fn key(&self) -> (u32, u64, u64) {
        (self.group, self.turn, self.seq)
    }
}

/// The lower of the two middle numbers.
fn median(values: &mut [i64]) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}

/// A late arrival that stands out, followed to its cause.
struct Followed {
    /// The late arrival that was seen first, and those on the way to the cause; the last one is the cause.
    chain: Vec<Met>,
    late_ns: i64,
}

impl Followed {
    fn cause(&self) -> &Met {
        &self.chain[self.chain.len() - 1]
    }
}

/// Finds the rank that stands out, and writes the summary. `calls` are in the order in which they were judged.
pub(super) fn conclude(
    findings: &mut Findings,
    traces: &Calls,
    calls: &[Call],
    labels: &[String],
    mut met: Vec<Met>,
    mut waits: Vec<Waited>,
) {
    met.sort_unstable_by_key(Met::key);
    waits.sort_unstable_by_key(|wait| wait.key);
    let history = History::new(traces, calls, &met, &waits);
    let open;
    (findings.verdict, open) = verdict(traces, &history, labels, &met);
    let latest = met.iter().filter(|met| met.certain.is_some()).max_by_key(|met| met.late_ns);
    findings.summary = match (&findings.verdict, open, latest) {
        (Some(verdict), ..) => verdict.to_string(),
        (None, Some(open), _) => {
            arrived(traces, labels, &open).map_or_else(String::new, |open| show::may_have_waited(&open))
        }
        (None, None, Some(latest)) => none_stands_out(traces, labels, &met, latest),
        (None, None, None) => show::nothing_is_certain(findings),
    };
}

/// The sentence if no rank stands out.
fn none_stands_out(traces: &Calls, labels: &[String], met: &[Met], latest: &Met) -> String {
    let certain = met.iter().filter(|met| met.certain.is_some()).count();
    let usual = met.iter().filter(|met| (met.group, met.last.kind) == (latest.group, latest.last.kind)).count();
    arrived(traces, labels, latest)
        .map_or_else(String::new, |latest| show::none_stands_out(&latest, certain, usual, LEAST_CALLS))
}

/// A late arrival for a sentence, if it is certain.
fn arrived<'a>(traces: &'a Calls, labels: &'a [String], latest: &Met) -> Option<Arrived<'a>> {
    let (late_by_ns, uncertain_ns) = latest.certain?;
    let (rank, _) = who(traces, &latest.last);
    Some(Arrived {
        rank,
        seq: latest.seq,
        replay: (latest.turn > 0).then_some(latest.turn),
        group: &labels[latest.group as usize],
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
fn verdict(traces: &Calls, history: &History<'_>, labels: &[String], met: &[Met]) -> (Option<Verdict>, Option<Met>) {
    let mut events = standing_out(met);
    events.sort_unstable_by_key(|event| (Reverse(event.late_ns), event.key()));
    events.truncate(FOLLOWED);
    let mut open = None;
    let followed: Vec<Followed> = events
        .into_iter()
        .filter_map(|event| {
            let followed = history.follow(event);
            if followed.is_none() {
                open.get_or_insert(event);
            }
            followed
        })
        .collect();
    (verdict_of(traces, labels, met, &followed), open)
}

fn verdict_of(traces: &Calls, labels: &[String], met: &[Met], followed: &[Followed]) -> Option<Verdict> {
    // One late arrival can hold up several groups, and counts once.
    let mut causes: HashMap<u32, HashMap<(u32, u64, u64), &Followed>> = HashMap::new();
    for one in followed {
        let known = causes.entry(who(traces, &one.cause().last).0).or_default().entry(one.cause().key()).or_insert(one);
        if known.late_ns < one.late_ns {
            *known = one;
        }
    }
    let total = |found: &HashMap<_, &Followed>| found.values().map(|one| one.late_ns).fold(0, i64::saturating_add);
    let (rank, found) = causes.into_iter().max_by_key(|(rank, found)| (total(found), Reverse(*rank)))?;
    // The group in which it cost most.
    let mut by_group: HashMap<u32, Vec<&Followed>> = HashMap::new();
    found.into_values().for_each(|one| by_group.entry(one.cause().group).or_default().push(one));
    let sum = |found: &[&Followed]| found.iter().map(|one| one.late_ns).fold(0, i64::saturating_add);
    let (group, found) = by_group.into_iter().max_by_key(|(group, found)| (sum(found), Reverse(*group)))?;
    let worst = found.iter().max_by_key(|one| (one.late_ns, Reverse(one.cause().seq)))?;
    let when = |one: &&&Followed| since_begin(traces, &one.cause().last);
    let first = found.iter().min_by_key(when)?;
    let (cause, call) = (worst.cause(), &worst.cause().last);
    let (late_by_ns, uncertain_ns) = match cause.certain {
        Some(certain) if worst.chain.len() == 1 => certain,
        // Its own clock shows how long the rank before it in the chain waited.
        _ => (worst.late_ns, 0),
    };
    let link =
        |met: &Met| Link { group: labels[met.group as usize].clone(), seq: met.seq, rank: who(traces, &met.last).0 };
    Some(Verdict {
        rank,
        host: who(traces, call).1.to_owned(),
        group: labels[group as usize].clone(),
        times: found.len() as u64,
        judged: met.iter().filter(|met| met.group == group && met.certain.is_some()).count() as u64,
        median_ns: median(&mut found.iter().map(|one| one.late_ns).collect::<Vec<_>>()),
        total_ns: sum(&found),
        since_seq: first.cause().seq,
        since_ns: when(&first),
        seq: cause.seq,
        replay: (cause.turn > 0).then_some(cause.turn),
        kind: call.kind.as_str(),
        range: traces.ranges[call.range as usize].clone(),
        bytes: (call.bytes > 0).then_some(call.bytes),
        late_by_ns,
        uncertain_ns,
        through: worst.chain[..worst.chain.len() - 1].iter().map(link).collect(),
    })
}

/// The time between the begin of the first session and the call, by the wall clocks of the hosts.
fn since_begin(traces: &Calls, call: &Call) -> i64 {
    let first_ns = traces.sessions.iter().map(|session| session.wall_ns).min().unwrap_or_default();
    let session = &traces.sessions[call.session as usize];
    let ahead_ns = session.wall_ns.wrapping_sub(session.boot_ns);
    call.begin_ns.saturating_add(ahead_ns).saturating_sub(first_ns)
}

/// The late arrivals that are certain and stand out.
fn standing_out(met: &[Met]) -> Vec<Met> {
    let floor = |met: &Met| met.certain.map(|(_, uncertain_ns)| LEAST_NS.max(uncertain_ns));
    let mut shapes: HashMap<(u32, CollectiveKind), Vec<i64>> = HashMap::new();
    let mut last: HashMap<(u32, u32), Vec<i64>> = HashMap::new();
    let mut calls_of: HashMap<u32, usize> = HashMap::new();
    for met in met {
        shapes.entry((met.group, met.last.kind)).or_default().push(met.late_ns);
        *calls_of.entry(met.group).or_default() += 1;
        if floor(met).is_some_and(|floor| met.late_ns > floor) {
            last.entry((met.group, met.last.rank)).or_default().push(met.late_ns);
        }
    }
    // A few calls have no usual.
    shapes.retain(|_, all| all.len() >= LEAST_CALLS);
    let limit = |all: &mut Vec<i64>| {
        let usual = median(all);
        let mut away: Vec<i64> = all.iter().map(|late| late.saturating_sub(usual).saturating_abs()).collect();
        usual.saturating_add((DEVIATIONS * 1.4826 * median(&mut away) as f64) as i64)
    };
    let limits: HashMap<_, i64> = shapes.iter_mut().map(|(shape, all)| (*shape, limit(all))).collect();
    let last: HashMap<_, (usize, i64)> =
        last.into_iter().map(|(who, mut all)| (who, (all.len(), median(&mut all)))).collect();
    let is_usually_last = |met: &Met| {
        let n = calls_of.get(&met.group).copied().unwrap_or(0);
        let (k, usual_ns) = last.get(&(met.group, met.last.rank)).copied().unwrap_or((0, 0));
        let (count, p) = (k as f64, 1.0 / f64::from(met.ranks.max(2)));
        let expected = n as f64 * p;
        // Now and then it is last by chance as well.
        let is_as_usual = met.late_ns >= usual_ns / 4;
        let is_chance = count - expected <= NOT_BY_CHANCE * (expected * (1.0 - p)).sqrt();
        is_as_usual && n >= LEAST_CALLS && 2 * k > n && !is_chance
    };
    let is_far = |met: &Met| limits.get(&(met.group, met.last.kind)).is_some_and(|limit| met.late_ns > *limit);
    let stands_out =
        |met: &&Met| floor(met).is_some_and(|floor| met.late_ns > floor) && (is_far(met) || is_usually_last(met));
    met.iter().filter(stands_out).copied().collect()
}

/// The calls of each rank in the order in which they began.
struct History<'a> {
    traces: &'a Calls,
    calls: &'a [Call],
    met: &'a [Met],
    /// By their keys.
    waits: &'a [Waited],
    /// The global rank and the begin of each call, and its place.
    order: Vec<(u32, i64, u32)>,
}

impl<'a> History<'a> {
    fn new(traces: &'a Calls, calls: &'a [Call], met: &'a [Met], waits: &'a [Waited]) -> History<'a> {
        let place = |(place, call): (usize, &Call)| (who(traces, call).0, call.begin_ns, place as u32);
        let mut order: Vec<_> = calls.iter().enumerate().map(place).collect();
        order.sort_unstable();
        History { traces, calls, met, waits, order }
    }

    /// Goes back from a late arrival to a rank that did not wait for another one. None if the late rank, or one on the way, may have waited:
    /// ends that were not timed leave it open.
    fn follow(&self, event: Met) -> Option<Followed> {
        let mut found = Followed { chain: vec![event], late_ns: event.late_ns };
        while found.chain.len() < LONGEST {
            match self.waited_for(&found) {
                Before::Waited(cause, wait_ns) => {
                    found.chain.push(cause);
                    // It cannot have cost more than the rank that was late because of it.
                    found.late_ns = found.late_ns.min(wait_ns);
                }
                Before::Nothing => break,
                Before::Open => return None,
            }
        }
        Some(found)
    }

    /// The collective in which the late rank waited most of its lateness for another rank, since its last one of the same group: that
    /// one had brought the ranks of the group together.
    fn waited_for(&self, found: &Followed) -> Before {
        let (late, rank) = (found.cause(), who(self.traces, &found.cause().last).0);
        let end = self.order.partition_point(|(other, begin_ns, _)| (*other, *begin_ns) < (rank, late.last.begin_ns));
        let before = self.order[..end].iter().rev().take_while(|(other, ..)| *other == rank).take(LOOK_BACK);
        let mut is_open = false;
        for call in before.map(|(_, _, place)| &self.calls[*place as usize]) {
            if call.group == late.group {
                break;
            }
            let key = (call.group, call.turn, call.seq);
            let Ok(place) = self.met.binary_search_by_key(&key, Met::key) else { continue };
            let met = &self.met[place];
            let is_new = found.chain.iter().all(|link| link.key() != key);
            if !is_new || met.last.rank == call.rank {
                continue;
            }
            let (least_ns, most_ns) = self.wait_ns(call, met);
            if least_ns >= found.late_ns / 2 {
                return Before::Waited(*met, least_ns);
            }
            is_open |= most_ns >= found.late_ns / 2;
        }
        if is_open { Before::Open } else { Before::Nothing }
    }

    /// How long the rank of a call waited in it for the last one: at least, and at most. Its own clock shows it. Where an end was not timed, the
    /// arrivals narrow it.
    fn wait_ns(&self, call: &Call, met: &Met) -> (i64, i64) {
        let least_ns = call.length_ns.saturating_sub(early_ns(call)).saturating_sub(met.least_ns);
        let most_ns = call.length_ns.saturating_sub(met.least_early_ns);
        let key = (call.group, call.turn, call.seq, call.rank);
        match self.waits.binary_search_by_key(&key, |wait| wait.key) {
            Ok(at) => (least_ns.max(self.waits[at].least_ns), most_ns.min(self.waits[at].most_ns)),
            Err(_) => (least_ns, most_ns),
        }
    }
}

/// Why a rank came late, as its collectives before tell.
enum Before {
    /// It waited for so long for the rank that came last to this one.
    Waited(Met, i64),
    Nothing,
    /// It may have waited.
    Open,
}
