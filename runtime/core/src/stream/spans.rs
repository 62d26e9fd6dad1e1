//! The bounded ring through which spans and events of all threads reach the collector.
//!
//! A span takes a slot when a thread enters it, and is published when the thread leaves it, so that the counts are exact in every case. The
//! ring is of the same type as that of the zones; no thread waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_core::Metadata;

use crate::counts::SpanCounts;
use crate::fields::Value;
use crate::record::{Span, SpanRecord, SpanRef, SpanSite, ThreadInfo};

use super::ring::{Ring, Taken, Token};
use super::waker::Waker;

/// The spans of one session.
pub struct SpanQueue {
    ring: Ring<Option<Ended>>,
    buffer_full: AtomicU64,
    /// Written only by the collector.
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

/// The slot of one span. If it is dropped, the span counts as unfinished.
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

    /// Takes a slot for a span that begins. Returns none if the session has ended, or if there is no slot; then the span is counted.
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

    /// Takes all published spans, oldest first. Only the collector may call this.
    pub fn collect(&self, mut each: impl FnMut(Ended)) {
        self.ring.collect(|mut token| {
            let ended = self.ring.slot(&mut token).and_then(Option::take);
            self.ring.give(token);
            ended.into_iter().for_each(&mut each);
        });
    }

    /// Returns how many spans have begun so far.
    pub fn begun(&self) -> u64 {
        self.ring.taken()
    }

    /// Counts spans that were written to the sinks.
    pub fn add_recorded(&self, count: usize) {
        self.recorded.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Prevents all further spans from beginning.
    pub(crate) fn close(&self) {
        self.ring.close();
    }

    /// Returns the counts so far. A span that is still in the ring counts as unfinished.
    pub(crate) fn counts(&self) -> SpanCounts {
        let buffer_full = self.buffer_full.load(Ordering::Relaxed);
        let recorded = self.recorded.load(Ordering::Relaxed);
        let taken = self.ring.taken();
        SpanCounts { begun: taken + buffer_full, recorded, buffer_full, unfinished: taken.saturating_sub(recorded) }
    }
}

impl SpanPermit {
    /// Passes the span to the collector.
    #[inline]
    pub fn publish(mut self, ended: Ended) {
        if let Some(slot) = self.queue.ring.slot(&mut self.token) {
            *slot = Some(ended);
            self.queue.ring.publish(self.token.take());
        }
    }
}

impl Drop for SpanPermit {
    /// After [`publish`](Self::publish) the token is that of no slot, so nothing is given back.
    fn drop(&mut self) {
        self.queue.ring.give(self.token.take());
    }
}

impl Ended {
    /// Converts the span to plain data.
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
