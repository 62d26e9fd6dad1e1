//! Forks: detects that this process is the child of a fork.
//!
//! A child has a copy of all memory and one thread, the one that forked. Locks that other threads held stay locked forever, and
//! nothing reads the rings. So a child neither takes a lock of an inherited object nor closes the object: types with locks or
//! threads remember the process that created them ([`Home`]), statics are created again (`PerProcess`), descriptors of locked
//! files and of sockets are redirected (`descriptors`), and recording is off until the child starts a session.

#[cfg(all(unix, feature = "runtime"))]
mod descriptors;
#[cfg(all(unix, feature = "runtime"))]
mod handler;
mod per_process;
#[cfg(all(test, unix, feature = "runtime", not(any(loom, miri))))]
pub(crate) mod testing;

pub use descriptors::NotInChildren;
pub(crate) use handler::in_children;
use handler::{follow, forks};
pub use per_process::PerProcess;

/// Descriptors without forks: for systems that have none, and for builds that record nothing.
#[cfg(not(all(unix, feature = "runtime")))]
mod descriptors {
    /// A descriptor of which children have no copy.
    pub struct NotInChildren;

    impl NotInChildren {
        pub fn new<T>(_descriptor: &T) -> NotInChildren {
            NotInChildren
        }
    }
}

/// The fallback without the C library's handler: a process is identified by its id, and no task runs in a child.
///
/// For systems that have no forks, and for builds that record nothing and so link no C library of their own.
#[cfg(not(all(unix, feature = "runtime")))]
mod handler {
    /// Returns the id of this process.
    #[inline]
    pub(super) fn forks() -> u32 {
        std::process::id()
    }

    /// Does nothing, because no forks are counted.
    pub(super) fn follow() {}

    /// Does nothing, because no task runs in children.
    pub(crate) fn in_children(_task: fn()) {}
}

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
