//! The steps that a page shows: the slowest one, one of the usual length, and the first one, which often starts
//! libraries.

use warpline_core::record::Span;

/// The maximum number of steps that are kept to find a usual one. When it is exceeded, every second step is dropped.
const KEPT: usize = 1 << 12;

/// A step of one of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) trace: u32,
    pub(super) number: Option<u64>,
    pub(super) span: Span,
}

/// The steps of all traces.
#[derive(Default)]
pub(super) struct Steps {
    /// The longest of the first steps of all traces.
    first: Option<Step>,
    /// The longest of the steps that are not the first of their trace.
    slowest: Option<Step>,
    some: Vec<Step>,
    seen: usize,
    /// The trace of the last step.
    last: Option<u32>,
    /// One in this many is kept: a power of two.
    thinned: u32,
}

impl Steps {
    pub(super) fn add(&mut self, step: Step) {
        if self.last != Some(step.trace) {
            self.last = Some(step.trace);
            if self.first.is_none_or(|first| first.span.duration_ns() < step.span.duration_ns()) {
                self.first = Some(step);
            }
            return;
        }
        if self.slowest.is_none_or(|slowest| slowest.span.duration_ns() < step.span.duration_ns()) {
            self.slowest = Some(step);
        }
        if self.seen.is_multiple_of(1 << self.thinned) {
            self.some.push(step);
        }
        self.seen += 1;
        if self.some.len() > KEPT {
            let mut at = 0;
            self.some.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.thinned += 1;
        }
    }

    /// Returns the steps to show, each with a name.
    pub(super) fn shown(&self, median_ns: i64) -> Vec<(&'static str, Step)> {
        let Some(first) = self.first else { return Vec::new() };
        let Some(slowest) = self.slowest else { return vec![("the first step", first)] };
        let is_first_slower = first.span.duration_ns() > slowest.span.duration_ns();
        let name = if is_first_slower { "the slowest step after the first" } else { "the slowest step" };
        let usual = self.some.iter().min_by_key(|step| step.span.duration_ns().abs_diff(median_ns));
        let usual = usual.filter(|usual| **usual != slowest).map(|usual| ("a usual step", *usual));
        std::iter::once((name, slowest)).chain(usual).chain([("the first step", first)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_and_a_usual_step_are_found_among_very_many() {
        let mut steps = Steps::default();
        assert!(steps.shown(0).is_empty());
        for at in 0..100_000 {
            let length = if at == 77_777 { 5_000 } else { 100 + at % 101 };
            steps.add(Step {
                trace: 0,
                number: Some(at as u64),
                span: Span { begin_ns: at * 10_000, end_ns: at * 10_000 + length },
            });
            assert!(steps.some.len() <= KEPT);
        }
        let shown = steps.shown(150);
        assert_eq!((shown[0].0, shown[0].1.number), ("the slowest step", Some(77_777)));
        assert_eq!((shown[1].0, shown[1].1.span.duration_ns()), ("a usual step", 150));
        let mut one = Steps::default();
        one.add(Step { trace: 0, number: None, span: Span { begin_ns: 0, end_ns: 5 } });
        assert_eq!(one.shown(5).len(), 1);
        assert_eq!(one.shown(5)[0].0, "the first step");
        one.add(Step { trace: 0, number: None, span: Span { begin_ns: 5, end_ns: 8 } });
        let names: Vec<_> = one.shown(5).iter().map(|shown| shown.0).collect();
        assert_eq!(names, ["the slowest step after the first", "the first step"]);
        // With several traces, the longest first step counts.
        let mut two = Steps::default();
        for (trace, lengths) in [(0, [1, 5]), (1, [30, 4])] {
            for (at, ns) in lengths.into_iter().enumerate() {
                two.add(Step { trace, number: Some(at as u64), span: Span { begin_ns: 0, end_ns: ns } });
            }
        }
        let shown: Vec<_> = two.shown(5).iter().map(|shown| (shown.0, shown.1.trace)).collect();
        assert_eq!((shown[0], shown.last()), (("the slowest step after the first", 0), Some(&("the first step", 1))));
    }
}
