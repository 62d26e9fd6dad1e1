//! The files that settings and sinks name. `claim` and `own` give a session a file that no other session writes, `watch` detects
//! that such a file was removed, replaced or truncated, `regular` opens a file for a reader, and `system` has the calls that differ between operating
//! systems.
//!
//! Sessions, sinks and the flight recorder open and write their files here. Launching threads never do.
pub mod claim;
pub(crate) mod own;
mod regular;
#[cfg_attr(not(unix), path = "other_system.rs")]
pub(crate) mod system;
mod watch;

pub use self::{regular::regular, system::identity};
