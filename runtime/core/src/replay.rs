//! Launches of CUDA graphs, with the zones that their nodes were captured in: plain data, as kernels are.

use std::sync::Arc;

use crate::kernel::{KernelLaunch, ZoneRef};
use crate::record::{Span, StreamInfo, ZoneRecord};

/// One launch of a CUDA graph whose zones are known (`warpline::graph::GraphZones`), in a session with `kernels` or with
/// `graph_timing`; in one with both, each launch is there twice, and [`timed_by`](Self::timed_by) tells the two apart.
///
/// With `kernels`, its kernels are there, too, as [`KernelRecord`](crate::kernel::KernelRecord)s with the same
/// [`correlation`](crate::kernel::KernelRecord::correlation). `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct ReplayRecord {
    /// The `GraphZones::number` of the graph.
    pub graph: u32,
    /// What `GraphZones::named` called the graph.
    pub name: Option<Arc<str>>,
    /// The executable graph, by CUPTI's number; by stamps 0, unless there is only one and its number is known.
    pub exec: u32,
    /// CUPTI's number of the launch; by stamps it counts the replays of the session from 1.
    pub correlation: u32,
    /// The stream that executed its first kernel; by stamps one that stands for the graphs of the context, since stamps do not say
    /// where the graph was launched.
    pub stream: Arc<StreamInfo>,
    /// From the begin of its first kernel or copy to the end of its last; by stamps, from the first stamp to the last.
    pub gpu: Span,
    /// How many kernels, copies and memory sets it had, without stamps.
    pub kernels: u32,
    /// How many of them no known node executed: those of child graphs and of bodies of conditional nodes, by whatever ids they come.
    /// Of these only such zones count them as every node is in that can have executed them. By stamps 0.
    pub unplaced: u32,
    /// The zone that it was launched in; not known by stamps.
    pub zone: Option<ZoneRef>,
    /// The call that launched it; not known by stamps.
    pub launch: Option<KernelLaunch>,
    /// What its times are from.
    pub timed_by: ReplayTiming,
    /// The zones that were captured into it, outer ones before those in them. Behind a batch of collectives come its entries, each with
    /// the batch's times and sequence, and with its share of them ([`ZoneRecord::entry`]).
    pub zones: Vec<ReplayedZone>,
}

impl ReplayRecord {
    /// The graph, as traces call it: `graph 1`, and `graph 1 (decode)` with a name.
    #[doc(hidden)]
    pub fn title(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        format!("graph {}{name}", self.graph)
    }
}

/// What the times of a replay are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplayTiming {
    /// CUPTI's records of its kernels.
    Kernels,
    /// Stamps that were captured at the borders of its zones.
    Stamps,
}

impl ReplayTiming {
    /// The word that stands for it in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReplayTiming::Kernels => "kernels",
            ReplayTiming::Stamps => "stamps",
        }
    }
}

/// A captured zone, in one replay.
#[derive(Clone, Debug)]
pub struct ReplayedZone {
    /// Range, fields, label and message as they were captured. Its time on the stream is from the begin of its first kernel to
    /// the end of its last, or from stamp to stamp, of which `bracket_ns` is what they add; `host` is the launch of the graph, or
    /// the begin of the replay where that is not known; `sequence` counts the zones of this replay.
    pub zone: ZoneRecord,
    /// The lane of the innermost zone around it that has one, itself included.
    pub lane: Option<Arc<str>>,
    /// How many kernels, copies and memory sets were captured in it; of an entry of a batch, in the batch.
    pub kernels: u32,
}
