//! One registered graph: its nodes, the zones that noted places in it, and the executable graphs made of it.
//!
//! Everything that only the driver knows is asked while the caller holds the graph, in [`Registered::read`]; afterwards its
//! handles are numbers that are compared and never used. Zones that end later are added, and the walk is made again when
//! somebody asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::captures::{Capture, CapturedZone, Streams};
use super::executed::Known;
use super::ids::{Ids, NodeLabels};
use super::label::{GraphNode, NodeCount, NodeIdSource, NodeKind, Unlabelled, ZoneLabel};
use super::plan::Plan;
use super::walk;
use crate::backend::cuda::capture::Mark;
use crate::backend::cuda::driver::{CudaError, Driver};
use crate::backend::cuda::graphs::{Function, Handle};
use crate::backend::cuda::stamps;

/// Graphs within graphs are followed so deep.
const DEEPEST: usize = 16;

/// A graph that was registered.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) number: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) name: Option<Arc<str>>,
    pub(super) graph: Handle,
    pub(super) graph_id: Option<u32>,
    pub(super) ids: NodeIdSource,
    pub(super) nodes: Vec<Node>,
    /// Nodes of the graph itself; those of graphs inside it come behind them.
    pub(super) own: usize,
    pub(super) deps: Vec<Vec<u32>>,
    captures: Vec<u64>,
    pub(super) zones: Vec<CapturedZone>,
    streams: Streams,
    /// What is known of graphs inside nodes, which were registered by themselves.
    inside: Vec<Inside>,
    /// `zones`, and behind them those of the graphs inside.
    pub(super) all_zones: Vec<CapturedZone>,
    /// Nodes that the driver told of; those that only `inside` knows come behind them.
    told: usize,
    /// For each node a place in `paths`.
    of: Vec<u32>,
    pub(super) paths: Vec<Vec<u32>>,
    /// A zone has been added since the walk.
    is_stale: bool,
    pub(super) execs: Vec<Exec>,
    unlabelled: Vec<Unlabelled>,
    /// Nodes of the graph itself, by the low half of their ids.
    by_id: HashMap<u32, u32>,
    pub(super) known: HashMap<Known, Arc<NodeLabels>>,
    /// How its stamps time its zones, once somebody has asked.
    plan: Option<Arc<Plan>>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    handle: Handle,
    pub(super) within: Option<u32>,
    pub(super) kind: NodeKind,
    pub(super) kernel: Option<Arc<str>>,
    pub(super) id: Option<(u64, NodeIdSource)>,
    /// It is a stamp, or the event at a border, and which one.
    pub(super) stamp: Option<u32>,
}

/// A graph with its zones, inside a node of another one.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    node: u32,
    nodes: Vec<Node>,
    own: usize,
    zones: Vec<CapturedZone>,
    paths: Vec<Vec<u32>>,
}

/// An executable graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exec {
    pub(super) handle: Handle,
    pub(super) id: Option<u32>,
}

/// What the driver tells of a graph.
pub(super) struct Read {
    graph: Handle,
    graph_id: Option<u32>,
    nodes: Vec<Node>,
    own: usize,
    deps: Vec<Vec<u32>>,
    unlabelled: Vec<Unlabelled>,
    by_handle: HashMap<Handle, u32>,
}

impl Read {
    /// Asks for all of a graph that the caller holds.
    pub(super) fn of(driver: &'static Driver, graph: Handle) -> Result<Read, CudaError> {
        let ids = Ids::new(driver);
        let handles = driver.graph_nodes(graph)?;
        let edges = driver.graph_edges(graph)?;
        let (mut names, stamps) = (HashMap::new(), stamps::functions());
        let mut node = |handle, within| Node::read(driver, &ids, &mut names, &stamps, handle, within);
        let mut nodes: Vec<Node> = handles.into_iter().map(|handle| node(handle, None)).collect();
        // The order of capture, where there is more to tell it by than the driver's order.
        if nodes.iter().all(|node| node.id.is_some()) {
            nodes.sort_by_key(|node| node.id.map(|(id, _)| id as u32));
        }
        let own = nodes.len();
        let mut by_handle = numbered(&nodes);
        let mut deps = dependencies(&by_handle, &edges);
        if let Some(order) = walk::topological(&deps) {
            let mut unordered: Vec<_> = nodes.drain(..).map(Some).collect();
            nodes.extend(order.into_iter().filter_map(|node| unordered[node as usize].take()));
            by_handle = numbered(&nodes);
            deps = dependencies(&by_handle, &edges);
        }
        let mut unlabelled = Vec::new();
        let mut depths = vec![0; own];
        let mut next = 0;
        while next < nodes.len() {
            let (handle, kind, depth) = (nodes[next].handle, nodes[next].kind, depths[next]);
            let index = next as u32;
            next += 1;
            let why = match kind {
                NodeKind::Graph if depth == DEEPEST => "graphs are nested too deep",
                NodeKind::Graph => match driver.child_graph(handle).and_then(|graph| driver.graph_nodes(graph).ok()) {
                    Some(inner) => {
                        nodes.extend(inner.into_iter().map(|handle| node(handle, Some(index))));
                        depths.resize(nodes.len(), depth + 1);
                        continue;
                    }
                    None => "the driver tells nothing of the graph inside",
                },
                NodeKind::Conditional => "the driver tells nothing of the bodies of a conditional node",
                _ => continue,
            };
            unlabelled.push(Unlabelled { node: index, kind, why });
        }
        Ok(Read { graph, graph_id: ids.graph(graph), nodes, own, deps, unlabelled, by_handle })
    }

    /// Whether the graph itself has this node.
    pub(super) fn has(&self, node: Handle) -> bool {
        self.by_handle.contains_key(&node)
    }

    /// The stamps among them.
    pub(super) fn stamps(&self) -> impl Iterator<Item = u32> {
        self.nodes[..self.own].iter().filter_map(|node| node.stamp)
    }

    /// The nodes of the graph itself.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.nodes[..self.own].iter().map(|node| node.handle)
    }
}

fn numbered(nodes: &[Node]) -> HashMap<Handle, u32> {
    (0..).zip(nodes).map(|(index, node)| (node.handle, index)).collect()
}

fn dependencies(by_handle: &HashMap<Handle, u32>, edges: &[(Handle, Handle)]) -> Vec<Vec<u32>> {
    let mut deps = vec![Vec::new(); by_handle.len()];
    for (from, to) in edges {
        if let (Some(&from), Some(&to)) = (by_handle.get(from), by_handle.get(to)) {
            deps[to as usize].push(from);
        }
    }
    deps
}

impl Node {
    fn read(
        driver: &'static Driver,
        ids: &Ids,
        names: &mut HashMap<Function, Option<Arc<str>>>,
        stamps: &[Handle],
        handle: Handle,
        within: Option<u32>,
    ) -> Node {
        let kind = NodeKind::from_raw(driver.node_type(handle));
        let function = (kind == NodeKind::Kernel).then(|| driver.node_function(handle)).flatten();
        let mut name =
            |function| names.entry(function).or_insert_with(|| driver.function_name(function).map(Arc::from)).clone();
        let kernel = function.and_then(&mut name);
        let stamp = function
            .filter(|_| !stamps.is_empty())
            .and_then(|function| stamps::id_of(driver, handle, function, kernel.as_deref(), stamps));
        let event = (kind == NodeKind::EventRecord).then(|| stamps::id_of_event(driver, handle)).flatten();
        let kind = if stamp.is_some() { NodeKind::Stamp } else { kind };
        let stamp = stamp.or(event);
        Node { handle, within, kind, kernel, id: ids.node(handle), stamp }
    }
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
        let plan = Arc::new(Plan::of(self.number, &state));
        state.plan = Some(Arc::clone(&plan));
        plan
    }

    /// The nodes that time its zones, in the order of the plan; none for another graph than this one.
    pub(super) fn borders(&self, graph: Handle) -> Option<Vec<(Handle, u32)>> {
        let state = self.lock();
        let own = state.nodes[..state.own].iter();
        (state.graph == graph).then(|| own.filter_map(|node| Some((node.handle, node.stamp?))).collect())
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
    pub(super) fn count(&self, name: impl Fn(&[u32], &[CapturedZone]) -> Option<&'static str>) -> Vec<NodeCount> {
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

impl State {
    fn add(&mut self, zone: CapturedZone) {
        self.streams.note(&zone);
        self.zones.push(zone);
        self.is_stale = true;
    }

    fn walk(&mut self) {
        // In the order in which zones began, as readers get them.
        self.zones.sort_by_key(|zone| (zone.begin_ns, zone.begin.as_ref().map_or(0, |begin| begin.order)));
        let by_handle = numbered(&self.nodes[..self.own]);
        let place = |mark: &Mark| walk::Place {
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
        let zones: Vec<_> = self.zones.iter().map(zone).collect();
        let walk::Paths { mut of, paths } = walk::paths(&self.deps, &zones);
        self.nodes.truncate(self.told);
        // What is inside a node is where the node is.
        for node in &self.nodes[self.own..] {
            of.push(node.within.map_or(0, |outer| of[outer as usize]));
        }
        (self.of, self.paths) = (of, paths);
        self.all_zones = self.zones.clone();
        for inside in std::mem::take(&mut self.inside) {
            self.enter(&inside);
            self.inside.push(inside);
        }
        self.known.clear();
        self.plan = None;
    }

    /// Puts the zones of a graph behind those of the node that it is inside of.
    fn enter(&mut self, inside: &Inside) {
        let outer = self.path(inside.node).to_vec();
        let first = self.all_zones.len() as u32;
        self.all_zones.extend(inside.zones.iter().cloned());
        let is_inside = |(_, node): &(usize, &Node)| node.within == Some(inside.node);
        let mut known: Vec<usize> = self.nodes.iter().enumerate().filter(is_inside).map(|(index, _)| index).collect();
        if known.is_empty() {
            // The driver does not tell of it: its nodes are added.
            let begin = self.nodes.len() as u32;
            self.nodes.extend(inside.nodes.iter().map(|node| Node {
                within: Some(node.within.map_or(inside.node, |outer| begin + outer)),
                id: None,
                ..node.clone()
            }));
            self.of.resize(self.nodes.len(), 0);
            known = (begin as usize..self.nodes.len()).collect();
        }
        for (index, path) in known.into_iter().zip(&inside.paths) {
            let path = outer.iter().copied().chain(path.iter().map(|zone| first + zone));
            self.of[index] = self.paths.len() as u32;
            self.paths.push(path.collect());
        }
    }

    /// Bodies of which nothing is known.
    pub(super) fn unlabelled(&self) -> impl Iterator<Item = &Unlabelled> {
        self.unlabelled.iter().filter(|of| self.inside.iter().all(|inside| inside.node != of.node))
    }

    /// The node of the graph itself whose id has this low half; where no ids are known, the node of this number.
    pub(super) fn index_of(&self, low: u32) -> Option<u32> {
        if self.by_id.is_empty() { Some(low) } else { self.by_id.get(&low).copied() }
    }

    /// The places in `all_zones` of a node's zones.
    pub(super) fn path(&self, index: u32) -> &[u32] {
        self.of.get(index as usize).and_then(|path| self.paths.get(*path as usize)).map_or(&[], Vec::as_slice)
    }

    /// The labels of the zones that a node is in: none of a stamp, whatever is around it.
    fn zones_of(&self, index: u32) -> Vec<ZoneLabel> {
        if self.nodes.get(index as usize).is_some_and(|node| node.stamp.is_some()) {
            return Vec::new();
        }
        self.path(index).iter().map(|zone| self.all_zones[*zone as usize].label.clone()).collect()
    }
}
