//! The edges of the spans on one lane, as a reader sees them: by time, with equal times in the order of writing.
//!
//! They are kept in blocks, each with the number of its edges that have no partner within it. So a span that encloses, or is enclosed by,
//! thousands of others is placed by looking at two blocks, and at a number of each block between them.

use super::EDGES;

/// The number of edges at which a block is split.
const BLOCK: usize = if cfg!(test) { 8 } else { 512 };

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) ns: i64,
    pub(super) kind: EdgeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EdgeKind {
    Begin,
    /// The begin of a solid stretch, whose inside is forgotten: no other span can begin or end in it.
    BeginSolid,
    End,
}

impl Edge {
    pub(super) fn begin(ns: i64) -> Edge {
        Edge { ns, kind: EdgeKind::Begin }
    }

    pub(super) fn end(ns: i64) -> Edge {
        Edge { ns, kind: EdgeKind::End }
    }

    fn is_end(self) -> bool {
        self.kind == EdgeKind::End
    }
}

/// The edges, in blocks that are not empty.
#[derive(Debug, Default)]
pub(super) struct Edges {
    blocks: Vec<Block>,
    len: usize,
}

/// A place between two edges: before the edge `at` of a block, or behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    block: usize,
    at: usize,
}

#[derive(Debug, Default)]
struct Block {
    edges: Vec<Edge>,
    /// The ends whose begins are in earlier blocks.
    ends: usize,
    /// The begins whose ends are in later blocks.
    begins: usize,
}

impl Block {
    fn new(edges: Vec<Edge>) -> Block {
        let mut block = Block { edges, ends: 0, begins: 0 };
        block.count();
        block
    }

    fn count(&mut self) {
        (self.ends, self.begins) = (0, 0);
        for at in 0..self.edges.len() {
            self.count_edge(self.edges[at]);
        }
    }

    fn count_edge(&mut self, edge: Edge) {
        match (edge.is_end(), self.begins) {
            (false, _) => self.begins += 1,
            (true, 0) => self.ends += 1,
            (true, _) => self.begins -= 1,
        }
    }

    fn first_ns(&self) -> i64 {
        self.edges.first().map_or(i64::MAX, |edge| edge.ns)
    }

    fn last_ns(&self) -> i64 {
        self.edges.last().map_or(i64::MIN, |edge| edge.ns)
    }
}

impl Edges {
    pub(super) fn new(edges: impl IntoIterator<Item = Edge>) -> Edges {
        let mut all = Edges::default();
        edges.into_iter().for_each(|edge| all.push(edge));
        all
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn last(&self) -> Option<Edge> {
        self.blocks.last()?.edges.last().copied()
    }

    /// Takes the edges out, in their order.
    pub(super) fn take(&mut self) -> Vec<Edge> {
        let mut all = Vec::with_capacity(EDGES + 2);
        std::mem::take(self).blocks.into_iter().for_each(|block| all.extend(block.edges));
        all
    }

    /// Adds an edge behind all others.
    pub(super) fn push(&mut self, edge: Edge) {
        if self.blocks.last().is_none_or(|last| last.edges.len() >= BLOCK) {
            self.blocks.push(Block::default());
        }
        if let Some(last) = self.blocks.last_mut() {
            last.edges.push(edge);
            last.count_edge(edge);
            self.len += 1;
        }
    }

    pub(super) fn insert(&mut self, place: Place, edge: Edge) {
        let Some(block) = self.blocks.get_mut(place.block) else { return self.push(edge) };
        block.edges.insert(place.at, edge);
        self.len += 1;
        if block.edges.len() > BLOCK {
            let second = Block::new(block.edges.split_off(BLOCK / 2));
            block.count();
            self.blocks.insert(place.block + 1, second);
        } else {
            block.count();
        }
    }

    /// Returns the place behind all edges until `ns`. Nearly always, it is close to the end.
    pub(super) fn behind(&self, ns: i64) -> Place {
        let is_before = |block: &Block| block.first_ns() <= ns;
        let before = match self.blocks.last() {
            Some(last) if is_before(last) => self.blocks.len(),
            _ => self.blocks.partition_point(is_before),
        };
        let block = before.saturating_sub(1);
        let at = self.blocks.get(block).map_or(0, |block| block.edges.partition_point(|edge| edge.ns <= ns));
        Place { block, at }
    }

    /// Returns the edge behind a place.
    pub(super) fn next(&self, place: Place) -> Option<Edge> {
        let block = self.blocks.get(place.block)?;
        block.edges.get(place.at).or_else(|| self.blocks.get(place.block + 1)?.edges.first()).copied()
    }

    /// Returns the edge before a place.
    pub(super) fn previous(&self, place: Place) -> Option<Edge> {
        match place.at.checked_sub(1) {
            Some(at) => self.blocks.get(place.block)?.edges.get(at).copied(),
            None => self.blocks.get(place.block.checked_sub(1)?)?.edges.last().copied(),
        }
    }

    /// Returns whether each span that begins behind a place ends by `end_ns`, and no other one ends between the two. Ends at `end_ns` itself may
    /// belong to enclosing spans: both end then, and a reader does not depend on which of two simultaneous ends belongs to which span.
    pub(super) fn nests(&self, from: Place, end_ns: i64) -> bool {
        let mut open = 0_usize;
        let Some(first) = self.blocks.get(from.block) else { return true };
        if !nests_in(&first.edges[from.at..], end_ns, &mut open) {
            return false;
        }
        for block in &self.blocks[from.block + 1..] {
            if block.first_ns() > end_ns {
                break;
            }
            let is_whole = block.last_ns() <= end_ns;
            if is_whole && (block.ends <= open || block.first_ns() == end_ns) {
                open = open.saturating_sub(block.ends) + block.begins;
            } else if !nests_in(&block.edges, end_ns, &mut open) {
                return false;
            }
        }
        open == 0
    }

    /// Returns the begin of the innermost span that is open at a place.
    pub(super) fn innermost(&self, place: Place) -> Option<Edge> {
        let mut closed = 0_usize;
        let first = self.blocks.get(place.block)?;
        if let Some(begin) = innermost_in(&first.edges[..place.at], &mut closed) {
            return Some(begin);
        }
        for block in self.blocks[..place.block].iter().rev() {
            if block.begins <= closed {
                closed = closed - block.begins + block.ends;
            } else {
                return innermost_in(&block.edges, &mut closed);
            }
        }
        None
    }
}

/// Follows edges until `end_ns`, and returns whether none ends a span that was not open.
fn nests_in(edges: &[Edge], end_ns: i64, open: &mut usize) -> bool {
    for edge in edges.iter().take_while(|edge| edge.ns <= end_ns) {
        match edge.kind {
            EdgeKind::Begin | EdgeKind::BeginSolid => *open += 1,
            EdgeKind::End if *open > 0 => *open -= 1,
            EdgeKind::End if edge.ns == end_ns => {}
            EdgeKind::End => return false,
        }
    }
    true
}

/// Follows edges backwards to a begin whose end is not behind it.
fn innermost_in(edges: &[Edge], closed: &mut usize) -> Option<Edge> {
    edges.iter().rev().copied().find(|edge| {
        let is_open = *closed == 0 && !edge.is_end();
        *closed = if edge.is_end() { *closed + 1 } else { closed.saturating_sub(1) };
        is_open
    })
}
