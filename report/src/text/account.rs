//! The lines of a report after its tables: what was counted of zones and of everything else, the clocks, the sinks, and
//! the notes.
//!
//! Zero counts are left out.

use std::fmt;
use std::time::Duration;

use super::device::{kernel_timing, kernels, synchronizations};
use super::memory::memory_counts;
use super::steps;
use crate::table::time;
use crate::{
    ClockFigures, Dropped, EndCounts, EventPoolCounts, FieldCounts, GraphTimingCounts, Report, Retention, SinkReport,
    Source, SpanCounts, WaitCounts,
};
use warpline_core::fields::{MAX_FIELDS, MORE_LANES, MOST_LANES};
use warpline_core::plural::{counted, counted_are, counted_as};
use warpline_core::text::printable;

/// The lines of a report after its tables. A line that begins with a blank belongs to the one before it.
pub(crate) struct Account<'a>(pub(crate) &'a Report);

impl fmt::Display for Account<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        zones(f, report)?;
        steps::steps(f, report.steps)?;
        ends(f, report.ends)?;
        fields(f, report.fields)?;
        spans(f, report.spans)?;
        waits(f, report.waits)?;
        event_pool(f, report.event_pool)?;
        memory_counts(f, report.memory_counts)?;
        kernels(f, report.kernels)?;
        synchronizations(f, report.synchronizations)?;
        kernel_timing(f, report.kernel_timing)?;
        replays(f, &report.graph_timing)?;
        if let Some(figures) = &report.windows {
            write!(f, "\n{figures}")?;
        }
        if report.not_sampled > 0 {
            let more = counted_as(report.not_sampled, "more zone", "more zones");
            write!(f, "\nonly a sample was recorded: {more} ran")?;
        }
        report.clocks.iter().try_for_each(|figures| clock(f, figures, report.kernel_timing.timed == 0))?;
        report.sinks.iter().try_for_each(|report| sink(f, report))?;
        report.notes.iter().try_for_each(|note| write!(f, "\nnote: {}", printable(note)))
    }
}

impl Account<'_> {
    /// Returns each statement as one line, of any length.
    pub(crate) fn statements(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for line in self.to_string().lines() {
            match all.last_mut().filter(|_| line.starts_with(' ')) {
                Some(last) => last.push_str(&format!(" {}", line.trim_start())),
                None => all.push(line.to_owned()),
            }
        }
        all
    }
}

fn zones(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if report.source == Source::OtherTraces {
        let zones = counted(report.recorded, "zone");
        return write!(f, "{zones}, from another tool: it is not known whether the trace is complete");
    }
    if report.source == Source::TracesWithoutAccount {
        if report.recorded == 0 && report.dropped.total() == 0 {
            return write!(f, "no zones, and no trace ends with the account of its session");
        }
        let zones = counted(report.recorded, "zone");
        write!(f, "{zones} recorded, at least ")?;
        dropped(f, report.dropped)?;
        return write!(f, ": not every trace ends with the account of its session");
    }
    write!(f, "{} begun, {} recorded, ", counted(report.begun, "zone"), report.recorded)?;
    if report.captured > 0 {
        write!(f, "{} captured into graphs, ", report.captured)?;
    }
    dropped(f, report.dropped)?;
    if report.duration < Duration::from_millis(1) {
        return write!(f, " in {}", time(report.duration.as_nanos() as i64));
    }
    write!(f, " in {:.3} s", report.duration.as_secs_f64())
}

fn ends(f: &mut fmt::Formatter<'_>, counts: EndCounts) -> fmt::Result {
    let EndCounts { on_streams, found, latest_ns, bounded, .. } = counts;
    if found > 0 {
        let (zones, late) = (counted(on_streams, "zone"), time(latest_ns));
        write!(f, "\n{found} of {zones} on streams: end not timed by an event, late by up to {late}")?;
    }
    if bounded > 0 {
        write!(f, ";\n  {bounded} late by more than 5 % of the length: such a length is a bound (≤), in total")?;
        write!(f, "\n  and share only; `ends=eager` times each end")?;
    }
    Ok(())
}

fn fields(f: &mut fmt::Formatter<'_>, counts: FieldCounts) -> fmt::Result {
    let FieldCounts { cut, left_out, lanes_left_out, .. } = counts;
    if cut > 0 {
        write!(f, "\n{} cut to the size of a field", counted_as(cut, "field was", "fields were"))?;
    }
    if left_out > 0 {
        let fields = counted_as(left_out, "field was", "fields were");
        write!(f, "\n{fields} left out: a zone has at most {MAX_FIELDS}, of which each can be a list or a map")?;
    }
    if lanes_left_out > 0 {
        let zones = counted_are(lanes_left_out, "zone");
        write!(f, "\n{zones} on the lane `{MORE_LANES}`: the program named more than {MOST_LANES} lanes; name fewer")?;
    }
    Ok(())
}

fn dropped(f: &mut fmt::Formatter<'_>, dropped: Dropped) -> fmt::Result {
    write!(f, "{} dropped", dropped.total())?;
    let reasons: Vec<_> = dropped.reasons().map(|(reason, count)| format!("{reason} {count}")).collect();
    if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join(", ")) }
}

fn spans(f: &mut fmt::Formatter<'_>, spans: SpanCounts) -> fmt::Result {
    let SpanCounts { begun, recorded, buffer_full, unfinished } = spans;
    if begun > 0 {
        let begun = counted_as(begun, "span or event", "spans and events");
        write!(f, "\n{begun} begun, {recorded} recorded, {} dropped", spans.dropped())?;
    }
    if spans.dropped() > 0 {
        write!(f, " (buffer_full {buffer_full}, unfinished {unfinished})")?;
    }
    Ok(())
}

fn waits(f: &mut fmt::Formatter<'_>, waits: WaitCounts) -> fmt::Result {
    let WaitCounts { begun, recorded, depths_dropped, .. } = waits;
    if begun > 0 {
        write!(f, "\n{} begun, {recorded} recorded, ", counted(begun, "wait"))?;
        dropped(f, waits.dropped)?;
    }
    if depths_dropped > 0 {
        let dropped = counted_are(depths_dropped, "queue depth");
        write!(f, "\n{dropped} not recorded: more came than were collected")?;
    }
    Ok(())
}

fn event_pool(f: &mut fmt::Formatter<'_>, pool: EventPoolCounts) -> fmt::Result {
    let EventPoolCounts { held, created, exhausted, .. } = pool;
    if created > 0 {
        let (held, times) = (counted(held, "event"), counted_as(exhausted, "time", "times"));
        write!(f, "\ntimelines hold {held}, {created} created: {times} no event was free for a signal")?;
    }
    Ok(())
}

fn replays(f: &mut fmt::Formatter<'_>, counts: &GraphTimingCounts) -> fmt::Result {
    if *counts == GraphTimingCounts::default() {
        return Ok(());
    }
    let GraphTimingCounts { replays, by_kernels, incomplete, mixed, lost, unknown, stopped, .. } = *counts;
    let all = |count| counted_as(count, "replay of a graph", "replays of graphs");
    let mut parts = Vec::new();
    if replays > 0 || by_kernels == 0 {
        parts.push(format!("{} timed by stamps", all(replays)));
    }
    if by_kernels > 0 {
        let count = if parts.is_empty() { all(by_kernels) } else { by_kernels.to_string() };
        parts.push(format!("{count} recorded with the times of kernels"));
    }
    for (count, what) in [(incomplete, "incomplete"), (mixed, "mixed up with another replay of their graph")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    write!(f, "\n{}", parts.join(", "))?;
    if counts.bracket_ns > 0 {
        let [bracket, uncertainty] = [counts.bracket_ns, counts.uncertainty_ns].map(time);
        write!(f, "; two stamps add {bracket}, begins are known within ±{uncertainty}")?;
    }
    if lost + unknown > 0 {
        write!(f, "\n{} lost, {unknown} of graphs that were not registered", counted(lost, "stamp"))?;
    }
    if stopped > 0 {
        let stopped = counted_as(stopped, "time of a replay", "times of replays");
        write!(f, "\n{stopped} that began while the session was stopped")?;
    }
    if counts.untimed() > 0 {
        let GraphTimingCounts { untimed_not_ready, untimed_refused, untimed_spanning, .. } = *counts;
        write!(
            f,
            "\n{} not timed (stamps not ready {untimed_not_ready}, refused {untimed_refused}, not all in \
             one capture {untimed_spanning})",
            counted_are(counts.untimed(), "captured zone")
        )?;
    }
    Ok(())
}

fn clock(f: &mut fmt::Formatter<'_>, clock: &ClockFigures, has_events: bool) -> fmt::Result {
    let [bracket, busy] = [clock.bracket_ns, clock.busy_bracket_ns].map(time);
    write!(f, "\n{}: {}", printable(&clock.device), positions(clock))?;
    let longer = "its events make a zone longer by";
    match (clock.bracket_ns, clock.busy_bracket_ns) {
        (0, 0) if has_events => write!(f, ",\n  and it is not known by how much its events make a zone longer"),
        (0, 0) => Ok(()),
        _ if clock.bracket_is_bound => write!(
            f,
            ",\n  and {longer} at most {bracket}, behind queued work by {busy}:\n  the device was busy whenever that was measured, so \
             lengths are not corrected"
        ),
        (0, _) => write!(f, ",\n  and {longer} {busy} behind queued work; on an idle stream that is not known"),
        _ => write!(f, ",\n  and {longer} {bracket}, behind queued work by {busy}"),
    }
}

/// Returns the uncertainty of the positions of all zones; if it is much smaller for most of them, that too.
fn positions(clock: &ClockFigures) -> String {
    let ClockFigures { uncertainty_ns, worst_uncertainty_ns, .. } = *clock;
    let worst_ns = worst_uncertainty_ns.max(uncertainty_ns);
    if worst_ns == 0 {
        return "begins are exact".to_owned();
    }
    let worst = format!("begins are known within ±{}", time(worst_ns));
    if worst_uncertainty_ns > 2 * uncertainty_ns {
        return format!("{worst} (near a comparison of the clocks ±{})", time(uncertainty_ns));
    }
    worst
}

fn sink(f: &mut fmt::Formatter<'_>, sink: &SinkReport) -> fmt::Result {
    let SinkReport { lost, errors, .. } = sink;
    let name = printable(&sink.name);
    if let Some(error) = &sink.first_error {
        let (errors, lost) = (counted(*errors, "call"), counted(*lost, "record"));
        write!(f, "\nsink {name}: {errors} failed, {lost} lost; first: {}", printable(error))?;
    }
    if let Some(added) = sink.added {
        let taken = counted(sink.taken, "record");
        write!(f, "\nsink {name}: {taken}, added after {:.3} s", added.as_secs_f64())?;
        if let Some(removed) = sink.removed {
            write!(f, " and removed after {:.3} s", removed.as_secs_f64())?;
        }
    }
    let Retention { files, removed, removed_zones } = &sink.kept;
    if !files.is_empty() {
        let zones: u64 = files.iter().map(|file| file.zones).sum();
        let zones = if zones == 1 { "zone".to_owned() } else { format!("{zones} zones") };
        write!(f, "\n{name}: {} with the last {zones}", counted(files.len() as u64, "file"))?;
        if *removed > 0 {
            let older = counted_as(*removed_zones, "older one", "older ones");
            write!(f, "; {older} made room, in {}", counted(*removed, "piece"))?;
        }
    }
    Ok(())
}
