//! Launches of CUDA graphs, with the zones that were captured in them: plain data, like kernels.

use std::sync::Arc;

use crate::kernel::{KernelLaunch, ZoneRef};
use crate::record::{Span, StreamInfo, ZoneRecord};

/// One launch of a CUDA graph whose zones are known (`warpline::graph::GraphZones`), in a session with `kernels` or
/// `graph_timing`. With both, a launch that both have timed has one record, with the times of its kernels;
/// [`timed_by`](Self::timed_by) gives the source.
///
/// With `kernels`, its kernels are recorded too, as [`KernelRecord`](crate::kernel::KernelRecord)s with the same
/// [`correlation`](crate::kernel::KernelRecord::correlation). `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct ReplayRecord {
    /// The `GraphZones::number` of the graph.
    pub graph: u32,
    /// The graph's name, set by `GraphZones::named`.
    pub name: Option<Arc<str>>,
    /// CUPTI's number of the executable graph; with stamps 0, unless there is only one and its number is known.
    pub exec: u32,
    /// CUPTI's number of the launch; with stamps, the number of the session's replay, from 1.
    pub correlation: u32,
    /// The stream that executed its first kernel; with stamps, one that represents the graphs of the context, since stamps do not
    /// record where the graph was launched.
    pub stream: Arc<StreamInfo>,
    /// The time from the begin of its first kernel or copy to the end of its last; with stamps, from the first stamp to the last.
    pub gpu: Span,
    /// The number of its kernels, copies and memory sets, without stamps.
    pub kernels: u32,
    /// The number of these that no known node executed: those of child graphs and of bodies of conditional nodes, with any ids.
    /// Only a zone that contains every node that can have executed them counts them. With stamps 0.
    pub unplaced: u32,
    /// The zone in which it was launched; unknown with stamps.
    pub zone: Option<ZoneRef>,
    /// The call that launched it; unknown with stamps.
    pub launch: Option<KernelLaunch>,
    /// The source of its times.
    pub timed_by: ReplayTiming,
    /// The zones that were captured into it, outer ones first. A batch of collectives is followed by its entries, each with the
    /// batch's times and sequence, and with its share of them ([`ZoneRecord::entry`]).
    pub zones: Vec<ReplayedZone>,
}

impl ReplayRecord {
    /// Returns the graph's name in traces: `graph 1`, or `graph 1 (decode)` if it was named.
    #[doc(hidden)]
    pub fn title(&self) -> String {
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        format!("graph {}{name}", self.graph)
    }
}

/// The source of a replay's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplayTiming {
    /// CUPTI's records of its kernels.
    Kernels,
    /// Stamps that were captured at the begins and ends of its zones.
    Stamps,
}

impl ReplayTiming {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReplayTiming::Kernels => "kernels",
            ReplayTiming::Stamps => "stamps",
        }
    }
}

/// A captured zone in one replay.
#[derive(Clone, Debug)]
pub struct ReplayedZone {
    /// The range, fields, label and message as captured. Its time on the stream is from the begin of its first kernel to the end
    /// of its last, or from stamp to stamp, and `bracket_ns` is the time that the stamps add; `host` is the launch of the graph,
    /// or the begin of the replay if the launch is unknown; `sequence` counts the zones of this replay.
    pub zone: ZoneRecord,
    /// The lane of the innermost enclosing zone that has one, itself included.
    pub lane: Option<Arc<str>>,
    /// The number of kernels, copies and memory sets captured in it; for an entry of a batch, those of the batch.
    pub kernels: u32,
    /// The stream that the zone was captured on, as a number that is unique within the graph. Zones that were captured on one stream run
    /// in order; those of two streams may run at the same time.
    pub captured_on: u64,
}
