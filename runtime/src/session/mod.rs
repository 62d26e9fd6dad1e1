//! Start, stop, finish: the one handle that an application holds.
//!
//! With feature `enable` a [`Session`] owns the collector; without it the same API exists and records nothing (`off`), so that an
//! application compiles both ways. Settings are read and checked in both builds: from the program through `builder`, from
//! `WARPLINE` through `line`. `values` checks each value, `filter` is a pattern over names, `config` holds all settings, `files`
//! keeps traces apart, `error` is what a caller gets, `meant` guesses what was meant, `warn` reports likely mistakes, and
//! `environment` remembers what the user set and not the program. `start` makes a session of them, with what `info` knows of the
//! process; `on` is its handle, `running` what is behind that until it ends, `written` the files that it leaves, and `report` what it
//! says then.

mod builder;
mod config;
mod environment;
mod error;
mod files;
mod filter;
#[cfg(feature = "enable")]
mod info;
mod line;
mod meant;
#[cfg(not(feature = "enable"))]
mod off;
#[cfg(feature = "enable")]
mod on;
mod report;
#[cfg(feature = "enable")]
mod running;
#[cfg(feature = "enable")]
mod start;
mod values;
#[cfg(feature = "enable")]
pub(crate) mod warn;
#[cfg(feature = "enable")]
mod written;

pub use report::{
    ClockFigures, CollectiveStats, Dropped, GraphTimingCounts, Kept, KernelCounts, LeftOut, RangeStats, Report,
    SemaphoreStats, SinkReport, SpanCounts, StreamStats, TraceFile, WaitCounts, WaitedFor,
};

#[cfg(all(feature = "enable", target_os = "linux"))]
pub(crate) use report::RANGES;
#[cfg(feature = "export")]
pub(crate) use report::{MoreRanges, RangeTables};

pub use crate::backend::Ends;
pub use builder::SessionBuilder;
#[cfg(feature = "enable")]
pub(crate) use config::Config;
pub use error::Error;
#[cfg(feature = "enable")]
pub(crate) use filter::{Filter, lets_through};
#[cfg(feature = "enable")]
pub(crate) use line::nvtx_of_environment;
#[cfg(not(feature = "enable"))]
pub use off::Session;
#[cfg(feature = "enable")]
pub use on::Session;

/// How zones that are captured into CUDA graphs are timed in each replay, without a profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphTiming {
    /// Not at all: nothing is added to a graph.
    #[default]
    Off,
    /// By stamps: kernels of one thread that are captured where zones begin and end, and write the device's time. Each makes a
    /// replay about a microsecond longer; the launch costs what it costs without.
    Stamps,
}
