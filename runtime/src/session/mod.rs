//! Start, stop, finish: the one handle that an application holds.
//!
//! With feature `enable` a [`Session`] owns the collector; without it the same API exists and does nothing, so that an
//! application compiles both ways.

mod report;

#[cfg(feature = "enable")]
mod config;
#[cfg(not(feature = "enable"))]
mod off;
#[cfg(feature = "enable")]
mod on;

pub use report::{ClockFigures, Dropped, RangeStats, Report, SinkReport};

#[cfg(not(feature = "enable"))]
pub use off::{Error, Session, SessionBuilder};
#[cfg(feature = "enable")]
pub use on::{Error, Session, SessionBuilder};
