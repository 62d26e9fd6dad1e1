//! Subscriptions that come and go while a session runs: what is asked for from outside (`control`).
//!
//! A request takes what the session records from the moment in which it is admitted until it is cancelled, or the session ends.
//! What began before the cancellation is waited for, for a while; what begins later is left out, although the session goes on.
//! It is in no report of the session and changes nothing of it; its own report counts what was recorded meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::filtered::FilteredSink;
use super::{Subscription, Subscriptions};
use crate::caught::caught;
use crate::clock::now_ns;
use crate::collector::context::Context;
use crate::collector::left_out::not_sampled;
use crate::collector::stream::Stream;
use crate::lock::lock;
use crate::session::{Dropped, KernelCounts, Report, SpanCounts};
use crate::settings::Filter;
use crate::sink::summary::CameBy;
use crate::sink::{SessionInfo, Sink};
use crate::spelling::counted_are;
use crate::stream::context::Account;
use crate::stream::cut::Cut;

/// The longest that a cancelled request waits for zones that are on their way.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// How requests reach the collector of a session.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    /// A request waits, or one was cancelled.
    has_news: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<NewSubscription>,
    /// The session is over.
    is_closed: bool,
}

/// A request for a subscription.
pub(crate) struct NewSubscription {
    pub(crate) sink: Box<dyn Sink>,
    /// The ranges that it takes zones of; none for all.
    pub(crate) filters: Vec<Filter>,
    pub(crate) info: SessionInfo,
    pub(crate) handle: Arc<SubscriptionHandle>,
}

/// What a subscription and whoever asked for it share.
pub(crate) struct SubscriptionHandle {
    is_cancelled: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    /// Called when it is over.
    notify: Box<dyn Fn() + Send + Sync>,
}

/// How a subscription ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What was recorded while it was there.
    pub(crate) report: Report,
    /// Records that it could not take.
    pub(crate) lost: u64,
    /// It was not cancelled: the session ended.
    pub(crate) with_session: bool,
}

impl Inbox {
    /// Adds a request; gives it back where the session is over.
    pub(crate) fn admit(&self, request: NewSubscription) -> Result<(), Box<NewSubscription>> {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Err(Box::new(request));
        }
        queue.waiting.push(request);
        self.has_news.store(true, Ordering::Release);
        Ok(())
    }

    /// The request that waits, where no session took it.
    pub(crate) fn take_back(&self) -> Option<NewSubscription> {
        lock(&self.queue).waiting.pop()
    }

    /// Cancels a subscription of this session.
    pub(crate) fn cancel(&self, handle: &SubscriptionHandle) {
        handle.is_cancelled.store(true, Ordering::Release);
        self.has_news.store(true, Ordering::Release);
    }

    fn take(&self) -> Vec<NewSubscription> {
        std::mem::take(&mut lock(&self.queue).waiting)
    }

    /// Admits nobody any more, and gives those that still wait.
    fn close(&self) -> Vec<NewSubscription> {
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

    /// How it ended, once it is over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).clone()
    }

    fn end(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        (self.notify)();
    }
}

/// A request that was admitted, and the session's figures at that time.
pub(super) struct Request {
    pub(super) sink: FilteredSink,
    handle: Arc<SubscriptionHandle>,
    came: Instant,
    before: Account,
    spans_before: SpanCounts,
    kernels_before: KernelCounts,
    not_sampled_before: u64,
    leaving: Option<Leaving>,
}

/// A cancelled request waits for what began before.
struct Leaving {
    since: Instant,
    /// What began before, on each stream.
    began: Vec<Arc<Cut>>,
}

impl Leaving {
    /// How many zones that began before are neither recorded nor given up.
    fn on_their_way(&self) -> u64 {
        self.began.iter().map(|cut| cut.on_their_way()).sum()
    }
}

impl Subscriptions {
    /// Takes requests from there.
    pub(in crate::collector) fn take_requests_from(&mut self, inbox: Arc<Inbox>) {
        self.inbox = inbox;
    }

    fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        self.all.iter_mut().filter_map(|subscription| match subscription {
            Subscription::Requested(request) => Some(request.as_mut()),
            Subscription::Own(..) => None,
        })
    }

    /// Removes the requests that are over.
    fn take_over(&mut self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut over = Vec::new();
        for subscription in std::mem::take(&mut self.all) {
            match subscription {
                Subscription::Requested(request) if is_over(&request) => over.push(*request),
                subscription => self.all.push(subscription),
            }
        }
        over
    }
}

impl Context {
    /// Admits requests and ends those that were cancelled. `owes` says whether records from before a time are still to come.
    pub(in crate::collector) fn pass_requests(&mut self, has_kernels: bool, owes: impl Fn(Instant) -> bool) {
        let inbox = Arc::clone(&self.subscriptions.inbox);
        if inbox.has_news.swap(false, Ordering::Acquire) {
            inbox.take().into_iter().for_each(|request| self.admit(request, has_kernels));
            let is_leaving = |request: &&mut Request| {
                request.leaving.is_none() && request.handle.is_cancelled.load(Ordering::Acquire)
            };
            let leaving = self.subscriptions.requests().filter(is_leaving).count();
            for _ in 0..leaving {
                // A zone has its slot before it has its begin: what is left out by its begin is not waited for.
                let now_ns = now_ns();
                let began = self.what_began();
                if let Some(request) = self.subscriptions.requests().find(is_leaving) {
                    request.sink.until_ns = now_ns;
                    request.leaving = Some(began);
                }
            }
        }
        if self.subscriptions.requests().any(|request| request.leaving.is_some()) {
            let over = self.subscriptions.take_over(|request| {
                request.leaving.as_ref().is_some_and(|leaving| {
                    let is_all_in = leaving.on_their_way() == 0 && !owes(leaving.since);
                    is_all_in || leaving.since.elapsed() >= ENDS_WITHIN
                })
            });
            over.into_iter().for_each(|request| request.end(self, false));
        }
    }

    /// The session is over: no request is admitted any more, and those that are there end.
    pub(in crate::collector) fn end_requests(&mut self, has_kernels: bool) {
        let waiting = self.subscriptions.inbox.close();
        waiting.into_iter().for_each(|request| self.admit(request, has_kernels));
        let all = self.subscriptions.take_over(|_| true);
        all.into_iter().for_each(|request| request.end(self, true));
    }

    fn admit(&mut self, request: NewSubscription, has_kernels: bool) {
        let NewSubscription { sink, filters, mut info, handle } = request;
        info.kernels = has_kernels;
        let mut request = Box::new(Request {
            sink: FilteredSink::new(sink, filters),
            handle,
            came: Instant::now(),
            before: self.recorder.account(),
            spans_before: self.recorder.span_counts(),
            kernels_before: *lock(&self.tally.kernels),
            not_sampled_before: not_sampled(),
            leaving: None,
        });
        let _ = caught(|| request.sink.start(&info));
        self.subscriptions.all.push(Subscription::Requested(request));
    }

    fn what_began(&mut self) -> Leaving {
        // Zones may have begun on streams that the collector has not met yet.
        self.meet_streams();
        let cut = |stream: &Stream| stream.context.cut(stream.given_back);
        let began = self.streams.all.iter().map(cut);
        // Captured zones are not collected: they are over where they end.
        #[cfg(feature = "cuda")]
        let began = began.chain([self.recorder.captures().cut(0)]);
        Leaving { since: Instant::now(), began: began.collect() }
    }
}

impl Request {
    fn end(mut self, cx: &Context, with_session: bool) {
        let report = self.report(cx);
        // The answer to a request has a count of what is missing; a trace has only the notes.
        let mut told = report.clone();
        if self.sink.lost > 0 {
            let missing = counted_are(self.sink.lost, "record");
            told.notes.push(format!("{missing} missing: the reader was slower than the program"));
        }
        let done = caught(|| {
            // An error of its end is in the count.
            let _ = self.sink.finish(&told);
            self.sink.lost_inside()
        });
        let lost = self.sink.lost + done.unwrap_or(0);
        self.handle.end(Outcome { report, lost, with_session });
    }

    /// What was recorded while the request was there. What its filter left out did not begin for it; zones on their way when it came
    /// count when they are recorded, those on their way when it goes are unfinished.
    fn report(&self, cx: &Context) -> Report {
        let (now, before) = (cx.recorder.account(), self.before);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let dropped = Dropped {
            ring_full: since(now.dropped.ring_full, before.dropped.ring_full),
            event_failed: since(now.dropped.event_failed, before.dropped.event_failed),
            stream_failed: since(now.dropped.stream_failed, before.dropped.stream_failed),
            capture_failed: since(now.dropped.capture_failed, before.dropped.capture_failed),
            unfinished: self.leaving.as_ref().map_or(now.dropped.unfinished, Leaving::on_their_way),
        };
        let (recorded, captured) = (self.sink.passed, since(now.captured, before.captured));
        let (spans, spans_before) = (cx.recorder.span_counts(), self.spans_before);
        let (kernels, kernels_before) = (*lock(&cx.tally.kernels), self.kernels_before);
        let late = self.sink.late;
        let spans_recorded = since(spans.recorded, spans_before.recorded).saturating_sub(late.spans);
        let buffer_full = since(spans.buffer_full, spans_before.buffer_full);
        let notes = lock(&cx.tally.notes).clone();
        let mut left_out = lock(&cx.tally.left_out).since(Some(self.came));
        left_out.ranges = left_out.ranges.max(self.sink.left_out);
        Report {
            ranges: self.sink.summary.stats(CameBy::Unknown),
            not_sampled: since(not_sampled(), self.not_sampled_before),
            left_out,
            begun: recorded + captured + dropped.total(),
            recorded,
            captured,
            dropped,
            spans: SpanCounts {
                begun: spans_recorded + buffer_full,
                recorded: spans_recorded,
                buffer_full,
                unfinished: 0,
            },
            kernels: KernelCounts {
                recorded: since(kernels.recorded, kernels_before.recorded).saturating_sub(late.kernels),
                dropped: since(kernels.dropped, kernels_before.dropped),
                untimed: since(kernels.untimed, kernels_before.untimed),
                buffers_refused: since(kernels.buffers_refused, kernels_before.buffers_refused),
            },
            duration: self.leaving.as_ref().map_or_else(Instant::now, |leaving| leaving.since) - self.came,
            clocks: lock(&cx.tally.clocks).clone(),
            notes,
            ..Report::default()
        }
    }
}
