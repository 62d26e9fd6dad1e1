//! The slowly changing part of warpline: the catalog of ranges, records and report values, zones with their slots, rings and
//! contexts, the clock, in-process streams, and the traits that backends, launch observers and sinks implement.
//!
//! Users depend on the crate `warpline`, which re-exports the public items of this crate. Everything else here serves warpline's
//! other crates, which have the same version, and may change in any release.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![cfg_attr(not(feature = "enable"), allow(dead_code, reason = "marks that record use it"))]
#![allow(clippy::new_without_default, reason = "what is made empty by `new` here serves warpline's other crates alone")]
#![allow(missing_docs, reason = "what users see is documented; the rest serves the other crates")]

mod enabled;

pub mod backend;
pub mod catalog;
pub mod clock;
pub mod collective;
pub mod counts;
#[cfg(feature = "runtime")]
pub mod dynamic;
pub mod environment;
pub mod fields;
pub mod file_name;
#[cfg(feature = "fixture")]
pub mod fixture;
pub mod fork;
pub mod hashing;
#[cfg(feature = "runtime")]
pub mod intervals;
pub mod kernel;
#[cfg(feature = "runtime")]
pub mod library;
pub mod lock;
pub mod memory;
#[cfg(feature = "runtime")]
pub mod observer;
pub mod panics;
pub mod plural;
pub mod process;
pub mod profile;
#[cfg(feature = "runtime")]
pub mod ranges;
pub mod record;
pub mod recovered;
pub mod reentrancy;
pub mod replay;
pub mod sample;
#[cfg(all(unix, feature = "runtime"))]
pub mod signals;
#[cfg(all(target_os = "linux", feature = "runtime"))]
pub mod socket_peer;
pub mod sorting;
pub mod stderr;
pub mod step;
#[cfg(feature = "runtime")]
pub mod steps;
#[cfg(feature = "runtime")]
pub mod stream;
pub mod suggest;
pub mod switch;
#[cfg_attr(loom, path = "sync_loom.rs")]
pub mod sync;
pub mod synchronization;
pub mod terminal;
pub mod text;
pub mod threads;
pub mod timing;
pub mod wait;
#[cfg(feature = "runtime")]
pub mod windows;
pub mod work;
pub mod zone;

#[doc(hidden)]
pub use catalog::{Kind, Level, RangeSpec};
pub use warpline_macros::range;

/// The items that `namespace!`, `range!` and the marks expand to.
#[doc(hidden)]
pub mod __private {
    pub use crate::catalog::expansion::*;
    pub use linkme;
}

/// Replaces `dynamic` in a build that records nothing: no range is named at run time.
#[cfg(not(feature = "runtime"))]
pub mod dynamic {
    use crate::catalog::spec::{RangeMeta, RangeSpec};
    use crate::catalog::{Kind, catalog};

    static REST: RangeSpec =
        RangeSpec::new(RangeMeta { namespace: "(dynamic)", label: "(more)\0", kind: Kind::Gpu, ..RangeMeta::EMPTY });

    /// Returns the range in which all that is named at run time is counted together.
    pub fn range(_name: &str, _file: &str, _line: u32, _function: &str) -> &'static RangeSpec {
        &REST
    }

    /// Returns the ranges that were named so far, oldest first.
    pub fn ranges() -> Vec<&'static RangeSpec> {
        Vec::new()
    }

    /// Returns the ranges of the catalog, and those that were named or met so far.
    pub fn all_ranges() -> impl Iterator<Item = &'static RangeSpec> {
        catalog().into_iter()
    }
}

/// The fallback without masks of signals: for systems other than Unix, and for builds that record nothing and therefore link no C library
/// of their own.
#[cfg(not(all(unix, feature = "runtime")))]
pub mod signals {
    /// Runs `write`.
    pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
        write()
    }

    /// Runs `work`.
    pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}
