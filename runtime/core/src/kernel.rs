//! Kernels and copies as the device executed them: plain data, without GPU handles.
//!
//! A session with `kernels` delivers them along with its zones to sinks, tests and users' own analysis. Times are nanoseconds of
//! the host's `CLOCK_BOOTTIME`, like those of zones.

use std::fmt;
use std::sync::Arc;

use crate::catalog::RangeSpec;
use crate::record::{Span, StreamInfo, ThreadInfo};

/// The beginning of a report's note about what remains in the process after a session with kernels.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nobody asks from outside"))]
pub const CUPTI_STAYS: &str = "CUPTI stays in this process";

/// A kernel, a memory copy or a memory set, from its begin to its end on the device, as CUPTI reports it.
///
/// Records come in batches, each ordered by begin; a later batch may hold earlier work. `Send` and `Sync`; cloning shares the
/// texts.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRecord {
    /// The kernel's name, as C++ declares it: `void scale<float>(float*, int)`, or its symbol if that is not a C++ name; for
    /// copies and memory sets, `Memcpy HtoD (Pinned -> Device)` or `Memset (Device)`.
    pub name: Arc<str>,
    /// The kind of work, and its size.
    pub work: KernelWork,
    /// The stream that executed it, as in zone records if zones use it.
    pub stream: Arc<StreamInfo>,
    /// The time span of its execution.
    pub gpu: Span,
    /// CUPTI's number of the launch: all work of one graph launch shares it.
    pub correlation: u32,
    /// CUPTI's number of the CUDA context.
    pub context: u32,
    /// CUPTI's number of the stream within its context.
    pub cuda_stream: u32,
    /// The node of a CUDA graph that executed it; none for work that was launched individually.
    pub graph: Option<GraphNodeId>,
    /// The innermost zone that was open on the launching thread; none outside zones, and in zones of `async fn`s.
    pub zone: Option<ZoneRef>,
    /// The call that launched it, if CUPTI reports it.
    pub launch: Option<KernelLaunch>,
}

/// The kind of a [`KernelRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelWork {
    /// A kernel.
    Kernel {
        /// The grid: blocks in x, y and z.
        grid: [u32; 3],
        /// The block: threads in x, y and z.
        block: [u32; 3],
        /// The number of registers per thread.
        registers_per_thread: u32,
        /// The static shared memory per block, in bytes.
        static_shared_bytes: u32,
        /// The dynamic shared memory per block, in bytes.
        dynamic_shared_bytes: u32,
    },
    /// A copy.
    Memcpy {
        /// Its size, in bytes.
        bytes: u64,
        /// The direction: `HtoD`, `DtoH`, `DtoD`, `PtoP`, …
        kind: &'static str,
        /// The memory that it reads: `Pageable`, `Pinned`, `Device`, …
        from: &'static str,
        /// The memory that it writes.
        to: &'static str,
    },
    /// A memory set.
    Memset {
        /// Its size, in bytes.
        bytes: u64,
        /// The value that each element is set to.
        value: u32,
        /// The memory that it writes.
        memory: &'static str,
    },
}

impl KernelWork {
    /// Returns the size of a copy or a memory set, in bytes.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            KernelWork::Kernel { .. } => None,
            KernelWork::Memcpy { bytes, .. } | KernelWork::Memset { bytes, .. } => Some(*bytes),
        }
    }

    /// Returns the shared memory per block, in bytes; none for copies and memory sets.
    pub fn shared_bytes(&self) -> Option<u64> {
        match self {
            KernelWork::Kernel { static_shared_bytes, dynamic_shared_bytes, .. } => {
                Some(u64::from(*static_shared_bytes) + u64::from(*dynamic_shared_bytes))
            }
            _ => None,
        }
    }
}

/// A node of a CUDA graph, by CUPTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphNodeId {
    /// The executable graph.
    pub graph: u32,
    /// The node in the graph.
    pub node: u64,
}

/// A zone of the same session.
#[derive(Clone, Copy)]
pub struct ZoneRef {
    /// The zone's range.
    pub range: &'static RangeSpec,
    /// The [`StreamInfo::id`] of its stream; none for a host zone.
    pub stream: Option<u32>,
    /// Its [`ZoneRecord::sequence`](crate::record::ZoneRecord::sequence) on that stream.
    pub sequence: u64,
}

impl PartialEq for ZoneRef {
    fn eq(&self, other: &ZoneRef) -> bool {
        std::ptr::eq(self.range, other.range) && (self.stream, self.sequence) == (other.stream, other.sequence)
    }
}

impl Eq for ZoneRef {}

impl fmt::Debug for ZoneRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ZoneRef { range, stream, sequence } = self;
        f.debug_struct("ZoneRef")
            .field("range", &range.name())
            .field("stream", stream)
            .field("sequence", sequence)
            .finish()
    }
}

/// The call that launched work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLaunch {
    /// The calling thread.
    pub thread: Arc<ThreadInfo>,
    /// The begin and the return of the call.
    pub host: Span,
}

impl KernelRecord {
    /// Returns the execution time, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.gpu.duration_ns()
    }

    /// Returns the bandwidth of a copy or a memory set, in bytes per second; none for kernels and for work without a length.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.duration_ns();
        self.work.bytes().filter(|_| ns > 0).map(|bytes| bytes as f64 * 1e9 / ns as f64)
    }
}
