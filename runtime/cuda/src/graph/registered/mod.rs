//! One registered graph: its nodes, the zones that noted places in it, and the executable graphs made of it.
//!
//! Everything that only the driver knows is asked while the caller holds the graph, in `read`; afterwards its
//! handles are numbers that are compared and never used. Zones that end later are added, and the walk is made again when
//! somebody asks: `state` has what is known by now.

mod planned;
mod read;
mod state;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::captured_zone::{Capture, CapturedZone};
use super::label::{GraphNode, NodeCount, NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
use super::plan::Plan;
use crate::capture::Mark;
use crate::graphs::Handle;

pub(super) use read::{Node, Read};
use state::Inside;
pub(super) use state::State;

/// A graph that was registered.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) number: u32,
    state: Mutex<State>,
}

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) handle: Handle,
    pub(super) id: Option<u32>,
}

impl Registered {
    pub(super) fn new(number: u32, read: Read, capture: Option<Capture>) -> Registered {
        let registered = Registered { number, state: Mutex::default() };
        registered.renew(read, capture);
        registered
    }

    /// The graph as it is now, with what a further capture into it noted.
    pub(super) fn renew(&self, read: Read, capture: Option<Capture>) {
        let mut state = self.lock();
        if let Some(capture) = capture {
            state.captures.push(capture.id);
            state.streams.join(&capture.streams);
            state.zones.extend(capture.zones);
        }
        let mut read = read;
        // Whoever told them may be gone.
        let known: HashMap<_, _> = state.nodes[..state.own].iter().map(|node| (node.handle, node.id)).collect();
        for node in read.nodes.iter_mut().filter(|node| node.id.is_none()) {
            node.id = known.get(&node.handle).copied().flatten();
        }
        state.graph = read.graph;
        state.graph_id = read.graph_id;
        state.ids = read.nodes.iter().find_map(|node| node.id).map_or(NodeIdSource::None, |(_, source)| source);
        let own = read.nodes[..read.own].iter();
        state.by_id = (0..).zip(own).filter_map(|(index, node)| Some((node.id?.0 as u32, index))).collect();
        (state.nodes, state.own, state.deps, state.unlabelled) = (read.nodes, read.own, read.deps, read.unlabelled);
        state.told = state.nodes.len();
        state.is_stale = true;
    }

    /// The same zones for a clone of the graph, of which `twin` knows the nodes.
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
                ..zone.clone()
            };
            (state.name.clone(), state.zones.iter().map(zone).collect())
        };
        let clone = Registered::new(number, read, None);
        let mut state = clone.lock();
        (state.name, state.zones, state.is_stale) = (name, zones, true);
        drop(state);
        clone
    }

    /// Whether it is the graph of this handle, and the driver tells of it what it told before.
    pub(super) fn is_of(&self, read: &Read) -> bool {
        let state = self.lock();
        let is_same = |(known, node): (&Node, &Node)| known.handle == node.handle && known.kernel == node.kernel;
        state.graph == read.graph
            && state.graph_id.zip(read.graph_id).is_none_or(|(known, read)| known == read)
            && state.deps == read.deps
            && state.nodes[..state.own].iter().zip(&read.nodes).all(is_same)
    }

    /// Adds a zone that ended after the graph was registered, if it noted its begin in the graph's capture; gives back one that
    /// did not.
    pub(super) fn add(&self, capture: u64, graph: Handle, zone: CapturedZone) -> Option<CapturedZone> {
        let mut state = self.lock();
        // The first zone of a capture to end tells its id; while it was captured, the graph was not registered.
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
        // Who knows it by no name or another one asks again.
        state.plan = None;
        state.known.clear();
    }

    pub(super) fn add_exec(&self, exec: Exec) {
        let mut state = self.lock();
        // It says whose replays they are.
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

    /// Whether one of its own nodes is this stamp.
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

    /// The zones of a node of an executable graph, by the low half of its id; none where there is no such node, or a stamp, which
    /// is nobody's kernel.
    pub(super) fn zones_at(&self, low: u32) -> Option<Vec<ZoneLabel>> {
        let state = self.walked();
        let index = state.index_of(low)?;
        let node = state.nodes[..state.own].get(index as usize);
        node.filter(|node| node.stamp.is_none()).map(|_| state.zones_of(index))
    }

    /// Every node with its zones.
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

    /// How its stamps time its zones.
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

    /// This graph, as one that is inside a node of another.
    pub(super) fn as_inside(&self, node: u32) -> Inside {
        let state = self.walked();
        let paths = (0..state.nodes.len() as u32).map(|index| state.path(index).to_vec()).collect();
        Inside { node, nodes: state.nodes.clone(), own: state.own, zones: state.all_zones.clone(), paths }
    }

    /// Says what is inside a node.
    pub(super) fn set_inside(&self, inside: Inside) -> Result<(), String> {
        let mut state = self.lock();
        let node = inside.node;
        let own = state.nodes[..state.told].iter().filter(|of| of.within == Some(node)).count();
        match state.nodes[..state.told].get(node as usize).map(|node| node.kind) {
            Some(NodeKind::Conditional) => {}
            Some(NodeKind::Graph) if own == inside.own => {}
            Some(NodeKind::Graph) => {
                let other = inside.own;
                return Err(format!(
                    "the graph inside node {node} has {own} nodes and the one given has {other}: \
                     give the one that it was made of"
                ));
            }
            _ => {
                return Err(format!(
                    "node {node} has no graph inside: `nodes` says which have the kind `graph` or `conditional`"
                ));
            }
        }
        state.inside.retain(|known| known.node != node);
        state.inside.push(inside);
        state.is_stale = true;
        Ok(())
    }

    /// Nodes by what their paths say, in the order in which the first one of each comes.
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

    /// The state with the zones of every node known.
    pub(super) fn walked(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_stale) {
            state.walk();
        }
        state
    }

    /// No code of a user's runs under this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
