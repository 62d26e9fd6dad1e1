//! Which process something belongs to.
//!
//! The child of a `fork` has a copy of all that the parent has in memory, and none of its threads: what a session does at its end
//! would there wait for a collector that never comes, and take files and sockets away from the parent. So the end of a session, of a
//! flight recorder and of the thread that listens asks first whose it is.

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub(crate) fn this() -> Process {
        Process(std::process::id())
    }

    /// Whether it is this one: otherwise this one was forked from it.
    pub(crate) fn is_this(self) -> bool {
        self == Process::this()
    }
}
