//! CUPTI's ids of graphs and their nodes, for drivers that have none.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::SUCCESS;
use super::gate;
use super::library::Cupti;
use crate::graph::ids::{NodeIds, Provided, provide};

struct Ids(&'static Cupti);

/// Gives CUPTI's ids to graphs that are registered while the result exists, if the driver has none.
pub(super) fn node_ids(cupti: &'static Cupti) -> Provided {
    provide(Arc::new(Ids(cupti)))
}

impl NodeIds for Ids {
    fn node_id(&self, node: *mut c_void) -> Option<u64> {
        let mut id = 0;
        // SAFETY: the caller holds the node; a valid out-pointer.
        let code = gate::inside(|_| unsafe { Some(self.0.symbols.graph_node_id?(node, &raw mut id)) })??;
        (code == SUCCESS && id != 0).then_some(id)
    }

    fn graph_id(&self, graph: *mut c_void) -> Option<u32> {
        let mut id = 0;
        // SAFETY: the caller holds the graph; a valid out-pointer.
        let code = gate::inside(|_| unsafe { Some(self.0.symbols.graph_id?(graph, &raw mut id)) })??;
        (code == SUCCESS).then_some(id)
    }

    fn exec_id(&self, exec: *mut c_void) -> Option<u32> {
        let mut id = 0;
        // SAFETY: the caller holds the executable graph; a valid out-pointer.
        let code = gate::inside(|_| unsafe { Some(self.0.symbols.graph_exec_id?(exec, &raw mut id)) })??;
        (code == SUCCESS).then_some(id)
    }
}
