//! The verdict: the rank that stands out, since when, and to what it came late.
//!
//! `warpline_judge` has the rules. Here its matrix of own time is filled from traces, and its answer becomes sentences.
//! Traces do not say in which step a collective is. So what a rank took itself is counted from one collective of its
//! group to the next one, without the time in other collectives, and summed over as many as come again and again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use warpline_core::collective::CollectiveKind;
use warpline_core::record::is_bound;
use warpline_judge::links::slow_groups;
use warpline_judge::own::{LEAST_STEPS, Named, Own, Step, Verdict as Judgement};
use warpline_judge::{Collectives, Key, Met, SYNCHRONISING, median};

use super::clocks::{Arrival, early_ns};
use super::findings::{Findings, Verdict};
use super::show::{self, Arrived};
use super::{Call, Calls};

/// The size from which a message says that the ranks of its group do the same work.
const HEAVY_BYTES: u64 = 64 << 10;

/// The collectives from which the verdict is made.
#[derive(Default)]
pub(super) struct Judged {
    met: Vec<Met>,
    /// The same collectives.
    seen: Vec<Seen>,
    ends: Vec<End>,
    /// Further entries of batches, which have the times of the first one.
    pub(super) entries: Vec<Key>,
}

/// The rank that came last to a collective.
#[derive(Clone, Copy, Debug)]
struct Seen {
    last: Call,
    /// The length of the longest wait and its uncertainty; none if it is not certain which rank came last.
    certain: Option<(i64, i64)>,
    late_ns: i64,
    /// Whether all ranks that have a trace came, so that the tables have it.
    is_whole: bool,
}

/// When a rank left a collective whose end was not timed, judging by the arrivals: after its begin, at least and at
/// most.
#[derive(Clone, Copy, Debug)]
struct End {
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
        let (least_ns, least_early_ns) =
            (least(|call| call.length_ns), least(|call| call.length_ns.saturating_sub(early_ns(call))));
        self.met.push(Met {
            key: last.key(),
            kind: last.kind.as_str(),
            bytes: calls.iter().map(|call| call.bytes).min().unwrap_or(0),
            ranks,
            size,
            rank: who(traces, &last).0,
            begin_ns: last.begin_ns,
            at_ns,
            late_ns,
            err_ns: Arrival::err_ns(arrivals),
            is_certain: certain.is_some(),
            least_ns,
            least_early_ns,
        });
        self.seen.push(Seen { last, certain, late_ns, is_whole });
        if calls.iter().any(|call| early_ns(call) > 0) {
            self.ends.extend(calls.iter().zip(arrivals).map(|(call, arrival)| {
                let waited_ns = at_ns.saturating_sub(arrival.ns);
                let uncertain_ns = arrivals[place].uncertain_ns(arrival);
                let least_ns = waited_ns.saturating_sub(uncertain_ns).saturating_add(least_early_ns);
                let most_ns = waited_ns.saturating_add(uncertain_ns).saturating_add(least_ns.max(least_early_ns));
                End { key: (call.key(), call.rank), least_ns, most_ns }
            }));
        }
    }

    /// The collectives of the tables to which one rank certainly came last.
    fn certain(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| seen.is_whole && seen.certain.is_some())
    }

    /// When a call ended after its begin, at least and at most.
    fn end(&self, call: &Call) -> (i64, i64) {
        let (least_ns, most_ns) = (call.length_ns.saturating_sub(early_ns(call)), call.length_ns);
        let end = self.ends.binary_search_by_key(&(call.key(), call.rank), |end| end.key).ok().map(|at| &self.ends[at]);
        match end.filter(|_| early_ns(call) > 0) {
            Some(end) => (end.least_ns.clamp(least_ns, most_ns), end.most_ns.clamp(least_ns, most_ns)),
            None => (least_ns, most_ns),
        }
    }
}

/// Finds the rank that stands out, and writes the summary. `calls` are in the order in which they were judged.
pub(super) fn conclude(findings: &mut Findings, traces: &Calls, calls: &[Call], labels: &[String], mut judged: Judged) {
    judged.ends.sort_unstable_by_key(|end| end.key);
    judged.entries.sort_unstable();
    let collectives = Collectives::new(std::mem::take(&mut judged.met));
    let periods = Periods::new(traces, calls, &judged);
    let judgement = periods.own.judge(periods.run_ns);
    findings.verdict = judgement
        .named
        .first()
        .and_then(|named| verdict(traces, &collectives, &judged, &periods, labels, &judgement, named));
    let latest = judged.certain().max_by_key(|seen| seen.late_ns);
    findings.summary = match (&findings.verdict, slow_groups(&collectives, periods.run_ns).first(), latest) {
        (Some(verdict), ..) => verdict.to_string(),
        (None, Some(slow), _) => show::slow_group(&labels[slow.group as usize], slow),
        (None, None, Some(latest)) => none_stands_out(traces, labels, &judged, &judgement, latest),
        (None, None, None) => show::nothing_is_certain(findings),
    };
}

/// The sentence if no rank stands out.
fn none_stands_out(traces: &Calls, labels: &[String], judged: &Judged, judgement: &Judgement, latest: &Seen) -> String {
    if let Some(spread) = judgement.spread {
        return spread.to_string();
    }
    let latest = arrived(traces, labels, latest);
    latest.map_or_else(String::new, |latest| {
        show::none_stands_out(&latest, judged.certain().count(), judgement.is_enough())
    })
}

/// A late arrival for a sentence, if it is certain.
fn arrived<'a>(traces: &'a Calls, labels: &'a [String], latest: &Seen) -> Option<Arrived<'a>> {
    let (late_by_ns, uncertain_ns) = latest.certain?;
    let (rank, _) = who(traces, &latest.last);
    Some(Arrived {
        rank: in_job(rank),
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
fn who<'a>(traces: &'a Calls, call: &Call) -> (i64, &'a str) {
    let rank = traces.groups[call.group as usize].in_job(call.rank);
    (rank.into(), &traces.sessions[call.session as usize].host)
}

fn in_job(rank: i64) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

/// The verdict about a rank: of its late periods, the collectives of the group that it held up longest.
fn verdict(
    traces: &Calls,
    collectives: &Collectives,
    judged: &Judged,
    periods: &Periods,
    labels: &[String],
    judgement: &Judgement,
    named: &Named,
) -> Option<Verdict> {
    let of_rank = periods.of_rank.get(&named.rank)?;
    let is_late: BTreeSet<i64> = named.steps.iter().map(|(period, _)| *period).collect();
    let times: Vec<(i64, i64)> =
        of_rank.periods.iter().filter(|one| is_late.contains(&one.0)).map(|one| (one.1, one.2.begin_ns)).collect();
    let is_in = |at_ns: i64| times.iter().any(|(from, to)| (*from..=*to).contains(&at_ns));
    let known: HashMap<Key, &Seen> = judged.seen.iter().map(|seen| (seen.last.key(), seen)).collect();
    let mut by_group: BTreeMap<u32, Vec<(&Met, &Seen)>> = BTreeMap::new();
    for met in collectives.judged().iter().filter(|met| met.rank == named.rank && met.is_beyond_noise()) {
        if let Some(seen) = known.get(&met.key).filter(|_| is_in(met.begin_ns)) {
            by_group.entry(met.key.group).or_default().push((met, seen));
        }
    }
    let sum = |found: &[(&Met, &Seen)]| found.iter().map(|(met, _)| met.late_ns).fold(0, i64::saturating_add);
    let latest = by_group.into_iter().max_by_key(|(group, found)| (sum(found), Reverse(*group)));
    // If no clock proves which rank came last, the rank's own clock still shows how much longer it took.
    let (worst_period, more_ns) = named.steps.iter().copied().max_by_key(|(_, more)| *more)?;
    let of_period = |period: i64| of_rank.periods.iter().find(|one| one.0 == period).map(|one| one.2);
    let (call, first, late_by_ns, uncertain_ns, late) = match latest {
        Some((_, found)) => {
            let (_, seen) = *found.iter().max_by_key(|(met, _)| (met.late_ns, Reverse(met.key)))?;
            let (_, first) = *found.iter().min_by_key(|(met, _)| met.begin_ns)?;
            let (late_by_ns, uncertain_ns) = seen.certain?;
            let late: Vec<i64> = found.iter().map(|(met, _)| met.late_ns).collect();
            (seen.last, first.last, late_by_ns, uncertain_ns, late)
        }
        None => {
            let first = named.steps.first().and_then(|(period, _)| of_period(*period))?;
            let late: Vec<i64> = named.steps.iter().map(|(_, more)| *more).collect();
            (of_period(worst_period)?, first, more_ns, judgement.deviation_ns, late)
        }
    };
    let is_judged = |met: &&Met| met.key.group == call.group;
    Some(Verdict {
        rank: in_job(named.rank),
        host: who(traces, &call).1.to_owned(),
        host_ranks: periods.whole_host(judgement, named.rank),
        group: labels[call.group as usize].clone(),
        times: late.len() as u64,
        judged: collectives.judged().iter().filter(is_judged).count() as u64,
        median_ns: median(&mut late.clone()),
        total_ns: late.into_iter().fold(0, i64::saturating_add),
        share: named.share,
        since_seq: first.seq,
        since_ns: since_begin(traces, &first),
        seq: call.seq,
        replay: (call.turn > 0).then_some(call.turn),
        kind: call.kind.as_str(),
        range: traces.ranges[call.range as usize].clone(),
        bytes: (call.bytes > 0).then_some(call.bytes),
        late_by_ns,
        uncertain_ns,
    })
}

/// The time between the begin of the first session and the call, by the wall clocks of the hosts.
fn since_begin(traces: &Calls, call: &Call) -> i64 {
    let first_ns = traces.sessions.iter().map(|session| session.wall_ns).min().unwrap_or_default();
    traces.begin_wall_ns(call).saturating_sub(first_ns)
}

/// The own time of each rank from one collective of its peers to the next one.
struct Periods {
    own: Own,
    of_rank: HashMap<i64, OfRank>,
    /// The time of one rank in the run: from the begin of its first call to the end of its last one, on average.
    run_ns: i64,
}

struct OfRank {
    host: String,
    /// The number of each period, its begin on the rank's clock, and the call at its end.
    periods: Vec<(i64, i64, Call)>,
}

impl Periods {
    fn new(traces: &Calls, calls: &[Call], judged: &Judged) -> Periods {
        // A group of one has no other rank to wait for. Further entries of a batch have the times of the first one.
        let is_alone = |call: &Call| traces.groups[call.group as usize].ranks.len() == 1;
        let is_entry = |call: &Call| judged.entries.binary_search(&call.key()).is_ok();
        let mut order: Vec<(i64, &Call)> = calls
            .iter()
            .filter(|call| !is_alone(call) && !is_entry(call))
            .map(|call| (who(traces, call).0, call))
            .collect();
        order.sort_unstable_by_key(|(rank, call)| (*rank, call.begin_ns, call.key()));
        let peers = peers(traces, &order);
        // The collectives of each group in their order: a period is the one after the one before it.
        let (mut numbers, mut in_cycle) = (HashMap::<Key, i64>::new(), HashMap::new());
        for of_group in calls.chunk_by(|a, b| a.group == b.group) {
            let mut keys: Vec<(i64, Key)> = Vec::new();
            for of_key in of_group
                .chunk_by(|a, b| a.key() == b.key())
                .filter(|of_key| is_synchronising(&of_key[0]) && !is_entry(&of_key[0]))
            {
                keys.push((of_key.iter().map(|call| call.begin_ns).min().unwrap_or(0), of_key[0].key()));
            }
            // Replays of a graph run among one another: the first rank's order is that of all.
            let first = of_group.iter().map(|call| call.rank).min().unwrap_or(0);
            let begin: HashMap<Key, i64> =
                of_group.iter().filter(|call| call.rank == first).map(|call| (call.key(), call.begin_ns)).collect();
            keys.iter_mut().for_each(|(at, key)| *at = begin.get(key).copied().unwrap_or(*at));
            keys.sort_unstable();
            let what: HashMap<Key, (&str, u64)> =
                of_group.iter().map(|call| (call.key(), (call.kind.as_str(), call.bytes))).collect();
            in_cycle.insert(of_group[0].group, cycle(&keys.iter().map(|(_, key)| what[key]).collect::<Vec<_>>()));
            numbers.extend(keys.into_iter().zip(0..).map(|((_, key), number)| (key, number)));
        }
        let (mut rows, mut of_rank, mut run_ns, mut ranks) = (Vec::new(), HashMap::new(), 0_i128, 0_i128);
        for of_one in order.chunk_by(|a, b| a.0 == b.0) {
            let (rank, first) = of_one[0];
            let ends = of_one.iter().map(|(_, call)| call.begin_ns.saturating_add(call.length_ns));
            run_ns += i128::from(ends.max().unwrap_or(0).saturating_sub(first.begin_ns));
            ranks += 1;
            let Some(group) = peers.get(&rank) else { continue };
            let cycle = in_cycle.get(group).copied().unwrap_or(1);
            let mut periods = Vec::new();
            let mut since = Since::default();
            let mut sum = OfStep::default();
            for (_, call) in of_one {
                since.call(call.begin_ns, judged.end(call));
                let Some(number) = numbers.get(&call.key()).filter(|_| call.group == *group) else { continue };
                if let Some((from_ns, own_ns)) = since.own_ns(*number) {
                    sum.add(number / cycle, from_ns, own_ns);
                    if sum.periods == cycle {
                        rows.push(Step { rank, step: sum.step, own_ns: sum.own_ns });
                        periods.push((sum.step, sum.from_ns, **call));
                    }
                }
                since.begin(*number, call.begin_ns);
            }
            of_rank.insert(rank, OfRank { host: who(traces, first).1.to_owned(), periods });
        }
        let peers = peers.into_iter().map(|(rank, group)| (rank, group as usize)).collect();
        let own = Own::new(&peers, &rows);
        let run_ns = (run_ns / ranks.max(1)) as i64;
        Periods { own, of_rank, run_ns }
    }

    /// How many ranks the host of this rank has, if several are there and all of them are late.
    fn whole_host(&self, judgement: &Judgement, rank: i64) -> Option<u32> {
        let host = &self.of_rank.get(&rank)?.host;
        let of_host: BTreeSet<i64> =
            self.of_rank.iter().filter(|(_, of_rank)| of_rank.host == *host).map(|(rank, _)| *rank).collect();
        let is_late = |rank: &i64| judgement.named.iter().any(|named| named.rank == *rank);
        let is_whole = !host.is_empty() && of_host.len() > 1 && of_host.iter().all(is_late);
        is_whole.then_some(of_host.len() as u32)
    }
}

/// The own time of a rank in a step, as the sum of its periods so far.
#[derive(Default)]
struct OfStep {
    step: i64,
    from_ns: i64,
    own_ns: i64,
    periods: i64,
}

impl OfStep {
    fn add(&mut self, step: i64, from_ns: i64, own_ns: i64) {
        if step != self.step || self.periods == 0 {
            *self = OfStep { step, from_ns, ..OfStep::default() };
        }
        self.own_ns = self.own_ns.saturating_add(own_ns);
        self.periods += 1;
    }
}

/// The most collectives of a group in a step that are recognised.
const CYCLE: usize = 1 << 10;

/// The number of collectives that a group has in a step: after so many, the same operations with the same sizes come
/// again. The periods between them differ, so that the noise of a forward pass does not count for a short period
/// between two collectives. 1 if nothing comes again, or too seldom.
fn cycle(calls: &[(&str, u64)]) -> i64 {
    // With one exception in twenty. Where nothing comes again, there are soon more.
    let comes_again = |length: &usize| {
        let exceptions = (calls.len() - length) / 20;
        calls.iter().zip(&calls[*length..]).filter(|(one, next)| one != next).nth(exceptions).is_none()
    };
    let most = CYCLE.min(calls.len() / (2 * LEAST_STEPS));
    (1..=most).find(comes_again).unwrap_or(1) as i64
}

/// The state of a rank since its last collective with its peers.
#[derive(Default)]
struct Since {
    /// The number of that collective, and when it began.
    last: Option<(i64, i64)>,
    /// All calls so far have ended then.
    busy_ns: Option<i64>,
    own_ns: i64,
    /// The uncertainty from ends that were not timed.
    open_ns: i64,
    open_before_ns: i64,
}

impl Since {
    /// A call that ended so long after its begin, at least and at most.
    fn call(&mut self, begin_ns: i64, (least_ns, most_ns): (i64, i64)) {
        if let Some(busy_ns) = self.busy_ns {
            self.own_ns = self.own_ns.saturating_add(begin_ns.saturating_sub(busy_ns).max(0));
        }
        self.open_ns = self.open_ns.saturating_add(std::mem::take(&mut self.open_before_ns));
        self.open_before_ns = most_ns - least_ns;
        let end_ns = begin_ns.saturating_add(most_ns);
        self.busy_ns = Some(self.busy_ns.map_or(end_ns, |busy_ns| busy_ns.max(end_ns)));
    }

    /// The begin and the length of the rank's own time, if the last collective was the one before this one, and the
    /// ends leave at most 5 % open.
    fn own_ns(&self, number: i64) -> Option<(i64, i64)> {
        let (_, from_ns) = self.last.filter(|(last, _)| last + 1 == number)?;
        (!is_bound(self.own_ns, self.open_ns)).then_some((from_ns, self.own_ns))
    }

    fn begin(&mut self, number: i64, begin_ns: i64) {
        (self.last, self.own_ns, self.open_ns) = (Some((number, begin_ns)), 0, 0);
    }
}

fn is_synchronising(call: &Call) -> bool {
    SYNCHRONISING.contains(&call.kind.as_str())
}

/// The group of each rank in which all do the same work: of those that reduce or gather large messages, the one on most
/// hosts. A rank that has none, and is not a stage of a pipeline, has the one with most collectives.
fn peers(traces: &Calls, order: &[(i64, &Call)]) -> HashMap<i64, u32> {
    #[derive(Default)]
    struct Use {
        ranks: BTreeSet<i64>,
        hosts: BTreeSet<u32>,
        calls: usize,
        /// How well it is known that its messages are large: 0 for small ones, 1 for those of unknown size.
        heavy: u8,
    }
    let mut boots: HashMap<&str, u32> = HashMap::new();
    let (mut groups, mut of_rank) = (HashMap::<u32, Use>::new(), HashMap::<i64, (BTreeSet<u32>, bool)>::new());
    for (rank, call) in order {
        let (of, is_stage) = of_rank.entry(*rank).or_default();
        *is_stage |= matches!(call.kind, CollectiveKind::Send | CollectiveKind::Recv | CollectiveKind::SendRecv);
        if !is_synchronising(call) {
            continue;
        }
        of.insert(call.group);
        let next = boots.len() as u32;
        let session = &traces.sessions[call.session as usize];
        let group = groups.entry(call.group).or_default();
        group.ranks.insert(*rank);
        group.hosts.insert(session.boot_id.as_deref().map_or(call.session, |boot| *boots.entry(boot).or_insert(next)));
        group.calls += 1;
        if ["all_reduce", "all_gather", "reduce_scatter"].contains(&call.kind.as_str()) {
            let heavy = if call.bytes >= HEAVY_BYTES { 2 } else { u8::from(call.bytes == 0) };
            group.heavy = group.heavy.max(heavy);
        }
    }
    groups.retain(|_, group| group.ranks.len() > 1);
    // Among several that are equally good, all ranks take the one with the same name.
    let name = |number: &u32| Reverse(&traces.groups[*number as usize].name);
    let best = |of: &BTreeSet<u32>, is_stage: bool| {
        let known = || of.iter().filter_map(|number| Some((*number, groups.get(number)?)));
        let heavy = known().filter(|(_, group)| group.heavy > 0);
        let heavy =
            heavy.max_by_key(|(number, group)| (group.heavy, group.hosts.len(), group.ranks.len(), name(number)));
        let any = || known().max_by_key(|(number, group)| (group.hosts.len(), group.calls, name(number)));
        heavy.or_else(|| any().filter(|_| !is_stage)).map(|(number, _)| number)
    };
    of_rank.into_iter().filter_map(|(rank, (of, is_stage))| Some((rank, best(&of, is_stage)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_with_ends_that_leave_much_open_is_not_known() {
        let own = |least_ns: i64| {
            let mut since = Since::default();
            since.call(0, (100, 100));
            since.begin(0, 0);
            since.call(1_000, (least_ns, 100));
            since.call(2_000, (100, 100));
            since.own_ns(1)
        };
        assert_eq!(own(100), Some((0, 1_800)));
        assert_eq!(own(10), Some((0, 1_800)), "90 of 1,800");
        assert_eq!(own(9), None);
    }
}
