//! Finds the nodes of each zone in a captured graph. Nodes and zones are numbers, and no driver is called.
//!
//! A zone has two positions in the capture: the *frontier* of its stream (the nodes on which the next node will depend) at its begin and at
//! its end. Nodes are numbered in the order in which they were captured. The nodes of a frontier existed when it was read, as did every
//! node before them. This is a lower bound of what was captured when a zone began or ended, on all streams of the capture.
//!
//! * **Own** nodes of a zone lead to its end frontier, did not exist at its begin, and depend on its whole begin frontier or on another own
//!   node. The stream's next nodes do so, as do the nodes that wait for the stream. A fork inside the zone that is joined again therefore
//!   belongs to it, even if the other stream has zones of its own. The work of a stream that was forked off before the zone does not, even
//!   if the zone joins it.
//! * **Further** nodes depend on an own node, do not lead to the end, and certainly existed when the zone ended: a fork inside the zone
//!   that is joined later or never.
//! * A zone that outlives its capture owns the nodes that depend on its begin.
//! * A zone that began before its stream was captured has no begin frontier, and owns the nodes that lead to its end. If zones of other
//!   streams in the capture began before it, its stream was forked off, and it owns only those back to the fork.
//! * A zone within another of the same stream has no node that the outer one lacks.
//!
//! The *path* of a node contains its zones from the outermost to the innermost. Streams whose zones have it only as a further node come
//! first, then the streams that own it. In both groups, the stream with the smallest zone is last. The zones of one stream are in their
//! nesting order.
//!
//! The walk runs when the zones of a registered graph are needed. Its cost is proportional to the zones' nodes in total.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The frontier of a stream at a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Frontier {
    /// Counts the queries of all streams.
    pub(super) order: u64,
    pub(super) ns: i64,
    pub(super) frontier: Vec<u32>,
}

/// A zone in its capture.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) stream: usize,
    /// None if the zone began before its stream was captured.
    pub(super) begin: Option<Frontier>,
    /// When the zone began on the host.
    pub(super) begin_ns: i64,
    /// None if the zone ended after the capture.
    pub(super) end: Option<Frontier>,
}

/// The zones of each node.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// The position of each node's path in `paths`.
    pub(super) of: Vec<u32>,
    /// The first one is empty.
    pub(super) paths: Vec<Vec<u32>>,
}

/// A zone to which a node belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    zone: u32,
    owns: bool,
}

/// Returns the paths of `deps.len()` nodes, each of which depends on the nodes in its list.
pub(super) fn paths(deps: &[Vec<u32>], zones: &[Zone]) -> Paths {
    let mut walk = Walk { deps, zones, seen: Seen::new(zones), stamp: vec![0; deps.len()], stamps: 0 };
    let mut holders: Vec<Vec<Holder>> = vec![Vec::new(); deps.len()];
    let mut own: Vec<Vec<u32>> = vec![Vec::new(); zones.len()];
    // Zones without a begin are limited by the others.
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
        // Successive nodes often have the same zones.
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

/// Returns an order in which each node comes after those that it depends on, as close to the given one as possible; none if that is such an
/// order, as the order of a capture is.
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
    // No graph of the driver has a cycle; one with a cycle would have no order.
    (order.len() == deps.len()).then_some(order)
}

/// The lower bounds of the number of nodes, from the frontiers that were read.
struct Seen {
    /// Order, time and count, by order; counts never decrease.
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

    /// Returns the number of nodes that existed at the query of this order.
    fn by(&self, order: u64) -> u32 {
        let until = self.at.partition_point(|(other, ..)| *other <= order);
        until.checked_sub(1).map_or(0, |last| self.at[last].2)
    }

    /// Returns the number of nodes that existed at this time.
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
        // A program may set a frontier: if nothing at the end depends on the begin, the zone owns all that leads to the end. A stream that
        // only waited still has nodes of its begin.
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
        // This zone's stream was forked off where an earlier zone's stream continued by itself.
        let inside: HashSet<u32> = all.iter().copied().collect();
        let outside = (0..self.deps.len() as u32).filter(|node| !inside.contains(node));
        let forked: HashSet<u32> = outside.flat_map(|node| &self.deps[node as usize]).copied().collect();
        let is_fork = |node| forked.contains(&node) && earlier.contains(&node) && !end.frontier.contains(&node);
        self.back_from(&end.frontier, low, is_fork)
    }

    /// Returns the nodes from `low` on that depend on this frontier.
    fn hanging_on(&mut self, begin: &Frontier, low: u32) -> Vec<u32> {
        let candidates = (low..self.deps.len() as u32).collect();
        self.on_frontier(&begin.frontier, candidates)
    }

    /// Returns the candidates that depend on the whole frontier, or on another such candidate; all for an empty frontier.
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

    /// Returns the other nodes that depend on own nodes and existed when the zone ended.
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

    /// Returns the nodes from `low` on that lead to these, in order. Does not go beyond a cut.
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

/// Returns the zone of the same stream around each zone.
fn parents(zones: &[Zone]) -> Vec<Option<u32>> {
    let mut order: Vec<usize> = (0..zones.len()).collect();
    order.sort_by_key(|&zone| began(zones, zone));
    let mut open: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut parents = vec![None; zones.len()];
    let end = |zone: usize| zones[zone].end.as_ref().map_or(u64::MAX, |end| end.order);
    for zone in order {
        let open = open.entry(zones[zone].stream).or_default();
        // Zones that overlap without nesting have only the zones around both as parents.
        while open.last().is_some_and(|&last| end(last) < end(zone)) {
            open.pop();
        }
        parents[zone] = open.last().map(|&parent| parent as u32);
        open.push(zone);
    }
    parents
}

/// Returns the sort key of a zone by its begin; zones from before the capture come first.
fn began(zones: &[Zone], zone: usize) -> (u64, i64, usize) {
    let of = &zones[zone];
    (of.begin.as_ref().map_or(0, |begin| begin.order + 1), of.begin_ns, zone)
}

/// Adds the zones around the holders of a node. `places` has each zone's position among the holders, and 0 for none.
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
                // The zones around it were added, or are added in its turn.
                place if holders[place - 1].owns || !owns => break,
                place => holders[place - 1].owns = true,
            }
            outer = parents[parent as usize];
        }
    }
    holders.iter().for_each(|holder| places[holder.zone as usize] = 0);
}

/// Returns the zones of one node, outermost first.
fn order(holders: &[Holder], zones: &[Zone], sizes: &[u32]) -> Vec<u32> {
    // For each stream: whether a zone of it owns the node, the number of nodes of its smallest zone, and its zones.
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
