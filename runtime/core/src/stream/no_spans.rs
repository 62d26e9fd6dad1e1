//! Replaces `spans` in a build without feature `tracing`: there are no spans.

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
