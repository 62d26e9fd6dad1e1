//! The figures of a running session. The collector writes them, and the session's handle creates the report from them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::left_out::{LeavesOut, not_sampled};
use warpline_core::clock::now_ns;
use warpline_core::counts::{EventPoolCounts, GraphTimingCounts, KernelCounts, KernelTimingCounts, SyncCounts};
use warpline_core::if_feature;
use warpline_core::lock::lock;
use warpline_core::plural::counted_as;
use warpline_core::record::ThreadInfo;
use warpline_core::stderr;
use warpline_core::steps::NotRecorded;
use warpline_core::stream::context::Account;
use warpline_core::stream::recorder::Recorder;
use warpline_core::stream::thread;
use warpline_report::builder::{CameBy, SessionFigures};
use warpline_report::figures::{ClockFigures, StepStats, WindowFigures};
use warpline_report::sink::{Change, SessionChange};
use warpline_report::{Report, SinkReport};

/// The state that the collector and the session's handle share, so that a report can be made even when a sink does not return.
#[derive(Default)]
pub(crate) struct SessionStats {
    /// The figures of the records, made by [`session_figures`]. The collector hands its batches to them as to a sink.
    pub(crate) figures: Mutex<SessionFigures>,
    pub(crate) clocks: Mutex<Vec<ClockFigures>>,
    /// The account of each sink, by its number.
    pub(crate) sinks: Mutex<BTreeMap<usize, SinkReport>>,
    pub(crate) notes: Mutex<Vec<String>>,
    /// The notes that were already written to standard error.
    said: Mutex<Vec<String>>,
    pub(crate) kernels: Mutex<KernelCounts>,
    pub(crate) synchronizations: Mutex<SyncCounts>,
    pub(crate) kernel_timing: Mutex<KernelTimingCounts>,
    /// The changes of the session that the sinks have not received yet.
    changes: Mutex<Changes>,
    pub(crate) graph_timing: Mutex<GraphTimingCounts>,
    /// The windows of a session with a budget.
    pub(crate) windows: Mutex<Option<WindowFigures>>,
    /// What was recorded in the warm-up of a schedule, and not handed on.
    pub(super) warmup: WarmupCounts,
    /// What the session's settings leave out.
    pub(crate) left_out: Mutex<LeavesOut>,
    events_before: EventsBefore,
    /// The sink that the collector is calling now.
    pub(super) inside: Mutex<Option<usize>>,
    /// How long the session was, once it is over: the time until `finish`, without that of the drain and of the sinks.
    pub(crate) duration: OnceLock<Duration>,
    /// The deadline of the collector's drain, once the session is over.
    pub(crate) deadline: Mutex<Option<Instant>>,
    /// Whether nothing waits for the collector any more.
    pub(crate) abandoned: AtomicBool,
}

/// The records of the warm-up of a schedule, which are read and not handed on.
#[derive(Debug, Default)]
pub(super) struct WarmupCounts {
    pub(super) zones: AtomicU64,
    pub(super) spans: AtomicU64,
    pub(super) kernels: AtomicU64,
}

/// What a session counts of zones, spans, kernels and windows, besides the records that it hands out.
pub(super) struct Counts {
    pub(super) account: Account,
    /// Spans that were dropped because the buffer was full.
    pub(super) spans_full: u64,
    pub(super) kernels: KernelCounts,
    pub(super) not_sampled: u64,
    /// The number of windows of the session's budget that have ended.
    pub(super) windows_ended: u64,
}

impl Counts {
    /// Returns what was counted since then. What is in flight stays as it is.
    pub(super) fn since(mut self, before: &Counts) -> Counts {
        let Counts { account: Account { captured, dropped, .. }, spans_full, kernels, not_sampled, .. } = &mut self;
        let was = &before.account.dropped;
        for (now, before) in [
            (captured, before.account.captured),
            (&mut dropped.ring_full, was.ring_full),
            (&mut dropped.event_failed, was.event_failed),
            (&mut dropped.stream_failed, was.stream_failed),
            (&mut dropped.capture_failed, was.capture_failed),
            (&mut kernels.dropped, before.kernels.dropped),
            (&mut kernels.untimed, before.kernels.untimed),
            (&mut kernels.buffers_refused, before.kernels.buffers_refused),
            (spans_full, before.spans_full),
            (not_sampled, before.not_sampled),
        ] {
            *now = now.saturating_sub(before);
        }
        self
    }
}

/// The events of timelines when the session began.
struct EventsBefore(EventPoolCounts);

impl Default for EventsBefore {
    fn default() -> EventsBefore {
        EventsBefore(event_pool())
    }
}

fn event_pool() -> EventPoolCounts {
    if_feature!("cuda", warpline_cuda::event_pool(), EventPoolCounts::default())
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
        let number = (*lock(&self.inside))?;
        lock(&self.sinks).get(&number).map(|report| report.name.clone())
    }

    /// Returns the account of the zones, without those of the warm-up of a schedule.
    pub(super) fn account(&self, recorder: &Recorder) -> Account {
        let mut account = recorder.account();
        let warmup = self.warmup.zones.load(Ordering::Relaxed);
        // The collector counts a zone here before it counts it as recorded.
        account.begun = account.begun.saturating_sub(warmup);
        account.recorded = account.recorded.saturating_sub(warmup);
        account
    }

    /// Returns what is counted without a record.
    pub(super) fn counts(&self, recorder: &Recorder) -> Counts {
        let opened = lock(&self.windows).map_or(0, |figures| figures.windows);
        Counts {
            account: recorder.account(),
            spans_full: recorder.span_counts().buffer_full,
            kernels: *lock(&self.kernels),
            not_sampled: not_sampled(),
            windows_ended: opened.saturating_sub(u64::from(recorder.windows().is_open())),
        }
    }

    /// Returns the current report, which no longer changes once the rings are closed.
    pub(crate) fn report(&self, recorder: &Recorder, duration: Duration) -> Report {
        let Account { begun, recorded, captured, dropped, waits } = self.account(recorder);
        let is_all_recorded = captured == 0 && dropped.total() == 0;
        let windows = *lock(&self.windows);
        // Those of the warm-up were not delivered.
        let (mut spans, mut kernels) = (recorder.span_counts(), *lock(&self.kernels));
        let warmup = self.warmup.spans.load(Ordering::Relaxed);
        spans.begun = spans.begun.saturating_sub(warmup);
        spans.recorded = spans.recorded.saturating_sub(warmup);
        kernels.recorded = kernels.recorded.saturating_sub(self.warmup.kernels.load(Ordering::Relaxed));
        let NotRecorded { left_out, cut, dropped: steps_dropped } = recorder.steps().not_recorded();
        let came_by = if windows.is_some() {
            CameBy::Unknown
        } else if is_all_recorded {
            CameBy::Counted
        } else {
            CameBy::CountedWithOthers
        };
        let mut report = Report {
            steps: StepStats { left_out, cut, dropped: steps_dropped, ..StepStats::default() },
            not_sampled: not_sampled(),
            windows,
            left_out: lock(&self.left_out).since(None),
            begun,
            recorded,
            captured,
            dropped,
            spans,
            kernels,
            synchronizations: *lock(&self.synchronizations),
            kernel_timing: *lock(&self.kernel_timing),
            graph_timing: *lock(&self.graph_timing),
            duration,
            clocks: lock(&self.clocks).clone(),
            sinks: lock(&self.sinks).values().cloned().collect(),
            notes: lock(&self.notes).clone(),
            is_printed: false,
            waits,
            memory_counts: recorder.memory().counts(),
            memory: recorder.memory().stats(),
            ..Report::default()
        };
        let ring = recorder.limits().zones;
        // A thread that begins a zone at the end of the session finds a closed ring, which is not too small.
        if dropped.ring_full > 0 && begun > ring as u64 {
            let zones = counted_as(dropped.ring_full, "zone was", "zones were");
            report.notes.push(format!(
                "{zones} dropped because {ring} zones of the stream waited for their events; raise `ring={ring}`"
            ));
        }
        lock(&self.figures).add_to(&mut report, came_by);
        if cfg!(feature = "timeline") {
            report.event_pool = event_pool().since(self.events_before.0);
        }
        report
    }
}

/// Returns figures that know the ranges of kernels in replays. `are_of_part`: they begin in the middle of a session.
pub(super) fn session_figures(are_of_part: bool) -> SessionFigures {
    let captured_range = if_feature!("cupti", Some(warpline_cuda::graph::captured_range as _), None);
    SessionFigures::new(are_of_part, captured_range)
}
