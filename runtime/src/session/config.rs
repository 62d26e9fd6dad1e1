//! The settings of a session: what it records, of which zones, and where to.
//!
//! The builder and `WARPLINE=…` (`line`) fill them in; a session that runs changes its own. They are plain data, so that a session
//! which is held for somebody outside can have its own of the program's.

use std::path::PathBuf;
use std::time::Duration;

use super::error::ConfigError;
use super::files;
use super::filter::Filter;
#[cfg(feature = "enable")]
use super::filter::lets_through;
use super::{Ends, GraphTiming};
use crate::catalog::Level;
#[cfg(feature = "enable")]
use crate::catalog::RangeSpec;
#[cfg(feature = "enable")]
use crate::files::name;
#[cfg(feature = "enable")]
use crate::sample::{Wanted, may_be_sampled};

/// Every setting of a session.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(feature = "enable"), allow(dead_code, reason = "only a session that records acts on all of them"))]
pub(crate) struct Config {
    pub(crate) perfetto: Vec<PathBuf>,
    pub(crate) chrome: Vec<PathBuf>,
    /// The most bytes of a Perfetto trace's file, and how many of them stay; none for one file without a limit.
    pub(crate) rotate: Option<u64>,
    pub(crate) keep: Option<usize>,
    /// Keep the last so many bytes of zones in a file.
    pub(crate) flight: Option<FlightSettings>,
    /// A stream that finishes no zone for so long, while zones are open, is stalled.
    pub(crate) stall: Option<Duration>,
    /// Write the flight recorder out on the signal SIGUSR2.
    pub(crate) dump_on_sigusr2: bool,
    /// Show zones live in Tracy.
    pub(crate) tracy: bool,
    pub(crate) summary: bool,
    /// Emit zones as events of `tracing`.
    pub(crate) log: bool,
    pub(crate) level: Level,
    pub(crate) filters: Vec<Filter>,
    pub(crate) ring: usize,
    pub(crate) events: usize,
    pub(crate) ends: Ends,
    /// The share of a launching thread's time that the session may cost; none for whatever it costs.
    pub(crate) budget: Option<f64>,
    /// The greatest share of a range's zones that is recorded.
    pub(crate) sample: f64,
    /// Measure with a kernel what a pair of events adds to one.
    pub(crate) calibrate: bool,
    /// Record kernels through CUPTI.
    pub(crate) kernels: bool,
    /// Time captured zones in each replay.
    pub(crate) graph_timing: GraphTiming,
    /// Zones are mirrored to NVTX: as asked, not at all, or where a tool is there.
    pub(crate) nvtx: Option<bool>,
    pub(crate) finish_timeout: Duration,
    pub(crate) off: bool,
    /// Listen to the command `warpline`.
    pub(crate) control: bool,
    /// Do not say where the traces are.
    pub(crate) quiet: bool,
    /// Say what settings there are, and record nothing.
    pub(crate) help: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            perfetto: Vec::new(),
            chrome: Vec::new(),
            rotate: None,
            keep: None,
            flight: None,
            stall: None,
            dump_on_sigusr2: false,
            tracy: false,
            summary: false,
            log: false,
            level: Level::Fine,
            filters: Vec::new(),
            ring: 4096,
            events: 16_384,
            ends: Ends::Auto,
            budget: None,
            sample: 1.0,
            calibrate: false,
            kernels: false,
            graph_timing: GraphTiming::Off,
            nvtx: None,
            finish_timeout: Duration::from_secs(5),
            off: false,
            control: false,
            quiet: false,
            help: false,
        }
    }
}

/// The setting `flight`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "enable"), allow(dead_code, reason = "only a session that records acts on all of it"))]
pub(crate) struct FlightSettings {
    pub(crate) bytes: u64,
    /// Where; none for a file in the working directory that goes with the session.
    pub(crate) path: Option<PathBuf>,
}

/// How many files a trace that is rotated keeps where nothing is said.
#[cfg(feature = "enable")]
pub(super) const KEPT: usize = 4;

impl Config {
    /// Whether the settings go with one another.
    ///
    /// # Errors
    /// The first that needs another one.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let needs = |is_there: bool, setting: &str, other: &str, example: &str| match is_there {
            true => Ok(()),
            false => Err(ConfigError::new(setting, format!("needs {other}, as in `{example}`"))),
        };
        if self.rotate.is_some() {
            let example = "perfetto=trace.pftrace,rotate=256MiB";
            needs(!self.perfetto.is_empty(), "rotate", "a Perfetto trace to rotate", example)?;
        }
        if self.keep.is_some() {
            let example = "perfetto=trace.pftrace,rotate=256MiB,keep=4";
            needs(self.rotate.is_some(), "keep", "files to keep some of", example)?;
        }
        if self.stall.is_some() {
            needs(self.flight.is_some(), "stall", "a flight recorder to write out", "flight=64MiB,stall=10s")?;
        }
        if self.dump_on_sigusr2 {
            let example = "flight=64MiB,dump_on=sigusr2";
            needs(self.flight.is_some(), "dump_on", "a flight recorder to write out", example)?;
        }
        if cfg!(not(unix)) && self.flight.is_some() {
            return Err(ConfigError::new("flight", "works on Unix only; leave it out"));
        }
        files::apart(self)
    }

    /// Of several wishes, the one to leave it wins.
    pub(super) fn wish_nvtx(&mut self, wish: bool) {
        self.nvtx = Some(wish && self.nvtx != Some(false));
    }

    /// Puts into each path what its placeholders stand for in this process, now.
    ///
    /// # Errors
    /// The first path with a placeholder that there is none of.
    #[cfg(feature = "enable")]
    pub(super) fn expand_paths(&mut self) -> Result<(), ConfigError> {
        let perfetto = self.perfetto.iter_mut().map(|path| ("perfetto", path));
        let chrome = self.chrome.iter_mut().map(|path| ("chrome", path));
        let flight = self.flight.iter_mut().filter_map(|flight| Some(("flight", flight.path.as_mut()?)));
        for (setting, path) in perfetto.chain(chrome).chain(flight) {
            let wrong = |problem| ConfigError::new(format!("{setting}={}", path.display()), problem);
            *path = name::expand(path).map_err(wrong)?;
        }
        Ok(())
    }

    /// What a session with these settings records of a range.
    #[cfg(feature = "enable")]
    pub(super) fn wants(&self, range: &RangeSpec) -> Wanted {
        match self.budget {
            _ if self.leaves_out(range) => Wanted::None,
            _ if !may_be_sampled(range) => Wanted::All,
            Some(_) => Wanted::Paid(self.sample),
            None if self.sample < 1.0 => Wanted::Share(self.sample),
            None => Wanted::All,
        }
    }

    /// Whether a session with these settings leaves the range out.
    #[cfg(feature = "enable")]
    fn leaves_out(&self, range: &RangeSpec) -> bool {
        range.level() > self.level || !lets_through(&self.filters, range.name())
    }

    /// Whether what is recorded is for something, other than for who asks from outside.
    pub(super) fn has_output(&self) -> bool {
        let Config { perfetto, chrome, tracy, summary, log, flight, .. } = self;
        !perfetto.is_empty() || !chrome.is_empty() || *tracy || *summary || *log || flight.is_some()
    }
}
