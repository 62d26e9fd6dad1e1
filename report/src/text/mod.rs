//! A report as text for people: tables first, separated by blank lines, then one line per account, then notes for the user.
//!
//! [`Report::print`] and other formatting of reports use it, as does the command `warpline` for the ranges of a recording.
//! Nothing here counts anything; zero counts are left out.

mod account;
mod device;
mod memory;
mod steps;
mod work;

use std::fmt;

use super::table::{BAR, NONE, Row, WIDE, bounded, percent, rate, short_percent, shortened, size, table, time};
use super::{CollectiveStats, LeftOut, RangeStats, Report, StreamStats};
use crate::path::CriticalPath;
pub(super) use account::Account;
use device::{host_waits, top_kernels};
use memory::memory;
use warpline_core::plural::{counted, counted_as};
use warpline_core::record::is_bound;
use warpline_core::text::printable;
use work::work;

/// The maximum number of ranges that are printed.
pub const RANGES: usize = 40;

/// The maximum number of collectives that are printed, by group and kind.
const COLLECTIVES: usize = 20;

/// The maximum number of streams that are printed.
const STREAMS: usize = 16;

/// The maximum number of parts of the critical path that are printed.
const PARTS: usize = 10;

/// The minimum number of zones that shows how much lengths vary.
const LEAST_OF_SAMPLE: u64 = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_complete = self.is_complete();
        let (shown, more) = self.ranges.split_at(self.ranges.len().min(self.rows.unwrap_or(RANGES)));
        RangeTables {
            ranges: shown,
            more: MoreRanges::new(more),
            left_out: self.left_out,
            not_sampled: self.not_sampled,
            dropped: self.dropped.total(),
        }
        .fmt(f)?;
        if !self.range_steps.is_empty() {
            steps::range_steps(f, &self.range_steps, self.rows)?;
            writeln!(f)?;
        }
        if !self.collectives.is_empty() {
            let (zones, kernels) = (is_complete, self.kernels.lost() == 0);
            collectives(f, &self.collectives, |c| if c.hidden_by_kernels { kernels } else { zones })?;
            writeln!(f)?;
        }
        if !self.top_kernels.is_empty() {
            top_kernels(f, &self.top_kernels)?;
            writeln!(f)?;
        }
        if !self.host_waits.is_empty() {
            host_waits(f, &self.host_waits)?;
            writeln!(f)?;
        }
        if !self.memory.is_empty() {
            memory(f, &self.memory)?;
            writeln!(f)?;
        }
        if !self.streams.is_empty() {
            streams(f, &self.streams)?;
            writeln!(f)?;
        }
        if let Some(path) = &self.critical_path {
            critical_path(f, path, is_complete)?;
            writeln!(f)?;
        }
        Account(self).fmt(f)
    }
}

/// Ranges that are not printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MoreRanges {
    /// The number of ranges.
    pub count: u64,
    /// The sum of their shares of the time.
    pub share: f64,
    /// Whether that is only an upper bound, because one of the shares is.
    pub is_bound: bool,
}

impl MoreRanges {
    pub fn new(ranges: &[RangeStats]) -> MoreRanges {
        MoreRanges {
            count: ranges.len() as u64,
            share: ranges.iter().map(|range| range.share).sum(),
            is_bound: ranges.iter().any(RangeStats::total_is_bound),
        }
    }
}

/// The tables of ranges, each followed by a blank line: of streams, of threads, and of the work that marks declare. If they do not cover all zones, a line before
/// them gives their scope.
pub struct RangeTables<'a> {
    /// The ranges that are printed, the largest total first.
    pub ranges: &'a [RangeStats],
    /// The other ranges.
    pub more: MoreRanges,
    /// The zones that settings left out.
    pub left_out: LeftOut,
    /// Zones that ran but were not sampled.
    pub not_sampled: u64,
    /// Zones that were dropped.
    pub dropped: u64,
}

impl fmt::Display for RangeTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { ranges: left_out, of_ranges, while_stopped } = self.left_out;
        if left_out > 0 {
            // A trace does not say how many there are.
            let of = if of_ranges > 0 {
                format!("{left_out} of {}", counted(of_ranges, "range"))
            } else {
                counted(left_out, "range")
            };
            writeln!(f, "of recorded zones only: a filter or a level left out {of}")?;
        }
        if while_stopped {
            writeln!(f, "of recorded zones only: the session was stopped for a part of its time")?;
        }
        if self.dropped > 0 {
            writeln!(f, "of recorded zones only: {} dropped", counted_as(self.dropped, "zone was", "zones were"))?;
        }
        let is_sample = self.not_sampled > 0 || self.ranges.iter().any(|range| range.count < range.seen);
        if is_sample {
            writeln!(f, "a sample: ≈ is scaled to all zones that ran, ± its standard error")?;
        }
        if left_out > 0 || while_stopped || self.dropped > 0 || is_sample {
            writeln!(f)?;
        }
        let places = [("on streams", true, false), ("in replays of graphs", true, true), ("on threads", false, false)];
        for (place, on_stream, in_replays) in places {
            let is_here = |range: &&RangeStats| (range.on_stream, range.in_replays) == (on_stream, in_replays);
            let ranges: Vec<_> = self.ranges.iter().filter(is_here).collect();
            if ranges.is_empty() {
                continue;
            }
            if ranges.iter().any(|range| range.count < range.seen) {
                sample_of_ranges(f, place, &ranges)?;
            } else {
                all_of_ranges(f, place, &ranges)?;
            }
            writeln!(f)?;
        }
        if self.ranges.iter().any(|range| range.work.is_some()) {
            work(f, self.ranges)?;
            writeln!(f)?;
        }
        if self.more.count > 0 {
            let estimated = if is_sample { "≈" } else { "" };
            let share = bounded(self.more.is_bound, percent(self.more.share));
            // Zones of one range may be within those of another one, so the sum may be more than 100 %.
            let shares = if self.more.count == 1 { "its share is" } else { "their shares add up to" };
            writeln!(f, "… and {}; {shares} {estimated}{share}\n", counted(self.more.count, "more range"))?;
        }
        Ok(())
    }
}

/// Writes ranges whose zones were all recorded.
fn all_of_ranges(f: &mut fmt::Formatter<'_>, place: &str, ranges: &[&RangeStats]) -> fmt::Result {
    // The time of a zone without a stream is already what a thread spends between begin and end, and no thread launches a zone of a replay.
    let launch = ranges.iter().any(|range| range.on_stream && !range.in_replays);
    // The range's own time says nothing new where no range has others within it.
    let nests = ranges.iter().any(|range| range.self_ns < range.recorded_ns || range.self_early_ns > 0);
    let is_wide = f.width().is_none_or(|width| width >= WIDE);
    let with_self = |mut row: Row, [own, share]: [String; 2]| {
        if nests {
            row.figures.splice(2..2, is_wide.then_some(own).into_iter().chain([share]));
        }
        row
    };
    let with_launch = |mut row: Row, cell: &dyn Fn() -> String| {
        row.figures.extend(launch.then(cell));
        row
    };
    let head = Row::new(place, ["count", "total", "share", "mean", "p50", "p99"].map(str::to_owned));
    let head = with_launch(with_self(head, ["self", if is_wide { "" } else { "self" }].map(str::to_owned)), &|| {
        format!("{BAR} launch")
    });
    let rows: Vec<_> = ranges
        .iter()
        .map(|r| {
            // The names need the room that the further column takes.
            let share = if nests { short_percent(r.share) } else { percent(r.share) };
            let lengths = Shown::new(r);
            let total = bounded(r.total_is_bound(), time(r.total_ns));
            let cells = [r.count.to_string(), total, bounded(r.total_is_bound(), share), lengths.mean];
            let own = [time(r.self_ns), short_percent(r.self_ns as f64 / r.recorded_ns.max(1) as f64)];
            let own = own.map(|own| if r.timed() == 0 { NONE.to_owned() } else { bounded(r.self_is_bound(), own) });
            let mut row = with_self(named(r, Row::new(&*r.name, cells)), own);
            row.figures.extend([lengths.p50, lengths.p99]);
            with_launch(row, &|| format!("{BAR}{:>7}", launch_time(r)))
        })
        .collect();
    table(f, head, &rows)?;
    if launch { writeln!(f, "{BAR} launch: the mean time that a thread takes to launch a zone") } else { Ok(()) }
}

/// Writes ranges of which only a sample was recorded.
fn sample_of_ranges(f: &mut fmt::Formatter<'_>, place: &str, ranges: &[&RangeStats]) -> fmt::Result {
    let head = Row::new(place, ["count", "of", "total", "±", "share", "mean", "p99"].map(str::to_owned));
    let rows: Vec<_> = ranges
        .iter()
        .map(|r| {
            let is_sample = r.count < r.seen;
            let lengths = Shown::new(r);
            let scaled = |text: String| if is_sample { format!("≈{text}") } else { text };
            let is_error_known = is_sample && r.count >= LEAST_OF_SAMPLE && r.total_error_ns > 0 && r.total_ns > 0;
            let error = match is_error_known {
                true => format!("{:.0} %", r.total_error_ns as f64 / r.total_ns as f64 * 100.0),
                false => NONE.to_owned(),
            };
            let cells = [
                r.count.to_string(),
                r.seen.to_string(),
                bounded(r.total_is_bound(), scaled(time(r.total_ns))),
                error,
                bounded(r.total_is_bound(), scaled(percent(r.share))),
                lengths.mean,
                lengths.p99,
            ];
            named(r, Row::new(&*r.name, cells))
        })
        .collect();
    table(f, head, &rows)
}

/// The lengths of a range's zones. If all zones are bounded, there is only a bound of the mean, and one of the longest.
struct Shown {
    mean: String,
    p50: String,
    p99: String,
}

impl Shown {
    fn new(range: &RangeStats) -> Shown {
        if range.timed() > 0 || range.bounded == 0 {
            let [mean, p50, p99] = [range.mean_ns, range.p50_ns, range.p99_ns].map(time);
            return Shown { mean, p50, p99 };
        }
        let [mean, most] = [range.bounded_mean_ns(), range.bounded_max_ns].map(|ns| bounded(true, time(ns)));
        Shown { mean, p50: NONE.to_owned(), p99: most }
    }
}

/// What a zone's launch took. The entries of a batch have no launch of their own.
fn launch_time(range: &RangeStats) -> String {
    if range.mean_launch_ns == 0 { NONE.to_owned() } else { time(range.mean_launch_ns) }
}

/// Returns the row with further remarks on the range.
fn named(range: &RangeStats, row: Row) -> Row {
    let failed = (range.failed > 0).then(|| format!("{} failed", range.failed));
    let first = range.first_ns.map(|first| format!("first call {}, counted in total and share only", time(first)));
    let some_bounded = range.bounded > 0 && range.timed() > 0;
    let unknown = some_bounded.then(|| {
        let zones = counted(range.count, "zone");
        format!("{} of {zones}: the end is only bounded, counted in total and share only", range.bounded)
    });
    let notes: Vec<_> = failed.into_iter().chain(first).chain(unknown).collect();
    Row { note: (!notes.is_empty()).then(|| notes.join("; ")), ..row }
}

fn collectives(
    f: &mut fmt::Formatter<'_>,
    collectives: &[CollectiveStats],
    is_whole: impl Fn(&CollectiveStats) -> bool,
) -> fmt::Result {
    let none = || NONE.to_owned();
    let speed = |bus: Option<f64>| bus.map_or_else(none, |bus| rate(bus, "B"));
    let hidden = |c: &CollectiveStats| format!("{}{}", if is_whole(c) { "" } else { "≥" }, percent(c.hidden));
    let rows: Vec<_> = collectives
        .iter()
        .take(COLLECTIVES)
        .map(|c| {
            let group = if c.group.is_empty() { NONE } else { &c.group };
            let cells = [
                c.count.to_string(),
                known_size(c),
                bounded(c.total_is_bound(), time(c.total_ns)),
                speed(c.bus_p50),
                speed(c.bus_p99),
                if c.bounded < c.count { hidden(c) } else { none() },
            ];
            let note = (c.bounded > 0 && c.bounded < c.count).then(|| {
                format!("{} of {}: the end is only bounded, counted in bytes and total only", c.bounded, c.count)
            });
            Row { note, ..Row::new(format!("{} {group}", c.kind), cells) }
        })
        .collect();
    let head = ["count", "bytes", "total", "busbw p50", "p99", "hidden"].map(str::to_owned);
    table(f, Row::new("collective", head), &rows)?;
    more(f, collectives.len(), COLLECTIVES, "more collective")
}

fn streams(f: &mut fmt::Formatter<'_>, streams: &[StreamStats]) -> fmt::Result {
    let known = streams.iter().filter(|stream| stream.streams == 1).map(|stream| stream.idle_ns.is_some());
    // The kernels of some devices may be recorded, and only a part of the zones of others.
    let (all, any) = known.fold((true, false), |(all, any), known| (all && known, any || known));
    let rest = if all {
        "idle"
    } else if any {
        "rest"
    } else {
        "not recorded"
    };
    let head = Row::new("stream", ["busy", "waiting", rest].map(str::to_owned));
    let head = Row { text: Some("waited for".to_owned()), ..head };
    let (folded, single): (Vec<_>, Vec<_>) = streams.iter().partition(|stream| stream.streams != 1);
    let on_several = single.windows(2).any(|pair| pair[0].device != pair[1].device);
    let row =
        |name: String, stream: &StreamStats, figures| Row { text: Some(waited_for(stream)), ..Row::new(name, figures) };
    let single_row = |stream: &&StreamStats| {
        let rest_ns = stream.idle_ns.unwrap_or(stream.not_recorded_ns);
        let rest = if stream.rest_is_bound() { format!("≥{}", time(rest_ns)) } else { time(rest_ns) };
        let rest = match stream.idle_ns {
            _ if all || !any => rest,
            Some(_) => format!("{rest} idle"),
            None => format!("{rest} not recorded"),
        };
        let busy = bounded(stream.busy_is_bound(), time(stream.busy_ns));
        let name = if on_several { format!("{} on {}", stream.name, stream.device) } else { stream.name.clone() };
        row(name, stream, [busy, waiting(stream), rest])
    };
    let folded_row = |stream: &&StreamStats| {
        let name = format!("({}, folded)", counted(stream.streams, "more stream"));
        row(name, stream, [bounded(true, time(stream.busy_ns)), waiting(stream), NONE.to_owned()])
    };
    let rows: Vec<_> = single.iter().take(STREAMS).map(single_row).chain(folded.iter().map(folded_row)).collect();
    table(f, head, &rows)?;
    more(f, single.len(), STREAMS, "more stream")
}

fn waiting(stream: &StreamStats) -> String {
    bounded(stream.waiting_is_bound(), time(stream.waiting_ns))
}

/// Returns the known bytes: a dash for none, `≥` if some collectives do not give their size.
fn known_size(stats: &CollectiveStats) -> String {
    match stats.sized {
        0 => NONE.to_owned(),
        sized if sized < stats.count => format!("≥{}", size(stats.bytes)),
        _ => size(stats.bytes),
    }
}

/// Returns the streams or threads that a stream waited for longest, with their shares of its waiting time; without them where that time or
/// the part of it is only a bound.
fn waited_for(stream: &StreamStats) -> String {
    const NAMED: usize = 3;
    const LONGEST: usize = 16;
    let all_ns = stream.waiting_ns.max(1) as f64;
    let longest = stream.waited_for.iter().take(NAMED).map(|on| {
        let by = if on.by.is_empty() { "?".to_owned() } else { shortened(&printable(&on.by), LONGEST) };
        if stream.waiting_is_bound() || on.is_bound() {
            return by;
        }
        format!("{by} {:.0} %", 100.0 * on.ns as f64 / all_ns)
    });
    let longest: Vec<_> = longest.collect();
    if longest.is_empty() { NONE.to_owned() } else { longest.join(", ") }
}

fn critical_path(f: &mut fmt::Formatter<'_>, path: &CriticalPath, is_complete: bool) -> fmt::Result {
    let head = Row::new("on the critical path", ["time", "share"].map(str::to_owned));
    let head = Row { text: Some("on".to_owned()), ..head };
    let parts = path.parts.iter().take(PARTS);
    let rows: Vec<_> = parts
        .map(|part| {
            let row = Row::new(&*part.name, [time(part.ns), percent(part.share)]);
            Row { text: Some(printable(&part.on).into_owned()), ..row }
        })
        .collect();
    table(f, head, &rows)?;
    more(f, path.parts.len(), PARTS, "more part")?;
    let through = if is_complete { "" } else { " through recorded zones" };
    let length_ns = path.to_ns - path.from_ns;
    let length = bounded(is_bound(length_ns, path.early_by_ns), time(length_ns));
    let arrows = counted(path.arrows, "arrow");
    let assumed = if path.is_assumed {
        ",\n  if threads waited for the work that they launched, which no record shows"
    } else {
        ""
    };
    writeln!(f, "critical path of {length}{through}, over {arrows}{assumed}")
}

/// Writes the number of entries that were not printed.
fn more(f: &mut fmt::Formatter<'_>, all: usize, shown: usize, what: &str) -> fmt::Result {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(f, "… and {}", counted(more as u64, what)),
    }
}
