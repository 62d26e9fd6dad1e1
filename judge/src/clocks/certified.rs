//! Bounds that cannot be wrong: every end of a synchronising collective is after each of its begins, so two clocks
//! differ by at most the one's end minus the other's begin. Shortest paths carry the bounds on through third hosts.
//! Between a collective and the middle of the segment, two clocks drift apart by no more than the user states.

use super::{Clock, Meeting};

/// With more hosts, bounds are found relative to the first host only, and not between all pairs.
const ALL_PAIRS: usize = 320;

const FAR: f64 = f64::INFINITY;

/// Adds the bounds to the clocks, which are one for each host.
pub fn bound(clocks: &mut [Clock], mid_ns: i64, hosts: usize, meetings: &[Meeting], max_drift_ppm: f64) {
    let rate = max_drift_ppm / 1e6;
    if hosts <= ALL_PAIRS {
        let most = all_pairs(mid_ns, hosts, meetings, rate);
        for clock in clocks {
            let (host, beside) = (clock.host, clock.beside);
            set(clock, -most[beside * hosts + host], most[host * hosts + beside]);
            clock.is_inconsistent |= most[host * hosts + host] < 0.0;
        }
        return;
    }
    let firsts: std::collections::BTreeSet<usize> = clocks.iter().map(|clock| clock.beside).collect();
    for first in firsts {
        if clocks.iter().filter(|clock| clock.beside == first).count() < 2 {
            continue;
        }
        let (upper, is_upper_sound) = from_one(first, mid_ns, hosts, meetings, rate, false);
        let (lower, is_lower_sound) = from_one(first, mid_ns, hosts, meetings, rate, true);
        for clock in clocks.iter_mut().filter(|clock| clock.beside == first) {
            set(clock, -lower[clock.host], upper[clock.host]);
            clock.is_inconsistent |= !is_upper_sound || !is_lower_sound;
        }
    }
    for clock in clocks.iter_mut().filter(|clock| clock.host == clock.beside) {
        set(clock, 0.0, 0.0);
    }
}

fn set(clock: &mut Clock, least: f64, most: f64) {
    if least.is_finite() && most.is_finite() {
        clock.certified = Some((least, most));
        clock.is_inconsistent |= least > most;
        if !clock.is_inconsistent {
            // Where ends mislead the estimate, its error is at least the amount by which it was wrong.
            let within = clock.offset_ns.clamp(least, most);
            clock.err_ns += (clock.offset_ns - within).abs();
            clock.offset_ns = within;
        }
    }
}

/// The time since the middle.
fn since(mid_ns: i64, at_ns: i64) -> f64 {
    at_ns.saturating_sub(mid_ns) as f64
}

/// By how much two clocks may have drifted apart between `at` and the middle.
fn drifted(at: f64, rate: f64) -> f64 {
    (at.abs() * rate).ceil()
}

/// `most[a * hosts + b]`: by how much at most the clock of `a` is ahead of that of `b`.
fn all_pairs(mid_ns: i64, hosts: usize, meetings: &[Meeting], rate: f64) -> Vec<f64> {
    let mut most = vec![FAR; hosts * hosts];
    for host in 0..hosts {
        most[host * hosts + host] = 0.0;
    }
    for meeting in meetings {
        for one in &meeting.seen {
            let end = since(mid_ns, one.end_ns.saturating_add(one.err_ns));
            for other in meeting.seen.iter().filter(|other| other.host != one.host) {
                let begin = since(mid_ns, other.begin_ns.saturating_sub(other.err_ns));
                let at = if end.abs() > begin.abs() { end } else { begin };
                let by = end - begin + drifted(at, rate);
                let now = &mut most[one.host * hosts + other.host];
                *now = now.min(by);
            }
        }
    }
    let mut through = vec![0.0; hosts];
    for middle in 0..hosts {
        through.copy_from_slice(&most[middle * hosts..(middle + 1) * hosts]);
        for row in most.chunks_mut(hosts) {
            let first = row[middle];
            if first.is_finite() {
                for (now, second) in row.iter_mut().zip(&through) {
                    *now = now.min(first + second);
                }
            }
        }
    }
    most
}

/// By how much at most each clock is ahead of that of `first`, or that of `first` of it if `is_reversed`; and whether
/// the bounds agree. A collective is a node between its hosts, as a host whose clock reads when its last rank came: two
/// edges for each member instead of one for each pair.
fn from_one(
    first: usize,
    mid_ns: i64,
    hosts: usize,
    meetings: &[Meeting],
    rate: f64,
    is_reversed: bool,
) -> (Vec<f64>, bool) {
    let mut most = vec![FAR; hosts];
    most[first] = 0.0;
    for _ in 0..=hosts {
        let mut is_done = true;
        for meeting in meetings {
            let edge = |seen: &super::Seen| {
                let end = since(mid_ns, seen.end_ns.saturating_add(seen.err_ns));
                let begin = since(mid_ns, seen.begin_ns.saturating_sub(seen.err_ns));
                (end + drifted(end, rate), -begin + drifted(begin, rate))
            };
            let through = |seen: &super::Seen| most[seen.host] + if is_reversed { edge(seen).0 } else { edge(seen).1 };
            let at = meeting.seen.iter().map(through).fold(FAR, f64::min);
            if !at.is_finite() {
                continue;
            }
            for seen in &meeting.seen {
                let by = at + if is_reversed { edge(seen).1 } else { edge(seen).0 };
                // A host compared with itself through a collective: the collective's own length, which is never
                // negative.
                if by < most[seen.host] {
                    if seen.host == first {
                        return (most, false);
                    }
                    most[seen.host] = by;
                    is_done = false;
                }
            }
        }
        if is_done {
            return (most, true);
        }
    }
    (most, false)
}
