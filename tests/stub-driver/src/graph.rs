//! Graphs: nodes and what they depend on. They can be looked at, instantiated, updated, cloned and destroyed, not run.

use crate::code::Code;
use crate::driver::Driver;
use crate::table::Handle;

/// A graph, captured or made.
#[derive(Clone, Default)]
pub struct Graph {
    /// What tells it from every other, for ever.
    pub id: u32,
    pub nodes: Vec<Handle>,
    /// The node that it is inside of: it goes with that one.
    is_inside: bool,
    last_local: u32,
}

/// A node of a graph.
#[derive(Clone)]
pub struct Node {
    pub graph: Handle,
    /// Counts the nodes of its graph; a clone has the same.
    pub local: u32,
    pub kind: Kind,
    pub deps: Vec<Handle>,
    /// The node that it is a clone of.
    original: Option<Handle>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel, with its function.
    Kernel(Handle),
    Host,
    /// A graph inside.
    Graph(Handle),
    Conditional,
}

impl Kind {
    /// `CUgraphNodeType`.
    pub fn number(self) -> i32 {
        match self {
            Kind::Kernel(_) => 0,
            Kind::Host => 3,
            Kind::Graph(_) => 4,
            Kind::Conditional => 13,
        }
    }
}

/// An executable graph.
pub struct Exec {
    pub id: u32,
    /// How many nodes it has: an update must have as many.
    nodes: usize,
}

impl Driver {
    /// A graph without nodes.
    pub fn new_graph(&mut self) -> Handle {
        self.last_graph += 1;
        let id = self.last_graph;
        self.graphs.insert(Graph { id, ..Graph::default() })
    }

    /// Adds a node to a graph.
    pub fn add_node(&mut self, graph: Handle, kind: Kind, deps: &[Handle]) -> Result<Handle, Code> {
        let of = self.graphs.get(graph)?;
        let local = of.last_local;
        of.last_local += 1;
        let node = self.nodes.insert(Node { graph, local, kind, deps: deps.to_vec(), original: None });
        self.graphs.get(graph)?.nodes.push(node);
        Ok(node)
    }

    /// Destroys a graph, with its nodes and what is inside of them.
    pub fn destroy_graph(&mut self, graph: Handle) -> Result<(), Code> {
        let graph = self.graphs.remove(graph)?;
        for node in graph.nodes {
            if let Kind::Graph(inside) = self.nodes.remove(node)?.kind {
                self.destroy_graph(inside)?;
            }
        }
        Ok(())
    }

    /// A copy of a graph and of all that is inside of it; `is_inside` of a node.
    pub fn clone_graph(&mut self, graph: Handle, is_inside: bool) -> Result<Handle, Code> {
        let original = self.graphs.get(graph)?.clone();
        let clone = self.new_graph();
        self.graphs.get(clone)?.is_inside = is_inside;
        let mut nodes = Vec::new();
        for handle in &original.nodes {
            let mut node = self.nodes.get(*handle)?.clone();
            if let Kind::Graph(inside) = node.kind {
                node.kind = Kind::Graph(self.clone_graph(inside, true)?);
            }
            let twin = |dep: &Handle| original.nodes.iter().position(|node| node == dep).map(|at| nodes[at]);
            let deps = node.deps.iter().filter_map(twin).collect();
            nodes.push(self.nodes.insert(Node { graph: clone, deps, original: Some(*handle), ..node }));
        }
        let of = self.graphs.get(clone)?;
        (of.nodes, of.last_local) = (nodes, original.last_local);
        Ok(clone)
    }

    /// The node of a clone that a node became.
    pub fn find_in_clone(&mut self, node: Handle, clone: Handle) -> Result<Handle, Code> {
        self.nodes.get(node)?;
        let nodes = self.graphs.get(clone)?.nodes.clone();
        let is_twin = |other: &Handle| self.nodes.get(*other).is_ok_and(|other| other.original == Some(node));
        nodes.into_iter().find(is_twin).ok_or(Code::INVALID_VALUE)
    }

    /// The id by which tools know a node.
    pub fn tools_id(&mut self, node: Handle) -> Result<u64, Code> {
        let (graph, local) = self.nodes.get(node).map(|node| (node.graph, node.local))?;
        Ok(u64::from(self.graphs.get(graph)?.id) << 32 | u64::from(local))
    }

    /// An executable graph, whose id is one of the graphs' ids, too.
    pub fn instantiate(&mut self, graph: Handle) -> Result<Handle, Code> {
        let nodes = self.graphs.get(graph)?.nodes.len();
        self.last_graph += 1;
        Ok(self.execs.insert(Exec { id: self.last_graph, nodes }))
    }

    /// Gives an executable graph the parameters of a graph of the same shape.
    pub fn update(&mut self, exec: Handle, graph: Handle) -> Result<(), Code> {
        let nodes = self.graphs.get(graph)?.nodes.len();
        if self.execs.get(exec)?.nodes == nodes { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }
}
