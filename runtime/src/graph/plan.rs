//! How the stamps of a graph time its zones: which stamps each replay brings, in which order, and which two are a zone's.
//!
//! The collector asks [`of_stamp`] for each stamp that it does not know. Numbers in, numbers out, and no driver.

use std::collections::HashMap;
use std::sync::Arc;

use super::captures::CapturedZone;
use super::label::{NodeKind, ZoneLabel};
use super::registered::State;
use super::registry;
use crate::catalog::RangeSpec;
use crate::collective::Message;

/// More stamps right before a stamp are not looked at.
const MOST_BEFORE: usize = 32;

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

/// The plan of the graph that a stamp was captured into; none while that is not registered.
pub(crate) fn of_stamp(id: u32) -> Option<Arc<Plan>> {
    registry::of_stamp(id).map(|graph| graph.plan()).filter(|plan| plan.place(id).is_some())
}

impl Plan {
    pub(super) fn of(graph: u32, state: &State) -> Plan {
        let own = &state.nodes[..state.own];
        let mut plan = Plan { graph, name: state.name.clone(), ..Plan::default() };
        if let [exec] = &state.execs[..] {
            plan.exec = exec.id.unwrap_or(0);
        }
        // Nodes come behind those that they depend on.
        let mut before: Vec<Vec<u32>> = Vec::with_capacity(own.len());
        for (node, deps) in own.iter().zip(&state.deps) {
            let mut stamps: Vec<u32> =
                deps.iter().flat_map(|dep| before.get(*dep as usize)).flatten().copied().collect();
            stamps.sort_unstable();
            stamps.dedup();
            stamps.truncate(MOST_BEFORE);
            if let Some(id) = node.stamp {
                let place = plan.stamps.len() as u32;
                plan.stamps.push(stamps);
                plan.places.insert(id, place);
                stamps = vec![place];
            }
            before.push(stamps);
        }
        let mut zones: Vec<Found> = vec![Found::default(); state.all_zones.len()];
        for (index, node) in (0..).zip(&state.nodes) {
            let is_work = matches!(node.kind, NodeKind::Kernel | NodeKind::Memcpy | NodeKind::Memset);
            plan.kernels += u32::from(is_work);
            let mut lane = None;
            for (depth, zone) in (0..).zip(state.path(index)) {
                lane = state.all_zones[*zone as usize].label.lane().or(lane);
                let found = &mut zones[*zone as usize];
                found.kernels += u32::from(is_work);
                found.place.get_or_insert_with(|| (depth, lane.clone()));
            }
        }
        for (zone, found) in state.all_zones.iter().zip(zones) {
            let (Some(begin), Some(end)) = plan.borders(zone) else { continue };
            // One with nothing in it is in no path.
            let (depth, lane) = found.place.unwrap_or_else(|| (0, zone.label.lane()));
            plan.zones.push(PlannedZone { label: zone.label.clone(), depth, lane, kernels: found.kernels, begin, end });
        }
        plan
    }

    fn borders(&self, zone: &CapturedZone) -> (Option<u32>, Option<u32>) {
        let place = |mark: &Option<crate::backend::cuda::capture::Mark>| self.place(mark.as_ref()?.stamp?);
        (place(&zone.begin), place(&zone.end))
    }

    /// Where a stamp stands in `stamps`.
    pub(crate) fn place(&self, id: u32) -> Option<u32> {
        self.places.get(&id).copied()
    }
}

/// What the nodes of a zone say of it.
#[derive(Clone, Default)]
struct Found {
    kernels: u32,
    /// Its depth and its lane.
    place: Option<(u32, Option<Arc<str>>)>,
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
