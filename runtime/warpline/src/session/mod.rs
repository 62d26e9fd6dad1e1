//! The session: the only handle that an application holds.
//!
//! `handle` contains the [`Session`], and `entry` the calls that start one. Both are the same in every build. With the feature `enable`,
//! the handle holds the state in `running`, which `start` creates from the settings; `hints` explains an empty session, `warn` reports likely
//! mistakes, `written` has the files that a session leaves, and `reports` those with its report. Without the feature, `off.rs` replaces these
//! six. Settings are in [`crate::settings`], reports in [`warpline_report`], and the end of the program in `crate::exit`.

mod entry;
mod handle;
#[cfg(feature = "enable")]
mod hints;
#[cfg(feature = "enable")]
mod reports;
#[cfg_attr(feature = "enable", path = "running.rs")]
#[cfg_attr(not(feature = "enable"), path = "off.rs")]
mod running;
#[cfg(feature = "enable")]
mod start;
#[cfg(feature = "enable")]
mod warn;
#[cfg(feature = "enable")]
mod written;

pub use handle::{Session, SinkId};
use running::{Listening, Running, why_nothing};
