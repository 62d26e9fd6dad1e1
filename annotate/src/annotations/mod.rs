//! Saved annotations: which node of which CUDA graph belongs to which zone.
//!
//! `warpline` reads the files of `warpline::graph::save`, `pytorch` the saved result of PyTorch's `get_kernel_annotations`. The content of
//! a file decides which reader is used. The readers check everything that the join relies on, so the join itself cannot fail.

mod pickle;
mod pytorch;
mod warpline;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use warpline_trace::read::event::Event;

use super::AnnotateError;
use super::open::open_within;

/// The maximum size of a file of annotations when decompressed, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    pub(super) graphs: Vec<Graph>,
    /// Full 64-bit node ids, with the graph and the node of each.
    ids: HashMap<u64, (u32, u32)>,
    /// The lower halves of the ids, for traces that contain only these; none if two nodes share one.
    halves: HashMap<u32, Option<(u32, u32)>>,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The name in messages: `graph 1 (block)`.
    pub(super) title: String,
    pub(super) zones: Vec<Zone>,
    pub(super) nodes: Vec<Node>,
    /// Why its nodes cannot be matched by order, if they cannot.
    pub(super) no_order: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: String,
    /// The row of the zone; none means the row of the enclosing zone.
    pub(super) lane: Option<String>,
    /// Its arguments, by the names that a trace shows.
    pub(super) args: Map<String, Value>,
    /// The entries of a batch of collectives. Each has the time of the batch.
    pub(super) entries: Vec<Zone>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// The kind of work that a profiler records; none for nodes that it does not record.
    pub(super) work: Option<Work>,
    /// The kernel's name in the driver.
    pub(super) kernel: Option<String>,
    /// The numbers of its zones, outermost first.
    pub(super) zones: Vec<u32>,
}

/// The kinds of device work that profilers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Kernel,
    Memcpy,
    Memset,
}

impl Work {
    /// The kind of device work of an event, by the categories of PyTorch's profiler.
    pub(super) fn of(event: &Event<'_>) -> Option<Work> {
        match &*event.category {
            "kernel" | "Kernel" => Some(Work::Kernel),
            "gpu_memcpy" | "Memcpy" => Some(Work::Memcpy),
            "gpu_memset" | "Memset" => Some(Work::Memset),
            _ => None,
        }
    }
}

impl Annotations {
    fn add_id(&mut self, id: u64, graph: usize, node: usize) {
        let place = (graph as u32, node as u32);
        self.ids.insert(id, place);
        self.halves
            .entry(id as u32)
            .and_modify(|known| *known = known.filter(|known| *known == place))
            .or_insert(Some(place));
    }

    /// The node of a kernel with this node id, which may be its lower half alone, and with this graph id, if it has one.
    pub(super) fn node(&self, id: u64, graph_id: Option<u64>) -> Option<(u32, u32)> {
        if id >> 32 != 0 {
            return self.ids.get(&id).copied();
        }
        match graph_id {
            Some(graph_id @ 1..=0xFFFF_FFFF) => self.ids.get(&(graph_id << 32 | id)).copied(),
            _ => self.halves.get(&(id as u32)).copied().flatten(),
        }
    }

    pub(super) fn has_ids(&self) -> bool {
        !self.ids.is_empty()
    }

    /// The zones of a node, outermost first.
    pub(super) fn zones_of(&self, graph: u32, node: u32) -> impl DoubleEndedIterator<Item = &Zone> {
        let graph = &self.graphs[graph as usize];
        graph.nodes[node as usize].zones.iter().map(|zone| &graph.zones[*zone as usize])
    }
}

impl Graph {
    /// Gives each zone without a lane the lane of the enclosing zone, and each entry without one the lane of its batch.
    fn inherit_lanes(&mut self) {
        for node in &self.nodes {
            for pair in node.zones.windows(2) {
                let outer = self.zones[pair[0] as usize].lane.clone();
                let inner = &mut self.zones[pair[1] as usize];
                inner.lane = inner.lane.take().or(outer);
            }
        }
        for zone in &mut self.zones {
            for entry in &mut zone.entries {
                entry.lane = entry.lane.take().or_else(|| zone.lane.clone());
            }
        }
    }
}

/// Why a file is not one of annotations.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// Reads a file of annotations, which may be compressed.
pub(super) fn read(path: &Path) -> Result<Annotations, AnnotateError> {
    let failed = |error| AnnotateError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    open_within(path, MAX_BYTES, |_| ())?.read_to_end(&mut bytes).map_err(failed)?;
    let not = |Unreadable(why)| AnnotateError::NotAnnotations { path: path.to_owned(), why };
    // A pickle of protocol 2 or later begins with the protocol number.
    let mut annotations = if bytes.first() == Some(&0x80) {
        let value = pickle::read(&bytes).map_err(not)?;
        pytorch::read(value).map_err(not)?
    } else {
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| not(Unreadable(error.to_string())))?;
        if value.get("format").is_some() {
            warpline::read(value).map_err(not)?
        } else {
            pytorch::read(value).map_err(not)?
        }
    };
    annotations.graphs.iter_mut().for_each(Graph::inherit_lanes);
    if annotations.graphs.iter().all(|graph| graph.zones.is_empty()) {
        return Err(not(Unreadable("none of its nodes belongs to a zone".to_owned())));
    }
    Ok(annotations)
}
