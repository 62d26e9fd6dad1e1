//! The steps of the program: what each range takes in one, and the line of their lengths.

use std::fmt;

use super::super::table::{NONE, Row, table, time};
use super::super::{RangeStepStats, StepStats};
use super::more;
use warpline_core::plural::counted;

/// The maximum number of ranges that are printed, unless the reader chooses another one.
const RANGES: usize = 20;

pub(super) fn range_steps(f: &mut fmt::Formatter<'_>, ranges: &[RangeStepStats], most: Option<usize>) -> fmt::Result {
    let most = most.unwrap_or(RANGES);
    let head = Row::new("in a step", ["steps", "zones", "mean", "p50", "p99", "max"].map(str::to_owned));
    let row = |range: &RangeStepStats| {
        let zones = range.zones as f64 / range.steps.max(1) as f64;
        let zones = if range.steps == 0 {
            NONE.to_owned()
        } else if zones.fract() == 0.0 {
            format!("{zones}")
        } else {
            format!("{zones:.1}")
        };
        let figure = |ns| if range.steps > 0 { time(ns) } else { NONE.to_owned() };
        let [mean, p50, p99, max] = [range.mean_ns, range.p50_ns, range.p99_ns, range.max_ns].map(figure);
        let note = (range.bounded_steps > 0).then(|| {
            format!("{}: the end of a zone is only bounded; in no figure", counted(range.bounded_steps, "more step"))
        });
        let on = if range.on_stream { "" } else { " (threads)" };
        let cells = [range.steps.to_string(), zones, mean, p50, p99, max];
        Row { note, ..Row::new(format!("{}{on}", range.name), cells) }
    };
    let rows: Vec<_> = ranges.iter().take(most).map(row).collect();
    table(f, head, &rows)?;
    more(f, ranges.len(), most, "more range")
}

pub(super) fn steps(f: &mut fmt::Formatter<'_>, steps: StepStats) -> fmt::Result {
    let StepStats { count, left_out, cut, dropped, p50_ns, p99_ns, max_ns, .. } = steps;
    if steps == StepStats::default() {
        return Ok(());
    }
    write!(f, "\n{} recorded", counted(count, "step"))?;
    if count > 0 {
        write!(f, ": p50 {}, p99 {}, longest {}", time(p50_ns), time(p99_ns), time(max_ns))?;
    }
    // Each on a line of its own, because a line has 80 columns.
    if left_out > 0 {
        write!(f, ";\n  {left_out} left out by the schedule, with their zones")?;
    }
    if cut > 0 {
        write!(f, ";\n  {cut} cut by a stop or the end")?;
    }
    if dropped > 0 {
        write!(f, ";\n  {dropped} dropped, because more ended than were collected")?;
    }
    Ok(())
}
