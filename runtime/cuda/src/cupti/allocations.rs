//! The allocations and frees among CUPTI's records, until their calls are known, and the allocations that failed.
//!
//! A record has the address, the size and the time of its call; the call has the thread, and the zone comes with it. CUPTI writes the call last,
//! perhaps into the next buffer. What is handed on keeps the order of the calls, because an address that was freed is allocated again.

use std::sync::Arc;

use super::abi::*;
use super::clock::Clock;
use super::launch::Launch;
use super::{Names, zone_of};
use warpline_core::catalog::RangeSpec;
use warpline_core::plural::counted_as;
use warpline_core::record::StreamInfo;
use warpline_core::stream::memory::{Allocation, RefusedAllocation, ToolChange, ToolEvent};

/// The number of reads of buffers for which a record waits for its call. Reads are at least as frequent as flushes.
const READS: u8 = 16;

/// The most records that wait for their calls, and the most failed allocations between two reads.
const MOST: usize = 1 << 16;
const MOST_REFUSED: usize = 64;

/// An allocation that failed for lack of memory.
#[derive(Clone, Copy)]
struct RawRefused {
    call: &'static str,
    thread: u32,
    start: u64,
    correlation: u32,
}

/// The records of the session that are not handed on yet.
#[derive(Default)]
pub(super) struct Allocations {
    /// Each with the number of reads for which it has waited.
    waiting: Vec<(CUpti_ActivityMemory, u8)>,
    refused: Vec<RawRefused>,
    /// The number of records, and of failed allocations, that had no room.
    lost: u64,
    lost_refused: u64,
}

impl Allocations {
    /// Adds a record, if its memory is on a device.
    pub(super) fn add(&mut self, record: CUpti_ActivityMemory) {
        if !is_of_device(record.memory) || !matches!(record.operation, ALLOCATION | RELEASE) {
            return;
        }
        if self.waiting.len() < MOST {
            self.waiting.push((record, 0));
        } else {
            self.lost += 1;
        }
    }

    /// Adds a call that failed for lack of memory, if it allocates. The runtime's call and the driver's within it are one: the outer one counts.
    pub(super) fn add_call(&mut self, call: CUpti_ActivityAPI) {
        let CUpti_ActivityAPI { kind, callback, thread, start, correlation, returned, .. } = call;
        if returned != OUT_OF_MEMORY {
            return;
        }
        let calls = if kind == kind::DRIVER { DRIVER_ALLOCATIONS } else { RUNTIME_ALLOCATIONS };
        let Some((_, name)) = calls.iter().find(|(known, _)| *known == callback) else { return };
        let failed = RawRefused { call: name, thread, start, correlation };
        let has_room = self.refused.len() < MOST_REFUSED;
        match self.refused.iter_mut().find(|known| known.correlation == correlation) {
            Some(known) if start < known.start => *known = failed,
            Some(_) => {}
            None if has_room => self.refused.push(failed),
            // The driver's call within the runtime's is the same failure.
            None => self.lost_refused += u64::from(kind == kind::DRIVER),
        }
    }

    /// Counts a read of buffers.
    pub(super) fn age(&mut self) {
        self.waiting.iter_mut().for_each(|(_, reads)| *reads = reads.saturating_add(1));
    }

    /// Takes the changes of which the calls are known, in the order of the calls, and returns them with the time until which there are no others.
    /// `flushed_ns` is when CUPTI was last asked for its records; if this is the `last` call, nothing waits.
    pub(super) fn take(
        &mut self,
        (clock, flushed_ns, last): (&Clock, i64, bool),
        launch_of: impl Fn(u32) -> Launch,
        names: &mut dyn Names,
    ) -> (Vec<ToolChange>, i64) {
        self.waiting.sort_by_key(|(raw, _)| raw.timestamp);
        let is_ready = |(raw, reads): &(CUpti_ActivityMemory, u8)| {
            last || launch_of(raw.correlation).call.is_some() || *reads >= READS
        };
        let ready = self.waiting.iter().position(|waiting| !is_ready(waiting)).unwrap_or(self.waiting.len());
        let taken: Vec<_> = self.waiting.drain(..ready).map(|(raw, _)| raw).collect();
        let until_ns = match self.waiting.first() {
            Some((raw, _)) => clock.host_ns(raw.timestamp).min(flushed_ns),
            None if last => i64::MAX,
            None => flushed_ns,
        };
        let changes = taken.into_iter().map(|raw| {
            let launch = launch_of(raw.correlation);
            let thread = launch.call.map_or(0, |(thread, ..)| u64::from(thread));
            let range = zone_of(&launch, names).map(|zone| zone.range);
            let at_ns = clock.host_ns(raw.timestamp);
            ToolChange { at_ns, event: event(raw, thread, range, names) }
        });
        (changes.collect(), until_ns)
    }

    /// Takes the allocations that failed.
    pub(super) fn take_refused(
        &mut self,
        clock: &Clock,
        launch_of: impl Fn(u32) -> Launch,
        names: &mut dyn Names,
    ) -> Vec<RefusedAllocation> {
        let refused = std::mem::take(&mut self.refused).into_iter().map(|refused| {
            let RawRefused { call, thread, start, correlation } = refused;
            let range = zone_of(&launch_of(correlation), names).map(|zone| zone.range);
            let (what, thread) = (call.to_owned(), u64::from(thread));
            RefusedAllocation { what, bytes: None, thread, range, at_ns: clock.host_ns(start) }
        });
        refused.collect()
    }

    /// Returns what is missing from the report, for the user.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let lost = (self.lost > 0).then(|| {
            let lost = counted_as(self.lost, "allocation or free is", "allocations and frees are");
            format!(
                "{lost} missing from the figures of device memory: more than {MOST} waited for the collector at once; reuse memory or take it from a \
                 pool, so that there are fewer calls, or leave a core to the collector's thread"
            )
        });
        let lost_refused = (self.lost_refused > 0).then(|| {
            let lost = counted_as(self.lost_refused, "allocation", "allocations");
            format!(
                "{lost} more failed for lack of memory than the report counts: CUPTI reported more than {MOST_REFUSED} at once; free memory before the \
                 program tries again"
            )
        });
        lost.into_iter().chain(lost_refused)
    }
}

fn event(
    record: CUpti_ActivityMemory,
    thread: u64,
    range: Option<&'static RangeSpec>,
    names: &mut dyn Names,
) -> ToolEvent {
    let CUpti_ActivityMemory { operation, address, bytes, device, context, stream, .. } = record;
    if operation == RELEASE {
        return ToolEvent::Freed { address, thread };
    }
    // Memory that no stream orders has none.
    let stream: Arc<StreamInfo> =
        if stream == NOT_APPLICABLE { names.no_stream(device) } else { names.stream(device, context, stream) };
    ToolEvent::Allocated(Allocation { stream, thread, queue: None, range, name: None, bytes, address })
}
