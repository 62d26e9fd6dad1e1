//! The spans and events of `tracing`: they are complete when they come, and ask no device anything.

use std::sync::Arc;

use super::{BATCH, Collector};
use crate::sink::Batch;

impl Collector {
    /// Whether spans have begun since the last pass.
    pub(super) fn has_new_spans(&self) -> bool {
        self.recorder.spans().begun() != self.spans_begun
    }

    /// Hands on what came since the last time, and says how many that were.
    pub(super) fn pass_spans(&mut self) -> usize {
        let queue = Arc::clone(self.recorder.spans());
        self.spans_begun = queue.begun();
        let mut recorded = 0;
        queue.collect(|ended| {
            let thread = ended.thread;
            let thread = self.threads.entry(thread).or_insert_with(|| self.recorder.thread(thread));
            let record = ended.into_record(Arc::clone(thread));
            self.spans.push(record);
            if self.spans.len() == BATCH {
                recorded += self.deliver_spans();
            }
        });
        recorded += self.deliver_spans();
        self.threads.clear();
        recorded
    }

    fn deliver_spans(&mut self) -> usize {
        if self.spans.is_empty() {
            return 0;
        }
        let mut batch = std::mem::take(&mut self.spans);
        self.hand_out(Batch::Spans(&batch));
        let recorded = batch.len();
        self.recorder.spans().add_recorded(recorded);
        batch.clear();
        self.spans = batch;
        recorded
    }
}
