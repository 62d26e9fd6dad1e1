//! The files that settings and sinks name: what placeholders in a name stand for (`name`), how a session gets a file that no other
//! one writes (`claim`, `own`), and how it notices that somebody takes such a file away (`watch`).
//!
//! Sessions, the sinks that write files and the flight recorder open and write their files here. No launching thread does.
pub(crate) mod claim;
pub mod name;
pub(crate) mod own;
mod watch;
