//! The bounded way of spans and events from all threads to the collector.
//!
//! A span takes its place when a thread enters it and is handed over when the thread leaves it, so that the account is exact
//! whatever happens between. The ring is that of the zones; nobody waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_core::Metadata;

use crate::fields::Value;
use crate::record::{Span, SpanRecord, SpanRef, SpanSite, ThreadInfo};
use crate::report::counts::SpanCounts;

use super::ring::{Ring, Taken, Token};
use super::waker::Waker;

/// The spans of one session.
pub struct SpanQueue {
    ring: Ring<Option<Ended>>,
    buffer_full: AtomicU64,
    /// Written by the collector alone.
    recorded: AtomicU64,
    waker: Arc<Waker>,
}

/// A span that a thread has left, or an event.
pub struct Ended {
    pub metadata: &'static Metadata<'static>,
    pub id: Option<u64>,
    pub parent: Option<SpanRef>,
    pub thread: u64,
    pub sequence: u64,
    pub host: Span,
    pub fields: Arc<[(&'static str, Value)]>,
}

/// The right to hand one span over. Dropped, the span counts as unfinished.
pub struct SpanPermit {
    queue: Arc<SpanQueue>,
    token: Token,
    pub sequence: u64,
}

impl SpanQueue {
    pub(crate) fn new(capacity: usize, waker: Arc<Waker>) -> SpanQueue {
        let (buffer_full, recorded) = (AtomicU64::new(0), AtomicU64::new(0));
        let queue = SpanQueue { ring: Ring::new(capacity), buffer_full, recorded, waker };
        let Ok(_) = queue.ring.grow(|| Ok::<_, Infallible>(None));
        queue
    }

    /// A place for a span that begins; none when the session is over, or there is no room and the span is counted.
    #[inline]
    pub fn place(self: Arc<Self>) -> Option<SpanPermit> {
        match self.ring.take(|| Ok::<_, Infallible>(None)) {
            Ok(Taken::Slot { token, sequence }) => {
                self.waker.on_publish(sequence);
                Some(SpanPermit { queue: self, token, sequence })
            }
            Ok(Taken::Full) => {
                self.buffer_full.fetch_add(1, Ordering::Relaxed);
                None
            }
            Ok(Taken::Closed) => None,
        }
    }

    /// Takes everything that was handed over, oldest first. Only the collector may call it.
    pub fn collect(&self, mut each: impl FnMut(Ended)) {
        self.ring.collect(|mut token| {
            let ended = self.ring.slot(&mut token).and_then(Option::take);
            self.ring.give(token);
            ended.into_iter().for_each(&mut each);
        });
    }

    /// How many spans have begun until now.
    pub fn begun(&self) -> u64 {
        self.ring.taken()
    }

    /// So many more were handed to the sinks.
    pub fn add_recorded(&self, count: usize) {
        self.recorded.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Lets no span begin from now on.
    pub(crate) fn close(&self) {
        self.ring.close();
    }

    /// The account until now; what is still on its way counts as unfinished.
    pub(crate) fn counts(&self) -> SpanCounts {
        let buffer_full = self.buffer_full.load(Ordering::Relaxed);
        let recorded = self.recorded.load(Ordering::Relaxed);
        let taken = self.ring.taken();
        SpanCounts { begun: taken + buffer_full, recorded, buffer_full, unfinished: taken.saturating_sub(recorded) }
    }
}

impl SpanPermit {
    /// Hands the span to the collector.
    #[inline]
    pub fn publish(mut self, ended: Ended) {
        if let Some(slot) = self.queue.ring.slot(&mut self.token) {
            *slot = Some(ended);
            self.queue.ring.publish(self.token.take());
        }
    }
}

impl Drop for SpanPermit {
    /// After [`publish`](Self::publish) the token is that of no slot, and nothing is given back.
    fn drop(&mut self) {
        self.queue.ring.give(self.token.take());
    }
}

impl Ended {
    /// The span as plain data.
    pub fn into_record(self, thread: Arc<ThreadInfo>) -> SpanRecord {
        let Ended { metadata, id, parent, sequence, host, fields, .. } = self;
        let site = SpanSite {
            name: metadata.name(),
            target: metadata.target(),
            level: metadata.level().as_str(),
            file: metadata.file(),
            line: metadata.line(),
        };
        SpanRecord { site, id, parent, thread, sequence, host, fields }
    }
}
