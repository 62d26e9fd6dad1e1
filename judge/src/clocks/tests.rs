//! Against clocks that are known: offsets of 500 us, drifts of 50 ppm, and 1 ms tails on a tenth of the ends.

use super::*;

const MEETINGS: usize = 60;

/// The clocks of one segment.
fn segment(number: i64, hosts: usize, meetings: &[Meeting], max_drift_ppm: f64) -> Vec<Clock> {
    joined(&[(number, number * SEGMENT_NS + SEGMENT_NS / 2)], hosts, meetings, max_drift_ppm)
}

/// Another seed, another sequence.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64) / (1u64 << 31) as f64
    }

    fn around(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }
}

/// The true clocks (ahead at time 0, drift) and what hosts see. `groups` are the hosts that meet.
fn made(seed: u64, hosts: usize, groups: &[Vec<usize>]) -> (Vec<(f64, f64)>, Vec<Meeting>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let truth: Vec<(f64, f64)> = (0..hosts).map(|_| (random.around() * 500_000.0, random.around() * 50e-6)).collect();
    let mut meetings = Vec::new();
    for step in 0..MEETINGS {
        for group in groups {
            let ready = step as f64 * 1e9 + random.unit() * 5e6;
            let wire = 2e6 * (1.0 + random.unit());
            let late = (random.unit() * group.len() as f64) as usize;
            let seen = |(place, host): (usize, &usize)| {
                let clock = |at: f64| (at + truth[*host].0 + truth[*host].1 * at).round() as i64;
                let early = if place == late { 0.0 } else { random.unit() * 3e6 };
                let tail = if random.unit() < 0.1 { random.unit() * 1e6 } else { 0.0 };
                let end = ready + wire + random.unit() * 5_000.0 + tail;
                Seen { host: *host, begin_ns: clock(ready - early), end_ns: clock(end), err_ns: 200, early_ns: 0 }
            };
            meetings.push(Meeting { seen: group.iter().enumerate().map(seen).collect() });
        }
    }
    (truth, meetings)
}

fn ahead(truth: &[(f64, f64)], clock: &Clock, at: f64) -> f64 {
    let of = |host: usize| truth[host].0 + truth[host].1 * at;
    of(clock.host) - of(clock.beside)
}

#[test]
fn estimates_are_within_20_us_and_bounds_hold_the_truth() {
    let chain: Vec<Vec<usize>> = (0..7).map(|host| vec![host, host + 1]).collect();
    let star: Vec<Vec<usize>> = vec![(0..8).collect()];
    let mut errors = Vec::new();
    for seed in 0..60 {
        let (is_chain, groups) = if seed % 2 == 0 { (false, &star) } else { (true, &chain) };
        let (truth, meetings) = made(seed, 8, groups);
        for clock in segment(0, 8, &meetings, 200.0) {
            assert_eq!(clock.beside, 0);
            assert!(!clock.is_inconsistent, "seed {seed}: {clock:?}");
            let (least, most) = clock.certified.unwrap();
            let true_ns = ahead(&truth, &clock, clock.mid_ns as f64);
            assert!(least <= true_ns && true_ns <= most, "seed {seed}: {true_ns} not in {least}..{most}");
            // A millisecond or two of wire each way, and what two clocks may drift apart until the next meeting.
            assert!(most - least < if is_chain { 60e6 } else { 9e6 }, "seed {seed}: {least}..{most}");
            for at in [0.0, 30e9, 59e9] {
                let found = clock.offset_ns + clock.drift * (at - clock.mid_ns as f64);
                errors.push((found - ahead(&truth, &clock, at)).abs());
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let p99 = errors[errors.len() * 99 / 100];
    assert!(p99 <= 20_000.0, "p99 {p99} ns");
}

#[test]
fn an_end_that_is_not_timed_moves_no_clock_and_keeps_bounds_right() {
    for seed in 0..10 {
        let (truth, mut meetings) = made(seed, 4, &[(0..4).collect()]);
        for (number, meeting) in meetings.iter_mut().enumerate().filter(|(number, _)| number % 4 > 0) {
            let seen = &mut meeting.seen[1 + number % 2];
            seen.end_ns += 40_000_000;
            seen.early_ns = 40_000_000;
        }
        for clock in segment(0, 4, &meetings, 200.0) {
            let true_ns = ahead(&truth, &clock, clock.mid_ns as f64);
            assert!((clock.offset_ns - true_ns).abs() < 20_000.0, "seed {seed}: {true_ns}, {clock:?}");
            let (least, most) = clock.certified.unwrap();
            assert!(least <= true_ns && true_ns <= most, "seed {seed}: {true_ns} not in {least}..{most}");
        }
    }
    // Where nothing else connects the hosts, they are used.
    let (_, mut meetings) = made(3, 2, &[vec![0, 1]]);
    meetings.iter_mut().for_each(|meeting| meeting.seen[1].early_ns = 1_000);
    assert_eq!(segment(0, 2, &meetings, 200.0)[1].beside, 0);
}

#[test]
fn bounds_of_many_hosts_are_those_of_few() {
    // More than `ALL_PAIRS`, by hosts that never meet anybody: the same bounds from one host as between all pairs.
    let (truth, meetings) = made(3, 6, &[(0..6).collect()]);
    let few = segment(0, 6, &meetings, 200.0);
    let many = segment(0, 400, &meetings, 200.0);
    for (few, many) in few.iter().zip(&many) {
        let (few_least, few_most) = few.certified.unwrap();
        let (least, most) = many.certified.unwrap();
        let true_ns = ahead(&truth, few, few.mid_ns as f64);
        assert!(least <= true_ns && true_ns <= most, "{true_ns} not in {least}..{most}");
        // Both drift terms count here: never narrower, and wider by the drift of one meeting at most.
        assert!(least <= few_least + 1.0 && most + 1.0 >= few_most, "{least}..{most}, {few_least}..{few_most}");
    }
    assert!(many[300].certified.is_none_or(|bounds| bounds == (0.0, 0.0)));
    assert_eq!((many[300].beside, many[300].meetings), (300, 0));
}

#[test]
fn a_stepped_clock_makes_bounds_inconsistent() {
    let (_, mut meetings) = made(5, 3, &[vec![0, 1, 2]]);
    for meeting in &mut meetings[MEETINGS / 2..] {
        meeting.seen[1].begin_ns += 500_000_000;
        meeting.seen[1].end_ns += 500_000_000;
    }
    let clocks = segment(0, 3, &meetings, 200.0);
    assert!(clocks[1].is_inconsistent);
}

#[test]
fn hosts_that_never_meet_are_apart() {
    let (_, meetings) = made(7, 4, &[vec![0, 1], vec![2, 3]]);
    let beside: Vec<usize> = segment(0, 4, &meetings, 200.0).iter().map(|clock| clock.beside).collect();
    assert_eq!(beside, [0, 0, 2, 2]);
}

#[test]
fn no_meeting_is_no_panic() {
    assert!(segment(0, 0, &[], 200.0).is_empty());
    let alone = segment(-1, 1, &[], 200.0);
    assert_eq!((alone[0].offset_ns, alone[0].beside), (0.0, 0));
}

#[test]
fn clocks_that_count_from_anywhere_are_compared_over_minutes() {
    for seed in 0..4 {
        let mut random = Random(seed + 11);
        // Days apart, with a drift of up to 50 ppm.
        let truth: Vec<(f64, f64)> =
            (0..4).map(|_| (random.around() * 4e14, random.around() * 50e-6)).map(|(a, b)| (a.round(), b)).collect();
        let clock = |host: usize, at: f64| (at + truth[host].0 + truth[host].1 * at).round() as i64;
        let mut meetings = Vec::new();
        let mut arrivals = Vec::new();
        for step in 0..150 {
            let ready = f64::from(step) * 1e9 + random.unit() * 5e6;
            let end = ready + 2e5 * (1.0 + random.unit());
            // Two and two meet, and two of those.
            let members = [[0, 1], [2, 3], [1, 2]][step as usize % 3];
            let seen = members.map(|host| {
                let early = if host == members[step as usize % 2] { 0.0 } else { random.unit() * 3e6 };
                arrivals.push((meetings.len(), host, ready - early));
                let (begin_ns, end_ns) = (clock(host, ready - early), clock(host, end + random.unit() * 5e3));
                Seen { host, begin_ns, end_ns, err_ns: 200, early_ns: 0 }
            });
            meetings.push(Meeting { seen: seen.to_vec() });
        }
        let run = Run::new(4, meetings.clone(), MAX_DRIFT_PPM);
        let at = |(which, host, true_ns): &(usize, usize, f64)| {
            let meeting: &Meeting = &meetings[*which];
            (run.at(meeting, *host, clock(*host, *true_ns)), *true_ns)
        };
        let mut errors = Vec::new();
        for two in arrivals.chunks(2) {
            let [(a, true_a), (b, true_b)] = [at(&two[0]), at(&two[1])];
            assert_eq!(a.beside, b.beside);
            let wrong = ((a.ns - b.ns) as f64 - (true_a - true_b)).abs();
            // Drift makes a difference of times longer by 50 ppm.
            assert!(wrong <= (a.sure_ns + b.sure_ns) as f64 + 200.0, "seed {seed}: {wrong} of {a:?}, {b:?}");
            errors.push(wrong);
        }
        errors.sort_by(f64::total_cmp);
        assert!(errors[errors.len() * 9 / 10] < 20_000.0, "seed {seed}: {errors:?}");
    }
}

#[test]
fn an_estimate_stays_within_its_bounds() {
    // Host 1 leaves 30 ms later each time: its ends lead astray, and what it cannot have done says so.
    let seen = |host, begin: i64, end: i64| Seen { host, begin_ns: begin, end_ns: end, err_ns: 0, early_ns: 0 };
    let meeting = |step: i64| {
        let zero = step * 1_000_000_000;
        let last = i64::from(step % 2 == 0) * 1_000_000;
        Meeting {
            seen: vec![seen(0, zero + last, zero + 1_100_000), seen(1, zero + 1_000_000 - last, zero + 31_100_000)],
        }
    };
    let meetings: Vec<Meeting> = (0..MEETINGS as i64).map(meeting).collect();
    let clock = &segment(0, 2, &meetings, 0.0)[1];
    let (least, most) = clock.certified.unwrap();
    assert!(least <= 0.0 && 0.0 <= most && least <= clock.offset_ns && clock.offset_ns <= most, "{clock:?}");
    // The ends of host 1 are 30 ms later, and the bounds allow that: only a collective without that tells.
    let mut meetings = meetings;
    meetings[30].seen[1].end_ns -= 29_900_000;
    let clock = &segment(0, 2, &meetings, 0.0)[1];
    assert!(clock.offset_ns <= 1_200_000.0 && clock.err_ns > 28e6, "{clock:?}");
}

#[test]
fn without_outliers_a_line_is_that_of_least_squares_with_its_error_at_the_farthest_point() {
    let half = SEGMENT_NS as f64 / 2.0;
    for (seed, count) in [(1, 16), (2, 16), (3, 64), (4, 256)] {
        let mut random = Random(seed);
        // Of a uniform distribution within 1 us, no point is an outlier.
        let points: Vec<(f64, f64)> = (0..count)
            .map(|at| half * (2.0 * f64::from(at) / f64::from(count - 1) - 1.0))
            .map(|x| (x, 5_000.0 + 2e-8 * x + 1_000.0 * random.around()))
            .collect();
        let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let n = points.len() as f64;
        let slope = sum(|(x, y)| x * y) / sum(|(x, _)| x * x);
        let (found, mean) = (fit::huber(&points), sum(|(_, y)| *y) / n);
        assert!((found.slope - slope).abs() * half < 30.0, "seed {seed}: {found:?}, not {slope}");
        assert!((found.at_mid - mean).abs() < 30.0, "seed {seed}: {found:?}, not {mean}");
        // The deviation is estimated by the median distance: half of a microsecond, times 1.4826. At 2.576 of them lies 1 %.
        let err = 2.576 * 1.4826 * 500.0 * (1.0 / n + half * half / sum(|(x, _)| x * x)).sqrt();
        assert!((0.7..1.5).contains(&(found.err / err)), "seed {seed}: {found:?}, not {err}");
    }
}
