//! The `warpline` command, as a library: reads the catalog of a binary that does not run, shows it, checks it; reads traces
//! of several ranks, to say which was late; joins the annotations of CUDA graphs with traces of other tools; makes traces of
//! what flight recorders hold; and asks programs that run what they do.
//!
//! Called by the two binaries `warpline` and `cargo-warpline`, by the fuzz targets and by the tests. It never runs the
//! binary that it looks at, never trusts a byte of a file, and never takes more memory than the limits in [`binary`],
//! [`stragglers`] and [`warpline_annotate`] allow.
#![forbid(unsafe_code)]

mod annotate;
mod args;
pub mod binary;
mod cargo;
mod commands;
#[cfg(target_os = "linux")]
mod control;
mod output;
mod place;
mod recover;
mod runtime;
mod source;
pub mod stragglers;

pub use commands::{cargo_warpline, warpline};
#[doc(hidden)]
pub use recover::chrome::recover as recover_chrome;

/// The definition of `warpline`'s arguments, for tests that go through every command.
#[doc(hidden)]
pub fn definition() -> clap::Command {
    args::Warpline::grouped()
}
