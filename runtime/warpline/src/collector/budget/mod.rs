//! The budget stage: it opens and closes the windows in which a session records, and measures their cost.
//!
//! `warpline_core::windows` defines the meaning of a window for a zone. A cycle is a random gap, a counting phase in which roots are
//! counted and nothing is recorded, and a window, which is longer where recording is cheap. The cost of recording is how much faster
//! roots come while they are only counted. The gaps are chosen so that the cost stays within the budget. Until enough is measured, the
//! known cost of a zone is used. The stage never reads a device.
//!
//! The schedule's time is the time in which the session records: it stands still while the session is stopped. So a session that often
//! stops reaches its windows like one that does not.

mod cost;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::stage::Stage;
use schedule::{Schedule, Seen};
use warpline_core::catalog::catalog;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::sample::may_be_sampled;
use warpline_core::windows::{Phase, Windows, counting_ns, set_counting_ns};
use warpline_report::figures::WindowFigures;
use warpline_report::sink::Change;

/// The windows of a session with a budget.
pub(crate) struct Budget {
    windows: Arc<Windows>,
    schedule: Schedule,
    /// Since when the session is stopped.
    stopped_ns: Option<i64>,
    /// The time for which it was stopped: how far the schedule's clock is behind.
    behind_ns: i64,
    /// The number of suspensions that the schedule knows.
    suspensions: u32,
}

impl Stage for Budget {
    fn pass(&mut self, cx: &mut Context) -> usize {
        let is_on = cx.recorder.is_on();
        // A stop may be over before the collector sees it.
        if !is_on || self.windows.suspensions() != self.suspensions {
            self.stop(cx);
        }
        if !is_on {
            return 0;
        }
        self.behind_ns += self.stopped_ns.take().map_or(0, |since_ns| now_ns() - since_ns);
        let now_ns = self.now_ns();
        if now_ns < self.schedule.due_ns() {
            return 0;
        }
        let roots = self.windows.roots();
        let seen = Seen { roots, begun: cx.recorder.account().begun, zone_ns: cx.streams.clocks.zone_ns() };
        let Some(phase) = self.schedule.step(now_ns, seen) else { return 0 };
        if phase == Phase::Open {
            self.windows.plan(self.schedule.share(), self.schedule.due_ns() + self.behind_ns);
        }
        self.windows.set(phase, stays_awake(&self.windows));
        match phase {
            Phase::Open => cx.stats.note_change(Change::WindowOpened),
            Phase::Closed => cx.stats.note_change(Change::WindowClosed),
            Phase::Counting | Phase::Closing => {}
        }
        self.tell(cx);
        0
    }

    fn due(&self) -> Option<Duration> {
        let left_ns = self.schedule.due_ns() - self.now_ns();
        self.stopped_ns.is_none().then(|| Duration::from_nanos(left_ns.max(0) as u64))
    }

    fn finish(&mut self, cx: &mut Context) {
        self.stop(cx);
        self.windows.finish();
    }
}

impl Budget {
    /// Begins the session's first gap.
    pub(crate) fn new(windows: &Arc<Windows>, share: f64) -> Budget {
        suspend(windows);
        let mut schedule = Schedule::new(share, now_ns());
        schedule.set_learned_ns(counting_ns());
        Budget {
            windows: Arc::clone(windows),
            schedule,
            stopped_ns: None,
            behind_ns: 0,
            suspensions: windows.suspensions(),
        }
    }

    pub(crate) fn figures(&self) -> WindowFigures {
        self.schedule.figures()
    }

    /// Stops the schedule's time, unless it is stopped.
    fn stop(&mut self, cx: &Context) {
        if self.stopped_ns.is_none() {
            self.schedule.interrupt(self.now_ns(), self.windows.roots());
            self.stopped_ns = Some(self.now_ns() + self.behind_ns);
            suspend(&self.windows);
            self.tell(cx);
        }
        self.suspensions = self.windows.suspensions();
    }

    /// Returns the schedule's time, while it does not stand still.
    fn now_ns(&self) -> i64 {
        now_ns() - self.behind_ns
    }

    fn tell(&self, cx: &Context) {
        set_counting_ns(self.schedule.learned_ns());
        *lock(&cx.stats.windows) = Some(self.schedule.figures());
    }
}

/// Closes the window, so that none is open when the session is turned on again.
pub(crate) fn suspend(windows: &Windows) {
    windows.suspend(stays_awake(windows));
}

/// Returns whether zones check for recording in gaps, too. Collectives are recorded completely, because ranks match them by number. So
/// are captured zones if replays are recorded.
fn stays_awake(windows: &Windows) -> bool {
    windows.takes_captures() || catalog().iter().any(|range| !may_be_sampled(range) && !range.chance().is_left_out())
}
