//! The consumers of records: the session, and the recordings from outside (`requests`).
//!
//! Both are a [`Subscription`]: a `filter` says which records it takes, its figures become its report, and its sinks receive the records,
//! each with an account. They differ in their end: a session's is that of the collector, and a recording is cancelled or ends with its
//! session. An error or a panic in a sink fails the call and is counted; the subscription and the others continue.

mod filter;
mod requests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SessionStats;
use super::session_stats::session_figures;
use filter::RecordFilter;
use warpline_core::lock::lock;
use warpline_report::sink::held::HeldSink;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink};
use warpline_report::{Report, Retention, SinkReport};

pub(crate) use requests::{Inbox, NewSubscription, Outcome, SubscriptionHandle};
pub(super) use requests::{Leaving, Recording, Removal};

/// The time between two flushes of the sinks, whose records a killed process may lose.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// All consumers of records.
pub(super) struct Subscriptions {
    session: Subscription,
    pub(super) recordings: Vec<Recording>,
    /// The inbox for external requests.
    pub(super) inbox: Arc<Inbox>,
    /// The sinks that the program removes, in the round in which they were found.
    pub(super) removals: Vec<Removal>,
    flushed: Instant,
    /// Whether something was handed out since the last flush.
    is_dirty: bool,
}

/// A consumer of records: what it takes, its figures, and its sinks.
pub(super) struct Subscription {
    /// Its figures, notes and the accounts of its sinks.
    pub(super) stats: Arc<SessionStats>,
    pub(super) filter: RecordFilter,
    sinks: Vec<CountedSink>,
    /// Whether it is a part of a session, whose report counts what its sink has taken.
    counts_taken: bool,
    /// The number of zones in its figures.
    pub(super) zones: u64,
}

/// A sink, and the number of its account in its subscription's report. A sink that did not start has ended.
pub(super) struct CountedSink {
    sink: HeldSink,
    number: usize,
}

impl Subscriptions {
    /// Creates the subscription of the session, and takes requests from this inbox.
    pub(super) fn new(inbox: Arc<Inbox>, stats: Arc<SessionStats>) -> Subscriptions {
        let session = Subscription::new(stats, RecordFilter::default(), false);
        let flushed = Instant::now();
        Subscriptions { session, recordings: Vec::new(), inbox, removals: Vec::new(), flushed, is_dirty: false }
    }

    /// Starts a sink of the session.
    pub(super) fn add(&mut self, sink: HeldSink, info: &SessionInfo) {
        self.session.add(sink, info);
    }

    /// Takes the sinks that were added since the last call. Called before each batch, so that no sink misses a zone that began later.
    fn take_in(&mut self) {
        if self.inbox.has_sinks.swap(false, Ordering::Acquire) {
            self.session.sinks.extend(self.inbox.take_sinks());
        }
    }

    /// Completes the sinks that the program removes, with the session's report so far, and drops them.
    pub(super) fn remove(&mut self, removals: Vec<Removal>, report: &Report) {
        self.take_in();
        let Subscription { stats, sinks, .. } = &mut self.session;
        for Removal { number, done } in removals {
            for mut sink in sinks.extract_if(.., |sink| sink.number == number) {
                sink.finish(stats, report);
                sink.end(stats);
            }
            // The caller may no longer be waiting.
            let _ = done.send(());
        }
    }

    /// Hands a batch to every subscription.
    pub(super) fn hand_out(&mut self, batch: Batch<'_>, is_in_steps: bool) {
        self.take_in();
        self.all().for_each(|subscription| subscription.take(batch, is_in_steps));
        self.is_dirty = true;
    }

    pub(super) fn is_flush_due(&self) -> bool {
        self.flushed.elapsed() >= FLUSH_EVERY
    }

    /// Returns whether nothing was handed out since the last flush.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_dirty
    }

    pub(super) fn flush(&mut self, progress: &Progress) {
        self.take_in();
        let is_dirty = std::mem::take(&mut self.is_dirty);
        for Subscription { stats, sinks, .. } in self.all() {
            for sink in sinks {
                sink.call(stats, |sink| sink.progress(progress));
                if is_dirty {
                    sink.call(stats, |sink| sink.flush());
                }
            }
        }
        self.flushed = Instant::now();
    }

    /// Completes the session's own sinks with its report.
    pub(super) fn finish(&mut self, report: &Report) {
        self.take_in();
        self.session.finish(report);
    }

    /// Drops the session's own sinks.
    pub(super) fn end(&mut self) {
        self.session.end();
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Subscription> {
        std::iter::once(&mut self.session)
            .chain(self.recordings.iter_mut().map(|recording| &mut recording.subscription))
    }
}

impl Subscription {
    fn new(stats: Arc<SessionStats>, filter: RecordFilter, counts_taken: bool) -> Subscription {
        *lock(&stats.figures) = session_figures(counts_taken);
        Subscription { stats, filter, sinks: Vec::new(), counts_taken, zones: 0 }
    }

    /// Starts a sink with it.
    fn add(&mut self, sink: HeldSink, info: &SessionInfo) {
        self.sinks.push(CountedSink::start(sink, info, None, &self.stats));
    }

    /// Takes the wanted part of a batch: adds it to the figures, and hands it to the sinks.
    fn take(&mut self, batch: Batch<'_>, is_in_steps: bool) {
        let Subscription { stats, filter, sinks, counts_taken, zones } = self;
        filter.select(batch, |filter, wanted| {
            let mut add = || {
                let mut figures = lock(&stats.figures);
                figures.set_in_steps(is_in_steps);
                match wanted {
                    Batch::Replays(replays) => {
                        replays
                            .iter()
                            .for_each(|replay| figures.add_replay(replay, |range| filter.lets_through(range)));
                    }
                    _ => figures.add(wanted),
                }
                *zones += wanted.zones().len() as u64;
            };
            if !*counts_taken {
                add();
            }
            let mut is_taken = true;
            sinks.iter_mut().for_each(|sink| is_taken &= sink.write(stats, wanted));
            if *counts_taken && is_taken {
                add();
            }
        });
    }

    fn finish(&mut self, report: &Report) {
        self.sinks.iter_mut().for_each(|sink| sink.finish(&self.stats, report));
    }

    fn end(&mut self) {
        self.sinks.iter_mut().for_each(|sink| sink.end(&self.stats));
    }
}

impl CountedSink {
    /// Starts a sink on the thread that adds it, `added` after the session's begin, or with the session. A sink that fails is left out,
    /// and its records count as lost.
    pub(super) fn start(
        sink: HeldSink,
        info: &SessionInfo,
        added: Option<Duration>,
        stats: &SessionStats,
    ) -> CountedSink {
        let name = sink.name();
        let number = {
            let mut reports = lock(&stats.sinks);
            let number = reports.last_key_value().map_or(0, |(last, _)| last + 1);
            reports.insert(number, SinkReport { name, added, ..SinkReport::default() });
            number
        };
        let mut started = CountedSink { sink, number };
        let outcome = started.sink.call(|sink| sink.start(info));
        if !started.account(stats, outcome) {
            let ended = started.sink.end();
            started.account(stats, ended);
        }
        started
    }

    /// Returns the number of its account.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Hands it a batch, and counts whether it took it.
    fn write(&mut self, stats: &SessionStats, batch: Batch<'_>) -> bool {
        let is_taken = self.call(stats, |sink| sink.write(batch));
        if let Some(report) = lock(&stats.sinks).get_mut(&self.number) {
            *if is_taken { &mut report.taken } else { &mut report.lost } += batch.records() as u64;
        }
        is_taken
    }

    /// Calls the sink and keeps its error. A panic in the sink only fails the call. Returns whether the sink took the call.
    fn call(&mut self, stats: &SessionStats, call: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> bool {
        self.sink.is_there() && self.inside(stats, |sink| sink.call(call))
    }

    fn finish(&mut self, stats: &SessionStats, report: &Report) {
        let (mut lost, mut kept) = (0, Retention::default());
        self.call(stats, |sink| {
            let outcome = sink.finish(report);
            lost = sink.lost();
            kept = sink.kept();
            outcome
        });
        if let Some(report) = lock(&stats.sinks).get_mut(&self.number) {
            lost = lost.min(report.taken);
            report.taken -= lost;
            report.lost += lost;
            report.kept = kept;
        }
    }

    /// Drops the sink, whose `Drop` may write, hang or panic like its other code.
    fn end(&mut self, stats: &SessionStats) {
        self.inside(stats, HeldSink::end);
    }

    /// Runs code of the sink, and notes its error in its account. A report made during the call names the sink.
    fn inside(&mut self, stats: &SessionStats, call: impl FnOnce(&mut HeldSink) -> Result<(), String>) -> bool {
        *lock(&stats.inside) = Some(self.number);
        let outcome = call(&mut self.sink);
        *lock(&stats.inside) = None;
        self.account(stats, outcome)
    }

    /// Notes an error of the sink in its account. Returns whether there is none.
    fn account(&self, stats: &SessionStats, outcome: Result<(), String>) -> bool {
        let Err(error) = outcome else { return true };
        if let Some(report) = lock(&stats.sinks).get_mut(&self.number) {
            report.errors += 1;
            report.first_error.get_or_insert(error);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Filter;
    use warpline_report::fixture::{BEGIN_NS, COPY, STEP, session, span, spans, thread, zone};
    use warpline_report::sink::MemorySink;

    #[test]
    fn what_begins_after_the_request_was_cancelled_is_left_out_and_counted() {
        let zones = MemorySink::new(100);
        let filter = RecordFilter::new(Filter::parse_all("demo.step").expect("a pattern"));
        let mut subscription = Subscription::new(Arc::default(), filter, true);
        subscription.add(HeldSink::new(Box::new(zones.clone())), &session());
        let main = thread(1, None);
        let at = |range, begin_ns| zone(range, None, &main, span(begin_ns, begin_ns + 100), None);
        let all = spans();
        let pass = |subscription: &mut Subscription| {
            let batch = [at(&STEP, 10), at(&COPY, 15), at(&STEP, 20), at(&STEP, 30)];
            let before = subscription.filter.on_time.spans;
            subscription.take(Batch::Zones(&batch), false);
            subscription.take(Batch::Spans(&all), false);
            let late = all.len() as u64 - (subscription.filter.on_time.spans - before);
            (zones.take().iter().map(|zone| zone.host.begin_ns - BEGIN_NS).collect::<Vec<_>>(), late)
        };
        assert_eq!(pass(&mut subscription), (vec![10, 20, 30], 0));
        subscription.filter.until_ns = BEGIN_NS + 20;
        let late = all.iter().filter(|span| span.host.begin_ns >= subscription.filter.until_ns).count() as u64;
        assert!(late > 0 && late <= all.len() as u64);
        // A zone that began before may end at any time.
        assert_eq!(pass(&mut subscription), (vec![10], late));
        let lost: u64 = lock(&subscription.stats.sinks).values().map(|sink| sink.lost).sum();
        assert_eq!((subscription.zones, lost), (4, 0));
    }
}
