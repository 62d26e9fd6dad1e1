//! The stamps of one graph, put together: one replay behind another.
//!
//! A stamp says which border it is, and not of which launch. Launches of one executable graph never overlap, and a stamp comes
//! behind those before it in the graph, so each replay begins where the last one was complete. Two executable graphs of one
//! graph may run at the same time: then a stamp comes again before the replay is complete, or without those before it. Nobody
//! can say whose each one is, so none of them is taken until all borders have come equally often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::cuda::stamps::Stamped;
use crate::graph::plan::Plan;

/// Replays that were mixed up and of which no stamp has come for so long are over.
const QUIET: Duration = Duration::from_millis(500);

/// After so many replays in one another, the next first stamp begins anew.
const MOST_MIXED: u32 = 64;

pub(super) struct Assembly {
    plan: Arc<Plan>,
    times: Vec<Option<Stamped>>,
    /// How many of them have come.
    have: usize,
    mode: Mode,
    /// Stamps were lost, or the session began in the middle of a replay: one that does not fit says no more than that.
    is_suspect: bool,
    /// They were in one another for so long that nobody counts their stamps any more.
    is_given_up: bool,
    touched: Instant,
    /// Replays that began and will not be complete, since somebody asked.
    pub(super) spoilt: Spoilt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spoilt {
    /// Of two executable graphs at the same time.
    pub(super) mixed: u64,
    /// Stamps are missing.
    pub(super) incomplete: u64,
}

enum Mode {
    /// What comes is of the replay that is under way, or the begin of the next one.
    Whole,
    /// All is left out until a first stamp.
    Skipping,
    /// How often each stamp has come since replays were seen to be in one another.
    Mixed(Vec<u32>),
}

impl Assembly {
    pub(super) fn new(plan: Arc<Plan>) -> Assembly {
        let times = vec![None; plan.stamps.len()];
        let mode = Mode::Skipping;
        let spoilt = Spoilt::default();
        Assembly { plan, times, have: 0, mode, is_suspect: true, is_given_up: false, touched: Instant::now(), spoilt }
    }

    /// Whether the next stamp begins a replay, or belongs to none.
    pub(super) fn is_between(&self) -> bool {
        self.have == 0
    }

    /// The graph's zones have changed, between two replays.
    pub(super) fn renew(&mut self, plan: Arc<Plan>) {
        if plan.stamps.len() != self.times.len() {
            self.forget();
            self.times = vec![None; plan.stamps.len()];
        }
        self.plan = plan;
    }

    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Takes in the stamp of this place; gives the plan's stamps, in their order, when that makes the replay complete.
    pub(super) fn add(&mut self, place: u32, stamped: Stamped) -> Option<Vec<Stamped>> {
        self.touched = Instant::now();
        let place = place as usize;
        if let Mode::Mixed(counts) = &mut self.mode {
            counts[place] += 1;
            self.unmix();
            return None;
        }
        let before = &self.plan.stamps[place];
        if matches!(self.mode, Mode::Skipping) {
            if !before.is_empty() {
                return None;
            }
            self.mode = Mode::Whole;
        }
        let fits = self.times[place].is_none() && before.iter().all(|before| self.times[*before as usize].is_some());
        if !fits {
            self.break_off(place, stamped);
            return None;
        }
        self.times[place] = Some(stamped);
        self.have += 1;
        if self.have < self.times.len() {
            return None;
        }
        (self.is_suspect, self.is_given_up) = (false, false);
        self.have = 0;
        Some(self.times.iter_mut().filter_map(Option::take).collect())
    }

    /// A stamp does not fit: either some are missing, or another replay is under way at the same time.
    fn break_off(&mut self, place: usize, stamped: Stamped) {
        if self.is_suspect {
            self.forget();
            if self.plan.stamps[place].is_empty() {
                self.times[place] = Some(stamped);
                (self.have, self.mode) = (1, Mode::Whole);
            }
            return;
        }
        let mut counts: Vec<u32> = self.times.iter().map(|time| u32::from(time.is_some())).collect();
        counts[place] += 1;
        self.times.fill(None);
        (self.have, self.mode) = (0, Mode::Mixed(counts));
        self.unmix();
    }

    /// Ends the mixture when all of it is through.
    fn unmix(&mut self) {
        let Mode::Mixed(counts) = &self.mode else { return };
        let most = counts.iter().max().copied().unwrap_or(0);
        let are_equal = counts.iter().all(|count| *count == most);
        if are_equal {
            self.mode = Mode::Whole;
        } else if most > MOST_MIXED {
            (self.mode, self.is_suspect, self.is_given_up) = (Mode::Skipping, true, true);
        } else {
            return;
        }
        self.spoilt.mixed += u64::from(most);
    }

    /// Stamps were lost, of this graph or another: what was under way is not complete.
    pub(super) fn forget(&mut self) {
        let spoilt = if self.is_given_up { &mut self.spoilt.mixed } else { &mut self.spoilt.incomplete };
        *spoilt += u64::from(self.have > 0);
        if let Mode::Mixed(counts) = &self.mode {
            self.spoilt.mixed += u64::from(counts.iter().max().copied().unwrap_or(0));
        }
        self.times.fill(None);
        (self.have, self.mode, self.is_suspect) = (0, Mode::Skipping, true);
    }

    /// A mixture of which nothing comes any more is over.
    pub(super) fn rest(&mut self) {
        if matches!(self.mode, Mode::Mixed(_)) && self.touched.elapsed() >= QUIET {
            self.forget();
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
            assert_eq!(feed(&mut chain, &[0, 1, 2, 3]), [[0, 1, 2, 3]], "{mixed:?}");
        }
    }

    #[test]
    fn graphs_that_are_always_in_one_another_are_given_up_and_begin_anew() {
        let mut chain = assembly(&CHAIN);
        feed(&mut chain, &[0, 1, 2, 3, 0]);
        for _ in 0..1_000 {
            assert_eq!(feed(&mut chain, &[1, 0, 2, 3]).len(), 0);
        }
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
