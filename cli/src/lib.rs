//! The `warpline` command, as a library: it shows and checks the catalog of a binary without running it, or of a trace; reports the figures of traces and compares them; finds late ranks in traces
//! of several ranks; joins the annotations of CUDA graphs with traces of other tools; turns the files of flight recorders into
//! traces; inspects and records programs that run; and says what works on a host.
//!
//! The binaries `warpline` and `cargo-warpline`, the fuzz targets and the tests call it. It never runs the binary that it reads,
//! never trusts the content of a file, and never takes more memory than the limits in [`binary`], [`stragglers`],
//! [`warpline_annotate`] and [`warpline_trace::read`] allow.
#![forbid(unsafe_code)]

mod annotate;
mod args;
pub mod binary;
mod bounded_read;
mod cargo;
mod commands;
mod compare;
#[cfg(target_os = "linux")]
mod control;
mod doctor;
mod files;
mod hand_over;
mod open;
mod output;
mod output_file;
mod recover;
mod report;
mod runtime;
mod shell;
pub mod stragglers;
mod trace_catalog;

use warpline_trace::read::{self as trace, inputs};

pub use commands::{cargo_warpline, warpline};
#[doc(hidden)]
pub use recover::chrome::recover as recover_chrome;

/// The definition of `warpline`'s arguments, for tests that go through every command.
#[doc(hidden)]
pub fn definition() -> clap::Command {
    args::Warpline::grouped()
}
