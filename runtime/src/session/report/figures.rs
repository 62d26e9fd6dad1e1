//! What was measured in a session: times of ranges, collectives, streams and semaphores, and how good the clocks are.
//!
//! The summary, the traffic and the timelines of the collector fill them in; they are plain data, in ns and bytes.

use crate::collective::CollectiveKind;

/// One range's figures over a session. GPU times for zones on streams, host times for host zones; all in ns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RangeStats {
    /// The range's full name.
    pub name: &'static str,
    /// Zones that were recorded.
    pub count: u64,
    /// Zones that came by: more than `count` where only a sample was recorded.
    pub seen: u64,
    /// Zones that ended with an error or a panic.
    pub failed: u64,
    /// Sum, in ns.
    pub total_ns: i64,
    /// Mean, in ns.
    pub mean_ns: i64,
    /// Shortest, in ns; exact.
    pub min_ns: i64,
    /// Median, in ns; within 1 %.
    pub p50_ns: i64,
    /// 99th percentile, in ns; within 1 %.
    pub p99_ns: i64,
    /// Longest, in ns; exact.
    pub max_ns: i64,
    /// Mean time that the launching thread spent between begin and end, in ns.
    pub mean_launch_ns: i64,
}

/// The figures of one kind of collective in one process group over a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CollectiveStats {
    /// The group's name and ranks, as in `tp0 [0,1]`; empty where the marks name none.
    pub group: String,
    /// The kind.
    pub kind: CollectiveKind,
    /// Collectives that were recorded.
    pub count: u64,
    /// How many of them have a known size.
    pub sized: u64,
    /// The sum of the known sizes in bytes ([`Message::bytes`](crate::Message::bytes)); 0 where `sized` is 0.
    pub bytes: u64,
    /// The sum of their times on their streams, in ns.
    pub total_ns: i64,
    /// The median of the bus bandwidths, in bytes a second; within 1 %. None where size or group are not known.
    pub bus_p50: Option<f64>,
    /// Their 99th percentile, in bytes a second; within 1 %.
    pub bus_p99: Option<f64>,
    /// The share of the time during which a compute zone surely ran on another stream of the same device, 0 to 1.
    pub hidden: f64,
}

/// How good one device's times are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClockFigures {
    /// The device's name.
    pub device: String,
    /// By how much a position may be off against the host's clock, in ns.
    pub uncertainty_ns: i64,
    /// What a begin and an end event add to the length of the work between them, in ns, on an idle stream.
    pub bracket_ns: i64,
    /// The same on a stream with work queued before them.
    pub busy_bracket_ns: i64,
    /// The device was busy whenever these were measured: events add at most so much, and lengths are not corrected.
    pub bracket_is_bound: bool,
}

/// What one stream did in the time from the first zone or wait on any stream to the last. Beyond 1,024 streams, the others
/// share the name `…`. `busy_ns + waiting_ns + idle_ns` is
/// that time, but for streams with more than some ten thousand gaps, of which the earlier ones count as they were first seen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamStats {
    /// The stream's name.
    pub name: String,
    /// Its device's name.
    pub device: String,
    /// In at least one zone, and in no wait, in ns.
    pub busy_ns: i64,
    /// In a wait, in ns, also where that is in a zone.
    pub waiting_ns: i64,
    /// In neither, in ns.
    pub idle_ns: i64,
    /// For whom it waited, the longest first.
    pub waited_for: Vec<WaitedFor>,
}

/// Waits of one stream for another, or for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedFor {
    /// The name of the stream or the thread that signalled; empty where the session does not know it.
    pub by: String,
    /// How many waits.
    pub count: u64,
    /// Their sum, in ns.
    pub ns: i64,
}

/// A semaphore that somebody waited for: the session's list of names, which no catalog can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreStats {
    /// Its name. Semaphores of one name share an entry; beyond 256 names, the others share the name `…`.
    pub name: String,
    /// Waits that were recorded, of streams and threads.
    pub waits: u64,
    /// Their sum, in ns.
    pub waited_ns: i64,
}
