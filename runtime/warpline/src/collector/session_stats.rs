//! The figures of a running session. The collector writes them, and the session's handle creates the report from them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::left_out::{LeavesOut, not_sampled};
#[cfg(feature = "cupti")]
use crate::kernel_table::KernelTable;
use crate::summary::{CameBy, Summary};
use crate::traffic::Traffic;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::record::{ThreadInfo, ZoneRecord};
#[cfg(feature = "cuda")]
use warpline_core::replay::ReplayRecord;
use warpline_core::report::counts::{GraphTimingCounts, KernelCounts, KernelTimingCounts};
use warpline_core::report::figures::{ClockFigures, WindowFigures};
use warpline_core::report::{Report, SinkReport};
use warpline_core::sink::{Change, SessionChange};
use warpline_core::stderr;
use warpline_core::stream::context::Account;
use warpline_core::stream::recorder::Recorder;
use warpline_core::stream::thread;

/// The state that the collector and the session's handle share, so that a report can be made even when a sink does not return.
#[derive(Default)]
pub(crate) struct SessionStats {
    pub(crate) summary: Mutex<Summary>,
    pub(crate) traffic: Mutex<Traffic>,
    pub(crate) clocks: Mutex<Vec<ClockFigures>>,
    /// The account of each sink, by its number.
    pub(crate) sinks: Mutex<BTreeMap<usize, SinkReport>>,
    pub(crate) notes: Mutex<Vec<String>>,
    /// The notes that were already written to standard error.
    said: Mutex<Vec<String>>,
    pub(crate) kernels: Mutex<KernelCounts>,
    #[cfg(feature = "cupti")]
    pub(super) kernel_table: Mutex<KernelTable>,
    pub(crate) kernel_timing: Mutex<KernelTimingCounts>,
    /// The changes of the session that the sinks have not received yet.
    changes: Mutex<Changes>,
    pub(crate) graph_timing: Mutex<GraphTimingCounts>,
    /// The windows of a session with a budget.
    pub(crate) windows: Mutex<Option<WindowFigures>>,
    /// What the session's settings leave out.
    pub(crate) left_out: Mutex<LeavesOut>,
    #[cfg(feature = "timeline")]
    pub(super) timelines: Mutex<super::timelines::Timelines>,
    #[cfg(all(feature = "timeline", feature = "cuda"))]
    events_before: EventsBefore,
    /// The sink that the collector is calling now.
    pub(super) inside: Mutex<Option<String>>,
    /// The deadline of the collector's drain, once the session is over.
    pub(crate) deadline: Mutex<Option<Instant>>,
    /// Whether nothing waits for the collector any more.
    pub(crate) abandoned: AtomicBool,
}

/// The events of timelines when the session began.
#[cfg(all(feature = "timeline", feature = "cuda"))]
struct EventsBefore(warpline_core::report::counts::EventPoolCounts);

#[cfg(all(feature = "timeline", feature = "cuda"))]
impl Default for EventsBefore {
    fn default() -> EventsBefore {
        EventsBefore(warpline_cuda::event_pool())
    }
}

/// The maximum number of changes that wait for the sinks.
const WAITING: usize = 1024;

#[derive(Default)]
struct Changes {
    waiting: Vec<SessionChange>,
    /// The further changes: the number of all but the last, and the last one.
    more: u64,
    last: Option<SessionChange>,
}

/// The maximum number of warnings of one session.
const WARNINGS: usize = 64;

impl SessionStats {
    /// Adds a note that the user must not miss: it is also written to standard error now, once.
    pub(crate) fn warn(&self, text: String) {
        let mut said = lock(&self.said);
        if said.len() < WARNINGS && !said.contains(&text) {
            stderr::line(&text);
            lock(&self.notes).push(text.clone());
            said.push(text);
        }
    }

    /// Returns whether the note was written to standard error.
    pub(crate) fn has_warned(&self, note: &String) -> bool {
        lock(&self.said).contains(note)
    }

    /// Notes that this thread has changed the session.
    pub(crate) fn note_change(&self, what: Change) {
        let thread = thread::with(|thread| ThreadInfo { id: thread.id(), name: thread.name() });
        let mut changes = lock(&self.changes);
        let change = SessionChange { ns: now_ns(), what, thread };
        if changes.waiting.len() < WAITING {
            changes.waiting.push(change);
        } else {
            changes.more += u64::from(changes.last.replace(change).is_some());
        }
    }

    /// Returns the changes since the last call.
    pub(super) fn take_changes(&self) -> Vec<SessionChange> {
        let Changes { mut waiting, more, last } = std::mem::take(&mut *lock(&self.changes));
        if let Some(last) = last {
            if more > 0 {
                waiting.push(SessionChange { what: Change::More(more), ..last.clone() });
            }
            waiting.push(last);
        }
        waiting
    }

    /// Returns the sink that the collector is calling now.
    pub(crate) fn inside(&self) -> Option<String> {
        lock(&self.inside).clone()
    }

    /// Adds zones to the figures.
    pub(super) fn add_zones(&self, batch: &[ZoneRecord]) {
        lock(&self.summary).add(batch);
        lock(&self.traffic).add(batch);
        #[cfg(feature = "timeline")]
        lock(&self.timelines).add_zones(batch);
    }

    /// Adds the zones of replays of CUDA graphs to the figures.
    #[cfg(feature = "cuda")]
    pub(super) fn add_replays(&self, batch: &[ReplayRecord]) {
        let mut summary = lock(&self.summary);
        batch.iter().flat_map(|replay| &replay.zones).for_each(|zone| summary.add_replayed(zone));
        drop(summary);
        lock(&self.traffic).add_replays(batch);
    }

    /// Returns the current report, which no longer changes once the rings are closed.
    pub(crate) fn report(&self, recorder: &Recorder, duration: Duration) -> Report {
        let Account { begun, recorded, captured, dropped, waits } = recorder.account();
        let is_all_recorded = captured == 0 && dropped.total() == 0;
        let windows = *lock(&self.windows);
        let came_by = if windows.is_some() {
            CameBy::Unknown
        } else if is_all_recorded {
            CameBy::Counted
        } else {
            CameBy::CountedWithOthers
        };
        #[cfg_attr(not(any(feature = "timeline", feature = "cupti")), expect(unused_mut, reason = "nothing is added"))]
        let mut report = Report {
            ranges: lock(&self.summary).stats(came_by),
            collectives: lock(&self.traffic).stats(),
            not_sampled: not_sampled(),
            windows,
            left_out: lock(&self.left_out).since(None),
            begun,
            recorded,
            captured,
            dropped,
            spans: recorder.span_counts(),
            kernels: *lock(&self.kernels),
            kernel_timing: *lock(&self.kernel_timing),
            graph_timing: *lock(&self.graph_timing),
            duration,
            clocks: lock(&self.clocks).clone(),
            sinks: lock(&self.sinks).values().cloned().collect(),
            notes: lock(&self.notes).clone(),
            is_printed: false,
            waits,
            ..Report::default()
        };
        #[cfg(feature = "cupti")]
        {
            report.top_kernels = lock(&self.kernel_table).stats();
        }
        #[cfg(feature = "timeline")]
        lock(&self.timelines).add_to(&mut report);
        #[cfg(all(feature = "timeline", feature = "cuda"))]
        {
            report.event_pool = warpline_cuda::event_pool().since(self.events_before.0);
        }
        report
    }
}
