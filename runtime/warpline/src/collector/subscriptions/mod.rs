//! Who takes the records of a session: its own sinks, and whoever asked from outside (`requests`).
//!
//! All are subscriptions, and each gets every batch. They differ in who accounts for them: a sink of the session has its line in the
//! session's report, a request has a filter and a report of its own. An error of a sink, or a panic in it, costs the call and
//! is counted; the session and the other subscriptions go on.

mod filtered;
mod requests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SessionStats;
use warpline_core::caught::caught;
use warpline_core::lock::lock;
use warpline_core::report::{Report, Retention, SinkReport};
use warpline_core::sink::held::HeldSink;
use warpline_core::sink::{Batch, Progress, SessionInfo, Sink};

pub(super) use filtered::FilteredSink;
pub(crate) use requests::{Inbox, NewSubscription, Outcome, SubscriptionHandle};
pub(super) use requests::{Leaving, Request};

/// Between two flushes of the sinks: what a killed process may lose.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Everybody who takes records.
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    /// Where requests from outside arrive.
    pub(super) inbox: Arc<Inbox>,
    flushed: Instant,
    /// Something was handed out since the last flush.
    is_dirty: bool,
}

enum Subscription {
    /// A sink of the session, and the place of its account in the session's report. One that did not start has ended.
    Own(HeldSink, usize),
    /// What was asked for from outside: until it is cancelled, or the session ends.
    Requested(Box<Request>),
}

impl Default for Subscriptions {
    fn default() -> Subscriptions {
        Subscriptions { all: Vec::new(), inbox: Arc::default(), flushed: Instant::now(), is_dirty: false }
    }
}

impl Subscriptions {
    /// Starts a sink of the session; one that fails is left out, and its records count as lost.
    pub(super) fn add(&mut self, sink: HeldSink, info: &SessionInfo, tally: &SessionStats) {
        let name = sink.name();
        let index = {
            let mut reports = lock(&tally.sinks);
            reports.push(SinkReport { name, ..SinkReport::default() });
            reports.len() - 1
        };
        let mut subscription = Subscription::Own(sink, index);
        if !subscription.call(tally, |sink| sink.start(info)) {
            subscription.end(tally);
        }
        self.all.push(subscription);
    }

    /// Hands a batch to every subscription, and counts which took it.
    pub(super) fn hand_out(&mut self, tally: &SessionStats, batch: Batch<'_>) {
        let records = batch.records() as u64;
        for subscription in &mut self.all {
            let is_taken = subscription.call(tally, |sink| sink.write(batch));
            if let Subscription::Own(_, index) = subscription
                && let Some(report) = lock(&tally.sinks).get_mut(*index)
            {
                *if is_taken { &mut report.taken } else { &mut report.lost } += records;
            }
        }
        self.is_dirty = true;
    }

    pub(super) fn is_flush_due(&self) -> bool {
        self.flushed.elapsed() >= FLUSH_EVERY
    }

    pub(super) fn flush(&mut self, tally: &SessionStats, progress: &Progress) {
        for subscription in &mut self.all {
            // A request reads its own progress.
            if matches!(subscription, Subscription::Own(..)) {
                subscription.call(tally, |sink| sink.progress(progress));
            }
            if self.is_dirty {
                subscription.call(tally, |sink| sink.flush());
            }
        }
        self.flushed = Instant::now();
        self.is_dirty = false;
    }

    /// Completes the session's own sinks with its report.
    pub(super) fn finish(&mut self, tally: &SessionStats, report: &Report) {
        self.all.iter_mut().for_each(|subscription| subscription.finish(tally, report));
    }

    /// Drops the session's own sinks.
    pub(super) fn end(&mut self, tally: &SessionStats) {
        self.all.iter_mut().for_each(|subscription| subscription.end(tally));
    }
}

impl Subscription {
    /// Calls the sink and keeps its error; a sink that panics has failed the call, nothing more. Returns whether the call was taken.
    fn call(&mut self, tally: &SessionStats, call: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> bool {
        match self {
            Subscription::Own(sink, _) if !sink.is_there() => false,
            Subscription::Own(sink, index) => inside(tally, *index, || sink.call(call)),
            // What it cannot take it counts itself.
            Subscription::Requested(request) => caught(|| drop(call(&mut request.sink))).is_some(),
        }
    }

    fn finish(&mut self, tally: &SessionStats, report: &Report) {
        let (mut lost, mut kept) = (0, Retention::default());
        let Subscription::Own(_, index) = *self else { return };
        self.call(tally, |sink| {
            let outcome = sink.finish(report);
            lost = sink.lost();
            kept = sink.kept();
            outcome
        });
        if let Some(report) = lock(&tally.sinks).get_mut(index) {
            lost = lost.min(report.taken);
            report.taken -= lost;
            report.lost += lost;
            report.kept = kept;
        }
    }

    /// Drops the sink, whose `Drop` may write, hang or panic as its other code may.
    fn end(&mut self, tally: &SessionStats) {
        if let Subscription::Own(sink, index) = self {
            inside(tally, *index, || sink.end());
        }
    }
}

/// Runs code of a sink of the session, and notes its error in its account. A report that is made meanwhile names the sink.
fn inside(tally: &SessionStats, index: usize, call: impl FnOnce() -> Result<(), String>) -> bool {
    let name = lock(&tally.sinks).get(index).map(|report| report.name.clone());
    *lock(&tally.inside) = name;
    let outcome = call();
    *lock(&tally.inside) = None;
    let Err(error) = outcome else { return true };
    if let Some(report) = lock(&tally.sinks).get_mut(index) {
        report.errors += 1;
        report.first_error.get_or_insert(error);
    }
    false
}
