//! The node of a graph that executed a kernel, according to the kernel's record.
//!
//! A node of the graph itself is identified by its id. The ids of nodes inside others, in child graphs and bodies of conditional nodes, are
//! not documented, and may repeat those of the graph's own nodes. In a graph with such nodes, kind and name must therefore match too. If
//! two kernels of one replay have the same id, neither is assigned to the graph's own node.
//!
//! Drivers for CUDA 13.0 number the nodes inside after those of the graph itself (`GraphState::number_inside`). Such a number counts if kind and
//! name match. If they do not match once, the driver numbers otherwise, and the numbers of this graph are no longer used. A kernel whose
//! node is unknown is in the zones that all its possible nodes have in common.

use std::sync::Arc;

use super::ids::{LabelKey, NodeLabels};
use super::label::NodeKind;
use super::registered::{GraphState, Node, Registered};
use super::registry;
use crate::stamps;
use warpline_core::catalog::RangeSpec;
use warpline_core::kernel::{KernelRecord, KernelWork};

/// Returns the id of the executable graph of a kernel, and the labels of the kernel's node; none if the graph is not registered. `exec` is
/// that of the kernel's launch, if another kernel has identified it. A stamp has no labels.
pub(crate) fn executed(kernel: &KernelRecord, exec: Option<u32>) -> Option<(u32, Option<Arc<NodeLabels>>)> {
    let node = kernel.graph?;
    let (high, low) = ((node.node >> 32) as u32, node.node as u32);
    if let Some(graph) = registry::of_exec_id(high) {
        return Some((high, graph.executed(Some(low), kernel)));
    }
    // The node is in a graph inside another node.
    let exec = exec.unwrap_or(node.graph);
    Some((exec, registry::of_exec_id(exec)?.executed(None, kernel)))
}

/// Returns the range of the innermost zone in which the node of a replay's kernel was captured; none if the graph is not registered.
pub fn captured_range(kernel: &KernelRecord) -> Option<&'static RangeSpec> {
    let (_, labels) = executed(kernel, None)?;
    labels?.zones.last().map(|label| label.range)
}

impl Registered {
    /// Returns the labels of a kernel of one of the graph's replays; none for a stamp. `low` is the low half of its node's id, if the high
    /// half is that of an executable graph of this graph.
    pub(super) fn executed(&self, low: Option<u32>, kernel: &KernelRecord) -> Option<Arc<NodeLabels>> {
        let mut state = self.walked();
        let kind = kind_of(&kernel.work);
        let own = low.and_then(|low| state.index_of(low));
        let is_own = |index: &u32| {
            let node = state.nodes.get(*index as usize).filter(|_| (*index as usize) < state.own);
            node.is_some_and(|node| !state.has_graphs_inside() || node.is(kind, &kernel.name))
        };
        let own = own.filter(is_own);
        let inner = if own.is_none() { low.and_then(|low| state.inner_of(low, kind, &kernel.name)) } else { None };
        let (key, own) = match (own, inner) {
            (Some(index), _) => (LabelKey::Own(index), state.nodes.get(index as usize)),
            (None, Some(index)) => (LabelKey::Inner(index), state.nodes.get(index as usize)),
            (None, None) => (LabelKey::Other(kind, Arc::clone(&kernel.name)), None),
        };
        if &*kernel.name == stamps::NAME || own.is_some_and(|own| own.stamp.is_some()) {
            return None;
        }
        if let Some(known) = state.known.get(&key) {
            return Some(Arc::clone(known));
        }
        let labels = match key {
            LabelKey::Own(index) => {
                let mut others = state.inside(kind, &kernel.name).peekable();
                let is_alone = others.peek().is_none();
                let sure = common(others.chain([state.path(index)])).len();
                let in_doubt = (!is_alone).then_some(sure);
                NodeLabels { in_doubt, ..state.labels(self.number, state.path(index), true) }
            }
            LabelKey::Inner(index) => {
                let levels = state.levels(index).into();
                let is_first = state.is_first(index);
                NodeLabels { levels, is_first, ..state.labels(self.number, state.path(index), true) }
            }
            LabelKey::Other(..) => state.labels(self.number, common(state.inside(kind, &kernel.name)), false),
        };
        let labels = Arc::new(labels);
        state.known.insert(key, Arc::clone(&labels));
        Some(labels)
    }
}

impl GraphState {
    /// Returns the node inside another one that has this low half of an id, if kind and name are the node's.
    fn inner_of(&mut self, low: u32, kind: NodeKind, name: &str) -> Option<u32> {
        let index = *self.inner_ids.get(&low)?;
        let node = self.nodes.get(index as usize)?;
        // A node without a name cannot show whether the number is right.
        if node.kernel.is_none() && kind == NodeKind::Kernel {
            return None;
        }
        if !node.is(kind, name) {
            self.inner_ids.clear();
            self.is_numbered_otherwise = true;
            self.known.retain(|key, _| !matches!(key, LabelKey::Inner(_)));
            return None;
        }
        Some(index)
    }

    fn has_graphs_inside(&self) -> bool {
        self.nodes.len() > self.own || self.unlabelled().next().is_some()
    }

    /// Returns the paths of all nodes inside others that can be this one. For a node with unknown contents, its own path is used.
    fn inside(&self, kind: NodeKind, name: &str) -> impl Iterator<Item = &[u32]> {
        let nodes = (0..).zip(&self.nodes).skip(self.own).filter(move |(_, node)| node.is(kind, name));
        let known = nodes.map(|(index, _)| index);
        known.chain(self.unlabelled().map(|node| node.node)).map(|index| self.path(index))
    }

    fn labels(&self, graph: u32, path: &[u32], is_own: bool) -> NodeLabels {
        let zones = path.iter().map(|zone| self.all_zones[*zone as usize].label.clone()).collect();
        let levels = Box::default();
        NodeLabels { graph, name: self.name.clone(), zones, is_own, in_doubt: None, levels, is_first: false }
    }
}

impl Node {
    /// Returns whether a record of this kind and name can be the node's.
    fn is(&self, kind: NodeKind, name: &str) -> bool {
        let own = if self.kind == NodeKind::Stamp { NodeKind::Kernel } else { self.kind };
        own == kind && self.kernel.as_deref().is_none_or(|own| own == name)
    }
}

fn kind_of(work: &KernelWork) -> NodeKind {
    match work {
        KernelWork::Memcpy { .. } => NodeKind::Memcpy,
        KernelWork::Memset { .. } => NodeKind::Memset,
        _ => NodeKind::Kernel,
    }
}

/// Returns the common beginning of all paths.
fn common<'a>(mut paths: impl Iterator<Item = &'a [u32]>) -> &'a [u32] {
    let first = paths.next().unwrap_or(&[]);
    paths.fold(first, |common, path| {
        let len = common.iter().zip(path).take_while(|(one, other)| one == other).count();
        &common[..len]
    })
}
