//! The state of a registered graph: what is known so far, and after the walk the zones of each node.
//!
//! Nothing here calls the driver. The graph's lock is held, and no user code runs under it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Exec;
use super::read::{Node, numbered};
use crate::capture::Mark;
use crate::graph::captured_zone::{CapturedZone, Streams};
use crate::graph::ids::{LabelKey, NodeLabels};
use crate::graph::label::{NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
use crate::graph::plan::Plan;
use crate::graph::walk;
use crate::graph_api::Handle;

#[derive(Debug, Default)]
pub(in crate::graph) struct GraphState {
    pub(in crate::graph) name: Option<Arc<str>>,
    pub(in crate::graph) graph: Handle,
    pub(in crate::graph) graph_id: Option<u32>,
    pub(in crate::graph) ids: NodeIdSource,
    pub(in crate::graph) nodes: Vec<Node>,
    /// The number of nodes of the graph itself, which come before those of graphs inside it.
    pub(in crate::graph) own: usize,
    pub(in crate::graph) deps: Vec<Vec<u32>>,
    pub(super) captures: Vec<u64>,
    pub(in crate::graph) zones: Vec<CapturedZone>,
    pub(super) streams: Streams,
    /// Graphs inside nodes, which were registered by themselves.
    pub(super) inside: Vec<Inside>,
    /// `zones`, followed by those of the graphs inside.
    pub(in crate::graph) all_zones: Vec<CapturedZone>,
    /// The number of nodes that the driver described, which come before those that only `inside` has.
    pub(super) told: usize,
    /// The position of each node's path in `paths`.
    pub(super) of: Vec<u32>,
    pub(in crate::graph) paths: Vec<Vec<u32>>,
    /// Whether the walk must be repeated.
    pub(super) is_stale: bool,
    pub(in crate::graph) execs: Vec<Exec>,
    pub(super) unlabelled: Vec<Unlabelled>,
    /// Nodes of the graph itself, by the low half of their ids.
    pub(super) by_id: HashMap<u32, u32>,
    /// The number of bodies of each conditional node whose bodies the driver describes, and the same with those of `inside`.
    pub(super) branches: HashMap<u32, u32>,
    pub(super) all_branches: HashMap<u32, u32>,
    /// Nodes inside others, by the numbers that a driver of CUDA 13.0 gives them, and whether this driver was seen to give others.
    pub(in crate::graph) inner_ids: HashMap<u32, u32>,
    pub(in crate::graph) is_numbered_otherwise: bool,
    pub(in crate::graph) known: HashMap<LabelKey, Arc<NodeLabels>>,
    /// The plan by which its stamps time its zones, once it was requested.
    pub(super) plan: Option<Arc<Plan>>,
}

/// A graph with its zones, inside a node of another one.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Inside {
    pub(super) node: u32,
    /// Which body of a conditional node it is, of how many.
    pub(super) branch: (u32, u32),
    pub(super) nodes: Vec<Node>,
    pub(super) own: usize,
    pub(super) zones: Vec<CapturedZone>,
    pub(super) paths: Vec<Vec<u32>>,
    /// The number of bodies of conditional nodes in it.
    pub(super) branches: Vec<(u32, u32)>,
}

impl GraphState {
    pub(super) fn add(&mut self, zone: CapturedZone) {
        self.streams.note(&zone);
        self.zones.push(zone);
        self.is_stale = true;
    }

    pub(super) fn walk(&mut self) {
        // Readers get zones in the order in which they began.
        let order = |zone: &CapturedZone| zone.begin.as_ref().map_or(0, |begin| begin.order);
        self.zones.sort_by_key(|zone| (zone.nodes.is_some(), zone.begin_ns, order(zone)));
        let captured = self.zones.partition_point(|zone| zone.nodes.is_none());
        let by_handle = numbered(&self.nodes[..self.own]);
        let place = |mark: &Mark| walk::Frontier {
            order: mark.order,
            ns: mark.ns,
            frontier: mark.place.frontier.iter().filter_map(|node| by_handle.get(node).copied()).collect(),
        };
        let zone = |zone: &CapturedZone| walk::Zone {
            stream: zone.stream,
            begin: zone.begin.as_ref().map(place),
            begin_ns: zone.begin_ns,
            end: zone.end.as_ref().map(place),
        };
        let zones: Vec<_> = self.zones[..captured].iter().map(zone).collect();
        let walk::Paths { mut of, paths } = walk::paths(&self.deps, &zones);
        self.nodes.truncate(self.told);
        // The nodes inside a node have its path.
        for node in &self.nodes[self.own..] {
            of.push(node.within.map_or(0, |outer| of[outer as usize]));
        }
        (self.of, self.paths) = (of, paths);
        if captured < self.zones.len() {
            self.place_labels(captured);
        }
        self.all_zones = self.zones.clone();
        self.all_branches = self.branches.clone();
        for inside in std::mem::take(&mut self.inside) {
            self.enter(&inside);
            self.inside.push(inside);
        }
        self.inner_ids = if self.is_numbered_otherwise { HashMap::new() } else { self.number_inside() };
        self.known.clear();
        self.plan = None;
    }

    /// Appends the zones of a graph to those of the node that contains it.
    fn enter(&mut self, inside: &Inside) {
        let outer = self.path(inside.node).to_vec();
        let first = self.all_zones.len() as u32;
        self.all_zones.extend(inside.zones.iter().cloned());
        let (branch, branches) = inside.branch;
        if self.nodes.get(inside.node as usize).is_some_and(|node| node.kind == NodeKind::Conditional) {
            self.all_branches.insert(inside.node, branches);
        }
        let is_inside = |(_, node): &(usize, &Node)| node.within == Some(inside.node) && node.branch == branch;
        let mut known: Vec<usize> = self.nodes.iter().enumerate().filter(is_inside).map(|(index, _)| index).collect();
        if known.is_empty() && !self.branches.contains_key(&inside.node) {
            // The driver does not describe this graph, so its nodes are added.
            let begin = self.nodes.len() as u32;
            self.nodes.extend(inside.nodes.iter().map(|node| Node {
                within: Some(node.within.map_or(inside.node, |outer| begin + outer)),
                branch: if node.within.is_none() { branch } else { node.branch },
                id: None,
                ..node.clone()
            }));
            self.all_branches.extend(inside.branches.iter().map(|(node, bodies)| (begin + node, *bodies)));
            self.of.resize(self.nodes.len(), 0);
            known = (begin as usize..self.nodes.len()).collect();
        }
        for (index, path) in known.into_iter().zip(&inside.paths) {
            let path = outer.iter().copied().chain(path.iter().map(|zone| first + zone));
            self.of[index] = self.paths.len() as u32;
            self.paths.push(path.collect());
        }
    }

    /// Returns the nodes whose contents are unknown.
    pub(in crate::graph) fn unlabelled(&self) -> impl Iterator<Item = &Unlabelled> {
        self.unlabelled.iter().filter(|of| self.inside.iter().all(|inside| inside.node != of.node))
    }

    /// Returns the node of the graph itself whose id has this low half; without ids, the node of this number.
    pub(in crate::graph) fn index_of(&self, low: u32) -> Option<u32> {
        if self.by_id.is_empty() { Some(low) } else { self.by_id.get(&low).copied() }
    }

    /// Returns the positions in `all_zones` of a node's zones.
    pub(in crate::graph) fn path(&self, index: u32) -> &[u32] {
        self.of.get(index as usize).and_then(|path| self.paths.get(*path as usize)).map_or(&[], Vec::as_slice)
    }

    /// Returns the labels of a node's zones; none for a stamp.
    pub(super) fn zones_of(&self, index: u32) -> Vec<ZoneLabel> {
        if self.nodes.get(index as usize).is_some_and(|node| node.stamp.is_some()) {
            return Vec::new();
        }
        self.path(index).iter().map(|zone| self.all_zones[*zone as usize].label.clone()).collect()
    }
}
