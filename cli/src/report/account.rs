//! The accounts that sessions write at their ends, read back into a report: what was dropped, left out and counted.

use std::time::Duration;

use warpline_core::report::{ClockFigures, Report, WindowFigures};

use crate::trace::Fact;

/// The accounts of all traces.
#[derive(Default)]
pub(super) struct Account {
    report: Report,
    clocks: Vec<ClockFigures>,
    begun_ns: Option<i64>,
    ended_ns: Option<i64>,
    duration_ns: i64,
    /// Whether the current trace has an account.
    is_ended: bool,
    /// Traces with an account, and without one.
    ended: u64,
    without: u64,
    changes: Vec<String>,
    notes: Vec<String>,
}

/// The most notes and changes that are kept.
const NOTES: usize = 64;

impl Account {
    pub(super) fn fact(&mut self, fact: Fact) {
        match fact {
            Fact::Begun(ns) => self.begun_ns = Some(self.begun_ns.map_or(ns, |known| known.min(ns))),
            Fact::Ended(ns) => {
                self.is_ended = true;
                self.ended_ns = Some(ns);
            }
            Fact::Note(note) if self.notes.len() < NOTES && !self.notes.contains(&note) => self.notes.push(note),
            Fact::Changed(name) if self.changes.len() < NOTES && !self.changes.contains(&name) => {
                self.changes.push(name)
            }
            Fact::Number(name, number) => self.number(&name, number),
            Fact::Note(_) | Fact::Changed(_) => {}
        }
    }

    /// Ends a trace. Returns whether time without a zone in it is idle time.
    pub(super) fn end_trace(&mut self, is_whole: bool) -> bool {
        let is_ended = std::mem::take(&mut self.is_ended);
        if let Some((begun, ended)) = self.begun_ns.take().zip(self.ended_ns.take()) {
            self.duration_ns = self.duration_ns.max(ended.saturating_sub(begun));
        }
        if is_ended {
            self.ended += 1
        } else {
            self.without += 1
        }
        is_whole && is_ended && self.report.is_complete()
    }

    /// Adds the accounts to a report of so many zones.
    pub(super) fn add_to(&self, report: &mut Report, zones: u64) {
        *report = self.report.clone();
        report.clocks.clone_from(&self.clocks);
        report.duration = Duration::from_nanos(self.duration_ns.max(0) as u64);
        report.of_traces = Some(self.without == 0);
        report.notes.clone_from(&self.notes);
        if self.ended == 0 {
            (report.begun, report.recorded) = (zones, zones);
        }
        if self.changes.iter().any(|name| name == "session stopped") {
            report.left_out.while_stopped = true;
        }
        if let Some(change) = self.changes.iter().find(|name| name.ends_with(" changed")) {
            report.notes.push(format!("the {change} while the session ran, so figures do not cover all of the time"));
        }
        if self.without > 0 && self.ended > 0 {
            let traces = crate::output::counted_as(self.without, "trace has", "traces have");
            report
                .notes
                .push(format!("{traces} no account of the session, so zones that were dropped there are not counted"));
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        let count = number.max(0) as u64;
        let report = &mut self.report;
        let dropped = |dropped: &mut warpline_core::report::Dropped, reason: &str| match reason {
            "ring_full" => dropped.ring_full += count,
            "event_failed" => dropped.event_failed += count,
            "stream_failed" => dropped.stream_failed += count,
            "capture_failed" => dropped.capture_failed += count,
            "unfinished" => dropped.unfinished += count,
            _ => {}
        };
        let windows = |report: &mut Report, set: &dyn Fn(&mut WindowFigures)| {
            set(report.windows.get_or_insert_with(WindowFigures::default));
        };
        match name {
            "begun" => report.begun += count,
            "recorded" => report.recorded += count,
            "captured" => report.captured += count,
            "not_sampled" => report.not_sampled += count,
            "windows" => windows(report, &|windows| windows.windows += count),
            "windows_recorded_ppm" => windows(report, &|windows| windows.recorded = count as f64 / 1e6),
            "windows_cost_ppm" => windows(report, &|windows| windows.cost = Some(count as f64 / 1e6)),
            "windows_cut" => windows(report, &|windows| windows.cut += count),
            "ranges_left_out" => report.left_out.ranges = report.left_out.ranges.max(count),
            "was_stopped" => report.left_out.while_stopped |= count > 0,
            "steps_left_out" => report.steps.left_out += count,
            "fields.cut" => report.fields.cut += count,
            "fields.left_out" => report.fields.left_out += count,
            "fields.lanes_left_out" => report.fields.lanes_left_out += count,
            "spans.begun" => report.spans.begun += count,
            "spans.recorded" => report.spans.recorded += count,
            "spans.dropped.buffer_full" => report.spans.buffer_full += count,
            "spans.dropped.unfinished" => report.spans.unfinished += count,
            "kernels.recorded" => report.kernels.recorded += count,
            "kernels.dropped.cupti" => report.kernels.dropped += count,
            "kernels.dropped.untimed" => report.kernels.untimed += count,
            "kernels.buffers_refused" => report.kernels.buffers_refused += count,
            "synchronizations.recorded" => report.synchronizations.recorded += count,
            "synchronizations.dropped" => report.synchronizations.dropped += count,
            "kernel_timing.timed" => report.kernel_timing.timed += count,
            "kernel_timing.without_work" => report.kernel_timing.without_work += count,
            "kernel_timing.lost" => report.kernel_timing.lost += count,
            "replays.recorded" => report.graph_timing.replays += count,
            "replays.stamps" => report.graph_timing.stamps += count,
            "replays.by_kernels" => report.graph_timing.by_kernels += count,
            "replays.stamps_lost" => report.graph_timing.lost += count,
            "replays.incomplete" => report.graph_timing.incomplete += count,
            "replays.mixed" => report.graph_timing.mixed += count,
            "replays.stamps_stopped" => report.graph_timing.stopped += count,
            "replays.stamps_unknown" => report.graph_timing.unknown += count,
            "replays.untimed.not_ready" => report.graph_timing.untimed_not_ready += count,
            "replays.untimed.refused" => report.graph_timing.untimed_refused += count,
            "replays.untimed.spanning" => report.graph_timing.untimed_spanning += count,
            "replays.bracket_ns" => report.graph_timing.bracket_ns = report.graph_timing.bracket_ns.max(number),
            "replays.uncertainty_ns" => {
                report.graph_timing.uncertainty_ns = report.graph_timing.uncertainty_ns.max(number)
            }
            "waits.begun" => report.waits.begun += count,
            "waits.recorded" => report.waits.recorded += count,
            "waits.depths_dropped" => report.waits.depths_dropped += count,
            "memory.begun" => report.memory_counts.begun += count,
            "memory.recorded" => report.memory_counts.recorded += count,
            "memory.dropped" => report.memory_counts.dropped += count,
            "memory.untracked" => report.memory_counts.untracked += count,
            "memory.unknown" => report.memory_counts.unknown += count,
            "memory.within" => report.memory_counts.within += count,
            "memory.refused" => report.memory_counts.refused += count,
            "event_pool.held" => report.event_pool.held += count,
            "event_pool.created" => report.event_pool.created += count,
            "event_pool.exhausted" => report.event_pool.exhausted += count,
            name => match name.split_once("dropped.") {
                Some(("", reason)) => dropped(&mut report.dropped, reason),
                Some(("waits.", reason)) => dropped(&mut report.waits.dropped, reason),
                _ => self.clock(name, number),
            },
        }
    }

    /// A figure of a device's clock: the device's name, a point, and the figure. Traces that share a device have the worst of them.
    fn clock(&mut self, name: &str, ns: i64) {
        let Some((device, figure)) = name.rsplit_once('.') else { return };
        if !["clock_uncertainty_ns", "bracket_ns", "busy_bracket_ns", "bracket_is_bound"].contains(&figure) {
            return;
        }
        let at = match self.clocks.iter().position(|clock| clock.device == device) {
            Some(at) => at,
            None if self.clocks.len() < NOTES => {
                let device = device.to_owned();
                let unknown = ClockFigures {
                    device,
                    uncertainty_ns: 0,
                    bracket_ns: 0,
                    busy_bracket_ns: 0,
                    bracket_is_bound: false,
                };
                self.clocks.push(unknown);
                self.clocks.len() - 1
            }
            None => return,
        };
        let clock = &mut self.clocks[at];
        match figure {
            "clock_uncertainty_ns" => clock.uncertainty_ns = clock.uncertainty_ns.max(ns),
            "bracket_ns" => clock.bracket_ns = clock.bracket_ns.max(ns),
            "busy_bracket_ns" => clock.busy_bracket_ns = clock.busy_bracket_ns.max(ns),
            _ => clock.bracket_is_bound |= ns > 0,
        }
    }
}
