//! The own time of steps: what this rank took itself, which is the step without open communication and waits. The tables of ranks have it
//! as `compute_ns + idle_ns`, and ranks are judged by it.
//!
//! A step is added some time after its end, when its zones have been read. The memory is bounded.

use std::collections::VecDeque;

use super::histogram::Histogram;
use crate::step_times::{MOST_STEPS, SETTLED_NS, StepTimes};
use warpline_core::record::{Span, is_bound};

#[derive(Default)]
pub(super) struct OwnTimes {
    pub(super) times: StepTimes,
    /// The steps that have not settled, and the end of the last one that has.
    steps: VecDeque<Span>,
    settled_until_ns: i64,
    /// Of those that have, in seconds.
    pub(super) lengths: Histogram,
}

impl OwnTimes {
    pub(super) fn step(&mut self, step: Span) {
        self.steps.push_back(step);
    }

    /// Adds the steps that have settled, and forgets what no later one asks for.
    pub(super) fn settle(&mut self, now_ns: i64) {
        let until_ns = now_ns.saturating_sub(SETTLED_NS);
        while let Some(step) = self.steps.front().copied()
            && (step.end_ns <= until_ns || self.steps.len() > MOST_STEPS)
        {
            self.steps.pop_front();
            let parts = self.times.parts(step);
            let own_ns = parts.compute_ns + parts.idle_ns;
            // As where ranks are judged.
            if !is_bound(own_ns, parts.uncertain_ns) {
                self.lengths.add_ns(own_ns);
            }
            self.settled_until_ns = self.settled_until_ns.max(step.end_ns);
        }
        self.times.forget(self.steps.front().map_or(self.settled_until_ns, |next| next.begin_ns));
    }
}
