//! Unions of time spans: how long a stream's zones run, and how much of a collective is hidden by compute.
//!
//! Spans arrive almost in chronological order, so most are appended. Callers limit how many pieces are kept.

use std::collections::VecDeque;

use crate::record::Span;
use crate::sorting;

/// Disjoint spans in chronological order.
#[derive(Clone, Debug, Default)]
pub struct Intervals(VecDeque<Span>);

impl Intervals {
    /// Adds a span and merges it with those that it touches. An empty span covers nothing.
    pub fn add(&mut self, span: Span) {
        if span.end_ns <= span.begin_ns {
            return;
        }
        // Most spans begin after all others.
        if self.0.back().is_none_or(|last| last.end_ns < span.begin_ns) {
            self.0.push_back(span);
            return;
        }
        let is_last = self.0.back().is_none_or(|last| last.begin_ns <= span.end_ns);
        let to = if is_last { self.0.len() } else { self.0.partition_point(|known| known.begin_ns <= span.end_ns) };
        let (mut from, mut joined) = (to, span);
        while let Some(known) = from.checked_sub(1).and_then(|at| self.0.get(at))
            && known.end_ns >= joined.begin_ns
        {
            joined = joined.around(*known);
            from -= 1;
        }
        if from + 1 == to {
            self.0[from] = joined;
        } else {
            self.0.drain(from..to);
            self.0.insert(from, joined);
        }
    }

    /// Adds many spans, in any order.
    pub fn add_all(&mut self, spans: impl Iterator<Item = Span>) {
        let mut all: Vec<Span> = std::mem::take(&mut self.0).into_iter().chain(spans).collect();
        sorting::sort_by_key(&mut all, |span| span.begin_ns);
        all.into_iter().for_each(|span| self.add(span));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<Span> {
        self.0.front().copied()
    }

    pub fn pop_first(&mut self) -> Option<Span> {
        self.0.pop_front()
    }

    pub fn iter(&self) -> impl Iterator<Item = Span> {
        self.0.iter().copied()
    }

    /// Returns the end of the last span.
    pub fn until_ns(&self) -> i64 {
        self.0.back().map_or(i64::MIN, |last| last.end_ns)
    }

    /// Returns the total length.
    pub fn length_ns(&self) -> i64 {
        self.0.iter().map(|span| span.duration_ns()).sum()
    }

    /// Returns the parts of a span that they cover.
    pub fn within(&self, span: Span) -> impl Iterator<Item = Span> {
        let first = self.0.partition_point(|known| known.end_ns <= span.begin_ns);
        let overlapping = self.0.range(first..).take_while(move |known| known.begin_ns < span.end_ns);
        overlapping.map(move |known| Span {
            begin_ns: known.begin_ns.max(span.begin_ns),
            end_ns: known.end_ns.min(span.end_ns),
        })
    }
}

/// The number of pieces in which time is known; older ones become sums.
const PIECES: usize = 1 << 14;

/// The time that spans cover together. Only the latest pieces are kept separate.
#[derive(Clone, Debug, Default)]
pub struct Covered {
    pieces: Intervals,
    /// The time that older pieces covered, and its end.
    older_ns: i64,
    older_until_ns: Option<i64>,
}

impl Covered {
    pub fn add(&mut self, span: Span) {
        let begin_ns = self.older_until_ns.map_or(span.begin_ns, |until_ns| span.begin_ns.max(until_ns));
        self.pieces.add(Span { begin_ns, ..span });
        if self.pieces.len() > PIECES
            && let Some(piece) = self.pieces.pop_first()
        {
            self.older_ns += piece.duration_ns();
            self.older_until_ns = Some(piece.end_ns);
        }
    }

    /// Returns the end of the last piece.
    pub fn until_ns(&self) -> i64 {
        self.pieces.until_ns()
    }

    pub fn length_ns(&self) -> i64 {
        self.older_ns + self.pieces.length_ns()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each moment is counted once, for any spans in any order.
        #[test]
        fn what_spans_cover_is_counted_once(
            spans in prop::collection::vec((0_i64..300, 0_i64..40), 0..200),
            part in (0_i64..300, 0_i64..80),
            at_once in 0_usize..200,
        ) {
            let spans: Vec<_> =
                spans.into_iter().map(|(begin_ns, ns)| Span { begin_ns, end_ns: begin_ns + ns }).collect();
            let mut covered = [false; 400];
            spans.iter().for_each(|span| covered[span.begin_ns as usize..span.end_ns as usize].fill(true));
            let count = |covered: &[bool]| covered.iter().filter(|covered| **covered).count() as i64;
            let mut intervals = Intervals::default();
            let (first, rest) = spans.split_at(at_once.min(spans.len()));
            first.iter().for_each(|span| intervals.add(*span));
            intervals.add_all(rest.iter().copied());
            prop_assert_eq!(intervals.length_ns(), count(&covered));
            let part = Span { begin_ns: part.0, end_ns: part.0 + part.1 };
            let within: i64 = intervals.within(part).map(|span| span.duration_ns()).sum();
            prop_assert_eq!(within, count(&covered[part.begin_ns as usize..part.end_ns as usize]));
            let apart: Vec<_> = intervals.iter().collect();
            prop_assert!(apart.windows(2).all(|pair| pair[0].end_ns < pair[1].begin_ns));
        }
    }

    #[test]
    fn what_is_long_ago_stays_counted_and_takes_no_room() {
        let mut covered = Covered::default();
        for at in 0..100_000 {
            covered.add(Span { begin_ns: 10 * at, end_ns: 10 * at + 4 });
        }
        assert!(covered.pieces.len() <= PIECES);
        assert_eq!(covered.length_ns(), 400_000);
    }
}
