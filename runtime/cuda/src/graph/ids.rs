//! The ids by which tools identify the nodes of instantiated graphs, and the labels that belong to such an id.
//!
//! A kernel record of a replay contains `exec_id << 32 | n`. The driver has such ids since 13.1; for older drivers, CUPTI registers a
//! [`NodeIds`] here when it starts. Without either, a node has no id.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::label::{NodeKind, ZoneLabel};
use crate::driver::Driver;
use crate::graph::NodeIdSource;
use crate::graph_api::Handle;
use warpline_core::lock::lock;

/// A source of the 64-bit ids by which tools identify a node of an instantiated graph.
pub(crate) trait NodeIds: Send + Sync {
    /// Returns the id of a captured node: the graph's id, and below it 32 bits that are the same in every executable graph made of it.
    fn node_id(&self, node: *mut c_void) -> Option<u64>;
    /// Returns a graph's id.
    fn graph_id(&self, graph: *mut c_void) -> Option<u32>;
    /// Returns an executable graph's id.
    fn exec_id(&self, exec: *mut c_void) -> Option<u32>;
}

/// The registered source. No user code runs under its lock.
static PROVIDER: Mutex<Option<Arc<dyn NodeIds>>> = Mutex::new(None);

/// Registers a source of ids that the driver lacks, until the result is dropped. Graphs that are already registered get them when they are
/// registered again.
#[allow(dead_code, reason = "for tools that know ids where the driver does not tell them")]
pub(crate) fn provide(ids: Arc<dyn NodeIds>) -> Provided {
    *lock(&PROVIDER) = Some(Arc::clone(&ids));
    Provided(ids)
}

/// The registration of a source of ids.
pub(crate) struct Provided(Arc<dyn NodeIds>);

impl Drop for Provided {
    /// Removes the source, unless a later one has replaced it.
    fn drop(&mut self) {
        let mut provider = lock(&PROVIDER);
        if provider.as_ref().is_some_and(|provider| Arc::ptr_eq(provider, &self.0)) {
            *provider = None;
        }
    }
}

/// The graph and the zones of a node.
#[derive(Debug)]
#[allow(dead_code, reason = "for readers of kernel records")]
pub(crate) struct NodeLabels {
    /// [`GraphZones::number`](super::GraphZones::number).
    pub(crate) graph: u32,
    /// The name from [`GraphZones::named`](super::GraphZones::named).
    pub(crate) name: Option<Arc<str>>,
    /// Outermost first.
    pub(crate) zones: Vec<ZoneLabel>,
    /// Whether it is a node of the graph itself. For others, only the zones that certainly contain it are known.
    pub(crate) is_own: bool,
    /// If a node inside may have its id, the number of zones that remain valid when that id comes again in the same replay.
    pub(crate) in_doubt: Option<usize>,
    /// The bodies of conditional nodes that contain it, outermost first.
    pub(crate) levels: Box<[BodyLevel]>,
    /// Whether no work of the graph itself comes before it.
    pub(crate) is_first: bool,
}

/// The body of a conditional node around a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "for readers of kernel records")]
pub(crate) struct BodyLevel {
    /// The index of the conditional node.
    pub(crate) conditional: u32,
    /// The index of the node, or of the conditional node in the body that contains it.
    pub(crate) member: u32,
    /// The number of zones around the conditional node.
    pub(crate) around: usize,
    /// Whether `member` is the node itself.
    pub(crate) is_last: bool,
}

/// The key by which labels are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LabelKey {
    /// A node of the graph itself, by its index.
    Own(u32),
    /// A node of a graph inside, by its index.
    Inner(u32),
    /// Another node of this kind and name, which is not of the graph itself.
    Other(NodeKind, Arc<str>),
}

/// The ids of the driver, or else of the registered source.
pub(super) struct Ids {
    driver: &'static Driver,
    provider: Option<Arc<dyn NodeIds>>,
}

impl Ids {
    pub(super) fn new(driver: &'static Driver) -> Ids {
        Ids { driver, provider: lock(&PROVIDER).clone() }
    }

    /// Returns the id of a captured node, and its source.
    pub(super) fn node(&self, node: Handle) -> Option<(u64, NodeIdSource)> {
        let tools = self.driver.node_tools_id(node).map(|id| (id, NodeIdSource::Tools));
        tools.or_else(|| Some((self.provider.as_ref()?.node_id(node as *mut c_void)?, NodeIdSource::Cupti)))
    }

    pub(super) fn graph(&self, graph: Handle) -> Option<u32> {
        self.driver.graph_id(graph).or_else(|| self.provider.as_ref()?.graph_id(graph as *mut c_void))
    }

    pub(super) fn exec(&self, exec: Handle) -> Option<u32> {
        self.driver.exec_id(exec).or_else(|| self.provider.as_ref()?.exec_id(exec as *mut c_void))
    }
}
