//! Puts the slices of one row on lanes, so that the slices of a lane nest, and finds the slices that arrows lead from and to.
//!
//! A reader sorts the begins and ends of a lane by time, keeps the file's order for equal times, and lets each end close the innermost open
//! slice. The end of a slice is written directly after its begin, so the order in the file is the order of the events' numbers. A lane takes
//! a slice only if reading it in this way gives the slices that were written. No time is changed.

/// The maximum number of lanes of a row. Slices that overlap so many others are left out.
pub(crate) const MAX_LANES: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) begin_ns: i64,
    pub(crate) end_ns: i64,
    /// The number in the file.
    pub(crate) number: u32,
}

/// An end of an arrow whose slice is to be found on a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loose {
    pub(super) ns: i64,
    /// Use the next slice if no slice encloses the end.
    pub(super) or_next: bool,
    /// The index in the list of arrows.
    pub(super) arrow: u32,
}

/// Sorts the slices and returns the lane of each; then, for each loose end, in any order, the number of its slice.
pub(crate) fn place(slices: &mut [Slice], on_lane: impl FnMut(Slice, Option<usize>)) -> usize {
    place_and_bind(slices, &mut [], on_lane, |_, _| {})
}

pub(super) fn place_and_bind(
    slices: &mut [Slice],
    loose: &mut [Loose],
    mut on_lane: impl FnMut(Slice, Option<usize>),
    mut on_bound: impl FnMut(u32, u32),
) -> usize {
    slices.sort_unstable_by_key(|slice| (slice.begin_ns, slice.number));
    loose.sort_unstable_by_key(|end| (end.ns, end.arrow));
    let mut lanes: Vec<Vec<Slice>> = Vec::new();
    let mut bind = |end: &Loose, lanes: &mut [Vec<Slice>]| {
        let mut around: Option<Slice> = None;
        for lane in lanes {
            while lane.last().is_some_and(|slice| slice.end_ns < end.ns) {
                lane.pop();
            }
            if let Some(slice) = lane.last() {
                around = around.filter(|found| found.begin_ns > slice.begin_ns).or(Some(*slice));
            }
        }
        let next = || slices.get(slices.partition_point(|slice| slice.begin_ns < end.ns)).copied();
        if let Some(slice) = around.or_else(|| if end.or_next { next() } else { None }) {
            on_bound(end.arrow, slice.number);
        }
    };
    let mut loose = loose.iter().peekable();
    for slice in &*slices {
        while let Some(end) = loose.next_if(|end| end.ns < slice.begin_ns) {
            bind(end, &mut lanes);
        }
        let lane = lanes.iter_mut().position(|open| fits(*slice, open)).or_else(|| {
            (lanes.len() < MAX_LANES).then(|| {
                lanes.push(Vec::new());
                lanes.len() - 1
            })
        });
        if let Some(lane) = lane {
            lanes[lane].push(*slice);
        }
        on_lane(*slice, lane);
    }
    for end in loose {
        bind(end, &mut lanes);
    }
    lanes.len()
}

/// Whether a slice that begins after all of these nests with them. Removes those that have ended.
fn fits(slice: Slice, open: &mut Vec<Slice>) -> bool {
    while let Some(last) = open.last() {
        if (last.end_ns, last.number) < (slice.begin_ns, slice.number) {
            open.pop();
        } else {
            break;
        }
    }
    // Two that end at one time may be closed in either order.
    open.last().is_none_or(|last| last.end_ns >= slice.end_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads spans back as a trace's reader does.
    fn read(lane: &[Slice]) -> Vec<(i64, i64)> {
        let mut edges: Vec<_> =
            lane.iter().flat_map(|s| [(s.begin_ns, s.number, false), (s.end_ns, s.number, true)]).collect();
        edges.sort_unstable();
        let (mut open, mut spans) = (Vec::new(), Vec::new());
        for (ns, _, is_end) in edges {
            if is_end {
                spans.push((open.pop().unwrap(), ns));
            } else {
                open.push(ns);
            }
        }
        spans.sort_unstable();
        spans
    }

    proptest! {
        #[test]
        fn lanes_read_back_as_written(spans in prop::collection::vec((0_i64..60, 0_i64..20), 0..120)) {
            let mut slices: Vec<_> = spans
                .iter()
                .zip(0..)
                .map(|((begin_ns, len), number)| Slice { begin_ns: *begin_ns, end_ns: begin_ns + len, number })
                .collect();
            let mut lanes = vec![Vec::new(); 120];
            let count = place(&mut slices, |slice, lane| lanes[lane.unwrap()].push(slice));
            prop_assert!(lanes[count..].iter().all(Vec::is_empty));
            for lane in &lanes {
                let mut written: Vec<_> = lane.iter().map(|s| (s.begin_ns, s.end_ns)).collect();
                written.sort_unstable();
                prop_assert_eq!(written, read(lane));
            }
        }
    }

    #[test]
    fn what_nests_or_touches_stays_on_one_lane() {
        let spans = [(0, 100), (0, 50), (10, 20), (20, 30), (50, 100), (100, 101)];
        let mut slices: Vec<_> =
            spans.iter().zip(0..).map(|(s, number)| Slice { begin_ns: s.0, end_ns: s.1, number }).collect();
        assert_eq!(place(&mut slices, |_, lane| assert_eq!(lane, Some(0))), 1);
    }
}
