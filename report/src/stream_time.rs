//! The time of one stream: at work, in waits, and how much of both is uncertain.
//!
//! The work of a stream is its kernels, copies and memory sets where those of its device are recorded, and its zones where they are not: a zone is
//! also around time in which nothing ran. The collector, the report of traces and the tables of queries count with it, so that their figures are equal. The
//! memory is bounded.

use warpline_core::intervals::Covered;
use warpline_core::record::{Span, is_bound};

/// The work and the waits of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamTime {
    /// The time in zones or waits.
    used: Covered,
    waiting: Covered,
    /// The time in which it is not known whether a zone still ran.
    uncertain: Covered,
    /// The same times without the uncertain ends of waits; none while there is no such end, when they are equal.
    certain: Option<Box<Certain>>,
    /// None if it has no kernel, copy or memory set.
    work: Option<Box<Work>>,
}

#[derive(Clone, Debug)]
struct Work {
    busy: Covered,
    /// The time at work or in waits.
    used: Covered,
}

#[derive(Clone, Debug)]
struct Certain {
    used: Covered,
    waiting: Covered,
}

/// The sums of one stream's times, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSums {
    /// The time at work or in waits.
    pub used_ns: i64,
    /// The time at work that was certainly not spent in waits is at most this.
    pub busy_ns: i64,
    /// The time by which `busy_ns` may be shorter.
    pub busy_early_ns: i64,
    /// The time in waits is at most this.
    pub waiting_ns: i64,
    /// The time by which `waiting_ns` may be shorter.
    pub waiting_early_ns: i64,
}

impl StreamTime {
    /// Adds a zone, whose end may be earlier by `early_by_ns`.
    pub fn add_zone(&mut self, span: Span, early_by_ns: i64) {
        self.used.add(span);
        if let Some(certain) = &mut self.certain {
            certain.used.add(span);
        }
        if is_bound(span.duration_ns(), early_by_ns) {
            self.uncertain.add(Span { begin_ns: span.without_tail(early_by_ns).end_ns, ..span });
        }
    }

    /// Adds a kernel, a copy or a memory set.
    pub fn add_work(&mut self, span: Span) {
        let work =
            self.work.get_or_insert_with(|| Box::new(Work { busy: Covered::default(), used: self.waiting.clone() }));
        work.busy.add(span);
        work.used.add(span);
    }

    /// Returns whether it has a kernel, a copy or a memory set. Then zones on its device are no work.
    pub fn has_work(&self) -> bool {
        self.work.is_some()
    }

    /// Adds a wait, whose end may be earlier by `early_by_ns`.
    pub fn add_wait(&mut self, span: Span, early_by_ns: i64) {
        let is_bounded = is_bound(span.duration_ns(), early_by_ns);
        if is_bounded && self.certain.is_none() {
            self.certain = Some(Box::new(Certain { used: self.used.clone(), waiting: self.waiting.clone() }));
        }
        self.used.add(span);
        self.waiting.add(span);
        if let Some(work) = &mut self.work {
            work.used.add(span);
        }
        if let Some(certain) = &mut self.certain {
            let span = if is_bounded { span.without_tail(early_by_ns) } else { span };
            certain.used.add(span);
            certain.waiting.add(span);
        }
    }

    /// Returns the end of the last work, zone or wait.
    pub fn until_ns(&self) -> i64 {
        self.used.until_ns().max(self.work.as_ref().map_or(i64::MIN, |work| work.used.until_ns()))
    }

    /// Returns the sums. `has_kernels`: a stream of its device has work, so that zones are none.
    pub fn sums(&self, has_kernels: bool) -> StreamSums {
        let (used_ns, waiting_ns) = (self.used.length_ns(), self.waiting.length_ns());
        let least_waiting_ns = self.certain.as_ref().map_or(waiting_ns, |certain| certain.waiting.length_ns());
        let waiting_early_ns = (waiting_ns - least_waiting_ns).max(0);
        if has_kernels {
            let work = self.work.as_ref().map(|work| (work.used.length_ns(), work.busy.length_ns()));
            let (used_ns, busy_ns) = work.unwrap_or((waiting_ns, 0));
            return StreamSums { used_ns, busy_ns, busy_early_ns: 0, waiting_ns, waiting_early_ns };
        }
        let outside = |used: i64, waiting: i64| (used - waiting).max(0);
        let least_ns = outside(used_ns, waiting_ns);
        let busy_ns =
            self.certain.as_ref().map_or(least_ns, |certain| outside(certain.used.length_ns(), least_waiting_ns));
        StreamSums {
            used_ns,
            busy_ns,
            busy_early_ns: (self.uncertain.length_ns() + busy_ns - least_ns).min(busy_ns),
            waiting_ns,
            waiting_early_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    #[test]
    fn the_uncertain_end_of_a_wait_is_waiting_and_inside_a_zone_also_busy() {
        let mut time = StreamTime::default();
        time.add_zone(span(0, 100), 0);
        time.add_wait(span(100, 200), 5);
        let known = StreamSums { used_ns: 200, busy_ns: 100, waiting_ns: 100, ..StreamSums::default() };
        assert_eq!(time.sums(false), known);
        // Outside a zone, the stream may have been idle for 60 ns of the wait.
        time.add_wait(span(300, 400), 60);
        let outside = StreamSums { used_ns: 300, waiting_ns: 200, waiting_early_ns: 60, ..known };
        assert_eq!(time.sums(false), outside);
        // Inside a zone, it may have run for 40 ns of the wait.
        time.add_zone(span(500, 600), 0);
        time.add_wait(span(500, 550), 40);
        let inside =
            StreamSums { used_ns: 400, busy_ns: 190, busy_early_ns: 40, waiting_ns: 250, waiting_early_ns: 100 };
        assert_eq!(time.sums(false), inside);
        // A zone whose end is not timed.
        time.add_zone(span(700, 800), 30);
        assert_eq!(time.sums(false), StreamSums { used_ns: 500, busy_ns: 290, busy_early_ns: 70, ..inside });
        assert_eq!(time.until_ns(), 800);
    }

    #[test]
    fn kernels_are_the_work_and_the_zones_around_them_are_not() {
        let mut time = StreamTime::default();
        time.add_zone(span(0, 1_000), 600);
        time.add_wait(span(1_000, 1_200), 0);
        assert!(!time.has_work());
        for work in [span(100, 300), span(250, 400), span(900, 950)] {
            time.add_work(work);
        }
        // A wait that comes later, and may have ended earlier.
        time.add_wait(span(1_300, 1_400), 50);
        let sums = StreamSums { used_ns: 650, busy_ns: 350, busy_early_ns: 0, waiting_ns: 300, waiting_early_ns: 50 };
        assert_eq!((time.has_work(), time.sums(true), time.until_ns()), (true, sums, 1_400));
        // A stream of the device that has none.
        let mut idle = StreamTime::default();
        idle.add_zone(span(0, 1_000), 0);
        idle.add_wait(span(1_000, 1_200), 0);
        let sums = StreamSums { used_ns: 200, waiting_ns: 200, ..StreamSums::default() };
        assert_eq!(idle.sums(true), sums);
        assert_eq!(idle.sums(false).busy_ns, 1_000);
    }
}
