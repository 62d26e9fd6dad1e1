//! The files that settings and sinks name: what placeholders in a name stand for (`name`), how a process writes a file that no
//! other process writes (`own`), and how a write that fails ends no program (`signals`).
//!
//! Sessions, the sinks that write files and the flight recorder open and write their files here. No launching thread does.

pub mod name;
#[cfg(feature = "enable")]
pub(crate) mod own;
#[cfg(feature = "enable")]
pub(crate) mod signals;
