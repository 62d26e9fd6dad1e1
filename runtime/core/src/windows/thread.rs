//! What one thread knows of the session's windows: its open root, and whether it was seen between roots. It decides which of the
//! thread's zones are recorded.
//!
//! Nothing here allocates, locks or waits.

use std::sync::Arc;

use super::learned::LEARNED;
use super::{LONGEST_ROOT, Phase, Windows};
use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::fork::Home;
use crate::sample::Sampled;

/// The treatment of a zone by a session with windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admission {
    #[default]
    Refused,
    /// The zone is a root that is followed to its end and not recorded.
    Followed,
    Recorded,
}

/// The role of a zone in the windows. Its slot keeps it until the zone's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RootKind {
    /// Not a root, or no session with windows.
    #[default]
    None,
    /// Admitted and not started, so not known to be a root yet: one that is to be recorded.
    ToRecord,
    /// The same, of a zone that is to be followed.
    ToFollow,
    Followed,
    Recorded,
}

/// A thread's knowledge of the windows of the last session in which it began a zone.
#[derive(Default)]
pub(crate) struct ThreadRoots {
    windows: Option<Arc<Windows>>,
    state: ThreadState,
    /// The process in which this is known; none before the first zone.
    home: Option<Home>,
}

/// A thread's knowledge of the cycle.
#[derive(Default)]
struct ThreadState {
    cycle: u32,
    /// The root that is open on the thread; `begin_ns` is its begin.
    root: Option<&'static RangeSpec>,
    begin_ns: i64,
    is_recorded: bool,
    /// Whether the thread was seen between two roots in this cycle.
    is_between: bool,
    news: u32,
    /// The number of zones inside the root; without a root, of zones that may be inside one.
    zones: u32,
    /// Whether a zone was admitted as a root and has not started. It counts as under way.
    is_starting: bool,
    /// Whether the root counts as under way: it was admitted as a root.
    is_counted: bool,
}

impl ThreadRoots {
    /// Returns the windows of the session of the thread's last zone.
    pub(crate) fn windows(&mut self) -> Option<&Arc<Windows>> {
        if !self.home.is_some_and(Home::is_here) {
            // The root of a forked process is the parent's, and does not end here.
            (self.windows, self.state, self.home) = (None, ThreadState::default(), Some(Home::here()));
        }
        self.windows.as_ref()
    }

    /// Enters a session.
    pub(crate) fn enter(&mut self, windows: Arc<Windows>) {
        let (cycle, _) = windows.now();
        self.state.enter(cycle);
        self.state.is_counted = false;
        self.windows = Some(windows);
    }

    /// Decides whether a zone that begins now is recorded.
    pub(crate) fn admit(&mut self, range: &'static RangeSpec) -> Admission {
        self.change(|thread, windows| thread.admit(range, windows))
    }

    /// Starts a zone that nests. With `is_followed`, it is not recorded. Returns its kind.
    pub(crate) fn start(&mut self, range: &'static RangeSpec, is_followed: bool) -> RootKind {
        self.change(|thread, windows| thread.start(range, is_followed, windows))
    }

    /// Ends a root on the thread that began it. `cycle` is the cycle of a recorded root.
    pub(crate) fn end(&mut self, range: &'static RangeSpec, kind: RootKind, cycle: u32) {
        self.change(|thread, windows| thread.end(range, kind, cycle, windows));
    }

    /// Handles an admitted zone that is not recorded: if it is a root, it is not followed.
    pub(crate) fn lose(&mut self) {
        self.change(|thread, windows| {
            if thread.root.is_none() {
                (thread.is_between, thread.zones) = (false, 0);
            }
            thread.give_up_start(windows);
        });
    }

    /// Handles an admitted zone that is not a root, or that never starts.
    pub(crate) fn pass_over(&mut self) {
        self.change(ThreadState::give_up_start);
    }

    /// Returns the share and the window of a zone that is recorded now and has the chance `sampled` in its window.
    pub(crate) fn sampled(&mut self, sampled: Sampled) -> Sampled {
        self.windows().map_or(sampled, |windows| windows.sampled(sampled))
    }

    fn change<T: Default>(&mut self, change: impl FnOnce(&mut ThreadState, &Windows) -> T) -> T {
        self.windows();
        let Some(windows) = &self.windows else { return T::default() };
        change(&mut self.state, windows)
    }
}

impl Drop for ThreadRoots {
    /// The window waits no longer for a root of a thread that ends.
    fn drop(&mut self) {
        let ThreadState { cycle, root, is_starting, is_counted, .. } = self.state;
        if let Some(windows) = &self.windows
            && self.home.is_some_and(Home::is_here)
            && (is_starting || root.is_some() && is_counted)
        {
            windows.leave(cycle);
        }
    }
}

impl ThreadState {
    fn admit(&mut self, range: &'static RangeSpec, windows: &Windows) -> Admission {
        let (cycle, phase) = windows.now();
        if self.cycle != cycle {
            self.enter(cycle);
        }
        let nesting = range.nesting();
        if self.root.is_some() {
            self.zones = self.zones.saturating_add(1);
            nesting.see_inside_root();
            return if self.is_recorded { Admission::Recorded } else { Admission::Refused };
        }
        self.give_up_start(windows);
        let is_over = || phase == Phase::Open && windows.is_over(now_ns());
        if matches!(phase, Phase::Closed | Phase::Closing) || is_over() {
            return Admission::Refused;
        }
        if nesting.is_frame() {
            return if phase == Phase::Open { Admission::Recorded } else { Admission::Refused };
        }
        let news = LEARNED.news();
        if self.news != news {
            (self.news, self.is_between) = (news, false);
        }
        if !self.is_between && nesting.is_inside_roots() {
            self.zones = self.zones.saturating_add(1);
            if self.zones <= LEARNED.most_children() {
                return Admission::Refused;
            }
        }
        match phase {
            Phase::Counting => Admission::Followed,
            _ if self.begin_start(windows) => Admission::Recorded,
            _ => Admission::Refused,
        }
    }

    /// Enters a new cycle. Zones that began in the gap are unknown.
    fn enter(&mut self, cycle: u32) {
        (self.cycle, self.is_between, self.is_starting) = (cycle, false, false);
        match self.root {
            None => self.zones = 0,
            Some(root) if now_ns() - self.begin_ns > LONGEST_ROOT.as_nanos() as i64 => {
                root.nesting().see_frame();
                (self.root, self.zones) = (None, 0);
            }
            // The root's window is over; the rest of the root was not recorded.
            Some(_) => self.is_recorded = false,
        }
    }

    fn start(&mut self, range: &'static RangeSpec, is_followed: bool, windows: &Windows) -> RootKind {
        if range.nesting().is_frame() {
            self.give_up_start(windows);
            return RootKind::None;
        }
        if self.root.is_some() {
            return RootKind::None;
        }
        (self.root, self.begin_ns, self.is_recorded, self.zones) = (Some(range), now_ns(), !is_followed, 0);
        // The count for its start now counts for the root. It was given up if another root ran while its fields were evaluated.
        self.is_counted = std::mem::take(&mut self.is_starting);
        if is_followed {
            LEARNED.count_root();
            RootKind::Followed
        } else {
            windows.count_recorded();
            RootKind::Recorded
        }
    }

    fn end(&mut self, range: &'static RangeSpec, kind: RootKind, cycle: u32, windows: &Windows) {
        // A frame is no longer the thread's root.
        if !self.root.is_some_and(|root| std::ptr::eq(root, range)) {
            return;
        }
        if kind == RootKind::Recorded && std::mem::take(&mut self.is_counted) {
            windows.leave(cycle);
        }
        LEARNED.see_children(self.zones);
        (self.root, self.zones) = (None, 0);
        self.is_between = self.cycle == windows.now().0;
    }

    /// Lets a root begin in the open window, which then waits for it. Returns false if the window has closed by then.
    fn begin_start(&mut self, windows: &Windows) -> bool {
        self.is_starting = true;
        let is_open = windows.join(self.cycle);
        if !is_open {
            self.give_up_start(windows);
        }
        is_open
    }

    /// Gives up the start of an admitted zone that is not a root of the window.
    fn give_up_start(&mut self, windows: &Windows) {
        if std::mem::take(&mut self.is_starting) {
            windows.leave(self.cycle);
        }
    }
}
