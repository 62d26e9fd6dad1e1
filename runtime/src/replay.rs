//! Launches of CUDA graphs, with the zones that their nodes were captured in: plain data, as kernels are.

use std::sync::Arc;

use crate::kernel::{KernelLaunch, ZoneRef};
use crate::record::{Span, StreamInfo, ZoneRecord};

/// One launch of a CUDA graph whose zones are known (`warpline::graph::GraphZones`), in a session with `kernels`.
///
/// Its kernels are there, too, as [`KernelRecord`](crate::KernelRecord)s with the same
/// [`correlation`](crate::KernelRecord::correlation). `Send` and `Sync`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayRecord {
    /// The `GraphZones::number` of the graph.
    pub graph: u32,
    /// The executable graph, by CUPTI's number.
    pub exec: u32,
    /// CUPTI's number of the launch.
    pub correlation: u32,
    /// The stream that executed its first kernel.
    pub stream: Arc<StreamInfo>,
    /// From the begin of its first kernel or copy to the end of its last.
    pub gpu: Span,
    /// How many kernels, copies and memory sets it had.
    pub kernels: u32,
    /// The zone that it was launched in.
    pub zone: Option<ZoneRef>,
    /// The call that launched it.
    pub launch: Option<KernelLaunch>,
    /// The zones that were captured into it, outer ones before those in them.
    pub zones: Vec<ReplayedZone>,
}

/// A captured zone, in one replay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayedZone {
    /// Range, fields, label and message as they were captured. Its time on the stream is from the begin of its first kernel to
    /// the end of its last; `host` is the launch of the graph; `sequence` counts the zones of this replay.
    pub zone: ZoneRecord,
    /// The lane of the innermost zone around it that has one, itself included.
    pub lane: Option<Arc<str>>,
    /// How many kernels, copies and memory sets were captured in it.
    pub kernels: u32,
}
