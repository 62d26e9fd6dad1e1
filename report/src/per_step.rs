//! What each range takes in a step of the program: the zones of a step are those that were launched in it.
//!
//! A session and the command `warpline report` use it. A zone and its step come in any order, because a device may finish the work of a
//! step long after the step, and a step is known at its end. Memory is bounded: the newest steps stay open for late zones, and a zone
//! that comes after its step was closed is counted.

use std::collections::{HashMap, VecDeque};

use hdrhistogram::Histogram;

use warpline_core::record::{Span, is_bound};

/// The number of steps that stay open for zones that come later.
const OPEN: usize = 256;

/// The largest number of zones that wait for their step.
const WAITING: usize = 1 << 16;

/// The largest number of ranges that are told apart within one step.
const RANGES: usize = 4_096;

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

/// The steps of one program.
#[derive(Default)]
pub struct PerStep {
    open: VecDeque<Step>,
    waiting: VecDeque<(i64, u32, InStep)>,
    figures: HashMap<u32, StepSums>,
    steps: u64,
    late: u64,
}

/// A step, with the number and the time of the zones of each range, by the caller's number of the range.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub span: Span,
    pub ranges: HashMap<u32, InStep>,
}

/// The zones of one range in one step, or one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InStep {
    pub zones: u64,
    pub ns: i64,
    /// Whether the length of one of them is only a bound, and so is `ns`.
    pub is_bound: bool,
}

/// What one range took in the steps in which it ran.
#[derive(Clone)]
pub struct StepSums {
    /// The steps in which it ran.
    pub steps: u64,
    pub zones: u64,
    /// Further steps in which it ran, in a time that is only a bound.
    pub bounded_steps: u64,
    pub total_ns: i64,
    pub max_ns: i64,
    lengths: Option<Histogram<u64>>,
}

impl StepSums {
    fn new() -> StepSums {
        StepSums { steps: 0, zones: 0, bounded_steps: 0, total_ns: 0, max_ns: 0, lengths: Histogram::new(DIGITS).ok() }
    }

    fn add(&mut self, InStep { zones, ns, is_bound }: InStep) {
        if is_bound {
            self.bounded_steps += 1;
            return;
        }
        self.steps += 1;
        self.zones += zones;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
        if let Some(lengths) = &mut self.lengths {
            // The histogram grows with the range of the values, which `saturating_record` would not let it do.
            let _ = lengths.record(ns.max(0) as u64);
        }
    }

    /// Adds the steps of another program.
    pub fn merge(&mut self, other: &StepSums) {
        self.steps += other.steps;
        self.zones += other.zones;
        self.bounded_steps += other.bounded_steps;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        if let (Some(lengths), Some(others)) = (&mut self.lengths, &other.lengths) {
            // Both grow as needed, so nothing is out of range.
            let _ = lengths.add(others);
        }
    }

    /// Returns a percentile of the time in a step, in ns; within 1 %.
    pub fn percentile(&self, quantile: f64) -> i64 {
        let lengths = self.lengths.as_ref().filter(|_| self.steps > 0);
        lengths.map_or(0, |lengths| lengths.value_at_quantile(quantile) as i64).min(self.max_ns)
    }
}

impl PerStep {
    /// Adds a zone that was launched at `begin_ns`, and whose end may be earlier by `early_by_ns`.
    pub fn zone(&mut self, range: u32, begin_ns: i64, ns: i64, early_by_ns: i64) {
        let zone = InStep { zones: 1, ns, is_bound: is_bound(ns, early_by_ns) };
        let at = self.open.partition_point(|step| step.span.end_ns <= begin_ns);
        match self.open.get_mut(at) {
            Some(step) if step.span.begin_ns <= begin_ns => step.add(range, zone),
            // Between two steps, or before the steps that are still open.
            Some(_) => self.late += u64::from(at == 0 && self.steps > OPEN as u64),
            None => {
                if self.waiting.len() >= WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back((begin_ns, range, zone));
            }
        }
    }

    /// Adds a step, and returns the step that is closed for it.
    pub fn step(&mut self, span: Span) -> Option<Step> {
        if self.open.back().is_some_and(|last| last.span.end_ns > span.begin_ns) || span.end_ns <= span.begin_ns {
            return None;
        }
        self.steps += 1;
        let mut step = Step { span, ranges: HashMap::new() };
        self.waiting.retain(|(begin_ns, range, zone)| {
            if (span.begin_ns..span.end_ns).contains(begin_ns) {
                step.add(*range, *zone);
            }
            *begin_ns >= span.end_ns
        });
        self.open.push_back(step);
        let closed = if self.open.len() > OPEN { self.open.pop_front() } else { None };
        closed.inspect(|step| close(step, &mut self.figures))
    }

    /// Returns the steps that are still open, oldest first.
    pub fn open(&self) -> impl Iterator<Item = &Step> {
        self.open.iter()
    }

    /// Returns the figures of each range.
    pub fn figures(&self) -> HashMap<u32, StepSums> {
        let mut figures = self.figures.clone();
        self.open.iter().for_each(|step| close(step, &mut figures));
        figures
    }

    /// Returns the number of zones that came too late for their step. They are in no figure.
    pub fn late(&self) -> u64 {
        self.late
    }
}

impl Step {
    fn add(&mut self, range: u32, zone: InStep) {
        if self.ranges.len() < RANGES || self.ranges.contains_key(&range) {
            let sums = self.ranges.entry(range).or_default();
            sums.zones += zone.zones;
            sums.ns += zone.ns;
            sums.is_bound |= zone.is_bound;
        }
    }
}

fn close(step: &Step, figures: &mut HashMap<u32, StepSums>) {
    for (range, sums) in &step.ranges {
        figures.entry(*range).or_insert_with(StepSums::new).add(*sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    #[test]
    fn a_zone_belongs_to_the_step_that_launched_it_whichever_comes_first() {
        let mut steps = PerStep::default();
        steps.zone(1, 10, 5, 0);
        steps.zone(1, 20, 6, 0);
        steps.zone(2, 110, 7, 0);
        steps.step(span(0, 100));
        // Between two steps.
        steps.zone(1, 105, 50, 0);
        steps.step(span(108, 200));
        // The device was late.
        steps.zone(1, 30, 4, 0);
        steps.zone(1, 150, 40, 0);
        let figures = steps.figures();
        let of = |range: u32| (figures[&range].steps, figures[&range].zones, figures[&range].total_ns);
        assert_eq!((of(1), of(2), steps.late()), ((2, 4, 55), (1, 1, 7), 0));
        assert_eq!((figures[&1].percentile(0.5), figures[&1].percentile(1.0)), (15, 40));
        let mut long = PerStep::default();
        long.zone(1, 10, 1_000_000, 0);
        long.zone(1, 110, 2_000_000, 0);
        long.step(span(0, 100));
        long.step(span(100, 200));
        assert!((1_000_000..=1_010_000).contains(&long.figures()[&1].percentile(0.5)));
    }

    #[test]
    fn memory_is_bounded_and_a_zone_that_comes_too_late_is_counted() {
        let mut steps = PerStep::default();
        (0..200_000).for_each(|at| steps.zone(1, at, 1, 0));
        assert_eq!(steps.waiting.len(), WAITING);
        let mut steps = PerStep::default();
        let closed = (0..1_000).filter_map(|at| steps.step(span(100 * at, 100 * at + 90))).count();
        steps.zone(1, 5, 10, 0);
        assert_eq!((closed, steps.open.len(), steps.late()), (1_000 - OPEN, OPEN, 1));
    }

    #[test]
    fn a_step_with_a_zone_whose_length_is_only_a_bound_is_in_no_figure() {
        let mut steps = PerStep::default();
        steps.zone(1, 10, 100, 0);
        steps.step(span(0, 100));
        steps.zone(1, 110, 70_000, 69_000);
        steps.zone(1, 120, 100, 5);
        steps.zone(2, 130, 40, 0);
        steps.step(span(100, 200));
        let figures = steps.figures();
        let of = |range: u32| {
            let StepSums { steps, zones, bounded_steps, total_ns, max_ns, .. } = &figures[&range];
            (*steps, *zones, *bounded_steps, *total_ns, *max_ns)
        };
        assert_eq!((of(1), of(2)), ((1, 1, 1, 100, 100), (1, 1, 0, 40, 40)));
        let mut both = figures[&1].clone();
        both.merge(&figures[&1]);
        assert_eq!(both.bounded_steps, 2);
    }
}
