//! Descriptors without forks: for systems that have none, and for builds that record nothing.

/// A descriptor that children have no copy of.
pub struct NotInChildren;

impl NotInChildren {
    pub fn of<T>(_descriptor: &T) -> NotInChildren {
        NotInChildren
    }
}
