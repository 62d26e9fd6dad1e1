//! Without the C library's handler: a process is known by its number, and no task runs in a child.
//!
//! For systems that have no forks, and for builds that record nothing and so link no C library of their own.

/// A number of this process.
#[inline]
pub(super) fn forks() -> u32 {
    std::process::id()
}

/// Nothing has to be counted.
pub(super) fn follow() {}

/// Nothing runs in children.
pub(crate) fn in_children(_task: fn()) {}

/// A descriptor that children have no copy of.
pub struct NotInChildren;

impl NotInChildren {
    pub fn new<T>(_descriptor: &T) -> NotInChildren {
        NotInChildren
    }
}
