//! The ids by which tools know the nodes of instantiated graphs, and the way from such an id to a node's zones.
//!
//! A kernel record of a replay carries `exec_id << 32 | n`. The driver tells such ids since 13.1; before that CUPTI does,
//! which hands a [`NodeIds`] in here when it starts. Without either a node has no id.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::label::{NodeKind, ZoneLabel};
use crate::driver::Driver;
use crate::graphs::Handle;
use crate::graph::NodeIdSource;
use warpline_core::lock::lock;

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

/// Nothing of a user's runs under its lock.
static PROVIDER: Mutex<Option<Arc<dyn NodeIds>>> = Mutex::new(None);

/// From now on ids that the driver does not tell come from here, until what this gives is dropped. Graphs that are registered
/// already get them when they are registered again.
#[allow(dead_code, reason = "for tools that know ids where the driver does not tell them")]
pub(crate) fn provide(ids: Arc<dyn NodeIds>) -> Provided {
    *lock(&PROVIDER) = Some(Arc::clone(&ids));
    Provided(ids)
}

/// Whoever is asked for ids meanwhile.
pub(crate) struct Provided(Arc<dyn NodeIds>);

impl Drop for Provided {
    /// Nobody is asked any more, but for one who came later.
    fn drop(&mut self) {
        let mut provider = lock(&PROVIDER);
        if provider.as_ref().is_some_and(|provider| Arc::ptr_eq(provider, &self.0)) {
            *provider = None;
        }
    }
}

/// What a node belongs to.
#[derive(Debug)]
#[allow(dead_code, reason = "for readers of kernel records")]
pub(crate) struct NodeLabels {
    /// [`GraphZones::number`](super::GraphZones::number).
    pub(crate) graph: u32,
    /// What [`GraphZones::named`](super::GraphZones::named) called it.
    pub(crate) name: Option<Arc<str>>,
    /// Outermost first.
    pub(crate) zones: Vec<ZoneLabel>,
    /// It is a node of the graph itself. Of any other only those zones are known that it surely is in.
    pub(crate) is_own: bool,
    /// A node inside may have its id: if that comes again in the same replay, only so many of the zones hold.
    pub(crate) in_doubt: Option<usize>,
}

/// What labels are remembered by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LabelKey {
    /// A node of the graph itself, by its index.
    Own(u32),
    /// What has this kind and this name, and is no node of the graph itself.
    Other(NodeKind, Arc<str>),
}

/// Asks the driver first, then whoever was provided.
pub(super) struct Ids {
    driver: &'static Driver,
    provider: Option<Arc<dyn NodeIds>>,
}

impl Ids {
    pub(super) fn new(driver: &'static Driver) -> Ids {
        Ids { driver, provider: lock(&PROVIDER).clone() }
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
