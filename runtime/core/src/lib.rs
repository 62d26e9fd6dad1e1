//! What changes slowly in warpline: the catalog of ranges, records and report values, zones with their slots, rings and contexts, the
//! clock, in-process streams, and the traits that backends, launch observers and sinks implement.
//!
//! Users depend on the crate `warpline`, which re-exports what is public of this one. Everything else in here serves warpline's other
//! crates, which have the same version; it may change in any release.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "what users see is documented; the rest serves the other crates")]

#[macro_use]
mod enabled;

pub mod backend;
pub mod catalog;
pub mod caught;
#[cfg(feature = "runtime")]
pub mod clock;
pub mod collective;
pub mod environment;
pub mod fields;
pub mod fork;
#[cfg(feature = "runtime")]
pub mod inside;
#[cfg(feature = "runtime")]
pub mod intervals;
pub mod kernel;
#[cfg(feature = "runtime")]
pub mod lock;
#[cfg(feature = "runtime")]
pub mod observer;
pub mod path;
#[cfg(feature = "runtime")]
pub mod peer;
#[cfg(feature = "runtime")]
pub mod process;
pub mod profile;
#[cfg(feature = "runtime")]
pub mod ranges;
pub mod record;
pub mod recovered;
pub mod replay;
pub mod report;
#[cfg(feature = "runtime")]
pub mod sample;
#[cfg(feature = "runtime")]
pub mod signals;
pub mod sink;
pub mod spelling;
pub mod stream;
#[cfg(feature = "runtime")]
pub mod switch;
pub mod tell;
pub mod text;
pub mod timing;
pub mod wait;
pub mod zone;

#[doc(hidden)]
pub use catalog::{Kind, Level, RangeSpec};
pub use warpline_macros::range;

/// What `namespace!`, `range!` and the marks expand to.
#[doc(hidden)]
pub mod __private {
    pub use crate::catalog::expansion::*;
    pub use linkme;
}
