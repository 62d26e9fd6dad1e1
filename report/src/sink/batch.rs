//! The data that a sink receives in one call: records of one kind.
//!
//! A new kind of record is a new variant here, which a wrapper around a sink passes on without changes.

use super::SessionChange;
use warpline_core::kernel::KernelRecord;
use warpline_core::memory::MemoryRecord;
use warpline_core::record::{SpanRecord, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::step::StepRecord;
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::{QueueDepth, WaitRecord};

/// Records of one kind, for [`Sink::write`](crate::sink::Sink::write). A sink ignores kinds that it does not use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Batch<'a> {
    /// Finished zones of one stream in the order in which the GPU ended them, or host zones.
    Zones(&'a [ZoneRecord]),
    /// Spans and events of `tracing`, in the order in which they ended.
    Spans(&'a [SpanRecord]),
    /// Kernels, copies and memory sets of all streams, in the order of their begins. A later batch may contain earlier ones.
    /// Kernels may arrive before or after the zones that launched them.
    Kernels(&'a [KernelRecord]),
    /// Waits of threads for the device, and of streams for events, in the order of their begins. A later batch may contain earlier ones.
    Synchronizations(&'a [SyncRecord]),
    /// Launches of CUDA graphs with their zones. CUPTI delivers them some time after their kernels; stamps deliver them when the
    /// launches end.
    Replays(&'a [ReplayRecord]),
    /// Waits of streams and threads, each with the signal that ended it. They may arrive before or after the zones around them.
    Waits(&'a [WaitRecord]),
    /// The lengths of timeline queues, in the order of time for each queue.
    Depths(&'a [QueueDepth]),
    /// Steps of the program, in the order in which they ended. The zones of a step may arrive before or after it.
    Steps(&'a [StepRecord]),
    /// Allocations and frees of device memory, in the order of time.
    Memory(&'a [MemoryRecord]),
    /// Changes of the session while it runs, in order. No report counts them.
    Changes(&'a [SessionChange]),
}

impl<'a> Batch<'a> {
    /// Returns the zones; empty for a batch of another kind.
    pub fn zones(self) -> &'a [ZoneRecord] {
        match self {
            Batch::Zones(zones) => zones,
            _ => &[],
        }
    }

    /// Returns the number of entries.
    pub fn len(self) -> usize {
        match self {
            Batch::Zones(batch) => batch.len(),
            Batch::Spans(batch) => batch.len(),
            Batch::Kernels(batch) => batch.len(),
            Batch::Synchronizations(batch) => batch.len(),
            Batch::Replays(batch) => batch.len(),
            Batch::Waits(batch) => batch.len(),
            Batch::Depths(batch) => batch.len(),
            Batch::Steps(batch) => batch.len(),
            Batch::Memory(batch) => batch.len(),
            Batch::Changes(batch) => batch.len(),
        }
    }

    /// Returns whether it has no entries. The collector passes no such batch.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the number of its records that a report counts as taken or lost. Changes do not count.
    #[doc(hidden)]
    pub fn records(self) -> usize {
        if let Batch::Changes(_) = self { 0 } else { self.len() }
    }
}
