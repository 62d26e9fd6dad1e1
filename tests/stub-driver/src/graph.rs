//! Graphs: nodes and what they depend on. They can be looked at, instantiated, updated, cloned, destroyed, and run: each node
//! begins when those that it depends on are over.

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
    /// Those of them for whose launch alone it waits.
    pub by_launch: Vec<Handle>,
    /// How long it runs.
    pub ns: i64,
    /// The node that it is a clone of.
    original: Option<Handle>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel, with its function.
    Kernel(Handle),
    /// A kernel of a module, with its function and its parameters.
    Own(Handle, [u64; 2]),
    Host,
    /// The record of an event.
    Event(Handle),
    /// A graph inside.
    Graph(Handle),
    Conditional,
}

impl Kind {
    /// `CUgraphNodeType`.
    pub fn number(self) -> i32 {
        match self {
            Kind::Kernel(_) | Kind::Own(..) => 0,
            Kind::Host => 3,
            Kind::Graph(_) => 4,
            Kind::Event(_) => 7,
            Kind::Conditional => 13,
        }
    }
}

/// An executable graph.
pub struct Exec {
    pub id: u32,
    /// What it runs: an update must have as many nodes.
    pub steps: Vec<Step>,
}

/// A node of an executable graph.
#[derive(Clone)]
pub struct Step {
    /// The node that it was made of, of the graph that the executable one was instantiated from.
    pub node: Handle,
    pub kind: Kind,
    pub ns: i64,
    /// The steps before it.
    pub deps: Vec<usize>,
    /// Of a graph inside.
    pub inside: Vec<Step>,
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
        let node = self.nodes.insert(Node {
            graph,
            local,
            kind,
            deps: deps.to_vec(),
            by_launch: Vec::new(),
            ns: 0,
            original: None,
        });
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
            let by_launch = node.by_launch.iter().filter_map(twin).collect();
            nodes.push(self.nodes.insert(Node { graph: clone, deps, by_launch, original: Some(*handle), ..node }));
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
        let steps = self.steps(graph)?;
        self.last_graph += 1;
        Ok(self.execs.insert(Exec { id: self.last_graph, steps }))
    }

    /// Gives an executable graph the parameters of a graph of the same shape.
    pub fn update(&mut self, exec: Handle, graph: Handle) -> Result<(), Code> {
        let steps = self.steps(graph)?;
        let exec = self.execs.get(exec)?;
        if exec.steps.len() != steps.len() {
            return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
        }
        let nodes: Vec<_> = exec.steps.iter().map(|step| step.node).collect();
        exec.steps = steps;
        exec.steps.iter_mut().zip(nodes).for_each(|(step, node)| step.node = node);
        Ok(())
    }

    /// From the next launch on a node records another event.
    pub fn exchange_event(&mut self, exec: Handle, node: Handle, event: Handle) -> Result<(), Code> {
        self.nodes.get(node)?;
        self.events.get(event)?;
        let steps = &mut self.execs.get(exec)?.steps;
        match steps.iter_mut().find(|step| step.node == node).map(|step| &mut step.kind) {
            Some(Kind::Event(of)) => *of = event,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    fn steps(&mut self, graph: Handle) -> Result<Vec<Step>, Code> {
        let nodes = self.graphs.get(graph)?.nodes.clone();
        let mut steps = Vec::new();
        for handle in &nodes {
            let Node { kind, ns, deps, .. } = self.nodes.get(*handle)?.clone();
            let deps = deps.iter().filter_map(|dep| nodes.iter().position(|node| node == dep)).collect();
            let inside = if let Kind::Graph(inside) = kind { self.steps(inside)? } else { Vec::new() };
            steps.push(Step { node: *handle, kind, ns, deps, inside });
        }
        Ok(steps)
    }
}

/// When each node of a graph begins that begins at this moment, and when the graph ends.
pub fn run(steps: &[Step], begin_ns: i64, each: &mut dyn FnMut(i64, Kind)) -> i64 {
    let mut ends: Vec<i64> = Vec::new();
    for step in steps {
        let begin_ns = step.deps.iter().filter_map(|dep| ends.get(*dep)).copied().max().unwrap_or(begin_ns);
        each(begin_ns, step.kind);
        ends.push(run(&step.inside, begin_ns, each) + step.ns);
    }
    ends.into_iter().max().unwrap_or(begin_ns)
}
