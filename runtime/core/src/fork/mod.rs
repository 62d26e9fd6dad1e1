//! Forks: detects that this process is the child of a fork.
//!
//! A child has a copy of all memory and one thread, the one that forked. Locks that other threads held stay locked forever, and
//! nothing reads the rings. So a child neither takes a lock of an inherited object nor closes the object: types with locks or
//! threads remember the process that created them ([`Home`]), statics are created again (`PerProcess`), descriptors of locked
//! files and of sockets are redirected (`descriptors`), and recording is off until the child starts a session.

#[cfg_attr(not(all(unix, feature = "runtime")), path = "no_descriptors.rs")]
mod descriptors;
#[cfg_attr(not(all(unix, feature = "runtime")), path = "no_handler.rs")]
mod handler;
mod per_process;
#[cfg(all(test, unix, feature = "runtime", not(any(loom, miri))))]
pub(crate) mod testing;

pub use descriptors::NotInChildren;
pub(crate) use handler::in_children;
use handler::{follow, forks};
pub use per_process::PerProcess;

/// The process in which something was created: the number of forks between it and the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(u32);

impl Home {
    /// Returns the current process.
    pub fn here() -> Home {
        follow();
        Home(forks())
    }

    /// Returns whether it is the current process. If not, the current process was forked from it.
    #[inline(always)]
    pub fn is_here(self) -> bool {
        self.0 == forks()
    }
}
