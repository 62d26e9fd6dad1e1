//! The labels of nodes that were added to graphs without a capture, until their graph is registered.
//!
//! `labelling` adds them, and the registration of a graph takes them. Nothing here calls the driver. A driver may give the handle of a
//! destroyed graph to another one. A label is therefore only taken by a graph that has all its nodes, and the same id if ids are known.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::captured_zone::CapturedZone;
use crate::graph_api::Handle;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::plural::counted_as;

/// The maximum number of labels that wait for their graph to be registered, and of their nodes.
const MOST_LABELS: usize = 1 << 16;
const MOST_NODES: usize = 1 << 20;

/// No other lock is taken under this one.
static PENDING: PerProcess<Mutex<Pending>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Pending {
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    nodes: usize,
    /// The counts since the last notes.
    counts: Counts,
}

struct Waiting {
    graph: Handle,
    graph_id: Option<u32>,
    zone: CapturedZone,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Labels of any graph.
    added: u64,
    /// Labels that made room for newer ones.
    evicted: u64,
    /// Labels of nodes that the graph of this handle lacks.
    stale: u64,
    /// Guards whose graph could not be read when they were dropped.
    failed: u64,
}

impl Waiting {
    fn count(&self) -> usize {
        self.zone.nodes.as_ref().map_or(0, |nodes| nodes.len())
    }
}

/// Adds a label of a graph that is not registered.
pub(super) fn add(graph: Handle, graph_id: Option<u32>, zone: CapturedZone) {
    let mut pending = lock(&PENDING);
    let waiting = Waiting { graph, graph_id, zone };
    pending.nodes += waiting.count();
    pending.waiting.push_back(waiting);
    while pending.waiting.len() > MOST_LABELS || pending.nodes > MOST_NODES {
        let Some(oldest) = pending.waiting.pop_front() else { break };
        pending.nodes -= oldest.count();
        pending.counts.evicted += 1;
    }
}

/// Takes the labels of a graph. `has` returns whether the graph, or one inside it, has a node.
pub(super) fn take(graph: Handle, graph_id: Option<u32>, has: impl Fn(Handle) -> bool) -> Vec<CapturedZone> {
    let mut pending = lock(&PENDING);
    let (taken, left): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(&mut pending.waiting).into_iter().partition(|waiting| waiting.graph == graph);
    pending.waiting = left;
    pending.nodes -= taken.iter().map(Waiting::count).sum::<usize>();
    let count = taken.len();
    let is_of_graph = |waiting: &Waiting| {
        waiting.graph_id.zip(graph_id).is_none_or(|(known, id)| known == id)
            && waiting.zone.nodes.iter().flat_map(|nodes| nodes.iter()).all(|node| has(*node))
    };
    let zones: Vec<_> = taken.into_iter().filter(is_of_graph).map(|waiting| waiting.zone).collect();
    pending.counts.stale += (count - zones.len()) as u64;
    zones
}

/// Counts a label, for the note on stamps.
pub(super) fn count_added() {
    lock(&PENDING).counts.added += 1;
}

/// Counts a guard that could not read its graph.
pub(super) fn count_failed() {
    lock(&PENDING).counts.failed += 1;
}

/// Returns the report's notes on labels since the last call, with remedies. `has_stamps`: the session times replays by stamps.
pub(super) fn notes(has_stamps: bool) -> impl Iterator<Item = String> {
    let Counts { added, evicted, stale, failed } = std::mem::take(&mut lock(&PENDING).counts);
    let stamps = (has_stamps && added > 0).then(|| {
        let labels = counted_as(added, "label of nodes is", "labels of nodes are");
        format!(
            "{labels} not timed by stamps: a stamp is a node that warpline captures, and it adds none to a graph that is built without a \
             capture; record `kernels` for the times of such zones in replays"
        )
    });
    let evicted = (evicted > 0).then(|| {
        let labels = counted_as(evicted, "label of nodes was", "labels of nodes were");
        format!(
            "{labels} discarded to make room for newer ones, because the graphs were not registered: pass each graph to \
             `warpline::graph::GraphZones::for_graph` when it is complete"
        )
    });
    let stale = (stale > 0).then(|| {
        let labels = counted_as(stale, "label of nodes was", "labels of nodes were");
        format!(
            "{labels} discarded, because the graph that was registered lacks one of the nodes: register a graph before you destroy it or \
             one of its nodes"
        )
    });
    let failed = (failed > 0).then(|| {
        let labels = counted_as(failed, "label of added nodes was", "labels of added nodes were");
        format!(
            "{labels} discarded, because the driver did not list the graph's nodes: end a `warpline::graph::AddedNodes` while its graph is alive"
        )
    });
    [stamps, evicted, stale, failed].into_iter().flatten()
}
