//! What a program holds beside its graph. Without feature `enable` it holds nothing, and no graph has zones.

use std::ffi::c_void;
use std::io;
use std::path::Path;

use super::AsGraph;
use super::label::{GraphError, GraphNode, NodeCount, Unlabelled, ZoneLabel};
use super::registered::Read;
use super::registry::Held;
use super::{captures, json, registry};
use crate::driver::{CudaError, Driver};
use crate::graphs::Handle;
use std::sync::Arc;
use warpline_core::signals::without_signals;

/// The zones of one graph's nodes.
///
/// `Send` and `Sync`; cloning shares. Keep it as long as the graph, and register right behind the capture: what zones noted
/// waits for at most 256 captures. The graph's handles are only used during calls that are given it.
#[derive(Clone, Debug)]
pub struct GraphZones(#[cfg(feature = "runtime")] Arc<Held>);

#[cfg_attr(not(feature = "runtime"), allow(unused_variables))]
impl GraphZones {
    /// The zones of a graph whose capture is over, and of the executable graph that comes with it. For a graph that is
    /// registered already it gives the same zones, and one more executable graph of it: so call it again behind each
    /// instantiation.
    ///
    /// It asks the driver for the graph's nodes and edges, about 0.1 µs each; nothing is changed.
    ///
    /// # Errors
    /// There is no driver, or it does not tell the graph's nodes.
    pub fn for_graph(graph: &(impl AsGraph + ?Sized)) -> Result<GraphZones, GraphError> {
        warpline_core::if_feature!(
            "runtime",
            {
                let (driver, (graph, exec)) = (driver()?, handles(graph)?);
                // Another thread may be capturing, in a mode in which it minds what others call.
                let held = driver.outside_captures(|| {
                    registry::register(driver, graph, exec, |read| captures::take(graph, |node| read.has(node)))
                });
                held.map(GraphZones).map_err(|error| failed(driver, error))
            },
            Ok(GraphZones())
        )
    }

    /// Adds what was captured into the same graph since (`cuStreamBeginCaptureToGraph`).
    ///
    /// # Errors
    /// As [`for_graph`](Self::for_graph).
    pub fn extend(&self, graph: &(impl AsGraph + ?Sized)) -> Result<(), GraphError> {
        warpline_core::if_feature!(
            "runtime",
            {
                let (driver, (graph, _)) = (driver()?, handles(graph)?);
                let extended = driver.outside_captures(|| {
                    registry::extend(driver, &self.0.0, graph, |read| captures::take(graph, |node| read.has(node)))
                });
                extended.map_err(|error| failed(driver, error))
            },
            Ok(())
        )
    }

    /// The zones of a clone (`cuGraphClone`), which are those of the graph that it was made of. `original` is that graph.
    ///
    /// # Errors
    /// As [`for_graph`](Self::for_graph).
    pub fn of_clone(
        &self,
        original: &(impl AsGraph + ?Sized),
        clone: &(impl AsGraph + ?Sized),
    ) -> Result<GraphZones, GraphError> {
        warpline_core::if_feature!(
            "runtime",
            {
                let (driver, (original, _), (graph, exec)) = (driver()?, handles(original)?, handles(clone)?);
                let held = driver.outside_captures(|| {
                    let nodes: Vec<_> = Read::graph(driver, original)?.handles().collect();
                    registry::register_clone(driver, &self.0.0, graph, exec, &nodes)
                });
                held.map(GraphZones).map_err(|error| failed(driver, error))
            },
            Ok(GraphZones())
        )
    }

    /// The executable graph was instantiated from this graph, or updated with it (`cuGraphExecUpdate`): from now on its
    /// replays are this graph's. One that belonged to another graph does not any more.
    ///
    /// # Errors
    /// There is no driver.
    ///
    /// # Safety
    /// `exec` is a live `CUgraphExec`.
    #[allow(unsafe_code)]
    pub unsafe fn add_exec(&self, exec: *mut c_void) -> Result<(), GraphError> {
        warpline_core::if_feature!(
            "runtime",
            {
                let driver = driver()?;
                driver.outside_captures(|| registry::add_exec(driver, exec as Handle, &self.0.0));
                Ok(())
            },
            Ok(())
        )
    }

    /// Says which graph is inside a node: for a child-graph node the one that it was made of, whose nodes are paired by their
    /// order; for a conditional node the one of its body, whose nodes are then among [`nodes`](Self::nodes). The zones of that graph
    /// are inside those of the node.
    ///
    /// # Errors
    /// The node has no graph inside, or one with another number of nodes.
    pub fn inside(&self, node: u32, graph: &GraphZones) -> Result<(), GraphError> {
        warpline_core::if_feature!(
            "runtime",
            self.0.0.set_inside(graph.0.0.as_inside(node)).map_err(GraphError),
            Ok(())
        )
    }

    /// Calls the graph by a name, in annotations and traces.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> GraphZones {
        warpline_core::if_feature!(
            "runtime",
            {
                self.0.0.set_name(name.into());
                self
            },
            self
        )
    }

    /// Counts the graphs that the process registers from 1.
    pub fn number(&self) -> u32 {
        warpline_core::if_feature!("runtime", self.0.0.number, 0)
    }

    /// Every node with the zones that it is in.
    pub fn nodes(&self) -> impl Iterator<Item = GraphNode> + use<> {
        warpline_core::if_feature!("runtime", self.0.0.nodes().into_iter(), std::iter::empty())
    }

    /// Nodes by range: that of the innermost zone.
    pub fn ranges(&self) -> Vec<NodeCount> {
        warpline_core::if_feature!(
            "runtime",
            self.0.0.count(|path, zones| path.last().map(|zone| zones[*zone as usize].label.range.name().into())),
            Vec::new()
        )
    }

    /// Nodes by the lane on which a trace shows them in each replay: that of the innermost zone that has one. A collective whose
    /// range has none has that of its group ([`ProcessGroup::lane`](warpline_core::collective::ProcessGroup::lane)).
    pub fn lanes(&self) -> Vec<NodeCount> {
        warpline_core::if_feature!(
            "runtime",
            self.0.0.count(|path, zones| path.iter().rev().find_map(|zone| zones[*zone as usize].label.lane())),
            Vec::new()
        )
    }

    /// Nodes with bodies that nobody can look into: their kernels run, and are not among [`nodes`](Self::nodes).
    pub fn unlabelled(&self) -> Vec<Unlabelled> {
        warpline_core::if_feature!("runtime", self.0.0.unlabelled(), Vec::new())
    }

    /// The zones of a node, outermost first, by a registered executable graph and the index that the node has in it (the low
    /// half of the `graph node id` in a profiler's records); none for one that is not registered.
    pub fn find(exec: *mut c_void, index: u32) -> Option<Vec<ZoneLabel>> {
        warpline_core::if_feature!("runtime", registry::of_exec(exec as Handle)?.zones_at(index), None)
    }

    /// Writes the annotations of this graph as JSON, as `docs/graph.schema.json` describes it.
    ///
    /// # Errors
    /// What the operating system says of the file.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        warpline_core::if_feature!(
            "runtime",
            without_signals(|| std::fs::write(path, json::document(&[Arc::clone(&self.0.0)]))),
            Ok(())
        )
    }
}

/// Writes the annotations of every registered graph as JSON, as `docs/graph.schema.json` describes it. Of graphs whose
/// [`GraphZones`] are gone the latest 256 are among them.
///
/// # Errors
/// What the operating system says of the file.
pub fn save(path: impl AsRef<Path>) -> io::Result<()> {
    warpline_core::if_feature!("runtime", without_signals(|| std::fs::write(path, json::document(&registry::all()))), {
        let _ = path;
        Ok(())
    })
}

/// The handles of a graph and of its executable graph, which may be null.
fn handles(graph: &(impl AsGraph + ?Sized)) -> Result<(Handle, Handle), GraphError> {
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

fn driver() -> Result<&'static Driver, GraphError> {
    Driver::get().map_err(|error| GraphError(error.0))
}

fn failed(driver: &Driver, error: CudaError) -> GraphError {
    let why = driver.describe(error).0;
    GraphError(format!(
        "the driver does not list the graph's nodes: {why}; register a graph that is alive and complete"
    ))
}
