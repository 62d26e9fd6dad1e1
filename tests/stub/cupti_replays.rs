//! Replays of graphs by their kernels, on the stub CUPTI: what no known node executed is counted and in no zone that it may not be in,
//! a batch of collectives has its entries, and nobody asks CUPTI about graphs once the session is over.

use std::ffi::CStr;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpline::Session;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::graph::GraphZones;
use warpline::record::ReplayRecord;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline_tests::this_test;

use crate::harness::cupti::*;
use crate::harness::driver::{self, Stub, scratch};
use crate::harness::graphs::{self, register};
use crate::harness::zones::{self, assert_exact, raw};

warpline::range! {
    LAYER = "stub.cupti_replays.layer": "A layer.";
    ATTENTION = "stub.cupti_replays.attention": "Attention.", lane = "attention";
    MLP = "stub.cupti_replays.mlp": "Feed-forward.", lane = "mlp";
    GRADIENTS = "stub.cupti_replays.gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "stub.cupti_replays.gradient": "Sums one gradient.", kind = collective;
    NORM = "stub.cupti_replays.norm": "Sums a norm.", kind = collective, lane = "norms";
}

const BEGIN_NS: u64 = 1_000_000_000;

/// What the stub driver calls every kernel.
const NAME: &CStr = c"stub_kernel";

fn start() -> (Session, MemorySink) {
    zones::start(|builder| builder.kernels(true))
}

fn node(driver: &Stub, stream: driver::Handle) {
    assert_eq!(driver.stub_launch(stream, 0), driver::SUCCESS);
}

fn capture(driver: &Stub, stream: driver::Handle, work: impl FnOnce()) -> driver::Handle {
    graphs::capture(driver, stream, driver::GLOBAL, work)
}

/// An executable graph, and the half of its nodes' ids that is its own.
fn instantiate(driver: &Stub, graph: driver::Handle) -> (driver::Handle, u64) {
    let (mut exec, mut id) = (0, 0);
    assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), driver::SUCCESS);
    // Drivers before 13.1 do not tell it.
    let _ = driver.cuGraphExecGetId(exec, &mut id);
    (exec, u64::from(id))
}

/// One launch: kernels of 10 us, one behind the other, by the graph and the node that their records name.
fn replay(cupti: &Cupti, kernels: &[(u64, u64)]) {
    replay_at(cupti, BEGIN_NS, kernels);
}

fn replay_at(cupti: &Cupti, from_ns: u64, kernels: &[(u64, u64)]) {
    for (at, (graph, node)) in (0..).zip(kernels) {
        let (graph, begin_ns) = (*graph as u32, from_ns + at * 10_000);
        let is_more = u32::from(at > 0);
        cupti.launch(Launch { graph, node: *node, is_more, begin_ns, end_ns: begin_ns + 10_000, ..kernel(NAME) });
    }
}

/// Each zone with its kernels.
fn kernels_of(replay: &ReplayRecord) -> Vec<(&'static str, u32)> {
    let of = |of: &warpline::record::ReplayedZone| {
        (of.zone.range.name().trim_start_matches("stub.cupti_replays."), of.kernels)
    };
    replay.zones.iter().map(of).collect()
}

fn only_replay(session: Session, sink: &MemorySink) -> (Report, ReplayRecord) {
    let report = session.finish();
    assert_exact(&report);
    let mut replays = sink.take_replays();
    assert_eq!(replays.len(), 1, "{replays:?}");
    (report, replays.remove(0))
}

/// Waits until one is complete.
fn wait_for_replay(sink: &MemorySink) -> ReplayRecord {
    let since = Instant::now();
    loop {
        if let Some(replay) = sink.take_replays().pop() {
            return replay;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "no replay is complete");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A graph with a kernel of attention (node 0), one of the layer around it (node 1), and a child graph with two kernels (node 2),
/// which is in the layer, too.
fn with_child(driver: &Stub) -> (GraphZones, u64) {
    // As CUDA 13.1's driver does.
    driver.stub_tells_ids(true);
    let stream = driver.stream();
    let child = capture(driver, stream, || (0..2).for_each(|_| node(driver, stream)));
    let layer = LAYER.zone(&raw(stream));
    let graph = capture(driver, stream, || {
        {
            let _attention = ATTENTION.zone(&raw(stream));
            node(driver, stream);
        }
        node(driver, stream);
    });
    drop(layer);
    let mut of_child = 0;
    assert_eq!(driver.cuGraphAddChildGraphNode(&mut of_child, graph, std::ptr::null(), 0, child), driver::SUCCESS);
    let (exec, id) = instantiate(driver, graph);
    let zones = register(graph, exec);
    let depths: Vec<_> = zones.nodes().map(|node| (node.zones.len(), node.within)).collect();
    assert_eq!(depths, [(2, None), (1, None), (1, None), (1, Some(2)), (1, Some(2))]);
    driver.cuStreamSynchronize(stream);
    (zones, id)
}

/// The ids of its nodes that the driver never told.
const UNKNOWN: u64 = 900_000 << 32;

#[test]
fn kernels_of_a_child_graph_are_in_the_replay_and_in_the_zones_around_its_node() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (_zones, exec) = with_child(driver);
        replay(cupti, &[(exec, exec << 32), (exec, exec << 32 | 1), (exec, UNKNOWN), (exec, UNKNOWN | 1)]);
        let (report, replay) = only_replay(session, &sink);
        assert_eq!((replay.kernels, replay.unplaced, replay.gpu.duration_ns()), (4, 2, 40_000), "{replay:?}");
        assert_eq!(kernels_of(&replay), [("layer", 4), ("attention", 1)]);
        assert_eq!(replay.zones[0].zone.gpu, Some(replay.gpu));
        let notes: Vec<_> = report.notes.iter().filter(|note| note.contains("of replayed graphs")).collect();
        assert!(matches!(notes[..], [note] if note.starts_with("2 kernels and copies of")), "{report}");
    });
}

#[test]
fn a_launch_is_put_together_whatever_its_child_graphs_kernels_say_and_whichever_comes_first() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (_zones, exec) = with_child(driver);
        let other = UNKNOWN >> 32;
        replay(cupti, &[(other, UNKNOWN), (exec, exec << 32), (exec, exec << 32 | 1), (other, UNKNOWN | 1)]);
        // Of a graph that nobody has registered.
        replay(cupti, &[(other, UNKNOWN), (other, UNKNOWN | 1)]);
        let (_, replay) = only_replay(session, &sink);
        assert_eq!((replay.kernels, replay.unplaced, u64::from(replay.exec)), (4, 2, exec), "{replay:?}");
        assert_eq!(replay.gpu.duration_ns(), 40_000);
        assert_eq!(kernels_of(&replay), [("layer", 4), ("attention", 1)]);
    });
}

#[test]
fn a_child_graphs_kernel_with_the_id_of_another_node_is_not_taken_for_it() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (_zones, exec) = with_child(driver);
        // The child's nodes count from 0, too.
        let (own, child) = ([(exec, exec << 32), (exec, exec << 32 | 1)], [(exec, exec << 32), (exec, exec << 32 | 1)]);
        replay(cupti, &[own, child].concat());
        let (report, both) = only_replay(session, &sink);
        // One of the first two is of attention, and nobody can say which.
        assert_eq!((both.kernels, both.unplaced), (4, 4), "{report}");
        assert_eq!(kernels_of(&both), [("layer", 4)]);
        // What is another kind of work is another node's.
        let (session, sink) = start();
        replay(cupti, &own);
        let copy = Launch { kind: MEMCPY, bytes: 64, graph: exec as u32, node: exec << 32, ..kernel(c"") };
        cupti.launch(Launch { is_more: 1, ..copy });
        let (_, replay) = only_replay(session, &sink);
        assert_eq!((replay.kernels, replay.unplaced), (3, 1), "{replay:?}");
        assert_eq!(kernels_of(&replay), [("layer", 2), ("attention", 1)]);
    });
}

#[test]
fn what_the_program_says_of_a_child_graph_holds_for_its_kernels() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (zones, exec) = with_child(driver);
        let stream = driver.stream();
        let child = capture(driver, stream, || {
            let _mlp = MLP.zone(&raw(stream));
            (0..2).for_each(|_| node(driver, stream));
        });
        zones.inside(2, &register(child, 0)).expect("as many nodes");
        replay(cupti, &[(exec, exec << 32), (exec, UNKNOWN), (exec, UNKNOWN | 1), (exec, exec << 32 | 1)]);
        let (_, replay) = only_replay(session, &sink);
        assert_eq!((replay.kernels, replay.unplaced), (4, 2), "{replay:?}");
        assert_eq!(kernels_of(&replay), [("layer", 4), ("attention", 1), ("mlp", 2)]);
        assert_eq!(replay.zones[2].lane.as_deref(), Some("mlp"));
    });
}

#[test]
fn the_body_of_a_conditional_node_is_in_the_zones_around_it_however_often_it_runs() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        let stream = driver.stream();
        let graph = capture(driver, stream, || {
            node(driver, stream);
            let _attention = ATTENTION.zone(&raw(stream));
            assert_eq!(driver.stub_conditional(stream), driver::SUCCESS);
        });
        let (exec, id) = instantiate(driver, graph);
        let _zones = register(graph, exec);
        let body = (id, UNKNOWN);
        replay(cupti, &[(id, id << 32), body, body, body]);
        let (_, replay) = only_replay(session, &sink);
        assert_eq!((replay.kernels, replay.unplaced, replay.gpu.duration_ns()), (4, 3, 40_000), "{replay:?}");
        assert_eq!(kernels_of(&replay), [("attention", 3)]);
    });
}

#[test]
fn a_batch_of_collectives_has_its_entries_in_every_replay() {
    with_cupti(this_test!(), |driver, cupti| {
        const MANY: u64 = 200;
        driver.start();
        driver.stub_tells_ids(true);
        let (packets, json) = (scratch("batch.pftrace"), scratch("batch.json"));
        let (session, sink) = zones::start(|builder| builder.kernels(true).perfetto(&packets).chrome(&json));
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let message =
            |count: u64| Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&group);
        let graph = capture(driver, stream, || {
            {
                let mut batch = GRADIENTS.batch(&raw(stream));
                batch.add(&GRADIENT, || message(1_024));
                batch.add(&NORM, || message(3_072));
                node(driver, stream);
            }
            let mut batch = GRADIENTS.batch(&raw(stream));
            (0..MANY).for_each(|_| batch.add(&GRADIENT, || message(1_024)));
            node(driver, stream);
        });
        let (exec, id) = instantiate(driver, graph);
        let _zones = register(graph, exec);
        for begin_ns in [BEGIN_NS, BEGIN_NS + 100_000] {
            replay_at(cupti, begin_ns, &[(id, id << 32), (id, id << 32 | 1)]);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, 2 + 2 + MANY, "{report}");
        assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 2);
        for replay in &replays {
            assert_eq!((replay.kernels, replay.unplaced, replay.zones.len() as u64), (2, 0, 4 + MANY));
            let seen: Vec<_> = (replay.zones[..4].iter())
                .map(|of| {
                    let entry = of.zone.entry.map(|entry| (entry.index, entry.of, entry.share));
                    let name = of.zone.range.name().trim_start_matches("stub.cupti_replays.");
                    (name, of.zone.depth, of.zone.sequence, of.lane.as_deref(), of.kernels, entry)
                })
                .collect();
            let lane = Some(group.lane());
            assert_eq!(
                seen,
                [
                    ("gradients", 0, 0, None, 1, None),
                    ("gradient", 1, 0, lane, 1, Some((0, 2, 0.25))),
                    ("norm", 2, 0, Some("norms"), 1, Some((1, 2, 0.75))),
                    ("gradients", 0, 1, None, 1, None),
                ]
            );
            let zone = |at: usize| &replay.zones[at].zone;
            assert_eq!((zone(1).gpu, zone(2).gpu_ns()), (zone(0).gpu, Some(10_000)));
            let said = |at: usize| zone(at).message.as_ref().and_then(|message| Some((message.bytes()?, message.seq?)));
            assert_eq!((said(0), said(1), said(2)), (None, Some((4_096, 0)), Some((12_288, 1))));
            // Each has its share of the time: 16 KiB in 10 us.
            let fast = |at: usize| zone(at).bandwidth().map(|bandwidth| bandwidth.algorithm.round());
            assert_eq!((fast(1), fast(2)), (Some(1_638_400_000.0), Some(1_638_400_000.0)));
        }
        assert!(fs::metadata(&packets).is_ok_and(|file| file.len() > 1_000));
        let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).expect("a JSON document");
        let events = document["traceEvents"].as_array().expect("events");
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        assert_eq!(named("stub.cupti_replays.gradients").len(), 4);
        let (entries, norms) = (named("stub.cupti_replays.gradient"), named("stub.cupti_replays.norm"));
        assert_eq!((entries.len() as u64, norms.len()), (2 * (1 + MANY), 2));
        assert_eq!((&norms[0]["dur"], &norms[0]["args"]["In msg nelems"]), (&10.0.into(), &3_072.into()));
        let row = |tid: &Value| named("thread_name").into_iter().find(|row| row["tid"] == *tid).expect("a row");
        assert_eq!(row(&norms[0]["tid"])["args"]["name"], "CUDA stream 7: replays: norms");
        // So many within one another are more than readers draw.
        let rows: std::collections::BTreeMap<_, _> =
            entries.iter().map(|of| (of["tid"].to_string(), &of["tid"])).collect();
        let rows: Vec<_> = rows.into_values().map(|tid| row(tid)["args"]["name"].clone()).collect();
        assert_eq!(rows, ["CUDA stream 7: replays: comm: tp0 [0,1]", "CUDA stream 7: replays: comm: tp0 [0,1]"]);
    });
}

#[test]
fn once_a_session_is_over_no_graph_is_asked_of_cupti() {
    with_cupti(this_test!(), |driver, cupti| {
        const ASKED: [&str; 3] = ["cuptiGetGraphNodeId", "cuptiGetGraphId", "cuptiGetGraphExecId"];
        driver.start();
        let stream = driver.stream();
        let (session, _sink) = start();
        let graph = capture(driver, stream, || {
            let _attention = ATTENTION.zone(&raw(stream));
            node(driver, stream);
        });
        let (exec, _) = instantiate(driver, graph);
        let zones = register(graph, exec);
        let calls = || ASKED.map(|symbol| cupti.calls(symbol));
        let asked = calls();
        assert!(asked.iter().all(|calls| *calls > 0), "{asked:?}");
        assert_exact(&session.finish());
        assert_eq!(cupti.stub_cupti_on(), 0);
        let (again, _) = instantiate(driver, graph);
        assert_eq!(register(graph, again).number(), zones.number());
        assert_eq!((calls(), cupti.stub_cupti_on()), (asked, 0));
        // What was told before is known to the next session; what it tells is asked again.
        let (session, sink) = start();
        let mut handle = [0];
        assert_eq!(driver.cuGraphGetNodes(graph, handle.as_mut_ptr(), &mut 1), driver::SUCCESS);
        let id = |exec: driver::Handle| u64::from(exec as u32) << 32 | u64::from(handle[0] as u32);
        replay(cupti, &[(exec as u64, id(exec))]);
        let first = wait_for_replay(&sink);
        assert_eq!(register(graph, again).number(), zones.number());
        replay(cupti, &[(again as u64, id(again))]);
        assert_exact(&session.finish());
        let second = sink.take_replays().pop().expect("a replay");
        assert_eq!((kernels_of(&first), kernels_of(&second)), (vec![("attention", 1)], vec![("attention", 1)]));
        assert_eq!((first.unplaced, second.unplaced), (0, 0));
        assert!(calls().iter().zip(asked).all(|(now, before)| *now > before));
    });
}
