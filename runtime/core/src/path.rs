//! The critical path: the work that must become shorter for a run to become shorter.
//!
//! The path is walked backwards, from the end of the last zone, which is on a stream or on a thread. The walk follows that stream
//! or thread back to the end of the latest wait that held it up: a wait whose signal came after the wait had begun. There it
//! follows the arrow to the stream or thread that signalled, at the time of the signal, and continues from there. A wait for a
//! value that had already been signalled held up nothing, and the walk passes it. Where a stream was idle before a zone, the walk
//! moves to the thread that launched the zone. If the last zone is on a thread that launched work which ended within that zone,
//! the walk moves to that work: it assumes that the thread waited for it, because no record shows such a wait. Without further
//! arrows, the path ends at the begin of the window. Each moment on the path counts for the innermost zone: a zone's part is its
//! own time on the path, without the zones within it. The collector finds the path in the last records of a session;
//! [`critical_path`] finds it in any records.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::record::{Span, StreamInfo, ThreadInfo, ZoneRecord, is_bound};
use crate::wait::{SignalInfo, WaitRecord};

/// The critical path of a window, through the recorded zones. Zones that were not recorded may also be on it. For a session,
/// [`Report::is_complete`](crate::report::Report::is_complete) returns whether there can be any.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// The begin of the window, in ns.
    pub from_ns: i64,
    /// The end of the path, which is the end of the last zone in the window, in ns.
    pub to_ns: i64,
    /// The time by which the path may end earlier, in ns, because the end of that zone is not timed and its length is only a bound
    /// ([`is_bound`]).
    pub early_by_ns: i64,
    /// The number of arrows on it.
    pub arrows: u64,
    /// The stretches of the path in chronological order: the stream or thread, and the time.
    pub stretches: Vec<PathSegment>,
    /// The parts of the path, longest first. The sum of their times is `to_ns - from_ns`.
    pub parts: Vec<PathPart>,
}

/// A stretch of the path on one stream or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSegment {
    /// The name of the stream or thread.
    pub on: String,
    /// The time span.
    pub span: Span,
}

/// The contribution of one range's zones, or of time without a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPart {
    /// The range's name; `(no recorded zone)` where the path passes no recorded zone, `(on the way)` between a signal and the
    /// end of its wait, or a launch and the begin of its zone, and `(end not timed)` where a zone, whose length is only a bound, may have ended.
    pub name: String,
    /// The name of the stream or thread.
    pub on: String,
    /// The time, in ns.
    pub ns: i64,
    /// The share of the whole path, 0 to 1.
    pub share: f64,
}

/// Returns the critical path through these records, in `window` or in the whole time that they cover; none if no zone ends there.
///
/// Pass the records of one session, as [`MemorySink`](crate::sink::MemorySink) keeps them. Zones and waits that are partly in the
/// window count for that part.
pub fn critical_path(zones: &[ZoneRecord], waits: &[WaitRecord], window: Option<Span>) -> Option<CriticalPath> {
    let mut log: PathLog = PathLog::new(usize::MAX);
    zones.iter().for_each(|zone| log.zone(zone));
    waits.iter().for_each(|wait| log.wait(wait));
    log.path(window)
}

/// A stream or a thread.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    Stream(u32),
    Thread(u64),
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::Stream(id) => write!(f, "stream {id}"),
            Track::Thread(id) => write!(f, "thread {id}"),
        }
    }
}

#[derive(Clone)]
struct Passed<N> {
    on: Track,
    name: N,
    span: Span,
    /// The time by which its end may be earlier, if that makes its length a bound; otherwise 0.
    early_by_ns: i64,
    /// The thread that launched it, and the time span of the launch.
    launch: Option<(Track, Span)>,
}

/// A wait that held its stream up, or a launch to a stream that was idle before.
#[derive(Clone, Copy)]
struct Arrow {
    on: Track,
    end_ns: i64,
    from: Track,
    at_ns: i64,
}

/// The records in which a path is found: the last zones and waits, in order of arrival. `N` is the name of a zone.
pub struct PathLog<N = &'static str> {
    zones: VecDeque<Passed<N>>,
    arrows: VecDeque<Arrow>,
    names: HashMap<Track, String>,
    /// The stream and the thread of the last record, whose names are known.
    last: [Option<Track>; 2],
    most: usize,
    /// The time up to which ended records are incomplete.
    forgotten_until_ns: i64,
}

/// The maximum number of stream and thread names that are kept, unless all records are. An old record whose stream or thread name
/// was discarded shows its number.
const NAMES: usize = 1 << 13;

impl<N: Clone + AsRef<str>> PathLog<N> {
    /// Creates a log that keeps at most this many of the last zones, and as many of the last arrows.
    pub fn new(most: usize) -> PathLog<N> {
        let (zones, arrows) = (VecDeque::new(), VecDeque::new());
        PathLog { zones, arrows, names: HashMap::new(), last: [None; 2], most, forgotten_until_ns: i64::MIN }
    }

    /// Adds a zone on a stream or a thread, and its launch. Its end may be earlier by `early_by_ns`.
    pub fn passed(
        &mut self,
        (on, on_name): (Track, &str),
        name: N,
        (span, early_by_ns): (Span, i64),
        launch: Option<(Track, &str, Span)>,
    ) {
        self.forget_names();
        self.know(on, on_name);
        if let Some((from, from_name, _)) = launch {
            self.know(from, from_name);
        }
        let launch = launch.map(|(from, _, host)| (from, host));
        self.push_zone(Passed { on, name, span, early_by_ns: tail(span, early_by_ns), launch });
    }

    /// Adds a wait that ended at `end_ns` because of a signal at `at_ns`.
    pub fn waited(&mut self, (on, on_name): (Track, &str), span: Span, (from, from_name): (Track, &str), at_ns: i64) {
        if at_ns <= span.begin_ns {
            return;
        }
        self.forget_names();
        self.know(on, on_name);
        self.know(from, from_name);
        self.push_arrow(Arrow { on, end_ns: span.end_ns, from, at_ns: at_ns.min(span.end_ns) });
    }

    fn know(&mut self, place: Track, name: &str) {
        self.names.entry(place).or_insert_with(|| name.to_owned());
    }

    fn push_zone(&mut self, zone: Passed<N>) {
        if self.zones.len() >= self.most
            && let Some(oldest) = self.zones.pop_front()
        {
            self.forgotten_until_ns = self.forgotten_until_ns.max(oldest.span.end_ns);
        }
        self.zones.push_back(zone);
    }

    fn push_arrow(&mut self, arrow: Arrow) {
        if self.arrows.len() >= self.most
            && let Some(oldest) = self.arrows.pop_front()
        {
            self.forgotten_until_ns = self.forgotten_until_ns.max(oldest.end_ns);
        }
        self.arrows.push_back(arrow);
    }

    /// Discards names if there are too many: a program may create ever more streams and threads. The most recently used ones keep
    /// their names.
    fn forget_names(&mut self) {
        if self.names.len() < NAMES || self.most == usize::MAX {
            return;
        }
        let newest = NAMES / 8;
        let zones = self.zones.iter().rev().take(newest);
        let of_zones = zones.flat_map(|zone| [Some(zone.on), zone.launch.map(|(from, _)| from)]).flatten();
        let of_arrows = self.arrows.iter().rev().take(newest).flat_map(|arrow| [arrow.on, arrow.from]);
        let used: HashSet<Track> = of_zones.chain(of_arrows).collect();
        self.names.retain(|place, _| used.contains(place));
        self.last = [None; 2];
    }

    /// Returns the path through all known records of the window.
    pub fn path(&self, window: Option<Span>) -> Option<CriticalPath> {
        let inside = |zone: &&Passed<N>| {
            window.is_none_or(|window| zone.span.end_ns <= window.end_ns && zone.span.end_ns > window.begin_ns)
        };
        let last = self.zones.iter().filter(inside).max_by_key(|zone| zone.span.end_ns)?;
        let begin_ns =
            |zone: &Passed<N>| zone.launch.map_or(zone.span, |(_, host)| host).begin_ns.min(zone.span.begin_ns);
        let first_ns = || self.zones.iter().map(begin_ns).min().unwrap_or(last.span.begin_ns);
        let from_ns = window.map_or_else(first_ns, |window| window.begin_ns).max(self.forgotten_until_ns);
        let to_ns = last.span.end_ns;
        let launches = self.launches();
        let mut walk = Walk::new(self.arrows.iter().chain(&launches), from_ns);
        match self.waited_for(last, self.zones.iter().filter(inside)) {
            Some(work) => {
                walk.stretches.push((last.on, Span { begin_ns: work.span.end_ns, end_ns: to_ns }));
                walk.back(work.on, work.span.end_ns);
            }
            None => walk.back(last.on, to_ns),
        }
        Some(CriticalPath { early_by_ns: last.early_by_ns, ..walk.finish(self, to_ns) })
    }

    /// Returns the last zone on a stream for which a thread is assumed to have waited within its zone: the thread launched it, it
    /// ended within that zone, and no later wait of the thread is known. No record shows that a thread synchronised a stream.
    fn waited_for<'a>(&self, last: &Passed<N>, zones: impl Iterator<Item = &'a Passed<N>>) -> Option<&'a Passed<N>>
    where
        N: 'a,
    {
        if last.launch.is_some() {
            return None;
        }
        let waits = self.arrows.iter().filter(|arrow| arrow.on == last.on && arrow.end_ns <= last.span.end_ns);
        let from_ns = waits.map(|arrow| arrow.end_ns).max().unwrap_or(i64::MIN).max(last.span.begin_ns);
        let is_of_thread = |zone: &&Passed<N>| zone.launch.is_some_and(|(from, _)| from == last.on);
        zones.filter(is_of_thread).filter(|zone| zone.span.end_ns > from_ns).max_by_key(|zone| zone.span.end_ns)
    }

    /// Returns the launches to streams that were idle at that time.
    fn launches(&self) -> Vec<Arrow> {
        let mut order: Vec<&Passed<N>> = self.zones.iter().filter(|zone| zone.launch.is_some()).collect();
        order.sort_by_key(|zone| (zone.span.begin_ns, -zone.span.end_ns));
        let mut waits: HashMap<Track, Vec<i64>> = HashMap::new();
        for arrow in &self.arrows {
            waits.entry(arrow.on).or_default().push(arrow.end_ns);
        }
        waits.values_mut().for_each(|ends| ends.sort_unstable());
        let mut done_ns: HashMap<Track, i64> = HashMap::new();
        let mut launches = Vec::new();
        for zone in order {
            let Some((from, host)) = zone.launch else { continue };
            let ends = waits.get(&zone.on).map_or(&[][..], Vec::as_slice);
            let waited = ends.partition_point(|ns| *ns <= zone.span.begin_ns).checked_sub(1).map(|at| ends[at]);
            let done = done_ns.entry(zone.on).or_insert(i64::MIN);
            if host.begin_ns > (*done).max(waited.unwrap_or(i64::MIN)) {
                let at_ns = host.begin_ns.min(zone.span.begin_ns);
                launches.push(Arrow { on: zone.on, end_ns: zone.span.begin_ns, from, at_ns });
            }
            *done = (*done).max(zone.span.end_ns);
        }
        launches
    }
}

impl PathLog {
    pub fn zone(&mut self, zone: &ZoneRecord) {
        // The entries of a batch repeat the batch.
        if zone.entry.is_some() {
            return;
        }
        self.forget_names();
        let on = self.place(zone.stream.as_ref(), &zone.thread);
        let launch = zone.gpu.map(|_| (self.place(None, &zone.thread), zone.host));
        let (span, early_by_ns) = zone.gpu.map_or((zone.host, 0), |gpu| (gpu, tail(gpu, zone.end_early_by_ns)));
        self.push_zone(Passed { on, name: zone.range.name(), span, early_by_ns, launch });
    }

    pub fn wait(&mut self, wait: &WaitRecord) {
        let Some(SignalInfo { stream, thread, at_ns, .. }) = &wait.signal else { return };
        let span = wait.span();
        if *at_ns <= span.begin_ns {
            return;
        }
        self.forget_names();
        let on = self.place(wait.stream.as_ref(), &wait.thread);
        let from = self.place(stream.as_ref(), thread);
        self.push_arrow(Arrow { on, end_ns: span.end_ns, from, at_ns: (*at_ns).min(span.end_ns) });
    }

    fn place(&mut self, stream: Option<&Arc<StreamInfo>>, thread: &ThreadInfo) -> Track {
        let place = stream.map_or(Track::Thread(thread.id), |stream| Track::Stream(stream.id));
        let last = &mut self.last[usize::from(stream.is_none())];
        if last.replace(place) != Some(place) {
            self.names.entry(place).or_insert_with(|| match (stream, &thread.name) {
                (Some(stream), _) => stream.name.clone(),
                (None, Some(name)) => name.clone(),
                (None, None) => place.to_string(),
            });
        }
        place
    }
}

/// A walk back in time.
struct Walk<'a> {
    from_ns: i64,
    /// The waits of each stream or thread, latest last; those that the walk has passed are removed.
    arrows: BTreeMap<Track, Vec<&'a Arrow>>,
    /// The stretches, latest first.
    stretches: Vec<(Track, Span)>,
    /// The times between the two ends of arrows.
    under_way: Vec<(Track, i64)>,
}

impl<'a> Walk<'a> {
    fn new(all: impl Iterator<Item = &'a Arrow>, from_ns: i64) -> Walk<'a> {
        let mut arrows: BTreeMap<Track, Vec<&Arrow>> = BTreeMap::new();
        for arrow in all {
            arrows.entry(arrow.on).or_default().push(arrow);
        }
        arrows.values_mut().for_each(|arrows| arrows.sort_by_key(|arrow| arrow.end_ns));
        Walk { from_ns, arrows, stretches: Vec::new(), under_way: Vec::new() }
    }

    fn back(&mut self, mut on: Track, mut at_ns: i64) {
        while at_ns > self.from_ns {
            let arrow = self.arrows.get_mut(&on).and_then(|arrows| {
                // Each is visited at most once, so the walk terminates for any clock values.
                while let Some(arrow) = arrows.pop() {
                    if arrow.end_ns <= at_ns {
                        return Some(arrow);
                    }
                }
                None
            });
            let Some(arrow) = arrow.filter(|arrow| arrow.end_ns > self.from_ns) else { break };
            self.stretches.push((on, Span { begin_ns: arrow.end_ns, end_ns: at_ns }));
            self.under_way.push((on, arrow.end_ns - arrow.at_ns.max(self.from_ns)));
            (on, at_ns) = (arrow.from, arrow.at_ns.max(self.from_ns));
        }
        self.stretches.push((on, Span { begin_ns: self.from_ns.min(at_ns), end_ns: at_ns }));
    }

    fn finish<N: Clone + AsRef<str>>(mut self, log: &PathLog<N>, to_ns: i64) -> CriticalPath {
        let name = |place: &Track| log.names.get(place).cloned().unwrap_or_else(|| place.to_string());
        let mut parts: BTreeMap<(&str, Track), i64> = BTreeMap::new();
        for (on, ns) in &self.under_way {
            *parts.entry(("(on the way)", *on)).or_default() += ns;
        }
        let mut of_place: BTreeMap<Track, Vec<Span>> = BTreeMap::new();
        for (on, span) in &self.stretches {
            of_place.entry(*on).or_default().push(*span);
        }
        for (on, spans) in of_place {
            let on_it = log.zones.iter().filter_map(|zone| match zone.launch {
                _ if zone.on == on => Some((zone.name.as_ref(), zone.span, zone.early_by_ns)),
                Some((from, host)) if from == on => Some((zone.name.as_ref(), host, 0)),
                _ => None,
            });
            attribute(on_it, &spans, |name, ns| {
                *parts.entry((name.unwrap_or("(no recorded zone)"), on)).or_default() += ns
            });
        }
        let whole_ns = (to_ns - self.from_ns).max(1);
        let mut parts: Vec<_> = parts
            .into_iter()
            .filter(|(_, ns)| *ns > 0)
            .map(|((part, on), ns)| PathPart {
                name: part.to_owned(),
                on: name(&on),
                ns,
                share: ns as f64 / whole_ns as f64,
            })
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
        self.stretches.reverse();
        CriticalPath {
            from_ns: self.from_ns,
            to_ns,
            early_by_ns: 0,
            arrows: self.under_way.len() as u64,
            stretches: self.stretches.iter().map(|(on, span)| PathSegment { on: name(on), span: *span }).collect(),
            parts,
        }
    }
}

/// Returns the time in which a zone may have ended, if its length is only a bound.
fn tail(span: Span, early_by_ns: i64) -> i64 {
    if is_bound(span.duration_ns(), early_by_ns) { early_by_ns } else { 0 }
}

/// Calls `add` for each piece of these non-overlapping stretches with its innermost zone: the open zone that began last. The time in which that
/// zone may have ended is not the zone's.
fn attribute<'n>(
    zones: impl Iterator<Item = (&'n str, Span, i64)>,
    stretches: &[Span],
    mut add: impl FnMut(Option<&'n str>, i64),
) {
    let (from, to) = (
        stretches.iter().map(|span| span.begin_ns).min().unwrap_or(0),
        stretches.iter().map(|span| span.end_ns).max().unwrap_or(0),
    );
    let is_inside =
        |(_, span, _): &(&str, Span, i64)| span.begin_ns < to && span.end_ns > from && span.duration_ns() > 0;
    let zones: Vec<_> = zones.filter(is_inside).collect();
    // Ends come before begins. Of zones that begin together, the outer one comes first.
    let mut edges: Vec<(i64, bool, i64, Option<usize>)> = Vec::with_capacity(2 * (zones.len() + stretches.len()));
    let both = |Span { begin_ns, end_ns }: Span, of| [(begin_ns, true, -end_ns, of), (end_ns, false, 0, of)];
    edges.extend(zones.iter().enumerate().flat_map(|(at, (_, span, _))| both(*span, Some(at))));
    let stretches = stretches.iter().filter(|span| span.duration_ns() > 0);
    edges.extend(stretches.flat_map(|span| both(*span, None)));
    edges.sort_unstable();
    let (mut open, mut inside, mut last_ns): (Vec<usize>, i32, i64) = (Vec::new(), 0, i64::MIN);
    for (ns, begins, _, of) in edges {
        if inside > 0 && ns > last_ns {
            match open.last().and_then(|at| zones.get(*at)) {
                None => add(None, ns - last_ns),
                Some((name, span, early_by_ns)) => {
                    let certain_ns = span.without_tail(*early_by_ns).end_ns.clamp(last_ns, ns);
                    add(Some(name), certain_ns - last_ns);
                    add(Some("(end not timed)"), ns - certain_ns);
                }
            }
        }
        last_ns = ns;
        match (of, begins) {
            (None, begins) => inside += if begins { 1 } else { -1 },
            (Some(at), true) => open.push(at),
            (Some(at), false) => open.retain(|known| *known != at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Track = Track::Stream(1);
    const B: Track = Track::Stream(2);
    const MAIN: Track = Track::Thread(7);

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    /// Returns the path through zones (stream, name, begin, end, launch time) and arrows (waiter, end of the wait, signaller,
    /// signal time).
    fn path(zones: &[(Track, &'static str, i64, i64, i64)], arrows: &[(Track, i64, Track, i64)]) -> CriticalPath {
        let mut log: PathLog = PathLog::new(usize::MAX);
        for &(on, name, begin, end, launched) in zones {
            let launch = matches!(on, Track::Stream(_)).then_some((MAIN, span(launched, launched + 1)));
            log.zones.push_back(Passed { on, name, span: span(begin, end), early_by_ns: 0, launch });
        }
        for &(on, end_ns, from, at_ns) in arrows {
            log.arrows.push_back(Arrow { on, end_ns, from, at_ns });
        }
        log.names = [(A, "a"), (B, "b"), (MAIN, "main")].map(|(place, name)| (place, name.to_owned())).into();
        log.path(None).expect("there are zones")
    }

    fn parts(path: &CriticalPath) -> Vec<(&str, &str, i64)> {
        let mut parts: Vec<_> = path.parts.iter().map(|part| (part.name.as_str(), part.on.as_str(), part.ns)).collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn it_counts_the_innermost_zone_and_each_time_once() {
        let zones =
            [(A, "outer", 10, 100, 0), (A, "inner", 20, 40, 1), (A, "empty", 30, 30, 2), (B, "after", 110, 150, 3)];
        let path = path(&zones, &[(B, 110, A, 100)]);
        let expected = [
            ("(on the way)", "a", 10),
            ("(on the way)", "b", 10),
            ("after", "b", 40),
            ("inner", "a", 20),
            ("outer", "a", 70),
        ];
        assert_eq!((parts(&path), path.from_ns, path.to_ns, path.arrows), (expected.to_vec(), 0, 150, 2));
        assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 150);
    }

    #[test]
    fn it_ends_at_the_last_zone_also_where_that_is_on_a_thread() {
        let zones = [(A, "work", 10, 100, 0), (MAIN, "save", 110, 250, 0)];
        let path = path(&zones, &[(MAIN, 105, A, 100)]);
        assert_eq!((path.to_ns, path.arrows), (250, 2));
        assert!(
            parts(&path).contains(&("save", "main", 140)) && parts(&path).contains(&("work", "a", 90)),
            "{path:#?}"
        );
        assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 250);
    }

    #[test]
    fn a_zone_of_a_thread_around_the_work_that_it_launched_is_taken_to_wait_for_it() {
        let zones = [(A, "load", 5, 40, 1), (B, "work", 40, 100, 2), (MAIN, "step", 0, 120, 0)];
        let waited = path(&zones, &[(B, 40, A, 40)]);
        assert_eq!((waited.to_ns, waited.stretches.len()), (120, 4), "{waited:#?}");
        assert!(
            parts(&waited).contains(&("work", "b", 60)) && parts(&waited).contains(&("load", "a", 35)),
            "{waited:#?}"
        );
        assert_eq!(waited.parts.iter().map(|part| part.ns).sum::<i64>(), 120);
        // Here, the reason of the wait is known.
        let known = path(&zones, &[(MAIN, 110, A, 105)]);
        assert!(parts(&known).iter().all(|(name, ..)| *name != "work"), "{known:#?}");
    }

    #[test]
    fn time_in_which_a_zone_may_have_ended_is_not_the_zones() {
        let mut log: PathLog = PathLog::new(usize::MAX);
        let mut add = |on, name, zone: Span, early_by_ns| {
            log.passed((on, "a"), name, (zone, early_by_ns), Some((MAIN, "main", span(0, 1))));
        };
        // Known within 5 %, a bound within a zone that is timed, and a bound at the end.
        add(A, "known", span(10, 110), 5);
        add(A, "around", span(110, 300), 0);
        add(A, "inner", span(120, 220), 60);
        add(A, "last", span(300, 400), 30);
        let path = log.path(None).expect("there are zones");
        let expected = [
            ("(end not timed)", "a", 90),
            ("(on the way)", "a", 10),
            ("around", "a", 90),
            ("inner", "a", 40),
            ("known", "a", 100),
            ("last", "a", 70),
        ];
        assert_eq!((parts(&path), path.to_ns, path.early_by_ns), (expected.to_vec(), 400, 30));
        assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 400);
    }

    #[test]
    fn it_ends_whatever_the_arrows_say() {
        let zones = [(A, "one", 0, 50, 0), (B, "two", 0, 60, 0)];
        // Two streams that signal each other at the same time, and arrows without a target.
        let arrows = [(A, 50, B, 50), (B, 50, A, 50), (B, 60, A, 60), (A, 60, B, 60), (B, 55, MAIN, 54)];
        let path = path(&zones, &arrows);
        assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 60, "{path:#?}");
    }
}
