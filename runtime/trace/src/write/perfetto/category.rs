//! Categories of slices and instants, by which the UI filters and SQL selects.
//!
//! Every event of a trace has one. The categories of records are numbered once per sequence; spans and events of `tracing` add
//! their target and level, which `track` defines with their names.

use super::proto::{Buffer, event};
use warpline_core::catalog::Kind;
use warpline_core::kernel::KernelWork;
use warpline_core::record::ZoneRecord;

/// The kind of a slice or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Category {
    /// A zone on a stream, including one in the replay of a graph.
    Zone,
    /// A zone of a host thread without a stream.
    HostZone,
    /// The work of a thread to queue a zone or to launch a graph.
    Launch,
    /// A collective on a stream, or a whole batch of them.
    Collective,
    /// An entry of a batch of collectives, within the batch.
    BatchEntry,
    /// The last part of a zone whose end is not timed, in which it is not known whether the zone still ran.
    NotTimed,
    /// The replay of a graph.
    Replay,
    Kernel,
    Memcpy,
    Memset,
    /// A wait of a stream or a thread.
    Wait,
    /// A call with which a thread waits for the device, or makes a stream wait.
    Sync,
    /// One end of the arrow from a signal to the end of a wait.
    Signal,
}

impl Category {
    /// Returns the category of a zone on a stream.
    #[inline]
    pub(super) fn of_zone(record: &ZoneRecord) -> Category {
        match record.range.kind() {
            _ if record.entry.is_some() => Category::BatchEntry,
            Kind::Collective => Category::Collective,
            _ => Category::Zone,
        }
    }

    pub(super) fn of_work(work: &KernelWork) -> Category {
        match work {
            KernelWork::Memcpy { .. } => Category::Memcpy,
            KernelWork::Memset { .. } => Category::Memset,
            _ => Category::Kernel,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Category::Zone => "zone",
            Category::HostZone => "host_zone",
            Category::Launch => "launch",
            Category::Collective => "collective",
            Category::BatchEntry => "batch_entry",
            Category::NotTimed => "end_not_timed",
            Category::Replay => "replay",
            Category::Kernel => "kernel",
            Category::Memcpy => "memcpy",
            Category::Memset => "memset",
            Category::Wait => "wait",
            Category::Sync => "cuda_sync",
            Category::Signal => "signal",
        }
    }

    /// Returns the category's id on every sequence. The sites of spans share the id space and have odd ids.
    #[inline]
    pub(super) fn iid(self) -> u64 {
        (self as u64 + 1) * 2
    }

    /// Writes the category into an event of a sequence that has defined it.
    #[inline]
    pub(super) fn write(self, event: &mut Buffer) {
        event.uint(event::CATEGORY_IIDS, self.iid());
    }
}

/// Writes that a slice is a wait. The UI draws all slices of one correlation in one color, which it chooses by the text: for this one a pale
/// red, so that waits do not look like work of many kinds. The protocol has no hatching and no free choice of colors.
pub(super) fn write_stalled(event: &mut Buffer) {
    event.text(event::CORRELATION_ID_STR, "stalled");
}

/// The categories that a sequence has defined.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Defined(u16);

impl Defined {
    /// Whether the category must be defined now. Records it.
    #[inline]
    pub(super) fn is_first(&mut self, category: Category) -> bool {
        let bit = 1 << category as u16;
        let is_first = self.0 & bit == 0;
        self.0 |= bit;
        is_first
    }
}
