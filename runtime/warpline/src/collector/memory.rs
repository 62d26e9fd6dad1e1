//! The device memory of a session: its changes are complete on arrival, and need no query to a device.

use super::BATCH;
use super::context::Context;
use super::stage::Stage;
use warpline_core::memory::MemoryRecord;
use warpline_core::sink::Batch;

#[derive(Default)]
pub(super) struct MemoryStage {
    batch: Vec<MemoryRecord>,
}

impl MemoryStage {
    fn deliver(&mut self, cx: &mut Context) {
        if !self.batch.is_empty() {
            cx.hand_out(Batch::Memory(&self.batch));
            cx.recorder.memory().add_recorded(self.batch.len());
            self.batch.clear();
        }
    }
}

impl Stage for MemoryStage {
    fn pass(&mut self, cx: &mut Context) -> usize {
        let changes = cx.recorder.memory().take();
        let count = changes.len();
        for change in changes {
            let thread = cx.recorder.thread(change.thread());
            self.batch.push(change.into_record(thread));
            if self.batch.len() == BATCH {
                self.deliver(cx);
            }
        }
        self.deliver(cx);
        count
    }

    fn drain(&mut self, cx: &mut Context) {
        self.pass(cx);
    }

    fn finish(&mut self, cx: &mut Context) {
        self.pass(cx);
    }
}
