//! How a report reads for people: tables first, then one line an account, then what the user should know.
//!
//! [`Report::print`] and whoever formats a report come here. Nothing here counts anything; what is nought is left out.

use std::fmt;

use super::{
    ClockFigures, CollectiveStats, Dropped, GraphTimingCounts, Kept, KernelCounts, RangeStats, Report, SinkReport,
    SpanCounts, StreamStats, WaitCounts, WaitedFor,
};
use crate::path::CriticalPath;

/// So many streams are printed.
const STREAMS: usize = 16;

/// So many parts of the critical path are printed.
const PARTS: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.ranges.is_empty() {
            ranges(f, &self.ranges)?;
        }
        if !self.collectives.is_empty() {
            collectives(f, &self.collectives)?;
        }
        if self.waits.recorded > 0 {
            streams(f, &self.streams)?;
            self.critical_path.as_ref().map_or(Ok(()), |path| critical_path(f, path))?;
        }
        zones(f, self)?;
        spans(f, self.spans)?;
        waits(f, self.waits)?;
        kernels(f, self.kernels)?;
        replays(f, &self.graph_timing)?;
        if self.not_sampled > 0 {
            write!(f, "\nonly a sample was recorded: {} zones more came by", self.not_sampled)?;
        }
        self.clocks.iter().try_for_each(|figures| clock(f, figures))?;
        self.sinks.iter().try_for_each(|report| sink(f, report))?;
        self.notes.iter().try_for_each(|note| write!(f, "\nnote: {note}"))
    }
}

fn ranges(f: &mut fmt::Formatter<'_>, ranges: &[RangeStats]) -> fmt::Result {
    const HEAD: [&str; 9] = ["range", "count", "total", "mean", "min", "p50", "p99", "max", "launch"];
    let rows: Vec<_> = ranges
        .iter()
        .map(|r| {
            let name = if r.failed > 0 { format!("{} ({} failed)", r.name, r.failed) } else { r.name.to_owned() };
            [
                name,
                r.count.to_string(),
                time(r.total_ns),
                time(r.mean_ns),
                time(r.min_ns),
                time(r.p50_ns),
                time(r.p99_ns),
                time(r.max_ns),
                time(r.mean_launch_ns),
            ]
        })
        .collect();
    table(f, HEAD, &rows)
}

fn collectives(f: &mut fmt::Formatter<'_>, collectives: &[CollectiveStats]) -> fmt::Result {
    const HEAD: [&str; 8] = ["collective", "group", "count", "bytes", "total", "busbw p50", "p99", "hidden"];
    let speed = |bus: Option<f64>| bus.map_or_else(|| "-".to_owned(), |bus| format!("{:.2} GB/s", bus / 1e9));
    let rows: Vec<_> = collectives
        .iter()
        .map(|c| {
            [
                c.kind.to_string(),
                if c.group.is_empty() { "-".to_owned() } else { c.group.clone() },
                c.count.to_string(),
                known_size(c),
                time(c.total_ns),
                speed(c.bus_p50),
                speed(c.bus_p99),
                format!("{:.1} %", c.hidden * 100.0),
            ]
        })
        .collect();
    table(f, HEAD, &rows)
}

fn streams(f: &mut fmt::Formatter<'_>, streams: &[StreamStats]) -> fmt::Result {
    let whom = |stream: &StreamStats| {
        let longest: Vec<_> = stream.waited_for.iter().take(3).map(|on| waited_for(on, stream.waiting_ns)).collect();
        if longest.is_empty() { "-".to_owned() } else { longest.join(", ") }
    };
    let rows: Vec<_> = streams
        .iter()
        .take(STREAMS)
        .map(|stream| {
            let [busy, waiting, idle] = [stream.busy_ns, stream.waiting_ns, stream.idle_ns].map(time);
            [stream.name.clone(), busy, waiting, idle, whom(stream)]
        })
        .collect();
    table(f, ["stream", "busy", "waiting", "idle", "waited for"], &rows)?;
    if streams.len() > STREAMS {
        writeln!(f, "… and {} streams more", streams.len() - STREAMS)?;
    }
    Ok(())
}

/// The bytes that are known: `-` for none, `≥` where some collectives do not give their size.
fn known_size(stats: &CollectiveStats) -> String {
    match stats.sized {
        0 => "-".to_owned(),
        sized if sized < stats.count => format!("≥ {}", size(stats.bytes)),
        _ => size(stats.bytes),
    }
}

/// For whom a stream waited, and with how much of its waiting.
fn waited_for(on: &WaitedFor, waiting_ns: i64) -> String {
    let by = if on.by.is_empty() { "?" } else { &on.by };
    format!("{by} {:.0} %", 100.0 * on.ns as f64 / waiting_ns.max(1) as f64)
}

fn critical_path(f: &mut fmt::Formatter<'_>, path: &CriticalPath) -> fmt::Result {
    let rows: Vec<_> = path
        .parts
        .iter()
        .take(PARTS)
        .map(|part| [part.name.clone(), part.on.clone(), time(part.ns), format!("{:.1} %", part.share * 100.0)])
        .collect();
    table(f, ["on the critical path", "on", "time", "share"], &rows)?;
    if path.parts.len() > PARTS {
        writeln!(f, "… and {} more", path.parts.len() - PARTS)?;
    }
    let plural = if path.arrows == 1 { "" } else { "s" };
    writeln!(f, "critical path of {}, over {} arrow{plural}", time(path.to_ns - path.from_ns), path.arrows)
}

fn zones(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    write!(f, "{} zones begun, {} recorded, ", report.begun, report.recorded)?;
    if report.captured > 0 {
        write!(f, "{} captured into graphs, ", report.captured)?;
    }
    dropped(f, report.dropped)?;
    write!(f, " in {:.3} s", report.duration.as_secs_f64())
}

fn dropped(f: &mut fmt::Formatter<'_>, dropped: Dropped) -> fmt::Result {
    write!(f, "{} dropped", dropped.total())?;
    let reasons: Vec<_> = dropped.reasons().map(|(reason, count)| format!("{reason} {count}")).collect();
    if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join(", ")) }
}

fn spans(f: &mut fmt::Formatter<'_>, spans: SpanCounts) -> fmt::Result {
    let SpanCounts { begun, recorded, buffer_full, unfinished } = spans;
    if begun > 0 {
        write!(f, "\n{begun} spans and events begun, {recorded} recorded, {} dropped", spans.dropped())?;
    }
    if spans.dropped() > 0 {
        write!(f, " (buffer_full {buffer_full}, unfinished {unfinished})")?;
    }
    Ok(())
}

fn waits(f: &mut fmt::Formatter<'_>, waits: WaitCounts) -> fmt::Result {
    let WaitCounts { begun, recorded, depths_dropped, .. } = waits;
    if begun > 0 {
        write!(f, "\n{begun} waits begun, {recorded} recorded, ")?;
        dropped(f, waits.dropped)?;
    }
    if depths_dropped > 0 {
        write!(f, "\nqueues said {depths_dropped} times in vain how much they hold: more came than were collected")?;
    }
    Ok(())
}

fn kernels(f: &mut fmt::Formatter<'_>, kernels: KernelCounts) -> fmt::Result {
    let KernelCounts { recorded, dropped, untimed, buffers_refused } = kernels;
    if kernels != KernelCounts::default() {
        write!(f, "\n{recorded} kernels and copies recorded, {dropped} dropped by CUPTI, {untimed} without a time")?;
    }
    if buffers_refused > 0 {
        write!(f, " ({buffers_refused} times there was no buffer left)")?;
    }
    Ok(())
}

fn replays(f: &mut fmt::Formatter<'_>, counts: &GraphTimingCounts) -> fmt::Result {
    if *counts == GraphTimingCounts::default() {
        return Ok(());
    }
    let GraphTimingCounts { replays, incomplete, mixed, lost, unknown, stopped, .. } = *counts;
    let by = if counts.by_events { "events" } else { "stamps" };
    write!(
        f,
        "\n{replays} replays of graphs timed by {by}, {incomplete} incomplete, {mixed} mixed up with another of their graph"
    )?;
    let GraphTimingCounts { launches_lost, launches_untold, .. } = *counts;
    if launches_lost + launches_untold > 0 {
        write!(
            f,
            "\n{launches_lost} launches had no events, {launches_untold} were followed by one that nobody told of"
        )?;
    }
    if counts.bracket_ns > 0 {
        let [bracket, uncertainty] = [counts.bracket_ns, counts.uncertainty_ns].map(time);
        write!(f, "; two stamps add {bracket}, positions within ±{uncertainty}")?;
    }
    if lost + unknown > 0 {
        write!(f, "\n{lost} stamps lost, {unknown} of graphs that nobody registered")?;
    }
    if stopped > 0 {
        write!(f, "\n{stopped} times of replays that began while the session was stopped")?;
    }
    if counts.untimed() > 0 {
        let GraphTimingCounts { untimed_not_ready, untimed_refused, untimed_spanning, .. } = *counts;
        write!(
            f,
            "\n{} captured zones are not timed (stamps not ready {untimed_not_ready}, refused {untimed_refused}, not all in \
             one capture {untimed_spanning})",
            counts.untimed()
        )?;
    }
    Ok(())
}

fn clock(f: &mut fmt::Formatter<'_>, clock: &ClockFigures) -> fmt::Result {
    let [uncertainty, bracket, busy] = [clock.uncertainty_ns, clock.bracket_ns, clock.busy_bracket_ns].map(time);
    let device = &clock.device;
    if clock.bracket_ns == 0 && clock.busy_bracket_ns == 0 {
        return write!(
            f,
            "\n{device}: positions within ±{uncertainty}, what an empty pair of events reads is not known"
        );
    }
    if clock.bracket_is_bound {
        return write!(
            f,
            "\n{device}: positions within ±{uncertainty}, an empty pair of events reads at most {bracket} ({busy} behind queued \
             work): the device was busy whenever that was measured, so lengths are not corrected"
        );
    }
    write!(
        f,
        "\n{device}: positions within ±{uncertainty}, an empty pair of events reads {bracket} ({busy} behind queued work)"
    )
}

fn sink(f: &mut fmt::Formatter<'_>, sink: &SinkReport) -> fmt::Result {
    let SinkReport { name, lost, errors, .. } = sink;
    if let Some(error) = &sink.first_error {
        write!(f, "\nsink {name}: {errors} calls failed, {lost} records lost; first: {error}")?;
    }
    let Kept { files, removed, removed_zones } = &sink.kept;
    if !files.is_empty() {
        let zones: u64 = files.iter().map(|file| file.zones).sum();
        let files = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
        write!(f, "\n{name}: {files} with the last {zones} zones")?;
        if *removed > 0 {
            write!(f, "; {removed_zones} older ones made room, in {removed} pieces")?;
        }
    }
    Ok(())
}

/// Rows under their heads, the first column to the left.
fn table<const N: usize>(f: &mut fmt::Formatter<'_>, head: [&str; N], rows: &[[String; N]]) -> fmt::Result {
    let head = head.map(str::to_owned);
    let width: [usize; N] = std::array::from_fn(|column| {
        rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for row in [&head].into_iter().chain(rows) {
        write!(f, "{:<1$}", row[0], width[0])?;
        for column in 1..row.len() {
            write!(f, "  {:>1$}", row[column], width[column])?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// A size for people.
fn size(bytes: u64) -> String {
    let number = bytes as f64;
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.1} kB", number / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} GB", number / 1e9),
    }
}

/// A time for people: three or four digits and a unit.
fn time(ns: i64) -> String {
    let number = ns as f64;
    match ns.unsigned_abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", number / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", number / 1e6),
        _ => format!("{:.3} s", number / 1e9),
    }
}
