//! Captures as a driver would make them, on streams that are numbers.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A capture in progress.
#[derive(Default)]
struct Capture {
    deps: Vec<Vec<u32>>,
    frontiers: HashMap<usize, Vec<u32>>,
    zones: Vec<Zone>,
    order: u64,
}

impl Capture {
    fn node(&mut self, stream: usize) -> u32 {
        let node = self.deps.len() as u32;
        self.deps.push(self.frontiers.insert(stream, vec![node]).unwrap_or_default());
        node
    }

    /// Makes `to` wait for all work on `from`.
    fn wait(&mut self, to: usize, from: usize) {
        let from = self.frontiers.get(&from).cloned().unwrap_or_default();
        let to = self.frontiers.entry(to).or_default();
        to.extend(from.into_iter().filter(|node| !to.contains(node)).collect::<Vec<_>>());
    }

    fn place(&mut self, stream: usize) -> Frontier {
        self.order += 1;
        let frontier = self.frontiers.get(&stream).cloned().unwrap_or_default();
        Frontier { order: self.order, ns: self.order as i64 * 10, frontier }
    }

    fn begin(&mut self, stream: usize) -> usize {
        let begin = self.place(stream);
        self.zones.push(Zone { stream, begin_ns: begin.ns, begin: Some(begin), end: None });
        self.zones.len() - 1
    }

    /// Begins a zone whose stream is not captured yet.
    fn begin_before(&mut self, stream: usize) -> usize {
        self.order += 1;
        self.zones.push(Zone { stream, begin_ns: self.order as i64 * 10, begin: None, end: None });
        self.zones.len() - 1
    }

    fn end(&mut self, zone: usize) {
        self.zones[zone].end = Some(self.place(self.zones[zone].stream));
    }

    fn paths(&self) -> Vec<Vec<u32>> {
        let paths = paths(&self.deps, &self.zones);
        paths.of.iter().map(|path| paths.paths[*path as usize].clone()).collect()
    }
}

#[test]
fn zones_within_one_another_hold_what_is_between() {
    let mut c = Capture::default();
    c.node(1);
    let outer = c.begin(1);
    c.node(1);
    let inner = c.begin(1);
    c.node(1);
    c.node(1);
    c.end(inner);
    c.node(1);
    c.end(outer);
    c.node(1);
    assert_eq!(c.paths(), [vec![], vec![0], vec![0, 1], vec![0, 1], vec![0], vec![]]);
}

#[test]
fn a_zone_that_begins_with_the_capture_has_all_until_its_end() {
    let mut c = Capture::default();
    let zone = c.begin(1);
    c.node(1);
    c.node(1);
    c.end(zone);
    c.node(1);
    assert_eq!(c.paths(), [vec![0], vec![0], vec![]]);
}

#[test]
fn two_streams_that_were_forked_before_keep_their_zones_apart() {
    let mut c = Capture::default();
    c.node(1);
    c.wait(2, 1);
    let (one, two) = (c.begin(1), c.begin(2));
    c.node(1);
    c.node(2);
    c.node(1);
    c.node(2);
    c.end(one);
    c.node(2);
    c.end(two);
    c.wait(1, 2);
    c.node(1);
    assert_eq!(c.paths(), [vec![], vec![0], vec![1], vec![0], vec![1], vec![1], vec![]]);
}

#[test]
fn what_another_stream_did_before_and_meanwhile_stays_its_own_also_where_it_is_joined() {
    let mut c = Capture::default();
    c.node(1);
    c.wait(2, 1);
    let copies = c.begin(2);
    c.node(2); // 1: before the zone
    c.end(copies);
    let zone = c.begin(1);
    c.node(1); // 2
    c.node(2); // 3: meanwhile, and forked before
    c.wait(1, 2);
    c.node(1); // 4: the zone's, behind both
    c.end(zone);
    assert_eq!(c.paths(), [vec![], vec![0], vec![1], vec![], vec![1]]);
}

#[test]
fn a_fork_inside_a_zone_that_is_joined_inside_belongs_to_it() {
    let mut c = Capture::default();
    c.node(1);
    let zone = c.begin(1);
    // The forks are at its begin and after its work, on streams with and without a zone.
    c.wait(2, 1);
    c.node(1); // 1
    c.node(2); // 2
    c.wait(3, 1);
    let there = c.begin(3);
    c.node(3); // 3
    c.end(there);
    c.wait(1, 2);
    c.wait(1, 3);
    c.node(1); // 4
    c.end(zone);
    assert_eq!(c.paths(), [vec![], vec![0], vec![0], vec![0, 1], vec![0]]);
}

#[test]
fn a_fork_inside_a_zone_that_is_joined_later_belongs_to_it_as_far_as_it_was_captured_in_it() {
    let mut c = Capture::default();
    c.node(1);
    let zone = c.begin(1);
    c.node(1); // 1
    c.wait(2, 1);
    let reduce = c.begin(2);
    c.node(2); // 2
    c.end(reduce);
    c.end(zone);
    c.node(2); // 3: after the zone
    c.node(1); // 4: after the zone
    c.wait(1, 2);
    c.node(1); // 5
    assert_eq!(c.paths(), [vec![], vec![0], vec![0, 1], vec![], vec![], vec![]]);
}

#[test]
fn a_long_zone_on_the_next_stream_is_outside_a_short_one_that_owns_its_nodes() {
    let mut c = Capture::default();
    c.node(1);
    let long = c.begin(1);
    for _ in 0..5 {
        c.node(1);
    }
    c.wait(2, 1);
    let short = c.begin(2);
    c.node(2);
    c.end(short);
    c.wait(1, 2);
    c.node(1);
    c.end(long);
    assert_eq!(c.paths()[6], [0, 1]);
    assert_eq!(c.paths()[7], [0]);
}

#[test]
fn a_zone_that_outlives_the_capture_has_what_hangs_on_its_begin() {
    let mut c = Capture::default();
    c.node(1);
    c.wait(2, 1);
    c.node(2); // 1
    let zone = c.begin(2);
    c.node(1); // 2
    c.node(2); // 3
    c.wait(1, 2);
    c.node(1); // 4
    assert_eq!(c.zones[zone].end.as_ref().map(|end| end.order), None);
    assert_eq!(c.paths(), [vec![], vec![], vec![], vec![0], vec![0]]);
}

#[test]
fn a_zone_from_before_the_capture_has_all_of_it_until_its_end() {
    let mut c = Capture::default();
    let ended = c.begin_before(1);
    let over = c.begin_before(1);
    c.node(1);
    let inner = c.begin(1);
    c.node(1);
    c.end(inner);
    c.end(ended);
    c.node(1);
    let _ = over;
    assert_eq!(c.paths(), [vec![0, 1], vec![0, 1, 2], vec![1]], "by begin, where the end is open");
}

#[test]
fn a_zone_on_the_next_stream_that_began_before_the_fork_has_what_is_behind_it() {
    let mut c = Capture::default();
    let outer = c.begin(1);
    c.node(1); // 0
    c.node(1); // 1
    let forked = c.begin_before(2);
    c.wait(2, 1);
    c.node(2); // 2
    c.end(forked);
    c.wait(1, 2);
    c.node(1); // 3
    c.end(outer);
    assert_eq!(c.paths(), [vec![0], vec![0], vec![0, 1], vec![0]]);
}

#[test]
fn overlapping_zones_of_one_stream_both_hold_what_both_saw() {
    let mut c = Capture::default();
    let first = c.begin(1);
    c.node(1);
    let second = c.begin(1);
    c.node(1);
    c.end(first);
    c.node(1);
    c.end(second);
    assert_eq!(c.paths(), [vec![0], vec![0, 1], vec![1]]);
}

#[test]
fn an_empty_zone_has_nothing() {
    let mut c = Capture::default();
    c.node(1);
    let zone = c.begin(1);
    c.end(zone);
    c.node(1);
    assert_eq!(c.paths(), [Vec::<u32>::new(), Vec::new()]);
}

#[test]
fn many_nested_zones_cost_as_many_steps_as_they_have_nodes() {
    const DEPTH: usize = 64;
    let mut c = Capture::default();
    let zones: Vec<_> = (0..DEPTH)
        .map(|_| {
            let zone = c.begin(1);
            for _ in 0..16 {
                c.node(1);
            }
            zone
        })
        .collect();
    zones.into_iter().rev().for_each(|zone| c.end(zone));
    let paths = paths(&c.deps, &c.zones);
    assert_eq!(paths.paths.len(), DEPTH + 1, "one path a depth");
    assert!((0..DEPTH * 16).all(|node| paths.paths[paths.of[node] as usize].len() == node / 16 + 1));
}

#[test]
fn nodes_that_a_driver_gives_in_another_order_come_behind_what_they_depend_on() {
    assert_eq!(topological(&[vec![], vec![0], vec![0, 1]]), None);
    assert_eq!(topological(&[vec![2], vec![0], vec![], vec![]]), Some(vec![2, 0, 1, 3]));
}

/// A step of a capture on four streams, which all depend on the first one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Node(usize),
    Wait(usize, usize),
    Begin(usize),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = 0..4_usize;
    let step = prop_oneof![
        4 => stream.clone().prop_map(Step::Node),
        2 => (stream.clone(), stream.clone()).prop_map(|(to, from)| Step::Wait(to, from)),
        2 => stream.clone().prop_map(Step::Begin),
        2 => stream.prop_map(Step::End),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn whatever_is_captured_a_zone_has_what_its_stream_did_and_nothing_that_does_not_hang_on_its_begin(steps in steps()) {
        let mut c = Capture::default();
        c.node(0);
        (1..4).for_each(|stream| c.wait(stream, 0));
        let mut open: [Vec<usize>; 4] = Default::default();
        // For each zone, the nodes of its stream.
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for step in steps {
            match step {
                Step::Node(stream) => {
                    let node = c.node(stream);
                    open[stream].iter().for_each(|zone| expected[*zone].push(node));
                }
                Step::Wait(to, from) => c.wait(to, from),
                Step::Begin(stream) => {
                    expected.push(Vec::new());
                    open[stream].push(c.begin(stream));
                }
                Step::End(stream) => {
                    if let Some(zone) = open[stream].pop() {
                        c.end(zone);
                    }
                }
            }
        }
        let paths = c.paths();
        // The nodes that lead to each node.
        let mut leads: Vec<Vec<bool>> = Vec::new();
        for deps in &c.deps {
            let mut all = vec![false; c.deps.len()];
            for &dep in deps {
                all[dep as usize] = true;
                leads[dep as usize].iter().enumerate().for_each(|(node, leads)| all[node] |= leads);
            }
            leads.push(all);
        }
        for (zone, own) in expected.iter().enumerate() {
            let has = |node: usize| paths[node].contains(&(zone as u32));
            for &node in own {
                prop_assert!(has(node as usize), "zone {zone} lacks node {node} of its stream: {paths:?}");
            }
            let begin = c.zones[zone].begin.as_ref().map_or(&[][..], |begin| &begin.frontier);
            for node in (0..c.deps.len()).filter(|node| has(*node)) {
                let hangs = begin.iter().any(|begin| leads[node][*begin as usize]);
                prop_assert!(hangs, "node {node} does not hang on where zone {zone} began");
                prop_assert!(!begin.contains(&(node as u32)), "node {node} was there when zone {zone} began");
            }
        }
        for path in &paths {
            let mut sorted = path.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), path.len(), "a zone twice in a path");
            // Zones of one stream are in their nesting order.
            for (at, inner) in path.iter().enumerate() {
                let is_later = |outer: &&u32| {
                    let (outer, inner) = (&c.zones[**outer as usize], &c.zones[*inner as usize]);
                    let order = |zone: &Zone| zone.begin.as_ref().map(|begin| begin.order);
                    outer.stream == inner.stream && order(outer) > order(inner)
                };
                prop_assert!(path[..at].iter().find(is_later).is_none(), "zones of one stream out of order: {path:?}");
            }
        }
    }
}
