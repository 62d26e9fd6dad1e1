//! Late arrivals that stand out: far later than the last rank of such a collective usually is, or the same rank again and again.

use std::collections::HashMap;

use warpline_core::record::is_bound;

/// The operations in which every rank waits for all others. A broadcast or a send makes no such promise.
pub const SYNCHRONISING: [&str; 6] =
    ["all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "all_to_all", "barrier"];

/// Calls of one group that are enough to say who is usually last, and calls of one form that show what is usual.
pub const LEAST_CALLS: usize = 10;

/// Robust deviations beyond what is usual. Tails that noise has end far below.
const DEVIATIONS: f64 = 10.0;

/// Deviations of a binomial count beyond which a rank is not last by chance.
const NOT_BY_CHANCE: f64 = 6.0;

/// Deviations beyond which a rank is last so often that its calls do not show what is usual.
const NOT_USUAL: f64 = 3.0;

/// The least that matters, in ns.
const LEAST_NS: i64 = 50_000;

/// The errors of a lateness beyond which it is none of the clocks'.
const ERRORS: i64 = 3;

/// A collective without all of its ranks counts if what was waited in it is a smaller part of the last one's delay.
const LEAST_PART: i64 = 10;

/// Which collective it is: its group, by the reader's number of it, and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The group.
    pub group: u32,
    /// Which replay of a graph it ran in, from 1; 0 outside of replays.
    pub turn: u64,
    /// Its number in the group.
    pub seq: u64,
}

/// Collectives that take equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Form {
    /// The group.
    pub group: u32,
    /// The operation, by its word in [`SYNCHRONISING`]; another word for all others.
    pub kind: &'static str,
    /// The size of the message; 0 if it is not known.
    pub bytes: u64,
}

/// A collective in which ranks met. All times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// Which one.
    pub key: Key,
    /// The operation.
    pub kind: &'static str,
    /// The size of the message; 0 if it is not known.
    pub bytes: u64,
    /// How many ranks came.
    pub ranks: u32,
    /// How many the group has.
    pub size: u32,
    /// Who came last, by its number in the job.
    pub rank: i64,
    /// When it came, by its own clock.
    pub begin_ns: i64,
    /// The same on the clock on which all are compared.
    pub at_ns: i64,
    /// How much later than the others on average.
    pub late_ns: i64,
    /// How wrong that may be, 99 of 100 times.
    pub err_ns: i64,
    /// Whether the reader knows for certain that another rank came before it. True if it does not know more than `err_ns`.
    pub is_certain: bool,
    /// The time from the last begin to the first end: the length for a rank that did not wait.
    pub least_ns: i64,
    /// The shortest that this may be, where ends are not timed.
    pub least_early_ns: i64,
}

impl Met {
    /// Those that take as long.
    pub fn form(&self) -> Form {
        Form { group: self.key.group, kind: self.kind, bytes: self.bytes }
    }

    fn is_whole(&self) -> bool {
        self.ranks >= self.size
    }

    fn is_timed(&self) -> bool {
        !is_bound(self.least_ns, self.least_ns.saturating_sub(self.least_early_ns))
    }

    fn is_beyond_noise(&self) -> bool {
        self.is_certain && self.late_ns > LEAST_NS.max(self.err_ns.saturating_mul(ERRORS))
    }
}

/// All collectives that are judged, and how long such collectives take.
#[derive(Debug, Default)]
pub struct Collectives {
    judged: Vec<Met>,
    at: HashMap<Key, usize>,
    usual_ns: HashMap<Form, i64>,
    /// The collectives whose length is only a bound.
    pub bounded: usize,
    /// The collectives that are not judged, because a rank that is missing may have come last.
    pub unknown: usize,
}

impl Collectives {
    /// Takes what the reader knows; a key stands for one collective.
    pub fn new(all: Vec<Met>) -> Self {
        let mut of_form: HashMap<Form, Vec<i64>> = HashMap::new();
        for met in all.iter().filter(|met| met.is_whole() && met.is_timed()) {
            of_form.entry(met.form()).or_default().push(met.least_ns);
        }
        let usual_ns = of_form.into_iter().map(|(form, mut all)| (form, median(&mut all))).collect();
        let bounded = all.iter().filter(|met| !met.is_timed()).count();
        let mut found = Self { usual_ns, bounded, ..Self::default() };
        for met in all {
            // Those that came may have waited for the one that is missing.
            if !met.is_whole() && found.wait_ns(met.form(), met.least_ns) > met.late_ns / LEAST_PART {
                found.unknown += 1;
                continue;
            }
            found.at.insert(met.key, found.judged.len());
            found.judged.push(met);
        }
        found
    }

    /// Those that are judged.
    pub fn judged(&self) -> &[Met] {
        &self.judged
    }

    /// One of them.
    pub fn get(&self, key: &Key) -> Option<&Met> {
        self.at.get(key).map(|at| &self.judged[*at])
    }

    /// What a rank may have waited in a collective that took `dur_ns` there: all of it, if no such collective is known.
    pub fn wait_ns(&self, form: Form, dur_ns: i64) -> i64 {
        dur_ns.saturating_sub(self.usual_ns.get(&form).copied().unwrap_or(0))
    }

    /// The late arrivals that stand out, the latest first.
    pub fn standing_out(&self) -> Vec<Met> {
        let mut last: HashMap<(u32, i64), Vec<i64>> = HashMap::new();
        let mut calls_of: HashMap<u32, usize> = HashMap::new();
        for met in &self.judged {
            if met.is_beyond_noise() {
                last.entry((met.key.group, met.rank)).or_default().push(met.late_ns);
            }
            *calls_of.entry(met.key.group).or_default() += 1;
        }
        let last: HashMap<(u32, i64), Often> = last
            .into_iter()
            .map(|(who, mut all)| {
                let calls = calls_of.get(&who.0).copied().unwrap_or(0);
                (who, Often { times: all.len(), calls, usual_ns: median(&mut all) })
            })
            .collect();
        let often = |met: &Met, deviations: f64| {
            last.get(&(met.key.group, met.rank)).filter(|often| often.is_beyond(deviations, met.ranks))
        };
        let usual = Usual::new(&self.judged, |met| often(met, NOT_USUAL).is_some());
        let is_far = |met: &Met| usual.limit(met).is_some_and(|limit| met.late_ns > limit);
        let is_usually_last = |met: &Met| {
            often(met, NOT_BY_CHANCE)
                .is_some_and(|often| 2 * often.times > often.calls && met.late_ns >= often.usual_ns / 2)
        };
        let stands_out = |met: &&Met| met.is_beyond_noise() && (is_far(met) || is_usually_last(met));
        let mut found: Vec<Met> = self.judged.iter().filter(stands_out).copied().collect();
        found.sort_unstable_by(|a, b| b.late_ns.cmp(&a.late_ns).then(a.key.cmp(&b.key)));
        found
    }
}

/// The lateness beyond which one is far from what is usual.
struct Usual {
    /// By group, and for all groups together; by operation and size of the group.
    limits: HashMap<(Option<u32>, &'static str, u32), i64>,
}

impl Usual {
    /// Without those whose last rank is often last; with them, if without them there are too few.
    fn new(judged: &[Met], is_often: impl Fn(&Met) -> bool) -> Self {
        let mut all: HashMap<_, Vec<i64>> = HashMap::new();
        let mut others: HashMap<_, Vec<i64>> = HashMap::new();
        for met in judged {
            let pooled = (None, met.kind, met.size);
            all.entry(pooled).or_default().push(met.late_ns);
            if !is_often(met) {
                others.entry(pooled).or_default().push(met.late_ns);
                others.entry((Some(met.key.group), met.kind, met.size)).or_default().push(met.late_ns);
            }
        }
        let mut limits: HashMap<_, i64> =
            all.into_iter().filter_map(|(which, all)| Some((which, limit(all)?))).collect();
        limits.extend(others.into_iter().filter_map(|(which, all)| Some((which, limit(all)?))));
        Self { limits }
    }

    /// That of the collective's own group, if it has enough calls: groups differ in what lies between their ranks.
    fn limit(&self, met: &Met) -> Option<i64> {
        let of = |group| self.limits.get(&(group, met.kind, met.size)).copied();
        of(Some(met.key.group)).or_else(|| of(None))
    }
}

/// How often a rank is last in a group.
struct Often {
    times: usize,
    calls: usize,
    usual_ns: i64,
}

impl Often {
    /// Whether it is last more often than by chance among so many ranks, by more than these deviations.
    fn is_beyond(&self, deviations: f64, ranks: u32) -> bool {
        let (n, p) = (self.calls as f64, 1.0 / f64::from(ranks.max(2)));
        self.calls >= LEAST_CALLS && self.times as f64 - n * p > deviations * (n * p * (1.0 - p)).sqrt()
    }
}

/// The lateness beyond which one is far from what is usual among these.
fn limit(mut all: Vec<i64>) -> Option<i64> {
    // A few calls have no usual.
    if all.len() < LEAST_CALLS {
        return None;
    }
    let usual = median(&mut all);
    let mut away: Vec<i64> = all.iter().map(|late| late.saturating_sub(usual).saturating_abs()).collect();
    Some(usual.saturating_add((DEVIATIONS * 1.4826 * median(&mut away) as f64) as i64))
}

/// The middle of numbers; 0 of none. Of two, the lower one: where half of the calls are late, the others are what is usual.
pub fn median(values: &mut [i64]) -> i64 {
    match values.len().checked_sub(1) {
        Some(last) => *values.select_nth_unstable(last / 2).1,
        None => 0,
    }
}
