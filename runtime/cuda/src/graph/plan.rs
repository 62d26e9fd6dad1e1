//! How the stamps of a graph time its zones: which stamps each replay brings, in which order, and which two are a zone's.
//!
//! The registry gives it for a stamp (`plan_of_stamp`), and a registered graph makes it.

use std::collections::HashMap;
use std::sync::Arc;

use super::label::ZoneLabel;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;

/// The stamps of one graph.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// [`GraphZones::number`](super::GraphZones::number).
    pub(crate) graph: u32,
    /// What [`GraphZones::named`](super::GraphZones::named) called it.
    pub(crate) name: Option<Arc<str>>,
    /// The id of the executable graph, where there is one and somebody has told it.
    pub(crate) exec: u32,
    /// How many kernels, copies and memory sets were captured.
    pub(crate) kernels: u32,
    /// For each stamp, those that come right before it, by their places here.
    pub(crate) stamps: Vec<Vec<u32>>,
    /// The place of each stamp, by its id.
    pub(crate) places: HashMap<u32, u32>,
    pub(crate) zones: Vec<PlannedZone>,
}

/// A captured zone that is timed.
#[derive(Debug)]
pub(crate) struct PlannedZone {
    pub(crate) label: ZoneLabel,
    pub(crate) depth: u32,
    pub(crate) lane: Option<Arc<str>>,
    pub(crate) kernels: u32,
    /// The places of its stamps.
    pub(crate) begin: u32,
    pub(crate) end: u32,
}

impl Plan {
    /// Where a stamp stands in `stamps`.
    pub(crate) fn place(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }
}

impl ZoneLabel {
    /// The lane that it has itself.
    pub(crate) fn lane(&self) -> Option<Arc<str>> {
        lane_of(self.range, self.message.as_deref())
    }
}

/// The lane that a zone has itself: its range's, or the one of the ranks that it communicates with.
pub(crate) fn lane_of(range: &'static RangeSpec, message: Option<&Message>) -> Option<Arc<str>> {
    let group = || Some(message?.group.as_ref()?.lane());
    range.lane().or_else(group).map(Into::into)
}
