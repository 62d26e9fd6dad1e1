//! The handle that a program keeps with its graph. Without feature `enable` it is empty, and no graph has zones.

use std::ffi::c_void;
use std::io;
use std::path::Path;

use super::AsGraph;
use super::captured_zone::CapturedZone;
use super::label::{GraphError, GraphNode, NodeCount, Unlabelled, ZoneLabel};
use super::registered::{Read, Registered};
use super::registry::{RegistrationGuard, Taken};
use super::{captures, json, pending, registry};
use crate::driver::{CudaError, Driver};
use crate::graph_api::Handle;
use std::sync::Arc;
use warpline_core::signals::without_signals;

/// The zones of one graph's nodes.
///
/// It is `Send` and `Sync`, and clones share their data. Keep it as long as the graph, and register directly after the capture, because the
/// zones of at most 256 captures are kept. The graph's handles are only used during calls that are given it.
#[derive(Clone, Debug)]
pub struct GraphZones(Option<Arc<RegistrationGuard>>);

/// Whether graphs have zones.
pub(super) const IS_ON: bool = cfg!(feature = "runtime");

impl GraphZones {
    /// Registers a graph whose capture has ended, and the executable graph that comes with it. If the graph is already registered, it
    /// returns the same zones and adds the executable graph, so call it again after each instantiation.
    ///
    /// It queries the driver for the graph's nodes and edges, about 0.1 µs each, and changes nothing.
    ///
    /// # Errors
    /// There is no driver, the graph's handle is null, or the driver does not list its nodes.
    pub fn for_graph(graph: &(impl AsGraph + ?Sized)) -> Result<GraphZones, GraphError> {
        if !IS_ON {
            return Ok(GraphZones(None));
        }
        let (driver, (graph, exec)) = (driver()?, handles(graph)?);
        // Another thread may be capturing, in a mode in which other threads' calls break the capture.
        let held = driver.outside_captures(|| registry::register(driver, graph, exec, |read| taken(graph, read)));
        held.map(|held| GraphZones(Some(held))).map_err(|error| failed(driver, error))
    }

    /// Adds what has since been captured into the same graph (`cuStreamBeginCaptureToGraph`), or added to it and
    /// [labelled](Self::label).
    ///
    /// # Errors
    /// Those of [`for_graph`](Self::for_graph).
    pub fn extend(&self, graph: &(impl AsGraph + ?Sized)) -> Result<(), GraphError> {
        let Some(known) = self.registered() else { return Ok(()) };
        let (driver, (graph, _)) = (driver()?, handles(graph)?);
        let extended = driver.outside_captures(|| registry::extend(driver, known, graph, |read| taken(graph, read)));
        extended.map_err(|error| failed(driver, error))
    }

    /// Registers a clone (`cuGraphClone`) with the zones of this graph. `original` is the graph that was cloned.
    ///
    /// # Errors
    /// Those of [`for_graph`](Self::for_graph).
    pub fn of_clone(
        &self,
        original: &(impl AsGraph + ?Sized),
        clone: &(impl AsGraph + ?Sized),
    ) -> Result<GraphZones, GraphError> {
        let Some(known) = self.registered() else { return Ok(GraphZones(None)) };
        let (driver, (original, _), (graph, exec)) = (driver()?, handles(original)?, handles(clone)?);
        let held = driver.outside_captures(|| {
            let nodes: Vec<_> = Read::graph(driver, original)?.handles().collect();
            registry::register_clone(driver, known, graph, exec, &nodes)
        });
        held.map(|held| GraphZones(Some(held))).map_err(|error| failed(driver, error))
    }

    /// Assigns an executable graph to this graph, from which it was instantiated, or with which it was updated (`cuGraphExecUpdate`). Its
    /// replays are this graph's from now on, and no longer another graph's.
    ///
    /// # Errors
    /// There is no driver.
    ///
    /// # Safety
    /// `exec` must be a live `CUgraphExec`.
    #[allow(unsafe_code)]
    pub unsafe fn add_exec(&self, exec: *mut c_void) -> Result<(), GraphError> {
        let Some(known) = self.registered() else { return Ok(()) };
        let driver = driver()?;
        driver.outside_captures(|| registry::add_exec(driver, exec as Handle, known));
        Ok(())
    }

    /// Sets the graph inside a node. For a child-graph node, it is the graph from which the child was made, and nodes are paired by their
    /// order. For a conditional node, it is the graph of its only body, whose nodes are then among [`nodes`](Self::nodes). The zones of that
    /// graph are inside those of the node.
    ///
    /// # Errors
    /// The node has no graph inside, or one with another number of nodes.
    pub fn inside(&self, node: u32, graph: &GraphZones) -> Result<(), GraphError> {
        let (Some(known), Some(graph)) = (self.registered(), graph.registered()) else { return Ok(()) };
        known.set_inside(node, vec![graph.as_inside(node, (0, 1))]).map_err(GraphError)
    }

    /// Sets the graphs of all bodies of a conditional node, in the order of the driver's array (`phGraph_out`): both of an `if` with an
    /// `else`, or those of a `switch`. For a node with one body, [`inside`](Self::inside) does the same. If a body is missing, kernels of
    /// nodes that the driver numbers after it are not assigned to their nodes.
    ///
    /// # Errors
    /// The node is not a conditional node, there is no body, or the driver describes other bodies.
    pub fn bodies(&self, node: u32, bodies: &[&GraphZones]) -> Result<(), GraphError> {
        let Some(known) = self.registered() else { return Ok(()) };
        let count = bodies.len() as u32;
        if count == 0 {
            return Err(GraphError(format!("no body of node {node} was given: give one graph for each body")));
        }
        let bodies = (0..).zip(bodies.iter().filter_map(|body| body.registered()));
        let inside = bodies.map(|(branch, body)| body.as_inside(node, (branch, count)));
        known.set_inside(node, inside.collect()).map_err(GraphError)
    }

    /// Names the graph in annotations and traces.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> GraphZones {
        if let Some(known) = self.registered() {
            known.set_name(name.into());
        }
        self
    }

    /// Returns the graph's number. The process numbers its registered graphs from 1.
    pub fn number(&self) -> u32 {
        self.registered().map_or(0, |known| known.number)
    }

    /// Returns every node with its zones.
    pub fn nodes(&self) -> impl Iterator<Item = GraphNode> + use<> {
        self.registered().map(|known| known.nodes()).into_iter().flatten()
    }

    /// Counts the nodes by range: that of the innermost zone.
    pub fn ranges(&self) -> Vec<NodeCount> {
        self.count(|path, zones| path.last().map(|zone| zones[*zone as usize].label.range.name().into()))
    }

    /// Counts the nodes by the lane on which a trace shows them in each replay: that of the innermost zone that has one. A collective whose
    /// range has none has that of its group ([`ProcessGroup::lane`](warpline_core::collective::ProcessGroup::lane)).
    pub fn lanes(&self) -> Vec<NodeCount> {
        self.count(|path, zones| path.iter().rev().find_map(|zone| zones[*zone as usize].label.lane()))
    }

    /// Returns the nodes whose contents are unknown. Their kernels run, but are not among [`nodes`](Self::nodes).
    pub fn unlabelled(&self) -> Vec<Unlabelled> {
        self.registered().map_or_else(Vec::new, |known| known.unlabelled())
    }

    /// Returns the zones of a node, outermost first, by a registered executable graph and the node's index in it (the low half of the
    /// `graph node id` in a profiler's records); none if the graph is not registered.
    pub fn find(exec: *mut c_void, index: u32) -> Option<Vec<ZoneLabel>> {
        if !IS_ON {
            return None;
        }
        registry::of_exec(exec as Handle)?.zones_at(index)
    }

    /// Writes the annotations of this graph as JSON, as `docs/graph.schema.json` describes it.
    ///
    /// # Errors
    /// The operating system's error for the file.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let Some(known) = self.registered() else { return Ok(()) };
        without_signals(|| std::fs::write(path, json::document(&[Arc::clone(known)])))
    }

    fn registered(&self) -> Option<&Arc<Registered>> {
        self.0.as_ref().map(|held| &held.0)
    }

    fn count(&self, name: impl Fn(&[u32], &[CapturedZone]) -> Option<Arc<str>>) -> Vec<NodeCount> {
        self.registered().map_or_else(Vec::new, |known| known.count(name))
    }
}

/// Writes the annotations of every registered graph as JSON, as `docs/graph.schema.json` describes it. This includes up to 256 of the
/// latest graphs whose [`GraphZones`] were dropped.
///
/// # Errors
/// The operating system's error for the file.
pub fn save(path: impl AsRef<Path>) -> io::Result<()> {
    if IS_ON { without_signals(|| std::fs::write(path, json::document(&registry::all()))) } else { Ok(()) }
}

/// Takes what was captured into a graph, and the labels of its nodes.
fn taken(graph: Handle, read: &Read) -> Taken {
    let capture = captures::take(graph, |node| read.has(node));
    Taken { capture, labels: pending::take(graph, read.graph_id(), |node| read.has_inside(node)) }
}

/// Returns the handles of a graph and of its executable graph, which may be null.
pub(super) fn handles(graph: &(impl AsGraph + ?Sized)) -> Result<(Handle, Handle), GraphError> {
    let graph = graph.as_graph();
    if graph.graph.is_null() {
        return Err(GraphError(
            "the graph's handle is null: register a graph that is alive; a `CudaGraph` gives its handle from cudarc 0.19.4 \
             on (`cargo update -p cudarc`)"
                .to_owned(),
        ));
    }
    Ok((graph.graph as Handle, graph.exec as Handle))
}

pub(super) fn driver() -> Result<&'static Driver, GraphError> {
    Driver::get().map_err(|error| GraphError(error.0))
}

pub(super) fn failed(driver: &Driver, error: CudaError) -> GraphError {
    let why = driver.describe(error).0;
    GraphError(format!(
        "the driver does not list the graph's nodes: {why}; register a graph that is alive and complete"
    ))
}
