//! A session's data about the process: when it began, in which program, and with which rank in its job.
//!
//! The code that starts a collector passes it to the sinks. The environment and the clocks are read once, at the start.

use super::SessionInfo;
use warpline_core::catalog::{NamespaceSpec, RangeSpec, catalog};
use warpline_core::sorting;
use warpline_core::{clock, process};

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
            ranges: None,
        }
    }

    /// Returns the ranges of the catalog by name, and its namespaces by name.
    #[doc(hidden)]
    pub fn catalog(&self) -> (Vec<&'static RangeSpec>, Vec<&'static NamespaceSpec>) {
        let (mut ranges, mut namespaces): (Vec<_>, Vec<_>) = match self.ranges {
            Some(ranges) => (ranges.to_vec(), Vec::new()),
            None => (catalog().iter().collect(), catalog().namespaces().collect()),
        };
        sorting::sort_by_key(&mut ranges, |range| (range.name(), range.version(), range.module(), range.line()));
        sorting::sort_by_key(&mut namespaces, |space| (space.name, space.version, space.module, space.line));
        (ranges, namespaces)
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
