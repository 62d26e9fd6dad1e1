//! The streams of a session: for each, its ring of zones, its counts, and what a thread caches of it.
//!
//! `recorder` owns the contexts of a session, and `thread` finds them for a launching thread. `ring` and `slot` hold the zones between the
//! threads and the collector.

pub mod context;
pub mod drain_barrier;
pub mod memory;
pub mod pauses;
pub mod recorder;
mod registry;
pub mod ring;
#[cfg(all(test, loom))]
mod ring_model;
pub mod slot;
pub mod snapshot;
#[cfg(feature = "tracing")]
pub mod spans;
pub mod thread;
pub mod waits;
pub(crate) mod waker;

/// Replaces `spans` in a build without feature `tracing`: there are no spans.
#[cfg(not(feature = "tracing"))]
pub mod spans {
    use std::sync::Arc;

    use crate::counts::SpanCounts;

    use super::waker::Waker;

    /// The spans of one session: none.
    pub struct SpanQueue;

    impl SpanQueue {
        pub(crate) fn new(_capacity: usize, _waker: Arc<Waker>) -> SpanQueue {
            SpanQueue
        }

        /// Does nothing.
        pub(crate) fn close(&self) {}

        /// Returns zero counts.
        pub(crate) fn counts(&self) -> SpanCounts {
            SpanCounts::default()
        }
    }
}
