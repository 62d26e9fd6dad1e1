//! Converts synchronisations to slices.
//!
//! A thread's wait for the device is a slice on the row of the thread, among its zones. A wait that a thread queued on a stream is on the
//! row `waits for events` below the stream, because its time is that of the call, not of the stream's work.

use std::collections::HashMap;

use super::annotations::{text, uint};
use super::category::{Category, write_stalled};
use super::proto::{Buffer, event};
use super::tables::{Tables, keep};
use warpline_core::synchronization::SyncRecord;

/// The name of the row below a stream.
const ROW: &str = "waits for events";

/// The rows of queued waits, by stream.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    rows: HashMap<u32, usize>,
}

impl Syncs {
    pub(super) fn write(&mut self, record: &SyncRecord, tables: &mut Tables, buffer: &mut Buffer) {
        let span = record.host;
        tables.end_ns = tables.end_ns.max(span.end_ns);
        let queued_on = record.stream.as_ref().filter(|_| !record.kind.is_on_thread());
        let row = match queued_on {
            Some(stream) => tables.below_stream(&mut self.rows, stream, ROW, buffer),
            None => tables.thread(&record.thread, buffer),
        };
        let Tables { tracks, session, .. } = tables;
        let lane = tracks[row].lane(span, session, buffer);
        lane.define_category(Category::Sync, buffer);
        lane.slice(span, buffer, |event| {
            event.text(event::NAME, record.kind.as_str());
            Category::Sync.write(event);
            write_stalled(event);
            if let Some(stream) = &record.stream {
                text(event, "stream", &stream.name);
            }
            if queued_on.is_some() {
                let thread = record.thread.name.clone().unwrap_or_else(|| format!("thread {}", record.thread.id));
                text(event, "queued_by", &thread);
            }
            if let Some(stream) = record.cuda_stream {
                uint(event, "cuda_stream", stream.into());
            }
            if let Some(cuda_event) = record.event {
                uint(event, "cuda_event", cuda_event.into());
            }
            uint(event, "context", record.context.into());
            uint(event, "correlation", record.correlation.into());
            if let Some(zone) = record.zone {
                text(event, "zone", zone.range.name());
                uint(event, "zone_sequence", zone.sequence);
            }
        });
    }

    /// Updates the rows after tracks have moved or were forgotten.
    pub(super) fn keep(&mut self, places: &[Option<usize>]) {
        keep(&mut self.rows, places);
    }
}
