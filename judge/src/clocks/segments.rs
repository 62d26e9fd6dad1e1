//! The segments of a run: those too short for a line of their own share one, and a host that met hardly anybody in a
//! segment keeps its earlier line.

use super::fit::LEAST_FOR_DRIFT;
use super::{Clock, Meeting, SEGMENT_NS, joined};

/// By how much a line may be wrong beyond the segment beside it.
const BRIDGED_DRIFT: f64 = 20e-6;

/// The clocks of `hosts` hosts in each of these segments, in order, by host within each; each meeting belongs to the
/// segment of its end. Two clocks never drift apart faster than stated.
pub fn all(segments: Vec<(i64, Vec<Meeting>)>, hosts: usize, max_drift_ppm: f64) -> Vec<Clock> {
    let mut all = in_parallel(&share(segments), |(parts, meetings)| joined(parts, hosts, meetings, max_drift_ppm));
    all.sort_by_key(|clock| (clock.segment, clock.host));
    bridge(&mut all, hosts);
    all
}

/// Segments that share a line, with their middles, and the meetings of all of them.
type Shared = (Vec<(i64, i64)>, Vec<Meeting>);

/// Which segments share a line. A segment whose meetings cover less than half of it, as the last one of a run, is too
/// short to tell drift from noise, and goes with the one before it, or else the one after it.
fn share(segments: Vec<(i64, Vec<Meeting>)>) -> Vec<Shared> {
    let covered = |meetings: &[Meeting]| {
        let ends = || meetings.iter().filter_map(|meeting| meeting.seen.first()).map(|seen| seen.end_ns);
        Some((ends().min()?, ends().max()?))
    };
    let mut shared: Vec<Shared> = Vec::new();
    // The last one is short, so that a neighbour takes it in.
    let mut is_open = false;
    for (number, meetings) in segments {
        let covers = covered(&meetings);
        let whole = number.saturating_mul(SEGMENT_NS).saturating_add(SEGMENT_NS / 2);
        let middle = covers.map_or(whole, |(from, to)| from + to.saturating_sub(from) / 2);
        let is_short = covers.is_some_and(|(from, to)| to.saturating_sub(from) < SEGMENT_NS / 2);
        match shared.last_mut() {
            // Two at most: over more, a clock does not follow a straight line.
            Some((parts, of_parts))
                if parts.len() == 1
                    && parts[0].0 + 1 == number
                    && !of_parts.is_empty()
                    && !meetings.is_empty()
                    && (is_short || is_open) =>
            {
                parts.push((number, middle));
                of_parts.extend(meetings);
                is_open = false;
            }
            _ => {
                is_open = is_short;
                shared.push((vec![(number, middle)], meetings));
            }
        }
    }
    shared
}

/// The results of `work` for all items, in any order, with a thread for each core.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Vec<R> + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let one = || {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            done.extend(work(item));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(items.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Where a host met hardly anybody in one segment, its line of the nearest other segment is extended, with an error
/// that grows.
fn bridge(clocks: &mut [Clock], hosts: usize) {
    let known: Vec<Clock> =
        clocks.iter().filter(|clock| clock.host != clock.beside && !is_thin(clock)).cloned().collect();
    let mut of_host: Vec<Vec<&Clock>> = vec![Vec::new(); hosts];
    for clock in &known {
        of_host[clock.host].push(clock);
    }
    let is_open = |clock: &&mut Clock| is_thin(clock) && (clock.host != clock.beside || clock.meetings == 0);
    for clock in clocks.iter_mut().filter(is_open) {
        let distance = |other: &&&Clock| (other.segment - clock.segment).abs();
        if let Some(near) = of_host[clock.host].iter().min_by_key(distance) {
            let apart = clock.mid_ns.saturating_sub(near.mid_ns) as f64;
            if clock.beside != near.beside {
                clock.beside = near.beside;
                clock.certified = None;
            }
            clock.drift = near.drift;
            clock.offset_ns = near.offset_ns + near.drift * apart;
            clock.err_ns = near.err_ns + BRIDGED_DRIFT * (apart.abs() - SEGMENT_NS as f64).max(0.0);
        }
    }
}

/// Too few meetings for a line.
fn is_thin(clock: &Clock) -> bool {
    clock.meetings < LEAST_FOR_DRIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Seen;

    /// A segment whose meetings cover this part of it.
    fn segment(number: i64, covered: f64) -> (i64, Vec<Meeting>) {
        let meeting = |at: f64| {
            let end_ns = number * SEGMENT_NS + (at * SEGMENT_NS as f64) as i64;
            Meeting { seen: vec![Seen { host: 0, begin_ns: end_ns - 10, end_ns, err_ns: 0, early_ns: 0 }] }
        };
        (number, vec![meeting(0.0), meeting(covered)])
    }

    #[test]
    fn a_short_segment_goes_with_one_beside_it() {
        let shared = |segments: &[(i64, f64)]| -> Vec<Vec<i64>> {
            let shared = share(segments.iter().map(|(number, covered)| segment(*number, *covered)).collect());
            shared.iter().map(|(parts, _)| parts.iter().map(|(number, _)| *number).collect()).collect()
        };
        assert_eq!(shared(&[(0, 0.9), (1, 0.9), (2, 0.1)]), [vec![0], vec![1, 2]]);
        // The first has none before it, and no line spans three.
        assert_eq!(shared(&[(0, 0.1), (1, 0.9), (2, 0.9)]), [vec![0, 1], vec![2]]);
        assert_eq!(shared(&[(0, 0.9), (1, 0.1), (2, 0.1)]), [vec![0, 1], vec![2]]);
        // Between those two is a segment without a collective.
        assert_eq!(shared(&[(0, 0.9), (2, 0.1)]), [vec![0], vec![2]]);
    }

    #[test]
    fn a_line_is_stated_for_the_middle_of_what_its_meetings_cover() {
        let shared = share(vec![segment(1, 0.5), segment(4, 0.9), (7, Vec::new())]);
        let middles: Vec<_> = shared.iter().map(|(parts, _)| parts[0]).collect();
        let at = |segments: f64| (segments * SEGMENT_NS as f64) as i64;
        assert_eq!(middles, [(1, at(1.25)), (4, at(4.45)), (7, at(7.5))]);
    }

    #[test]
    fn a_host_that_met_hardly_anybody_keeps_its_nearest_line_with_a_larger_error() {
        let clock = |host, segment: i64, meetings| Clock {
            host,
            segment,
            mid_ns: segment * SEGMENT_NS,
            beside: 0,
            meetings,
            offset_ns: 100.0 * segment as f64,
            drift: 1e-6,
            err_ns: 500.0,
            certified: None,
            is_inconsistent: false,
        };
        let mut clocks = [clock(1, 0, 9), clock(1, 2, 9), clock(1, 5, LEAST_FOR_DRIFT - 1)];
        bridge(&mut clocks, 2);
        // 3 segments of 60 s later, a clock that gains a microsecond each second is 180 us further ahead.
        assert!((clocks[2].offset_ns - (200.0 + 180_000.0)).abs() < 1.0, "{:?}", clocks[2]);
        // Of those, two are beyond the neighbouring segment, each with 20 ppm.
        assert!((clocks[2].err_ns - (500.0 + 2.0 * 60e9 * 20e-6)).abs() < 1.0, "{:?}", clocks[2]);
        assert_eq!(clocks[..2], [clock(1, 0, 9), clock(1, 2, 9)]);
        // A host with just enough meetings keeps its line. Bounds relative to another host are dropped.
        let mut clocks =
            [clock(1, 0, LEAST_FOR_DRIFT), Clock { beside: 1, certified: Some((0.0, 0.0)), ..clock(1, 1, 0) }];
        bridge(&mut clocks, 2);
        assert_eq!(clocks[0], clock(1, 0, LEAST_FOR_DRIFT));
        assert_eq!((clocks[1].beside, clocks[1].certified), (0, None));
        let mut clocks = [clock(1, 0, 9), Clock { certified: Some((-5.0, 5.0)), ..clock(1, 1, 2) }];
        bridge(&mut clocks, 2);
        assert_eq!(clocks[1].certified, Some((-5.0, 5.0)));
        // The host that the others are compared with keeps its clock, however few meetings it had.
        let first = Clock { host: 0, offset_ns: 0.0, drift: 0.0, err_ns: 0.0, ..clock(0, 1, 2) };
        let mut clocks = [Clock { beside: 3, ..clock(0, 0, 9) }, first.clone()];
        bridge(&mut clocks, 2);
        assert_eq!(clocks[1], first);
    }
}
