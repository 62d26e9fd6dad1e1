//! The stamps that time a graph's zones: those of each replay, their order, and the two of each zone.
//!
//! A registered graph makes the plan, and the registry finds it by a stamp (`plan_of_stamp`).

use std::collections::HashMap;
use std::sync::Arc;

use super::label::ZoneLabel;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;

/// The stamps of one graph.
#[derive(Debug, Default)]
pub struct Plan {
    /// [`GraphZones::number`](super::GraphZones::number).
    pub graph: u32,
    /// The name from [`GraphZones::named`](super::GraphZones::named).
    pub name: Option<Arc<str>>,
    /// The id of the executable graph, if there is only one and it has an id; else 0.
    pub exec: u32,
    /// The number of captured kernels, copies and memory sets.
    pub kernels: u32,
    /// For each stamp, the positions of those directly before it.
    pub stamps: Vec<Vec<u32>>,
    /// The position of each stamp in `stamps`, by its id.
    pub places: HashMap<u32, u32>,
    pub zones: Vec<PlannedZone>,
}

/// A captured zone that is timed.
#[derive(Debug)]
pub struct PlannedZone {
    pub label: ZoneLabel,
    pub depth: u32,
    pub lane: Option<Arc<str>>,
    pub kernels: u32,
    /// The positions of its stamps.
    pub begin: u32,
    pub end: u32,
}

impl Plan {
    /// Returns the position of a stamp in `stamps`.
    pub fn place(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }
}

impl ZoneLabel {
    /// Returns its own lane: the one that it was given at run time, or that of its range or its ranks.
    pub(crate) fn lane(&self) -> Option<Arc<str>> {
        self.lane.map(Into::into).or_else(|| lane_of(self.range, self.message.as_deref()))
    }
}

/// Returns a zone's own lane: that of its range, or of the ranks with which it communicates.
pub(crate) fn lane_of(range: &'static RangeSpec, message: Option<&Message>) -> Option<Arc<str>> {
    let group = || Some(message?.group.as_ref()?.lane());
    range.lane().or_else(group).map(Into::into)
}
