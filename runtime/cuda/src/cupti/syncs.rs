//! The synchronisations among CUPTI's records, until their calls are known.
//!
//! A record has the times, and its call the thread. CUPTI writes the call last, perhaps into the next buffer. Queries of events and streams
//! have such records too, but their calls are not recorded: what has no call after some reads is a query.

use super::abi::*;
use warpline_core::synchronization::SyncKind;

/// The number of reads of buffers for which a record waits for its call. Reads are at least as frequent as flushes.
const READS: u8 = 16;

/// The maximum number of records that wait for their calls.
const MOST: usize = 1 << 16;

/// A synchronisation, with CUPTI's numbers and times.
#[derive(Clone, Copy)]
pub(super) struct RawSync {
    pub(super) kind: SyncKind,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u32,
    pub(super) context: u32,
    pub(super) stream: Option<u32>,
    pub(super) event: Option<u32>,
}

/// The records of the session that are not handed on yet.
#[derive(Default)]
pub(super) struct Syncs {
    /// Each with the number of reads for which it has waited.
    waiting: Vec<(RawSync, u8)>,
    /// The number of records without times.
    pub(super) untimed: u64,
}

impl Syncs {
    /// Adds a record.
    pub(super) fn add(&mut self, record: CUpti_ActivitySynchronization) {
        let CUpti_ActivitySynchronization { sync_type, start, end, correlation, context, stream, event, .. } = record;
        let Some(kind) = sync_kind(sync_type) else { return };
        let known = |number: u32| (number != NOT_APPLICABLE).then_some(number);
        let raw = RawSync { kind, start, end, correlation, context, stream: known(stream), event: known(event) };
        if self.waiting.len() < MOST {
            self.waiting.push((raw, 0));
        } else {
            self.untimed += 1;
        }
    }

    /// Takes those whose calls are known, by begin, and forgets those that are queries. `waits` returns whether the call of a correlation
    /// waits; none while the call is unknown.
    pub(super) fn take(&mut self, waits: impl Fn(u32) -> Option<bool>) -> Vec<RawSync> {
        let mut taken = Vec::new();
        let mut untimed = 0;
        self.waiting.retain_mut(|(raw, reads)| {
            match waits(raw.correlation) {
                Some(false) => {}
                // Zeroes stand for a time that could not be taken.
                Some(true) if raw.start == 0 || raw.end < raw.start => untimed += 1,
                Some(true) => taken.push(*raw),
                None => {
                    *reads += 1;
                    return *reads < READS;
                }
            }
            false
        });
        self.untimed += untimed;
        taken.sort_by_key(|raw| raw.start);
        taken
    }
}
