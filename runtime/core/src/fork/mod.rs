//! Forks: how this process learns that it is the child of one.
//!
//! A child has a copy of all memory and one thread, the one that forked. Locks that other threads held stay held for ever, and
//! nobody reads the rings. So a child takes no lock of an object that it inherits and closes no such object: what has locks or
//! threads remembers where it was made ([`Home`]), statics start anew (`PerProcess`), descriptors of locked files and of sockets
//! lead nowhere (`descriptors`), and recording is off until the child starts a session.

#[cfg_attr(not(all(unix, feature = "runtime")), path = "no_descriptors.rs")]
mod descriptors;
#[cfg_attr(not(all(unix, feature = "runtime")), path = "no_handler.rs")]
mod handler;
mod per_process;

pub use descriptors::NotInChildren;
pub(crate) use handler::in_children;
use handler::{follow, forks};
pub use per_process::PerProcess;

/// The process in which something was made: how many forks lie between it and the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// This process.
    pub fn here() -> Home {
        follow();
        Home(forks())
    }

    /// Whether it is this process. Otherwise this one was forked from it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        self.0 == forks()
    }
}
