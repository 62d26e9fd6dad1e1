//! The names under which NCCL's Inspector plugin exports bandwidths and lengths (its format v5.1), so that its dashboards show these figures too.
//!
//! As there, a value is the mean over a window of the last seconds. What a mark does not know is `unknown`: the nodes of a group, and the
//! algorithm and the protocol that NCCL chose.

use super::bandwidths::{BandwidthKey, Means};
use super::job::Job;
use warpline_core::collective::CollectiveKind;

/// A metric of the Inspector.
#[derive(Debug)]
pub(super) struct Alias {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// In UCUM.
    pub(super) unit: &'static str,
    is_between_two: bool,
    mean: fn(Means) -> f64,
}

/// The metrics, of collectives and of transfers between two ranks.
pub(super) static ALIASES: [Alias; 4] = [
    Alias::bandwidth("nccl_bus_bandwidth_gbs", false),
    Alias::length("nccl_collective_exec_time_microseconds", false),
    Alias::bandwidth("nccl_p2p_bus_bandwidth_gbs", true),
    Alias::length("nccl_p2p_exec_time_microseconds", true),
];

impl Alias {
    const fn bandwidth(name: &'static str, is_between_two: bool) -> Alias {
        let about = "Geometric mean of the bus bandwidth in GB/s over the last 15 to 30 seconds.";
        Alias { name, about, unit: "GBy/s", is_between_two, mean: |means| means.bus_gbs }
    }

    const fn length(name: &'static str, is_between_two: bool) -> Alias {
        let about = "Mean execution time in microseconds over the last 15 to 30 seconds.";
        Alias { name, about, unit: "us", is_between_two, mean: |means| means.length_us }
    }

    /// Returns the value for a group, kind and size; none if the metric is of the other kinds.
    pub(super) fn value(&self, key: &BandwidthKey, means: Means) -> Option<f64> {
        (self.is_between_two == key.kind.is_between_two()).then(|| (self.mean)(means))
    }
}

/// Returns the labels of the Inspector, and the rank, which it does not have.
pub(super) fn labels(key: &BandwidthKey, job: &Job) -> Vec<(&'static str, String)> {
    let is_between_two = key.kind.is_between_two();
    let name = match key.kind {
        CollectiveKind::AllToAll => "All2All",
        kind => kind.nccl_name(),
    };
    let unknown = || "unknown".to_owned();
    let mut labels = vec![
        ("version", concat!("warpline ", env!("CARGO_PKG_VERSION")).to_owned()),
        ("slurm_job_id", job.slurm_job.clone().unwrap_or_else(unknown)),
        ("node", job.host.clone()),
        ("gpu", format!("GPU{}", key.device)),
        ("comm_name", key.group.clone()),
        ("n_nodes", unknown()),
        ("nranks", key.ranks.to_string()),
        (if is_between_two { "p2p_operation" } else { "collective" }, name.to_owned()),
        ("message_size", key.message_size()),
        ("rank", job.rank.to_string()),
    ];
    if !is_between_two {
        labels.push(("algo_proto", unknown()));
    }
    labels
}
