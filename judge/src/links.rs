//! Groups whose collectives take longer than those of their siblings, once all of their ranks have come: a slow link
//! makes a whole group late, and none of its ranks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Collectives, median};

/// So many times as long as those of its siblings. Groups that lie differently differ by less.
const TIMES: f64 = 2.0;

/// With fewer groups of one kind, nothing is usual.
const LEAST_GROUPS: usize = 3;

/// Smaller messages take as long as their latency.
const LEAST_BYTES: u64 = 1 << 16;

/// A smaller share of the run is not reported.
const LEAST_SHARE: f64 = 0.005;

/// A group with a slow link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SlowGroup {
    /// The group, by the reader's number of it, which no other reader knows.
    #[serde(skip)]
    pub group: u32,
    /// The operation.
    pub kind: &'static str,
    /// The size.
    pub bytes: u64,
    /// How many ranks the group has.
    pub ranks: u32,
    /// How many collectives.
    pub calls: usize,
    /// How long most of them take once all have come, in ns.
    pub median_ns: i64,
    /// How long those of the other groups take.
    pub usual_ns: i64,
    /// The share of the run that the difference takes.
    pub share: f64,
}

/// The groups that are slow, the most costly first. `run_ns` is the time of one rank in the run.
pub fn slow_groups(collectives: &Collectives, run_ns: i64) -> Vec<SlowGroup> {
    let mut of_form: BTreeMap<(&'static str, u64, u32), BTreeMap<u32, Vec<i64>>> = BTreeMap::new();
    for met in collectives.judged().iter().filter(|met| met.is_whole() && met.is_timed() && met.bytes >= LEAST_BYTES) {
        let groups = of_form.entry((met.kind, met.bytes, met.size)).or_default();
        groups.entry(met.key.group).or_default().push(met.least_ns);
    }
    let mut found = Vec::new();
    for ((kind, bytes, ranks), groups) in of_form.into_iter().filter(|(_, groups)| groups.len() >= LEAST_GROUPS) {
        let medians: Vec<(u32, usize, i64)> =
            groups.into_iter().map(|(group, mut all)| (group, all.len(), median(&mut all))).collect();
        let usual_ns = median(&mut medians.iter().map(|(.., ns)| *ns).collect::<Vec<_>>());
        for (group, calls, median_ns) in medians {
            let share = (median_ns - usual_ns) as f64 * calls as f64 / run_ns.max(1) as f64;
            if median_ns as f64 > TIMES * usual_ns as f64 && share >= LEAST_SHARE {
                found.push(SlowGroup { group, kind, bytes, ranks, calls, median_ns, usual_ns, share });
            }
        }
    }
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.group.cmp(&b.group)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Met};

    fn met(group: u32, seq: u64) -> Met {
        Met {
            key: Key { group, turn: 0, seq },
            kind: "all_reduce",
            bytes: 1 << 24,
            ranks: 4,
            size: 4,
            rank: 0,
            begin_ns: 0,
            at_ns: 0,
            late_ns: 0,
            err_ns: 0,
            is_certain: true,
            least_ns: 0,
            least_early_ns: 0,
        }
    }

    fn slow(least_ns: impl Fn(u32) -> i64, groups: u32) -> Vec<u32> {
        let met = |group: u32, seq: u64| Met {
            least_ns: least_ns(group) + (seq as i64 % 7) * 10_000,
            least_early_ns: least_ns(group),
            ..met(group, seq)
        };
        let all = (0..groups).flat_map(|group| (0..50).map(move |seq| met(group, seq))).collect();
        slow_groups(&Collectives::new(all), 50 * 100_000_000).into_iter().map(|slow| slow.group).collect()
    }

    #[test]
    fn a_group_that_takes_several_times_as_long_as_its_siblings_is_found() {
        assert_eq!(slow(|group| if group == 5 { 12_000_000 } else { 3_000_000 }, 8), [5]);
        // Groups that lie differently differ by less.
        assert_eq!(slow(|group| 3_000_000 + i64::from(group) * 300_000, 8), [] as [u32; 0]);
        // With two groups, neither is known to be usual; and a small share of the run is not reported.
        assert_eq!(slow(|group| if group == 1 { 12_000_000 } else { 3_000_000 }, 2), [] as [u32; 0]);
        assert_eq!(slow(|group| if group == 5 { 700_000 } else { 300_000 }, 8), [] as [u32; 0]);
        // Two of three groups show what is usual.
        assert_eq!(slow(|group| if group == 1 { 12_000_000 } else { 3_000_000 }, 3), [1]);
    }

    #[test]
    fn only_whole_and_timed_calls_with_a_message_that_takes_time_are_compared() {
        let found = |change: fn(Met) -> Met| {
            let met = |group: u32, seq: u64| {
                let ns = if group == 1 { 12_000_000 } else { 3_000_000 };
                Met { least_ns: ns, least_early_ns: ns, ..met(group, seq) }
            };
            let all = (0..4).flat_map(|group| (0..50).map(move |seq| met(group, seq)));
            slow_groups(&Collectives::new(all.map(change).collect()), 50 * 100_000_000).len()
        };
        assert_eq!(found(|met| met), 1);
        assert_eq!(found(|met| Met { bytes: LEAST_BYTES, ..met }), 1);
        assert_eq!(found(|met| Met { bytes: LEAST_BYTES - 1, ..met }), 0);
        assert_eq!(found(|met| Met { least_early_ns: 0, ..met }), 0);
        // These are judged, because the last rank's delay explains their length; so it says nothing about the link.
        assert_eq!(found(|met| Met { ranks: 3, late_ns: 1_000_000_000, ..met }), 0);
    }
}
