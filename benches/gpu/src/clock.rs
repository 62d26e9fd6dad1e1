//! The clocks that the benches read: the host's, in which zones are placed, and the CPU time of one thread.

use std::time::Duration;

use gpu::Result;

/// Waits until a session that has just met its streams has measured what events cost on their device, and has chosen how
/// ends are found.
pub fn let_session_settle() {
    std::thread::sleep(Duration::from_millis(60));
}

/// Now, in ns of `CLOCK_BOOTTIME`.
pub fn boottime_ns() -> i64 {
    read(libc::CLOCK_BOOTTIME).unwrap_or(0)
}

/// The CPU time of this process' thread of that name, in ns. None if there is no such thread.
pub fn cpu_ns_of_thread(wanted: &str) -> Result<Option<i64>> {
    for entry in std::fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let id = path.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse::<i32>().ok());
        if let Some(id) = id
            && name.trim_end() == wanted
        {
            // The kernel's number for "CPU time of that thread": see CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED.
            return Ok(read((!id << 3) | 6).or_else(|| from_schedstat(&path)));
        }
    }
    Ok(None)
}

/// The CPU time of the thread that asks, in ns.
pub fn cpu_ns_of_this_thread() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

fn from_schedstat(task: &std::path::Path) -> Option<i64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn read(clock: libc::clockid_t) -> Option<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
    (!failed).then(|| time.tv_sec * 1_000_000_000 + time.tv_nsec)
}
