//! The zones of traces by the zones around them, for the icicle of the page: how often and how long each range ran within each other one.
//!
//! Zones of a row come in the order of their ends, as in [`nesting`](crate::nesting): a zone takes those inside it from the row's
//! pieces. Zones whose length is only a bound are apart from the others of their range, and the time in which they may have ended is a call within them,
//! [`END_NOT_TIMED`]. Memory is bounded: pieces, depth, the ranges within one zone and all of them together have limits, and what does not fit is counted.

use std::collections::HashMap;

use warpline_core::record::Span;

/// The zones of one row that wait for a zone around them. Of more, the oldest are merged.
const PIECES: usize = 1 << 14;

/// The most zones within each other.
const DEPTH: u32 = 48;

/// The most ranges directly within one range.
const WITHIN: usize = 1_000;

/// The most calls that are known at once. Beyond it, no zone takes those that were read before into itself.
const CALLS: usize = 1 << 20;

/// The calls that are kept then: the longest.
const KEPT: usize = 1 << 14;

/// The number of the time in which a zone may have ended. It is greater than those of ranges.
const END_NOT_TIMED: u32 = u32::MAX;

/// Is in the number of a call whose zones' lengths are only bounds.
const BOUNDED: u32 = 1 << 31;

/// A row of zones that nest: one of a stream or a thread, by the number that its source gives it, and a lane of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    pub place: u8,
    pub id: u64,
    pub lane: u64,
}

/// A range within the ranges around it.
pub struct Call {
    /// The number of the range, maybe with [`BOUNDED`].
    number: u32,
    pub count: u64,
    pub total_ns: i64,
    pub self_ns: i64,
    /// By their numbers.
    pub inner: Vec<Call>,
    height: u32,
}

impl Call {
    /// Returns the number of the range, and whether the lengths of its zones are only bounds. None for time in which a zone may have ended.
    pub fn range(&self) -> Option<(u32, bool)> {
        (self.number != END_NOT_TIMED).then_some((self.number & !BOUNDED, self.number & BOUNDED != 0))
    }
}

/// What has no place.
#[derive(Clone, Copy, Default)]
pub struct LeftOut {
    pub calls: u64,
    pub ns: i64,
}

struct Piece {
    span: Span,
    calls: Vec<Call>,
}

/// The calls of all traces so far.
#[derive(Default)]
pub struct Calls {
    outermost: Vec<Call>,
    /// The pieces of each group of rows of the current trace.
    rows: HashMap<RowId, Vec<Piece>>,
    known: usize,
    left_out: LeftOut,
}

impl Calls {
    /// Adds a zone, of which `inner_ns` are in zones within it. `tail_ns` is the time by which it may have ended earlier, if that makes its length a
    /// bound.
    pub(super) fn add(&mut self, row: RowId, span: Span, number: u32, inner_ns: i64, tail_ns: i64) {
        let pieces = self.rows.entry(row).or_default();
        let total_ns = span.duration_ns().max(0);
        if pieces.last().is_some_and(|last| last.span.end_ns > span.end_ns) {
            // It comes after the zone around it.
            self.left_out.add(1, total_ns);
            return;
        }
        let mut first = pieces.len();
        while first > 0 && pieces[first - 1].span.begin_ns >= span.begin_ns {
            first -= 1;
        }
        let mut inner = Vec::new();
        for piece in pieces.drain(first..) {
            self.known -= merge(&mut inner, piece.calls, WITHIN, &mut self.left_out);
        }
        let mut height = 1 + inner.iter().map(|call| call.height).max().unwrap_or(0);
        if height > DEPTH {
            for call in &mut inner {
                self.known -= cut(&call.inner, &mut self.left_out);
                (call.inner, call.height) = (Vec::new(), 1);
            }
            height = 2;
        }
        let own_ns = (total_ns - inner_ns).max(0);
        let tail_ns = tail_ns.clamp(0, own_ns);
        let number = if tail_ns > 0 { number | BOUNDED } else { number };
        if tail_ns > 0 {
            let (total_ns, self_ns) = (tail_ns, tail_ns);
            inner.push(Call { number: END_NOT_TIMED, count: 1, total_ns, self_ns, inner: Vec::new(), height: 1 });
            self.known += 1;
            height = height.max(2);
        }
        let call = Call { number, count: 1, total_ns, self_ns: own_ns - tail_ns, inner, height };
        pieces.push(Piece { span, calls: vec![call] });
        self.known += 1;
        if pieces.len() > PIECES {
            self.known -= merge_pieces(pieces, &mut self.left_out);
        }
        if self.known > CALLS {
            self.end_trace();
            self.prune(KEPT);
        }
    }

    /// No zone is around those that wait.
    pub(super) fn end_trace(&mut self) {
        for piece in std::mem::take(&mut self.rows).into_values().flatten() {
            self.known -= merge(&mut self.outermost, piece.calls, KEPT, &mut self.left_out);
        }
    }

    /// Keeps this many calls, those with the longest times, and returns the outermost ones and what is left out.
    pub fn longest(mut self, most: usize) -> (Vec<Call>, LeftOut) {
        self.end_trace();
        self.prune(most);
        (self.outermost, self.left_out)
    }

    fn prune(&mut self, most: usize) {
        let mut totals = Vec::new();
        each(&self.outermost, &mut |call| totals.push(call.total_ns));
        if totals.len() <= most {
            return;
        }
        let (_, least_ns, _) = totals.select_nth_unstable_by(most, |a, b| b.cmp(a));
        let least_ns = *least_ns;
        // Of those that are as long as the longest that goes, some may stay.
        let mut ties = most - totals.iter().filter(|ns| **ns > least_ns).count();
        drop_shorter(&mut self.outermost, least_ns, &mut ties, &mut self.left_out);
        self.known = 0;
        each(&self.outermost, &mut |_| self.known += 1);
    }
}

impl LeftOut {
    fn add(&mut self, calls: u64, ns: i64) {
        self.calls += calls;
        self.ns = self.ns.saturating_add(ns);
    }
}

/// Adds calls to others. Returns how many calls there are fewer.
fn merge(into: &mut Vec<Call>, calls: Vec<Call>, most: usize, left_out: &mut LeftOut) -> usize {
    let mut fewer = 0;
    for call in calls {
        match into.binary_search_by_key(&call.number, |known| known.number) {
            Ok(at) => {
                let known = &mut into[at];
                known.count += call.count;
                known.total_ns = known.total_ns.saturating_add(call.total_ns);
                known.self_ns = known.self_ns.saturating_add(call.self_ns);
                known.height = known.height.max(call.height);
                fewer += 1 + merge(&mut known.inner, call.inner, most, left_out);
            }
            Err(at) if into.len() < most => into.insert(at, call),
            Err(_) => fewer += cut(&[call], left_out),
        }
    }
    fewer
}

/// Merges pairs of the older half.
fn merge_pieces(pieces: &mut Vec<Piece>, left_out: &mut LeftOut) -> usize {
    let newer = pieces.split_off(PIECES / 2);
    let mut fewer = 0;
    let mut merged: Vec<Piece> = Vec::with_capacity(PIECES);
    for (at, piece) in pieces.drain(..).enumerate() {
        match merged.last_mut().filter(|_| at % 2 == 1) {
            Some(last) => {
                last.span = last.span.around(piece.span);
                fewer += merge(&mut last.calls, piece.calls, WITHIN, left_out);
            }
            None => merged.push(piece),
        }
    }
    merged.extend(newer);
    *pieces = merged;
    fewer
}

/// Counts calls as left out. Returns how many they are.
fn cut(calls: &[Call], left_out: &mut LeftOut) -> usize {
    let mut all = 0;
    each(calls, &mut |call| {
        all += 1;
        left_out.add(1, call.self_ns);
    });
    all
}

fn drop_shorter(calls: &mut Vec<Call>, least_ns: i64, ties: &mut usize, left_out: &mut LeftOut) {
    calls.retain_mut(|call| {
        let is_tie = call.total_ns == least_ns && *ties > 0;
        if call.total_ns <= least_ns && !is_tie {
            cut(std::slice::from_ref(call), left_out);
            return false;
        }
        *ties -= usize::from(is_tie);
        drop_shorter(&mut call.inner, least_ns, ties, left_out);
        true
    });
}

fn each(calls: &[Call], act: &mut impl FnMut(&Call)) {
    for call in calls {
        act(call);
        each(&call.inner, act);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    fn row(id: u64) -> RowId {
        RowId { place: 0, id, lane: 0 }
    }

    fn told(calls: &[Call]) -> Vec<(u32, u64, i64, i64, usize)> {
        calls.iter().map(|call| (call.number, call.count, call.total_ns, call.self_ns, call.inner.len())).collect()
    }

    #[test]
    fn a_zone_takes_those_inside_it_and_equal_calls_are_one() {
        let mut calls = Calls::default();
        for at in [0, 100, 200] {
            calls.add(row(0), span(at + 10, at + 20), 1, 0, 0);
            calls.add(row(0), span(at + 20, at + 30), 1, 0, 0);
            calls.add(row(0), span(at + 5, at + 50), 2, 20, 0);
            calls.add(row(0), span(at, at + 60), 3, 45, 0);
        }
        calls.add(row(7), span(0, 9), 1, 0, 0);
        let (outermost, left_out) = calls.longest(100);
        assert_eq!(told(&outermost), [(1, 1, 9, 9, 0), (3, 3, 180, 45, 1)]);
        assert_eq!(told(&outermost[1].inner), [(2, 3, 135, 75, 1)]);
        assert_eq!(told(&outermost[1].inner[0].inner), [(1, 6, 60, 60, 0)]);
        assert_eq!((left_out.calls, left_out.ns), (0, 0));
    }

    #[test]
    fn time_in_which_a_zone_may_have_ended_is_apart() {
        let mut calls = Calls::default();
        for at in [0, 100] {
            calls.add(row(0), span(at + 10, at + 20), 1, 0, 0);
            calls.add(row(0), span(at + 20, at + 90), 1, 0, 60);
            calls.add(row(0), span(at, at + 95), 2, 80, 90);
        }
        let (outermost, _) = calls.longest(100);
        assert_eq!(told(&outermost), [(2 | BOUNDED, 2, 190, 0, 3)]);
        let tail = |ns| (END_NOT_TIMED, 2, ns, ns, 0);
        assert_eq!(told(&outermost[0].inner), [(1, 2, 20, 20, 0), (1 | BOUNDED, 2, 140, 20, 1), tail(30)]);
        assert_eq!(told(&outermost[0].inner[1].inner), [tail(120)]);
        assert_eq!((outermost[0].range(), outermost[0].inner[2].range()), (Some((2, true)), None));
    }

    #[test]
    fn a_zone_around_very_many_takes_all_of_them_in_bounded_memory() {
        let mut calls = Calls::default();
        for at in 0..200_000 {
            calls.add(row(0), span(10 * at, 10 * at + 4), (at % 5) as u32, 0, 0);
        }
        assert!(calls.rows[&row(0)].len() <= PIECES && calls.known <= 5 * PIECES);
        calls.add(row(0), span(-5, 3_000_000), 9, 800_000, 0);
        let (outermost, _) = calls.longest(100);
        assert_eq!(told(&outermost), [(9, 1, 3_000_005, 2_200_005, 5)]);
        assert!(outermost[0].inner.iter().all(|call| call.count == 40_000 && call.total_ns == 160_000));
    }

    #[test]
    fn what_is_too_deep_too_many_or_too_short_is_counted() {
        let mut deep = Calls::default();
        for at in 0..100_000 {
            deep.add(row(0), span(-at, at), at as u32, 0, 0);
        }
        assert!(deep.known < 1_000, "{}", deep.known);
        let (outermost, left_out) = deep.longest(1_000);
        let mut kept = 0;
        each(&outermost, &mut |_| kept += 1);
        assert_eq!(left_out.calls + kept, 100_000);

        let mut wide = Calls::default();
        for at in 0..3_000 {
            wide.add(row(0), span(10 * at, 10 * at + 1), at as u32, 0, 0);
        }
        wide.add(row(0), span(0, 30_000), 9_999_999, 3_000, 0);
        assert_eq!((wide.left_out.calls, wide.known), (2_000, 1_001));
        let (outermost, left_out) = wide.longest(1);
        assert_eq!((told(&outermost), left_out.calls), (vec![(9_999_999, 1, 30_000, 27_000, 0)], 3_000));
    }

    #[test]
    fn of_calls_of_one_length_as_many_stay_as_have_room() {
        let of = |most| {
            let mut calls = Calls::default();
            for (number, ns) in [(1, 50), (2, 20), (3, 20), (4, 20), (5, 10)] {
                let begin = i64::from(number) * 100;
                calls.add(row(0), span(begin, begin + ns), number, 0, 0);
            }
            let (outermost, left_out) = calls.longest(most);
            (outermost.iter().map(|call| call.number).collect::<Vec<_>>(), left_out.calls, left_out.ns)
        };
        assert_eq!(of(5), (vec![1, 2, 3, 4, 5], 0, 0));
        assert_eq!(of(4), (vec![1, 2, 3, 4], 1, 10));
        assert_eq!(of(3), (vec![1, 2, 3], 2, 30));
        assert_eq!(of(2), (vec![1, 2], 3, 50));
        assert_eq!(of(1), (vec![1], 4, 70));
        assert_eq!(of(0), (vec![], 5, 120));
    }

    #[test]
    fn a_zone_that_comes_after_the_one_around_it_is_left_out() {
        let mut calls = Calls::default();
        calls.add(row(0), span(0, 100), 1, 0, 0);
        calls.add(row(0), span(10, 99), 2, 0, 0);
        // One that ends with the one before it, and one that is around both.
        calls.add(row(0), span(-10, 100), 3, 100, 0);
        let (outermost, left_out) = calls.longest(10);
        assert_eq!(told(&outermost), [(3, 1, 110, 10, 1)]);
        assert_eq!((left_out.calls, left_out.ns), (1, 89));
    }

    #[test]
    fn very_many_calls_stay_within_the_limit() {
        let mut calls = Calls::default();
        for of in 0..80 {
            for at in 0..15_000 {
                calls.add(row(of), span(10 * at, 10 * at + 5), at as u32, 0, 0);
                assert!(calls.known <= CALLS);
            }
        }
        let (outermost, left_out) = calls.longest(usize::MAX);
        let zones: u64 = outermost.iter().map(|call| call.count).sum();
        assert_eq!((zones, outermost.len(), left_out.calls), (80 * 15_000, 15_000, 0));
    }
}
