//! What a session hands on: batches of records to its sinks, and at its end the report.
//!
//! A [`Report`] says what was recorded, what was dropped and why, and how accurate the clocks are. It is plain data and never queries a device or
//! waits. `figures` has the measurements; `lengths`, `nesting` and `per_step` find those of ranges, `traffic` those of collectives, `stream_time`
//! those of streams, `work` declared work by time, and `path` the critical path. `tables` has all of it as tables, which `export` writes as JSON, Markdown and CSV, and `page`
//! as HTML in the frame of all pages (`frame`). `text` formats it for people, with the tables of `table`. A session makes its report from
//! records, and the command makes the same report from traces. `sink` has the trait of what receives the records and the report.
//!
//! Users depend on the crate `warpline`, which re-exports the public items of this crate. Everything else here serves warpline's other crates,
//! which have the same version, and may change in any release.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what users see is documented; the rest serves the other crates")]

#[cfg(feature = "build")]
pub mod builder;
#[cfg(feature = "build")]
pub mod export;
pub mod figures;
#[cfg(feature = "fixture")]
pub mod fixture;
#[cfg(feature = "build")]
pub mod frame;
#[cfg(feature = "build")]
pub mod lengths;
#[cfg(feature = "build")]
pub mod names;
#[cfg(feature = "build")]
pub mod nesting;
#[cfg(feature = "build")]
mod page;
pub mod path;
#[cfg(feature = "build")]
pub mod per_step;
pub mod sink;
#[cfg(feature = "build")]
pub mod stream_time;
#[cfg(feature = "build")]
mod table;
#[cfg(feature = "build")]
pub mod tables;
#[cfg(all(test, feature = "build"))]
mod tests;
#[cfg_attr(not(feature = "build"), path = "no_text.rs")]
mod text;
#[cfg(feature = "build")]
pub mod traffic;
pub mod work;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

pub use warpline_core::counts::{
    Dropped, EndCounts, EventPoolCounts, FieldCounts, GraphTimingCounts, KernelCounts, KernelTimingCounts,
    MemoryCounts, SpanCounts, SyncCounts, WaitCounts,
};
pub use warpline_core::memory::{MemoryHolder, MemoryStats};

pub use figures::{
    ClockFigures, CollectiveStats, DEAR, HostWaitStats, KernelStats, LeftOut, RangeStats, RangeStepStats,
    SemaphoreStats, StepStats, StreamStats, WaitedFor, WindowFigures,
};

#[cfg(feature = "build")]
pub use table::{duration, rate};
#[cfg(feature = "build")]
#[allow(unused_imports, reason = "only the control server, and the command, show ranges of a recording")]
pub use text::{MoreRanges, RANGES, RangeTables};

use crate::path::CriticalPath;

/// The report of one session. `recorded + captured + dropped.total() == begun`, always.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One entry for each recorded range, largest total first; up to three where its zones have times of streams, of threads, and in
    /// replays of CUDA graphs. [`RangeStats`] describes what the figures cover if not all zones were recorded.
    pub ranges: Vec<RangeStats>,
    /// One entry for each process group and kind of collective that was recorded, longest time first.
    pub collectives: Vec<CollectiveStats>,
    /// Zones that began.
    pub begun: u64,
    /// Zones that were timed and delivered to the sinks.
    pub recorded: u64,
    /// Zones that were captured into CUDA graphs with their streams: they have no times of their own and label the graph
    /// (`warpline::graph`).
    pub captured: u64,
    /// Zones that began and were neither recorded nor captured, by reason.
    pub dropped: Dropped,
    /// How the ends of zones on GPU streams were found.
    pub ends: EndCounts,
    /// Counts of fields that were cut or left out.
    pub fields: FieldCounts,
    /// Counts of the spans and events of `tracing`; all zero without a `warpline::tracing::layer`.
    pub spans: SpanCounts,
    /// Counts of kernels and copies; all zero in a session without `kernels`.
    pub kernels: KernelCounts,
    /// One entry for each range and kernel or copy that was recorded in it, longest time first; empty in a session without `kernels`.
    pub top_kernels: Vec<KernelStats>,
    /// Counts of synchronisations; all zero in a session without `synchronizations`.
    pub synchronizations: SyncCounts,
    /// One entry for each thread, call and range in which the thread waited for the device, longest time first; empty in a session
    /// without `synchronizations`.
    pub host_waits: Vec<HostWaitStats>,
    /// Zones that were timed by kernels; all zero without `timing=kernels`.
    pub kernel_timing: KernelTimingCounts,
    /// Counts of replays of graphs; all zero in a session without `graph_timing`.
    pub graph_timing: GraphTimingCounts,
    /// Counts of the waits of timelines; all zero without feature `timeline`.
    pub waits: WaitCounts,
    /// Counts of the events of timelines on CUDA streams.
    pub event_pool: EventPoolCounts,
    /// Counts of the device memory that the session knows of.
    pub memory_counts: MemoryCounts,
    /// The device memory that the session knows of, one entry for each device.
    pub memory: Vec<MemoryStats>,
    /// The busy, waiting and idle time of each stream.
    pub streams: Vec<StreamStats>,
    /// The semaphores that were waited for, the longest waits first.
    pub semaphores: Vec<SemaphoreStats>,
    /// The critical path through at least the last 32,768 zones; none without zones.
    pub critical_path: Option<CriticalPath>,
    /// The steps of the program; all zero without steps.
    pub steps: StepStats,
    /// What each range took in a step, longest mean first; empty without steps. Ranges with times of streams and of threads have two
    /// entries.
    pub range_steps: Vec<RangeStepStats>,
    /// Zones that were not chosen, in a session with a `sample`. `begun` does not include them.
    pub not_sampled: u64,
    /// The windows in which a session with a budget recorded; none in other sessions. Zones outside of them are not counted.
    pub windows: Option<WindowFigures>,
    /// The zones that the session's settings left out. `begun` does not include them.
    pub left_out: LeftOut,
    /// The duration of the session.
    pub duration: Duration,
    /// The quality of the clocks, one entry for each device.
    pub clocks: Vec<ClockFigures>,
    /// The result of each sink; of sinks that the program removed, the last 256.
    pub sinks: Vec<SinkReport>,
    /// Notes for the user: one sentence each, with the remedy.
    pub notes: Vec<String>,
    /// Whether the setting `summary` has already printed the report.
    #[doc(hidden)]
    pub is_printed: bool,
    #[doc(hidden)]
    pub source: Source,
    /// How many ranges the text has at most, if the reader has chosen that.
    #[doc(hidden)]
    pub rows: Option<usize>,
}

/// What a report is made from.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A session.
    #[default]
    Session,
    /// Traces of sessions, each with the session's account.
    Traces,
    /// Traces, of which some lack the account of a session.
    TracesWithoutAccount,
    /// Traces of other tools.
    OtherTraces,
}

impl Report {
    /// Returns whether the figures cover every marked zone of the session: none was left out, skipped by a sample, dropped, or
    /// captured into a graph. Otherwise, time without a recorded zone is not called idle.
    pub fn is_complete(&self) -> bool {
        let Report { left_out, not_sampled, windows, captured, dropped, steps, .. } = self;
        matches!(self.source, Source::Session | Source::Traces)
            && windows.is_none()
            && steps.left_out == 0
            && left_out.is_nothing()
            && *not_sampled == 0
            && *captured == 0
            && dropped.total() == 0
    }

    /// Returns what was recorded of what there was, for traces: the length of the session, the ranges of the catalog, and the zones that are not
    /// counted as begun. Names with values; what is 0 is left out.
    #[doc(hidden)]
    pub fn said_coverage(&self) -> Vec<(&'static str, u64)> {
        let LeftOut { ranges, while_stopped, of_ranges } = self.left_out;
        let ppm = |share: f64| (share.max(0.0) * 1e6).round() as u64;
        let windows = self.windows.unwrap_or_default();
        let counts = [
            ("duration_ns", u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX)),
            ("ranges", of_ranges),
            ("not_sampled", self.not_sampled),
            ("windows", windows.windows),
            ("windows_recorded_ppm", ppm(windows.recorded)),
            ("windows_cost_ppm", windows.cost.map_or(0, ppm)),
            ("windows_cut", windows.cut),
            ("ranges_left_out", ranges),
            ("was_stopped", u64::from(while_stopped)),
            ("steps_left_out", self.steps.left_out),
            ("steps_cut", self.steps.cut),
            ("steps_dropped", self.steps.dropped),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Returns how many zones of each range ran, for traces, where fewer were recorded and each was counted: the names of ranges with numbers.
    #[doc(hidden)]
    pub fn said_seen(&self) -> impl Iterator<Item = (&str, u64)> {
        let mut places: HashMap<&str, u32> = HashMap::new();
        for range in self.ranges.iter().filter(|range| !range.in_replays) {
            *places.entry(&range.name).or_default() += 1;
        }
        let is_in_one_place = move |range: &&RangeStats| {
            self.windows.is_none() && !range.in_replays && places.get(&*range.name) == Some(&1)
        };
        let lacks = |range: &&RangeStats| range.seen != range.count;
        self.ranges.iter().filter(lacks).filter(is_in_one_place).map(|range| (&*range.name, range.seen))
    }

    /// Prints the report on standard output, unless the setting `summary` has printed it.
    pub fn print(&self) {
        if !self.is_printed {
            let text = match warpline_core::terminal::columns() {
                Some(columns) => format!("{self:columns$}\n"),
                None => format!("{self}\n"),
            };
            // A closed pipe is the reader's choice; `println!` would panic. The report is written in one piece after the buffer's
            // content, because text that stays in the buffer after an error is written again when the program ends, and may then
            // end it with a signal.
            let print = || {
                let mut out = std::io::stdout().lock();
                out.flush()?;
                out.write_all(text.as_bytes())
            };
            let _ = warpline_core::signals::without_signals(print);
        }
    }
}

/// The result of one sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkReport {
    /// The sink's name.
    pub name: String,
    /// Records that the sink accepted.
    pub taken: u64,
    /// Records that the sink lost.
    pub lost: u64,
    /// Calls that failed.
    pub errors: u64,
    /// The first error's text.
    pub first_error: Option<String>,
    /// The remaining output of a sink that keeps only the newest records: rotation (`SessionBuilder::rotate`) and the flight
    /// recorder.
    pub kept: Retention,
    /// The session's running time when the program added the sink; none for a sink that was there from the start.
    pub added: Option<Duration>,
    /// The session's running time when the program removed the sink; none for a sink that it did not remove.
    pub removed: Option<Duration>,
}

/// The remaining output of a sink. `removed_zones` and the zones in `files` add up to the zones that the sink accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The existing files, oldest first; empty for a sink that keeps all.
    pub files: Vec<TraceFile>,
    /// Files, or pieces of one file, that were removed to make room.
    pub removed: u64,
    /// Zones in the removed files or pieces.
    pub removed_zones: u64,
}

/// An existing file that a sink wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// Its path.
    pub path: PathBuf,
    /// Zones in it.
    pub zones: u64,
    /// Its length, in bytes.
    pub bytes: u64,
}
