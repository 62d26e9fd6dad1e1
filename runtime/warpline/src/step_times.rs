//! What the time of a step went into: computing, communication, waits, the rest, and what is not known. The tables of ranks and the metrics
//! have their figures of steps from here, so own time is the same in both.
//!
//! Times of streams are cut at the step's begin and end, so the parts of a step add up to its length. The time in which it is not known
//! whether a zone still ran, because its length is only a bound ([`ZoneRecord::is_bounded`]), is a part of its own. The memory is bounded.

use std::iter::Peekable;

use warpline_core::catalog::Kind;
use warpline_core::intervals::Intervals;
use warpline_core::record::{Span, ZoneRecord};
use warpline_core::wait::WaitRecord;

/// The time after the end of a step at which its zones have been read.
pub(crate) const SETTLED_NS: i64 = 1_000_000_000;

/// The most steps that wait until then.
pub(crate) const MOST_STEPS: usize = 1 << 10;

/// The most pieces of time of one kind.
const MOST_PIECES: usize = 1 << 16;

/// The most streams whose last zone is known.
const MOST_STREAMS: usize = 1 << 10;

/// The parts of a step, in ns. Without what is hidden, they add up to its length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) compute_ns: i64,
    pub(crate) comm_ns: i64,
    /// The part of `comm_ns` that is also `compute_ns`.
    pub(crate) comm_hidden_ns: i64,
    /// Beside the work, which is compute and communication.
    pub(crate) wait_ns: i64,
    pub(crate) idle_ns: i64,
    /// Time in which it is not known whether a zone still ran, and in none of the parts above.
    pub(crate) uncertain_ns: i64,
}

/// The last zone of a stream that was read.
struct LastZone {
    stream: u32,
    begin_ns: i64,
    depth: u32,
    thread: u64,
}

/// What is known of the time of all streams, as long as a step may ask for it.
#[derive(Default)]
pub(crate) struct StepTimes {
    compute: Intervals,
    comm: Intervals,
    waits: Intervals,
    /// The times in which it is not known whether a zone still ran.
    uncertain: Intervals,
    /// The last zone of each stream, and the stream that was read last: zones come in batches of one stream.
    last: Vec<LastZone>,
    last_at: usize,
}

impl StepTimes {
    /// Adds a zone that a thread launched.
    pub(crate) fn zone(&mut self, zone: &ZoneRecord) {
        if let (Some(stream), Some(gpu)) = (&zone.stream, zone.gpu) {
            let is_frame = self.is_frame(stream.id, gpu, zone);
            if !is_frame || zone.range.kind() == Kind::Collective {
                self.work(zone, gpu);
            }
        }
    }

    /// Returns whether a zone has others inside it: what they do not cover may be a gap. The inner ones end first.
    fn is_frame(&mut self, stream: u32, gpu: Span, zone: &ZoneRecord) -> bool {
        let this = LastZone { stream, begin_ns: gpu.begin_ns, depth: zone.depth, thread: zone.thread.id };
        if self.last.get(self.last_at).is_none_or(|last| last.stream != stream) {
            let known = self.last.iter().position(|last| last.stream == stream);
            if known.is_none() && self.last.len() >= MOST_STREAMS {
                self.last.clear();
            }
            self.last_at = known.unwrap_or(self.last.len());
        }
        let Some(last) = self.last.get_mut(self.last_at) else {
            self.last.push(this);
            return false;
        };
        let before = std::mem::replace(last, this);
        before.begin_ns >= gpu.begin_ns && before.depth > zone.depth && before.thread == zone.thread.id
    }

    /// Adds work of a stream: that of a zone, or of one in the replay of a graph, which no thread launched.
    pub(crate) fn work(&mut self, zone: &ZoneRecord, gpu: Span) {
        let tail = zone.uncertain_tail();
        let certain = tail.map_or(gpu, |tail| Span { end_ns: tail.begin_ns, ..gpu });
        match zone.range.kind() {
            Kind::Collective => self.comm.add(certain),
            _ => self.compute.add(certain),
        }
        if let Some(tail) = tail {
            self.uncertain.add(tail);
        }
    }

    /// Adds a wait of a stream, up to where it may have ended if no event times its end.
    pub(crate) fn wait(&mut self, wait: &WaitRecord) {
        let Some(gpu) = wait.gpu else { return };
        let certain = if wait.is_bounded() { gpu.without_tail(wait.end_early_by_ns) } else { gpu };
        self.waits.add(certain);
        self.uncertain.add(Span { begin_ns: certain.end_ns, ..gpu });
    }

    /// Returns for how much of a span something waited, as far as that is known.
    pub(crate) fn waited_within(&self, span: Span) -> i64 {
        within_ns(&self.waits, span)
    }

    /// Returns the parts of a step.
    pub(crate) fn parts(&self, step: Span) -> Parts {
        let (compute_ns, comm_ns) = (within_ns(&self.compute, step), within_ns(&self.comm, step));
        let comm_hidden_ns: i64 = self.comm.within(step).map(|span| within_ns(&self.compute, span)).sum();
        let work_ns = compute_ns + comm_ns - comm_hidden_ns;
        let all_ns = match self.waits.within(step).next() {
            None => work_ns,
            Some(_) => union_ns([&self.compute, &self.comm, &self.waits].map(|intervals| intervals.within(step))),
        };
        let known = [&self.compute, &self.comm, &self.waits, &self.uncertain];
        let uncertain_ns = match self.uncertain.within(step).next() {
            None => 0,
            Some(_) => union_ns(known.map(|intervals| intervals.within(step))) - all_ns,
        };
        let idle_ns = step.duration_ns() - all_ns - uncertain_ns;
        Parts { compute_ns, comm_ns, comm_hidden_ns, wait_ns: all_ns - work_ns, idle_ns, uncertain_ns }
    }

    /// Forgets times before this one, and the oldest of too many.
    pub(crate) fn forget(&mut self, until_ns: i64) {
        for intervals in [&mut self.compute, &mut self.comm, &mut self.waits, &mut self.uncertain] {
            while intervals.first().is_some_and(|first| first.end_ns <= until_ns) || intervals.len() > MOST_PIECES {
                intervals.pop_first();
            }
        }
    }
}

fn within_ns(intervals: &Intervals, span: Span) -> i64 {
    intervals.within(span).map(|span| span.duration_ns()).sum()
}

/// Returns the time that any of them covers. Each has its spans in order.
fn union_ns<I: Iterator<Item = Span>, const N: usize>(parts: [I; N]) -> i64 {
    let mut parts: [Peekable<I>; N] = parts.map(Iterator::peekable);
    let (mut sum_ns, mut until_ns) = (0, i64::MIN);
    loop {
        let begins = parts.iter_mut().enumerate().filter_map(|(part, spans)| Some((spans.peek()?.begin_ns, part)));
        let Some((_, part)) = begins.min() else { return sum_ns };
        if let Some(span) = parts[part].next() {
            sum_ns += (span.end_ns - span.begin_ns.max(until_ns)).max(0);
            until_ns = until_ns.max(span.end_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warpline_report::fixture::{span, waits};

    use super::*;

    proptest! {
        #[test]
        fn a_union_covers_each_moment_once(
            spans in prop::array::uniform3(prop::collection::vec((0_i64..200, 0_i64..30), 0..30)),
        ) {
            let mut all = Intervals::default();
            let parts = spans.map(|spans| {
                let mut part = Intervals::default();
                for (begin_ns, ns) in spans {
                    part.add(Span { begin_ns, end_ns: begin_ns + ns });
                    all.add(Span { begin_ns, end_ns: begin_ns + ns });
                }
                part
            });
            let whole = Span { begin_ns: 0, end_ns: 300 };
            prop_assert_eq!(union_ns(parts.each_ref().map(|part| part.within(whole))), all.length_ns());
        }
    }

    #[test]
    fn time_in_which_a_wait_may_have_ended_is_a_part_of_its_own() {
        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        let wait = |gpu, end_early_by_ns| WaitRecord { gpu: Some(gpu), end_early_by_ns, ..wait.clone() };
        let mut times = StepTimes::default();
        times.wait(&wait(span(100, 200), 5));
        times.wait(&wait(span(200, 600), 300));
        assert_eq!(times.waited_within(span(0, 1_000)), 200);
        let parts = times.parts(span(0, 1_000));
        assert_eq!((parts.wait_ns, parts.uncertain_ns, parts.idle_ns), (200, 300, 500));
    }
}
