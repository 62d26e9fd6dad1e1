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

#[cfg(test)]
mod tests {
    use super::*;

    /// A collective of four ranks that takes 100 us once all have come.
    fn met(seq: u64) -> Met {
        Met {
            key: Key { group: 1, turn: 0, seq },
            kind: "all_reduce",
            bytes: 1 << 20,
            ranks: 4,
            size: 4,
            rank: 2,
            begin_ns: 0,
            at_ns: 0,
            late_ns: 0,
            err_ns: 0,
            is_certain: true,
            least_ns: 100_000,
            least_early_ns: 100_000,
        }
    }

    #[test]
    fn a_rank_is_late_beyond_noise_from_50_us_and_three_times_the_error_on() {
        let is_late = |late_ns, err_ns, is_certain| Met { late_ns, err_ns, is_certain, ..met(0) }.is_beyond_noise();
        assert_eq!([50_000, 50_001].map(|late_ns| is_late(late_ns, 10_000, true)), [false, true]);
        assert_eq!([90_000, 90_001].map(|late_ns| is_late(late_ns, 30_000, true)), [false, true]);
        // Where no rank is known to have come before it, it may have been the first.
        assert!(!is_late(1_000_000, 0, false));
        assert!(!is_late(i64::MAX, i64::MAX, true));
    }

    #[test]
    fn a_collective_without_all_ranks_is_judged_where_nobody_can_have_waited_for_the_missing_one() {
        let lacking = |seq, late_ns, ns| Met { ranks: 3, late_ns, least_ns: ns, least_early_ns: ns, ..met(seq) };
        let whole = || (0..3).map(met);
        // They take 20 us longer than usual. They are judged if the last rank was late by at least ten times that.
        let all: Vec<Met> = whole().chain([lacking(7, 200_000, 120_000), lacking(8, 199_999, 120_000)]).collect();
        let collectives = Collectives::new(all);
        let judged: Vec<u64> = collectives.judged().iter().map(|met| met.key.seq).collect();
        assert_eq!((judged, collectives.unknown, collectives.bounded), (vec![0, 1, 2, 7], 1, 0));
        // No whole collective of the same size is known, so ranks may have waited for all of its time.
        let other = Met { bytes: 1 << 10, ..lacking(9, 200_000, 120_000) };
        let collectives = Collectives::new(whole().chain([other]).collect());
        assert_eq!((collectives.judged().len(), collectives.unknown), (3, 1));
    }

    #[test]
    fn a_length_that_is_a_bound_is_counted_and_not_taken_as_usual() {
        let bound = |seq| Met { least_ns: 10_000_000, least_early_ns: 0, ..met(seq) };
        assert!(met(0).is_timed() && !bound(0).is_timed());
        // If bounds counted, 10 ms would be the usual length, and no rank would seem to have waited for the missing one.
        let long = |seq| Met { late_ns: 1_000_000, least_ns: 9_000_000, least_early_ns: 9_000_000, ..met(seq) };
        let lacking = |seq| Met { ranks: 3, ..long(seq) };
        let collectives = Collectives::new(vec![met(0), bound(1), bound(2), lacking(9)]);
        assert_eq!((collectives.judged().len(), collectives.unknown, collectives.bounded), (3, 1, 2));
        // Collectives that lack a rank do not count as usual either.
        let collectives = Collectives::new(vec![met(0), lacking(1), lacking(2)]);
        assert_eq!((collectives.judged().len(), collectives.unknown), (1, 2));
    }

    #[test]
    fn of_two_middle_numbers_the_lower_one_is_the_median() {
        assert_eq!((median(&mut []), median(&mut [7]), median(&mut [9, 3]), median(&mut [5, 9, 1])), (0, 7, 3, 5));
    }
}
