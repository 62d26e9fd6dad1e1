//! Finds which ranks share a clock, and estimates the offsets between other clocks.
//!
//! `CLOCK_BOOTTIME` is one clock for all processes of a host. Sessions write the boot id into their traces, which identifies the ranks on
//! one host. The begins of these ranks are compared directly.
//!
//! The clocks of two hosts are compared through the collectives that their ranks have in common, in blocks of consecutive collectives. Two
//! facts constrain the offset x between the clocks. First, no rank leaves a collective before the last one has arrived, so each collective
//! bounds x, whatever the ends are. Second, ranks often leave at about the same time, so the differences between their ends are distributed
//! around x. The bounds are certain, and a rank is named only beyond them. The ends give an estimate within the bounds, but a host whose
//! ranks always leave later than the others, as in a chain, is invisible to it.

use std::collections::{BTreeMap, HashMap};

use super::{Call, Session};

/// Between the sessions of one job, the wall clock and `CLOCK_BOOTTIME` of one host drift apart by less than this. If two sessions of one
/// boot differ by more, they do not share a clock: one of them is in its own time namespace.
const SAME_CLOCK_NS: i64 = 10_000_000;

/// The most consecutive collectives in a block.
const BLOCK: usize = 64;

/// With fewer collectives, the spread of the ends is not significant, and only the bounds are used.
const FEW: usize = 16;

/// Two clocks drift apart by less than 1 ns in this many ns.
const DRIFT: i64 = 10_000;

/// The clock of each session.
pub(super) struct Clocks {
    /// By session.
    of: Vec<Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Equal for sessions that share a clock.
    pub(super) id: u32,
    /// The largest error of a time against that clock, in ns.
    pub(super) uncertain_ns: i64,
}

impl Clocks {
    pub(super) fn estimate(sessions: &[Session]) -> Clocks {
        // A session with a rotated trace writes at its end the uncertainty that applies to all parts.
        let part_of = |session: &Session| Some((session.boot_id.clone()?, session.process, session.boot_ns));
        let mut uncertain: HashMap<_, i64> = HashMap::new();
        for session in sessions {
            if let (Some(part), Some(ns)) = (part_of(session), session.uncertain_ns) {
                let worst = uncertain.entry(part).or_default();
                *worst = ns.max(*worst);
            }
        }
        let (mut boots, mut lone, mut next) = (HashMap::<_, BTreeMap<i64, u32>>::new(), HashMap::new(), 0..);
        let of = sessions.iter().map(|session| {
            let mut fresh = || next.next().unwrap_or(u32::MAX);
            let Some(part) = part_of(session) else { return Clock { id: fresh(), uncertain_ns: 0 } };
            let Some(uncertain_ns) = uncertain.get(&part).copied() else {
                // The session was killed before it wrote its uncertainty: only its own times can be compared with each other.
                return Clock { id: *lone.entry(part).or_insert_with(fresh), uncertain_ns: 0 };
            };
            let ahead_ns = session.wall_ns.wrapping_sub(session.boot_ns);
            let clocks = boots.entry(session.boot_id.clone()).or_default();
            let same = ahead_ns.saturating_sub(SAME_CLOCK_NS)..=ahead_ns.saturating_add(SAME_CLOCK_NS);
            let near = clocks.range(same).next().map(|(_, id)| *id);
            let id = near.unwrap_or_else(|| *clocks.entry(ahead_ns).or_insert_with(fresh));
            Clock { id, uncertain_ns }
        });
        Clocks { of: of.collect() }
    }

    pub(super) fn clock(&self, call: &Call) -> Clock {
        self.of[call.session as usize]
    }
}

/// The offsets between the clocks of a group during a block of collectives: for each clock, by how much it is ahead of the first.
#[derive(Debug, Default)]
pub(super) struct Offsets(HashMap<u32, Offset>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offset {
    ahead_ns: i64,
    /// The largest error of `ahead_ns`, as the bounds prove it.
    uncertain_ns: i64,
    /// The largest error as the ends tell it, if all ranks leave at about the same time.
    likely_ns: i64,
}

/// The time at which a rank arrived at a collective, by the first of the group's clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) ns: i64,
    clock: Clock,
    /// The offset between the rank's clock and the first clock.
    offset: Offset,
}

impl Arrival {
    /// Returns the uncertainty of the time between two arrivals. The offset of a clock cancels out if both arrivals share it.
    pub(super) fn uncertain_ns(&self, other: &Arrival) -> i64 {
        self.with_offsets(other, |offset| offset.uncertain_ns)
    }

    /// Returns the same if ranks leave a collective at about the same time.
    pub(super) fn likely_ns(&self, other: &Arrival) -> i64 {
        self.with_offsets(other, |offset| offset.likely_ns)
    }

    fn with_offsets(&self, other: &Arrival, uncertain: fn(&Offset) -> i64) -> i64 {
        let of_clocks = match self.clock.id == other.clock.id {
            true => 0,
            false => uncertain(&self.offset).saturating_add(uncertain(&other.offset)),
        };
        of_clocks.saturating_add(self.clock.uncertain_ns).saturating_add(other.clock.uncertain_ns)
    }

    /// Returns whether both arrivals are by the same clock.
    pub(super) fn shares_a_clock(&self, other: &Arrival) -> bool {
        self.clock.id == other.clock.id
    }
}

/// One collective as one clock shows it: the last begin and the first end among the ranks that share the clock.
#[derive(Clone, Copy)]
struct Seen {
    last_begin_ns: i64,
    first_end_ns: i64,
    /// The earliest possible first end: the least of all ends, each less its uncertainty.
    first_end_at_least_ns: i64,
    uncertain_ns: i64,
}

impl Offsets {
    /// Splits the collectives of a group into blocks with their offsets. Each collective has the calls of all ranks.
    pub(super) fn blocks<'a, 'b>(
        clocks: &'b Clocks,
        collectives: &'b [&'a [Call]],
    ) -> impl Iterator<Item = (&'b [&'a [Call]], Offsets)> {
        // All blocks have about the same size, because a short last block would have a poor estimate.
        let blocks = collectives.len().div_ceil(BLOCK).max(1);
        let size = collectives.len().div_ceil(blocks).max(1);
        collectives.chunks(size).map(|block| (block, Offsets::estimate(clocks, block)))
    }

    fn estimate(clocks: &Clocks, block: &[&[Call]]) -> Offsets {
        let mut offsets = Offsets::default();
        let Some(reference) = block.first().and_then(|calls| calls.first()).map(|call| clocks.clock(call).id) else {
            return offsets;
        };
        offsets.0.insert(reference, Offset::default());
        let mut pairs: HashMap<u32, Vec<(Seen, Seen)>> = HashMap::new();
        for calls in block {
            let seen = seen(clocks, calls);
            let Some(first) = seen.get(&reference).copied() else { continue };
            for (id, other) in seen.into_iter().filter(|(id, _)| *id != reference) {
                pairs.entry(id).or_default().push((first, other));
            }
        }
        offsets.0.extend(pairs.into_iter().map(|(id, pairs)| (id, Offset::estimate(&pairs))));
        offsets
    }

    /// Returns the arrival of a call's rank.
    pub(super) fn arrival(&self, clocks: &Clocks, call: &Call) -> Arrival {
        let clock = clocks.clock(call);
        let unknown = Offset { ahead_ns: 0, uncertain_ns: i64::MAX, likely_ns: i64::MAX };
        let offset = self.0.get(&clock.id).copied().unwrap_or(unknown);
        Arrival { ns: call.begin_ns.saturating_sub(offset.ahead_ns), clock, offset }
    }
}

/// Returns what each clock shows of a collective, by clock.
fn seen(clocks: &Clocks, calls: &[Call]) -> HashMap<u32, Seen> {
    let mut all: HashMap<u32, Seen> = HashMap::new();
    for call in calls {
        let clock = clocks.clock(call);
        let end_ns = call.begin_ns.saturating_add(call.length_ns);
        let first_end_at_least_ns = end_ns.saturating_sub(call.uncertain_ns);
        let seen = all.entry(clock.id).or_insert(Seen {
            last_begin_ns: call.begin_ns,
            first_end_ns: end_ns,
            first_end_at_least_ns,
            uncertain_ns: clock.uncertain_ns,
        });
        seen.last_begin_ns = seen.last_begin_ns.max(call.begin_ns);
        seen.first_end_ns = seen.first_end_ns.min(end_ns);
        seen.first_end_at_least_ns = seen.first_end_at_least_ns.min(first_end_at_least_ns);
        seen.uncertain_ns = seen.uncertain_ns.max(clock.uncertain_ns);
    }
    all
}

impl Offset {
    /// Estimates how far the second of two clocks is ahead of the first, from the collectives that both show.
    fn estimate(pairs: &[(Seen, Seen)]) -> Offset {
        // No rank leaves before the last rank arrives, by any clock.
        let sum = |a: i64, b: i64| a.saturating_add(b);
        let uncertain = |(a, b): &(Seen, Seen)| sum(a.uncertain_ns, b.uncertain_ns);
        let lowest =
            |pair: &(Seen, Seen)| pair.1.last_begin_ns.saturating_sub(sum(pair.0.first_end_ns, uncertain(pair)));
        let highest =
            |pair: &(Seen, Seen)| sum(pair.1.first_end_ns, uncertain(pair)).saturating_sub(pair.0.last_begin_ns);
        let begins = || pairs.iter().map(|(first, _)| first.last_begin_ns);
        let lasted = begins().max().unwrap_or_default().saturating_sub(begins().min().unwrap_or_default());
        let drift = lasted / DRIFT;
        let low = pairs.iter().map(lowest).max().unwrap_or(i64::MIN).saturating_sub(drift);
        let high = pairs.iter().map(highest).min().unwrap_or(i64::MAX).saturating_add(drift);
        if low > high {
            // A clock was set, or a rank did not wait for the others: nothing is certain.
            return Offset { uncertain_ns: i64::MAX, ..Offset::between((high, low), (high, low)) };
        }
        if pairs.len() < FEW {
            return Offset::between((low, high), (low, high));
        }
        // Discard the outermost twentieth of the end differences on each side.
        let mut least: Vec<i64> =
            pairs.iter().map(|(a, b)| b.first_end_at_least_ns.saturating_sub(a.first_end_ns)).collect();
        let mut most: Vec<i64> =
            pairs.iter().map(|(a, b)| b.first_end_ns.saturating_sub(a.first_end_at_least_ns)).collect();
        least.sort_unstable();
        most.sort_unstable();
        let out = pairs.len() / 20;
        let (least, most) = (least[out], most[pairs.len() - 1 - out]);
        // If the clocks drift apart steadily, the differences are spread evenly, and the discarded ones are also valid.
        let kept = pairs.len() - 2 * out;
        let beyond = most.saturating_sub(least).max(0) / (kept as i64 - 1) * (out as i64 + 1);
        let (least, most) = (least.saturating_sub(beyond), most.saturating_add(beyond));
        Offset::between((low, high), (least.clamp(low, high), most.clamp(low, high)))
    }

    /// The middle of what is likely, which is within what is certain.
    fn between(certain: (i64, i64), likely: (i64, i64)) -> Offset {
        let half = likely.1.saturating_sub(likely.0) / 2;
        let ahead_ns = likely.0.saturating_add(half);
        let farthest = ahead_ns.saturating_sub(certain.0).max(certain.1.saturating_sub(ahead_ns));
        // The halves are rounded up.
        Offset { ahead_ns, uncertain_ns: farthest.saturating_add(1), likely_ns: half.saturating_add(1) }
    }
}
