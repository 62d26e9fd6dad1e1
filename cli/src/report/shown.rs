//! The part of its traces that a report shows: one step, ranges by the values of a field, or some ranges, in an order
//! that the reader chooses.

use std::cmp::Reverse;

use clap::{Args, ValueEnum};
use warpline_core::intervals::Intervals;
use warpline_core::record::Span;
use warpline_core::text::matches;
use warpline_report::{RangeStats, Report};

use crate::output::counted_as;
use crate::trace::{Kind, Names, Rows, Slice, Visitor};

/// The options that choose what is shown.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Shown {
    /// Split each range by the values of this field, or by `label`
    #[arg(long, value_name = "FIELD")]
    pub(super) by: Option<String>,
    /// Show only these ranges, such as `llm.*`, or with `!` all others; `*` stands for any characters
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    filter: Vec<String>,
    /// Count only what was launched in the step with this number
    #[arg(long, value_name = "N")]
    pub(super) step: Option<u64>,
    /// The order of ranges
    #[arg(long, value_enum, default_value_t = SortBy::Total)]
    sort: SortBy,
    /// The maximum number of ranges in the tables for people; 40 by default
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// An order of ranges: the largest first, names from `a` to `z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SortBy {
    #[default]
    Total,
    #[value(name = "self")]
    Own,
    Count,
    Mean,
    P50,
    P99,
    Max,
    Name,
}

impl Shown {
    /// Applies the filter and the order to a report, and notes in it what is left out.
    pub(super) fn apply(&self, report: &mut Report) {
        report.rows = self.top;
        if let Some(step) = self.step {
            report.notes.push(format!(
                "the figures are those of step {step} only; the counts of zones are those of the session"
            ));
        }
        if !self.filter.is_empty() {
            let all = report.ranges.len();
            report.ranges.retain(|range| self.lets_through(&range.name));
            report.range_steps.retain(|range| self.lets_through(&range.name));
            report.top_kernels.retain(|kernel| kernel.range.as_ref().is_some_and(|range| self.lets_through(range)));
            report.host_waits.retain(|wait| wait.range.as_ref().is_some_and(|range| self.lets_through(range)));
            let hidden = counted_as((all - report.ranges.len()) as u64, "range does", "ranges do");
            report.notes.push(format!(
                "{hidden} not match `--filter {}`, and {} not shown; shares refer to all ranges",
                self.filter.join(","),
                if hidden.starts_with("1 ") { "is" } else { "are" },
            ));
        }
        let key = |range: &RangeStats| match self.sort {
            SortBy::Total | SortBy::Name => range.total_ns,
            SortBy::Own => range.self_ns,
            SortBy::Count => range.count as i64,
            SortBy::Mean => range.mean_ns,
            SortBy::P50 => range.p50_ns,
            SortBy::P99 => range.p99_ns,
            SortBy::Max => range.max_ns.max(range.bounded_max_ns),
        };
        match self.sort {
            SortBy::Name => report.ranges.sort_by(|a, b| a.name.cmp(&b.name)),
            _ => report.ranges.sort_by_key(|range| Reverse(key(range))),
        }
    }

    /// Returns whether a range is shown: one of the patterns without `!` matches it, if there are any, and none of
    /// those with it.
    fn lets_through(&self, range: &str) -> bool {
        let base = self.by.as_ref().and_then(|by| range.rsplit_once(&format!(" [{by}=")));
        let name = base.map_or(range, |(name, _)| name);
        let mut wanted = self.filter.iter().filter(|pattern| !pattern.starts_with('!')).peekable();
        let is_wanted = wanted.peek().is_none() || wanted.any(|pattern| matches(pattern, name));
        is_wanted && !self.filter.iter().filter_map(|pattern| pattern.strip_prefix('!')).any(|not| matches(not, name))
    }
}

/// Finds the times of a step, which follows its zones in a trace.
pub(super) struct StepFinder {
    pub(super) step: u64,
    pub(super) spans: Vec<Span>,
}

impl Visitor for StepFinder {
    fn slice(&mut self, slice: &Slice<'_>, _: &Rows, _: &mut Names) {
        if slice.kind == Kind::Step && slice.args.step == Some(self.step) {
            self.spans.push(slice.span);
        }
    }
}

/// Returns whether a slice was launched in one of these times, or began in it where its launch is not known.
pub(super) fn is_in(slice: &Slice<'_>, spans: &[Span]) -> bool {
    let at = slice.launch.map_or(slice.span, |(_, host)| host).begin_ns;
    spans.iter().any(|span| span.begin_ns <= at && at < span.end_ns)
}

/// The maximum number of spans of other steps' work that are kept.
const MOST_SPANS: usize = 4096;

/// The work that streams did for other steps than the one that is shown. While it runs, a stream that does nothing for the shown step is
/// not idle.
#[derive(Debug, Default)]
pub(super) struct OtherWork {
    /// From the begin of the step's first work on a stream to the end of the last.
    own: Option<Span>,
    others: Intervals,
    /// The earliest begin of the work for which `others` has no room.
    further_ns: Option<i64>,
}

impl OtherWork {
    /// Adds work of the step.
    pub(super) fn own(&mut self, span: Span) {
        self.own = Some(self.own.map_or(span, |own| own.around(span)));
    }

    /// Adds work of another step, unless it had ended when the shown steps began.
    pub(super) fn other(&mut self, span: Span, steps: &[Span]) {
        if steps.iter().all(|step| span.end_ns <= step.begin_ns) {
            return;
        }
        if self.others.len() < MOST_SPANS || self.others.within(span).next().is_some() {
            self.others.add(span);
        } else {
            self.further_ns = Some(self.further_ns.map_or(span.begin_ns, |ns| ns.min(span.begin_ns)));
        }
    }

    /// Returns whether others' work ran between the begin and the end of the step's work.
    pub(super) fn is_between(&self) -> bool {
        let overlaps =
            |own: Span| self.others.within(own).next().is_some() || self.further_ns.is_some_and(|ns| ns < own.end_ns);
        self.own.is_some_and(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_other_steps_counts_between_the_first_and_the_last_work_of_the_step() {
        let span = |begin_ns, end_ns| Span { begin_ns, end_ns };
        let is_between = |own: &[Span], others: &[Span]| {
            let mut work = OtherWork::default();
            own.iter().for_each(|span| work.own(*span));
            others.iter().for_each(|other| work.other(*other, &[span(10, 20)]));
            work.is_between()
        };
        let own = [span(30, 40), span(60, 70)];
        assert!(!is_between(&own, &[span(0, 10), span(12, 30), span(70, 90)]));
        assert!(!is_between(&[], &[span(0, 100)]));
        for other in [span(0, 31), span(45, 50), span(69, 90)] {
            assert!(is_between(&own, &[span(12, 20), other]), "{other:?}");
        }
        // Of more, the earliest begin is known.
        let many: Vec<_> = (0..=MOST_SPANS as i64).map(|at| span(100 + 2 * at, 101 + 2 * at)).collect();
        assert!(!is_between(&own, &many));
        assert!(is_between(&[span(30, 100 + 2 * MOST_SPANS as i64 + 1)], &many[MOST_SPANS..]));
    }

    #[test]
    fn patterns_show_ranges_also_where_they_are_split() {
        let shown = |by: Option<&str>, patterns: &[&str]| Shown {
            by: by.map(str::to_owned),
            filter: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
            ..Shown::default()
        };
        for (by, patterns, range, is_shown) in [
            (None, &["llm.*"][..], "llm.mlp", true),
            (None, &["llm.*", "!llm.mlp"], "llm.mlp", false),
            (None, &["!llm.mlp"], "Optimizer.step#Adam", true),
            (None, &["Optimizer*"], "Optimizer.step#Adam", true),
            (None, &["llm.mlp"], "llm.mlp [n=8]", false),
            (Some("n"), &["llm.mlp"], "llm.mlp [n=8]", true),
            (Some("n"), &["!llm.mlp"], "llm.mlp [n=8]", false),
        ] {
            assert_eq!(shown(by, patterns).lets_through(range), is_shown, "{patterns:?} {range}");
        }
    }
}
