//! Descriptors without forks: for systems that have none, and for builds that record nothing.

/// A descriptor of which children have no copy.
pub struct NotInChildren;

impl NotInChildren {
    pub fn new<T>(_descriptor: &T) -> NotInChildren {
        NotInChildren
    }
}
