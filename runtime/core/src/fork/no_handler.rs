//! The fallback without the C library's handler: a process is identified by its id, and no task runs in a child.
//!
//! For systems that have no forks, and for builds that record nothing and so link no C library of their own.

/// Returns the id of this process.
#[inline]
pub(super) fn forks() -> u32 {
    std::process::id()
}

/// Does nothing, because no forks are counted.
pub(super) fn follow() {}

/// Does nothing, because no task runs in children.
pub(crate) fn in_children(_task: fn()) {}
