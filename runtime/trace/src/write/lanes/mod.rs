//! Decides which slices can share a track. The sinks call this module before they write a slice.
//!
//! A UI sorts the begins and ends of a track by time, keeps equal times in the order of the file, and lets every end close the
//! innermost open slice. A `Lane` keeps the same sequence, and accepts a span only if this reading restores the written spans. A
//! span that fits on no lane gets a new one: no time is ever changed, and no zone is ever omitted. `edges` keeps the sequence.

mod edges;

use edges::{Edge, EdgeKind, Edges};
use warpline_core::record::{Span, ZoneRecord};

/// The number of edges at which a lane forgets details of the older half. A zone around more than 65,536 others may then get a
/// separate lane.
const EDGES: usize = if cfg!(test) { 48 } else { 1 << 17 };

/// The maximum number of lanes of a track. To open another, the track closes one.
const LANES: usize = if cfg!(test) { 5 } else { 64 };

/// The lanes of one track.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The next lane to close when there are too many; never the first.
    next: usize,
}

/// The lane of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanePosition {
    /// The lane's index: below [`LANES`], so the state of each lane can be kept in a vector.
    pub(super) lane: usize,
    /// Whether the lane is new: any state under this index belongs to a closed lane.
    pub(super) is_new: bool,
}

impl Lanes {
    /// Creates the lanes of a track. The first lane, the track itself, already exists.
    pub(super) fn with_first() -> Lanes {
        Lanes { lanes: vec![Lane::default()], next: 0 }
    }

    /// Like [`with_first`](Self::with_first), for a track that was forgotten and has returned. Its first lane may have slices up to
    /// `ns`, so no span that begins earlier is put there.
    pub(super) fn with_first_from(ns: i64) -> Lanes {
        let known = [Edge { ns: i64::MIN, kind: EdgeKind::BeginSolid }, Edge::end(ns)];
        Lanes { lanes: vec![Lane { edges: Edges::new(known) }], next: 0 }
    }

    /// Returns the end of the last slice on the first lane.
    pub(super) fn until_ns(&self) -> i64 {
        let last = self.lanes.first().and_then(|first| first.edges.last());
        last.map_or(i64::MIN, |last| last.ns)
    }

    /// Finds a lane for a span that is written after all spans placed so far.
    #[inline]
    pub(super) fn place(&mut self, span: Span) -> LanePosition {
        match self.lanes.iter_mut().position(|lane| lane.insert(span)) {
            Some(lane) => LanePosition { lane, is_new: false },
            None => self.open(span),
        }
    }

    /// Finds the lane of a zone that was placed, and puts a span at the zone's end directly into it; none if something else reaches into that
    /// time.
    pub(super) fn place_at_end(&mut self, zone: Span, tail: Span) -> Option<usize> {
        self.lanes.iter_mut().position(|lane| lane.insert_at_end(zone, tail))
    }

    #[cold]
    fn open(&mut self, span: Span) -> LanePosition {
        let mut fresh = Lane::default();
        fresh.insert(span);
        if self.lanes.len() < LANES {
            self.lanes.push(fresh);
            return LanePosition { lane: self.lanes.len() - 1, is_new: true };
        }
        self.next = self.next % (LANES - 1) + 1;
        self.lanes[self.next] = fresh;
        LanePosition { lane: self.next, is_new: true }
    }
}

/// One lane.
#[derive(Debug, Default)]
struct Lane {
    edges: Edges,
}

impl Lane {
    /// Accepts the span if it nests with all others, in any order of arrival.
    #[inline]
    fn insert(&mut self, span: Span) -> bool {
        let Span { begin_ns, end_ns } = span;
        if self.edges.last().is_none_or(|last| last.ns <= begin_ns) {
            self.edges.push(Edge::begin(begin_ns));
            self.edges.push(Edge::end(end_ns));
        } else {
            let from = self.edges.behind(begin_ns);
            let enters_solid = self.edges.previous(from).is_some_and(|before| before.kind == EdgeKind::BeginSolid);
            if enters_solid || !self.edges.nests(from, end_ns) {
                return false;
            }
            self.edges.insert(from, Edge::begin(begin_ns));
            self.edges.insert(self.edges.behind(end_ns), Edge::end(end_ns));
        }
        if self.edges.len() > EDGES {
            self.forget_details();
        }
        true
    }

    /// Accepts a span at the end of a zone if the zone is the innermost one there, and nothing begins or ends within the span.
    fn insert_at_end(&mut self, zone: Span, tail: Span) -> bool {
        let from = self.edges.behind(tail.begin_ns);
        let is_free = self.edges.next(from).is_some_and(|next| next.kind == EdgeKind::End && next.ns == tail.end_ns);
        is_free && self.edges.innermost(from).is_some_and(|begin| begin.ns == zone.begin_ns) && self.insert(tail)
    }

    /// Reduces the older half of the edges: every other pair of neighbours becomes one solid stretch, and so does a span that
    /// contains a single stretch. Later spans may enclose a solid stretch, but not enter it.
    #[cold]
    fn forget_details(&mut self) {
        let mut older = self.edges.take();
        let newer = older.split_off(older.len() / 2);
        let mut kept: Vec<Edge> = Vec::with_capacity(EDGES + 2);
        let mut merge = false;
        for edge in older {
            kept.push(edge);
            if edge.kind != EdgeKind::End {
                continue;
            }
            while let Some(stretch) = solid_tail(&kept, &mut merge) {
                let begin_ns = kept[kept.len() - stretch].ns;
                kept.truncate(kept.len() - stretch);
                kept.extend([Edge { ns: begin_ns, kind: EdgeKind::BeginSolid }, edge]);
            }
        }
        kept.extend(newer);
        if kept.len() > EDGES - EDGES / 8 {
            // Thousands of zones are nested: only their outline is kept.
            let outline = kept.first().map(|first| Edge { kind: EdgeKind::BeginSolid, ..*first });
            kept = outline.into_iter().chain(kept.last().copied()).collect();
        }
        self.edges = Edges::new(kept);
    }
}

/// Returns how many of the last edges become one solid stretch.
fn solid_tail(edges: &[Edge], merge: &mut bool) -> Option<usize> {
    let begins = |edge: &Edge| edge.kind != EdgeKind::End;
    match edges {
        [.., around, inner, inner_end, _] if begins(around) && begins(inner) && !begins(inner_end) => Some(4),
        [.., left, left_end, right, _] if begins(left) && !begins(left_end) && begins(right) => {
            *merge = !*merge;
            merge.then_some(4)
        }
        _ => None,
    }
}

/// The number of entries of a batch that are drawn nested on one lane.
const STACKED: u32 = 128;

/// Returns the record's part of a large batch: readers draw a few hundred levels of nested slices.
pub(super) fn part_of(record: &ZoneRecord) -> u32 {
    record.entry.map_or(0, |entry| entry.index / STACKED)
}

/// The key of a zone's own lane under its stream or thread: the lane that it was given at run time, the one that its range
/// declares, or that of the ranks that it communicates with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnLane {
    /// The one that the zone or its range names.
    Named(&'static str),
    /// The group, and the part of a large batch.
    Group(u64, u32),
}

impl OwnLane {
    /// Returns the lane and its name, or none for most zones.
    #[inline]
    pub(super) fn for_record(record: &ZoneRecord) -> Option<(OwnLane, &str)> {
        let group = || record.message.as_ref()?.group.as_ref();
        match record.named_lane() {
            Some(name) => Some((OwnLane::Named(name), name)),
            None => group().map(|group| (OwnLane::Group(group.id(), part_of(record)), group.lane())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads spans back from one lane's slices in the order of writing: sorted by begin, as a stack.
    fn read(written: &[Span]) -> Option<Vec<(i64, i64)>> {
        let mut edges: Vec<(i64, bool)> =
            written.iter().flat_map(|span| [(span.begin_ns, true), (span.end_ns, false)]).collect();
        edges.sort_by_key(|(ns, _)| *ns);
        let (mut open, mut spans) = (Vec::new(), Vec::new());
        for (ns, begins) in edges {
            if begins {
                open.push(ns);
            } else {
                spans.push((open.pop()?, ns));
            }
        }
        spans.sort_unstable();
        open.is_empty().then_some(spans)
    }

    proptest! {
        /// Limits are small in tests, so long runs close lanes and forget details.
        #[test]
        fn lanes_read_back_as_written(spans in prop::collection::vec((0_i64..400, 0_i64..60), 0..400), walk in any::<bool>()) {
            let mut lanes = Lanes::default();
            let mut tracks: Vec<Vec<Span>> = Vec::new();
            let mut current = Vec::new();
            for (index, (begin, length)) in spans.iter().enumerate() {
                // Half of the runs drift forwards, as zones do; the others jump about.
                let begin_ns = if walk { index as i64 * 4 + begin % 20 } else { *begin };
                let span = Span { begin_ns, end_ns: begin_ns + length };
                let place = lanes.place(span);
                prop_assert!(place.lane < LANES);
                if place.is_new {
                    current.resize(current.len().max(place.lane + 1), 0);
                    current[place.lane] = tracks.len();
                    tracks.push(Vec::new());
                }
                tracks[current[place.lane]].push(span);
            }
            for track in &tracks {
                let mut expected: Vec<_> = track.iter().map(|span| (span.begin_ns, span.end_ns)).collect();
                expected.sort_unstable();
                prop_assert_eq!(read(track), Some(expected));
            }
        }
    }

    #[test]
    fn what_nests_stays_on_one_lane() {
        let mut lanes = Lanes::default();
        // An inner zone before and after its outer one, adjacent zones, and a thousand zones in one.
        for (begin_ns, end_ns) in [(10, 20), (20, 30), (5, 30), (6, 9), (30, 30), (30, 40)] {
            assert_eq!(lanes.place(Span { begin_ns, end_ns }).lane, 0, "{begin_ns}..{end_ns}");
        }
        for begin_ns in (50..2_050).step_by(2) {
            assert_eq!(lanes.place(Span { begin_ns, end_ns: begin_ns + 1 }).lane, 0, "{begin_ns}");
        }
        assert_eq!(lanes.place(Span { begin_ns: 4, end_ns: 3_000 }).lane, 0);
        assert_eq!(lanes.place(Span { begin_ns: 2_900, end_ns: 3_100 }), LanePosition { lane: 1, is_new: true });
    }

    #[test]
    fn nothing_goes_to_the_first_lane_that_begins_before_what_may_be_there() {
        let mut lanes = Lanes::with_first_from(100);
        for (begin_ns, end_ns, lane) in [(50, 60, 1), (0, 200, 1), (99, 300, 2), (100, 120, 0)] {
            let place = lanes.place(Span { begin_ns, end_ns });
            assert_eq!(place.lane, lane, "{begin_ns}..{end_ns}");
        }
        assert_eq!(lanes.until_ns(), 120);
    }

    #[test]
    fn thousands_of_levels_are_bounded() {
        let mut lane = Lane::default();
        for level in 0..10_000 {
            assert!(lane.insert(Span { begin_ns: 100_000 - level, end_ns: 100_000 + level }));
            assert!(lane.edges.len() <= EDGES + 2);
        }
    }
}
