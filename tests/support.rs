//! What several of the end-to-end tests share: ranges to record, and the right to the one session of the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

warpline::namespace!("support", "what the end-to-end tests share");

/// There is one session at a time in a process; tests that start one take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is there");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number of kB") * 1024
}

/// The threads of this process with this name.
pub fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    // A thread may end while it is asked.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    // The kernel keeps 15 bytes of a name.
    names.filter(|comm| comm.trim_end() == &name[..name.len().min(15)]).count()
}
