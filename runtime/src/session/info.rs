//! What a session knows of the process that it records: when it began, in which program, and which rank of its job.
//!
//! Whatever starts a collector hands it to the sinks. It reads the environment and the clocks once, at the start.

use crate::clock;
use crate::sink::SessionInfo;

/// The variables in which launchers say a process's number in its job: torchrun, Open MPI, MPICH and others, Slurm.
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

fn rank() -> u32 {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok()).unwrap_or(0)
}

impl SessionInfo {
    pub(crate) fn now(catalog_hash: u64) -> SessionInfo {
        let name = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        SessionInfo {
            begin_ns: clock::now_ns(),
            begin_unix_ns: clock::unix_ns(),
            process_id: std::process::id(),
            process_name: name.unwrap_or_else(|| "process".to_owned()),
            rank: rank(),
            catalog_hash,
            kernels: false,
        }
    }
}
