//! Converts synchronisations to events, with the category, names and arguments that PyTorch's profiler gives them.
//!
//! PyTorch's profiler puts them on the row of the stream. Here, a thread's wait is on the row of the thread, and only a wait that it queued
//! on a stream is below the stream.

use std::io;

use super::document::Events;
use super::json::Args;
use super::rows::{Owner, Whose};
use super::trace::Trace;
use warpline_core::synchronization::{SyncKind, SyncRecord};

/// PyTorch's number for what does not apply.
const NONE: i64 = -1;

impl Trace {
    pub(super) fn sync(&mut self, record: &SyncRecord, out: &mut Events) -> io::Result<()> {
        let (key, whose) = match record.stream.as_deref().filter(|_| !record.kind.is_on_thread()) {
            Some(stream) => ((Owner::Waits(stream.id), None), Whose::stream(stream)),
            None => ((Owner::Thread(record.thread.id), None), Whose::thread(&record.thread)),
        };
        let place = self.rows.place(key, whose, record.host, out)?;
        let name = name(record.kind);
        self.named_slice("cuda_sync", name, record.host, place, out)?;
        let mut args = Args::open(out)?;
        args.add("cuda_sync_kind", name)?;
        if let Some(event) = record.event {
            args.add("wait_on_stream", NONE)?;
            args.add("wait_on_cuda_event_record_corr_id", NONE)?;
            args.add("wait_on_cuda_event_id", event)?;
        }
        args.add("stream", record.stream.as_ref().map_or(NONE, |stream| i64::from(stream.id)))?;
        args.add("correlation", record.correlation)?;
        args.add("device", record.stream.as_ref().map_or(NONE, |stream| i64::from(stream.device.ordinal)))?;
        args.add("context", record.context)?;
        if let Some(zone) = record.zone {
            args.add("zone", zone.range.name())?;
            args.add("zone sequence", zone.sequence)?;
        }
        args.close()
    }
}

/// Returns the name in PyTorch's profiler.
fn name(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::EventSynchronize => "Event Sync",
        SyncKind::StreamWaitEvent => "Stream Wait Event",
        SyncKind::StreamSynchronize => "Stream Sync",
        SyncKind::ContextSynchronize => "Context Sync",
        _ => "Unknown",
    }
}
