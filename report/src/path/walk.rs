//! The walk back through the records of a [`PathLog`], and what each moment of the path counts for.

use std::collections::{BTreeMap, HashMap};

use super::log::{Arrow, Passed, PathLog, Synchronized};
use super::{CriticalPath, PathPart, PathSegment, Track};
use crate::names::Names;
use warpline_core::record::Span;
use warpline_core::sorting;

impl PathLog {
    /// Returns the path through all known records of the window. `names` has the names of zones.
    pub fn path(&self, window: Option<Span>, names: &Names) -> Option<CriticalPath> {
        let inside = |zone: &&Passed| {
            window.is_none_or(|window| zone.span.end_ns <= window.end_ns && zone.span.end_ns > window.begin_ns)
        };
        let last = self.zones.iter().filter(inside).max_by_key(|zone| zone.span.end_ns)?;
        let begin_ns = |zone: &Passed| zone.launch.map_or(zone.span, |(_, host)| host).begin_ns.min(zone.span.begin_ns);
        let first_ns = || self.zones.iter().map(begin_ns).min().unwrap_or(last.span.begin_ns);
        let from_ns = window.map_or_else(first_ns, |window| window.begin_ns).max(self.forgotten_until_ns);
        let to_ns = last.span.end_ns;
        let launches = self.launches();
        let walked = |waits: &[Arrow]| {
            let mut walk = Walk::new(self.arrows.iter().chain(&launches).chain(waits), from_ns);
            walk.back(last.on, to_ns);
            walk.finish(self, to_ns, names)
        };
        let mut path = walked(&self.waits_for_work());
        // Without records of synchronisations, what is longest on the path may be so only because threads are taken to wait.
        let without = if self.synchronized.is_empty() { walked(&[]) } else { path.clone() };
        let longest = |path: &CriticalPath| path.range().map(|part| (part.name.clone(), part.on.clone()));
        path.is_assumed = longest(&path) != longest(&without);
        Some(CriticalPath { early_by_ns: last.early_by_ns, ..path })
    }

    /// Returns the waits of threads for work that they launched: those that calls show, or, if no call is known, as if each thread had waited for all
    /// of it.
    fn waits_for_work(&self) -> Vec<Arrow> {
        let mut work: HashMap<Track, Vec<&Passed>> = HashMap::new();
        for zone in &self.zones {
            if let Some((from, _)) = zone.launch.filter(|(_, host)| zone.span.end_ns > host.end_ns) {
                work.entry(from).or_default().push(zone);
            }
        }
        let wait = |on: Track, end_ns: i64, zone: &Passed| Arrow {
            on,
            end_ns,
            early_by_ns: 0,
            from: zone.on,
            at_ns: zone.span.end_ns,
        };
        if self.synchronized.is_empty() {
            let all = work.iter().flat_map(|(on, zones)| zones.iter().map(|zone| wait(*on, zone.span.end_ns, zone)));
            return all.collect();
        }
        work.values_mut().for_each(|zones| sorting::sort_by_key(zones, |zone| zone.span.end_ns));
        let known = |call: &Synchronized| {
            let zones = work.get(&call.on)?;
            let after = zones.partition_point(|zone| zone.span.end_ns <= call.span.end_ns);
            let zone = zones.get(after.checked_sub(1)?)?;
            (zone.span.end_ns > call.span.begin_ns).then(|| wait(call.on, call.span.end_ns, zone))
        };
        self.synchronized.iter().filter_map(known).collect()
    }

    /// Returns the launches to streams that were idle at that time.
    fn launches(&self) -> Vec<Arrow> {
        let mut order: Vec<&Passed> = self.zones.iter().filter(|zone| zone.launch.is_some()).collect();
        sorting::sort_by_key(&mut order, |zone| (zone.span.begin_ns, -zone.span.end_ns));
        let mut waits: HashMap<Track, Vec<i64>> = HashMap::new();
        for arrow in &self.arrows {
            waits.entry(arrow.on).or_default().push(arrow.end_ns);
        }
        waits.values_mut().for_each(|ends| sorting::sort(ends));
        let mut done_ns: HashMap<Track, i64> = HashMap::new();
        let mut launches = Vec::new();
        for zone in order {
            let Some((from, host)) = zone.launch else { continue };
            let ends = waits.get(&zone.on).map_or(&[][..], Vec::as_slice);
            let waited = ends.partition_point(|ns| *ns <= zone.span.begin_ns).checked_sub(1).map(|at| ends[at]);
            let done = done_ns.entry(zone.on).or_insert(i64::MIN);
            if host.begin_ns > (*done).max(waited.unwrap_or(i64::MIN)) {
                let at_ns = host.begin_ns.min(zone.span.begin_ns);
                launches.push(Arrow { on: zone.on, end_ns: zone.span.begin_ns, early_by_ns: 0, from, at_ns });
            }
            *done = (*done).max(zone.span.end_ns);
        }
        launches
    }
}

/// A walk back in time.
struct Walk<'a> {
    from_ns: i64,
    /// The waits of each stream or thread, latest last; those that the walk has passed are removed.
    arrows: BTreeMap<Track, Vec<&'a Arrow>>,
    /// The stretches, latest first.
    stretches: Vec<(Track, Span)>,
    /// The times between the two ends of arrows, and the last parts of them in which the waits may have ended.
    under_way: Vec<(Track, i64, i64)>,
}

impl<'a> Walk<'a> {
    fn new(all: impl Iterator<Item = &'a Arrow>, from_ns: i64) -> Walk<'a> {
        let mut arrows: BTreeMap<Track, Vec<&Arrow>> = BTreeMap::new();
        for arrow in all {
            arrows.entry(arrow.on).or_default().push(arrow);
        }
        arrows.values_mut().for_each(|arrows| sorting::sort_by_key(arrows, |arrow| arrow.end_ns));
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
            let way_ns = arrow.end_ns - arrow.at_ns.max(self.from_ns);
            self.under_way.push((on, way_ns, arrow.early_by_ns.clamp(0, way_ns)));
            (on, at_ns) = (arrow.from, arrow.at_ns.max(self.from_ns));
        }
        self.stretches.push((on, Span { begin_ns: self.from_ns.min(at_ns), end_ns: at_ns }));
    }

    fn finish(mut self, log: &PathLog, to_ns: i64, names: &Names) -> CriticalPath {
        let name = |place: &Track| log.names.get(place).cloned().unwrap_or_else(|| place.to_string());
        let mut parts: BTreeMap<(&str, Track), i64> = BTreeMap::new();
        for (on, ns, uncertain_ns) in &self.under_way {
            *parts.entry(("(launch or signal delay)", *on)).or_default() += ns - uncertain_ns;
            *parts.entry(("(end not timed)", *on)).or_default() += uncertain_ns;
        }
        let mut of_place: BTreeMap<Track, Vec<Span>> = BTreeMap::new();
        for (on, span) in &self.stretches {
            of_place.entry(*on).or_default().push(*span);
        }
        let mut zones: BTreeMap<Track, Vec<(&str, Span, i64)>> = BTreeMap::new();
        for zone in &log.zones {
            let launch = zone.launch.filter(|(from, _)| *from != zone.on).map(|(from, host)| (from, host, 0));
            for (on, span, early_by_ns) in [Some((zone.on, zone.span, zone.early_by_ns)), launch].into_iter().flatten()
            {
                if of_place.contains_key(&on) {
                    zones.entry(on).or_default().push((&**names.text(zone.name), span, early_by_ns));
                }
            }
        }
        for (on, spans) in of_place {
            attribute(zones.remove(&on).unwrap_or_default().into_iter(), &spans, |name, ns| {
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
        sorting::sort_by_key(&mut parts, |part| std::cmp::Reverse(part.ns));
        self.stretches.reverse();
        CriticalPath {
            from_ns: self.from_ns,
            to_ns,
            is_assumed: false,
            early_by_ns: 0,
            arrows: self.under_way.len() as u64,
            stretches: self.stretches.iter().map(|(on, span)| PathSegment { on: name(on), span: *span }).collect(),
            parts,
        }
    }
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
    // The open zones, and among them some that have ended.
    let (mut open, mut has_ended): (Vec<usize>, _) = (Vec::new(), vec![false; zones.len()]);
    let (mut inside, mut last_ns) = (0_i32, i64::MIN);
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
            (Some(at), false) => has_ended[at] = true,
        }
        while open.pop_if(|at| has_ended[*at]).is_some() {}
    }
}
