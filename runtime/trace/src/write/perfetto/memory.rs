//! Converts records of device memory to counters: one for each device, and one for each of those who hold its memory.

use super::counters::Counters;
use super::proto::{Buffer, track};
use super::tables::Tables;
use warpline_core::memory::MemoryRecord;

/// The most counters of those who hold memory. The bytes of the others are in the counter of the device.
const HOLDERS: usize = 64;

/// The counters of memory while the trace is written.
#[derive(Debug)]
pub(super) struct MemoryCounters {
    counters: Counters,
    /// The counters of those who hold memory.
    holders: usize,
}

impl MemoryCounters {
    pub(super) fn new() -> MemoryCounters {
        MemoryCounters { counters: Counters::new("memory", "", 2, track::UNIT_BYTES), holders: 0 }
    }

    /// Writes how much memory its device and its holder have from this record on.
    pub(super) fn write(&mut self, record: &MemoryRecord, tables: &mut Tables, buffer: &mut Buffer) {
        let device = format!("memory {}", record.stream.device.label());
        self.counters.set(&device, record.at_ns, record.device_bytes, tables, buffer);
        let Some(owner) = record.owner() else { return };
        let holder = format!("{device}: {owner}");
        if !self.counters.contains(&holder) {
            if self.holders >= HOLDERS {
                return;
            }
            self.holders += 1;
        }
        self.counters.set(&holder, record.at_ns, record.owner_bytes, tables, buffer);
    }
}
