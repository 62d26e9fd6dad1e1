//! The files that settings and sinks name: what placeholders in a name stand for (`name`), and how a process writes a file that no
//! other process writes (`own`).
//!
//! Sessions, the sinks that write files and the flight recorder use it when they open a file, never while they record.

pub mod name;
#[cfg(feature = "enable")]
pub(crate) mod own;
