//! A window of a rank: what its tables will hold, from the records as they come.
//!
//! The collector's thread adds records. Nothing here does I/O. Each part is bounded, and what has no room is counted.

use std::sync::Arc;

use super::ranges::Ranges;
use super::steps::{Closed, launch_ns};
use warpline_core::collective::ProcessGroup;
use warpline_core::record::ZoneRecord;
use warpline_core::sink::Progress;

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

/// The counts of zones, and how they were when the window began.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) begun: u64,
    pub(super) recorded: u64,
    pub(super) captured: u64,
    pub(super) dropped: u64,
}

impl Counts {
    pub(super) fn of(progress: &Progress) -> Counts {
        let Progress { begun, recorded, captured, dropped, .. } = *progress;
        Counts { begun, recorded, captured, dropped }
    }

    pub(super) fn since(self, before: Counts) -> Counts {
        Counts {
            begun: self.begun.saturating_sub(before.begun),
            recorded: self.recorded.saturating_sub(before.recorded),
            captured: self.captured.saturating_sub(before.captured),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

/// A window, open or closed.
#[derive(Default)]
pub(super) struct Window {
    pub(super) number: i64,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) realtime_offset_ns: i64,
    pub(super) clock_err_ns: i64,
    pub(super) counts: Counts,
    pub(super) closed: Closed,
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
