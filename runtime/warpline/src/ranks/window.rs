//! A window of a rank: what its tables will hold, from the records as they come. [`Windows`] has the one that runs, and those whose time is over
//! but not all of whose steps are closed.
//!
//! The collector's thread adds records. Nothing here does I/O. Each part is bounded, and what has no room is counted.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ranges::Ranges;
use super::steps::{ByEnd, Closed, launch_ns};
use warpline_core::collective::ProcessGroup;
use warpline_core::record::ZoneRecord;
use warpline_core::steps::Steps;
use warpline_report::sink::Progress;

/// A row of `collectives`.
#[derive(Clone, Debug)]
pub(super) struct CollectiveRow {
    pub(super) comm: Arc<str>,
    pub(super) seq: u64,
    pub(super) kind: &'static str,
    pub(super) bytes: i64,
    pub(super) begin_ns: i64,
    pub(super) dur_ns: i64,
    pub(super) wait_ns: i64,
    /// The maximum time by which the end is earlier than it is recorded.
    pub(super) end_early_ns: i64,
    pub(super) range: &'static str,
    /// k of its call; none if it was kept because it was slow.
    pub(super) k: Option<u64>,
}

/// A communicator of the window.
#[derive(Clone, Debug)]
pub(super) struct Comm {
    pub(super) name: Arc<str>,
    pub(super) group: ProcessGroup,
    /// The largest k of its calls.
    pub(super) sampling: u64,
    pub(super) last_seq: u64,
    /// Whether this window says its members, because no earlier one did.
    pub(super) is_new: bool,
}

/// The counts of zones, and of steps without a record.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) begun: u64,
    pub(super) recorded: u64,
    pub(super) captured: u64,
    pub(super) dropped: u64,
    /// Steps for which the queue had no room.
    pub(super) steps_dropped: u64,
}

impl Counts {
    pub(super) fn new(progress: &Progress, steps: &Steps) -> Counts {
        let Progress { begun, recorded, captured, dropped, .. } = *progress;
        Counts { begun, recorded, captured, dropped, steps_dropped: steps.not_recorded().dropped }
    }

    pub(super) fn since(self, before: Counts) -> Counts {
        Counts {
            begun: self.begun.saturating_sub(before.begun),
            recorded: self.recorded.saturating_sub(before.recorded),
            captured: self.captured.saturating_sub(before.captured),
            dropped: self.dropped.saturating_sub(before.dropped),
            steps_dropped: self.steps_dropped.saturating_sub(before.steps_dropped),
        }
    }
}

/// A window, running or over.
#[derive(Default)]
pub(super) struct Window {
    pub(super) number: i64,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) realtime_offset_ns: i64,
    pub(super) clock_err_ns: i64,
    pub(super) counts: Counts,
    pub(super) closed: Closed,
    /// Steps that ended in it, closed or not.
    pub(super) steps: usize,
    pub(super) ranges: Ranges,
    pub(super) collectives: Vec<CollectiveRow>,
    pub(super) collectives_begun: u64,
    pub(super) comms: Vec<Comm>,
    /// Records that are in it, for the account of what is lost with it.
    pub(super) records: u64,
    /// Collectives that are kept because they were slow.
    pub(super) slow: usize,
}

impl Window {
    pub(super) fn new(number: i64, begin_ns: i64) -> Window {
        Window { number, begin_ns, end_ns: begin_ns, ..Window::default() }
    }

    /// Adds a zone to the figures of its range.
    pub(super) fn zone(&mut self, zone: &ZoneRecord) {
        self.records += 1;
        let early_by_ns = zone.gpu.map_or(0, |_| zone.end_early_by_ns);
        self.ranges.add(zone.range.name(), zone.duration_ns(), early_by_ns, launch_ns(zone));
    }
}

/// The window that runs, and the windows before it that wait for their steps.
pub(super) struct Windows {
    pub(super) running: Box<Window>,
    /// The oldest first.
    over: VecDeque<Box<Window>>,
}

impl Windows {
    pub(super) fn new(first: Window) -> Windows {
        Windows { running: Box::new(first), over: VecDeque::new() }
    }

    /// Begins the next window. The one that ran waits for its steps.
    pub(super) fn begin(&mut self, next: Window) {
        self.over.push_back(std::mem::replace(&mut self.running, Box::new(next)));
    }

    /// Takes the oldest window that ended before this time.
    pub(super) fn ended(&mut self, until_ns: i64) -> Option<Box<Window>> {
        let is_due = self.over.front().is_some_and(|window| window.end_ns <= until_ns);
        if is_due { self.over.pop_front() } else { None }
    }

    /// Puts a window that [`ended`](Self::ended) returned back, if few wait: the disk has no room for it yet.
    pub(super) fn keep(&mut self, window: Box<Window>, most: usize) -> Option<Box<Window>> {
        if self.over.len() >= most {
            return Some(window);
        }
        self.over.push_front(window);
        None
    }

    fn at(&mut self, end_ns: i64) -> &mut Window {
        match self.over.iter_mut().find(|window| end_ns <= window.end_ns) {
            Some(window) => window,
            None => &mut self.running,
        }
    }

    /// Counts a step in the window in which it ended.
    pub(super) fn step(&mut self, end_ns: i64) {
        self.at(end_ns).steps += 1;
    }
}

impl ByEnd for Windows {
    fn closed_at(&mut self, end_ns: i64) -> &mut Closed {
        &mut self.at(end_ns).closed
    }
}
