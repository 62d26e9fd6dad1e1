//! The time of one stream: in zones, in waits, and how much of both is uncertain.
//!
//! The collector, the report of traces and the tables of queries count with it, so that their figures are equal. The memory is bounded.

use crate::intervals::Covered;
use crate::record::{Span, is_bound};

/// The zones and the waits of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamTime {
    /// The time in zones or waits.
    used: Covered,
    waiting: Covered,
    /// The time in which it is not known whether a zone still ran.
    uncertain: Covered,
    /// The same times without the uncertain ends of waits; none while there is no such end, when they are equal.
    certain: Option<Box<Certain>>,
}

#[derive(Clone, Debug)]
struct Certain {
    used: Covered,
    waiting: Covered,
}

/// The sums of one stream's times, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSums {
    /// The time in zones or waits.
    pub used_ns: i64,
    /// The time in zones that was certainly not spent in waits is at most this.
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

    /// Adds a wait, whose end may be earlier by `early_by_ns`.
    pub fn add_wait(&mut self, span: Span, early_by_ns: i64) {
        let is_bounded = is_bound(span.duration_ns(), early_by_ns);
        if is_bounded && self.certain.is_none() {
            self.certain = Some(Box::new(Certain { used: self.used.clone(), waiting: self.waiting.clone() }));
        }
        self.used.add(span);
        self.waiting.add(span);
        if let Some(certain) = &mut self.certain {
            let span = if is_bounded { span.without_tail(early_by_ns) } else { span };
            certain.used.add(span);
            certain.waiting.add(span);
        }
    }

    /// Returns the end of the last zone or wait.
    pub fn until_ns(&self) -> i64 {
        self.used.until_ns()
    }

    pub fn sums(&self) -> StreamSums {
        let (used_ns, waiting_ns) = (self.used.length_ns(), self.waiting.length_ns());
        let outside = |used: i64, waiting: i64| (used - waiting).max(0);
        let least_ns = outside(used_ns, waiting_ns);
        let (busy_ns, least_waiting_ns) = match &self.certain {
            None => (least_ns, waiting_ns),
            Some(certain) => {
                let waiting_ns = certain.waiting.length_ns();
                (outside(certain.used.length_ns(), waiting_ns), waiting_ns)
            }
        };
        StreamSums {
            used_ns,
            busy_ns,
            busy_early_ns: (self.uncertain.length_ns() + busy_ns - least_ns).min(busy_ns),
            waiting_ns,
            waiting_early_ns: (waiting_ns - least_waiting_ns).max(0),
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
        assert_eq!(time.sums(), known);
        // Outside a zone, the stream may have been idle for 60 ns of the wait.
        time.add_wait(span(300, 400), 60);
        let outside = StreamSums { used_ns: 300, waiting_ns: 200, waiting_early_ns: 60, ..known };
        assert_eq!(time.sums(), outside);
        // Inside a zone, it may have run for 40 ns of the wait.
        time.add_zone(span(500, 600), 0);
        time.add_wait(span(500, 550), 40);
        let inside =
            StreamSums { used_ns: 400, busy_ns: 190, busy_early_ns: 40, waiting_ns: 250, waiting_early_ns: 100 };
        assert_eq!(time.sums(), inside);
        // A zone whose end is not timed.
        time.add_zone(span(700, 800), 30);
        assert_eq!(time.sums(), StreamSums { used_ns: 500, busy_ns: 290, busy_early_ns: 70, ..inside });
        assert_eq!(time.until_ns(), 800);
    }
}
