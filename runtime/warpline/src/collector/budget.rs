//! The budget stage: it opens and closes the windows in which a session records, and measures their cost.
//!
//! `warpline_core::windows` defines the meaning of a window for a zone. A cycle is a random gap, a counting phase in which roots are
//! counted and nothing is recorded, and a window, which is longer where recording is cheap. The cost of recording is how much faster
//! roots come while they are only counted. The gaps are chosen so that the cost stays within the budget. Until enough is measured, the
//! known cost of a zone is used. The stage never reads a device.

mod cost;
mod schedule;

use std::time::Duration;

use super::context::Context;
use super::stage::Stage;
use schedule::{Schedule, Seen};
use warpline_core::catalog::catalog;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::sample::may_be_sampled;
use warpline_core::sink::Change;
use warpline_core::windows::{self, Phase};

/// The windows of a session with a budget.
pub(crate) struct Budget {
    schedule: Schedule,
    /// Whether the session is stopped.
    is_stopped: bool,
}

impl Stage for Budget {
    fn pass(&mut self, cx: &mut Context) -> usize {
        let now_ns = now_ns();
        if !cx.recorder.is_on() {
            if !self.is_stopped {
                self.is_stopped = true;
                self.schedule.restart(now_ns);
                suspend();
            }
            return 0;
        }
        self.is_stopped = false;
        if now_ns < self.schedule.due_ns() {
            return 0;
        }
        let roots = windows::roots();
        let seen = Seen { roots, begun: cx.recorder.account().begun, zone_ns: cx.streams.clocks.zone_ns() };
        let Some(phase) = self.schedule.step(now_ns, seen) else { return 0 };
        if phase == Phase::Open {
            windows::plan(self.schedule.share(), self.schedule.due_ns());
        }
        windows::set(phase, stays_awake());
        match phase {
            Phase::Open => cx.tally.note_change(Change::WindowOpened),
            Phase::Closed => cx.tally.note_change(Change::WindowClosed),
            Phase::Counting | Phase::Closing => {}
        }
        *lock(&cx.tally.windows) = Some(self.schedule.figures());
        0
    }

    fn due(&self) -> Option<Duration> {
        let left_ns = self.schedule.due_ns() - now_ns();
        (!self.is_stopped).then(|| Duration::from_nanos(left_ns.max(0) as u64))
    }

    fn finish(&mut self, _cx: &mut Context) {
        windows::finish();
    }
}

impl Budget {
    pub(crate) fn new(share: f64) -> Budget {
        Budget { schedule: Schedule::new(share, now_ns()), is_stopped: false }
    }
}

/// Begins a gap, so that no window is open when the session is turned on.
pub(crate) fn suspend() {
    windows::begin_gap(stays_awake());
}

/// Returns whether zones check for recording in gaps, too. Collectives are recorded completely, because ranks match them by number. So
/// are captured zones if replays are recorded.
fn stays_awake() -> bool {
    windows::takes_captures() || catalog().iter().any(|range| !may_be_sampled(range) && !range.chance().is_left_out())
}
