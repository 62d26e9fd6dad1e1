//! Groups with a slow link, as the judge finds them, with their names.

use std::sync::Arc;

use serde::Serialize;
use warpline_judge::links::{SlowGroup, slow_groups};

use super::late::Calls;

/// A group whose collectives take longer than those of its siblings, once all ranks have come.
#[derive(Debug, Clone, Serialize)]
pub struct SlowLink {
    /// The group.
    pub comm: Arc<str>,
    /// The times of its collectives.
    #[serde(flatten)]
    pub slow: SlowGroup,
}

/// The groups that are slow, the most costly first. `run_ns` is the time of one rank in the run.
pub fn links(calls: &Calls, run_ns: i64) -> Vec<SlowLink> {
    let named = |slow: SlowGroup| SlowLink { comm: calls.comm_of(slow.group), slow };
    slow_groups(&calls.met, run_ns).into_iter().map(named).collect()
}
