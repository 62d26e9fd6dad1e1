//! The numbers that a driver gives to nodes inside others, and the bodies of conditional nodes around a node.
//!
//! In an executable graph, drivers for CUDA 13.0 number the nodes of the graph itself as in the graph; then, for each child-graph or
//! conditional node in this order, those of the graph inside, or of each of its bodies, and within these in the same way. Seen on an H100 with
//! driver 580 (CUDA 13.0), and documented nowhere: `executed` compares kinds and names. Nothing here calls the driver.

use std::collections::HashMap;

use super::state::GraphState;
use crate::graph::ids::BodyLevel;
use crate::graph::label::NodeKind;

/// What is still to be numbered.
enum Open {
    /// The contents of a node.
    Node(u32),
    /// A graph inside a node: the node, and which of its bodies.
    Graph(u32, u32),
}

impl GraphState {
    /// Returns the nodes inside others by their numbers, up to the first node whose contents are unknown. None has a number if a node was
    /// removed, because the numbers that were left out are unknown.
    pub(super) fn number_inside(&self) -> HashMap<u32, u32> {
        let mut numbers = HashMap::new();
        if self.nodes.len() == self.own {
            return numbers;
        }
        let mut children: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for (index, node) in (0..).zip(&self.nodes).skip(self.own) {
            if let Some(within) = node.within {
                children.entry((within, node.branch)).or_default().push(index);
            }
        }
        let Some(own) = self.in_local_order((0..self.own as u32).collect()) else { return numbers };
        let mut next = self.own as u32;
        // The next one is last.
        let mut open: Vec<Open> = own.into_iter().rev().map(Open::Node).collect();
        while let Some(first) = open.pop() {
            match first {
                Open::Node(node) => {
                    let bodies = match self.nodes[node as usize].kind {
                        NodeKind::Graph if self.unlabelled().any(|of| of.node == node) => return numbers,
                        NodeKind::Graph => 1,
                        NodeKind::Conditional => match self.all_branches.get(&node) {
                            Some(bodies) => *bodies,
                            None => return numbers,
                        },
                        _ => 0,
                    };
                    open.extend((0..bodies).rev().map(|body| Open::Graph(node, body)));
                }
                Open::Graph(node, body) => {
                    let nodes = children.remove(&(node, body)).unwrap_or_default();
                    let Some(nodes) = self.in_local_order(nodes) else { return numbers };
                    for index in &nodes {
                        numbers.insert(next, *index);
                        next += 1;
                    }
                    open.extend(nodes.into_iter().rev().map(Open::Node));
                }
            }
        }
        numbers
    }

    /// Returns the nodes of one graph in the order of their ids; none if ids are unknown or left out.
    fn in_local_order(&self, mut nodes: Vec<u32>) -> Option<Vec<u32>> {
        nodes.sort_by_key(|index| self.nodes[*index as usize].local);
        let is_in_place = |(place, index): (u32, &u32)| self.nodes[*index as usize].local == Some(place);
        (0..).zip(&nodes).all(is_in_place).then_some(nodes)
    }

    /// Returns the bodies around a node, outermost first.
    pub(in crate::graph) fn levels(&self, index: u32) -> Vec<BodyLevel> {
        let mut levels: Vec<BodyLevel> = Vec::new();
        let mut node = index;
        while let Some(within) = self.nodes.get(node as usize).and_then(|node| node.within) {
            if self.nodes[within as usize].kind == NodeKind::Conditional {
                let member = levels.last().map_or(index, |inner| inner.conditional);
                let (around, is_last) = (self.path(within).len(), levels.is_empty());
                levels.push(BodyLevel { conditional: within, member, around, is_last });
            }
            node = within;
        }
        levels.reverse();
        levels
    }

    /// Returns whether no work of the graph itself comes before the node of the graph itself that contains this one.
    pub(in crate::graph) fn is_first(&self, index: u32) -> bool {
        let mut own = index;
        while let Some(within) = self.nodes.get(own as usize).and_then(|node| node.within) {
            own = within;
        }
        let mut seen = vec![false; self.own];
        let mut open = vec![own];
        while let Some(node) = open.pop() {
            for &dep in self.deps.get(node as usize).into_iter().flatten() {
                let is_work =
                    |kind| matches!(kind, NodeKind::Kernel | NodeKind::Memcpy | NodeKind::Memset | NodeKind::Graph);
                if is_work(self.nodes[dep as usize].kind) {
                    return false;
                }
                if !std::mem::replace(&mut seen[dep as usize], true) {
                    open.push(dep);
                }
            }
        }
        true
    }
}
