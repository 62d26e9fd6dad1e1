//! Hosts that are known by their collectives alone, as a reader of traces knows them: their clocks count from anywhere,
//! and their wall clocks may be wrong by any time. A first meeting says roughly how far two clocks are apart, and the
//! segments count from there.

use std::collections::BTreeMap;

use super::{Clock, Meeting, SEGMENT_NS, segments};

/// The clocks of a run.
#[derive(Debug)]
pub struct Run {
    hosts: usize,
    /// The offset that takes a time of each host's clock roughly to that of the first host that it met.
    base_ns: Vec<i64>,
    /// By segment, each with all hosts.
    clocks: BTreeMap<i64, Vec<Clock>>,
    max_drift_ppm: f64,
}

/// A time of a host's clock on that of the host with the number `beside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The time, in ns.
    pub ns: i64,
    /// How wrong it is, 99 of 100 times, in ns.
    pub err_ns: i64,
    /// How wrong it is at most, in ns: [`i64::MAX`] if nothing proves it.
    pub sure_ns: i64,
    /// The host. Times on the clocks of different hosts cannot be compared.
    pub beside: usize,
}

impl Run {
    /// Compares the clocks of `hosts` hosts in these meetings. Two clocks never drift apart faster than stated.
    pub fn new(hosts: usize, mut meetings: Vec<Meeting>, max_drift_ppm: f64) -> Run {
        meetings.retain(|meeting| meeting.seen.len() > 1);
        let base_ns = bases(hosts, &meetings);
        let mut of_segment: BTreeMap<i64, Vec<Meeting>> = BTreeMap::new();
        for mut meeting in meetings {
            let segment = segment(&base_ns, &meeting);
            for seen in &mut meeting.seen {
                seen.begin_ns = seen.begin_ns.saturating_add(base_ns[seen.host]);
                seen.end_ns = seen.end_ns.saturating_add(base_ns[seen.host]);
            }
            of_segment.entry(segment).or_default().push(meeting);
        }
        let mut clocks: BTreeMap<i64, Vec<Clock>> = BTreeMap::new();
        for clock in segments::all(of_segment.into_iter().collect(), hosts, max_drift_ppm) {
            clocks.entry(clock.segment).or_default().push(clock);
        }
        Run { hosts, base_ns, clocks, max_drift_ppm }
    }

    /// Places a time of the clock of `host`, which met others in this meeting.
    pub fn at(&self, meeting: &Meeting, host: usize, own_ns: i64) -> At {
        let alone = At { ns: own_ns, err_ns: 0, sure_ns: 0, beside: host };
        if meeting.seen.len() < 2 || host >= self.hosts {
            return alone;
        }
        let segment = segment(&self.base_ns, meeting);
        let Some(clock) = self.clocks.get(&segment).and_then(|clocks| clocks.get(host)) else { return alone };
        let ns = own_ns.saturating_add(self.base_ns[host]);
        let since = ns.saturating_sub(clock.mid_ns) as f64;
        let ahead = clock.offset_ns + clock.drift * since;
        let sure_ns = match clock.certified {
            _ if clock.host == clock.beside => 0,
            Some((least, most)) if !clock.is_inconsistent => {
                let drifted = since.abs() * self.max_drift_ppm / 1e6;
                (most + drifted - ahead).max(ahead - least + drifted).ceil() as i64
            }
            _ => i64::MAX,
        };
        let err_ns = clock.err_ns.ceil() as i64;
        At { ns: ns.saturating_sub(ahead.round() as i64), err_ns, sure_ns, beside: clock.beside }
    }
}

fn segment(base_ns: &[i64], meeting: &Meeting) -> i64 {
    let first = meeting.seen.first().map_or(0, |seen| seen.end_ns.saturating_add(base_ns[seen.host]));
    first.div_euclid(SEGMENT_NS)
}

/// The offset that takes a time of each host's clock to that of another one, so that the ends of a first meeting are
/// equal.
fn bases(hosts: usize, meetings: &[Meeting]) -> Vec<i64> {
    // Each host is relative to another one, until one is relative to itself.
    let mut beside: Vec<(usize, i64)> = (0..hosts).map(|host| (host, 0)).collect();
    fn root(beside: &mut [(usize, i64)], host: usize) -> (usize, i64) {
        let (mut at, mut base_ns) = (host, 0_i64);
        while beside[at].0 != at {
            let next = beside[at].0;
            // Shorter ways for those that ask next.
            beside[at] = (beside[next].0, beside[at].1.saturating_add(beside[next].1));
            base_ns = base_ns.saturating_add(beside[at].1);
            at = beside[at].0;
        }
        (at, base_ns)
    }
    for meeting in meetings {
        for pair in meeting.seen.windows(2) {
            let (first, first_ns) = root(&mut beside, pair[0].host);
            let (second, second_ns) = root(&mut beside, pair[1].host);
            if first != second {
                let end_ns = pair[0].end_ns.saturating_add(first_ns);
                beside[second] = (first, end_ns.saturating_sub(pair[1].end_ns.saturating_add(second_ns)));
            }
        }
    }
    (0..hosts).map(|host| root(&mut beside, host).1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Seen;

    #[test]
    fn a_time_is_wrong_by_its_distance_to_the_farther_bound_and_by_the_drift_since_the_middle() {
        let clock = |host, certified| Clock {
            host,
            segment: 0,
            mid_ns: 1_000,
            beside: 0,
            meetings: 9,
            offset_ns: 2_000.0,
            drift: 0.0,
            err_ns: 50.0,
            certified,
            is_inconsistent: false,
        };
        let run = |certified| Run {
            hosts: 2,
            base_ns: vec![0, 700],
            clocks: BTreeMap::from([(0, vec![clock(0, None), clock(1, certified)])]),
            max_drift_ppm: 500.0,
        };
        let seen = |host| Seen { host, begin_ns: 0, end_ns: 10, err_ns: 0, early_ns: 0 };
        let meeting = Meeting { seen: vec![seen(0), seen(1)] };
        let at = |certified, own_ns| run(certified).at(&meeting, 1, own_ns);
        let (nearer, farther) = (Some((1_500.0, 9_000.0)), Some((-6_000.0, 2_500.0)));
        assert_eq!(at(nearer, 300), At { ns: -1_000, err_ns: 50, sure_ns: 7_000, beside: 0 });
        assert_eq!(at(farther, 300).sure_ns, 8_000);
        // A second later, 500 us.
        assert_eq!(at(nearer, 1_000_000_300).sure_ns, 507_000);
        assert_eq!(at(farther, -999_999_700).sure_ns, 508_000);
        assert_eq!((at(None, 300).sure_ns, run(nearer).at(&meeting, 0, 300).sure_ns), (i64::MAX, 0));
        // Bounds that contradict each other prove nothing.
        let mut contradicting = run(nearer);
        contradicting.clocks.get_mut(&0).expect("a segment")[1].is_inconsistent = true;
        assert_eq!(contradicting.at(&meeting, 1, 300), At { sure_ns: i64::MAX, ..at(nearer, 300) });
        // A host that met nobody, or that is not part of the run, keeps its own time.
        let alone = Meeting { seen: vec![seen(1)] };
        for (meeting, host) in [(&alone, 1), (&meeting, 2)] {
            assert_eq!(run(nearer).at(meeting, host, 300), At { ns: 300, err_ns: 0, sure_ns: 0, beside: host });
        }
    }

    #[test]
    fn a_time_is_placed_by_the_clock_of_its_own_segment() {
        // For the first minute the second host is as fast as the first, and then it gains 50 us each second.
        let ahead = |ns: i64| 1_000 + (ns - SEGMENT_NS).max(0) / 20_000;
        let seen = |host, ns: i64| {
            let ns = ns + if host == 1 { ahead(ns) } else { 0 };
            Seen { host, begin_ns: ns - 1_000, end_ns: ns, err_ns: 0, early_ns: 0 }
        };
        let meetings: Vec<Meeting> = (0..240)
            .map(|half_second| half_second * 500_000_000)
            .map(|ns| Meeting { seen: vec![seen(0, ns), seen(1, ns)] })
            .chain([Meeting { seen: vec![seen(1, 0)] }])
            .collect();
        let run = Run::new(2, meetings.clone(), 500.0);
        for meeting in &meetings[..240] {
            let [first, second] = [0, 1].map(|host| run.at(meeting, host, meeting.seen[host].end_ns));
            assert_eq!((first.beside, second.beside), (0, 0));
            assert!((first.ns - second.ns).abs() < 1_000, "{first:?}, {second:?}");
            assert!((first.ns - second.ns).abs() <= second.err_ns.min(second.sure_ns), "{first:?}, {second:?}");
        }
    }
}
