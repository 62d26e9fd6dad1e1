//! Random graphs of work on several queues, with signals of the host and failures in them: every edge has to hold, every
//! failure has to reach exactly what depends on it, and all has to end.
#![allow(dead_code, reason = "not every program runs all of them")]

use std::sync::Arc;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use warpline::timeline::{Queue, Semaphore, wait_all};

use super::device::*;

/// A graph: what a node depends on comes before it in the list.
#[derive(Clone, Debug)]
pub struct Graph {
    queues: usize,
    nodes: Vec<Node>,
    /// The order in which nodes are submitted.
    order: Vec<usize>,
}

/// An edge as a trace has to show it: from who signals to who waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub semaphore: String,
    pub value: u64,
    /// The queue whose submission signals; none for a thread of the program.
    pub from: Option<String>,
    /// A stream signals, and no thread.
    pub from_stream: bool,
    /// The queue whose submission waits; none for a thread of the program, which then waits itself.
    pub to: Option<String>,
}

fn queue_name(at: usize) -> String {
    format!("graph {at}")
}

fn semaphore_name(at: usize) -> String {
    format!("node {at}")
}

#[derive(Clone, Debug)]
struct Node {
    queue: usize,
    kind: Kind,
    /// The values that its semaphore goes to; others wait for that or less.
    value: u64,
    after: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Work,
    HostCall,
    /// A thread signals it.
    Host,
    /// Its work fails.
    Fails,
    /// A thread fails it.
    HostFails,
}

/// So many nodes of a graph.
pub type Nodes = std::ops::RangeInclusive<usize>;

/// Of a hundred nodes of a graph, so many fail by themselves, and as many are failed by a thread. Most of what comes after
/// them fails with them, so there are few in a graph of which most waits are to happen.
pub type Failing = u32;

/// Graphs with so many nodes and edges into each.
pub fn graphs(nodes: Nodes, edges: usize, failing: Failing) -> impl Strategy<Value = Graph> {
    let node =
        (any::<prop::sample::Index>(), 0..100_u32, 1..5_u64, vec((any::<prop::sample::Index>(), 1..5_u64), 0..=edges));
    (2..=8_usize, vec(node, nodes), any::<u64>()).prop_map(move |(queues, drawn, seed)| {
        let mut nodes: Vec<Node> = Vec::new();
        for (at, (queue, kind, value, after)) in drawn.into_iter().enumerate() {
            let kind = match kind {
                0..75 => Kind::Work,
                75..85 => Kind::HostCall,
                drawn if drawn >= 100 - failing => Kind::Fails,
                drawn if drawn >= 100 - 2 * failing => Kind::HostFails,
                _ => Kind::Host,
            };
            let mut after: Vec<(usize, u64)> = if at == 0 || kind.is_of_host() {
                Vec::new()
            } else {
                after.into_iter().map(|(on, value)| (on.index(at), value)).collect()
            };
            after.sort_unstable();
            after.dedup_by_key(|(on, _)| *on);
            for (on, value) in &mut after {
                *value = (*value).min(nodes[*on].value);
            }
            nodes.push(Node { queue: queue.index(queues), kind, value, after });
        }
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        // Any order will do, as long as it is another one each time.
        order.sort_by_key(|at| (*at as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
        Graph { queues, nodes, order }
    })
}

impl Kind {
    /// Whether a thread signals or fails it, and no queue.
    fn is_of_host(self) -> bool {
        matches!(self, Kind::Host | Kind::HostFails)
    }

    /// Whether it fails though nothing before it does.
    fn fails(self) -> bool {
        matches!(self, Kind::Fails | Kind::HostFails)
    }
}

impl Graph {
    /// How many edges there are whose wait happens: what fails with what it depends on never waits.
    pub fn waits(&self) -> usize {
        self.arrows().iter().filter(|arrow| arrow.to.is_some()).count()
    }

    /// The codes of the nodes that a node fails with, if it does.
    fn failures(&self) -> Vec<Vec<Code>> {
        let mut failures: Vec<Vec<Code>> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let mut codes: Vec<Code> = node.after.iter().flat_map(|(on, _)| failures[*on].clone()).collect();
            // It fails by itself only if its work is called.
            if node.kind.fails() && codes.is_empty() {
                codes.push(Code(at as u32));
            }
            codes.sort_unstable_by_key(|code| code.0);
            codes.dedup();
            failures.push(codes);
        }
        failures
    }

    /// Every edge whose wait happens, and every wait of [`run`](Self::run) itself, in order.
    pub fn arrows(&self) -> Vec<Arrow> {
        let failures = self.failures();
        let arrow = |on: usize, value, to| Arrow {
            semaphore: semaphore_name(on),
            value,
            from: (self.nodes[on].kind != Kind::Host).then(|| queue_name(self.nodes[on].queue)),
            from_stream: self.nodes[on].kind == Kind::Work,
            to,
        };
        let mut arrows = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            // What fails with what it depends on is never issued; what fails by itself has waited first.
            if node.after.iter().all(|(on, _)| failures[*on].is_empty()) {
                let edges = node.after.iter().map(|(on, value)| arrow(*on, *value, Some(queue_name(node.queue))));
                arrows.extend(edges);
            }
            if failures[at].is_empty() {
                // It is waited for alone, and then with all others.
                arrows.extend([(); 2].map(|()| arrow(at, node.value, None)));
            }
        }
        arrows.sort_unstable();
        arrows
    }

    /// Runs it on a device.
    pub fn run<D: Device>(&self, device: &D) {
        let capacity = self.nodes.len();
        let queue = |at| {
            let streams: Vec<_> = (0..1 + at % 2).map(|_| device.stream()).collect();
            Queue::<D::Stream>::builder(&queue_name(at)).capacity(capacity).build(streams).expect("a thread")
        };
        let queues: Vec<_> = (0..self.queues).map(queue).collect();
        let done: Vec<Semaphore> = (0..capacity).map(|at| Semaphore::named(&semaphore_name(at), 0)).collect();
        // A node writes its own word, after it has copied those of the nodes before it.
        let words: Arc<Vec<D::Word>> = Arc::new((0..capacity).map(|_| device.word()).collect());
        let copies: Vec<Vec<D::Word>> =
            self.nodes.iter().map(|node| node.after.iter().map(|_| device.word()).collect()).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                for at in self.order.iter().copied().filter(|at| self.nodes[*at].kind == Kind::Host) {
                    done[at].signal(self.nodes[at].value).expect("nobody else does");
                }
            });
            scope.spawn(|| {
                for at in self.order.iter().copied().filter(|at| self.nodes[*at].kind == Kind::HostFails) {
                    assert!(done[at].fail(Code(at as u32)), "nobody else does");
                    assert!(!done[at].fail(Code(u32::MAX)), "the first failure stays");
                }
            });
            for at in self.order.iter().copied() {
                self.submit::<D>(at, &queues, &done, &words, &copies[at]);
            }
        });
        for ((node, done), failures) in self.nodes.iter().zip(&done).zip(self.failures()) {
            let ended = done.wait(node.value, LONG);
            if failures.is_empty() {
                ended.unwrap_or_else(|error| panic!("{error}"));
                check_value(done, node.value);
            } else {
                let code = code_of(ended);
                assert!(failures.contains(&code), "{code}, and not any of {failures:?}");
            }
        }
        for ((node, copies), failures) in self.nodes.iter().zip(&copies).zip(self.failures()) {
            if node.kind != Kind::Work || !failures.is_empty() {
                continue;
            }
            for ((on, _), copy) in node.after.iter().zip(copies) {
                let expected = if self.nodes[*on].kind == Kind::Work { *on as u32 + 1 } else { 0 };
                if let Some(word) = device.read(copy) {
                    assert_eq!(word, expected, "the edge from node {on} did not hold");
                }
            }
        }
        assert!(queues.iter().all(|queue| queue.flush() == 0), "nothing is held back");
        let live: Vec<_> = done.iter().zip(&self.nodes).filter(|(done, _)| done.failure().is_none()).collect();
        let pairs: Vec<_> = live.iter().map(|(done, node)| (*done, node.value)).collect();
        wait_all(&pairs, LONG).expect("all are there");
    }

    fn submit<D: Device>(
        &self,
        at: usize,
        queues: &[Queue<D::Stream>],
        done: &[Semaphore],
        words: &Arc<Vec<D::Word>>,
        copies: &[D::Word],
    ) {
        let node = &self.nodes[at];
        let waits: Vec<_> = node.after.iter().map(|(on, value)| (&done[*on], *value)).collect();
        let signals = [(&done[at], node.value)];
        let queue = &queues[node.queue];
        match node.kind {
            Kind::Host | Kind::HostFails => Ok(()),
            Kind::HostCall => queue.submit_host(&waits, &signals, |_| Ok(())),
            Kind::Fails => queue.submit(&waits, &signals, move |_| Err(Code(at as u32).into())),
            Kind::Work => {
                let (words, copies) = (Arc::clone(words), copies.to_vec());
                let after: Vec<usize> = node.after.iter().map(|(on, _)| *on).collect();
                queue.submit(&waits, &signals, move |stream| {
                    for (on, copy) in after.iter().zip(&copies) {
                        D::copy(stream, &words[*on], copy);
                    }
                    D::write(stream, &words[at], at as u32 + 1);
                    Ok(())
                })
            }
        }
        .expect("there is room");
    }
}

/// Runs random graphs of up to so many nodes, with failures in them, and one of which thousands of edges are waited for.
pub fn random_graphs<D: Device>(device: &D, cases: u32, nodes: usize) {
    each_random_graph(cases, nodes, |graph| graph.run(device));
}

/// Gives such graphs to `check`.
pub fn each_random_graph(cases: u32, nodes: usize, check: impl Fn(&Graph)) {
    let run = |cases, nodes: Nodes, failing, least| {
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&graphs(nodes, 8, failing), |graph| {
            assert!(graph.waits() >= least, "{} of its edges are waited for", graph.waits());
            check(&graph);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    };
    run(cases, 1..=nodes, 2, 0);
    run(1, 1500..=1500, 0, 3000);
}
