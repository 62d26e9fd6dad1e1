//! Kernels in bodies of conditional nodes and in child graphs, on the stub CUPTI, as CUPTI of CUDA 13.0 reports them on an H100: with the
//! executable graph's id, numbers behind those of the graph's own nodes, and in bodies without a launch.

use std::ffi::CStr;

use warpline::graph::GraphZones;
use warpline::record::ReplayRecord;
use warpline::sink::MemorySink;
use warpline::{RangeSpec, Session};
use warpline_tests::this_test;

use crate::harness::cupti::*;
use crate::harness::driver::{self, Stub};
use crate::harness::graphs::{IF, SWITCH, WHILE, exec_id, instantiate, pointer, raw_graph, register};
use crate::harness::zones::{self, assert_exact};

warpline::range! {
    LAYER = "stub.cupti_conditional.layer": "A layer.";
    STEP = "stub.cupti_conditional.step": "A step of a loop.";
    ATTENTION = "stub.cupti_conditional.attention": "Attention.", lane = "attention";
    MLP = "stub.cupti_conditional.mlp": "Feed-forward.", lane = "mlp";
}

const BEGIN_NS: u64 = 1_000_000_000;

/// What the stub driver calls every kernel.
const NAME: &CStr = c"stub_kernel";

/// A kernel of the graph itself that begins a launch, another one of it, and one that names no launch.
const FIRST: u32 = 0;
const MORE: u32 = 1;
const ADRIFT: u32 = 2;

fn start() -> (Session, MemorySink) {
    zones::start(|builder| builder.kernels(true))
}

fn label(graph: driver::Handle, nodes: &[driver::Handle], range: &'static RangeSpec) {
    let nodes = nodes.iter().map(|node| pointer(*node));
    GraphZones::label(&raw_graph(graph, 0), nodes, range, &[]).expect("nodes of the graph");
}

/// A kernel of a replay that runs for 10 us, from so many us on.
fn ran(cupti: &Cupti, exec: u64, node: u64, at_us: u64, how: u32) {
    named(cupti, exec, node, at_us, how, NAME);
}

fn named(cupti: &Cupti, exec: u64, node: u64, at_us: u64, how: u32, name: &'static CStr) {
    let begin_ns = BEGIN_NS + at_us * 1_000;
    let stream = if how == ADRIFT { 14 } else { 7 };
    let end_ns = begin_ns + 10_000;
    let (graph, node) = (exec as u32, exec << 32 | node);
    cupti.launch(Launch { graph, node, is_more: how, begin_ns, end_ns, stream, ..kernel(name) });
}

/// Each zone with its kernels, its begin in us after the replay's, and its length in us.
fn zones_of(replay: &ReplayRecord) -> Vec<(&'static str, u32, i64, i64)> {
    let of = |of: &warpline::record::ReplayedZone| {
        let gpu = of.zone.gpu.expect("timed");
        let name = of.zone.range.name().trim_start_matches("stub.cupti_conditional.");
        (name, of.kernels, (gpu.begin_ns - replay.gpu.begin_ns) / 1_000, gpu.duration_ns() / 1_000)
    };
    replay.zones.iter().map(of).collect()
}

/// A graph of a kernel (0), a loop (1) and a kernel (2), and the loop's body: of attention (3) and of the MLP (4), both in the step.
struct Loop {
    zones: GraphZones,
    _body: GraphZones,
    exec: u64,
}

impl Loop {
    fn new(driver: &Stub) -> Loop {
        // As CUDA 13.1's driver does; CUPTI's ids are the same.
        driver.stub_tells_ids(true);
        let graph = driver.graph();
        let first = driver.add_kernel(graph, &[]);
        let (node, bodies) = driver.add_conditional(graph, &[first], WHILE, 3, 1);
        driver.add_kernel(graph, &[node]);
        label(graph, &[node], &LAYER);
        let one = driver.add_kernel(bodies[0], &[]);
        let two = driver.add_kernel(bodies[0], &[one]);
        label(bodies[0], &[one, two], &STEP);
        label(bodies[0], &[one], &ATTENTION);
        label(bodies[0], &[two], &MLP);
        let exec = instantiate(driver, graph);
        let (zones, body) = (register(graph, exec), register(bodies[0], 0));
        assert_eq!(zones.unlabelled().len(), 1);
        zones.inside(1, &body).expect("a body");
        Loop { zones, _body: body, exec: u64::from(exec_id(driver, exec)) }
    }

    /// A launch: 0, then three iterations of 3 and 4, then 2. Records of bodies come after the others, and not in order.
    fn run(&self, cupti: &Cupti, at_us: u64) {
        ran(cupti, self.exec, 0, at_us, FIRST);
        ran(cupti, self.exec, 2, at_us + 100, MORE);
        for iteration in 0..3 {
            ran(cupti, self.exec, 4, at_us + 30 + iteration * 20, ADRIFT);
            ran(cupti, self.exec, 3, at_us + 20 + iteration * 20, ADRIFT);
        }
    }
}

#[test]
fn each_iteration_of_a_loop_is_a_zone_of_its_own_in_the_replay_around_it() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let graph = Loop::new(driver);
        assert_eq!(graph.zones.nodes().count(), 5);
        graph.run(cupti, 0);
        graph.run(cupti, 110);
        let report = session.finish();
        assert_exact(&report);
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 2, "{replays:?}");
        for replay in &replays {
            assert_eq!((replay.kernels, replay.unplaced, replay.gpu.duration_ns()), (8, 0, 110_000), "{replay:?}");
            assert_ne!(replay.correlation, 0);
            assert_eq!(
                zones_of(replay),
                [
                    ("layer", 6, 20, 60),
                    ("step", 2, 20, 20),
                    ("attention", 1, 20, 10),
                    ("mlp", 1, 30, 10),
                    ("step", 2, 40, 20),
                    ("attention", 1, 40, 10),
                    ("mlp", 1, 50, 10),
                    ("step", 2, 60, 20),
                    ("attention", 1, 60, 10),
                    ("mlp", 1, 70, 10),
                ]
            );
            assert_eq!(replay.zones[2].lane.as_deref(), Some("attention"));
        }
        assert_eq!(replays[1].gpu.begin_ns - replays[0].gpu.begin_ns, 110_000);
        assert!(report.notes.iter().all(|note| !note.contains("conditional")), "{report}");
    });
}

#[test]
fn bodies_before_and_behind_all_other_work_belong_to_the_replay_that_the_graph_shows() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        // An `if` in front (0), a kernel (1), and a `switch` behind it (2); their bodies are 3, and 4 and 5.
        let graph = driver.graph();
        let (front, bodies) = driver.add_conditional(graph, &[], IF, 1, 1);
        let middle = driver.add_kernel(graph, &[front]);
        let (_, branches) = driver.add_conditional(graph, &[middle], SWITCH, 1, 2);
        let one = driver.add_kernel(bodies[0], &[]);
        label(bodies[0], &[one], &ATTENTION);
        let others = branches.iter().map(|branch| (*branch, driver.add_kernel(*branch, &[])));
        others.for_each(|(branch, node)| label(branch, &[node], if branch == branches[0] { &STEP } else { &MLP }));
        let exec = instantiate(driver, graph);
        let (zones, body) = (register(graph, exec), register(bodies[0], 0));
        let branches = [register(branches[0], 0), register(branches[1], 0)];
        zones.inside(0, &body).expect("a body");
        assert!(zones.bodies(2, &[]).expect_err("none").to_string().contains("no body of node 2"));
        assert!(zones.bodies(1, &[&body]).expect_err("a kernel").to_string().contains("no graph inside"));
        zones.bodies(2, &[&branches[0], &branches[1]]).expect("two bodies");
        let exec = u64::from(exec_id(driver, exec));
        for at_us in [0, 50] {
            ran(cupti, exec, 3, at_us, ADRIFT);
            ran(cupti, exec, 1, at_us + 15, FIRST);
            ran(cupti, exec, 5, at_us + 30, ADRIFT);
        }
        assert_exact(&session.finish());
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 2, "{replays:?}");
        for replay in &replays {
            assert_eq!((replay.kernels, replay.gpu.duration_ns()), (3, 40_000), "{replay:?}");
            assert_eq!(zones_of(replay), [("attention", 1, 0, 10), ("mlp", 1, 30, 10)]);
        }
    });
}

#[test]
fn a_body_whose_graph_launches_nothing_else_is_counted_and_in_no_replay() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        let graph = driver.graph();
        let (_, bodies) = driver.add_conditional(graph, &[], WHILE, 2, 1);
        driver.add_kernel(bodies[0], &[]);
        let exec = instantiate(driver, graph);
        let (zones, body) = (register(graph, exec), register(bodies[0], 0));
        zones.inside(0, &body).expect("a body");
        let exec = u64::from(exec_id(driver, exec));
        ran(cupti, exec, 1, 0, ADRIFT);
        ran(cupti, exec, 1, 20, ADRIFT);
        let report = session.finish();
        assert!(sink.take_replays().is_empty());
        assert_eq!(sink.take_kernels().len(), 2, "they are kernels as others are");
        let notes: Vec<_> = report.notes.iter().filter(|note| note.contains("conditional nodes")).collect();
        assert!(
            matches!(&notes[..], [note] if note.starts_with("2 kernels in bodies of conditional nodes count in no replay")),
            "{report}"
        );
    });
}

#[test]
fn a_driver_that_numbers_otherwise_is_noticed_by_the_names_of_kernels() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let graph = Loop::new(driver);
        ran(cupti, graph.exec, 0, 0, FIRST);
        ran(cupti, graph.exec, 2, 100, MORE);
        // Not the name of the node that has this number.
        named(cupti, graph.exec, 3, 20, ADRIFT, c"another_kernel");
        ran(cupti, graph.exec, 4, 30, ADRIFT);
        let report = session.finish();
        let replay = sink.take_replays().pop().expect("a replay");
        assert_eq!((replay.kernels, replay.unplaced), (4, 2), "{replay:?}");
        assert_eq!(
            zones_of(&replay),
            [("layer", 1, 30, 10), ("step", 1, 30, 10)],
            "what all its possible nodes have in common"
        );
        let notes: Vec<_> = report.notes.iter().filter(|note| note.contains("executed by no known node")).collect();
        assert!(matches!(&notes[..], [note] if note.starts_with("2 kernels")), "{report}");
    });
}

#[test]
fn a_driver_that_describes_bodies_needs_no_word_of_the_program() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // As CUDA 13.2's driver does.
        driver.stub_tells_ids(true);
        driver.stub_tells_bodies(true);
        let (session, sink) = start();
        let graph = driver.graph();
        let first = driver.add_kernel(graph, &[]);
        let (node, bodies) = driver.add_conditional(graph, &[first], IF, 1, 2);
        let nodes: Vec<_> = bodies.iter().map(|body| driver.add_kernel(*body, &[])).collect();
        label(graph, &[node], &LAYER);
        label(graph, &nodes[1..], &MLP);
        let exec = instantiate(driver, graph);
        let zones = register(graph, exec);
        assert!(zones.unlabelled().is_empty());
        let within: Vec<_> = zones.nodes().map(|node| (node.within, node.zones.len())).collect();
        assert_eq!(within, [(None, 0), (None, 1), (Some(1), 1), (Some(1), 2)]);
        let one = register(bodies[0], 0);
        let refused = zones.inside(1, &one).expect_err("it has two");
        assert!(refused.to_string().contains("has 2 graphs inside and 1 were given"), "{refused}");
        let exec = u64::from(exec_id(driver, exec));
        ran(cupti, exec, 0, 0, FIRST);
        ran(cupti, exec, 3, 20, ADRIFT);
        assert_exact(&session.finish());
        let replay = sink.take_replays().pop().expect("a replay");
        assert_eq!((replay.unplaced, zones_of(&replay)), (0, vec![("layer", 1, 20, 10), ("mlp", 1, 20, 10)]));
    });
}

#[test]
fn kernels_of_equal_child_graphs_are_told_apart_by_their_numbers() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        let child = driver.graph();
        let one = driver.add_kernel(child, &[]);
        driver.add_kernel(child, &[one]);
        let graph = driver.graph();
        // Nodes 0 to 3; the children's are 4 and 5, and 6 and 7.
        let first = driver.add_kernel(graph, &[]);
        let attention = driver.add_child(graph, &[first], child);
        let mlp = driver.add_child(graph, &[attention], child);
        driver.add_kernel(graph, &[mlp]);
        label(graph, &[attention], &ATTENTION);
        label(graph, &[mlp], &MLP);
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        let exec = u64::from(exec_id(driver, exec));
        for (at, node) in [0, 4, 5, 6, 7, 3].into_iter().enumerate() {
            ran(cupti, exec, node, at as u64 * 10, if at == 0 { FIRST } else { MORE });
        }
        assert_exact(&session.finish());
        let replay = sink.take_replays().pop().expect("a replay");
        assert_eq!((replay.kernels, replay.unplaced), (6, 0), "{replay:?}");
        assert_eq!(zones_of(&replay), [("attention", 2, 10, 20), ("mlp", 2, 30, 20)]);
    });
}

#[test]
fn a_replay_keeps_so_many_zones_and_the_report_counts_those_of_later_iterations() {
    const ITERATIONS: u64 = 5_000;
    const MOST: usize = 4_096;
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let graph = Loop::new(driver);
        ran(cupti, graph.exec, 0, 0, FIRST);
        (0..ITERATIONS).for_each(|iteration| ran(cupti, graph.exec, 3, 20 + iteration * 20, ADRIFT));
        ran(cupti, graph.exec, 2, 20 + ITERATIONS * 20, MORE);
        let report = session.finish();
        assert_exact(&report);
        let replay = sink.take_replays().pop().expect("a replay");
        assert_eq!((u64::from(replay.kernels), replay.zones.len()), (ITERATIONS + 2, MOST));
        // The layer has all of them; step and attention are those of the first iterations.
        assert_eq!(
            zones_of(&replay)[..3],
            [("layer", 5_000, 20, 99_990), ("step", 1, 20, 10), ("attention", 1, 20, 10)]
        );
        let left_out = 2 * ITERATIONS + 1 - MOST as u64;
        let note = format!("{left_out} zones of later iterations are not recorded");
        assert!(report.notes.iter().any(|of| of.starts_with(&note)), "{note}: {report}");
    });
}
