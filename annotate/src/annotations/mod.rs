//! Saved annotations: which node of which CUDA graph belongs to which zone.
//!
//! `warpline` reads what `warpline::graph::save` writes, `pytorch` what PyTorch's `get_kernel_annotations` was saved as;
//! which of the two a file is, its content says. A reader checks everything that the join relies on, so that the join needs
//! no errors of its own.

mod pickle;
mod pytorch;
mod warpline;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::{AnnotateError, input};

/// The most bytes of a file of annotations, unpacked.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    pub(super) graphs: Vec<Graph>,
    /// Node ids of all 64 bits, with the graph and the node that they are of.
    ids: HashMap<u64, (u32, u32)>,
    /// The lower halves of the ids, for traces that have no more; none where two nodes share one.
    halves: HashMap<u32, Option<(u32, u32)>>,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    /// What messages call it: `graph 1 (block)`.
    pub(super) title: String,
    pub(super) zones: Vec<Zone>,
    pub(super) nodes: Vec<Node>,
    /// Why its nodes cannot be told by their order, if they cannot.
    pub(super) no_order: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct Zone {
    pub(super) name: String,
    /// The row that shows it; none is that of the zone around it.
    pub(super) lane: Option<String>,
    /// What it says, by the names that a trace shows.
    pub(super) args: Map<String, Value>,
    /// Of a batch of collectives: each has the batch's time.
    pub(super) entries: Vec<Zone>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// What a profiler records of it; none for nodes that it has no record of.
    pub(super) work: Option<Work>,
    /// The kernel's name, as the driver has it.
    pub(super) kernel: Option<String>,
    /// Its zones by number, outermost first.
    pub(super) zones: Vec<u32>,
}

/// What a node does on the device, as far as profilers tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Kernel,
    Memcpy,
    Memset,
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

    /// The node of a kernel that says its node's id, in full or the lower half of it, and may say its graph's.
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

    /// The zones of a node from the outermost one.
    pub(super) fn zones_of(&self, graph: u32, node: u32) -> impl DoubleEndedIterator<Item = &Zone> {
        let graph = &self.graphs[graph as usize];
        graph.nodes[node as usize].zones.iter().map(|zone| &graph.zones[*zone as usize])
    }
}

impl Graph {
    /// Gives each zone without a lane that of the zone around it, and each entry without one that of its batch.
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

/// Why a file of annotations is none.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// Reads a file of annotations, packed or not.
pub(super) fn read(path: &Path) -> Result<Annotations, AnnotateError> {
    let failed = |error| AnnotateError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    input::open(path, MAX_BYTES, |_| ())?.read_to_end(&mut bytes).map_err(failed)?;
    let not = |Unreadable(why)| AnnotateError::NotAnnotations { path: path.to_owned(), why };
    // A pickle of protocol 2 or later begins with its number.
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
        return Err(not(Unreadable("no node in it belongs to a zone".to_owned())));
    }
    Ok(annotations)
}
