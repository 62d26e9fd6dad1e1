//! Start, stop, finish: the one handle that an application holds.
//!
//! With feature `enable` a [`Session`] owns the collector; without it the same API exists and does nothing, so that an
//! application compiles both ways.

mod report;
mod timelines;

#[cfg(feature = "enable")]
pub(crate) mod config;
#[cfg(feature = "enable")]
mod environment;
#[cfg(feature = "enable")]
mod files;
#[cfg(feature = "enable")]
mod flight;
#[cfg(not(feature = "enable"))]
mod off;
#[cfg(feature = "enable")]
mod on;
#[cfg(feature = "enable")]
mod sizes;
#[cfg(feature = "enable")]
mod spelling;
#[cfg(feature = "enable")]
pub(crate) mod warn;

pub use report::{
    ClockFigures, CollectiveStats, Dropped, GraphTimingCounts, Kept, KernelCounts, RangeStats, Report, SinkReport,
    SpanCounts, TraceFile,
};
pub use timelines::{SemaphoreStats, StreamStats, WaitCounts, WaitedFor};

#[cfg(not(feature = "enable"))]
pub use off::{Error, Session, SessionBuilder};
#[cfg(feature = "enable")]
pub use on::{Error, Session, SessionBuilder};

/// How the end of a zone on a GPU stream is found.
///
/// An event right behind the work it waits for is exact, and makes streams that share one of the device's hardware queues
/// wait for one another: with CUDA's defaults, more than eight streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Eager where the device's streams have a hardware queue each, otherwise lazy.
    #[default]
    Auto,
    /// A timed event behind each zone.
    Eager,
    /// A marker without time behind each zone; the next begin on the stream says when it ended, or the collector's look at
    /// the marker does. It costs no overlap and less of the launching thread.
    Lazy,
}

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
    /// By event-record nodes in the same places, for comparison: dearer on the device, and each launch has to be told of by
    /// `GraphZones::before_launch`, which exchanges the events.
    Events,
}
