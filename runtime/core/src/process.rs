//! Which process something belongs to, and where that runs: its rank in a job of many, and its host.

use crate::environment;
use crate::fork::Home;

/// A process that holds something of the operating system's: files, sockets, threads.
///
/// Unlike a [`Home`] it also notices a child that was made without the C library's `fork`; it asks the system each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    home: Home,
    id: u32,
}

impl Process {
    /// This one.
    pub fn this() -> Process {
        Process { home: Home::here(), id: std::process::id() }
    }

    /// Whether it is this one: otherwise this one was forked from it.
    pub fn is_this(self) -> bool {
        self.home.is_here() && self.id == std::process::id()
    }
}

/// This process's number in its job; none without a launcher.
pub fn launched_rank() -> Option<u32> {
    environment::launched_rank(|name| environment::var(name).ok())
}

/// The name of the machine, as it knows itself.
#[cfg(all(unix, feature = "runtime"))]
pub fn host() -> String {
    let name = rustix::system::uname();
    match name.nodename().to_string_lossy() {
        name if name.is_empty() => "host".to_owned(),
        name => name.into_owned(),
    }
}

/// The name of the machine, as its environment says it.
#[cfg(not(all(unix, feature = "runtime")))]
pub fn host() -> String {
    environment::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}

/// What Linux calls the boot of this machine: equal for two processes whose `CLOCK_BOOTTIME` is one clock.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
