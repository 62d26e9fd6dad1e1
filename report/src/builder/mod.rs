//! The one builder of a report's figures: adds zones, kernels, waits and steps, whatever they come from.
//!
//! `live` adds the records of a session, and the command `warpline report` the slices of traces, so a session and its traces have the same
//! figures. A [`ReportBuilder`] takes any number of recordings, one after another; a session is one that does not end before its report.
//! `ranges` has the figures of ranges, `counted` tables of sums, `streams` the use of each stream, and `totals` makes the report. Memory is
//! bounded: it depends on the numbers of ranges, rows and streams, and a row keeps its latest zones until they are in the order of their ends.

mod calls;
mod counted;
mod live;
mod ranges;
mod streams;
#[cfg(test)]
mod tests;
mod totals;

use std::collections::HashMap;
use std::sync::Arc;

use warpline_core::record::{DeviceKind, Span};
use warpline_core::work::Work;

use crate::EndCounts;
use crate::figures::StreamStats;
use crate::lengths::{Length, Lengths};
use crate::names::{Name, Names};
use crate::path::{CriticalPath, PathLog};
use crate::per_step::{PerStep, StepSums};
use crate::traffic::Traffic;

pub use calls::{Call, Calls, LeftOut as CallsLeftOut, RowId};
pub use counted::{Counted, Sum};
pub use live::{CameBy, CapturedRange, SessionFigures};
pub use ranges::{Place, RangeId};
pub use streams::{StreamUse, Streams};

use ranges::{Ranges, Rows};

/// The number of latest zones in which the critical path is found.
const PATH: usize = 1 << 15;

/// The figures so far.
#[derive(Default)]
pub struct ReportBuilder {
    ranges: Ranges,
    pub kernels: Counted<(Name, Option<Name>)>,
    /// By thread, call and range.
    pub host_waits: Counted<(Arc<str>, Name, Option<Name>)>,
    pub semaphores: Counted<Name>,
    pub traffic: Traffic,
    /// The lengths of steps.
    steps: Lengths,
    step_sums: HashMap<u32, StepSums>,
    late: u64,
    /// Of recordings that have ended, with their numbers.
    ended_streams: Vec<(u32, StreamStats)>,
    path: Option<CriticalPath>,
    /// The recording that has the path.
    path_of: u32,
    window_ns: i64,
    /// The first and the last window of a budget.
    windows: Option<(u32, u32)>,
    ends: EndCounts,
    recordings: u32,
    current: Current,
    /// What only a page shows.
    calls: Option<Box<Calls>>,
}

/// The state of the recording that is being read.
struct Current {
    window: Option<Span>,
    rows: Rows,
    per_step: PerStep,
    streams: Streams,
    path: PathLog,
}

impl Default for Current {
    fn default() -> Current {
        Current {
            window: None,
            rows: Rows::default(),
            per_step: PerStep::default(),
            streams: Streams::default(),
            path: PathLog::new(PATH),
        }
    }
}

/// A zone, or an entry of a batch, which has a share of the batch's time.
#[derive(Clone, Copy, Debug)]
pub struct Zone<'a> {
    /// Its time where it is: on its thread or its stream.
    pub span: Span,
    /// The time by which its end may be earlier, in ns.
    pub early_by_ns: i64,
    /// The same, if no event was its end, also if that is 0.
    pub found_early_by_ns: Option<i64>,
    /// Its time on the launching thread, if it is known.
    pub host: Option<Span>,
    /// Whether it is an entry of a batch, and its share of the batch's time, which is 1 for a zone. Not an option: what
    /// is multiplied for none is often denormal, which takes longer than all else here.
    pub is_entry: bool,
    pub share: f64,
    /// The share of the range's zones that were recorded then.
    pub sampled_share: f64,
    /// The window of a session with a budget; 0 without one.
    pub window: u32,
    pub device: Option<(DeviceKind, u32)>,
    pub has_failed: bool,
    /// The declared work, the time in which it was done, and the device's name.
    pub work: Option<(Work, i64, &'a str)>,
    /// The row in which it nests, and the number of zones that it is within, if that is known: of two equal spans, it says which is the inner one.
    pub row: Option<RowId>,
    pub depth: u32,
    /// Whether steps count it.
    pub in_steps: bool,
}

/// Which records are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    /// All zones: time without one is idle time, on a device without kernels.
    pub zones: bool,
    /// All kernels: time without one is idle time.
    pub kernels: bool,
}

impl ReportBuilder {
    /// Returns a builder that also collects what a page shows.
    pub fn for_page() -> ReportBuilder {
        ReportBuilder { calls: Some(Box::default()), ..ReportBuilder::default() }
    }

    /// Returns the number of a range in a place.
    pub fn range(&mut self, name: Name, place: Place) -> RangeId {
        self.ranges.number(name, place)
    }

    /// Returns the name and the place of a range.
    pub fn name_of(&self, number: u32) -> Option<(Name, Place)> {
        self.ranges.name_of(number)
    }

    /// Returns the lengths of each range in each place.
    pub fn lengths(&self) -> impl Iterator<Item = (Name, Place, &Lengths)> {
        self.ranges.lengths()
    }

    /// Returns the number of the recording that is being read.
    pub fn recording(&self) -> u32 {
        self.recordings
    }

    /// Returns the number of the recording that has the critical path.
    pub fn path_of(&self) -> u32 {
        self.path_of
    }

    /// Returns what was collected for the page, once.
    pub fn take_calls(&mut self) -> Calls {
        self.calls.take().map_or_else(Calls::default, |calls| *calls)
    }

    /// Returns whether there is no zone, kernel and step.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.kernels.is_empty() && self.steps.count() == 0
    }

    /// Returns whether there is a step.
    pub fn has_steps(&self) -> bool {
        self.steps.count() > 0
    }

    /// Returns the streams of the recording that is being read.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.current.streams
    }

    /// Returns the log in which the critical path of the recording that is being read is found.
    pub fn path(&mut self) -> &mut PathLog {
        &mut self.current.path
    }

    /// Adds a zone of a range. `may_lack_first` returns whether the first zone of the range may not be among the records.
    pub fn zone(&mut self, range: RangeId, zone: &Zone<'_>, may_lack_first: impl FnOnce() -> bool) {
        let part = |ns: i64| if zone.is_entry { (ns as f64 * zone.share) as i64 } else { ns };
        let ns = part(zone.span.duration_ns());
        let host = zone.host.unwrap_or(zone.span);
        let window = self.current.window.get_or_insert(zone.span);
        *window = window.around(zone.span).around(host);
        if zone.window > 0 {
            let (first, last) = self.windows.get_or_insert((zone.window, zone.window));
            (*first, *last) = ((*first).min(zone.window), (*last).max(zone.window));
        }
        let length = Length {
            ns,
            early_by_ns: part(zone.early_by_ns),
            launch_ns: zone.host.filter(|_| !zone.is_entry).map(|host| host.duration_ns()),
            begin_ns: host.begin_ns,
            weight: if zone.sampled_share > 0.0 { 1.0 / zone.sampled_share.min(1.0) } else { 1.0 },
            window: zone.window,
            device: zone.device,
            has_failed: zone.has_failed,
        };
        let place = self.ranges.add(range, &length, zone.work, may_lack_first);
        if let Some(row) = zone.row {
            self.current.rows.add(row, range, zone, &mut self.ranges, self.calls.as_deref_mut());
        }
        if zone.in_steps {
            self.current.per_step.zone(range.number(), host.begin_ns, ns, zone.early_by_ns);
        }
        if place == Place::Streams {
            self.ends.add(zone.span.duration_ns(), zone.found_early_by_ns);
        }
    }

    /// Adds a step.
    pub fn step(&mut self, span: Span) {
        self.current.per_step.step(span);
        let step = Length {
            ns: span.duration_ns(),
            early_by_ns: 0,
            launch_ns: None,
            begin_ns: span.begin_ns,
            weight: 1.0,
            window: 0,
            device: None,
            has_failed: false,
        };
        // No first step is set apart: the mean and the percentiles of steps are those of all.
        self.steps.add(&step, || true);
    }

    /// Puts the zones that wait among those of their rows, when no zone that comes later is within one of them.
    fn settle(&mut self) {
        self.current.rows.settle(&mut self.ranges, self.calls.as_deref_mut());
    }

    /// Does so at the end of a batch of a session.
    fn end_batch(&mut self) {
        self.settle();
        self.current.rows.forget();
    }

    /// Ends a recording.
    pub fn end_recording(&mut self, complete: Complete, names: &Names) {
        self.settle();
        let current = std::mem::take(&mut self.current);
        if let Some(calls) = &mut self.calls {
            calls.end_trace();
        }
        self.window_ns += current.window.map_or(0, |window| window.duration_ns());
        current.add_steps_to(&mut self.step_sums);
        self.late += current.per_step.late();
        let streams = current.streams.stats(complete, names);
        self.ended_streams.extend(streams.into_iter().map(|stream| (self.recordings, stream)));
        let path = current.path.path(None, names);
        let length = |path: &CriticalPath| path.to_ns - path.from_ns;
        if path.as_ref().map_or(0, length) > self.path.as_ref().map_or(0, length) {
            (self.path, self.path_of) = (path, self.recordings);
        }
        self.recordings += 1;
    }
}

impl Current {
    fn add_steps_to(&self, sums: &mut HashMap<u32, StepSums>) {
        for (number, more) in self.per_step.figures() {
            match sums.get_mut(&number) {
                Some(known) => known.merge(&more),
                None => drop(sums.insert(number, more)),
            }
        }
    }
}
