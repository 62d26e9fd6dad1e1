//! The estimate: all clocks of a segment at once. An end is the moment when all were done, plus the clock's offset,
//! plus noise that is sometimes large and never negative. The fit alternates: the moments from the clocks (a median),
//! then the clocks from the moments (Huber).

use super::{Clock, Meeting, SEGMENT_NS, median};

/// Huber's bound, in deviations: 95 % as good as least squares where there are no outliers.
const HUBER: f64 = 1.345;

/// Deviations of 99 of 100.
const SURE: f64 = 2.576;

/// With fewer points, no drift is estimated.
pub const LEAST_FOR_DRIFT: usize = 5;

/// By how much two clocks drift apart where it is not known.
const UNKNOWN_DRIFT: f64 = 100e-6;

/// Hosts may leave collectives in a fixed order, which looks like clocks that differ. This is more than the ends of
/// NCCL's collectives differ by on one host (`benches/RESULTS.md`: 25 us at most).
const LEAVING_ORDER_NS: f64 = 30_000.0;

/// Parts of a segment in which a clock may be away from its line, and the fewest points of one.
const PARTS: usize = 16;
const LEAST_IN_PART: usize = 8;

/// Between the middles of two parts, a clock may be further away.
const WITHIN_PARTS: f64 = 1.5;

/// No clock is read better.
const LEAST_DEVIATION_NS: f64 = 50.0;

const TURNS: usize = 40;

/// A line through points.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line {
    pub at_mid: f64,
    pub slope: f64,
    /// The error that noise leaves, 99 of 100 times.
    pub err: f64,
    /// By how much the points of a part are away from it: a clock that wanders does not follow a line.
    pub bent: f64,
}

impl Line {
    fn at(&self, x: f64) -> f64 {
        self.at_mid + self.slope * x
    }
}

/// The clocks of all hosts that are in a meeting, and a row of zeros for each other host. An end that is not timed
/// shows a time at which no rank had left, not the time at which all were done. Such ends are used only if the timed
/// ones do not connect the hosts.
pub fn fit(number: i64, mid_ns: i64, hosts: usize, meetings: &[Meeting]) -> Vec<Clock> {
    let beside = components(hosts, meetings);
    let timed: Vec<Meeting> = meetings
        .iter()
        .map(|meeting| Meeting { seen: meeting.seen.iter().copied().filter(|seen| seen.early_ns == 0).collect() })
        .filter(|meeting| meeting.seen.len() > 1)
        .collect();
    let meetings = if components(hosts, &timed) == beside { &timed } else { meetings };
    // The ends of each host: the meeting, and the time since the middle.
    let mut ends: Vec<Vec<(usize, f64)>> = vec![Vec::new(); hosts];
    let mut read = vec![0_i64; hosts];
    for (which, meeting) in meetings.iter().enumerate() {
        for seen in &meeting.seen {
            ends[seen.host].push((which, seen.end_ns.saturating_sub(mid_ns) as f64));
            read[seen.host] = read[seen.host].max(seen.err_ns);
        }
    }
    let mut lines = begin(hosts, &beside, meetings, mid_ns);
    let mut moments = vec![0.0; meetings.len()];
    for turn in 0..TURNS {
        for (moment, meeting) in moments.iter_mut().zip(meetings) {
            let at = |end_ns: i64, host: usize| {
                let x = end_ns.saturating_sub(mid_ns) as f64;
                x - lines[host].at(x)
            };
            let mut all: Vec<f64> = meeting.seen.iter().map(|seen| at(seen.end_ns, seen.host)).collect();
            *moment = median(&mut all);
        }
        let mut moved: f64 = 0.0;
        let mut next = lines.clone();
        for host in 0..hosts {
            let points: Vec<(f64, f64)> = ends[host].iter().map(|(which, x)| (*x, x - moments[*which])).collect();
            next[host] = huber(&points);
        }
        for host in 0..hosts {
            // The first host of those that met is right by definition.
            let zero = next[beside[host]];
            let line = Line {
                at_mid: next[host].at_mid - zero.at_mid,
                slope: next[host].slope - zero.slope,
                err: next[host].err.hypot(zero.err),
                bent: next[host].bent + zero.bent,
            };
            moved = moved.max((line.at_mid - lines[host].at_mid).abs());
            moved = moved.max((line.slope - lines[host].slope).abs() * SEGMENT_NS as f64 / 2.0);
            lines[host] = line;
        }
        if turn > 2 && moved < 10.0 {
            break;
        }
    }
    (0..hosts)
        .map(|host| {
            let is_alone = beside[host] == host;
            Clock {
                host,
                segment: number,
                mid_ns,
                beside: beside[host],
                meetings: ends[host].len(),
                offset_ns: if is_alone { 0.0 } else { lines[host].at_mid },
                drift: if is_alone { 0.0 } else { lines[host].slope },
                err_ns: if is_alone {
                    0.0
                } else {
                    lines[host].err + lines[host].bent + read[host] as f64 + LEAVING_ORDER_NS
                },
                certified: None,
                is_inconsistent: false,
            }
        })
        .collect()
}

/// For each host the first one of those that it has met, directly or through others.
fn components(hosts: usize, meetings: &[Meeting]) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..hosts).collect();
    fn root(parent: &mut [usize], mut of: usize) -> usize {
        while parent[of] != of {
            parent[of] = parent[parent[of]];
            of = parent[of];
        }
        of
    }
    for meeting in meetings {
        for pair in meeting.seen.windows(2) {
            let (a, b) = (root(&mut parent, pair[0].host), root(&mut parent, pair[1].host));
            parent[a.max(b)] = a.min(b);
        }
    }
    (0..hosts).map(|host| root(&mut parent, host)).collect()
}

/// A first guess, from host to host: the median of what two ends differ.
fn begin(hosts: usize, beside: &[usize], meetings: &[Meeting], mid_ns: i64) -> Vec<Line> {
    let mut lines: Vec<Option<Line>> =
        (0..hosts).map(|host| (beside[host] == host).then_some(Line::default())).collect();
    loop {
        let mut differences: Vec<Vec<(f64, f64)>> = vec![Vec::new(); hosts];
        for meeting in meetings {
            let Some((known, line)) = meeting.seen.iter().find_map(|seen| Some((seen, lines[seen.host]?))) else {
                continue;
            };
            let x = known.end_ns.saturating_sub(mid_ns) as f64;
            let moment = x - line.at(x);
            for seen in meeting.seen.iter().filter(|seen| lines[seen.host].is_none()) {
                let x = seen.end_ns.saturating_sub(mid_ns) as f64;
                differences[seen.host].push((x, x - moment));
            }
        }
        let mut is_done = true;
        for (host, points) in differences.iter().enumerate().filter(|(_, points)| !points.is_empty()) {
            lines[host] = Some(huber(points));
            is_done = false;
        }
        if is_done {
            return lines.into_iter().map(Option::unwrap_or_default).collect();
        }
    }
}

/// A line through `points`, on which outliers have no more influence than other points.
pub fn huber(points: &[(f64, f64)]) -> Line {
    let n = points.len() as f64;
    let half_segment = SEGMENT_NS as f64 / 2.0;
    if points.len() < LEAST_FOR_DRIFT {
        let at_mid = median(&mut points.iter().map(|point| point.1).collect::<Vec<_>>());
        let most = points.iter().map(|point| (point.1 - at_mid).abs()).fold(0.0, f64::max);
        return Line { at_mid, slope: 0.0, err: most + UNKNOWN_DRIFT * half_segment, bent: 0.0 };
    }
    // To begin: the median slope between points that are half the segment apart.
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = sorted.len() / 2;
    let mut slopes: Vec<f64> =
        sorted.iter().zip(&sorted[half..]).filter(|(a, b)| b.0 > a.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0)).collect();
    let mut slope = median(&mut slopes);
    let mut at_mid = median(&mut points.iter().map(|point| point.1 - slope * point.0).collect::<Vec<_>>());
    let mut deviation = LEAST_DEVIATION_NS;
    let mut spread = 0.0;
    let mut centre = 0.0;
    for _ in 0..20 {
        let mut away: Vec<f64> = points.iter().map(|(x, y)| (y - at_mid - slope * x).abs()).collect();
        deviation = (1.4826 * median(&mut away)).max(LEAST_DEVIATION_NS);
        let weight = |(x, y): &(f64, f64)| {
            let away = (y - at_mid - slope * x).abs();
            if away <= HUBER * deviation { 1.0 } else { HUBER * deviation / away }
        };
        let (mut w, mut wx, mut wy) = (0.0, 0.0, 0.0);
        for point in points {
            let by = weight(point);
            w += by;
            wx += by * point.0;
            wy += by * point.1;
        }
        centre = wx / w;
        let (mut xx, mut xy) = (0.0, 0.0);
        for point in points {
            let by = weight(point);
            xx += by * (point.0 - centre) * (point.0 - centre);
            xy += by * (point.0 - centre) * (point.1 - wy / w);
        }
        spread = xx;
        let new = if xx > 0.0 { xy / xx } else { slope };
        let moved = (new - slope).abs() * half_segment;
        slope = new;
        at_mid = wy / w - slope * centre;
        if moved < 1.0 {
            break;
        }
    }
    // At the point that is farthest from their centre: the line is used where there are points.
    let far = points.iter().map(|(x, _)| (x - centre).abs()).fold(0.0, f64::max);
    let of_slope = if spread > 0.0 { far * far / spread } else { 0.0 };
    let away = |(x, y): &(f64, f64)| y - at_mid - slope * x;
    let of_part = |part: &[(f64, f64)]| median(&mut part.iter().map(away).collect::<Vec<_>>()).abs();
    let in_part = sorted.len().div_ceil(PARTS).max(LEAST_IN_PART);
    let bent = sorted.chunks_exact(in_part).map(of_part).fold(0.0, f64::max) * WITHIN_PARTS;
    Line { at_mid, slope, err: SURE * 1.1 * deviation * (1.0 / n + of_slope).sqrt(), bent }
}
