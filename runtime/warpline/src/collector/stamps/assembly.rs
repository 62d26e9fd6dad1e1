//! The stamps of one graph, put together: one replay behind another.
//!
//! A stamp says which border it is, and not of which launch. Launches of one executable graph never overlap, and a stamp comes
//! behind those before it in the graph, so each replay begins where the last one was complete. Two executable graphs of one
//! graph may run at the same time: then a stamp comes again before the replay is complete, or without those before it. Nobody
//! can say whose each one is, so none of them is taken until all borders have come equally often; if it is not known that
//! everything was counted from the first stamp on, or it happens again soon, until no stamp has come for a while. And then
//! a few replays must have been in order before one is taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline_cuda::stamps::Stamped;
use warpline_cuda::graph::plan::Plan;

/// Replays that were mixed up are over when no stamp has come for so long, and for twice the longest time between two stamps.
const QUIET: Duration = Duration::from_millis(500);

/// After so many replays in one another nobody counts on that all of it was seen.
const MOST_MIXED: u32 = 64;

/// So many replays must be in order, behind such as were mixed up, before one is taken.
const CLEAN: u32 = 3;

pub(super) struct Assembly {
    plan: Arc<Plan>,
    times: Vec<Option<Stamped>>,
    /// How many of them have come.
    have: usize,
    mode: Mode,
    /// Stamps were lost, or the session began in the middle of a replay: it is not known what the first ones are of.
    is_suspect: bool,
    /// Of so many stamps more a replay that has lost some may be.
    torn: usize,
    /// So many replays more must be in order before one is taken.
    doubt: u32,
    touched: Instant,
    last_ns: Option<i64>,
    longest: Duration,
    /// Replays that began and will not be complete, since somebody asked.
    pub(super) spoilt: Spoilt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spoilt {
    /// Of two executable graphs at the same time, or right behind such.
    pub(super) mixed: u64,
    /// Stamps are missing.
    pub(super) incomplete: u64,
}

enum Mode {
    /// What comes is of the replay that is under way, or the begin of the next one.
    Whole,
    /// All is left out until a first stamp.
    Skipping,
    /// Replays are in one another.
    Mixed {
        /// How often each stamp has come since.
        counts: Vec<u32>,
        /// Nothing was missed: when all have come equally often, all of it is through.
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

    /// Whether the next stamp begins a replay, or belongs to none.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Whether nothing is under way or in doubt, and nothing has come for so long.
    pub(super) fn is_idle(&self, since: Duration) -> bool {
        self.is_between()
            && self.doubt == 0
            && !matches!(self.mode, Mode::Mixed { .. })
            && self.touched.elapsed() >= since
    }

    /// The graph's zones have changed, between two replays.
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

    /// Takes in the stamp of this place; gives the plan's stamps, in their order, when that makes the replay complete.
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

    /// A stamp does not fit: either some are missing, or another replay is under way at the same time.
    fn break_off(&mut self, place: usize, stamped: Stamped, is_torn: bool) {
        // Of one first stamp nothing is missing behind it. Of several some may have come before the session looked.
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

    /// Ends the mixture when all of it is through, and that is known.
    fn unmix(&mut self) {
        let Mode::Mixed { counts, is_all } = &mut self.mode else { return };
        let most = counts.iter().max().copied().unwrap_or(0);
        *is_all &= most <= MOST_MIXED;
        if *is_all && counts.iter().all(|count| *count == most) {
            self.spoilt.mixed += u64::from(most);
            (self.mode, self.doubt) = (Mode::Whole, CLEAN);
        }
    }

    /// Stamps were lost, of this graph or another: what was under way is not complete.
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

    /// A mixture of which nothing comes any more is over. One of which it is known what is still to come is not.
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

    /// `stamps` has, for each stamp, those right before it.
    fn assembly(stamps: &[&[u32]]) -> Assembly {
        let stamps = stamps.iter().map(|before| before.to_vec()).collect();
        Assembly::new(Arc::new(Plan { stamps, ..Plan::default() }))
    }

    const CHAIN: [&[u32]; 4] = [&[], &[0], &[1], &[2]];

    /// The times of the replays that are complete, one after another, when stamps of these places come at 0, 1, 2, …
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
        // Interleaved; behind one another but for the last; and a whole one inside another.
        for mixed in [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 0, 3, 1, 2, 3], [0, 0, 1, 2, 3, 1, 2, 3]] {
            let mut chain = assembly(&CHAIN);
            feed(&mut chain, &[0, 1, 2, 3]);
            assert_eq!(feed(&mut chain, &mixed), Vec::<Vec<i64>>::new(), "{mixed:?}");
            assert_eq!(chain.spoilt, Spoilt { mixed: 2, incomplete: 0 }, "{mixed:?}");
            // Those right behind them are not taken yet.
            let behind = feed(&mut chain, &[0, 1, 2, 3].repeat(4));
            assert_eq!(behind, [[12, 13, 14, 15]], "{mixed:?}");
            assert_eq!(chain.spoilt, Spoilt { mixed: 5, incomplete: 0 }, "{mixed:?}");
        }
    }

    /// Orders in which two stamps of two executable graphs come, of which all but the first look as those of one.
    #[test]
    fn none_is_made_up_of_two_that_follow_each_other_closely() {
        for clean in [0, 1] {
            let mut pair = assembly(&[&[], &[0]]);
            assert_eq!(feed(&mut pair, &[0, 1].repeat(clean)).len(), clean);
            // 0a 0b 1a 1b, again and again; and 0a 0b 1a 0a 1b 0b 1a …
            assert_eq!(feed(&mut pair, &[0, 0, 1, 1].repeat(50)).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[0, 0]).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[1, 0].repeat(500)).len(), 0, "{clean}");
            assert_eq!(feed(&mut pair, &[1, 1]).len(), 0, "{clean}");
            // Lost stamps are no end of it, and a pause between two stamps is none where one is known to be under way.
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
        // It is known that one is under way.
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
        // One of two first stamps was lost.
        let mut forked = assembly(&[&[], &[], &[0, 1]]);
        feed(&mut forked, &[0, 1, 2]);
        forked.forget();
        assert_eq!(feed(&mut forked, &[1, 2, 0, 1, 2, 1, 0, 2]).len(), 2);
    }
}
