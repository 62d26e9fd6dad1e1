//! The steps of the program: from their boundaries to records.
//!
//! A step is complete on arrival, and needs no device query. Without steps, a round costs two loads.

use std::sync::Arc;

use super::context::Context;
use super::stage::Stage;
use warpline_core::step::StepRecord;
use warpline_report::sink::Batch;

#[derive(Default)]
pub(super) struct StepStage {
    batch: Vec<StepRecord>,
}

impl Stage for StepStage {
    fn has_begun(&self, cx: &Context) -> bool {
        cx.recorder.steps().has_ended()
    }

    fn pass(&mut self, cx: &mut Context) -> usize {
        if !cx.recorder.steps().has_ended() {
            return 0;
        }
        let recorder = Arc::clone(&cx.recorder);
        recorder.steps().collect(|ended| {
            let thread = Arc::clone(cx.thread(ended.thread));
            self.batch.push(StepRecord { number: ended.number, thread, host: ended.host });
        });
        cx.forget_threads();
        cx.hand_out(Batch::Steps(&self.batch));
        self.batch.clear();
        // A step is no zone that waits for its stream.
        0
    }

    fn drain(&mut self, cx: &mut Context) {
        self.pass(cx);
    }
}
