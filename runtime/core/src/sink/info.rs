//! A session's data about the process: when it began, in which program, and with which rank in its job.
//!
//! The code that starts a collector passes it to the sinks. The environment and the clocks are read once, at the start.

use super::SessionInfo;
use crate::{clock, process};

impl SessionInfo {
    #[doc(hidden)]
    pub fn now() -> SessionInfo {
        let name = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        SessionInfo {
            begin_ns: clock::now_ns(),
            begin_unix_ns: clock::unix_ns(),
            process_id: std::process::id(),
            process_name: name.unwrap_or_else(|| "process".to_owned()),
            rank: process::launched_rank(),
            host: process::host(),
            boot_id: process::boot_id(),
            kernels: false,
            hash: None,
        }
    }

    /// Returns the process's name in traces: with a rank, `rank 3 · host7 · train`.
    #[doc(hidden)]
    pub fn label(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank} · {} · {}", self.host, self.process_name),
            None => self.process_name.clone(),
        }
    }
}
