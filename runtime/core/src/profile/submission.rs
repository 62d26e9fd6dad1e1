//! The record of a requested submission: plain data, without GPU handles.

use std::sync::Arc;

use crate::kernel::{GraphNodeId, KernelLaunch, KernelWork};
use crate::record::Span;
use crate::synchronization::SyncKind;

/// What a thread submitted to a stream, as CUPTI reports it. Times are nanoseconds of the host's `CLOCK_BOOTTIME`.
///
/// `Send` and `Sync`; cloning shares the texts.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmissionRecord {
    /// The kernel's name, as C++ declares it, `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`, the name of the call of a barrier, or the
    /// name of the first kernel of a graph.
    pub name: Arc<str>,
    /// The kind of submission.
    pub work: SubmittedWork,
    /// Its begin and end on the device; none for a barrier, because CUPTI reports no such time.
    pub gpu: Option<Span>,
    /// The call: its thread, begin and return.
    pub launch: KernelLaunch,
    /// CUPTI's number of the call.
    pub correlation: u32,
}

impl SubmissionRecord {
    /// Returns the execution time on the device, in ns; none for a barrier.
    pub fn gpu_ns(&self) -> Option<i64> {
        self.gpu.map(|gpu| gpu.duration_ns())
    }
}

/// The kind of a [`SubmissionRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmittedWork {
    /// A kernel, a copy or a memory set.
    Single(KernelWork),
    /// The launch of a CUDA graph: `gpu` is the time from the begin of its first node to the end of its last.
    Graph {
        /// The node that ran first.
        first: GraphNodeId,
        /// The number of kernels, copies and memory sets.
        nodes: u32,
    },
    /// A barrier: the thread waited for the stream, or made the stream wait for an event.
    Barrier(SyncKind),
}
