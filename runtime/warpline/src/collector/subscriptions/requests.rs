//! Subscriptions that start and end while a session runs: recordings from outside (`control`).
//!
//! A recording receives what the session records from its admission until it is cancelled, or the session ends. After a cancellation, it
//! waits a limited time for what began before; what begins later is left out, although the session continues. It appears in no report
//! of the session and changes nothing in it. Its own report counts what was recorded during the request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::filter::RecordFilter;
use super::{CountedSink, Subscription};
use crate::collector::session_stats::Counts;
use crate::settings::Filter;
use warpline_core::lock::lock;
use warpline_core::plural::counted_are;
use warpline_core::stream::drain_barrier::DrainBarrier;
use warpline_report::Report;
use warpline_report::sink::held::HeldSink;
use warpline_report::sink::{SessionInfo, Sink};

/// The queue of requests for the collector of a session.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    /// Whether a request waits, or one was cancelled.
    pub(in crate::collector) has_news: AtomicBool,
    /// Whether a sink of the session waits.
    pub(super) has_sinks: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<NewSubscription>,
    /// The sinks that the program added.
    sinks: Vec<CountedSink>,
    removals: Vec<Removal>,
    /// The filters of the subscriptions that were not cancelled.
    filters: Vec<(Arc<SubscriptionHandle>, Vec<Filter>)>,
    /// Whether the session is over.
    is_closed: bool,
}

/// The program's request to remove a sink.
pub(in crate::collector) struct Removal {
    /// The number of its account in the session's report.
    pub(in crate::collector) number: usize,
    /// The channel that notifies the waiting caller.
    pub(in crate::collector) done: Sender<()>,
}

/// A request for a subscription.
pub(crate) struct NewSubscription {
    pub(crate) sink: Box<dyn Sink>,
    /// The filters of the ranges whose zones it takes; none for all.
    pub(crate) filters: Vec<Filter>,
    pub(crate) info: SessionInfo,
    pub(crate) handle: Arc<SubscriptionHandle>,
}

/// The state that a subscription and its requester share.
pub(crate) struct SubscriptionHandle {
    pub(in crate::collector) is_cancelled: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    /// The callback at the end of the subscription.
    notify: Box<dyn Fn() + Send + Sync>,
}

/// The outcome of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The report of what was recorded during the subscription.
    pub(crate) report: Report,
    /// The number of records that it could not take.
    pub(crate) lost: u64,
    /// Whether it ended with the session, without a cancellation.
    pub(crate) with_session: bool,
}

impl Inbox {
    /// Adds a request, or returns it if the session is over.
    pub(crate) fn admit(&self, request: NewSubscription) -> Result<(), Box<NewSubscription>> {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Err(Box::new(request));
        }
        queue.filters.push((Arc::clone(&request.handle), request.filters.clone()));
        queue.waiting.push(request);
        self.has_news.store(true, Ordering::Release);
        Ok(())
    }

    /// Cancels a subscription of this session.
    pub(crate) fn cancel(&self, handle: &Arc<SubscriptionHandle>) {
        handle.is_cancelled.store(true, Ordering::Release);
        lock(&self.queue).filters.retain(|(known, _)| !Arc::ptr_eq(known, handle));
        self.has_news.store(true, Ordering::Release);
    }

    /// Adds a sink of the session that has started.
    pub(in crate::collector) fn add_sink(&self, sink: CountedSink) {
        lock(&self.queue).sinks.push(sink);
        self.has_sinks.store(true, Ordering::Release);
    }

    /// Requests the completion and removal of a sink of the session. Returns a receiver that is notified when it is done.
    pub(in crate::collector) fn remove_sink(&self, number: usize) -> Receiver<()> {
        let (done, is_done) = mpsc::channel();
        lock(&self.queue).removals.push(Removal { number, done });
        self.has_news.store(true, Ordering::Release);
        is_done
    }

    /// Returns the filters of each subscription that was not cancelled.
    pub(crate) fn filters(&self) -> Vec<Vec<Filter>> {
        lock(&self.queue).filters.iter().map(|(_, filters)| filters.clone()).collect()
    }

    pub(in crate::collector) fn take(&self) -> Vec<NewSubscription> {
        std::mem::take(&mut lock(&self.queue).waiting)
    }

    pub(super) fn take_sinks(&self) -> Vec<CountedSink> {
        std::mem::take(&mut lock(&self.queue).sinks)
    }

    pub(in crate::collector) fn take_removals(&self) -> Vec<Removal> {
        std::mem::take(&mut lock(&self.queue).removals)
    }

    /// Closes the inbox, and returns the requests that still wait.
    pub(in crate::collector) fn close(&self) -> Vec<NewSubscription> {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        std::mem::take(&mut queue.waiting)
    }
}

impl SubscriptionHandle {
    pub(crate) fn new(notify: impl Fn() + Send + Sync + 'static) -> Arc<SubscriptionHandle> {
        let (is_cancelled, outcome) = (AtomicBool::new(false), Mutex::default());
        Arc::new(SubscriptionHandle { is_cancelled, outcome, notify: Box::new(notify) })
    }

    /// Returns how the subscription ended, once it is over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).clone()
    }

    pub(in crate::collector) fn end(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        (self.notify)();
    }
}

/// A subscription for a request, with its end.
pub(in crate::collector) struct Recording {
    pub(in crate::collector) subscription: Subscription,
    pub(in crate::collector) handle: Arc<SubscriptionHandle>,
    pub(in crate::collector) came: Instant,
    /// What was counted before.
    pub(in crate::collector) before: Counts,
    pub(in crate::collector) leaving: Option<Leaving>,
}

/// The state of a cancelled request that waits for what began before.
pub(in crate::collector) struct Leaving {
    pub(in crate::collector) since: Instant,
    /// The barriers of what began before, one for each stream.
    pub(in crate::collector) began: Vec<Arc<DrainBarrier>>,
}

impl Leaving {
    /// Returns the number of zones that began before and are neither recorded nor given up.
    pub(in crate::collector) fn on_their_way(&self) -> u64 {
        self.began.iter().map(|cut| cut.on_their_way()).sum()
    }
}

impl Recording {
    /// Starts the sink of a request.
    pub(in crate::collector) fn start(
        request: NewSubscription,
        has_kernels: bool,
        came: Instant,
        before: Counts,
    ) -> Recording {
        let NewSubscription { sink, filters, info, handle } = request;
        let mut subscription = Subscription::new(Arc::default(), RecordFilter::new(filters), true);
        subscription.add(HeldSink::new(sink), &SessionInfo { kernels: has_kernels, ..info });
        Recording { subscription, handle, came, before, leaving: None }
    }

    /// Returns whether it was cancelled, and does not [`leave`](Self::leave) yet.
    pub(in crate::collector) fn is_cancelled(&self) -> bool {
        self.leaving.is_none() && self.handle.is_cancelled.load(Ordering::Acquire)
    }

    /// Leaves out what begins from now on, and waits for what began before.
    pub(in crate::collector) fn leave(&mut self, now_ns: i64, began: Leaving) {
        self.subscription.filter.until_ns = now_ns;
        self.leaving = Some(began);
    }

    /// Completes the sink with the report, and hands the outcome to the requester.
    pub(in crate::collector) fn end(mut self, report: Report, with_session: bool) {
        let lost = |subscription: &Subscription| lock(&subscription.stats.sinks).values().map(|sink| sink.lost).sum();
        // The answer to a request has a count of missing records; a trace has only the notes.
        let mut told = report.clone();
        let missing: u64 = lost(&self.subscription);
        if missing > 0 {
            let missing = counted_are(missing, "record");
            told.notes.push(format!("{missing} missing: the reader was slower than the program"));
        }
        self.subscription.finish(&told);
        self.handle.end(Outcome { report, lost: lost(&self.subscription), with_session });
    }
}
