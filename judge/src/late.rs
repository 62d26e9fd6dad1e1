//! Collectives in which ranks met: who came last to each, by how much, and how long it took once all had come.

use std::collections::HashMap;

use warpline_core::record::is_bound;

/// The operations in which every rank waits for all others. A broadcast or a send makes no such promise.
pub const SYNCHRONISING: [&str; 6] =
    ["all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "all_to_all", "barrier"];

/// The least that matters, in ns.
const LEAST_NS: i64 = 50_000;

/// A lateness of more than so many times its error does not come from the clocks.
const ERRORS: i64 = 3;

/// A collective that lacks ranks counts if the time waited in it is less than one in so many parts of the last rank's
/// delay.
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

/// Collectives that take equally long: the group, the operation and the size of the message.
type Form = (u32, &'static str, u64);

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
    /// The rank that came last, by its number in the job.
    pub rank: i64,
    /// When it came, by its own clock.
    pub begin_ns: i64,
    /// The same on the clock on which all are compared.
    pub at_ns: i64,
    /// How much later than the others on average.
    pub late_ns: i64,
    /// How wrong that may be, 99 of 100 times.
    pub err_ns: i64,
    /// Whether the reader knows for certain that another rank came before it. True if it does not know more than
    /// `err_ns`.
    pub is_certain: bool,
    /// The time from the last begin to the first end: the length for a rank that did not wait.
    pub least_ns: i64,
    /// The shortest that this may be, where ends are not timed.
    pub least_early_ns: i64,
}

impl Met {
    fn form(&self) -> Form {
        (self.key.group, self.kind, self.bytes)
    }

    /// Whether all ranks of the group came.
    pub fn is_whole(&self) -> bool {
        self.ranks >= self.size
    }

    /// Whether its length is more than a bound.
    pub fn is_timed(&self) -> bool {
        !is_bound(self.least_ns, self.least_ns.saturating_sub(self.least_early_ns))
    }

    /// Whether the rank came late by more than what the clocks leave open, and by more than what never matters.
    pub fn is_beyond_noise(&self) -> bool {
        self.is_certain && self.late_ns > LEAST_NS.max(self.err_ns.saturating_mul(ERRORS))
    }
}

/// All collectives that are judged.
#[derive(Debug, Default)]
pub struct Collectives {
    judged: Vec<Met>,
    /// The collectives whose length is only a bound.
    pub bounded: usize,
    /// The collectives that are not judged, because a rank that is missing may have come last.
    pub unknown: usize,
}

impl Collectives {
    /// Takes the collectives of the reader; a key identifies one of them.
    pub fn new(all: Vec<Met>) -> Self {
        let mut of_form: HashMap<Form, Vec<i64>> = HashMap::new();
        for met in all.iter().filter(|met| met.is_whole() && met.is_timed()) {
            of_form.entry(met.form()).or_default().push(met.least_ns);
        }
        let usual_ns: HashMap<Form, i64> =
            of_form.into_iter().map(|(form, mut all)| (form, median(&mut all))).collect();
        let bounded = all.iter().filter(|met| !met.is_timed()).count();
        let of_all = all.len();
        // Those that came may have waited for the one that is missing; if no such collective is known, all of the time.
        let waited_ns = |met: &Met| met.least_ns.saturating_sub(usual_ns.get(&met.form()).copied().unwrap_or(0));
        let judged: Vec<Met> =
            all.into_iter().filter(|met| met.is_whole() || waited_ns(met) <= met.late_ns / LEAST_PART).collect();
        Self { bounded, unknown: of_all - judged.len(), judged }
    }

    /// The collectives that are judged.
    pub fn judged(&self) -> &[Met] {
        &self.judged
    }
}

/// The median of numbers; 0 for none. Of two middle ones, the lower one: where half of the calls are late, the others
/// are the usual ones.
pub fn median(values: &mut [i64]) -> i64 {
    match values.len().checked_sub(1) {
        Some(last) => *values.select_nth_unstable(last / 2).1,
        None => 0,
    }
}
