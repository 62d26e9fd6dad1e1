//! What the collector hands on: records to the sinks, how the session stands, and its end.
//!
//! An error of a sink, or a panic in it, costs the call and is noted; the session and the other sinks go on.

use std::io;
use std::time::{Duration, Instant};

use super::Collector;
use super::stream::Stream;
use crate::lock::lock;
use crate::session::{Kept, Report};
use crate::sink::{Batch, Progress, Sink};
use crate::stream::context::Account;

/// Between two flushes of the sinks: what a killed process may lose.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

impl Collector {
    /// Hands a batch to every sink, and notes which took it.
    pub(super) fn hand_out(&mut self, batch: Batch<'_>) {
        let records = batch.records() as u64;
        for index in 0..self.sinks.len() {
            let taken = self.call_sink(index, |sink| sink.write(batch));
            let mut reports = lock(&self.tally.sinks);
            if let Some(report) = reports.get_mut(index) {
                *if taken { &mut report.taken } else { &mut report.lost } += records;
            }
        }
        self.call_guests(|sink| sink.write(batch));
        self.dirty = true;
    }

    /// Hands out what was changed of the session.
    pub(super) fn pass_changes(&mut self) {
        let changes = self.tally.take_changes();
        if !changes.is_empty() {
            self.hand_out(Batch::Changes(&changes));
        }
    }

    pub(super) fn flush_when_due(&mut self) {
        if self.flushed.elapsed() >= FLUSH_EVERY {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        let progress = self.progress();
        for index in 0..self.sinks.len() {
            self.call_sink(index, |sink| sink.progress(&progress));
            if self.dirty {
                self.call_sink(index, |sink| sink.flush());
            }
        }
        if self.dirty {
            self.call_guests(|sink| sink.flush());
        }
        self.flushed = Instant::now();
        self.dirty = false;
    }

    fn progress(&self) -> Progress {
        let Account { begun, recorded, captured, dropped, .. } = self.recorder.account();
        let fullness = |stream: &Stream| {
            let in_use = stream.context.in_use(stream.given_back);
            in_use as f64 / stream.context.ring().capacity() as f64
        };
        Progress {
            begun,
            recorded,
            captured,
            dropped: dropped.total() - dropped.unfinished,
            fullest_ring: self.streams.iter().map(fullness).fold(0.0, f64::max).min(1.0),
        }
    }

    pub(super) fn finish_sink(&mut self, index: usize, report: &Report) {
        let (mut lost, mut kept) = (0, Kept::default());
        self.call_sink(index, |sink| {
            let outcome = sink.finish(report);
            lost = sink.lost();
            kept = sink.kept();
            outcome
        });
        if let Some(report) = lock(&self.tally.sinks).get_mut(index) {
            lost = lost.min(report.taken);
            report.taken -= lost;
            report.lost += lost;
            report.kept = kept;
        }
    }

    /// Calls a sink and keeps its error; a sink that panics has failed the call, nothing more. One that is left out takes nothing.
    pub(super) fn call_sink(&mut self, index: usize, call: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> bool {
        let Some(sink) = self.sinks.get_mut(index).filter(|sink| sink.is_there()) else { return false };
        let name = lock(&self.tally.sinks).get(index).map(|report| report.name.clone());
        *lock(&self.tally.inside) = name;
        let outcome = sink.call(call);
        *lock(&self.tally.inside) = None;
        self.note_outcome(index, outcome)
    }

    /// Drops a sink, whose `Drop` may write, hang or panic as its other code may.
    pub(super) fn end_sink(&mut self, index: usize) {
        let Some(sink) = self.sinks.get_mut(index) else { return };
        let name = lock(&self.tally.sinks).get(index).map(|report| report.name.clone());
        *lock(&self.tally.inside) = name;
        let outcome = sink.end();
        *lock(&self.tally.inside) = None;
        self.note_outcome(index, outcome);
    }

    fn note_outcome(&self, index: usize, outcome: Result<(), String>) -> bool {
        let Err(error) = outcome else { return true };
        if let Some(report) = lock(&self.tally.sinks).get_mut(index) {
            report.errors += 1;
            report.first_error.get_or_insert(error);
        }
        false
    }
}
