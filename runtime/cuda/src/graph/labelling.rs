//! Labels for the nodes of graphs that are built without a capture (`cuGraphAddKernelNode` and its relatives).
//!
//! A program names the nodes of a zone ([`GraphZones::label`]), or adds them while an [`AddedNodes`] exists. Handles of nodes are only
//! compared with those that the driver lists for the graph, and never passed to the driver, so no handle of a node can do harm. Labels
//! change neither the graph nor the driver's state, and need no session.

use std::collections::HashSet;
use std::fmt;
use std::fmt::Display;
use std::sync::Arc;

use super::captured_zone::CapturedZone;
use super::handles::{AsGraph, GraphRef};
use super::label::{GraphError, NodeKind, ZoneLabel};
use super::pending;
use super::registry;
use super::zones::{GraphZones, IS_ON, driver, failed, handles};
use crate::driver::{CudaError, Driver};
use crate::graph::ids::Ids;
use crate::graph_api::Handle;
use warpline_core::catalog::RangeSpec;
use warpline_core::clock::now_ns;
use warpline_core::collective::Message;
use warpline_core::fields::{Fields, IntoValue, Value};
use warpline_core::record::Status;

/// The depth to which graphs within graphs are searched for a node.
const DEEPEST: usize = 16;

impl GraphZones {
    /// Labels nodes of a graph that was built without a capture: they are in a zone of this range, with these fields. `nodes` are
    /// `CUgraphNode`s of any binding, of the graph itself or of a graph inside it; a graph inside a labelled node is in the zone, too.
    ///
    /// Label a graph's nodes before you register the graph with [`for_graph`](Self::for_graph). If the graph is already registered, the
    /// label is added to it: an executable graph keeps no copy, so replays that are read afterwards have it. Nodes that were added since
    /// are labelled by the next [`extend`](Self::extend).
    ///
    /// A node may have several labels. The zone with more nodes is around the other one; of two with equally many, the first label is. The
    /// same rule orders labels and captured zones.
    ///
    /// It queries the driver for the graph's nodes, and changes nothing.
    ///
    /// # Errors
    /// There is no driver, a handle is null, a node is not in the graph, or the driver does not list the graph's nodes. Then no node is
    /// labelled.
    pub fn label<N>(
        graph: &(impl AsGraph + ?Sized),
        nodes: impl IntoIterator<Item = *mut N>,
        range: &'static RangeSpec,
        fields: &[(&'static str, Value)],
    ) -> Result<(), GraphError> {
        let nodes: Vec<Handle> = nodes.into_iter().map(|node| node as Handle).collect();
        if let Some(null) = nodes.iter().position(|node| *node == 0) {
            return Err(GraphError(format!(
                "the handle of node {null} of those given is null: pass nodes that were added to the graph"
            )));
        }
        if !IS_ON {
            return handles(graph).map(drop);
        }
        let (driver, (graph, _)) = (driver()?, handles(graph)?);
        let nodes: HashSet<Handle> = nodes.into_iter().collect();
        driver.outside_captures(|| {
            let missing = missing(driver, graph, &nodes).map_err(|error| failed(driver, error))?;
            if let Some(node) = missing {
                return Err(GraphError(format!(
                    "node {node:#x} is not in the graph, nor in a graph inside it: label it with the graph to which it was added"
                )));
            }
            let mut given = Fields::default();
            for (name, value) in fields {
                given.push(name, value.clone());
            }
            add(driver, graph, nodes, zone(range, &given, None, now_ns()));
            Ok(())
        })
    }

    /// Labels what is added to a graph from now until the result is dropped or [`end`](AddedNodes::end)ed. Child graphs are labelled with
    /// the node that contains them.
    ///
    /// It queries the driver for the graph's nodes now and at the end, and changes nothing. Guards may be nested.
    ///
    /// # Errors
    /// There is no driver, the graph's handle is null, or the driver does not list its nodes.
    pub fn label_added<'a>(
        graph: &'a (impl AsGraph + ?Sized),
        range: &'static RangeSpec,
    ) -> Result<AddedNodes<'a>, GraphError> {
        let (handle, _) = handles(graph)?;
        let mut before = HashSet::new();
        if IS_ON {
            let driver = driver()?;
            let nodes = driver.outside_captures(|| driver.graph_nodes(handle));
            before.extend(nodes.map_err(|error| failed(driver, error))?);
        }
        Ok(AddedNodes {
            graph: graph.as_graph(),
            range,
            before,
            fields: Fields::default(),
            message: None,
            begin_ns: now_ns(),
        })
    }
}

/// Labels the nodes that are added to a graph while it exists: see [`GraphZones::label_added`].
#[must_use = "it labels what is added before it is dropped"]
pub struct AddedNodes<'a> {
    graph: GraphRef<'a>,
    range: &'static RangeSpec,
    before: HashSet<Handle>,
    fields: Fields,
    message: Option<Message>,
    begin_ns: i64,
}

impl fmt::Debug for AddedNodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddedNodes")
            .field("range", &self.range.name())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

impl AddedNodes<'_> {
    /// Adds a field, as [`ZoneBuilder::field`](warpline_core::zone::ZoneBuilder::field) does.
    pub fn field(mut self, name: &'static str, value: impl IntoValue) -> Self {
        self.fields.push(name, value);
        self
    }

    /// Sets the zone's own label, as [`ZoneBuilder::label`](warpline_core::zone::ZoneBuilder::label) does.
    pub fn label(mut self, label: impl Display) -> Self {
        self.fields.set_label(label);
        self
    }

    /// Sets what a collective moves, as [`ZoneBuilder::message`](warpline_core::zone::ZoneBuilder::message) does.
    pub fn message(mut self, message: Message) -> Self {
        self.message = Some(message);
        self
    }

    /// Ends it, and returns the number of nodes that were added to the graph. If there are none, nothing is labelled.
    ///
    /// # Errors
    /// The driver does not list the graph's nodes. A guard that is dropped counts that in the report.
    pub fn end(mut self) -> Result<usize, GraphError> {
        let ended = self.label_nodes(Status::Complete);
        std::mem::forget(self);
        ended
    }

    fn label_nodes(&mut self, status: Status) -> Result<usize, GraphError> {
        if !IS_ON {
            return Ok(0);
        }
        let before = std::mem::take(&mut self.before);
        let (driver, graph) = (driver()?, self.graph.graph as Handle);
        driver.outside_captures(|| {
            let nodes = driver.graph_nodes(graph).map_err(|error| failed(driver, error))?;
            let added: HashSet<Handle> = nodes.into_iter().filter(|node| !before.contains(node)).collect();
            let count = added.len();
            if count > 0 {
                let mut zone = zone(self.range, &self.fields, self.message.take(), self.begin_ns);
                zone.label.status = status;
                add(driver, graph, added, zone);
            }
            Ok(count)
        })
    }
}

impl Drop for AddedNodes<'_> {
    fn drop(&mut self) {
        let status = if std::thread::panicking() { Status::Panicked } else { Status::Complete };
        if self.label_nodes(status).is_err() {
            pending::count_failed();
        }
    }
}

fn zone(range: &'static RangeSpec, fields: &Fields, message: Option<Message>, begin_ns: i64) -> CapturedZone {
    let label = ZoneLabel {
        range,
        label: fields.label().map(Arc::from),
        fields: fields.iter().map(|(name, value)| (name, value.clone())).collect(),
        entries: Arc::from(Vec::new()),
        lane: fields.lane(),
        message: message.map(Arc::new),
        status: Status::Complete,
        stream: 0,
    };
    CapturedZone { stream: 0, begin: None, begin_ns, end: None, label, nodes: None }
}

/// Adds a label to the registered graph that has all its nodes; otherwise it waits for the graph to be registered.
fn add(driver: &'static Driver, graph: Handle, nodes: HashSet<Handle>, zone: CapturedZone) {
    if nodes.is_empty() {
        return;
    }
    pending::count_added();
    let zone = CapturedZone { nodes: Some(nodes.into_iter().collect()), ..zone };
    let graph_id = Ids::new(driver).graph(graph);
    if let Some(zone) = registry::add_label(graph, graph_id, zone) {
        pending::add(graph, graph_id, zone);
    }
}

/// Returns one of these nodes that neither the graph nor a graph inside it has.
fn missing(driver: &Driver, graph: Handle, nodes: &HashSet<Handle>) -> Result<Option<Handle>, CudaError> {
    let mut missing = nodes.clone();
    let mut level = vec![graph];
    for depth in 0..=DEEPEST {
        let mut inside = Vec::new();
        for graph in std::mem::take(&mut level) {
            let found = match driver.graph_nodes(graph) {
                Err(error) if depth == 0 => return Err(error),
                found => found.unwrap_or_default(),
            };
            found.iter().for_each(|node| {
                missing.remove(node);
            });
            inside.extend(found);
        }
        if missing.is_empty() || inside.is_empty() {
            break;
        }
        let graphs = inside.into_iter().flat_map(|node| match NodeKind::from_raw(driver.node_type(node)) {
            NodeKind::Graph => driver.child_graph(node).into_iter().collect(),
            NodeKind::Conditional => driver.bodies(node).unwrap_or_default(),
            _ => Vec::new(),
        });
        level = graphs.collect();
    }
    Ok(missing.into_iter().next())
}
