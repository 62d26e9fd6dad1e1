//! The accounts that sessions write at their ends, read back into a report: what was dropped, left out and counted.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use warpline_report::{ClockFigures, Report, Source, WindowFigures};

use crate::trace::Fact;

/// The accounts of all traces.
#[derive(Default)]
pub(super) struct Account {
    report: Report,
    clocks: Vec<ClockFigures>,
    begun_ns: Option<i64>,
    ended_ns: Option<i64>,
    duration_ns: i64,
    /// The length of the current trace, from its account.
    length_ns: Option<i64>,
    /// How many zones of each range ran, where fewer were recorded.
    seen: HashMap<String, u64>,
    /// Whether the current trace has an account.
    is_ended: bool,
    /// Traces of sessions with an account, and without one.
    ended: u64,
    without: u64,
    /// Traces of other tools, which have none.
    others: u64,
    /// Traces without an account whose session began: the program ended before it finished the session.
    unfinished: u64,
    changes: Vec<String>,
    notes: Vec<String>,
    /// The slices of other tools' categories that are not read.
    other_categories: BTreeMap<String, u64>,
}

/// The most that a sum of counts reaches: a file may say anything, and no sum of these overflows.
const MOST: u64 = 1 << 56;

/// The most ranges of which the numbers of zones that ran are kept.
const MOST_SEEN: usize = 1 << 14;

/// The longest name of such a range, in bytes: memory is bounded, whatever a file says.
const LONGEST: usize = 1 << 10;

/// The most characters of a category that a note shows.
const SHOWN: usize = 64;

/// The most categories that a note names.
const LISTED: usize = 8;

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
            Fact::Other(category, slices) if self.other_categories.len() < NOTES => {
                let category = category.chars().take(SHOWN).collect();
                *self.other_categories.entry(category).or_default() += slices;
            }
            Fact::Note(_) | Fact::Changed(_) | Fact::Other(..) => {}
            Fact::Clocks { .. } | Fact::Process(_) | Fact::Attribute(..) => {}
        }
    }

    /// Returns which slices of other tools are in no figure.
    pub(super) fn others_note(&self) -> Option<String> {
        let mut all: Vec<_> = self.other_categories.iter().collect();
        all.sort_by_key(|(category, slices)| (std::cmp::Reverse(**slices), *category));
        let sum = all.iter().map(|(_, slices)| **slices).sum();
        let shown = all.iter().take(LISTED).map(|(category, slices)| format!("`{category}` ({slices})"));
        let (shown, more) = (shown.collect::<Vec<_>>().join(", "), all.len().saturating_sub(LISTED));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let slices = crate::output::counted_as(
            sum,
            "slice of a category that is not read is",
            "slices of categories that are not read are",
        );
        (sum > 0).then(|| format!("{slices} in no figure: {shown}{more}"))
    }

    /// Ends a trace. Returns whether time without a zone is idle time, where only zones are known, and whether time
    /// without a kernel is.
    pub(super) fn end_trace(&mut self, is_whole: bool, is_ours: bool) -> (bool, bool) {
        let is_ended = std::mem::take(&mut self.is_ended);
        match (self.begun_ns.take(), self.ended_ns.take()) {
            (Some(begun), Some(ended)) => {
                let length_ns = self.length_ns.take().unwrap_or_else(|| ended.saturating_sub(begun));
                self.duration_ns = self.duration_ns.max(length_ns);
            }
            (Some(_), None) => self.unfinished += 1,
            _ => {}
        }
        match (is_ended, is_ours) {
            (true, _) => self.ended += 1,
            (false, true) => self.without += 1,
            (false, false) => self.others += 1,
        }
        (is_whole && is_ended && self.report.is_complete(), is_whole && self.report.kernels.lost() == 0)
    }

    /// Adds the accounts to a report of this many zones.
    pub(super) fn add_to(&self, report: &mut Report, zones: u64) {
        *report = self.report.clone();
        report.clocks.clone_from(&self.clocks);
        report.duration = Duration::from_nanos(self.duration_ns.max(0) as u64);
        report.source = match (self.ended + self.without, self.without + self.others) {
            (0, _) => Source::OtherTraces,
            (_, 0) => Source::Traces,
            _ => Source::TracesWithoutAccount,
        };
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
        report.notes.extend(self.unfinished_note());
        report.notes.extend(self.others_note());
        let without = self.without + self.others;
        if without > self.unfinished && self.ended > 0 {
            let traces = crate::output::counted_as(without - self.unfinished, "trace has", "traces have");
            report
                .notes
                .push(format!("{traces} no account of the session, so zones that were dropped there are not counted"));
        }
    }

    /// Returns how many zones of a range ran, if a session counted those that it did not record, and whether they scale
    /// the figures: whether nothing but a sample left them out.
    pub(super) fn seen(&self, range: &str) -> (Option<u64>, bool) {
        let Report { captured, dropped, .. } = &self.report;
        (self.seen.get(range).copied(), *captured == 0 && dropped.total() == 0)
    }

    /// Returns what is missing because programs ended without finishing their sessions.
    pub(super) fn unfinished_note(&self) -> Option<String> {
        let which = match (self.unfinished, self.ended + self.without + self.others) {
            (0, _) => return None,
            (1, 1) => "the program".to_owned(),
            (count, _) => format!("the program of {}", crate::output::counted_as(count, "trace", "traces")),
        };
        Some(format!(
            "{which} ended without finishing the session (it aborted, crashed or was killed), or the file was cut: the last zones may be \
             missing, and dropped zones are not counted"
        ))
    }

    fn number(&mut self, name: &str, number: i64) {
        let count = (number.max(0) as u64).min(MOST);
        let report = &mut self.report;
        let add = |sum: &mut u64| *sum = (*sum + count).min(MOST);
        let dropped = |dropped: &mut warpline_report::Dropped, reason: &str| match reason {
            "ring_full" => add(&mut dropped.ring_full),
            "event_failed" => add(&mut dropped.event_failed),
            "stream_failed" => add(&mut dropped.stream_failed),
            "capture_failed" => add(&mut dropped.capture_failed),
            "unfinished" => add(&mut dropped.unfinished),
            _ => {}
        };
        let windows = |report: &mut Report, set: &dyn Fn(&mut WindowFigures)| {
            set(report.windows.get_or_insert_with(WindowFigures::default));
        };
        match name {
            "begun" => add(&mut report.begun),
            "recorded" => add(&mut report.recorded),
            "captured" => add(&mut report.captured),
            "not_sampled" => add(&mut report.not_sampled),
            "windows" => windows(report, &|windows| add(&mut windows.windows)),
            "windows_recorded_ppm" => windows(report, &|windows| windows.recorded = count as f64 / 1e6),
            "windows_cost_ppm" => windows(report, &|windows| windows.cost = Some(count as f64 / 1e6)),
            "windows_cut" => windows(report, &|windows| add(&mut windows.cut)),
            "duration_ns" => self.length_ns = Some(number),
            "ranges" => report.left_out.of_ranges = report.left_out.of_ranges.max(count),
            "ranges_left_out" => report.left_out.ranges = report.left_out.ranges.max(count),
            "was_stopped" => report.left_out.while_stopped |= count > 0,
            "steps_left_out" => add(&mut report.steps.left_out),
            "steps_cut" => add(&mut report.steps.cut),
            "steps_dropped" => add(&mut report.steps.dropped),
            "fields.cut" => add(&mut report.fields.cut),
            "fields.left_out" => add(&mut report.fields.left_out),
            "fields.lanes_left_out" => add(&mut report.fields.lanes_left_out),
            "spans.begun" => add(&mut report.spans.begun),
            "spans.recorded" => add(&mut report.spans.recorded),
            "spans.dropped.buffer_full" => add(&mut report.spans.buffer_full),
            "spans.dropped.unfinished" => add(&mut report.spans.unfinished),
            "kernels.recorded" => add(&mut report.kernels.recorded),
            "kernels.dropped.cupti" => add(&mut report.kernels.dropped),
            "kernels.dropped.untimed" => add(&mut report.kernels.untimed),
            "kernels.buffers_refused" => add(&mut report.kernels.buffers_refused),
            "kernels.uncertainty_ns" => report.kernels.uncertainty_ns = report.kernels.uncertainty_ns.max(number),
            "synchronizations.recorded" => add(&mut report.synchronizations.recorded),
            "synchronizations.dropped" => add(&mut report.synchronizations.dropped),
            "kernel_timing.timed" => add(&mut report.kernel_timing.timed),
            "kernel_timing.without_work" => add(&mut report.kernel_timing.without_work),
            "kernel_timing.lost" => add(&mut report.kernel_timing.lost),
            "replays.recorded" => add(&mut report.graph_timing.replays),
            "replays.stamps" => add(&mut report.graph_timing.stamps),
            "replays.by_kernels" => add(&mut report.graph_timing.by_kernels),
            "replays.stamps_lost" => add(&mut report.graph_timing.lost),
            "replays.incomplete" => add(&mut report.graph_timing.incomplete),
            "replays.mixed" => add(&mut report.graph_timing.mixed),
            "replays.stamps_stopped" => add(&mut report.graph_timing.stopped),
            "replays.stamps_unknown" => add(&mut report.graph_timing.unknown),
            "replays.untimed.not_ready" => add(&mut report.graph_timing.untimed_not_ready),
            "replays.untimed.refused" => add(&mut report.graph_timing.untimed_refused),
            "replays.untimed.spanning" => add(&mut report.graph_timing.untimed_spanning),
            "replays.bracket_ns" => report.graph_timing.bracket_ns = report.graph_timing.bracket_ns.max(number),
            "replays.uncertainty_ns" => {
                report.graph_timing.uncertainty_ns = report.graph_timing.uncertainty_ns.max(number)
            }
            "waits.begun" => add(&mut report.waits.begun),
            "waits.recorded" => add(&mut report.waits.recorded),
            "waits.depths_dropped" => add(&mut report.waits.depths_dropped),
            "memory.begun" => add(&mut report.memory_counts.begun),
            "memory.recorded" => add(&mut report.memory_counts.recorded),
            "memory.dropped" => add(&mut report.memory_counts.dropped),
            "memory.untracked" => add(&mut report.memory_counts.untracked),
            "memory.unknown" => add(&mut report.memory_counts.unknown),
            "memory.within" => add(&mut report.memory_counts.within),
            "memory.refused" => add(&mut report.memory_counts.refused),
            "event_pool.held" => add(&mut report.event_pool.held),
            "event_pool.created" => add(&mut report.event_pool.created),
            "event_pool.exhausted" => add(&mut report.event_pool.exhausted),
            name if name.starts_with("seen.") => {
                if name.len() <= LONGEST && (self.seen.len() < MOST_SEEN || self.seen.contains_key(&name[5..])) {
                    let sum = self.seen.entry(name[5..].to_owned()).or_default();
                    *sum = (*sum + count).min(MOST);
                }
            }
            name => match name.split_once("dropped.") {
                Some(("", reason)) => dropped(&mut report.dropped, reason),
                Some(("waits.", reason)) => dropped(&mut report.waits.dropped, reason),
                _ => self.clock(name, number),
            },
        }
    }

    /// A figure of a device's clock: the device's name, a point, and the figure. Traces that share a device have the
    /// worst of them.
    fn clock(&mut self, name: &str, ns: i64) {
        let Some((device, figure)) = name.rsplit_once('.') else { return };
        if !["clock_uncertainty_ns", "clock_worst_uncertainty_ns", "bracket_ns", "busy_bracket_ns", "bracket_is_bound"]
            .contains(&figure)
        {
            return;
        }
        let at = match self.clocks.iter().position(|clock| clock.device == device) {
            Some(at) => at,
            None if self.clocks.len() < NOTES => {
                let device = device.to_owned();
                let unknown = ClockFigures {
                    device,
                    uncertainty_ns: 0,
                    worst_uncertainty_ns: 0,
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
            "clock_worst_uncertainty_ns" => clock.worst_uncertainty_ns = clock.worst_uncertainty_ns.max(ns),
            "bracket_ns" => clock.bracket_ns = clock.bracket_ns.max(ns),
            "busy_bracket_ns" => clock.busy_bracket_ns = clock.busy_bracket_ns.max(ns),
            _ => clock.bracket_is_bound |= ns > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_its_counts_overflows_nothing() {
        let mut account = Account::default();
        let names = ["begun", "dropped.ring_full", "dropped.unfinished", "windows", "replays.recorded", "waits.begun"];
        for name in names.iter().cycle().take(3 * names.len()) {
            account.fact(Fact::Number((*name).into(), i64::MAX));
        }
        account.fact(Fact::Number("recorded".into(), -5));
        account.fact(Fact::Number("captured".into(), 7));
        account.fact(Fact::Ended(1));
        account.end_trace(true, true);
        let mut report = Report::default();
        account.add_to(&mut report, 0);
        assert_eq!((report.begun, report.dropped.total()), (MOST, 2 * MOST));
        assert_eq!((report.recorded, report.captured), (0, 7));
        assert!(report.to_string().contains("captured into graphs"));
    }
}
