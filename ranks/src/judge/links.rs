//! Groups with a slow link, as the judge finds them, with their names.

use std::sync::Arc;

use serde::Serialize;
use warpline_judge::links::slow_groups;

use super::late::Calls;

/// A group whose collectives take longer than those of its siblings, once all ranks have come.
#[derive(Debug, Clone, Serialize)]
pub struct SlowLink {
    /// The group.
    pub comm: Arc<str>,
    /// The operation.
    pub kind: &'static str,
    /// The size.
    pub bytes: u64,
    /// How many ranks the group has.
    pub ranks: u32,
    /// How many collectives.
    pub calls: usize,
    /// How long most of them take once all have come, in ns.
    pub median_ns: i64,
    /// How long those of the other groups take.
    pub usual_ns: i64,
    /// What the difference takes of the run.
    pub share: f64,
}

/// The groups that are slow, the most costly first. `run_ns` is the time of one rank in the run.
pub fn links(calls: &Calls, run_ns: i64) -> Vec<SlowLink> {
    let found = slow_groups(&calls.met, run_ns).into_iter();
    let named = found.map(|slow| SlowLink {
        comm: calls.comm_of(slow.group),
        kind: slow.kind,
        bytes: slow.bytes,
        ranks: slow.ranks,
        calls: slow.calls,
        median_ns: slow.median_ns,
        usual_ns: slow.usual_ns,
        share: slow.share,
    });
    named.collect()
}
