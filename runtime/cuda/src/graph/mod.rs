//! Captured CUDA graphs: which node belongs to which zone.
//!
//! A captured graph replays as one opaque block: its kernels have lost the functions that launched them. While a session
//! records, a mark on a stream that is being captured records no time; it notes where in the graph it began and ended.
//! [`GraphZones`] takes what was noted when the graph is complete, and knows from then on which zones each node is in, also
//! for graphs that are instantiated again, updated or cloned. Replays cost nothing more than without, unless the session is
//! asked to time them ([`GraphTiming`](warpline_core::timing::GraphTiming)).
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
//! What belongs to a zone, what cannot be known, and where ids come from is in `docs/graphs.md`.
//!
//! In here: `captures` keeps what zones noted, `walk` says which nodes that is, `registered` keeps graphs with their nodes,
//! `registry` all of them, `execs` which executable graphs are whose, `ids` and `executed` tie replayed nodes to them, `plan` the
//! stamps of a replay, `json` writes them down.

mod handles;
mod label;

mod captured_zone;
mod captures;
mod execs;
pub(crate) mod executed;
pub(crate) mod ids;
mod json;
pub mod plan;
mod registered;
mod registry;
pub mod replayed;
mod walk;
mod zones;

pub use handles::{AsGraph, GraphRef, RawGraph};
pub use label::{GraphError, GraphNode, NodeCount, NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
pub use zones::{GraphZones, save};

pub use captures::{captured, captured_since, spanned};
pub use registry::plan_of_stamp;

/// The value of `format` in the JSON; a change that breaks readers changes the number. Its schema is
/// `docs/graph.schema.json`.
pub const JSON_FORMAT: &str = "warpline-graph/1";

/// For the report of a session: what was let go of, and whose ids nobody tells, with the remedies. A session that times replays itself needs
/// no ids.
pub fn note(needs_ids: bool) -> impl Iterator<Item = String> {
    let of_ids = registry::note_of_ids().filter(|_| needs_ids);
    captures::note().into_iter().chain(registry::note()).chain(of_ids)
}
