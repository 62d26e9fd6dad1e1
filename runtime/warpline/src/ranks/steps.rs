//! What happens in each step: the time in which a rank computes, communicates, waits, idles and launches.
//!
//! Zones belong to the step in which their thread began them. A step is closed some time after its end, when the zones that it launched have
//! been read: [`StepTimes`] then says what its time went into. The memory is bounded.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::pending::{Pending, PendingZones};
use super::ranges::RangeFigures;
use crate::step_times::{MOST_STEPS, Parts, StepTimes};
use warpline_core::record::{Span, ZoneRecord};
use warpline_core::step::StepRecord;

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
    pub(super) parts: Parts,
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
    fn closed_at(&mut self, end_ns: i64) -> &mut Closed;
}

/// The steps that are not closed, and what is known of their time.
#[derive(Default)]
pub(super) struct OpenSteps {
    steps: VecDeque<(StepRecord, i64)>,
    pending: PendingZones,
    pub(super) times: StepTimes,
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
        self.times.zone(zone);
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
                self.close_step(&step, dropped, closed.closed_at(step.host.end_ns));
            }
        }
        self.forget(until_ns);
    }

    fn close_step(&mut self, step: &StepRecord, dropped: i64, closed: &mut Closed) {
        let span = step.host;
        let number = i64::try_from(step.number).unwrap_or(i64::MAX);
        let zones = self.pending.take(span);
        closed.steps.push(StepRow {
            step: number,
            begin_ns: span.begin_ns,
            wall_ns: span.duration_ns(),
            parts: self.times.parts(span),
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
        self.times.forget(keep_ns);
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

/// Returns the time that a thread spent to launch a zone; 0 for a zone of a thread.
pub(super) fn launch_ns(zone: &ZoneRecord) -> i64 {
    zone.gpu.map_or(0, |_| zone.host.duration_ns())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warpline_core::intervals::Intervals;

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
        fn closed_at(&mut self, _: i64) -> &mut Closed {
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
            prop_assert_eq!(launching_ns(&zones, step), all.within(step).map(|span| span.duration_ns()).sum::<i64>());
            zones.iter_mut().for_each(|zone| zone.launch_ns = 0);
            prop_assert_eq!(launching_ns(&zones, step), 0, "zones of threads");
        }
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
        let Parts { compute_ns, uncertain_ns, wait_ns, idle_ns, .. } = row.parts;
        assert_eq!((compute_ns, uncertain_ns, wait_ns), (400, 200, 0));
        assert_eq!(idle_ns + uncertain_ns + compute_ns, row.wall_ns);
        let of = |name: &str| closed.ranges.iter().find(|(_, range, _)| *range == name).expect("a range").2;
        let figures = of(STEP.name());
        assert_eq!((figures.n, figures.sum_ns, figures.max_ns), (1, 100, 100));
        assert_eq!((figures.bounded, figures.bounded_sum_ns, figures.bounded_least_ns), (1, 400, 100));
        let early: Vec<_> = closed.stages.iter().map(|stage| (stage.dur_ns, stage.end_early_ns)).collect();
        assert_eq!(early, [(100, 5), (400, 300), (200, 0)]);
    }
}
