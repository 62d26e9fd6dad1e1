//! The memory records of a session, as plain data: who took device memory, how much, when, and how much the device then held.
//!
//! `timeline::Queue` records its allocations, the application may report its own, and with `kernels`, CUPTI reports every allocation on CUDA devices. Sinks,
//! tests and users' own analysis read the records. Times are on the same clock as a zone's.

use std::sync::Arc;

use crate::catalog::RangeSpec;
use crate::record::{StreamInfo, ThreadInfo};

/// One allocation or one free of device memory.
///
/// `Send` and `Sync`; cloning shares the names.
#[derive(Clone, Debug)]
pub struct MemoryRecord {
    /// Whether the memory was allocated or freed.
    pub change: MemoryChange,
    /// The stream in whose order it was, or that the application named. The memory is on this stream's device. For memory that CUPTI reports and
    /// that no stream orders, it has the number 0 and no name.
    pub stream: Arc<StreamInfo>,
    /// The thread that asked for it. For memory that a queue frees because its owner was dropped, the thread that dropped it.
    pub thread: Arc<ThreadInfo>,
    /// The queue that allocated it; none for memory that the application told of, or that CUPTI reported.
    pub queue: Option<Arc<str>>,
    /// The range of the innermost recorded zone that was open on the thread that asked for the allocation, if there was one.
    pub range: Option<&'static RangeSpec>,
    /// The allocation's own name, if it has one.
    pub name: Option<Arc<str>>,
    /// The size, in bytes.
    pub bytes: u64,
    /// The address. The device may give it to another allocation after this one was freed.
    pub address: u64,
    /// The time, in ns.
    pub at_ns: i64,
    /// What `at_ns` is the time of.
    pub timing: MemoryTiming,
    /// The bytes on this device that the session knows of from then on.
    pub device_bytes: u64,
    /// The bytes of these that have the same [`owner`](Self::owner).
    pub owner_bytes: u64,
}

impl MemoryRecord {
    /// Returns who holds the memory: the allocation's own name, or that of its range.
    pub fn owner(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.range.map(RangeSpec::name))
    }
}

/// Whether memory was allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryChange {
    /// It was allocated.
    Allocated,
    /// It was freed.
    Freed,
}

impl MemoryChange {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            MemoryChange::Allocated => "allocated",
            MemoryChange::Freed => "freed",
        }
    }
}

/// What the time of a memory record is the time of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryTiming {
    /// The stream took or gave back the memory then: exact.
    Stream,
    /// The host's call was made then. The driver commits memory in the order of these calls, and the stream gets there later.
    Call,
}

impl MemoryTiming {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            MemoryTiming::Stream => "stream",
            MemoryTiming::Call => "call",
        }
    }
}

/// The memory of one device in a session, as far as the session knows of it: the allocations of queues, those that the application told of, and
/// with `kernels` all those of CUDA devices that CUPTI reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The device's name and number, as in `NVIDIA H100 (device 0)`.
    pub device: String,
    /// The number of allocations.
    pub allocated: u64,
    /// The number of frees.
    pub freed: u64,
    /// The bytes at the end, which were not freed.
    pub bytes: u64,
    /// The most bytes at one time.
    pub peak_bytes: u64,
    /// The first time at which there were so many, in ns.
    pub peak_ns: i64,
    /// Who held the bytes of the peak, the largest first.
    pub at_peak: Vec<MemoryHolder>,
    /// Who holds the bytes at the end, the largest first.
    pub not_freed: Vec<MemoryHolder>,
}

/// The memory of one device that one range, or the allocations of one name, held at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryHolder {
    /// The name of the range or of the allocations; empty for allocations outside of zones that have no name. Beyond 256 names a device, the
    /// others share the name `…`.
    pub name: String,
    /// The bytes.
    pub bytes: u64,
    /// The number of allocations.
    pub allocations: u64,
}
