//! Captured CUDA graphs, and the zones of their nodes.
//!
//! A captured graph replays as one opaque block, without the functions that launched its kernels. While a session records, a mark on a
//! stream that is being captured records no time, but the positions in the graph where it began and ended. [`GraphZones`] takes these when
//! the graph is complete, and then knows the zones of each node, even if the graph is instantiated again, updated or cloned. Replays have
//! no additional cost, unless the session times them ([`GraphTiming`](warpline_core::timing::GraphTiming)).
//!
//! ```no_run
//! # fn capture() -> Result<cudarc::driver::CudaGraph, Box<dyn std::error::Error>> { unimplemented!() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use warpline::graph::GraphZones;
//!
//! let graph = capture()?; // functions with marks, between `begin_capture` and `end_capture`
//! let zones = GraphZones::for_graph(&graph)?; // right behind the capture; kept as long as the graph
//! for count in zones.lanes() {
//!     println!("{:<12} {} kernels", count.name.as_deref().unwrap_or("-"), count.kernels);
//! }
//! warpline::graph::save("graphs.json")?; // docs/graph.schema.json
//! # Ok(())
//! # }
//! ```
//!
//! `docs/graphs-reference.md` describes which nodes belong to a zone, what cannot be known, and where ids come from.
//!
//! `captures` keeps the zones of captures, `labelling` labels the nodes of graphs that are built without a capture, and `pending` keeps
//! these labels, `walk` finds their nodes, `registered` has one graph with its nodes, `registry` has all graphs,
//! `execs` their executable graphs, `ids` and `executed` identify replayed nodes, `plan` has the stamps of a replay, and `json` writes
//! annotations.

mod handles;
mod label;

mod captured_zone;
mod captures;
mod execs;
pub(crate) mod executed;
pub(crate) mod ids;
mod json;
mod labelling;
mod pending;
pub mod plan;
mod registered;
mod registry;
pub mod replayed;
mod walk;
mod zones;

pub use handles::{AsGraph, GraphRef, RawGraph};
pub use label::{GraphError, GraphNode, NodeCount, NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
pub use labelling::AddedNodes;
pub use zones::{GraphZones, save};

pub use captures::{captured, captured_since, spanned};
pub use executed::captured_range;
pub use registry::plan_of_stamp;

/// The value of `format` in the JSON; a change that breaks readers changes the number. Its schema is
/// `docs/graph.schema.json`.
pub const JSON_FORMAT: &str = "warpline-graph/1";

/// Returns the report's notes on discarded captures and executable graphs, and on graphs whose nodes have no known ids, with remedies. A
/// session that times replays itself needs no ids.
pub fn note(needs_ids: bool) -> impl Iterator<Item = String> {
    let of_ids = registry::note_of_ids().filter(|_| needs_ids);
    captures::note().into_iter().chain(registry::note()).chain(pending::notes(!needs_ids)).chain(of_ids)
}
