//! Finds which ranks share a clock, and places their arrivals on one clock.
//!
//! `CLOCK_BOOTTIME` is one clock for all processes of a host. Sessions write the boot id into their traces, which
//! identifies the ranks on one host. The begins of these ranks are compared directly. The clocks of hosts are compared
//! through the collectives that their ranks have in common ([`warpline_judge::clocks`]).

use std::collections::{BTreeMap, HashMap};

use warpline_core::record::is_bound;
use warpline_judge::clocks::{At, MAX_DRIFT_PPM, Meeting, Run, Seen};

use super::{Call, Session};

/// Between the sessions of one job, the wall clock and `CLOCK_BOOTTIME` of one host drift apart by less than this. If
/// two sessions of one boot differ by more, they do not share a clock: one of them is in its own time namespace.
const SAME_CLOCK_NS: i64 = 10_000_000;

/// The clock of each session.
pub(super) struct Clocks {
    /// By session.
    of: Vec<Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// Equal for sessions that share a clock.
    id: u32,
    /// The largest error of a time against that clock, in ns.
    uncertain_ns: i64,
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
                // The session was killed before it wrote its uncertainty: only its own times can be compared with each
                // other.
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

    fn clock(&self, call: &Call) -> Clock {
        self.of[call.session as usize]
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.of.iter().map(|clock| clock.id as usize + 1).max().unwrap_or(0)
    }

    /// Compares the clocks through these collectives, each of which has the calls of several ranks.
    pub(super) fn compare<'a>(&self, collectives: impl Iterator<Item = &'a [Call]>) -> Run {
        let meetings = collectives.map(|calls| self.meeting(calls)).filter(|meeting| meeting.seen.len() > 1);
        Run::new(self.count(), meetings.collect(), MAX_DRIFT_PPM)
    }

    /// When the rank of each call arrived.
    pub(super) fn arrivals(&self, run: &Run, calls: &[Call]) -> Vec<Arrival> {
        let meeting = self.meeting(calls);
        let arrival = |call: &Call| {
            let clock = self.clock(call);
            let at = run.at(&meeting, clock.id as usize, call.begin_ns);
            Arrival { ns: at.ns, clock, at }
        };
        calls.iter().map(arrival).collect()
    }

    /// The times of a collective on each clock: the last begin and the first end among the ranks that share it.
    fn meeting(&self, calls: &[Call]) -> Meeting {
        let mut all: BTreeMap<u32, (Seen, i64)> = BTreeMap::new();
        for call in calls {
            let clock = self.clock(call);
            let end_ns = call.begin_ns.saturating_add(call.length_ns);
            let at_least_ns = end_ns.saturating_sub(early_ns(call));
            let (host, begin_ns, err_ns) = (clock.id as usize, call.begin_ns, clock.uncertain_ns);
            let of_one = Seen { host, begin_ns, end_ns, err_ns, early_ns: 0 };
            let (seen, first_ns) = all.entry(clock.id).or_insert((of_one, at_least_ns));
            seen.begin_ns = seen.begin_ns.max(begin_ns);
            seen.end_ns = seen.end_ns.min(end_ns);
            seen.err_ns = seen.err_ns.max(err_ns);
            *first_ns = at_least_ns.min(*first_ns);
        }
        let seen = |(seen, first_ns): (Seen, i64)| Seen { early_ns: seen.end_ns.saturating_sub(first_ns), ..seen };
        Meeting { seen: all.into_values().map(seen).collect() }
    }
}

/// By how much the call may have ended earlier, if that is much of its length.
pub(super) fn early_ns(call: &Call) -> i64 {
    if is_bound(call.length_ns, call.uncertain_ns) { call.uncertain_ns } else { 0 }
}

/// The time at which a rank arrived at a collective, by the clock of one of its hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) ns: i64,
    clock: Clock,
    at: At,
}

impl Arrival {
    /// Returns the uncertainty of the time between two arrivals. The offset of a clock cancels out if both arrivals
    /// share it.
    pub(super) fn uncertain_ns(&self, other: &Arrival) -> i64 {
        self.with_offsets(other, |at| at.sure_ns)
    }

    /// Returns the same if ranks leave a collective at about the same time.
    pub(super) fn likely_ns(&self, other: &Arrival) -> i64 {
        self.with_offsets(other, |at| at.err_ns)
    }

    fn with_offsets(&self, other: &Arrival, uncertain: fn(&At) -> i64) -> i64 {
        let of_clocks = match self.shares_a_clock(other) {
            true => 0,
            false if self.at.beside != other.at.beside => i64::MAX,
            false => uncertain(&self.at).saturating_add(uncertain(&other.at)),
        };
        of_clocks.saturating_add(self.clock.uncertain_ns).saturating_add(other.clock.uncertain_ns)
    }

    /// Returns whether both arrivals are by the same clock.
    pub(super) fn shares_a_clock(&self, other: &Arrival) -> bool {
        self.clock.id == other.clock.id
    }

    /// Returns the error of the lateness of these, 99 of 100 times: that of two of the worst of them.
    pub(super) fn err_ns(all: &[Arrival]) -> i64 {
        let one_clock = all.windows(2).all(|two| two[0].shares_a_clock(&two[1]));
        let read_ns = all.iter().map(|arrival| arrival.clock.uncertain_ns).max().unwrap_or(0);
        let clock_ns = all.iter().map(|arrival| arrival.at.err_ns).max().filter(|_| !one_clock).unwrap_or(0);
        clock_ns.saturating_add(read_ns).saturating_mul(2)
    }
}
