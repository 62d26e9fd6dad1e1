//! Makes the plan of a graph: its stamps, those before each stamp, and the two that time each zone.
//!
//! Nothing here calls the driver.

use std::sync::Arc;

use super::state::GraphState;
use crate::capture::Mark;
use crate::graph::captured_zone::CapturedZone;
use crate::graph::label::NodeKind;
use crate::graph::plan::{Plan, PlannedZone};

/// The maximum number of stamps directly before a stamp that are taken into account.
const MOST_BEFORE: usize = 32;

impl Plan {
    pub(super) fn make(graph: u32, state: &GraphState) -> Plan {
        let own = &state.nodes[..state.own];
        let mut plan = Plan { graph, name: state.name.clone(), ..Plan::default() };
        if let [exec] = &state.execs[..] {
            plan.exec = exec.id.unwrap_or(0);
        }
        // Nodes come after those that they depend on.
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
            // A zone without nodes is in no path.
            let (depth, lane) = found.place.unwrap_or_else(|| (0, zone.label.lane()));
            plan.zones.push(PlannedZone { label: zone.label.clone(), depth, lane, kernels: found.kernels, begin, end });
        }
        plan
    }

    fn borders(&self, zone: &CapturedZone) -> (Option<u32>, Option<u32>) {
        let place = |mark: &Option<Mark>| self.place(mark.as_ref()?.stamp?);
        (place(&zone.begin), place(&zone.end))
    }
}

/// The data of a zone that its nodes determine.
#[derive(Clone, Default)]
struct Found {
    kernels: u32,
    /// Its depth and its lane.
    place: Option<(u32, Option<Arc<str>>)>,
}
