//! The state that the stages and the engine share: the streams, the session's figures, and the subscriptions that receive records. The
//! records of a schedule's warm-up go no further.
//!
//! Only the collector's thread uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SessionStats;
use super::batch_part::{begin_of, only};
use super::held::HeldZones;
use super::pace::Pace;
use super::replays::ReplaysOnce;
use super::stream::Stream;
use super::streams::Streams;
use super::subscriptions::Subscriptions;
use warpline_core::lock::lock;
use warpline_core::record::ThreadInfo;
use warpline_core::steps::Steps;
use warpline_core::stream::context::Account;
use warpline_core::stream::recorder::Recorder;
use warpline_report::sink::{Batch, Progress};

pub(crate) struct Context {
    pub(super) recorder: Arc<Recorder>,
    pub(super) stats: Arc<SessionStats>,
    pub(super) subscriptions: Subscriptions,
    pub(super) streams: Streams,
    pub(super) pace: Pace,
    pub(super) held: HeldZones,
    /// Whether sinks receive kernels.
    pub(super) has_kernels: bool,
    pub(super) replays: ReplaysOnce,
    /// The threads of the records of the current pass.
    threads: HashMap<u64, Arc<ThreadInfo>>,
    last_thread: Option<Arc<ThreadInfo>>,
}

impl Context {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        stats: Arc<SessionStats>,
        streams: Streams,
        subscriptions: Subscriptions,
    ) -> Context {
        Context {
            has_kernels: false,
            recorder,
            stats,
            subscriptions,
            streams,
            pace: Pace::default(),
            held: HeldZones::default(),
            replays: ReplaysOnce::default(),
            threads: HashMap::new(),
            last_thread: None,
        }
    }

    /// Hands a batch to every subscription.
    pub(super) fn hand_out(&mut self, batch: Batch<'_>) {
        let steps = self.recorder.steps();
        without_warmup(batch, steps, &self.stats, |batch| self.subscriptions.hand_out(batch, steps.is_under_way()));
    }

    /// Hands out the changes of the session.
    pub(super) fn pass_changes(&mut self) {
        let changes = self.stats.take_changes();
        if !changes.is_empty() {
            self.hand_out(Batch::Changes(&changes));
        }
    }

    pub(super) fn flush(&mut self) {
        let progress = self.progress();
        self.subscriptions.flush(&progress);
    }

    pub(super) fn flush_when_due(&mut self) {
        if self.subscriptions.is_flush_due() {
            self.flush();
        }
    }

    /// Completes the sinks that the program removes.
    pub(super) fn remove_sinks(&mut self, duration: Duration) {
        let removals = std::mem::take(&mut self.subscriptions.removals);
        if !removals.is_empty() {
            let report = self.stats.report(&self.recorder, duration);
            self.subscriptions.remove(removals, &report);
        }
    }

    fn progress(&self) -> Progress {
        let Account { begun, recorded, captured, dropped, .. } = self.stats.account(&self.recorder);
        let fullness = |stream: &Stream| {
            let in_use = stream.context.in_use(stream.given_back);
            in_use as f64 / stream.context.ring().capacity() as f64
        };
        Progress {
            begun,
            recorded,
            captured,
            dropped: dropped.total() - dropped.unfinished,
            fullest_ring: self.streams.all.iter().map(fullness).fold(0.0, f64::max).min(1.0),
        }
    }

    /// Returns a thread of the program. It is looked up once per pass, and not at all for consecutive zones of one thread.
    pub(super) fn thread(&mut self, id: u64) -> &Arc<ThreadInfo> {
        if self.last_thread.as_ref().is_none_or(|last| last.id != id) {
            let thread = self.threads.entry(id).or_insert_with(|| self.recorder.thread(id));
            self.last_thread = Some(Arc::clone(thread));
        }
        self.last_thread.get_or_insert_with(|| self.recorder.thread(id))
    }

    /// Forgets the threads at the end of a pass.
    pub(super) fn forget_threads(&mut self) {
        self.threads.clear();
        self.last_thread = None;
    }

    pub(super) fn discover_streams(&mut self) {
        self.streams.discover(&self.recorder, &self.stats);
    }

    /// Ends the collector, which drains until the deadline.
    pub(crate) fn end_by(&self, deadline: Instant) {
        *lock(&self.stats.deadline) = Some(deadline);
    }

    /// Adds a note to the report.
    pub(super) fn note(&self, text: impl Into<String>) {
        lock(&self.stats.notes).push(text.into());
    }
}

/// Calls `give` with the part of a batch that is not of a warm-up, unless that is nothing, and counts the rest. Memory is handed on also
/// during a warm-up: its counters are sums.
fn without_warmup(batch: Batch<'_>, steps: &Steps, stats: &SessionStats, give: impl FnOnce(Batch<'_>)) {
    match batch {
        // The collector has removed the zones of a warm-up, which are counted.
        Batch::Spans(spans) => {
            let kept = only(spans, |span| !steps.is_warmup(span.host.begin_ns));
            stats.warmup.spans.fetch_add((spans.len() - kept.len()) as u64, Ordering::Relaxed);
            give_some(Batch::Spans(&kept), give)
        }
        Batch::Waits(waits) => give_some(Batch::Waits(&only(waits, |wait| !steps.is_warmup(wait.host.begin_ns))), give),
        Batch::Synchronizations(syncs) => {
            give_some(Batch::Synchronizations(&only(syncs, |sync| !steps.is_warmup(sync.host.begin_ns))), give)
        }
        Batch::Kernels(kernels) => {
            let kept = only(kernels, |kernel| !steps.is_warmup(begin_of(kernel.launch.as_ref(), kernel.gpu)));
            stats.warmup.kernels.fetch_add((kernels.len() - kept.len()) as u64, Ordering::Relaxed);
            give_some(Batch::Kernels(&kept), give)
        }
        Batch::Replays(replays) => give_some(
            Batch::Replays(&only(replays, |replay| !steps.is_warmup(begin_of(replay.launch.as_ref(), replay.gpu)))),
            give,
        ),
        other => give(other),
    }
}

fn give_some(batch: Batch<'_>, give: impl FnOnce(Batch<'_>)) {
    if !batch.is_empty() {
        give(batch);
    }
}
