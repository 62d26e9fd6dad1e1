//! Which nodes of a captured graph belong to which zone: numbers in, paths of zones out, and no driver.
//!
//! A zone has two places in the capture: the *frontier* of its stream (what the next node will depend on) when it began and
//! when it ended. Nodes are numbered in the order in which they were captured. Whatever was seen in any frontier was there
//! by then, and so was every node before it: that bounds, from below, what was captured when a zone began or ended, on all
//! streams of the capture.
//!
//! * **Own** nodes of a zone lead to its end frontier, were not there when it began, and hang on the whole of its begin frontier
//!   or on another own node: what the stream does next does so, and what waits for the stream. So a fork inside the zone that is joined again belongs to it, also where the next stream has zones of its
//!   own; what another stream did meanwhile, forked off before the zone, does not, also where the zone joins it.
//! * **Further** nodes hang on an own node, do not lead to the end, and surely were there when the zone ended: a fork inside
//!   the zone that is joined later or never.
//! * A zone that outlives its capture owns whatever hangs on its begin.
//! * A zone that began before its stream was captured has no begin frontier: it owns what leads to its end. Where zones of
//!   other streams in the capture began before it, its stream was forked off: then it owns that back to the fork.
//! * A zone within another of the same stream has no node that the outer one lacks.
//!
//! The *path* of a node holds its zones from the outermost to the innermost: zones of a stream that only have it as a further
//! node first, then those of the streams that own it, the stream with the smallest zone last; on one stream as they nest.
//!
//! It is called when a graph is registered, and costs as many steps as the zones have nodes together.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The frontier of a stream when it was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Frontier {
    /// Counts the questions of all streams.
    pub(super) order: u64,
    pub(super) ns: i64,
    pub(super) frontier: Vec<u32>,
}

/// A zone in its capture.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) stream: usize,
    /// None: it began before its stream was captured.
    pub(super) begin: Option<Frontier>,
    /// When it began on the host.
    pub(super) begin_ns: i64,
    /// None: it ended after the capture.
    pub(super) end: Option<Frontier>,
}

/// The zones of each node: numbers of paths, and the paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// For each node a place in `paths`.
    pub(super) of: Vec<u32>,
    /// The first one is empty.
    pub(super) paths: Vec<Vec<u32>>,
}

/// How a node belongs to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    zone: u32,
    owns: bool,
}

/// The paths of `deps.len()` nodes, each of which depends on the nodes in its list.
pub(super) fn paths(deps: &[Vec<u32>], zones: &[Zone]) -> Paths {
    let mut walk = Walk { deps, zones, seen: Seen::new(zones), stamp: vec![0; deps.len()], stamps: 0 };
    let mut holders: Vec<Vec<Holder>> = vec![Vec::new(); deps.len()];
    let mut own: Vec<Vec<u32>> = vec![Vec::new(); zones.len()];
    // Those without a begin are cut by the others.
    let (with, without): (Vec<usize>, Vec<usize>) = (0..zones.len()).partition(|&zone| zones[zone].begin.is_some());
    for zone in with {
        own[zone] = walk.own(zone);
    }
    for zone in without {
        own[zone] = walk.own_since_before(zone, &own);
    }
    for (zone, own) in own.iter().enumerate() {
        for &node in own {
            holders[node as usize].push(Holder { zone: zone as u32, owns: true });
        }
        for node in walk.further(zone, own) {
            holders[node as usize].push(Holder { zone: zone as u32, owns: false });
        }
    }
    let parents = parents(zones);
    let mut sizes = vec![0_u32; zones.len()];
    let mut places = vec![0; zones.len()];
    for node in &mut holders {
        add_outer(node, &parents, &mut places);
        node.iter().for_each(|holder| sizes[holder.zone as usize] += 1);
    }
    let mut known: HashMap<Vec<u32>, u32> = HashMap::from([(Vec::new(), 0)]);
    let mut result = Paths { of: Vec::with_capacity(deps.len()), paths: vec![Vec::new()] };
    let mut last: Option<&[Holder]> = None;
    for node in &holders {
        // Nodes of one zone follow one another.
        let id = match (last, result.of.last()) {
            (Some(last), Some(&id)) if last == node.as_slice() => id,
            _ => {
                let next = result.paths.len() as u32;
                *known.entry(order(node, zones, &sizes)).or_insert_with_key(|path| {
                    result.paths.push(path.clone());
                    next
                })
            }
        };
        result.of.push(id);
        last = Some(node);
    }
    result
}

/// An order of nodes in which each comes behind those that it depends on, and as near to the given one as that allows; none
/// where that is such an order, as that of a capture is.
pub(super) fn topological(deps: &[Vec<u32>]) -> Option<Vec<u32>> {
    let is_behind = |(node, deps): (u32, &Vec<u32>)| deps.iter().all(|dep| *dep < node);
    if (0..).zip(deps).all(is_behind) {
        return None;
    }
    let mut left: Vec<usize> = deps.iter().map(Vec::len).collect();
    let mut next: Vec<Vec<u32>> = vec![Vec::new(); deps.len()];
    for (node, deps) in (0..).zip(deps) {
        deps.iter().for_each(|dep| next[*dep as usize].push(node));
    }
    let mut ready: BinaryHeap<Reverse<u32>> =
        (0..).zip(&left).filter(|(_, left)| **left == 0).map(|(node, _)| Reverse(node)).collect();
    let mut order = Vec::with_capacity(deps.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &behind in &next[node as usize] {
            left[behind as usize] -= 1;
            if left[behind as usize] == 0 {
                ready.push(Reverse(behind));
            }
        }
    }
    // No graph of the driver has a circle; of one that had, nothing would be known.
    (order.len() == deps.len()).then_some(order)
}

/// How many nodes there surely were, by what had been seen of the capture.
struct Seen {
    /// Order, time and count, by order; counts do not fall.
    at: Vec<(u64, i64, u32)>,
}

impl Seen {
    fn new(zones: &[Zone]) -> Seen {
        let places = zones.iter().flat_map(|zone| [&zone.begin, &zone.end]).flatten();
        let count = |place: &Frontier| place.frontier.iter().map(|node| node + 1).max().unwrap_or(0);
        let mut at: Vec<_> = places.map(|place| (place.order, place.ns, count(place))).collect();
        at.sort_unstable();
        let mut most = 0;
        for (_, _, count) in &mut at {
            most = most.max(*count);
            *count = most;
        }
        Seen { at }
    }

    /// When the question of this number had been answered.
    fn by(&self, order: u64) -> u32 {
        let until = self.at.partition_point(|(other, ..)| *other <= order);
        until.checked_sub(1).map_or(0, |last| self.at[last].2)
    }

    /// At this time.
    fn by_ns(&self, ns: i64) -> u32 {
        self.at.iter().filter(|(_, at, _)| *at <= ns).map(|(.., count)| *count).max().unwrap_or(0)
    }
}

struct Walk<'a> {
    deps: &'a [Vec<u32>],
    zones: &'a [Zone],
    seen: Seen,
    /// The last walk that visited each node.
    stamp: Vec<u32>,
    stamps: u32,
}

impl Walk<'_> {
    fn own(&mut self, zone: usize) -> Vec<u32> {
        let zone = &self.zones[zone];
        let Some(begin) = &zone.begin else { return Vec::new() };
        let low = self.seen.by(begin.order);
        let Some(end) = &zone.end else { return self.hanging_on(begin, low) };
        let candidates = self.back_from(&end.frontier, low, |_| false);
        let own = self.on_frontier(&begin.frontier, candidates.clone());
        // A program may set a frontier as it likes: where nothing at the end hangs on the begin, all that leads there is the
        // zone's. A stream that only waited still has what it had.
        let is_set_anew = own.is_empty() && !end.frontier.iter().any(|node| begin.frontier.contains(node));
        if is_set_anew { candidates } else { own }
    }

    fn own_since_before(&mut self, zone: usize, own: &[Vec<u32>]) -> Vec<u32> {
        let zones = self.zones;
        let zone = &zones[zone];
        let low = self.seen.by_ns(zone.begin_ns);
        let is_earlier =
            |other: &Zone| other.stream != zone.stream && other.begin.is_some() && other.begin_ns < zone.begin_ns;
        let earlier: HashSet<u32> =
            zones.iter().zip(own).filter(|(other, _)| is_earlier(other)).flat_map(|(_, own)| own).copied().collect();
        let Some(end) = &zone.end else {
            let first =
                zones.iter().filter(|other| other.stream == zone.stream).filter_map(|other| other.begin.as_ref());
            return match first.min_by_key(|begin| begin.order) {
                Some(begin) if !earlier.is_empty() => self.hanging_on(begin, low),
                _ => (low..self.deps.len() as u32).collect(),
            };
        };
        let all = self.back_from(&end.frontier, low, |_| false);
        if earlier.is_empty() {
            return all;
        }
        // Where an earlier zone's stream went on by itself, this one's was forked off.
        let inside: HashSet<u32> = all.iter().copied().collect();
        let outside = (0..self.deps.len() as u32).filter(|node| !inside.contains(node));
        let forked: HashSet<u32> = outside.flat_map(|node| &self.deps[node as usize]).copied().collect();
        let is_fork = |node| forked.contains(&node) && earlier.contains(&node) && !end.frontier.contains(&node);
        self.back_from(&end.frontier, low, is_fork)
    }

    /// All nodes from the number `low` on that hang on this place.
    fn hanging_on(&mut self, begin: &Frontier, low: u32) -> Vec<u32> {
        let candidates = (low..self.deps.len() as u32).collect();
        self.on_frontier(&begin.frontier, candidates)
    }

    /// Those of these nodes that hang on the whole frontier, or on another one that does; all of them on an empty one.
    fn on_frontier(&mut self, frontier: &[u32], candidates: Vec<u32>) -> Vec<u32> {
        if frontier.is_empty() {
            return candidates;
        }
        let stamp = self.next_stamp();
        let mut own = Vec::new();
        for node in candidates {
            let deps = &self.deps[node as usize];
            let is_next = frontier.iter().all(|of| deps.contains(of));
            if is_next || deps.iter().any(|dep| self.stamp[*dep as usize] == stamp) {
                self.stamp[node as usize] = stamp;
                own.push(node);
            }
        }
        own
    }

    /// What hangs on own nodes and was there when the zone ended.
    fn further(&mut self, zone: usize, own: &[u32]) -> Vec<u32> {
        let (Some(&first), Some(end)) = (own.first(), &self.zones[zone].end) else { return Vec::new() };
        let high = self.seen.by(end.order);
        let stamp = self.next_stamp();
        own.iter().for_each(|&node| self.stamp[node as usize] = stamp);
        let mut further = Vec::new();
        for node in first + 1..high.min(self.deps.len() as u32) {
            if self.stamp[node as usize] != stamp
                && self.deps[node as usize].iter().any(|dep| self.stamp[*dep as usize] == stamp)
            {
                self.stamp[node as usize] = stamp;
                further.push(node);
            }
        }
        further
    }

    /// All nodes from the number `low` on that lead to these, in order.
    fn back_from(&mut self, to: &[u32], low: u32, is_cut: impl Fn(u32) -> bool) -> Vec<u32> {
        let stamp = self.next_stamp();
        let mut found = Vec::new();
        let mut next = to.to_vec();
        while let Some(node) = next.pop() {
            let Some(of) = self.stamp.get_mut(node as usize).filter(|of| **of != stamp && node >= low) else {
                continue;
            };
            *of = stamp;
            if !is_cut(node) {
                found.push(node);
                next.extend(&self.deps[node as usize]);
            }
        }
        found.sort_unstable();
        found
    }

    fn next_stamp(&mut self) -> u32 {
        self.stamps += 1;
        self.stamps
    }
}

/// The zone of the same stream around each zone.
fn parents(zones: &[Zone]) -> Vec<Option<u32>> {
    let mut order: Vec<usize> = (0..zones.len()).collect();
    order.sort_by_key(|&zone| began(zones, zone));
    let mut open: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut parents = vec![None; zones.len()];
    let end = |zone: usize| zones[zone].end.as_ref().map_or(u64::MAX, |end| end.order);
    for zone in order {
        let open = open.entry(zones[zone].stream).or_default();
        // Zones that overlap and do not nest have none but the ones around both.
        while open.last().is_some_and(|&last| end(last) < end(zone)) {
            open.pop();
        }
        parents[zone] = open.last().map(|&parent| parent as u32);
        open.push(zone);
    }
    parents
}

/// Zones in the order in which they began; those from before the capture first.
fn began(zones: &[Zone], zone: usize) -> (u64, i64, usize) {
    let of = &zones[zone];
    (of.begin.as_ref().map_or(0, |begin| begin.order + 1), of.begin_ns, zone)
}

/// Adds the zones around those that hold a node. `places` has where each zone stands among the holders, and 0 for none.
fn add_outer(holders: &mut Vec<Holder>, parents: &[Option<u32>], places: &mut [u32]) {
    for (place, holder) in (1..).zip(holders.iter()) {
        places[holder.zone as usize] = place;
    }
    let mut next = 0;
    while let Some(&Holder { zone, owns }) = holders.get(next) {
        next += 1;
        let mut outer = parents[zone as usize];
        while let Some(parent) = outer {
            match places[parent as usize] as usize {
                0 => {
                    holders.push(Holder { zone: parent, owns });
                    places[parent as usize] = holders.len() as u32;
                }
                // The ones around it are told when its turn comes, or were.
                place if holders[place - 1].owns || !owns => break,
                place => holders[place - 1].owns = true,
            }
            outer = parents[parent as usize];
        }
    }
    holders.iter().for_each(|holder| places[holder.zone as usize] = 0);
}

/// The zones of one node, outermost first.
fn order(holders: &[Holder], zones: &[Zone], sizes: &[u32]) -> Vec<u32> {
    // Of each stream: whether a zone of it owns the node, how many nodes its smallest zone has, and its zones.
    let mut streams: Vec<(usize, bool, u32, Vec<u32>)> = Vec::new();
    for &Holder { zone, owns } in holders {
        let (stream, size) = (zones[zone as usize].stream, sizes[zone as usize]);
        match streams.iter_mut().find(|(other, ..)| *other == stream) {
            Some((_, owned, smallest, of)) => {
                *owned |= owns;
                *smallest = (*smallest).min(size);
                of.push(zone);
            }
            None => streams.push((stream, owns, size, vec![zone])),
        }
    }
    for (.., of) in &mut streams {
        of.sort_by_key(|&zone| began(zones, zone as usize));
    }
    streams.sort_by_key(|(_, owned, smallest, of)| {
        let first = of.first().map(|&zone| began(zones, zone as usize));
        (*owned, Reverse(*smallest), first)
    });
    streams.into_iter().flat_map(|(.., of)| of).collect()
}

#[cfg(test)]
mod tests;
