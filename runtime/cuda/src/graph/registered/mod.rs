//! One registered graph: its nodes, the zones that were captured into it, and its executable graphs.
//!
//! `read` queries the driver while the caller holds the graph; afterwards its handles are only compared and never used.
//! Zones that end later are added, and the walk is repeated when its result is needed. `state` has what is known so
//! far.

mod nesting;
mod numbered;
mod planned;
mod read;
mod state;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::captured_zone::{Capture, CapturedZone};
use super::label::{GraphNode, NodeCount, NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
use super::plan::Plan;
use crate::capture::Mark;
use crate::graph_api::Handle;

pub(super) use read::{Node, Read};
pub(super) use state::GraphState;
use state::Inside;

/// A registered graph.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) number: u32,
    state: Mutex<GraphState>,
}

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) handle: Handle,
    pub(super) id: Option<u32>,
}

impl Registered {
    pub(super) fn new(number: u32, read: Read, capture: Option<Capture>, labels: Vec<CapturedZone>) -> Registered {
        let registered = Registered { number, state: Mutex::default() };
        registered.renew(read, capture, labels);
        registered
    }

    /// Replaces the nodes by the graph's current ones, and adds the zones of a further capture, and labels of nodes.
    pub(super) fn renew(&self, read: Read, capture: Option<Capture>, labels: Vec<CapturedZone>) {
        let mut state = self.lock();
        state.zones.extend(labels);
        if let Some(capture) = capture {
            state.captures.push(capture.id);
            state.streams.join(&capture.streams);
            state.zones.extend(capture.zones);
        }
        let mut read = read;
        // The source of the ids may be gone.
        let known: HashMap<_, _> = state.nodes[..state.own].iter().map(|node| (node.handle, node.id)).collect();
        for node in read.nodes.iter_mut().filter(|node| node.id.is_none()) {
            node.id = known.get(&node.handle).copied().flatten();
            node.local = node.id.map(|(id, _)| id as u32);
        }
        state.graph = read.graph;
        state.graph_id = read.graph_id;
        state.ids = read.nodes.iter().find_map(|node| node.id).map_or(NodeIdSource::None, |(_, source)| source);
        let own = read.nodes[..read.own].iter();
        state.by_id = (0..).zip(own).filter_map(|(index, node)| Some((node.id?.0 as u32, index))).collect();
        (state.nodes, state.own, state.deps, state.unlabelled) = (read.nodes, read.own, read.deps, read.unlabelled);
        state.branches = read.branches;
        state.told = state.nodes.len();
        state.is_stale = true;
    }

    /// Returns a clone of the graph with the same zones. `twin` finds the clone's nodes.
    pub(super) fn clone_as(&self, number: u32, read: Read, twin: impl Fn(Handle) -> Option<Handle>) -> Registered {
        let translate = |mark: &Option<Mark>| {
            let mut mark = mark.clone()?;
            mark.place.frontier = mark.place.frontier.iter().filter_map(|node| twin(*node)).collect();
            Some(mark)
        };
        let (name, zones): (_, Vec<_>) = {
            let state = self.lock();
            let zone = |zone: &CapturedZone| CapturedZone {
                begin: translate(&zone.begin),
                end: translate(&zone.end),
                nodes: zone.nodes.as_ref().map(|nodes| nodes.iter().filter_map(|node| twin(*node)).collect()),
                ..zone.clone()
            };
            (state.name.clone(), state.zones.iter().map(zone).collect())
        };
        let clone = Registered::new(number, read, None, Vec::new());
        let mut state = clone.lock();
        (state.name, state.zones, state.is_stale) = (name, zones, true);
        drop(state);
        clone
    }

    /// Returns whether this graph has the handle of `read`, and the driver describes it as before.
    pub(super) fn is_of(&self, read: &Read) -> bool {
        let state = self.lock();
        let is_same = |(known, node): (&Node, &Node)| known.handle == node.handle && known.kernel == node.kernel;
        state.graph == read.graph
            && state.graph_id.zip(read.graph_id).is_none_or(|(known, read)| known == read)
            && state.deps == read.deps
            && state.nodes[..state.own].iter().zip(&read.nodes).all(is_same)
    }

    /// Adds a zone that ended after the graph was registered, if it began in the graph's capture; otherwise returns it.
    pub(super) fn add(&self, capture: u64, graph: Handle, zone: CapturedZone) -> Option<CapturedZone> {
        let mut state = self.lock();
        // If no zone ended during the capture, its id is unknown until the first one ends.
        let is_first = || {
            let begin = zone.begin.as_ref().filter(|_| zone.end.is_none() && state.captures.is_empty());
            let has = |node: &Handle| state.nodes[..state.own].iter().any(|known| known.handle == *node);
            state.graph == graph && begin.is_some_and(|begin| begin.place.frontier.iter().all(has))
        };
        if !state.captures.contains(&capture) {
            if !is_first() {
                return Some(zone);
            }
            state.captures.push(capture);
        }
        state.add(zone);
        None
    }

    /// Adds a label if this graph has its handle, and all its nodes; otherwise returns it.
    pub(super) fn add_label(&self, graph: Handle, graph_id: Option<u32>, label: CapturedZone) -> Option<CapturedZone> {
        let mut state = self.lock();
        let nodes = label.nodes.iter().flat_map(|nodes| nodes.iter());
        let known: HashSet<Handle> = state.nodes[..state.told].iter().map(|node| node.handle).collect();
        let is_same = state.graph_id.zip(graph_id).is_none_or(|(known, id)| known == id);
        if state.graph != graph || !is_same || !nodes.into_iter().all(|node| known.contains(node)) {
            return Some(label);
        }
        state.zones.push(label);
        state.is_stale = true;
        None
    }

    /// Adds a zone if this graph was captured in it.
    pub(super) fn add_around(&self, zone: &CapturedZone) {
        let mut state = self.lock();
        if state.streams.are_inside(zone) {
            state.add(zone.clone());
        }
    }

    pub(super) fn set_name(&self, name: String) {
        let mut state = self.lock();
        state.name = Some(name.into());
        // The plan and the labels contain the name.
        state.plan = None;
        state.known.clear();
    }

    pub(super) fn add_exec(&self, exec: Exec) {
        let mut state = self.lock();
        // The plan contains the executable graph.
        state.plan = None;
        match state.execs.iter_mut().find(|known| known.handle == exec.handle) {
            Some(known) => *known = exec,
            None => state.execs.push(exec),
        }
    }

    pub(super) fn remove_exec(&self, handle: Handle) {
        let mut state = self.lock();
        state.plan = None;
        state.execs.retain(|exec| exec.handle != handle);
    }

    /// Returns whether one of its own nodes is this stamp.
    pub(super) fn has_stamp(&self, stamp: u32) -> bool {
        let state = self.lock();
        state.nodes[..state.own].iter().any(|node| node.stamp == Some(stamp))
    }

    /// Whether it has labels, and nobody has told the ids of its nodes.
    pub(super) fn lacks_ids(&self) -> bool {
        let state = self.lock();
        state.own > 0 && !state.zones.is_empty() && state.ids == NodeIdSource::None
    }

    pub(super) fn node_count(&self) -> usize {
        self.lock().nodes.len()
    }

    /// Returns the zones of a node of an executable graph, by the low half of its id; none if there is no such node, or
    /// it is a stamp.
    pub(super) fn zones_at(&self, low: u32) -> Option<Vec<ZoneLabel>> {
        let state = self.walked();
        let index = state.index_of(low)?;
        let node = state.nodes[..state.own].get(index as usize);
        node.filter(|node| node.stamp.is_none()).map(|_| state.zones_of(index))
    }

    /// Returns every node with its zones.
    pub(super) fn nodes(&self) -> Vec<GraphNode> {
        let state = self.walked();
        let node = |(index, node): (u32, &Node)| GraphNode {
            index,
            within: node.within,
            kind: node.kind,
            kernel: node.kernel.clone(),
            zones: state.zones_of(index),
        };
        (0..).zip(&state.nodes).map(node).collect()
    }

    /// Returns the plan by which its stamps time its zones.
    pub(super) fn plan(&self) -> Arc<Plan> {
        let mut state = self.walked();
        if let Some(plan) = &state.plan {
            return Arc::clone(plan);
        }
        let plan = Arc::new(Plan::make(self.number, &state));
        state.plan = Some(Arc::clone(&plan));
        plan
    }

    pub(super) fn unlabelled(&self) -> Vec<Unlabelled> {
        self.lock().unlabelled().cloned().collect()
    }

    /// Returns this graph as the contents of a node of another: which of its bodies, of how many.
    pub(super) fn as_inside(&self, node: u32, branch: (u32, u32)) -> Inside {
        let state = self.walked();
        let paths = (0..state.nodes.len() as u32).map(|index| state.path(index).to_vec()).collect();
        let branches = state.all_branches.clone().into_iter().collect();
        Inside {
            node,
            branch,
            nodes: state.nodes.clone(),
            own: state.own,
            zones: state.all_zones.clone(),
            paths,
            branches,
        }
    }

    /// Sets the contents of a node: a child graph, or all bodies of a conditional node.
    pub(super) fn set_inside(&self, node: u32, bodies: Vec<Inside>) -> Result<(), String> {
        let mut state = self.lock();
        let told = &state.nodes[..state.told];
        let count = |branch| told.iter().filter(|of| of.within == Some(node) && of.branch == branch).count();
        let kind = told.get(node as usize).map(|node| node.kind);
        let described = match kind {
            Some(NodeKind::Conditional) => state.branches.get(&node).copied(),
            Some(NodeKind::Graph) => Some(1),
            _ => {
                return Err(format!(
                    "node {node} has no graph inside: `nodes` says which have the kind `graph` or `conditional`"
                ));
            }
        };
        if let Some(described) = described {
            if described as usize != bodies.len() {
                let given = bodies.len();
                return Err(format!(
                    "node {node} has {described} graphs inside and {given} were given: give one for each, in their order"
                ));
            }
            for inside in &bodies {
                let (own, other) = (count(inside.branch.0), inside.own);
                if own != other {
                    return Err(format!(
                        "the graph inside node {node} has {own} nodes and the one given has {other}: \
                         give the one from which it was made"
                    ));
                }
            }
        }
        state.inside.retain(|known| known.node != node);
        state.inside.extend(bodies);
        state.is_stale = true;
        Ok(())
    }

    /// Counts nodes by a name that depends on their paths, in the order of the first node of each name.
    pub(super) fn count(&self, name: impl Fn(&[u32], &[CapturedZone]) -> Option<Arc<str>>) -> Vec<NodeCount> {
        let state = self.walked();
        let mut counts: Vec<NodeCount> = Vec::new();
        for (index, node) in (0..).zip(&state.nodes).filter(|(_, node)| node.stamp.is_none()) {
            let name = name(state.path(index), &state.all_zones);
            let at = counts.iter().position(|count| count.name == name).unwrap_or_else(|| {
                counts.push(NodeCount { name, nodes: 0, kernels: 0 });
                counts.len() - 1
            });
            counts[at].nodes += 1;
            counts[at].kernels += usize::from(node.kind == NodeKind::Kernel);
        }
        counts
    }

    /// Returns the state, in which the zones of every node are known.
    pub(super) fn walked(&self) -> MutexGuard<'_, GraphState> {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_stale) {
            state.walk();
        }
        state
    }

    /// Takes the lock, under which no user code runs.
    fn lock(&self) -> MutexGuard<'_, GraphState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
