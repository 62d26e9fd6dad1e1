//! The session: the only handle that an application holds.
//!
//! `handle` contains the [`Session`], and `entry` the calls that start one. Both are the same in every build. With the feature `enable`,
//! the handle holds the state in `running`; without the feature, `off.rs` replaces that folder. Settings are in [`crate::settings`], reports
//! in [`warpline_report`], and the end of the program in `crate::exit`.

mod entry;
mod handle;
#[cfg_attr(not(feature = "enable"), path = "off.rs")]
mod running;

pub use handle::{Session, SinkId};
use running::{Listening, Running, why_nothing};
