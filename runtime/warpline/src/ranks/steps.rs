//! What happens in each step: the time in which a rank computes, communicates, waits, idles and launches.
//!
//! Times of streams are cut at the step's begin and end, so the parts of a step add up to its length. Zones belong to the step in which their
//! thread began them. The time in which it is not known whether a zone still ran, because its length is only a bound
//! ([`ZoneRecord::is_bounded`]), is a part of its own. A step is closed some time after its end, when the zones that it launched have been read. The memory is bounded.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::Peekable;

use super::pending::{Pending, PendingZones};
use super::ranges::RangeFigures;
use warpline_core::catalog::Kind;
use warpline_core::intervals::Intervals;
use warpline_core::record::{Span, ZoneRecord};
use warpline_core::step::StepRecord;
use warpline_core::wait::WaitRecord;

/// The most pieces of time of one kind.
const MOST_PIECES: usize = 1 << 16;

/// The most steps that wait to be closed; with more, the oldest is closed.
const MOST_STEPS: usize = 1 << 10;

/// The most streams whose last zone is known.
const MOST_STREAMS: usize = 1 << 10;

/// The most stages of a step, and the most of a window.
const MOST_STAGES: usize = 64;
const MOST_STAGES_OF_WINDOW: usize = 1 << 17;

/// The most rows of ranges by step of a window: of a window that has more, none is written.
const MOST_ROWS: usize = 1 << 16;

/// A row of `steps`.
#[derive(Clone, Debug, Default)]
pub(super) struct StepRow {
    pub(super) step: i64,
    pub(super) begin_ns: i64,
    pub(super) wall_ns: i64,
    pub(super) compute_ns: i64,
    pub(super) comm_ns: i64,
    pub(super) comm_hidden_ns: i64,
    pub(super) wait_ns: i64,
    pub(super) idle_ns: i64,
    /// Time in which it is not known whether a zone still ran, and in none of the parts above.
    pub(super) uncertain_ns: i64,
    pub(super) launch_ns: i64,
    pub(super) zones: i64,
    pub(super) dropped: i64,
    /// The maximum time by which an end is earlier than it is recorded.
    pub(super) end_early_ns: i64,
}

/// A row of `stages`.
#[derive(Clone, Debug)]
pub(super) struct StageRow {
    pub(super) step: i64,
    pub(super) idx: i32,
    pub(super) name: &'static str,
    pub(super) dur_ns: i64,
    /// The maximum time by which the end is earlier than it is recorded.
    pub(super) end_early_ns: i64,
}

/// What a closed step leaves.
#[derive(Default)]
pub(super) struct Closed {
    pub(super) steps: Vec<StepRow>,
    pub(super) stages: Vec<StageRow>,
    /// The figures of each range in each step.
    pub(super) ranges: Vec<(i64, &'static str, RangeFigures)>,
    /// Stages that had no room.
    pub(super) stages_left_out: u64,
    /// Whether the ranges of steps had no room, and are left out.
    pub(super) ranges_left_out: bool,
}

/// Where steps are closed into, by the time at which they ended.
pub(super) trait ByEnd {
    /// The place of a step that ended then.
    fn of(&mut self, end_ns: i64) -> &mut Closed;
}

/// The last zone of a stream that was read.
struct LastZone {
    stream: u32,
    begin_ns: i64,
    depth: u32,
    thread: u64,
}

/// The steps that are not closed, and what is known of their time.
#[derive(Default)]
pub(super) struct OpenSteps {
    steps: VecDeque<(StepRecord, i64)>,
    pending: PendingZones,
    compute: Intervals,
    comm: Intervals,
    waits: Intervals,
    /// The times in which it is not known whether a zone still ran.
    uncertain: Intervals,
    /// The last zone of each stream, and the stream that was read last: zones come in batches of one stream.
    last: Vec<LastZone>,
    last_at: usize,
    /// The end of the last closed step.
    closed_until_ns: i64,
    /// Dropped zones that were noticed since the last step was added.
    dropped: i64,
    /// Zones that came after their step was closed, or for which there was no room.
    pub(super) late: u64,
}

impl OpenSteps {
    pub(super) fn zone(&mut self, zone: &ZoneRecord) {
        // A zone around several steps ends after the last of them, and is in none.
        if zone.host.end_ns <= self.closed_until_ns {
            self.late += 1;
        }
        if let (Some(stream), Some(gpu)) = (&zone.stream, zone.gpu) {
            let is_frame = self.is_frame(stream.id, gpu, zone);
            if !is_frame || zone.range.kind() == Kind::Collective {
                self.work(zone, gpu);
            }
        }
        // An entry of a batch has the batch's times.
        if zone.entry.is_some() {
            return;
        }
        let is_kept = self.pending.push(Pending {
            name: zone.range.name(),
            host: zone.host,
            thread: zone.thread.id,
            depth: zone.depth,
            ns: zone.duration_ns(),
            launch_ns: launch_ns(zone),
            end_early_ns: zone.end_early_by_ns,
        });
        self.late += u64::from(!is_kept);
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
    pub(super) fn work(&mut self, zone: &ZoneRecord, gpu: Span) {
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
    pub(super) fn wait(&mut self, wait: &WaitRecord) {
        let Some(gpu) = wait.gpu else { return };
        let certain = if wait.is_bounded() { gpu.without_tail(wait.end_early_by_ns) } else { gpu };
        self.waits.add(certain);
        self.uncertain.add(Span { begin_ns: certain.end_ns, ..gpu });
    }

    /// Returns for how much of a span something waited, as far as that is known.
    pub(super) fn waited_within(&self, span: Span) -> i64 {
        length_ns(self.waits.within(span))
    }

    pub(super) fn dropped(&mut self, zones: i64) {
        self.dropped += zones;
    }

    pub(super) fn step(&mut self, step: &StepRecord) {
        let dropped = std::mem::take(&mut self.dropped);
        self.steps.push_back((step.clone(), dropped));
    }

    /// Closes the steps that ended before this time, each into the place for its end.
    pub(super) fn close(&mut self, until_ns: i64, closed: &mut impl ByEnd) {
        let is_due = |steps: &VecDeque<(StepRecord, i64)>| {
            steps.front().is_some_and(|(step, _)| step.host.end_ns <= until_ns) || steps.len() > MOST_STEPS
        };
        if is_due(&self.steps) {
            self.pending.sort();
        }
        while is_due(&self.steps) {
            if let Some((step, dropped)) = self.steps.pop_front() {
                self.close_step(&step, dropped, closed.of(step.host.end_ns));
            }
        }
        self.forget(until_ns);
    }

    fn close_step(&mut self, step: &StepRecord, dropped: i64, closed: &mut Closed) {
        let span = step.host;
        let number = i64::try_from(step.number).unwrap_or(i64::MAX);
        let (compute_ns, comm_ns) = (within_ns(&self.compute, span), within_ns(&self.comm, span));
        let hidden_ns: i64 = self.comm.within(span).map(|span| within_ns(&self.compute, span)).sum();
        let work_ns = compute_ns + comm_ns - hidden_ns;
        let all_ns = match self.waits.within(span).next() {
            None => work_ns,
            Some(_) => union_ns([&self.compute, &self.comm, &self.waits].map(|intervals| intervals.within(span))),
        };
        let known = [&self.compute, &self.comm, &self.waits, &self.uncertain];
        let uncertain_ns = match self.uncertain.within(span).next() {
            None => 0,
            Some(_) => union_ns(known.map(|intervals| intervals.within(span))) - all_ns,
        };
        let zones = self.pending.take(span);
        closed.steps.push(StepRow {
            step: number,
            begin_ns: span.begin_ns,
            wall_ns: span.duration_ns(),
            compute_ns,
            comm_ns,
            comm_hidden_ns: hidden_ns,
            // Beside the work, which is compute and communication without what both have.
            wait_ns: all_ns - work_ns,
            idle_ns: span.duration_ns() - all_ns - uncertain_ns,
            uncertain_ns,
            launch_ns: launching_ns(zones, span),
            zones: zones.len() as i64,
            dropped,
            end_early_ns: zones.iter().map(|zone| zone.end_early_ns).max().unwrap_or(0),
        });
        closed.add_ranges(number, zones);
        closed.add_stages(number, zones, step.thread.id);
        self.closed_until_ns = self.closed_until_ns.max(span.end_ns);
    }

    /// Forgets times before the oldest step that is not closed. Without one, everything that has aged is in no step.
    fn forget(&mut self, until_ns: i64) {
        let open_ns = self.steps.front().map(|(step, _)| step.host.begin_ns);
        let keep_ns = open_ns.unwrap_or(self.closed_until_ns);
        for intervals in [&mut self.compute, &mut self.comm, &mut self.waits, &mut self.uncertain] {
            while intervals.first().is_some_and(|first| first.end_ns <= keep_ns) || intervals.len() > MOST_PIECES {
                intervals.pop_first();
            }
        }
        // Where nothing marks steps, nothing will ask for the zones.
        if open_ns.is_none() && self.closed_until_ns == 0 {
            self.pending.forget(until_ns);
        }
    }
}

impl Closed {
    fn add_ranges(&mut self, step: i64, zones: &[Pending]) {
        if self.ranges_left_out {
            return;
        }
        let first = self.ranges.len();
        for zone in zones {
            let of_step = &mut self.ranges[first..];
            // Texts are compared only where no range has the same one.
            let known = of_step.iter().position(|(_, name, _)| std::ptr::eq(*name, zone.name));
            let known = known.or_else(|| of_step.iter().position(|(_, name, _)| *name == zone.name));
            match known.map(|known| &mut of_step[known]) {
                Some((.., figures)) => figures.add(zone.ns, zone.end_early_ns, zone.launch_ns),
                None => {
                    let mut figures = RangeFigures::default();
                    figures.add(zone.ns, zone.end_early_ns, zone.launch_ns);
                    self.ranges.push((step, zone.name, figures));
                }
            }
        }
        if self.ranges.len() > MOST_ROWS {
            self.ranges = Vec::new();
            self.ranges_left_out = true;
        }
    }

    /// Adds the outermost zones of the step's thread in order. If one zone is around all others, it is the step itself, and its parts are the
    /// stages.
    fn add_stages(&mut self, step: i64, zones: &[Pending], thread: u64) {
        let of_thread = || zones.iter().filter(|zone| zone.thread == thread);
        // The least depth, how many zones have it, and the least of the others.
        let (mut outer, mut count, mut inner) = (u32::MAX, 0, u32::MAX);
        for zone in of_thread() {
            match zone.depth.cmp(&outer) {
                Ordering::Less => (outer, count, inner) = (zone.depth, 1, outer),
                Ordering::Equal => count += 1,
                Ordering::Greater => inner = inner.min(zone.depth),
            }
        }
        let depth = if count == 1 && inner < u32::MAX { inner } else { outer };
        for (idx, zone) in of_thread().filter(|zone| zone.depth == depth).enumerate() {
            if idx >= MOST_STAGES || self.stages.len() >= MOST_STAGES_OF_WINDOW {
                self.stages_left_out += 1;
                continue;
            }
            self.stages.push(StageRow {
                step,
                idx: idx as i32,
                name: zone.name,
                dur_ns: zone.ns,
                end_early_ns: zone.end_early_ns,
            });
        }
    }
}

fn length_ns(spans: impl Iterator<Item = Span>) -> i64 {
    spans.map(|span| span.duration_ns()).sum()
}

fn within_ns(intervals: &Intervals, span: Span) -> i64 {
    length_ns(intervals.within(span))
}

/// Returns for how much of a step its zones were being launched. They are in the order of their begins.
fn launching_ns(zones: &[Pending], step: Span) -> i64 {
    let (mut sum_ns, mut until_ns) = (0, step.begin_ns);
    for zone in zones.iter().filter(|zone| zone.launch_ns > 0) {
        let end_ns = zone.host.end_ns.min(step.end_ns);
        sum_ns += (end_ns - zone.host.begin_ns.max(until_ns)).max(0);
        until_ns = until_ns.max(end_ns);
    }
    sum_ns
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

/// Returns the time that a thread spent to launch a zone; 0 for a zone of a thread.
pub(super) fn launch_ns(zone: &ZoneRecord) -> i64 {
    zone.gpu.map_or(0, |_| zone.host.duration_ns())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zones(number: usize) -> Vec<Pending> {
        let zone = |at: usize| Pending {
            name: format!("test.{at:04}").leak(),
            host: Span { begin_ns: at as i64, end_ns: at as i64 + 1 },
            thread: 1,
            depth: 0,
            ns: 1,
            launch_ns: 0,
            end_early_ns: 0,
        };
        (0..number).map(zone).collect()
    }

    impl ByEnd for Closed {
        fn of(&mut self, _: i64) -> &mut Closed {
            self
        }
    }

    #[test]
    fn the_rows_of_a_window_are_bounded_and_what_is_left_out_is_known() {
        let zones = zones(100);
        let mut closed = Closed::default();
        for step in 0..3_000 {
            closed.add_ranges(step, &zones);
            closed.add_stages(step, &zones, 1);
        }
        assert!(closed.ranges_left_out && closed.ranges.is_empty());
        assert_eq!(closed.stages.len(), MOST_STAGES_OF_WINDOW);
        assert_eq!(closed.stages_left_out, 300_000 - MOST_STAGES_OF_WINDOW as u64);
        let mut few = Closed::default();
        few.add_ranges(7, &[&zones[..3], &zones[..3]].concat());
        let rows: Vec<_> = few.ranges.iter().map(|(step, name, figures)| (*step, *name, figures.n)).collect();
        assert_eq!(rows, [(7, "test.0000", 2), (7, "test.0001", 2), (7, "test.0002", 2)]);
    }

    proptest! {
        /// Threads may launch at once, and a launch may end after its step.
        #[test]
        fn a_moment_in_which_two_threads_launch_counts_once(
            launches in prop::collection::vec((0_i64..100, 0_i64..40, 1_u64..4), 0..30),
        ) {
            let step = Span { begin_ns: 0, end_ns: 100 };
            let mut all = Intervals::default();
            let pending = |(begin_ns, ns, thread)| {
                let host = Span { begin_ns, end_ns: begin_ns + ns };
                all.add(host);
                Pending { name: "test", host, thread, depth: 0, ns, launch_ns: ns, end_early_ns: 0 }
            };
            let mut zones: Vec<_> = launches.into_iter().map(pending).collect();
            zones.sort_by_key(|zone| zone.host.begin_ns);
            prop_assert_eq!(launching_ns(&zones, step), within_ns(&all, step));
            zones.iter_mut().for_each(|zone| zone.launch_ns = 0);
            prop_assert_eq!(launching_ns(&zones, step), 0, "zones of threads");
        }

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
        use warpline_report::fixture::{span, thread, waits};

        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        let wait = |gpu, end_early_by_ns| WaitRecord { gpu: Some(gpu), end_early_by_ns, ..wait.clone() };
        let mut steps = OpenSteps::default();
        steps.wait(&wait(span(100, 200), 5));
        steps.wait(&wait(span(200, 600), 300));
        assert_eq!(steps.waited_within(span(0, 1_000)), 200);
        steps.step(&StepRecord { number: 3, thread: thread(7, None), host: span(0, 1_000) });
        let mut closed = Closed::default();
        steps.close(i64::MAX, &mut closed);
        let [row] = &closed.steps[..] else { panic!("one step") };
        assert_eq!((row.wait_ns, row.uncertain_ns, row.idle_ns), (200, 300, 500));
    }

    #[test]
    fn time_in_which_a_zone_may_have_ended_is_a_part_of_its_own() {
        use warpline_core::record::EndSource;
        use warpline_report::fixture::{COPY, STEP, span, stream, thread, zone};

        let (compute, copies, main) = (stream(1, "compute"), stream(2, "copies"), thread(7, None));
        let lazy = |range, stream, host, gpu, early_by_ns| {
            let mut zone = zone(range, Some(stream), &main, host, Some(gpu));
            (zone.end, zone.end_early_by_ns) = (EndSource::Observed, early_by_ns);
            zone
        };
        let mut steps = OpenSteps::default();
        steps.zone(&lazy(&STEP, &compute, span(10, 20), span(100, 200), 5));
        // It ran from 200 to 300, and perhaps until 600; another stream certainly works from 500.
        steps.zone(&lazy(&STEP, &compute, span(20, 30), span(200, 600), 300));
        steps.zone(&lazy(&COPY, &copies, span(40, 50), span(500, 700), 0));
        steps.step(&StepRecord { number: 3, thread: main.clone(), host: span(0, 1_000) });
        let mut closed = Closed::default();
        steps.close(i64::MAX, &mut closed);
        let [row] = &closed.steps[..] else { panic!("one step") };
        assert_eq!((row.compute_ns, row.uncertain_ns, row.wait_ns), (400, 200, 0));
        assert_eq!(row.idle_ns + row.uncertain_ns + row.compute_ns, row.wall_ns);
        let of = |name: &str| closed.ranges.iter().find(|(_, range, _)| *range == name).expect("a range").2;
        let figures = of(STEP.name());
        assert_eq!((figures.n, figures.sum_ns, figures.max_ns), (1, 100, 100));
        assert_eq!((figures.bounded, figures.bounded_sum_ns, figures.bounded_least_ns), (1, 400, 100));
        let early: Vec<_> = closed.stages.iter().map(|stage| (stage.dur_ns, stage.end_early_ns)).collect();
        assert_eq!(early, [(100, 5), (400, 300), (200, 0)]);
    }
}
