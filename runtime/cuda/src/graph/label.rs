//! The public description of a graph's nodes.

use std::fmt;
use std::sync::Arc;

use crate::graph_api::Handle;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;
use warpline_core::fields::Value;
use warpline_core::record::Status;

/// A zone that was open while a graph was captured, as the graph's nodes keep it. Clones share their data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ZoneLabel {
    /// The range.
    pub range: &'static RangeSpec,
    /// The zone's own label.
    pub label: Option<Arc<str>>,
    /// The fields, in the mark's order.
    pub fields: Arc<[(&'static str, Value)]>,
    /// The lane that the zone was given at run time, in place of its range's.
    pub lane: Option<&'static str>,
    /// The data that a collective moves.
    pub message: Option<Arc<Message>>,
    /// The entries of a batch of collectives, each with the data that it moves.
    pub entries: Arc<[(&'static RangeSpec, Message)]>,
    /// The status of the marked function when it ended during the capture.
    pub status: Status,
    /// The handle of the stream that it was captured on.
    pub(crate) stream: Handle,
}

/// A node of a graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GraphNode {
    /// The position among the graph's nodes: those of the graph itself in the order of capture, then those of the graphs inside it.
    pub index: u32,
    /// The child-graph or conditional node that contains it; none in the graph itself.
    pub within: Option<u32>,
    /// The kind of work.
    pub kind: NodeKind,
    /// A kernel's name in readable form, if the driver gives it (CUDA 12.3 and newer).
    pub kernel: Option<Arc<str>>,
    /// The zones that contain it, outermost first: the last one is the node's own, and the others apply to it too.
    pub zones: Vec<ZoneLabel>,
}

/// The number of nodes of a range or a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCount {
    /// The range or lane; none for nodes without one.
    pub name: Option<Arc<str>>,
    /// Nodes of every kind.
    pub nodes: usize,
    /// Kernels among them.
    pub kernels: usize,
}

/// A node whose contents are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unlabelled {
    /// The node's index.
    pub node: u32,
    /// The node's kind.
    pub kind: NodeKind,
    /// The reason.
    pub why: &'static str,
}

/// The source of the node ids in a profiler's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeIdSource {
    /// The driver (`cuGraphNodeGetToolsId`): CUDA 13.1 and newer.
    Tools,
    /// CUPTI.
    Cupti,
    /// None: nodes are identified by their order alone.
    #[default]
    None,
}

impl NodeIdSource {
    /// Returns the word for it in annotations.
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeIdSource::Tools => "tools_id",
            NodeIdSource::Cupti => "cupti_id",
            NodeIdSource::None => "none",
        }
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident = $number:literal $word:literal;)*) => {
        /// The kind of a node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum NodeKind {
            $($(#[$attribute])* $kind,)*
            /// A stamp of warpline, in a session with `graph_timing=stamps`: a kernel that is in no zone.
            Stamp,
            /// A kind that this version of warpline does not know.
            Unknown,
        }

        impl NodeKind {
            /// Returns the word for it in annotations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(NodeKind::$kind => $word,)*
                    NodeKind::Stamp => "stamp",
                    NodeKind::Unknown => "unknown",
                }
            }

            /// Returns the kind of a `CUgraphNodeType`.
            pub(super) fn from_raw(number: Option<i32>) -> NodeKind {
                match number {
                    $(Some($number) => NodeKind::$kind,)*
                    _ => NodeKind::Unknown,
                }
            }
        }
    };
}

kinds! {
    /// A kernel.
    Kernel = 0 "kernel";
    /// A copy.
    Memcpy = 1 "memcpy";
    /// A fill.
    Memset = 2 "memset";
    /// A host function.
    Host = 3 "host";
    /// A graph inside the graph.
    Graph = 4 "graph";
    /// Nothing but dependencies.
    Empty = 5 "empty";
    /// A wait for an event outside the graph.
    WaitEvent = 6 "wait_event";
    /// The record of an event.
    EventRecord = 7 "event_record";
    /// The signal of an external semaphore.
    SemaphoreSignal = 8 "semaphore_signal";
    /// A wait for an external semaphore.
    SemaphoreWait = 9 "semaphore_wait";
    /// An allocation.
    MemAlloc = 10 "mem_alloc";
    /// The end of an allocation.
    MemFree = 11 "mem_free";
    /// Several waits and writes.
    BatchMemOp = 12 "batch_mem_op";
    /// A body that runs on a condition.
    Conditional = 13 "conditional";
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why a graph's nodes cannot be known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GraphError(pub(super) String);
