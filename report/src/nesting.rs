//! The time of zones without the zones within them: which zone of a row is inside which, from zones in the order of their ends.
//!
//! A session's summary and the command `warpline report` use it. The memory of a row is bounded: of more than `PIECES` zones that no
//! zone has enclosed yet, the oldest are merged, and a later zone that begins in the middle of such a piece gets its share of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;

use warpline_core::record::Span;

/// The largest number of zones of one row that wait for a zone around them.
const PIECES: usize = 1 << 14;

/// The zones of one row that no zone has enclosed so far.
#[derive(Debug, Default)]
pub struct Nesting {
    /// By their begins. None is within another one, so this is the order of their ends, too.
    pieces: BTreeMap<i64, Piece>,
}

/// One zone, or several merged ones.
#[derive(Clone, Copy, Debug)]
struct Piece {
    span: Span,
    /// The time in zones.
    time: Inner,
}

/// The time of the zones directly within a zone. The two differ if ends are not timed by an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inner {
    pub most_ns: i64,
    pub least_ns: i64,
}

impl Nesting {
    /// Adds a zone whose end may be earlier by `early_by_ns`, and returns the time of the zones directly within it. Zones come in the order of
    /// [`key`]; one that comes after the zone around it is not subtracted from that zone.
    pub fn add(&mut self, zone: Span, early_by_ns: i64) -> Inner {
        let ns = zone.duration_ns().max(0);
        let time = Inner { most_ns: ns, least_ns: zone.without_tail(early_by_ns).duration_ns().max(0) };
        if self.pieces.last_key_value().is_some_and(|(_, last)| last.span.end_ns > zone.end_ns) {
            return self.add_late(zone, time);
        }
        let mut inner = Inner::default();
        while let Some(last) = self.pieces.last_entry().filter(|last| *last.key() >= zone.begin_ns) {
            inner += last.remove().time;
        }
        inner += self.pieces.last_key_value().map_or(Inner::default(), |(_, last)| last.share_of(zone));
        self.insert(zone, time);
        inner.min(ns)
    }

    fn add_late(&mut self, zone: Span, time: Inner) -> Inner {
        let before = self.pieces.range(..zone.begin_ns).next_back();
        let is_around = |piece: &Piece| piece.span.begin_ns <= zone.begin_ns && piece.span.end_ns > zone.end_ns;
        if before.is_some_and(|(_, piece)| piece.span.end_ns >= zone.end_ns)
            || self.pieces.get(&zone.begin_ns).is_some_and(is_around)
        {
            return Inner::default();
        }
        let mut inner = Inner::default();
        while let Some((&begin_ns, piece)) = self.pieces.range(zone.begin_ns..).next()
            && piece.span.end_ns <= zone.end_ns
        {
            inner += piece.time;
            self.pieces.remove(&begin_ns);
        }
        self.insert(zone, time);
        inner.min(time.most_ns)
    }

    fn insert(&mut self, zone: Span, time: Inner) {
        self.pieces.insert(zone.begin_ns, Piece { span: zone, time });
        if self.pieces.len() > PIECES {
            self.merge();
        }
    }

    /// Merges pairs of the older half.
    fn merge(&mut self) {
        let Some(&from_ns) = self.pieces.keys().nth(PIECES / 2) else { return };
        let newer = self.pieces.split_off(&from_ns);
        let older: Vec<Piece> = std::mem::replace(&mut self.pieces, newer).into_values().collect();
        self.pieces.extend(older.chunks(2).map(|pair| {
            let (first, last) = (pair[0], pair[pair.len() - 1]);
            let end_ns = first.span.end_ns.max(last.span.end_ns);
            let time = pair.iter().map(|piece| piece.time).sum();
            let begin_ns = first.span.begin_ns;
            (begin_ns, Piece { span: Span { begin_ns, end_ns }, time })
        }));
    }
}

impl Piece {
    /// Returns the zone's share of the time of a merged piece that began before it.
    fn share_of(&self, zone: Span) -> Inner {
        let all_ns = self.span.duration_ns();
        if self.span.end_ns <= zone.begin_ns || self.time.most_ns >= all_ns {
            return Inner::default();
        }
        let share = (self.span.end_ns - zone.begin_ns) as f64 / all_ns as f64;
        let part = |ns: i64| (ns as f64 * share) as i64;
        Inner { most_ns: part(self.time.most_ns), least_ns: part(self.time.least_ns) }
    }
}

impl Inner {
    fn min(self, ns: i64) -> Inner {
        Inner { most_ns: self.most_ns.min(ns), least_ns: self.least_ns.min(ns) }
    }
}

impl AddAssign for Inner {
    fn add_assign(&mut self, other: Inner) {
        self.most_ns += other.most_ns;
        self.least_ns += other.least_ns;
    }
}

impl Sum for Inner {
    fn sum<I: Iterator<Item = Inner>>(all: I) -> Inner {
        all.fold(Inner::default(), |mut sum, inner| {
            sum += inner;
            sum
        })
    }
}

/// The order in which zones are added: inner zones come before the zones around them. Of two equal spans, the later one in the order of the
/// records is the inner one, as for readers of traces.
pub fn key<O: Ord>(zone: Span, order: O) -> (i64, Reverse<i64>, Reverse<O>) {
    (zone.end_ns, Reverse(zone.begin_ns), Reverse(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    fn inner(spans: &[Span]) -> Vec<i64> {
        let mut order: Vec<_> = spans.iter().copied().zip(0..).collect();
        order.sort_by_key(|(zone, at)| key(*zone, *at));
        let mut nesting = Nesting::default();
        let mut found: Vec<_> = order.into_iter().map(|(zone, at)| (at, nesting.add(zone, 0).most_ns)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, ns)| ns).collect()
    }

    #[test]
    fn each_zone_counts_for_the_innermost_zone_around_it() {
        let zones = [span(0, 100), span(10, 60), span(20, 30), span(30, 50), span(70, 90), span(100, 120)];
        assert_eq!(inner(&zones), [70, 30, 0, 0, 0, 0]);
        // Equal spans, an empty one, and one that overlaps without being inside.
        assert_eq!(inner(&[span(0, 10), span(0, 10), span(5, 5), span(5, 15)]), [10, 0, 0, 0]);
    }

    #[test]
    fn a_zone_that_comes_late_takes_no_time_from_others() {
        let mut nesting = Nesting::default();
        let added = [span(10, 20), span(30, 40), span(22, 28), span(0, 29), span(12, 14), span(-5, 60)];
        assert_eq!(added.map(|zone| nesting.add(zone, 0).most_ns), [0, 0, 0, 16, 0, 39]);
    }

    #[test]
    fn a_zone_around_more_zones_than_are_kept_gets_all_of_them() {
        let mut nesting = Nesting::default();
        for at in 0..100_000 {
            assert_eq!(nesting.add(span(10 * at, 10 * at + 4), 2).most_ns, 0);
        }
        assert!(nesting.pieces.len() <= PIECES);
        assert_eq!(nesting.add(span(-5, 1_000_000), 0), Inner { most_ns: 400_000, least_ns: 200_000 });
        assert_eq!(nesting.pieces.len(), 1);
    }

    #[test]
    fn zones_that_all_come_late_are_bounded_and_count_for_one_around_them() {
        let mut nesting = Nesting::default();
        for at in (0..100_000).rev() {
            assert_eq!(nesting.add(span(10 * at, 10 * at + 4), 0), Inner::default());
            assert!(nesting.pieces.len() <= PIECES);
        }
        assert_eq!(nesting.add(span(-5, 1_000_000), 0).most_ns, 400_000);
    }
}
