//! Arrows: which slices a trace's flows lead from and to.
//!
//! In Chrome's format the ends of a flow are separate events, whose id may be reused; in Perfetto's format each arrow has a unique id on
//! the slices at its two ends. The ends with one id are therefore sorted by time, and an arrow leads from each start or step to the next
//! step and to all finishes before it.

/// One end, as in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The hash of what connects ends.
    pub(super) key: u64,
    pub(super) ns: i64,
    /// The number of the event in the file.
    pub(super) number: u32,
    pub(super) phase: Phase,
    /// The number of the slice at this end, if there is one.
    pub(super) slice: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Start,
    Step,
    Finish,
}

/// An arrow's end at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    /// The number of the event in the file.
    pub(crate) number: u32,
    /// The number of the arrow, from 1.
    pub(crate) arrow: u32,
    pub(crate) is_end: bool,
}

/// Returns the links of all arrows, sorted by the numbers of the events, the number of arrows, and the number of ends without an arrow.
/// `alone` is called for ends of arrows without a slice, which need an event of their own.
pub(super) fn link(mut ends: Vec<End>, mut alone: impl FnMut(u32)) -> (Vec<Link>, u32, u64) {
    ends.sort_unstable_by_key(|end| (end.key, end.ns, end.number));
    let (mut links, mut arrows, mut nowhere) = (Vec::new(), 0, 0);
    let mut arrow = |from: End, to: End| {
        arrows += 1;
        for (end, is_end) in [(from, false), (to, true)] {
            links.push(Link { number: end.slice.unwrap_or(end.number), arrow: arrows, is_end });
            if end.slice.is_none() {
                alone(end.number);
            }
        }
    };
    for flow in ends.chunk_by(|one, next| one.key == next.key) {
        // The start of the next arrow, and whether an arrow leads from it already; a finish before it.
        let (mut origin, mut leads, mut early) = (None, false, None);
        for end in flow {
            match (end.phase, origin) {
                (Phase::Finish, Some(from)) => {
                    arrow(from, *end);
                    leads = true;
                }
                (Phase::Finish, None) => nowhere += u64::from(early.replace(*end).is_some()),
                (Phase::Step, Some(from)) => {
                    arrow(from, *end);
                    (origin, leads) = (Some(*end), true);
                }
                (Phase::Start | Phase::Step, _) => {
                    nowhere += u64::from(origin.is_some() && !leads);
                    // The clocks of the two ends may differ slightly.
                    let finish = early.take();
                    if let Some(finish) = finish {
                        arrow(finish, *end);
                    }
                    (origin, leads) = (Some(*end), finish.is_some());
                }
            }
        }
        nowhere += u64::from(origin.is_some() && !leads) + u64::from(early.is_some());
    }
    links.sort_unstable();
    (links, arrows, nowhere)
}

#[cfg(test)]
mod tests {
    use super::Phase::{Finish, Start, Step};
    use super::*;

    fn linked(ends: &[(i64, Phase)]) -> (Vec<(u32, u32, bool)>, u64) {
        let ends = ends
            .iter()
            .zip(0..)
            .map(|((ns, phase), number)| End { key: 7, ns: *ns, number, phase: *phase, slice: Some(number) })
            .collect();
        let (links, _, nowhere) = link(ends, |_| panic!("all have slices"));
        (links.iter().map(|link| (link.number, link.arrow, link.is_end)).collect(), nowhere)
    }

    #[test]
    fn an_id_may_be_used_again() {
        let twice = linked(&[(1, Start), (2, Finish), (3, Start), (4, Finish)]);
        assert_eq!(twice, (vec![(0, 1, false), (1, 1, true), (2, 2, false), (3, 2, true)], 0));
    }

    #[test]
    fn a_flow_with_steps_is_several_arrows() {
        let steps = linked(&[(1, Start), (2, Step), (3, Finish)]);
        assert_eq!(steps, (vec![(0, 1, false), (1, 1, true), (1, 2, false), (2, 2, true)], 0));
    }

    #[test]
    fn an_end_that_comes_first_by_its_clock_is_no_end_alone() {
        assert_eq!(linked(&[(2, Start), (1, Finish)]), (vec![(0, 1, true), (1, 1, false)], 0));
        assert_eq!(linked(&[(1, Start), (2, Start)]), (vec![], 2));
        assert_eq!(linked(&[(1, Finish), (2, Finish)]), (vec![], 2));
    }

    #[test]
    fn one_launch_leads_to_all_its_kernels() {
        let fan = linked(&[(1, Start), (2, Finish), (3, Finish)]);
        assert_eq!(fan, (vec![(0, 1, false), (0, 2, false), (1, 1, true), (2, 2, true)], 0));
    }
}
