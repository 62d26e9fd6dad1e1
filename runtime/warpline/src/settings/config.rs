//! The value of every setting: the defaults, and what they mean for a range.
//!
//! The values are plain data, so an engine that is started for a control client can have its own settings.

use std::path::PathBuf;
use std::time::Duration;

use super::addresses::ServeAt;
use super::filter::{Filter, lets_through};
use super::values::{Console, FlightSettings};
use warpline_core::catalog::{Level, RangeSpec};
use warpline_core::step::Schedule;
use warpline_core::timing::{EndMode, GraphTiming, Timing};

/// The default budget of a session whose only output is the flight recorder, and of recordings from outside.
const UNASKED_BUDGET: f64 = 0.01;

/// The number of files that a rotated trace keeps by default.
pub(crate) const KEPT: usize = 4;

/// The value of every setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    // What the session writes, and to whom.
    pub(crate) perfetto: Vec<PathBuf>,
    pub(crate) chrome: Vec<PathBuf>,
    pub(crate) ranks: Option<PathBuf>,
    pub(crate) ranks_window: Option<Duration>,
    /// The URL to which metrics are posted.
    pub(crate) otlp: Option<String>,
    pub(crate) otlp_interval: Option<Duration>,
    pub(crate) prometheus: Option<ServeAt>,
    /// Further names by which clients may know the server of metrics.
    pub(crate) prometheus_hosts: Vec<String>,
    pub(crate) tracy: bool,
    pub(crate) summary: Option<Console>,
    /// The files to which the report is written.
    pub(crate) summary_files: Vec<PathBuf>,
    pub(crate) log: bool,
    // Which zones it records, how many may wait, and how they are timed.
    pub(crate) level: Level,
    pub(crate) filters: Vec<Filter>,
    pub(crate) ring: usize,
    pub(crate) events: usize,
    pub(crate) event_pool_capacity: Option<usize>,
    pub(crate) ends: EndMode,
    pub(crate) timing: Timing,
    // Which part of the program it records.
    /// The share of its time that the session may cost the program; none for no limit.
    pub(crate) budget: Option<f64>,
    /// The share of a range's zones that is recorded.
    pub(crate) sample: f64,
    pub(crate) active: Option<u64>,
    pub(crate) wait: Option<u64>,
    pub(crate) warmup: Option<u64>,
    pub(crate) repeat: Option<u64>,
    // What it records of devices, and the mirrors of zones in other tools.
    pub(crate) calibrate: bool,
    pub(crate) kernels: bool,
    pub(crate) synchronizations: bool,
    pub(crate) graph_timing: GraphTiming,
    /// Whether zones are mirrored to NVTX; none if they are mirrored when a tool is attached.
    pub(crate) nvtx: Option<bool>,
    /// Whether zones are mirrored to roctx; none if they are mirrored when its library is loaded.
    pub(crate) roctx: Option<bool>,
    // Its end, rotated traces and the flight recorder.
    pub(crate) finish_timeout: Duration,
    /// The maximum size of a Perfetto trace's file in bytes; none for one file without a limit.
    pub(crate) rotate: Option<u64>,
    pub(crate) keep: Option<usize>,
    pub(crate) flight: Option<FlightSettings>,
    pub(crate) stall: Option<Duration>,
    pub(crate) dump_on_sigusr2: bool,
    // Whether it records, who controls it and what it prints.
    pub(crate) off: bool,
    pub(crate) control: bool,
    pub(crate) quiet: bool,
    pub(crate) finish_on_signal: bool,
    pub(crate) help: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            perfetto: Vec::new(),
            chrome: Vec::new(),
            ranks: None,
            ranks_window: None,
            otlp: None,
            otlp_interval: None,
            prometheus: None,
            prometheus_hosts: Vec::new(),
            tracy: false,
            summary: None,
            summary_files: Vec::new(),
            log: false,
            level: Level::Fine,
            filters: Vec::new(),
            ring: 4096,
            events: 16_384,
            event_pool_capacity: None,
            ends: EndMode::Auto,
            timing: Timing::Events,
            budget: None,
            sample: 1.0,
            active: None,
            wait: None,
            warmup: None,
            repeat: None,
            calibrate: false,
            kernels: false,
            synchronizations: false,
            graph_timing: GraphTiming::Off,
            nvtx: None,
            roctx: None,
            finish_timeout: Duration::from_secs(5),
            rotate: None,
            keep: None,
            flight: None,
            stall: None,
            dump_on_sigusr2: false,
            off: false,
            control: false,
            quiet: false,
            finish_on_signal: true,
            help: false,
        }
    }
}

impl Config {
    /// Returns whether the report is printed or written.
    pub(crate) fn has_summary(&self) -> bool {
        self.summary.is_some() || !self.summary_files.is_empty()
    }

    /// Returns the share of its time that recording may cost the program, or none if every zone is recorded.
    /// `is_asked_for` is whether the program's own settings request a trace or a sink.
    pub(crate) fn budget(&self, is_asked_for: bool) -> Option<f64> {
        let default = if is_asked_for { None } else { Some(UNASKED_BUDGET) };
        self.budget.or(default).filter(|share| *share < 1.0)
    }

    /// Returns which steps of the program are recorded; none if all are.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let active = self.active?;
        let [wait, warmup, repeat] = [self.wait, self.warmup, self.repeat].map(Option::unwrap_or_default);
        Some(Schedule { wait, warmup, active, repeat })
    }

    /// Returns what a session with these settings records of a range.
    pub(crate) fn wants(&self, range: &RangeSpec) -> warpline_core::sample::Wanted {
        use warpline_core::sample::{Wanted, may_be_sampled};

        match self.sample {
            _ if self.leaves_out(range) => Wanted::None,
            share if share < 1.0 && may_be_sampled(range) => Wanted::Share(share),
            _ => Wanted::All,
        }
    }

    /// Returns whether a session with these settings excludes the range.
    pub(crate) fn leaves_out(&self, range: &RangeSpec) -> bool {
        range.level() > self.level || !lets_through(&self.filters, range.name())
    }
}
