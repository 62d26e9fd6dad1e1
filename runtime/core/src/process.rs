//! The process that something belongs to, its rank in a job of many processes, and its host.

use crate::environment;
use crate::fork::Home;

/// A process that holds resources of the operating system: files, sockets, threads.
///
/// Unlike a [`Home`], it also detects a child that was created without the C library's `fork`. It queries the system each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    home: Home,
    id: u32,
}

impl Process {
    /// Returns the current process.
    pub fn this() -> Process {
        Process { home: Home::here(), id: std::process::id() }
    }

    /// Returns whether it is the current process. If not, the current process was forked from it.
    pub fn is_this(self) -> bool {
        self.home.is_here() && self.id == std::process::id()
    }
}

/// Returns this process's number in its job; none without a launcher.
pub fn launched_rank() -> Option<u32> {
    environment::launched_rank(|name| environment::var(name).ok())
}

/// Returns the variable of a launcher that is set to something else than a number, with its value; see [`launched_rank`].
pub fn rejected_rank() -> Option<(&'static str, String)> {
    environment::rejected_rank(|name| environment::var(name).ok())
}

/// Returns the name of the machine, as the system reports it.
#[cfg(all(unix, feature = "runtime"))]
#[allow(unsafe_code)]
pub fn host() -> String {
    let mut name = [0; 256];
    // SAFETY: the bytes are valid for the call, which is given one less than there are, so that the last one stays NUL.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    match std::ffi::CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy()) {
        Ok(name) if failed == 0 && !name.is_empty() => name.into_owned(),
        _ => "host".to_owned(),
    }
}

/// Returns the name of the machine, from the environment.
#[cfg(not(all(unix, feature = "runtime")))]
pub fn host() -> String {
    environment::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}

/// Returns Linux's id of the machine's boot: equal for two processes whose `CLOCK_BOOTTIME` is one clock.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
