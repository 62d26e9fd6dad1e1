//! The spans and events of `tracing`: they are complete on arrival, and need no device query.

use std::sync::Arc;

use super::BATCH;
use super::context::Context;
use super::stage::Stage;
use warpline_core::record::SpanRecord;
use warpline_report::sink::Batch;

#[derive(Default)]
pub(super) struct SpanStage {
    batch: Vec<SpanRecord>,
    /// The number of spans that had begun at the last pass.
    begun: u64,
}

impl Stage for SpanStage {
    fn has_begun(&self, cx: &Context) -> bool {
        cx.recorder.spans().begun() != self.begun
    }

    /// Returns whether a span is unfinished: its end does not wake the collector.
    fn polls(&self, cx: &Context) -> bool {
        cx.recorder.span_counts().unfinished > 0
    }

    fn pass(&mut self, cx: &mut Context) -> usize {
        let queue = Arc::clone(cx.recorder.spans());
        self.begun = queue.begun();
        let mut recorded = 0;
        queue.collect(|ended| {
            let thread = Arc::clone(cx.thread(ended.thread));
            self.batch.push(ended.into_record(thread));
            if self.batch.len() == BATCH {
                recorded += self.deliver(cx);
            }
        });
        recorded += self.deliver(cx);
        cx.forget_threads();
        recorded
    }

    fn drain(&mut self, cx: &mut Context) {
        self.pass(cx);
    }
}

impl SpanStage {
    fn deliver(&mut self, cx: &mut Context) -> usize {
        let recorded = self.batch.len();
        if recorded > 0 {
            cx.hand_out(Batch::Spans(&self.batch));
            cx.recorder.spans().add_recorded(recorded);
            self.batch.clear();
        }
        recorded
    }
}
