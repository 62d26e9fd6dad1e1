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
    // A meeting of which one end is timed compares nothing.
    let (_, mut meetings) = made(3, 2, &[vec![0, 1]]);
    meetings[..10].iter_mut().for_each(|meeting| meeting.seen[1].early_ns = 1_000);
    assert_eq!(segment(0, 2, &meetings, 200.0)[1].meetings, MEETINGS - 10);
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
        let drifted = 200e-6 * SEGMENT_NS as f64 / 2.0;
        assert!(most - least <= few_most - few_least + 2.0 * drifted, "{least}..{most}, {few_least}..{few_most}");
        assert!(!few.is_inconsistent && !many.is_inconsistent, "{many:?}");
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
    // Few hosts, and more than `ALL_PAIRS`.
    for hosts in [3, 400] {
        let clocks = segment(0, hosts, &meetings, 200.0);
        assert!(clocks[1].is_inconsistent, "{hosts}: {:?}", clocks[1]);
        // Bounds that contradict each other do not change the estimate.
        let estimate = &fit::fit(0, SEGMENT_NS / 2, hosts, &meetings)[1];
        assert_eq!((clocks[1].offset_ns, clocks[1].err_ns), (estimate.offset_ns, estimate.err_ns), "{hosts}");
    }
}

/// The least and the greatest offset of the second host at the middle that a meeting of two hosts allows: neither ends before the other
/// begins.
fn allowed(meeting: &Meeting, mid_ns: i64, max_drift_ppm: f64) -> (f64, f64) {
    let [one, other] = [meeting.seen[0], meeting.seen[1]];
    let ahead = |later: Seen, earlier: Seen| {
        let (end, begin) = (later.end_ns + later.err_ns, earlier.begin_ns - earlier.err_ns);
        let away = (end - mid_ns).abs().max((begin - mid_ns).abs());
        (end - begin) as f64 + (away as f64 * max_drift_ppm / 1e6).ceil()
    };
    (-ahead(one, other), ahead(other, one))
}

#[test]
fn bounds_are_those_of_the_meetings_that_allow_least() {
    let seen = |host, begin_ns, end_ns, err_ns| Seen { host, begin_ns, end_ns, err_ns, early_ns: 0 };
    let mid_ns = SEGMENT_NS / 2;
    // Before the middle the begin is farther from it, and after it the end.
    let before = Meeting {
        seen: vec![
            seen(2, mid_ns - 9_000_000, mid_ns - 5_000_000, 100),
            seen(3, mid_ns - 8_000_000, mid_ns - 4_000_000, 300),
        ],
    };
    let after = Meeting {
        seen: vec![
            seen(2, mid_ns + 1_000_000, mid_ns + 9_500_000, 100),
            seen(3, mid_ns + 6_500_000, mid_ns + 9_000_000, 300),
        ],
    };
    // The two hosts never meet the first one.
    for meetings in [vec![before.clone()], vec![after.clone()], vec![before, after]] {
        let each: Vec<_> = meetings.iter().map(|meeting| allowed(meeting, mid_ns, 500.0)).collect();
        let least = each.iter().map(|(least, _)| *least).fold(f64::MIN, f64::max);
        let most = each.iter().map(|(_, most)| *most).fold(f64::MAX, f64::min);
        let clock = &segment(0, 4, &meetings, 500.0)[3];
        assert_eq!((clock.beside, clock.certified), (2, Some((least, most))), "{meetings:?}");
        let many = &segment(0, 400, &meetings, 500.0)[3];
        let (from, to) = many.certified.unwrap();
        // With too many hosts for all pairs, each of the two times of a meeting counts with its own drift.
        assert!((least - 10_000.0..=least).contains(&from) && (most..=most + 10_000.0).contains(&to), "{many:?}");
    }
}

/// Two hosts that meet twice a second for a minute.
fn of_two(seen: impl Fn(usize, i64) -> Seen) -> Vec<Meeting> {
    (0..120).map(|step| Meeting { seen: vec![seen(0, step), seen(1, step)] }).collect()
}

#[test]
fn an_error_is_that_of_the_line_of_reading_and_of_the_order_in_which_hosts_leave() {
    // Two hosts that agree to the nanosecond, and read their clocks well or badly.
    let of = |err_ns: i64| {
        let seen = |host, step: i64| Seen {
            host,
            begin_ns: step * 500_000_000,
            end_ns: step * 500_000_000 + 10,
            err_ns,
            early_ns: 0,
        };
        segment(0, 2, &of_two(seen), 200.0)[1].clone()
    };
    let (well, badly) = (of(200), of(70_200));
    assert_eq!(well.meetings, 120);
    // 30 us for the order, and hardly anything for the line.
    assert!((30_200.0..30_400.0).contains(&well.err_ns), "{well:?}");
    assert!((badly.err_ns - well.err_ns - 70_000.0).abs() < 1.0, "{badly:?}");
}

#[test]
fn a_clock_that_wanders_says_by_how_much_it_leaves_its_line() {
    // Either one wanders, by 200 us to each side of a line, over the whole segment.
    for wanders in [0, 1] {
        let seen = |host: usize, step: i64| {
            let phase = step as f64 / 120.0;
            let away = if host == wanders { (phase * std::f64::consts::TAU).cos() * 200_000.0 } else { 0.0 };
            let end_ns = step * 500_000_000 + 10_000_000 + away as i64;
            Seen { host, begin_ns: end_ns - 10_000_000, end_ns, err_ns: 0, early_ns: 0 }
        };
        let clock = &segment(0, 2, &of_two(seen), 200.0)[1];
        assert!((200_000.0..800_000.0).contains(&clock.err_ns), "{wanders}: {clock:?}");
    }
}

#[test]
fn few_points_give_no_drift_and_an_error_with_what_it_may_be() {
    let points = [(-3e9, 10.0), (-1e9, 20.0), (2e9, 30.0), (5e9, 90.0)];
    let line = fit::huber(&points[..3]);
    // A clock may drift by 100 ppm over half a segment: 3 ms.
    assert_eq!((line.at_mid, line.slope, line.err, line.bent), (20.0, 0.0, 10.0 + 3e6, 0.0));
    assert_eq!(fit::huber(&points).slope, 0.0);
    let five: Vec<_> = (-2..=2).map(|at| (f64::from(at) * 1e9, f64::from(at) * 1_000.0 + 7.0)).collect();
    let line = fit::huber(&five);
    assert!((line.slope - 1e-6).abs() < 1e-12 && (line.at_mid - 7.0).abs() < 1e-3, "{line:?}");
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
    assert!(clock.offset_ns <= 1_200_000.0 && (28e6..30e6).contains(&clock.err_ns), "{clock:?}");
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

#[test]
fn of_two_middle_times_the_mean_is_the_median() {
    assert_eq!((median(&mut []), median(&mut [7.0]), median(&mut [9.0, 3.0])), (0.0, 7.0, 6.0));
    assert_eq!((median(&mut [5.0, 9.0, 1.0]), median(&mut [4.0, 9.0, 1.0, 6.0])), (5.0, 5.0));
}

#[test]
fn a_line_is_the_same_wherever_its_points_lie() {
    let half = SEGMENT_NS as f64 / 2.0;
    // All points are in the last part of the segment, and each is 500 ns above or below a line.
    for (slope, first) in [(0.0, -1.0), (2e-8, 0.2), (-3e-7, 0.6)] {
        let x = |at: i32| half * (first + (1.0 - first) * f64::from(at) / 255.0);
        let side = |at: i32| if at % 4 == 0 || at % 4 == 3 { 500.0 } else { -500.0 };
        let points: Vec<(f64, f64)> = (0..256).map(|at| (x(at), 5_000.0 + slope * x(at) + side(at))).collect();
        let line = fit::huber(&points);
        assert!((line.slope - slope).abs() * half < 20.0 && (line.at_mid - 5_000.0).abs() < 20.0, "{line:?}");
        // 2.576 deviations and a tenth more, at the point that is farthest from the centre.
        let (n, centre) = (points.len() as f64, x(0).midpoint(x(255)));
        let spread: f64 = points.iter().map(|(x, _)| (x - centre) * (x - centre)).sum();
        let far = x(255) - centre;
        let err = 2.576 * 1.1 * 1.4826 * 500.0 * (1.0 / n + far * far / spread).sqrt();
        assert!((line.err / err - 1.0).abs() < 0.02, "{line:?}, not {err}");
        assert!(line.bent < 1.5 * 520.0, "{line:?}");
    }
}

#[test]
fn parts_that_lie_beside_a_line_say_how_far_it_is_bent() {
    let half = SEGMENT_NS as f64 / 2.0;
    for slope in [0.0, 1e-6] {
        let x = |at: i32| half * (2.0 * f64::from(at) / 255.0 - 1.0);
        // Sixteen parts, each above or below.
        let beside = |at: i32| if matches!(at / 16 % 4, 0 | 3) { 1_000.0 } else { -1_000.0 };
        let points: Vec<(f64, f64)> = (0..256).map(|at| (x(at), slope * x(at) + beside(at))).collect();
        let line = fit::huber(&points);
        // Between the middles of two parts it may be half as far again.
        assert!((line.bent - 1_500.0).abs() < 30.0, "{slope}: {line:?}");
    }
}
