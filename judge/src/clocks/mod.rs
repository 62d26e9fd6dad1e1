//! Compares the clocks of hosts. Ranks of one boot share a clock, so there is nothing to find. Between hosts, the ends
//! of synchronising collectives give an estimate for each minute (`fit`). No collective can end before its last rank
//! has come, which gives bounds (`certified`). An estimate never lies outside of its bounds. `segments` puts the
//! minutes of a run together, and `run` is for readers that know hosts by their collectives alone. Pure functions over
//! [`Meeting`]s.

mod certified;
mod fit;
mod run;
mod segments;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use run::{At, Run};
pub use segments::all;

/// The maximum rate at which two clocks drift apart, in parts per million, unless the user states another one: the rate
/// by which NTP may slew a clock.
pub const MAX_DRIFT_PPM: f64 = 500.0;

/// The length of a segment: within it, a clock is taken as a straight line.
pub const SEGMENT_NS: i64 = 60_000_000_000;

/// The times of a collective on the clock of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The host's number.
    pub host: usize,
    /// When the last of its ranks began.
    pub begin_ns: i64,
    /// When the first of its ranks ended.
    pub end_ns: i64,
    /// How wrong the two may be on that clock.
    pub err_ns: i64,
    /// By how much the end may be earlier, because it is not timed.
    pub early_ns: i64,
}

/// A collective of several hosts.
#[derive(Debug, Clone, Default)]
pub struct Meeting {
    /// At most one for each host.
    pub seen: Vec<Seen>,
}

/// The clock of a host in a segment, relative to that of the host with the number `beside`.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Clock {
    /// The host's number.
    pub host: usize,
    /// The segment.
    pub segment: i64,
    /// The middle of the segment, or of its part with collectives, on the host's own clock since the run's begin.
    pub mid_ns: i64,
    /// The host that it is compared with: the first one of those that met.
    pub beside: usize,
    /// How many collectives with others the estimate rests on: of a short segment, those of its neighbour as well.
    pub meetings: usize,
    /// How far it is ahead at the middle.
    pub offset_ns: f64,
    /// By how much it is faster.
    pub drift: f64,
    /// The estimate's error anywhere in the segment, 99 of 100 times.
    pub err_ns: f64,
    /// The bounds of the offset at the middle, which cannot be wrong as long as two clocks drift apart by no more than
    /// stated.
    pub certified: Option<(f64, f64)>,
    /// The bounds contradict each other: a clock was stepped, drifts by more than stated, or a collective did not
    /// synchronise.
    pub is_inconsistent: bool,
}

/// The clocks in several segments that share a line, because one alone has too little: each with the middle that it is
/// stated for, and all with the meetings of all of them.
fn joined(parts: &[(i64, i64)], hosts: usize, meetings: &[Meeting], max_drift_ppm: f64) -> Vec<Clock> {
    let Some((first, mid_ns)) = parts.first().copied() else { return Vec::new() };
    let line = fit::fit(first, mid_ns, hosts, meetings);
    let one = |(number, at_ns): &(i64, i64)| {
        let mut clocks = line.clone();
        for clock in &mut clocks {
            clock.segment = *number;
            clock.offset_ns += clock.drift * at_ns.saturating_sub(mid_ns) as f64;
            clock.mid_ns = *at_ns;
        }
        certified::bound(&mut clocks, *at_ns, hosts, meetings, max_drift_ppm);
        clocks
    };
    parts.iter().flat_map(one).collect()
}

/// The median of numbers; 0 for none. Of two middle ones, the mean.
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let (below, at, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let at = *at;
    match below.iter().copied().max_by(f64::total_cmp) {
        Some(before) if values.len().is_multiple_of(2) => f64::midpoint(before, at),
        _ => at,
    }
}
