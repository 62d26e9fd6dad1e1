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
    is_instantiated: bool,
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
    Conditional(Condition),
}

/// What decides on the bodies of a conditional node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: ConditionKind,
    /// The value that each launch begins with. Nothing but the end of an iteration changes it: of a loop it becomes one less.
    pub value: u32,
    /// The real one's array belongs to the driver; it stays.
    pub bodies: &'static [Handle],
}

/// `CUgraphConditionalNodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionKind {
    If = 0,
    While = 1,
    Switch = 2,
}

impl Condition {
    /// The bodies that a launch runs, one behind the other.
    fn runs(self) -> Vec<Handle> {
        let body = |index: u32| self.bodies.get(index as usize).copied();
        match self.kind {
            ConditionKind::If => body(u32::from(self.value == 0)).into_iter().collect(),
            ConditionKind::While => body(0).into_iter().flat_map(|body| vec![body; self.value as usize]).collect(),
            ConditionKind::Switch => body(self.value).into_iter().collect(),
        }
    }
}

impl Kind {
    /// `CUgraphNodeType`.
    pub fn number(self) -> i32 {
        match self {
            Kind::Kernel(_) | Kind::Own(..) => 0,
            Kind::Host => 3,
            Kind::Graph(_) => 4,
            Kind::Event(_) => 7,
            Kind::Conditional(_) => 13,
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
            self.destroy_inside(node)?;
        }
        Ok(())
    }

    fn destroy_inside(&mut self, node: Handle) -> Result<(), Code> {
        match self.nodes.remove(node)?.kind {
            Kind::Graph(inside) => self.destroy_graph(inside),
            Kind::Conditional(Condition { bodies, .. }) => bodies.iter().try_for_each(|body| self.destroy_graph(*body)),
            _ => Ok(()),
        }
    }

    /// Destroys a node; those behind it no longer wait for it.
    pub fn destroy_node(&mut self, node: Handle) -> Result<(), Code> {
        let graph = self.nodes.get(node)?.graph;
        self.destroy_inside(node)?;
        let of = self.graphs.get(graph)?;
        of.nodes.retain(|other| *other != node);
        for other in of.nodes.clone() {
            self.nodes.get(other)?.deps.retain(|dep| *dep != node);
        }
        Ok(())
    }

    /// Adds a conditional node, with so many empty bodies.
    pub fn add_conditional(
        &mut self,
        graph: Handle,
        deps: &[Handle],
        (kind, handle, size): (ConditionKind, u64, u32),
    ) -> Result<(Handle, &'static [Handle]), Code> {
        let is_possible = match kind {
            ConditionKind::If => (1..=2).contains(&size),
            ConditionKind::While => size == 1,
            ConditionKind::Switch => size > 0,
        };
        // A handle is of the outermost graph; its value is its lower half.
        if !is_possible || handle >> 32 == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let bodies: Vec<Handle> = (0..size).map(|_| self.new_graph()).collect();
        for body in &bodies {
            self.graphs.get(*body)?.is_inside = true;
        }
        let bodies: &'static [Handle] = bodies.leak();
        let node = self.add_node(graph, Kind::Conditional(Condition { kind, value: handle as u32, bodies }), deps)?;
        Ok((node, bodies))
    }

    /// Whether a graph, or one inside it, has a conditional node.
    fn has_conditional(&mut self, graph: Handle) -> Result<bool, Code> {
        for node in self.graphs.get(graph)?.nodes.clone() {
            let has = match self.nodes.get(node)?.kind {
                Kind::Conditional(_) => true,
                Kind::Graph(inside) => self.has_conditional(inside)?,
                _ => false,
            };
            if has {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A copy of a graph and of all that is inside of it; `is_inside` of a node.
    pub fn clone_graph(&mut self, graph: Handle, is_inside: bool) -> Result<Handle, Code> {
        if self.has_conditional(graph)? {
            return Err(Code::NOT_SUPPORTED);
        }
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
        if self.has_conditional(graph)? && std::mem::replace(&mut self.graphs.get(graph)?.is_instantiated, true) {
            return Err(Code::NOT_SUPPORTED);
        }
        self.last_graph += 1;
        Ok(self.execs.insert(Exec { id: self.last_graph, steps }))
    }

    /// Gives an executable graph the parameters of a graph of the same shape: as many nodes, of the same types, with the same edges.
    pub fn update(&mut self, exec: Handle, graph: Handle) -> Result<(), Code> {
        let steps = self.steps(graph)?;
        let exec = self.execs.get(exec)?;
        if !are_alike(&exec.steps, &steps) {
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
            let inside = match kind {
                Kind::Graph(inside) => self.steps(inside)?,
                Kind::Conditional(condition) => self.body_steps(condition)?,
                _ => Vec::new(),
            };
            steps.push(Step { node: *handle, kind, ns, deps, inside });
        }
        Ok(steps)
    }
}

impl Driver {
    /// The steps of all iterations, one behind the other.
    fn body_steps(&mut self, condition: Condition) -> Result<Vec<Step>, Code> {
        let mut steps: Vec<Step> = Vec::new();
        for body in condition.runs() {
            let first = steps.len();
            for step in self.steps(body)? {
                // Events are not allowed here.
                if matches!(step.kind, Kind::Event(_)) {
                    return Err(Code::INVALID_VALUE);
                }
                let deps = step.deps.iter().map(|dep| first + dep);
                let deps = if step.deps.is_empty() { (0..first).collect() } else { deps.collect() };
                steps.push(Step { deps, ..step });
            }
        }
        Ok(steps)
    }
}

/// Whether two graphs have the same shape.
fn are_alike(these: &[Step], those: &[Step]) -> bool {
    let is_alike = |(this, that): (&Step, &Step)| {
        this.kind.number() == that.kind.number() && this.deps == that.deps && are_alike(&this.inside, &that.inside)
    };
    these.len() == those.len() && these.iter().zip(those).all(is_alike)
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
