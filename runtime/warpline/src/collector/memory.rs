//! The device memory of a session: its changes are complete on arrival, and need no query to a device.

use super::BATCH;
use super::context::Context;
use super::stage::Stage;
use warpline_core::memory::MemoryRecord;
use warpline_core::stream::memory::NotedChange;
use warpline_report::sink::Batch;

pub(super) struct MemoryStage;

impl Stage for MemoryStage {
    fn pass(&mut self, cx: &mut Context) -> usize {
        hand_out(cx)
    }

    fn drain(&mut self, cx: &mut Context) {
        hand_out(cx);
    }

    fn finish(&mut self, cx: &mut Context) {
        hand_out(cx);
    }
}

/// Hands on the changes so far. Returns their number.
pub(super) fn hand_out(cx: &mut Context) -> usize {
    let changes = cx.recorder.memory().take();
    let count = changes.len();
    let mut changes = changes.into_iter();
    loop {
        let record = |change: NotedChange| {
            let thread = cx.recorder.thread(change.thread());
            change.into_record(thread)
        };
        let batch: Vec<MemoryRecord> = changes.by_ref().take(BATCH).map(record).collect();
        if batch.is_empty() {
            return count;
        }
        cx.hand_out(Batch::Memory(&batch));
        cx.recorder.memory().add_recorded(batch.len());
    }
}
