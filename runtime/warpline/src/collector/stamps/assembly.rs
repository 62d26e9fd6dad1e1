//! Assembles the stamps of one graph into replays, one after another.
//!
//! A stamp identifies a zone boundary, but not the launch. Launches of one executable graph never overlap, and a stamp comes after its
//! predecessors in the graph, so each replay begins where the last one was complete. Two executable graphs of one graph may run at the
//! same time. Then a stamp comes again before the replay is complete, or comes without its predecessors. Their launches cannot be
//! identified, so no replay is taken until all boundaries have come equally often. If it is not certain that everything was counted
//! from the first stamp on, or if it happens again soon, no replay is taken until no stamp has come for a while. After that, a few
//! replays must be in order before one is taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline_cuda::graph::plan::Plan;
use warpline_cuda::stamps::Stamped;

/// The time without a stamp after which mixed replays are over, if it is at least twice the longest time between two stamps.
const QUIET: Duration = Duration::from_millis(500);

/// The number of mixed replays beyond which it is not assumed that every stamp was seen.
const MOST_MIXED: u32 = 64;

/// The number of replays that must be in order after mixed ones before one is taken.
const CLEAN: u32 = 3;

pub(super) struct Assembly {
    plan: Arc<Plan>,
    times: Vec<Option<Stamped>>,
    /// The number of stamps that have come.
    have: usize,
    mode: Mode,
    /// Whether stamps were lost, or the session began during a replay: the replay of the first stamps is not known.
    is_suspect: bool,
    /// The number of further stamps that may belong to a replay that has lost some.
    torn: usize,
    /// The number of further replays that must be in order before one is taken.
    doubt: u32,
    touched: Instant,
    last_ns: Option<i64>,
    longest: Duration,
    /// The replays since the last query that began and will not be complete.
    pub(super) spoilt: Spoilt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spoilt {
    /// The number of replays of two executable graphs at the same time, or right after such replays.
    pub(super) mixed: u64,
    /// The number of replays with missing stamps.
    pub(super) incomplete: u64,
}

enum Mode {
    /// A stamp belongs to the current replay, or begins the next one.
    Whole,
    /// All stamps are left out until a first stamp of the graph.
    Skipping,
    /// Replays are mixed.
    Mixed {
        /// The number of times that each stamp has come since.
        counts: Vec<u32>,
        /// Whether nothing was missed: the mixture is over when all stamps have come equally often.
        is_all: bool,
    },
}

impl Assembly {
    pub(super) fn new(plan: Arc<Plan>) -> Assembly {
        Assembly {
            times: vec![None; plan.stamps.len()],
            plan,
            have: 0,
            mode: Mode::Skipping,
            is_suspect: true,
            torn: 0,
            doubt: 0,
            touched: Instant::now(),
            last_ns: None,
            longest: Duration::ZERO,
            spoilt: Spoilt::default(),
        }
    }

    /// Returns whether the next stamp begins a replay, or belongs to none.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Returns whether nothing is under way or in doubt, and nothing has come for `since`.
    pub(super) fn is_idle(&self, since: Duration) -> bool {
        self.is_between()
            && self.doubt == 0
            && !matches!(self.mode, Mode::Mixed { .. })
            && self.touched.elapsed() >= since
    }

    /// Replaces the plan, between two replays, after the graph's zones have changed.
    pub(super) fn renew(&mut self, plan: Arc<Plan>) {
        if plan.stamps.len() != self.times.len() {
            self.forget();
            self.times = vec![None; plan.stamps.len()];
            if let Mode::Mixed { counts, .. } = &mut self.mode {
                *counts = vec![0; plan.stamps.len()];
            }
        }
        self.plan = plan;
    }

    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Adds the stamp of this place. Returns the stamps in the order of the plan when that completes the replay.
    pub(super) fn add(&mut self, place: u32, stamped: Stamped) -> Option<Vec<Stamped>> {
        self.touch(stamped.device_ns);
        let place = place as usize;
        if let Mode::Mixed { counts, .. } = &mut self.mode {
            counts[place] += 1;
            self.unmix();
            return None;
        }
        let torn = self.torn;
        self.torn = torn.saturating_sub(1);
        let before = &self.plan.stamps[place];
        if matches!(self.mode, Mode::Skipping) {
            if !before.is_empty() {
                return None;
            }
            self.mode = Mode::Whole;
        }
        let fits = self.times[place].is_none() && before.iter().all(|before| self.times[*before as usize].is_some());
        if !fits {
            self.break_off(place, stamped, torn > 0);
            return None;
        }
        self.times[place] = Some(stamped);
        self.have += 1;
        if self.have < self.times.len() {
            return None;
        }
        (self.is_suspect, self.have, self.torn) = (false, 0, 0);
        let times = self.times.iter_mut().filter_map(Option::take).collect();
        if self.doubt > 0 {
            self.doubt -= 1;
            self.spoilt.mixed += 1;
            return None;
        }
        Some(times)
    }

    fn touch(&mut self, device_ns: i64) {
        self.touched = Instant::now();
        let is_under_way = self.have > 0 || matches!(self.mode, Mode::Mixed { .. });
        if let Some(last_ns) = self.last_ns.filter(|_| is_under_way) {
            self.longest = self.longest.max(Duration::from_nanos((device_ns - last_ns).max(0).cast_unsigned()));
        }
        self.last_ns = Some(device_ns);
    }

    /// Handles a stamp that does not fit: either stamps are missing, or another replay runs at the same time.
    fn break_off(&mut self, place: usize, stamped: Stamped, is_torn: bool) {
        // After a single first stamp nothing is missing. Of several, some may have come before the session looked.
        let has_one_first = self.plan.stamps.iter().filter(|before| before.is_empty()).count() == 1;
        if self.is_suspect && self.doubt == 0 && !has_one_first && (is_torn || self.times[place].is_none()) {
            self.spoilt.incomplete += u64::from(self.have > 0);
            self.times.fill(None);
            (self.have, self.mode) = (0, Mode::Skipping);
            if self.plan.stamps[place].is_empty() {
                self.times[place] = Some(stamped);
                (self.have, self.mode) = (1, Mode::Whole);
            }
            return;
        }
        let mut counts: Vec<u32> = self.times.iter().map(|time| u32::from(time.is_some())).collect();
        counts[place] += 1;
        self.times.fill(None);
        let is_all = !self.is_suspect && self.doubt == 0;
        (self.have, self.mode) = (0, Mode::Mixed { counts, is_all });
        self.unmix();
    }

    /// Ends the mixture when it is known to be complete.
    fn unmix(&mut self) {
        let Mode::Mixed { counts, is_all } = &mut self.mode else { return };
        let most = counts.iter().max().copied().unwrap_or(0);
        *is_all &= most <= MOST_MIXED;
        if *is_all && counts.iter().all(|count| *count == most) {
            self.spoilt.mixed += u64::from(most);
            (self.mode, self.doubt) = (Mode::Whole, CLEAN);
        }
    }

    /// Discards the current replay, which is incomplete because stamps of this graph or another were lost.
    pub(super) fn forget(&mut self) {
        let is_mixed = self.doubt > 0 || matches!(self.mode, Mode::Mixed { .. });
        let spoilt = if is_mixed { &mut self.spoilt.mixed } else { &mut self.spoilt.incomplete };
        *spoilt += u64::from(self.have > 0);
        if let Mode::Mixed { counts, .. } = &self.mode {
            self.spoilt.mixed += u64::from(counts.iter().max().copied().unwrap_or(0));
        }
        self.times.fill(None);
        let len = self.times.len();
        self.mode = if is_mixed { Mode::Mixed { counts: vec![0; len], is_all: false } } else { Mode::Skipping };
        (self.have, self.is_suspect, self.torn) = (0, true, len);
    }

    /// Ends a mixture that receives no more stamps, unless it is known which ones are still to come.
    pub(super) fn rest(&mut self) {
        if let Mode::Mixed { counts, is_all: false } = &self.mode
            && self.touched.elapsed() >= QUIET.max(2 * self.longest)
        {
            self.spoilt.mixed += u64::from(counts.iter().max().copied().unwrap_or(0));
            (self.mode, self.is_suspect, self.doubt) = (Mode::Skipping, true, CLEAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an assembly. `stamps` has, for each stamp, its direct predecessors.
    fn assembly(stamps: &[&[u32]]) -> Assembly {
        let stamps = stamps.iter().map(|before| before.to_vec()).collect();
        Assembly::new(Arc::new(Plan { stamps, ..Plan::default() }))
    }

    const CHAIN: [&[u32]; 4] = [&[], &[0], &[1], &[2]];

    /// Returns the times of the complete replays, in order, when stamps of these places come at 0, 1, 2, …
    fn feed(assembly: &mut Assembly, places: &[u32]) -> Vec<Vec<i64>> {
        let stamped = |at: usize| Stamped { id: 0, device_ns: at as i64, host_ns: at as i64 };
        let complete = (0..).zip(places).filter_map(|(at, place)| assembly.add(*place, stamped(at)));
        complete.map(|times| times.iter().map(|time| time.device_ns).collect()).collect()
    }

    #[test]
    fn each_replay_begins_where_the_last_one_was_complete() {
        let mut chain = assembly(&CHAIN);
        assert_eq!(feed(&mut chain, &[0, 1, 2, 3, 0, 1, 2, 3]), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert_eq!(chain.spoilt, Spoilt::default());
    }

    #[test]
    fn branches_may_come_in_any_order() {
        // 0 -> {1 -> 2, 3} -> 4
        let mut forked = assembly(&[&[], &[0], &[1], &[0], &[2, 3]]);
        assert_eq!(feed(&mut forked, &[0, 3, 1, 2, 4, 0, 1, 2, 3, 4]), [[0, 2, 3, 1, 4], [5, 6, 7, 8, 9]]);
    }

    #[test]
    fn a_session_that_begins_in_the_middle_of_a_replay_takes_the_next_one() {
        let mut chain = assembly(&CHAIN);
        assert_eq!(feed(&mut chain, &[2, 3, 0, 1, 2, 3]), [[2, 3, 4, 5]]);
        assert_eq!(chain.spoilt, Spoilt::default());
    }

    #[test]
    fn two_executable_graphs_at_the_same_time_are_counted_and_not_taken() {
        // Interleaved; one after another except for the last stamp; and one replay inside another.
        for mixed in [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 0, 3, 1, 2, 3], [0, 0, 1, 2, 3, 1, 2, 3]] {
            let mut chain = assembly(&CHAIN);
            feed(&mut chain, &[0, 1, 2, 3]);
            assert_eq!(feed(&mut chain, &mixed), Vec::<Vec<i64>>::new(), "{mixed:?}");
            assert_eq!(chain.spoilt, Spoilt { mixed: 2, incomplete: 0 }, "{mixed:?}");
            // The replays right after them are not taken yet.
            let behind = feed(&mut chain, &[0, 1, 2, 3].repeat(4));
            assert_eq!(behind, [[12, 13, 14, 15]], "{mixed:?}");
            assert_eq!(chain.spoilt, Spoilt { mixed: 5, incomplete: 0 }, "{mixed:?}");
        }
    }

    /// Orders of the two stamps of two executable graphs. All but the first stamp look like those of one graph.
    #[test]
    fn none_is_made_up_of_two_that_follow_each_other_closely() {
        for clean in [0, 1] {
            let mut pair = assembly(&[&[], &[0]]);
            assert_eq!(feed(&mut pair, &[0, 1].repeat(clean)).len(), clean);
            // 0a 0b 1a 1b, repeated; and 0a 0b 1a 0a 1b 0b 1a …
            assert_eq!(feed(&mut pair, &[0, 0, 1, 1].repeat(50)).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[0, 0]).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[1, 0].repeat(500)).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[1, 1]).len(), 0, "{clean}");
            // Lost stamps do not end the mixture, and neither does a pause while a replay is known to be under way.
            pair.forget();
            pair.rest();
            assert_eq!(feed(&mut pair, &[1, 0].repeat(500)).len(), 0, "{clean}");
            pair.forget();
            assert_eq!(pair.spoilt.incomplete, 0, "{clean}");
            assert!((1_100..1_110).contains(&pair.spoilt.mixed), "{clean}: {:?}", pair.spoilt);
        }
    }

    #[test]
    fn after_a_pause_and_some_replays_in_order_they_are_taken_again() {
        let mut pair = assembly(&[&[], &[0]]);
        feed(&mut pair, &[0, 0, 1]);
        let pause = |pair: &mut Assembly, by: Duration| {
            pair.touched = Instant::now().checked_sub(by).expect("the machine is up for longer");
            pair.rest();
        };
        pause(&mut pair, QUIET / 2);
        assert_eq!(feed(&mut pair, &[0, 1].repeat(10)).len(), 0);
        pause(&mut pair, QUIET);
        assert_eq!(feed(&mut pair, &[0, 1].repeat(10)).len(), 10 - CLEAN as usize);
        // One replay is known to be under way.
        feed(&mut pair, &[0, 0, 1]);
        pause(&mut pair, QUIET);
        assert_eq!(feed(&mut pair, &[1]).len(), 0);
        assert_eq!(feed(&mut pair, &[0, 1].repeat(CLEAN as usize + 1)).len(), 1);
    }

    #[test]
    fn graphs_that_are_always_in_one_another_are_given_up() {
        let mut chain = assembly(&CHAIN);
        feed(&mut chain, &[0, 1, 2, 3, 0]);
        for _ in 0..1_000 {
            assert_eq!(feed(&mut chain, &[1, 0, 2, 3]).len(), 0);
        }
        chain.forget();
        assert!(chain.spoilt.mixed > 900, "{:?}", chain.spoilt);
    }

    #[test]
    fn where_stamps_were_lost_the_next_whole_replay_is_taken() {
        for tail in [&[][..], &[3], &[1, 2, 3]] {
            let mut chain = assembly(&CHAIN);
            feed(&mut chain, &[0, 1, 2, 3, 0, 1]);
            chain.forget();
            assert_eq!(chain.spoilt, Spoilt { mixed: 0, incomplete: 1 });
            feed(&mut chain, tail);
            assert_eq!(feed(&mut chain, &[0, 1, 2, 3]), [[0, 1, 2, 3]], "{tail:?}");
            assert_eq!(chain.spoilt, Spoilt { mixed: 0, incomplete: 1 });
        }
        // One of the two first stamps was lost.
        let mut forked = assembly(&[&[], &[], &[0, 1]]);
        feed(&mut forked, &[0, 1, 2]);
        forked.forget();
        assert_eq!(feed(&mut forked, &[1, 2, 0, 1, 2, 1, 0, 2]).len(), 2);
    }
}
