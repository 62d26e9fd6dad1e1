//! Forks: how this process learns that it is the child of one.
//!
//! A child has a copy of all memory and one thread, the one that forked. Locks that other threads held stay held for ever, and
//! nobody reads the rings. So a child takes no lock of an object that it inherits and closes no such object: what has locks or
//! threads remembers where it was made ([`Home`]), statics start anew (`PerProcess`), descriptors of locked files and of sockets
//! lead nowhere (`descriptors`), and recording is off until the child starts a session.

#[cfg(all(feature = "runtime", unix))]
mod descriptors;
#[cfg(feature = "runtime")]
mod handler;
#[cfg(feature = "runtime")]
mod per_process;

#[cfg(all(feature = "runtime", unix))]
pub(crate) use descriptors::NotInChildren;
#[cfg(all(feature = "runtime", not(loom)))]
pub(crate) use handler::in_children;
#[cfg(feature = "runtime")]
use handler::{follow, forks};
#[cfg(feature = "runtime")]
pub(crate) use per_process::PerProcess;

/// The process in which something was made: how many forks lie between it and the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

#[cfg(feature = "runtime")]
impl Home {
    /// This process.
    pub(crate) fn here() -> Home {
        follow();
        Home(forks())
    }

    /// Whether it is this process. Otherwise this one was forked from it.
    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        self.0 == forks()
    }
}

/// Without the features that need the C library, the process's number does.
#[cfg(not(feature = "runtime"))]
impl Home {
    /// This process.
    pub(crate) fn here() -> Home {
        Home(std::process::id())
    }

    /// Whether it is this process. Otherwise this one was forked from it.
    pub(crate) fn is_here(self) -> bool {
        self == Home::here()
    }
}
