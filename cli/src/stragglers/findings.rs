//! The findings: the values that `judge` and `verdict` fill, and `show` formats.

use serde::Serialize;

/// The findings from all traces. `docs/collectives.md` describes their JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Findings {
    /// The version of the JSON format.
    pub version: u32,
    /// The result in one sentence: the first line of the text.
    pub summary: String,
    /// The rank that stands out, if one does.
    pub verdict: Option<Verdict>,
    /// The collectives with the longest delays, longest first.
    pub worst: Vec<Late>,
    /// How often each rank was late, in descending order of the time that others waited for it.
    pub ranks: Vec<Rank>,
    /// The process groups, with counts of the collectives that could not be judged.
    pub groups: Vec<Group>,
    /// The first collectives whose ranks call different operations with one sequence number.
    pub mismatches: Vec<Mismatch>,
    /// The calls that are left out because the job was started again.
    pub earlier: Earlier,
}

/// The calls of ranks before they were started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Earlier {
    /// The processes of ranks that had ended when another process of their rank began.
    pub processes: u64,
    /// Their collectives, each rank's counted.
    pub calls: u64,
}

/// A collective for which one rank came last.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Late {
    /// The process group.
    pub group: String,
    /// The operation.
    pub kind: &'static str,
    /// The sequence number in the group.
    pub seq: u64,
    /// Which replay of a CUDA graph it ran in, counted from 1 for this number; none if it was not captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
    /// The global rank of the rank that came last.
    pub late_rank: u32,
    /// How many other ranks came equally late within the uncertainty of the clocks.
    pub as_late: u64,
    /// The lateness in ns, relative to the rank that certainly waited longest. It is greater than `uncertain_ns`.
    pub late_by_ns: i64,
    /// The uncertainty of `late_by_ns`, in ns, from the clocks of the two ranks.
    pub uncertain_ns: i64,
    /// The time between the first and the last end, in ns.
    pub ends_differ_by_ns: i64,
    /// Whether `ends_differ_by_ns` is only the most that it can be, because ends of zones were not timed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends_differ_is_bound: bool,
    /// Whether all ranks share a clock, so that no offset is estimated.
    pub one_clock: bool,
    /// The late rank's range.
    pub range: String,
    /// The size of the message in bytes, as NCCL's tests define it; none if it is not known.
    pub bytes: Option<u64>,
}

/// How often one rank of a group came last.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rank {
    /// The process group.
    pub group: String,
    /// The global rank.
    pub rank: u32,
    /// The number of collectives in which it came last.
    pub late: u64,
    /// The number of collectives that were judged.
    pub judged: u64,
    /// The sum of `late_by_ns` over the collectives in which it came last, in ns.
    pub waited_ns: i64,
    /// The number of further collectives in which it came last, if all ranks leave a collective at about the same time.
    /// The clocks of the hosts are too uncertain to prove it.
    pub likely: u64,
    /// The sum of the times by which it came last in these, in ns.
    pub likely_ns: i64,
}

/// A process group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// The name of the group in traces, with the communicator id if another group has the same name and ranks.
    pub group: String,
    /// The communicator id, if the program gave one.
    pub comm_id: Option<u64>,
    /// The global ranks that have a trace.
    pub ranks: Vec<u32>,
    /// The global ranks that have no trace.
    pub missing: Vec<u32>,
    /// The number of collectives that were judged.
    pub judged: u64,
    /// The numbers of collectives that were not judged, by reason.
    pub left_out: LeftOut,
    /// The greatest time between the first and the last end of a collective in `left_out.uncertain`, in ns.
    pub uncertain_ends_ns: i64,
}

/// The reasons why collectives are not judged. Except for `batch_entries`, each sequence number of a group counts once
/// for all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Further entries of a batch. They have the times of its first entry, which was judged.
    pub batch_entries: u64,
    /// The ranks share a clock and arrived at the same time within its uncertainty.
    pub too_close: u64,
    /// The ranks share no clock, and the uncertainty of the offsets does not allow a decision.
    pub uncertain: u64,
    /// `broadcast`, `reduce`, `gather`, `scatter`: not every rank waits for the others.
    pub rooted: u64,
    /// `send`, `recv` and other operations between two peers.
    pub point_to_point: u64,
    /// Some rank lacks the sequence number: it was dropped, or the rank did not reach it. Or the ranks have replayed it
    /// differently often.
    pub incomplete: u64,
    /// One rank has the sequence number twice.
    pub repeated: u64,
    /// The collective ended with an error or a panic.
    pub failed: u64,
    /// The ranks do not call the same operation.
    pub mismatched: u64,
}

/// Ranks that call different operations with one sequence number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Mismatch {
    /// The process group.
    pub group: String,
    /// The sequence number in the group.
    pub seq: u64,
    /// The operation of each rank.
    pub calls: Vec<RankKind>,
}

/// The operation that one rank calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankKind {
    /// The global rank.
    pub rank: u32,
    /// The operation.
    pub kind: &'static str,
}

/// The rank that stands out. `docs/collectives.md` describes its JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The global rank.
    pub rank: u32,
    /// Its host; empty if the trace does not name it.
    pub host: String,
    /// How many ranks its host has, if all of them came late; none if not all did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_ranks: Option<u32>,
    /// The process group in which it came late.
    pub group: String,
    /// The number of collectives to which it came so late.
    pub times: u64,
    /// The number of judged collectives of the group.
    pub judged: u64,
    /// By how much it came late to these, in the median, in ns.
    pub median_ns: i64,
    /// The sum of these, in ns.
    pub total_ns: i64,
    /// The share of the run's time by which its own time exceeds that of the others.
    pub share: f64,
    /// The number of the first of them.
    pub since_seq: u64,
    /// When that was, in ns after the first session began.
    pub since_ns: i64,
    /// The number of the worst of them.
    pub seq: u64,
    /// Which replay of a CUDA graph the worst ran in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
    /// The operation of the worst.
    pub kind: &'static str,
    /// The range of the worst.
    pub range: String,
    /// The size of the worst's message in bytes; none if it is not known.
    pub bytes: Option<u64>,
    /// By how much it came late to the worst, in ns.
    pub late_by_ns: i64,
    /// The uncertainty of `late_by_ns`, in ns.
    pub uncertain_ns: i64,
}
