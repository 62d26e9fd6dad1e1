//! The ids by which tools know the nodes of instantiated graphs, and the way from such an id to a node's zones.
//!
//! A kernel record of a replay carries `exec_id << 32 | n`. The driver tells such ids since 13.1; before that CUPTI does,
//! which hands a [`NodeIds`] in here when it starts. Without either a node has no id.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::label::ZoneLabel;
use super::registry;
use crate::backend::cuda::driver::Driver;
use crate::backend::cuda::graphs::Handle;
use crate::graph::NodeIdSource;

/// Tells the 64-bit ids by which tools know a node of an instantiated graph.
#[allow(dead_code, reason = "for tools that know ids where the driver does not tell them")]
pub(crate) trait NodeIds: Send + Sync {
    /// The id of a captured node: the graph's id, and below it 32 bits that stay in every executable graph made of it.
    fn node_id(&self, node: *mut c_void) -> Option<u64>;
    /// A graph's id.
    fn graph_id(&self, graph: *mut c_void) -> Option<u32>;
    /// An executable graph's id.
    fn exec_id(&self, exec: *mut c_void) -> Option<u32>;
}

static PROVIDER: Mutex<Option<Arc<dyn NodeIds>>> = Mutex::new(None);

/// From now on ids that the driver does not tell come from here. Graphs that are registered already get them when they are
/// registered again.
#[allow(dead_code, reason = "for tools that know ids where the driver does not tell them")]
pub(crate) fn provide(ids: Arc<dyn NodeIds>) {
    *PROVIDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(ids);
}

/// What a replayed node belongs to, by the id a kernel record carries (`exec_id << 32 | index`).
#[allow(dead_code, reason = "for readers of kernel records")]
pub(crate) fn labels(graph_node_id: u64) -> Option<Arc<NodeLabels>> {
    registry::of_exec_id((graph_node_id >> 32) as u32)?.labels(graph_node_id as u32)
}

/// What a node belongs to.
#[derive(Debug)]
#[allow(dead_code, reason = "for readers of kernel records")]
pub(crate) struct NodeLabels {
    /// [`GraphZones::number`](super::GraphZones::number).
    pub(crate) graph: u32,
    /// What [`GraphZones::named`](super::GraphZones::named) called it.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) index: u32,
    /// Outermost first.
    pub(crate) zones: Vec<ZoneLabel>,
}

/// Asks the driver first, then whoever was provided.
pub(super) struct Ids {
    driver: &'static Driver,
    provider: Option<Arc<dyn NodeIds>>,
}

impl Ids {
    pub(super) fn new(driver: &'static Driver) -> Ids {
        Ids { driver, provider: PROVIDER.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    /// The id of a captured node, and who told it.
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
