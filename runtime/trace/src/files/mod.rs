//! The files that settings and sinks name: how a session gets a file that no other one writes (`claim`, `own`), and how it notices
//! that somebody takes such a file away (`watch`). `system` has the calls that differ between operating systems.
//!
//! Sessions, the sinks that write files and the flight recorder open and write their files here. No launching thread does.
pub mod claim;
pub(crate) mod own;
#[cfg_attr(not(unix), path = "other_system.rs")]
pub(crate) mod system;
mod watch;
