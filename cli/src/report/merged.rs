//! Merges the slices that are too short for a timeline to draw one by one: how much of each piece of time they take,
//! row by row.
//!
//! Memory is bounded: where there are too many pieces, each becomes twice as long.

use std::collections::HashMap;

use warpline_core::record::Span;

/// The most pieces of one timeline.
const PIECES: usize = 1 << 12;

/// The slices that are drawn together. The pieces of a row are as long as those of all others, and begin at multiples
/// of their length.
#[derive(Default)]
pub(super) struct Merged {
    /// The length of a piece is a power of two, in ns.
    shift: u32,
    pieces: HashMap<(usize, i64), Piece>,
}

/// The slices that begin in a piece, and the time that slices take of it.
#[derive(Clone, Copy, Default)]
struct Piece {
    slices: u64,
    ns: i64,
}

/// The slices of a row in a piece of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) row: usize,
    pub(super) span: Span,
    /// The share of the time that they take, at most all of it: slices within other slices count twice.
    pub(super) share: f64,
    /// The number of slices that begin there.
    pub(super) slices: u64,
}

impl Merged {
    pub(super) fn add(&mut self, row: usize, span: Span) {
        while span.duration_ns() >> self.shift > PIECES as i64 / 2 {
            self.coarsen();
        }
        for at in span.begin_ns >> self.shift..=span.end_ns >> self.shift {
            let within = self.piece(at);
            let piece = self.pieces.entry((row, at)).or_default();
            piece.slices += u64::from(within.begin_ns <= span.begin_ns);
            let ns = span.end_ns.min(within.end_ns).saturating_sub(span.begin_ns.max(within.begin_ns));
            piece.ns = piece.ns.saturating_add(ns);
        }
        while self.pieces.len() > PIECES {
            self.coarsen();
        }
    }

    /// The time of a piece.
    fn piece(&self, at: i64) -> Span {
        let begin_of = |at: i64| at.saturating_mul(1 << self.shift.min(62));
        Span { begin_ns: begin_of(at), end_ns: begin_of(at.saturating_add(1)) }
    }

    fn coarsen(&mut self) {
        self.shift += 1;
        for ((row, at), piece) in std::mem::take(&mut self.pieces) {
            let into = self.pieces.entry((row, at >> 1)).or_default();
            *into = Piece { slices: into.slices + piece.slices, ns: into.ns.saturating_add(piece.ns) };
        }
    }

    /// Returns the blocks, by row and time.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let block = |((row, at), piece): (&(usize, i64), &Piece)| {
            let span = self.piece(*at);
            let share = piece.ns as f64 / span.duration_ns().max(1) as f64;
            Block { row: *row, span, share: share.min(1.0), slices: piece.slices }
        };
        let mut blocks: Vec<_> = self.pieces.iter().map(block).collect();
        blocks.sort_unstable_by_key(|block| (block.row, block.span.begin_ns));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slice_and_no_time_is_lost_however_many_there_are() {
        let mut merged = Merged::default();
        let (mut slices, mut ns) = (0, 0);
        for at in 0..200_000_i64 {
            // Gaps of 1 to 5 ns, and a row for each third.
            let span = Span { begin_ns: at * 10, end_ns: at * 10 + 5 + at % 5 };
            merged.add((at % 3) as usize, span);
            (slices, ns) = (slices + 1, ns + span.duration_ns());
        }
        merged.add(7, Span { begin_ns: 500, end_ns: 500 });
        merged.add(7, Span { begin_ns: -40_000_000, end_ns: 2_000_000 });
        let blocks = merged.blocks();
        assert!(blocks.len() <= PIECES && blocks.len() > PIECES / 8, "{}", blocks.len());
        assert_eq!(blocks.iter().map(|block| block.slices).sum::<u64>(), slices + 2);
        let taken = |row: usize| -> f64 {
            let of_row = blocks.iter().filter(|block| block.row == row);
            of_row.map(|block| block.share * block.span.duration_ns() as f64).sum()
        };
        let all = taken(0) + taken(1) + taken(2);
        assert!((all - ns as f64).abs() < 1.0, "{all} of {ns}");
        assert!((taken(7) - 42e6).abs() < 1.0, "{}", taken(7));
    }

    #[test]
    fn any_times_are_possible() {
        let mut merged = Merged::default();
        for span in [(i64::MIN, i64::MIN), (i64::MAX, i64::MAX), (i64::MIN / 4, i64::MAX / 4), (0, i64::MAX)] {
            merged.add(1, Span { begin_ns: span.0, end_ns: span.1 });
        }
        assert!(merged.blocks().iter().all(|block| (0.0..=1.0).contains(&block.share)));
    }
}
