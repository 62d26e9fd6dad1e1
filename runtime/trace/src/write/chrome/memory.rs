//! Converts records of device memory to counters: one for each device, and one for each of those who hold its memory.

use std::io;

use serde_json::json;

use super::document::Events;
use super::trace::Trace;
use warpline_core::memory::MemoryRecord;

/// The most counters of those who hold memory. The bytes of the others are in the counter of the device.
const HOLDERS: usize = 64;

impl Trace {
    /// Writes how much memory its device and its holder have from this record on.
    pub(super) fn memory(&mut self, record: &MemoryRecord, out: &mut Events) -> io::Result<()> {
        let device = format!("memory {}", record.stream.device.label());
        let holder = record.owner().map(|owner| format!("{device}: {owner}"));
        self.counter(&device, record.at_ns, &json!({ "bytes": record.device_bytes }), out)?;
        let Some(holder) = holder else { return Ok(()) };
        if !self.holders.contains(&holder) {
            if self.holders.len() >= HOLDERS {
                return Ok(());
            }
            self.holders.insert(holder.clone());
        }
        self.counter(&holder, record.at_ns, &json!({ "bytes": record.owner_bytes }), out)
    }
}
