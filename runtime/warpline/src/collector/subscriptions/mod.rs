//! The consumers of a session's records: its own sinks, and external requests (`requests`).
//!
//! All are subscriptions, and each receives every batch. They differ in their accounts: a sink of the session has a line in the
//! session's report, and a request has a filter and its own report. An error or a panic in a sink fails the call and is counted; the
//! session and the other subscriptions continue.

mod filtered;
mod requests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SessionStats;
use warpline_core::caught::caught;
use warpline_core::lock::lock;
use warpline_report::sink::held::HeldSink;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink};
use warpline_report::{Report, Retention, SinkReport};

pub(super) use filtered::FilteredSink;
pub(crate) use requests::{Inbox, NewSubscription, Outcome, SubscriptionHandle};
pub(super) use requests::{Leaving, Removal, Request};

/// The time between two flushes of the sinks, whose records a killed process may lose.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// All consumers of records.
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    /// The inbox for external requests.
    pub(super) inbox: Arc<Inbox>,
    /// The sinks that the program removes, in the round in which they were found.
    pub(super) removals: Vec<Removal>,
    flushed: Instant,
    /// Whether something was handed out since the last flush.
    is_dirty: bool,
}

pub(super) enum Subscription {
    /// A sink of the session, and the number of its account in the session's report. A sink that did not start has ended.
    Own(HeldSink, usize),
    /// An external request, until it is cancelled or the session ends.
    Requested(Box<Request>),
}

impl Subscriptions {
    /// Creates the subscriptions, with requests from this inbox.
    pub(super) fn new(inbox: Arc<Inbox>) -> Subscriptions {
        Subscriptions { all: Vec::new(), inbox, removals: Vec::new(), flushed: Instant::now(), is_dirty: false }
    }

    /// Starts a sink of the session.
    pub(super) fn add(&mut self, sink: HeldSink, info: &SessionInfo, tally: &SessionStats) {
        self.all.push(Subscription::start(sink, info, None, tally).0);
    }

    /// Takes the sinks that were added since the last call. Called before each batch, so that no sink misses a zone that began later.
    fn take_in(&mut self) {
        if self.inbox.has_sinks.swap(false, Ordering::Acquire) {
            self.all.extend(self.inbox.take_sinks());
        }
    }

    /// Completes the sinks that the program removes, with the session's report so far, and drops them.
    pub(super) fn remove(&mut self, tally: &SessionStats, removals: Vec<Removal>, report: &Report) {
        self.take_in();
        for Removal { number, done } in removals {
            let is_meant =
                |subscription: &mut Subscription| matches!(subscription, Subscription::Own(_, own) if *own == number);
            for mut subscription in self.all.extract_if(.., is_meant) {
                subscription.finish(tally, report);
                subscription.end(tally);
            }
            // The caller may no longer be waiting.
            let _ = done.send(());
        }
    }

    /// Hands a batch to every subscription, and counts which took it.
    pub(super) fn hand_out(&mut self, tally: &SessionStats, batch: Batch<'_>) {
        self.take_in();
        let records = batch.records() as u64;
        for subscription in &mut self.all {
            let is_taken = subscription.call(tally, |sink| sink.write(batch));
            if let Subscription::Own(_, number) = subscription
                && let Some(report) = lock(&tally.sinks).get_mut(number)
            {
                *if is_taken { &mut report.taken } else { &mut report.lost } += records;
            }
        }
        self.is_dirty = true;
    }

    pub(super) fn is_flush_due(&self) -> bool {
        self.flushed.elapsed() >= FLUSH_EVERY
    }

    /// Returns whether nothing was handed out since the last flush.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_dirty
    }

    pub(super) fn flush(&mut self, tally: &SessionStats, progress: &Progress) {
        self.take_in();
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
        self.take_in();
        self.all.iter_mut().for_each(|subscription| subscription.finish(tally, report));
    }

    /// Drops the session's own sinks.
    pub(super) fn end(&mut self, tally: &SessionStats) {
        self.all.iter_mut().for_each(|subscription| subscription.end(tally));
    }
}

impl Subscription {
    /// Starts a sink of the session on the thread that adds it, `added` after the session's begin, or with the session. A sink that
    /// fails is left out, and its records count as lost. Also returns the number of its account.
    pub(super) fn start(
        mut sink: HeldSink,
        info: &SessionInfo,
        added: Option<Duration>,
        tally: &SessionStats,
    ) -> (Subscription, usize) {
        let name = sink.name();
        let number = {
            let mut reports = lock(&tally.sinks);
            let number = reports.last_key_value().map_or(0, |(last, _)| last + 1);
            reports.insert(number, SinkReport { name, added, ..SinkReport::default() });
            number
        };
        if !account(tally, number, sink.call(|sink| sink.start(info))) {
            account(tally, number, sink.end());
        }
        (Subscription::Own(sink, number), number)
    }

    /// Calls the sink and keeps its error. A panic in the sink only fails the call. Returns whether the sink took the call.
    fn call(&mut self, tally: &SessionStats, call: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> bool {
        match self {
            Subscription::Own(sink, _) if !sink.is_there() => false,
            Subscription::Own(sink, number) => inside(tally, *number, || sink.call(call)),
            // The request counts what it cannot take.
            Subscription::Requested(request) => caught(|| drop(call(&mut request.sink))).is_some(),
        }
    }

    fn finish(&mut self, tally: &SessionStats, report: &Report) {
        let (mut lost, mut kept) = (0, Retention::default());
        let Subscription::Own(_, number) = *self else { return };
        self.call(tally, |sink| {
            let outcome = sink.finish(report);
            lost = sink.lost();
            kept = sink.kept();
            outcome
        });
        if let Some(report) = lock(&tally.sinks).get_mut(&number) {
            lost = lost.min(report.taken);
            report.taken -= lost;
            report.lost += lost;
            report.kept = kept;
        }
    }

    /// Drops the sink, whose `Drop` may write, hang or panic like its other code.
    fn end(&mut self, tally: &SessionStats) {
        if let Subscription::Own(sink, number) = self {
            inside(tally, *number, || sink.end());
        }
    }
}

/// Runs code of a sink of the session, and notes its error in its account. A report made during the call names the sink.
fn inside(tally: &SessionStats, number: usize, call: impl FnOnce() -> Result<(), String>) -> bool {
    *lock(&tally.inside) = Some(number);
    let outcome = call();
    *lock(&tally.inside) = None;
    account(tally, number, outcome)
}

/// Notes the error of a sink of the session in its account. Returns whether there is none.
fn account(tally: &SessionStats, number: usize, outcome: Result<(), String>) -> bool {
    let Err(error) = outcome else { return true };
    if let Some(report) = lock(&tally.sinks).get_mut(&number) {
        report.errors += 1;
        report.first_error.get_or_insert(error);
    }
    false
}
