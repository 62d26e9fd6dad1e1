//! The zones of graphs in a program that was built without feature `enable`: the same calls, and nothing behind them.

use std::ffi::c_void;
use std::io;
use std::path::Path;

use super::AsGraph;
use super::label::{GraphError, GraphNode, NodeCount, Unlabelled, ZoneLabel};

/// The zones of one graph's nodes: none, since this program was built without feature `enable`.
#[derive(Clone, Debug)]
pub struct GraphZones(());

#[allow(missing_docs, reason = "documented where they do something")]
impl GraphZones {
    pub fn of(_graph: &(impl AsGraph + ?Sized)) -> Result<GraphZones, GraphError> {
        Ok(GraphZones(()))
    }

    pub fn extend(&self, _graph: &(impl AsGraph + ?Sized)) -> Result<(), GraphError> {
        Ok(())
    }

    pub fn of_clone(
        &self,
        _original: &(impl AsGraph + ?Sized),
        _clone: &(impl AsGraph + ?Sized),
    ) -> Result<GraphZones, GraphError> {
        Ok(GraphZones(()))
    }

    /// # Safety
    /// None is needed.
    #[allow(unsafe_code)]
    pub unsafe fn add_exec(&self, _exec: *mut c_void) -> Result<(), GraphError> {
        Ok(())
    }

    pub fn inside(&self, _node: u32, _graph: &GraphZones) -> Result<(), GraphError> {
        Ok(())
    }

    #[must_use]
    pub fn named(self, _name: impl Into<String>) -> GraphZones {
        self
    }

    pub fn number(&self) -> u32 {
        0
    }

    pub fn nodes(&self) -> impl Iterator<Item = GraphNode> + use<> {
        std::iter::empty()
    }

    pub fn ranges(&self) -> Vec<NodeCount> {
        Vec::new()
    }

    pub fn lanes(&self) -> Vec<NodeCount> {
        Vec::new()
    }

    pub fn unlabelled(&self) -> Vec<Unlabelled> {
        Vec::new()
    }

    pub fn find(_exec: *mut c_void, _index: u32) -> Option<Vec<ZoneLabel>> {
        None
    }

    /// Writes no file.
    pub fn save(&self, _path: impl AsRef<Path>) -> io::Result<()> {
        Ok(())
    }
}

/// Writes no file: this program was built without feature `enable`.
///
/// # Errors
/// None.
pub fn save(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}
