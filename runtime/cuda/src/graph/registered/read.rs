//! The driver's description of a graph, which the registry reads while its caller holds the graph.
//!
//! Nothing here changes the graph, and no handle is used afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use crate::driver::{CudaError, Driver};
use crate::graph::ids::Ids;
use crate::graph::label::{NodeIdSource, NodeKind, Unlabelled};
use crate::graph::walk;
use crate::graph_api::{Function, Handle};
use crate::stamps;

/// The depth to which graphs within graphs are read.
const DEEPEST: usize = 16;

#[derive(Clone, Debug)]
pub(in crate::graph) struct Node {
    pub(super) handle: Handle,
    pub(in crate::graph) within: Option<u32>,
    pub(in crate::graph) kind: NodeKind,
    pub(in crate::graph) kernel: Option<Arc<str>>,
    pub(in crate::graph) id: Option<(u64, NodeIdSource)>,
    /// The low half of its id in the graph that contains it directly.
    pub(super) local: Option<u32>,
    /// Which body of a conditional node contains it.
    pub(super) branch: u32,
    /// The id of the stamp, if it is one.
    pub(in crate::graph) stamp: Option<u32>,
}

/// The driver's description of a graph.
pub(in crate::graph) struct Read {
    pub(super) graph: Handle,
    pub(super) graph_id: Option<u32>,
    pub(super) nodes: Vec<Node>,
    pub(super) own: usize,
    pub(super) deps: Vec<Vec<u32>>,
    pub(super) unlabelled: Vec<Unlabelled>,
    /// The number of bodies of each conditional node that the driver describes.
    pub(super) branches: HashMap<u32, u32>,
    by_handle: HashMap<Handle, u32>,
}

impl Read {
    /// Reads a graph that the caller holds.
    pub(in crate::graph) fn graph(driver: &'static Driver, graph: Handle) -> Result<Read, CudaError> {
        let ids = Ids::new(driver);
        let handles = driver.graph_nodes(graph)?;
        let edges = driver.graph_edges(graph)?;
        let (mut names, stamps) = (HashMap::new(), stamps::functions());
        let mut node = |handle, within| Node::read(driver, &ids, &mut names, &stamps, handle, within);
        let mut nodes: Vec<Node> = handles.into_iter().map(|handle| node(handle, None)).collect();
        // Ids show the order of capture more reliably than the driver's order.
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
        let mut branches = HashMap::new();
        let mut next = 0;
        while next < nodes.len() {
            let (handle, kind, depth) = (nodes[next].handle, nodes[next].kind, depths[next]);
            let index = next as u32;
            next += 1;
            let why = match kind {
                NodeKind::Graph | NodeKind::Conditional if depth == DEEPEST => "graphs are nested too deep",
                NodeKind::Graph => match driver.child_graph(handle).and_then(|graph| driver.graph_nodes(graph).ok()) {
                    Some(inner) => {
                        nodes.extend(inner.into_iter().map(|handle| node(handle, Some(index))));
                        depths.resize(nodes.len(), depth + 1);
                        continue;
                    }
                    None => "the driver does not describe the graph inside",
                },
                NodeKind::Conditional => {
                    let graphs = driver.bodies(handle).map(|bodies| {
                        bodies.into_iter().map(|body| driver.graph_nodes(body).ok()).collect::<Option<Vec<_>>>()
                    });
                    match graphs.flatten() {
                        Some(bodies) => {
                            branches.insert(index, bodies.len() as u32);
                            for (branch, inner) in (0..).zip(bodies) {
                                let inner = inner.into_iter().map(|handle| node(handle, Some(index)));
                                nodes.extend(inner.map(|inner| Node { branch, ..inner }));
                            }
                            depths.resize(nodes.len(), depth + 1);
                            continue;
                        }
                        None => "the driver does not describe the bodies of a conditional node",
                    }
                }
                _ => continue,
            };
            unlabelled.push(Unlabelled { node: index, kind, why });
        }
        Ok(Read { graph, graph_id: ids.graph(graph), nodes, own, deps, unlabelled, branches, by_handle })
    }

    /// Returns whether the graph itself has this node.
    pub(in crate::graph) fn has(&self, node: Handle) -> bool {
        self.by_handle.contains_key(&node)
    }

    /// Returns whether the graph itself, or a graph inside it, has this node.
    pub(in crate::graph) fn has_inside(&self, node: Handle) -> bool {
        self.has(node) || self.nodes[self.own..].iter().any(|known| known.handle == node)
    }

    pub(in crate::graph) fn graph_id(&self) -> Option<u32> {
        self.graph_id
    }

    /// Returns the stamps in the graph itself.
    pub(in crate::graph) fn stamps(&self) -> impl Iterator<Item = u32> {
        self.nodes[..self.own].iter().filter_map(|node| node.stamp)
    }

    /// Returns the nodes of the graph itself.
    pub(in crate::graph) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.nodes[..self.own].iter().map(|node| node.handle)
    }
}

/// Returns the positions of nodes, by their handles.
pub(super) fn numbered(nodes: &[Node]) -> HashMap<Handle, u32> {
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
        let kind = if stamp.is_some() { NodeKind::Stamp } else { kind };
        let id = ids.node(handle);
        Node { handle, within, kind, kernel, id, local: id.map(|(id, _)| id as u32), branch: 0, stamp }
    }
}
