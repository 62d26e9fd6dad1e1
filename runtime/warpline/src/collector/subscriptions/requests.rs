//! Subscriptions that come and go while a session runs: what is asked for from outside (`control`).
//!
//! A request takes what the session records from the moment in which it is admitted until it is cancelled, or the session ends.
//! What began before the cancellation is waited for, for a while; what begins later is left out, although the session goes on.
//! It is in no report of the session and changes nothing of it; its own report counts what was recorded meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::filtered::FilteredSink;
use super::{Subscription, Subscriptions};
use crate::settings::Filter;
use warpline_core::lock::lock;
use warpline_core::report::{KernelCounts, Report, SpanCounts};
use warpline_core::sink::{SessionInfo, Sink};
use warpline_core::stream::context::Account;
use warpline_core::stream::drain_barrier::DrainBarrier;

/// How requests reach the collector of a session.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    /// A request waits, or one was cancelled.
    pub(in crate::collector) has_news: AtomicBool,
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
    pub(in crate::collector) is_cancelled: AtomicBool,
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

    pub(in crate::collector) fn take(&self) -> Vec<NewSubscription> {
        std::mem::take(&mut lock(&self.queue).waiting)
    }

    /// Admits nobody any more, and gives those that still wait.
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

    /// How it ended, once it is over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).clone()
    }

    pub(in crate::collector) fn end(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        (self.notify)();
    }
}

/// A request that was admitted, and the session's figures at that time.
pub(in crate::collector) struct Request {
    pub(in crate::collector) sink: FilteredSink,
    pub(in crate::collector) handle: Arc<SubscriptionHandle>,
    pub(in crate::collector) came: Instant,
    pub(in crate::collector) before: Account,
    pub(in crate::collector) spans_before: SpanCounts,
    pub(in crate::collector) kernels_before: KernelCounts,
    pub(in crate::collector) not_sampled_before: u64,
    pub(in crate::collector) leaving: Option<Leaving>,
}

/// A cancelled request waits for what began before.
pub(in crate::collector) struct Leaving {
    pub(in crate::collector) since: Instant,
    /// What began before, on each stream.
    pub(in crate::collector) began: Vec<Arc<DrainBarrier>>,
}

impl Leaving {
    /// How many zones that began before are neither recorded nor given up.
    pub(in crate::collector) fn on_their_way(&self) -> u64 {
        self.began.iter().map(|cut| cut.on_their_way()).sum()
    }
}

impl Subscriptions {
    /// Adds a request that was admitted.
    pub(in crate::collector) fn add_request(&mut self, request: Request) {
        self.all.push(Subscription::Requested(Box::new(request)));
    }

    /// Takes requests from there.
    pub(in crate::collector) fn take_requests_from(&mut self, inbox: Arc<Inbox>) {
        self.inbox = inbox;
    }

    pub(in crate::collector) fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        self.all.iter_mut().filter_map(|subscription| match subscription {
            Subscription::Requested(request) => Some(request.as_mut()),
            Subscription::Own(..) => None,
        })
    }

    /// Removes the requests that are over.
    pub(in crate::collector) fn take_over(&mut self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
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
