//! What a session says of itself when it is over: what was recorded, what was dropped and why, and how good the clock is.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::timelines::{SemaphoreStats, StreamStats, WaitCounts, show};
use crate::collective::CollectiveKind;
use crate::path::CriticalPath;

/// The account of one session. `recorded + captured + dropped.total() == begun`, always.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// One entry for each range that was recorded, largest total first.
    pub ranges: Vec<RangeStats>,
    /// One entry for each process group and kind of collective that was recorded, longest time first.
    pub collectives: Vec<CollectiveStats>,
    /// Zones that began.
    pub begun: u64,
    /// Zones that were timed and handed to the sinks.
    pub recorded: u64,
    /// Zones that were captured into CUDA graphs with their streams: no times of their own, and a part of the graph
    /// (`warpline::graph`).
    pub captured: u64,
    /// Zones that began and were neither recorded nor captured, by reason.
    pub dropped: Dropped,
    /// What became of the spans and events of `tracing`; all zero without a `tracing_layer`.
    pub spans: SpanCounts,
    /// What became of kernels and copies; all zero in a session without `kernels`.
    pub kernels: KernelCounts,
    /// What became of replays of graphs; all zero in a session without `graph_timing`.
    pub graph_timing: GraphTimingCounts,
    /// What became of the waits of timelines; all zero without feature `timeline`.
    pub waits: WaitCounts,
    /// What each stream did with its time; empty without feature `timeline`.
    pub streams: Vec<StreamStats>,
    /// The semaphores that somebody waited for, the longest waits first.
    pub semaphores: Vec<SemaphoreStats>,
    /// The critical path through the last some ten thousand zones; none without feature `timeline`.
    pub critical_path: Option<CriticalPath>,
    /// Zones that came by and were not chosen, in a session with a budget or a `sample`. They are not among those that began.
    pub not_sampled: u64,
    /// How long the session was.
    pub duration: Duration,
    /// What is known of the clocks, one entry a device.
    pub clocks: Vec<ClockFigures>,
    /// What became of each sink.
    pub sinks: Vec<SinkReport>,
    /// What the user should know besides: one sentence each, with the remedy.
    pub notes: Vec<String>,
    /// The setting `summary` has printed it.
    pub(crate) is_printed: bool,
}

/// Zones that were not recorded, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The stream's ring was full: the newest zone is left out, older ones stay.
    pub ring_full: u64,
    /// The stream could not record an event.
    pub event_failed: u64,
    /// The stream or its device failed before the zone was complete.
    pub stream_failed: u64,
    /// The stream was being captured into a CUDA graph, and the driver did not tell where the zone stands in it.
    pub capture_failed: u64,
    /// The zone was still open, or its stream still busy, when the session ended.
    pub unfinished: u64,
}

impl Dropped {
    #[cfg(feature = "enable")]
    pub(crate) fn add(&mut self, other: Dropped) {
        self.ring_full += other.ring_full;
        self.event_failed += other.event_failed;
        self.stream_failed += other.stream_failed;
        self.capture_failed += other.capture_failed;
        self.unfinished += other.unfinished;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.ring_full + self.event_failed + self.stream_failed + self.capture_failed + self.unfinished
    }

    /// Each reason that occurred, as one word, with its count.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("ring_full", self.ring_full),
            ("event_failed", self.event_failed),
            ("stream_failed", self.stream_failed),
            ("capture_failed", self.capture_failed),
            ("unfinished", self.unfinished),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}

/// The account of the spans and events of `tracing` in one session. `recorded + dropped() == begun`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanCounts {
    /// How often a thread entered a span, and events.
    pub begun: u64,
    /// Those that were handed to the sinks.
    pub recorded: u64,
    /// Those that found the buffer full: spans came faster than they were collected.
    pub buffer_full: u64,
    /// Spans that were still entered when the session ended, or when their thread did.
    pub unfinished: u64,
}

impl SpanCounts {
    /// Those that began and were not recorded.
    pub fn dropped(&self) -> u64 {
        self.buffer_full + self.unfinished
    }

    /// What traces say of it: names with counts; nothing where there was no span.
    #[cfg(feature = "enable")]
    pub(crate) fn said(&self) -> Vec<(&'static str, u64)> {
        if self.begun == 0 {
            return Vec::new();
        }
        let counts = [("begun", self.begun), ("recorded", self.recorded), ("dropped", self.dropped())];
        let reasons = [("dropped.buffer_full", self.buffer_full), ("dropped.unfinished", self.unfinished)];
        counts.into_iter().chain(reasons.into_iter().filter(|(_, count)| *count > 0)).collect()
    }
}

/// The account of kernels and copies in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Those that were handed to the sinks.
    pub recorded: u64,
    /// Those that CUPTI dropped because it had no room.
    pub dropped: u64,
    /// Those without a time: CUPTI could not take it, or the device was still at work when the session ended.
    pub untimed: u64,
    /// How often CUPTI asked for a buffer while all were in use, which is why it dropped some.
    pub buffers_refused: u64,
}

impl KernelCounts {
    /// Those that the device executed and that were not recorded, as far as CUPTI knows.
    pub fn lost(&self) -> u64 {
        self.dropped + self.untimed
    }

    /// What traces say of it: names with counts; nothing where there was no kernel.
    #[cfg(feature = "enable")]
    pub(crate) fn said(&self) -> Vec<(&'static str, u64)> {
        if *self == KernelCounts::default() {
            return Vec::new();
        }
        let counts = [("recorded", self.recorded), ("dropped", self.lost())];
        let reasons = [
            ("dropped.cupti", self.dropped),
            ("dropped.untimed", self.untimed),
            ("buffers_refused", self.buffers_refused),
        ];
        counts.into_iter().chain(reasons.into_iter().filter(|(_, count)| *count > 0)).collect()
    }
}

/// The account of replays that were timed by stamps, or by events, in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphTimingCounts {
    /// Replays that were timed and handed to the sinks.
    pub replays: u64,
    /// Zones in them.
    pub zones: u64,
    /// Stamps, or events, that were read.
    pub stamps: u64,
    /// Stamps that were overwritten before they were read, or that the device never wrote.
    pub lost: u64,
    /// Replays of which stamps are missing: some were lost, or the device was still at work when the session ended.
    pub incomplete: u64,
    /// Replays that ran at the same time as another one of the same graph, and cannot be told from it.
    pub mixed: u64,
    /// With events, launches that were told of and for which there were none: too many waited to be read, the driver refused, or its
    /// zones are of several contexts.
    pub launches_lost: u64,
    /// With events, launches that were seen to be followed by one that nobody told of.
    pub launches_untold: u64,
    /// Whether the session has times from events, not from stamps.
    pub by_events: bool,
    /// Stamps, or events, of replays that began while the session was stopped.
    pub stopped: u64,
    /// Stamps of graphs that nobody registered.
    pub unknown: u64,
    /// Stamps that were captured.
    pub captured: u64,
    /// Begins and ends of zones that needed none, because one stood there already.
    pub shared: u64,
    /// Zones that were captured without stamps, because what these need was not made yet in their context.
    pub untimed_not_ready: u64,
    /// Zones that were captured without stamps, because the driver refused one; the capture goes on.
    pub untimed_refused: u64,
    /// Zones that began before their capture or ended after it: a stamp of theirs would not be in the graph. And those on a stream
    /// of another context than the first one that was stamped in their capture: clocks of two devices do not compare.
    pub untimed_spanning: u64,
    /// What two stamps add to the kernels between them, in ns, on the device where it is most.
    pub bracket_ns: i64,
    /// By how much the position of a replay may be off against the host's clock, in ns, at most.
    pub uncertainty_ns: i64,
}

impl GraphTimingCounts {
    /// Zones that were captured and are not timed.
    pub fn untimed(&self) -> u64 {
        self.untimed_not_ready + self.untimed_refused + self.untimed_spanning
    }

    /// What traces say of it: names with counts; nothing where no graph was timed.
    #[cfg(feature = "enable")]
    pub(crate) fn said(&self) -> Vec<(&'static str, u64)> {
        if *self == GraphTimingCounts::default() {
            return Vec::new();
        }
        let counts = [("recorded", self.replays), ("stamps", self.stamps)];
        let reasons = [
            ("stamps_lost", self.lost),
            ("incomplete", self.incomplete),
            ("mixed", self.mixed),
            ("launches_lost", self.launches_lost),
            ("launches_untold", self.launches_untold),
            ("stamps_stopped", self.stopped),
            ("stamps_unknown", self.unknown),
            ("untimed.not_ready", self.untimed_not_ready),
            ("untimed.refused", self.untimed_refused),
            ("untimed.spanning", self.untimed_spanning),
            ("bracket_ns", self.bracket_ns.unsigned_abs()),
            ("uncertainty_ns", self.uncertainty_ns.unsigned_abs()),
        ];
        counts.into_iter().chain(reasons.into_iter().filter(|(_, count)| *count > 0)).collect()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\n{} replays of graphs timed by {}, {} incomplete, {} mixed up with another of their graph",
            self.replays,
            if self.by_events { "events" } else { "stamps" },
            self.incomplete,
            self.mixed
        )?;
        if self.launches_lost + self.launches_untold > 0 {
            write!(
                f,
                "\n{} launches had no events, {} were followed by one that nobody told of",
                self.launches_lost, self.launches_untold
            )?;
        }
        if self.bracket_ns > 0 {
            write!(f, "; two stamps add {}, positions within ±{}", Time(self.bracket_ns), Time(self.uncertainty_ns))?;
        }
        if self.lost + self.unknown > 0 {
            write!(f, "\n{} stamps lost, {} of graphs that nobody registered", self.lost, self.unknown)?;
        }
        if self.stopped > 0 {
            write!(f, "\n{} times of replays that began while the session was stopped", self.stopped)?;
        }
        if self.untimed() > 0 {
            write!(
                f,
                "\n{} captured zones are not timed (stamps not ready {}, refused {}, not all in one capture {})",
                self.untimed(),
                self.untimed_not_ready,
                self.untimed_refused,
                self.untimed_spanning
            )?;
        }
        Ok(())
    }
}

/// One range's figures over a session. GPU times for zones on streams, host times for host zones; all in ns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RangeStats {
    /// The range's full name.
    pub name: &'static str,
    /// Zones that were recorded.
    pub count: u64,
    /// Zones that came by: more than `count` where only a sample was recorded.
    pub seen: u64,
    /// Zones that ended with an error or a panic.
    pub failed: u64,
    /// Sum, in ns.
    pub total_ns: i64,
    /// Mean, in ns.
    pub mean_ns: i64,
    /// Shortest, in ns; exact.
    pub min_ns: i64,
    /// Median, in ns; within 1 %.
    pub p50_ns: i64,
    /// 99th percentile, in ns; within 1 %.
    pub p99_ns: i64,
    /// Longest, in ns; exact.
    pub max_ns: i64,
    /// Mean time that the launching thread spent between begin and end, in ns.
    pub mean_launch_ns: i64,
}

/// The figures of one kind of collective in one process group over a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CollectiveStats {
    /// The group's name and ranks, as in `tp0 [0,1]`; empty where the marks name none.
    pub group: String,
    /// The kind.
    pub kind: CollectiveKind,
    /// Collectives that were recorded.
    pub count: u64,
    /// The sum of their sizes in bytes ([`Message::bytes`](crate::Message::bytes)).
    pub bytes: u64,
    /// The sum of their times on their streams, in ns.
    pub total_ns: i64,
    /// The median of the bus bandwidths, in bytes a second; within 1 %. None where size or group are not known.
    pub bus_p50: Option<f64>,
    /// Their 99th percentile, in bytes a second; within 1 %.
    pub bus_p99: Option<f64>,
    /// The share of the time during which a compute zone surely ran on another stream of the same device, 0 to 1.
    pub hidden: f64,
}

/// How good one device's times are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClockFigures {
    /// The device's name.
    pub device: String,
    /// By how much a position may be off against the host's clock, in ns.
    pub uncertainty_ns: i64,
    /// What a begin and an end event add to the length of the work between them, in ns, on an idle stream.
    pub bracket_ns: i64,
    /// The same on a stream with work queued before them.
    pub busy_bracket_ns: i64,
}

/// What became of one sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkReport {
    /// The sink's name.
    pub name: String,
    /// Records that it took.
    pub taken: u64,
    /// Records that it could not take.
    pub lost: u64,
    /// Calls that failed.
    pub errors: u64,
    /// The first error's text.
    pub first_error: Option<String>,
    /// What is left of what it wrote, for a sink that keeps the newest only: [rotation](crate::SessionBuilder::rotate) and the
    /// flight recorder.
    pub kept: Kept,
}

/// What is left of what a sink wrote. The zones in `files` and `removed_zones` together are those that it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The files that are there, oldest first; empty for a sink that keeps all.
    pub files: Vec<TraceFile>,
    /// Files, or pieces of one file, that made room for newer ones.
    pub removed: u64,
    /// Zones that were in those.
    pub removed_zones: u64,
}

/// A file that a sink wrote and that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Zones in it.
    pub zones: u64,
    /// Its length, in bytes.
    pub bytes: u64,
}

impl Report {
    /// Prints the report on standard output, unless the setting `summary` has done so already.
    pub fn print(&self) {
        if !self.is_printed {
            // A closed pipe is the reader's choice; `println!` would panic.
            let _ = writeln!(std::io::stdout(), "{self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.ranges.is_empty() {
            ranges(f, &self.ranges)?;
        }
        if !self.collectives.is_empty() {
            collectives(f, &self.collectives)?;
        }
        if self.waits.recorded > 0 {
            show(f, &self.streams, self.critical_path.as_ref())?;
        }
        write!(f, "{} zones begun, {} recorded, ", self.begun, self.recorded)?;
        if self.captured > 0 {
            write!(f, "{} captured into graphs, ", self.captured)?;
        }
        write!(f, "{} dropped", self.dropped.total())?;
        let reasons: Vec<_> = self.dropped.reasons().map(|(reason, count)| format!("{reason} {count}")).collect();
        if !reasons.is_empty() {
            write!(f, " ({})", reasons.join(", "))?;
        }
        write!(f, " in {:.3} s", self.duration.as_secs_f64())?;
        let SpanCounts { begun, recorded, buffer_full, unfinished } = self.spans;
        if begun > 0 {
            write!(f, "\n{begun} spans and events begun, {recorded} recorded, {} dropped", self.spans.dropped())?;
        }
        if self.spans.dropped() > 0 {
            write!(f, " (buffer_full {buffer_full}, unfinished {unfinished})")?;
        }
        let WaitCounts { begun, recorded, dropped, depths_dropped, .. } = self.waits;
        if begun > 0 {
            write!(f, "\n{begun} waits begun, {recorded} recorded, {} dropped", dropped.total())?;
            let reasons: Vec<_> = dropped.reasons().map(|(reason, count)| format!("{reason} {count}")).collect();
            if !reasons.is_empty() {
                write!(f, " ({})", reasons.join(", "))?;
            }
        }
        if depths_dropped > 0 {
            write!(
                f,
                "\nqueues said {depths_dropped} times in vain how much they hold: more came than were collected"
            )?;
        }
        let KernelCounts { recorded, dropped, untimed, buffers_refused } = self.kernels;
        if self.kernels != KernelCounts::default() {
            write!(
                f,
                "\n{recorded} kernels and copies recorded, {dropped} dropped by CUPTI, {untimed} without a time"
            )?;
        }
        if buffers_refused > 0 {
            write!(f, " ({buffers_refused} times there was no buffer left)")?;
        }
        if self.graph_timing != GraphTimingCounts::default() {
            self.graph_timing.write(f)?;
        }
        if self.not_sampled > 0 {
            write!(f, "\nonly a sample was recorded: {} zones more came by", self.not_sampled)?;
        }
        for clock in &self.clocks {
            write!(
                f,
                "\n{}: positions within ±{}, an empty pair of events reads {} ({} behind queued work)",
                clock.device,
                Time(clock.uncertainty_ns),
                Time(clock.bracket_ns),
                Time(clock.busy_bracket_ns)
            )?;
        }
        for sink in &self.sinks {
            if let Some(error) = &sink.first_error {
                let (errors, lost) = (sink.errors, sink.lost);
                write!(f, "\nsink {}: {errors} calls failed, {lost} records lost; first: {error}", sink.name)?;
            }
            let Kept { files, removed, removed_zones } = &sink.kept;
            if !files.is_empty() {
                let zones: u64 = files.iter().map(|file| file.zones).sum();
                let files = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
                write!(f, "\n{}: {files} with the last {zones} zones", sink.name)?;
                if *removed > 0 {
                    write!(f, "; {removed_zones} older ones made room, in {removed} pieces")?;
                }
            }
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

fn ranges(f: &mut fmt::Formatter<'_>, ranges: &[RangeStats]) -> fmt::Result {
    const HEAD: [&str; 9] = ["range", "count", "total", "mean", "min", "p50", "p99", "max", "launch"];
    let rows: Vec<_> = ranges
        .iter()
        .map(|r| {
            let time = |ns| Time(ns).to_string();
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
                Bytes(c.bytes).to_string(),
                Time(c.total_ns).to_string(),
                speed(c.bus_p50),
                speed(c.bus_p99),
                format!("{:.1} %", c.hidden * 100.0),
            ]
        })
        .collect();
    table(f, HEAD, &rows)
}

/// Rows under their heads, the first column to the left.
pub(super) fn table<const N: usize>(f: &mut fmt::Formatter<'_>, head: [&str; N], rows: &[[String; N]]) -> fmt::Result {
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
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..10_000 => write!(f, "{} B", self.0),
            10_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// A time for people: three or four digits and a unit.
pub(super) struct Time(pub(super) i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0.unsigned_abs() {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.2} µs", ns / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.3} s", ns / 1e9),
        }
    }
}
