//! Converts records of device memory to counters: one for each device, and one for each of those who hold its memory.

use std::collections::HashMap;

use super::proto::Buffer;
use super::tables::Tables;
use warpline_core::memory::MemoryRecord;

/// The most counters of those who hold memory. The bytes of the others are in the counter of the device.
const HOLDERS: usize = 64;

/// The counters of memory while the trace is written.
#[derive(Debug, Default)]
pub(super) struct MemoryCounters {
    /// The group of the counters, and the piece of the trace that last described it.
    group: Option<(u64, u32)>,
    /// The counters by name, each with the piece of the trace that last described it.
    counters: HashMap<String, (u64, u32)>,
    /// The counters of those who hold memory.
    holders: usize,
}

impl MemoryCounters {
    /// Writes how much memory its device and its holder have from this record on.
    pub(super) fn write(&mut self, record: &MemoryRecord, tables: &mut Tables, buffer: &mut Buffer) {
        tables.end_ns = tables.end_ns.max(record.at_ns);
        let device = format!("memory {}", record.stream.device.label());
        self.count(&device, (record.at_ns, record.device_bytes), tables, buffer);
        let Some(owner) = record.owner() else { return };
        let holder = format!("{device}: {owner}");
        if !self.counters.contains_key(&holder) {
            if self.holders >= HOLDERS {
                return;
            }
            self.holders += 1;
        }
        self.count(&holder, (record.at_ns, record.owner_bytes), tables, buffer);
    }

    fn count(&mut self, name: &str, (at_ns, bytes): (i64, u64), tables: &mut Tables, buffer: &mut Buffer) {
        let Tables { session, facts, .. } = tables;
        let known = self.counters.get(name).filter(|(_, piece)| *piece == session.piece);
        let counter = known.map(|(counter, _)| *counter).unwrap_or_else(|| {
            let group = session.ids.derive("memory");
            if self.group != Some((group, session.piece)) {
                self.group = Some((group, session.piece));
                facts.group(group, "memory", i32::MAX as u32 - 2, buffer);
            }
            let counter = session.ids.derive(("memory", name));
            facts.bytes_track(counter, group, name, buffer);
            self.counters.insert(name.to_owned(), (counter, session.piece));
            counter
        });
        facts.count(counter, at_ns, i64::try_from(bytes).unwrap_or(i64::MAX), buffer);
    }
}
