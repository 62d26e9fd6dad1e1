//! Replays of graphs that are timed by stamps, on a stub driver that writes them as a device would: which are captured, what the
//! capture sees of it, and what becomes of replays that cannot be told apart, of stamps that come too fast, and of executable graphs
//! that outlive their session. How stamps are put together is tested where that is done, in `warpline`'s collector.
#![cfg(target_os = "linux")]

#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::ffi::c_void;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use stub::*;
use warpline::graph::{GraphZones, NodeKind, RawGraph};
use warpline::{
    CollectiveKind, DataType, GraphTiming, MemorySink, Message, ProcessGroup, RangeSpec, ReplayRecord, ReplayTiming,
    Report, Session, Sink, ZoneRecord,
};
use zones::*;

warpline::namespace!("cuda_stamps", "zones that are captured and timed");

warpline::range! {
    LAYER = "cuda_stamps.layer": "A layer.";
    ATTENTION = "cuda_stamps.attention": "Attention.", lane = "attention";
    MLP = "cuda_stamps.mlp": "Feed-forward.", lane = "mlp";
    REDUCE = "cuda_stamps.reduce": "Sums over the group.", kind = collective, lane = "comm: tp0";
    GATHER = "cuda_stamps.gather": "Gathers from the group.", kind = collective;
    EAGER = "cuda_stamps.eager": "Work that is not captured.";
}

const US: u64 = 1_000;
/// How long a stamp takes on the stub.
const STAMP_NS: i64 = 2_000;
/// A timestamp's step: a length is off by less.
const STEP_NS: i64 = 32;

fn stamped() -> (Session, MemorySink) {
    start(|builder| builder.graph_timing(GraphTiming::Stamps))
}

fn capture(driver: &Stub, stream: Handle, mode: i32, work: impl FnOnce()) -> Handle {
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    work();
    let mut graph = 0;
    assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
    graph
}

fn kernel(driver: &Stub, stream: Handle, us: u64) {
    assert_eq!(driver.stub_launch(stream, us * US), SUCCESS);
}

/// A zone with one kernel.
fn zone(driver: &Stub, range: &'static RangeSpec, stream: Handle, us: u64) {
    let _zone = range.zone(&raw(stream)).field("us", us);
    kernel(driver, stream, us);
}

fn instantiate(driver: &Stub, graph: Handle) -> Handle {
    let mut exec = 0;
    assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
    exec
}

fn register(graph: Handle, exec: Handle) -> GraphZones {
    // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
    let graph = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
    GraphZones::of(&graph).expect("a graph that is alive")
}

fn replay(driver: &Stub, exec: Handle, stream: Handle, times: usize) {
    for _ in 0..times {
        assert_eq!(driver.cuGraphLaunch(exec, stream), SUCCESS);
    }
}

/// Waits until the collector has handed out so many replays.
fn wait_for_replays(sink: &MemorySink, count: usize) -> Vec<ReplayRecord> {
    let mut taken = Vec::new();
    let since = Instant::now();
    while taken.len() < count && since.elapsed() < Duration::from_secs(10) {
        taken.extend(sink.take_replays());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.len(), count);
    taken
}

fn length(replay: &ReplayRecord, range: &'static RangeSpec) -> i64 {
    let zone = replay.zones.iter().find(|replayed| std::ptr::eq(replayed.zone.range, range));
    zone.unwrap_or_else(|| panic!("no {}: {replay:?}", range.name())).zone.gpu_ns().expect("timed")
}

/// The zone's kernels, and between them the stamps that are inside of it.
fn assert_length(replay: &ReplayRecord, range: &'static RangeSpec, us: i64, stamps: i64) {
    let (is, expected) = (length(replay, range), us * 1_000 + stamps * STAMP_NS);
    assert!((is - expected).abs() <= STEP_NS, "{} is {is} ns, not {expected}: {replay:?}", range.name());
}

fn assert_all_timed(report: &Report) {
    let counts = report.graph_timing;
    assert_eq!(
        (counts.untimed(), counts.lost, counts.incomplete, counts.mixed, counts.unknown),
        (0, 0, 0, 0, 0),
        "{report}"
    );
    assert!(report.notes.is_empty(), "{report}");
    assert_exact(report);
}

#[test]
fn each_replay_has_its_zones_with_their_lengths_and_all_that_was_captured_of_them() {
    on_stub("each_replay_has_its_zones_with_their_lengths_and_all_that_was_captured_of_them", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let group = ProcessGroup::new("tp0", [0, 1], 0);
        let graph = capture(driver, stream, THREAD_LOCAL, || {
            kernel(driver, stream, 3);
            let _layer = LAYER.zone(&raw(stream)).label("layer 0").field("batch", 4_u32);
            zone(driver, &ATTENTION, stream, 20);
            kernel(driver, stream, 5);
            {
                let message = Message::new(CollectiveKind::AllReduce).count(1024).dtype(DataType::F32).group(&group);
                let _reduce = REDUCE.zone(&raw(stream)).message(message);
                kernel(driver, stream, 7);
            }
            zone(driver, &MLP, stream, 30);
        });
        let exec = instantiate(driver, graph);
        let zones = register(graph, exec);
        let before_ns = boot_ns();
        replay(driver, exec, stream, 5);
        let replays = wait_for_replays(&sink, 5);
        for replay in &replays {
            assert_eq!((replay.timed_by, replay.graph, replay.kernels), (ReplayTiming::Stamps, zones.number(), 5));
            let seen: Vec<_> = (replay.zones.iter())
                .map(|of| (of.zone.range.name(), of.zone.depth, of.lane.as_deref(), of.kernels))
                .collect();
            let expected = [
                (LAYER.name(), 0, None, 4),
                (ATTENTION.name(), 1, Some("attention"), 1),
                (REDUCE.name(), 1, Some("comm: tp0"), 1),
                (MLP.name(), 1, Some("mlp"), 1),
            ];
            assert_eq!(seen, expected);
            // A zone has the stamp that it begins with, and those inside of it.
            assert_length(replay, &ATTENTION, 20, 1);
            assert_length(replay, &REDUCE, 7, 1);
            assert_length(replay, &MLP, 30, 1);
            // Work behind the end of a zone that no zone begins with waits for no stamp.
            assert_length(replay, &LAYER, 62, 3);
            let zone = |at: usize| &replay.zones[at].zone;
            assert_eq!(zone(0).fields.label(), Some("layer 0"));
            assert_eq!(zone(0).fields.get("batch").map(ToString::to_string).as_deref(), Some("4"));
            assert_eq!(zone(2).message.as_ref().map(|message| message.kind), Some(CollectiveKind::AllReduce));
            assert_eq!(zone(3).gpu_ns_corrected(), zone(3).gpu_ns().map(|ns| ns - zone(3).bracket_ns));
        }
        // Where they were on the host's clock: a stamp is read as the stream comes to it.
        let (begin_ns, after_ns) = (replays[0].gpu.begin_ns, boot_ns());
        // However long that took. By so much the clocks may be off.
        let within = before_ns - 20_000_000..after_ns + 20_000_000;
        assert!(within.contains(&begin_ns), "{begin_ns} {within:?}");
        assert!(replays.windows(2).all(|pair| pair[0].gpu.end_ns <= pair[1].gpu.begin_ns));
        let report = session.finish();
        assert_all_timed(&report);
        let counts = report.graph_timing;
        // Layer and attention begin at one; reduce ends where MLP begins; MLP and layer end at one.
        assert_eq!((counts.captured, counts.shared, counts.replays, counts.zones), (5, 3, 5, 20), "{report}");
        assert_eq!((counts.stamps, driver.stub_graph_nodes(graph)), (25, 10));
        // A stamp takes 2 µs here, and CUPTI counts 0.75 of a kernel.
        assert!((counts.bracket_ns - 1_250).abs() <= STEP_NS, "{report}");
        assert!(report.to_string().contains("5 replays of graphs timed by stamps"), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn the_lanes_of_a_graph_are_those_of_its_replays_also_for_collectives_without_one_of_their_own() {
    on_stub("the_lanes_of_a_graph_are_those_of_its_replays_also_for_collectives_without_one_of_their_own", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let gather = || {
            let message = Message::new(CollectiveKind::AllGather).count(8).dtype(DataType::F32).group(&group);
            GATHER.zone(&raw(stream)).message(message)
        };
        let graph = capture(driver, stream, THREAD_LOCAL, || {
            let _layer = LAYER.zone(&raw(stream));
            zone(driver, &ATTENTION, stream, 20);
            {
                let _mlp = MLP.zone(&raw(stream));
                kernel(driver, stream, 5);
                let _gather = gather();
                kernel(driver, stream, 7);
            }
            let _gather = gather();
            // A zone without a lane is on that of the collective around it.
            zone(driver, &EAGER, stream, 9);
        });
        let exec = instantiate(driver, graph);
        let counts = register(graph, exec).lanes();
        replay(driver, exec, stream, 1);
        let [replay] = &wait_for_replays(&sink, 1)[..] else { panic!("one") };
        let shown = |range: &'static RangeSpec| {
            let of = replay.zones.iter().filter(|of| std::ptr::eq(of.zone.range, range));
            of.map(|of| of.lane.as_deref()).collect::<Vec<_>>()
        };
        let comm = Some("comm: tp0 [0,1]");
        assert_eq!(comm, Some(group.lane()));
        assert_eq!((shown(&GATHER), shown(&EAGER), shown(&MLP)), (vec![comm; 2], vec![comm], vec![Some("mlp")]));
        let lanes: Vec<_> = counts.iter().map(|count| (count.name.as_deref(), count.kernels)).collect();
        assert_eq!(lanes, [(Some("attention"), 1), (Some("mlp"), 1), (comm, 2)], "each kernel where the trace has it");
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn stamps_are_nobodys_kernels() {
    on_stub("stamps_are_nobodys_kernels", |driver| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, _sink) = stamped();
        let stream = driver.stream();
        let work = || {
            let _layer = LAYER.zone(&raw(stream));
            kernel(driver, stream, 1);
            zone(driver, &ATTENTION, stream, 1);
        };
        let graph = capture(driver, stream, GLOBAL, work);
        let exec = instantiate(driver, graph);
        let zones = register(graph, exec);
        let kinds: Vec<_> = zones.nodes().map(|node| (node.kind, node.zones.len())).collect();
        use NodeKind::{Kernel, Stamp};
        assert_eq!(kinds, [(Stamp, 0), (Kernel, 1), (Stamp, 0), (Kernel, 2), (Stamp, 0)]);
        let counts = zones.lanes();
        let lanes: Vec<_> = counts.iter().map(|count| (count.name.as_deref(), count.nodes, count.kernels)).collect();
        assert_eq!(lanes, [(None, 1, 1), (Some("attention"), 1, 1)]);
        assert!(GraphZones::find(exec as *mut c_void, 2).is_none(), "a stamp's id leads nowhere");
        assert_eq!(GraphZones::find(exec as *mut c_void, 3).map(|zones| zones.len()), Some(2));
        let file = scratch("stamps_are_nobodys_kernels");
        zones.save(&file).expect("a file");
        let text = std::fs::read_to_string(&file).expect("it is there");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let schema = serde_json::from_str(include_str!("../docs/graph.schema.json")).expect("JSON");
        assert!(jsonschema::options().build(&schema).expect("a schema").is_valid(&json), "{text}");
        let nodes = json["graphs"][0]["nodes"].as_array().expect("nodes");
        let stamps: Vec<_> = nodes.iter().filter(|node| node["kind"] == "stamp").collect();
        assert_eq!(stamps.len(), 3);
        assert!(stamps.iter().all(|node| node["zones"] == serde_json::json!([])), "{text}");
        assert_exact(&session.finish());
        // Without the setting nothing is added.
        let (session, _sink) = start(|builder| builder);
        assert_eq!(driver.stub_graph_nodes(capture(driver, stream, GLOBAL, work)), 2);
        assert_eq!(session.finish().graph_timing, Default::default());
    });
}

#[test]
fn a_capture_sees_one_launch_a_border_in_every_mode_and_is_whole() {
    on_stub("a_capture_sees_one_launch_a_border_in_every_mode_and_is_whole", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            driver.mark("capture");
            let graph = capture(driver, stream, mode, || zone(driver, &ATTENTION, stream, 10));
            let calls = driver.since("capture", tid());
            let launches = calls.iter().filter(|call| *call == "cuLaunchKernel").count();
            assert_eq!(launches, 2, "{calls:?}");
            let allowed = [
                "cuStreamIsCapturing",
                "cuStreamGetCaptureInfo_v3",
                "cuStreamUpdateCaptureDependencies_v2",
                "cuCtxGetCurrent",
                "cuCtxGetId",
                "cuLaunchKernel",
            ];
            let own = ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "stub_launch"];
            let others: Vec<_> = calls
                .iter()
                .filter(|call| !allowed.contains(&call.as_str()) && !own.contains(&call.as_str()))
                .collect();
            assert!(others.is_empty(), "{others:?}");
            let exec = instantiate(driver, graph);
            let _zones = register(graph, exec);
            replay(driver, exec, stream, 1);
            assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 10, 1);
        }
        assert_all_timed(&session.finish());
    });
}

#[test]
fn a_stamp_that_is_refused_leaves_the_capture_as_it_was() {
    on_stub("a_stamp_that_is_refused_leaves_the_capture_as_it_was", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        // The begin is refused; then the end.
        for skip in [0, 1] {
            let graph = capture(driver, stream, GLOBAL, || {
                driver.fail("cuLaunchKernel", skip, 1, INVALID_HANDLE);
                zone(driver, &ATTENTION, stream, 10);
                zone(driver, &MLP, stream, 20);
            });
            let exec = instantiate(driver, graph);
            let zones = register(graph, exec);
            assert_eq!(zones.lanes().len(), 2, "labelled all the same");
            replay(driver, exec, stream, 1);
            let replays = wait_for_replays(&sink, 1);
            assert_eq!(replays[0].zones.len(), 1, "{replays:?}");
            assert_length(&replays[0], &MLP, 20, 1);
        }
        let report = session.finish();
        assert_eq!((report.graph_timing.untimed_refused, report.captured), (2, 4), "{report}");
        assert!(report.to_string().contains("2 captured zones are not timed"), "{report}");
    });
}

#[test]
fn a_stream_of_another_context_keeps_its_capture() {
    on_stub("a_stream_of_another_context_keeps_its_capture", |driver| {
        let primary = driver.start();
        let (session, _sink) = stamped();
        let mut other = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut other, 0, 0), SUCCESS);
        let stream = driver.stream();
        assert_eq!(driver.cuCtxSetCurrent(primary), SUCCESS);
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        assert_eq!(driver.stub_graph_nodes(graph), 1);
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed_refused, 1, "{report}");
    });
}

#[test]
fn a_context_that_the_session_meets_in_a_capture_is_labelled_and_timed_from_the_next_one_on() {
    on_stub("a_context_that_the_session_meets_in_a_capture_is_labelled_and_timed_from_the_next_one_on", |driver| {
        // No context is current where the session starts.
        let (session, sink) = stamped();
        driver.start();
        let stream = driver.stream();
        let first = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        assert_eq!(driver.stub_graph_nodes(first), 1);
        assert_eq!(register(first, 0).lanes().len(), 1);
        let since = Instant::now();
        let timed = loop {
            let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
            if driver.stub_graph_nodes(graph) == 3 {
                break graph;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "never ready");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(driver.calls_on("cuModuleLoadData", tid()), 0, "not on a launching thread");
        let exec = instantiate(driver, timed);
        let _zones = register(timed, exec);
        // The session reads what is stamped since it knows of the context.
        std::thread::sleep(Duration::from_millis(200));
        replay(driver, exec, stream, 1);
        wait_for_replays(&sink, 1);
        let report = session.finish();
        assert!(report.graph_timing.untimed_not_ready >= 1, "{report}");
    });
}

#[test]
fn a_driver_that_compiles_nothing_is_a_note_and_zones_are_labelled() {
    on_stub("a_driver_that_compiles_nothing_is_a_note_and_zones_are_labelled", |driver| {
        driver.start();
        driver.fail("cuModuleLoadData", 0, u64::MAX, 801);
        let (session, _sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        assert_eq!(driver.stub_graph_nodes(graph), 1);
        assert_eq!(register(graph, 0).lanes().len(), 1);
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed_not_ready, 1, "{report}");
        let notes = report.notes.join("\n");
        assert!(notes.contains("not timed by stamps") && notes.contains("cuModuleLoadData"), "{report}");
    });
}

#[test]
fn forks_and_joins_are_timed_on_both_sides() {
    on_stub("forks_and_joins_are_timed_on_both_sides", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (one, two) = (driver.stream(), driver.stream());
        let graph = capture(driver, one, GLOBAL, || {
            kernel(driver, one, 1);
            let _layer = LAYER.zone(&raw(one));
            let forked = driver.record(one);
            assert_eq!(driver.cuStreamWaitEvent(two, forked, 0), SUCCESS);
            zone(driver, &ATTENTION, one, 40);
            zone(driver, &MLP, two, 10);
            let joined = driver.record(two);
            assert_eq!(driver.cuStreamWaitEvent(one, joined, 0), SUCCESS);
            kernel(driver, one, 1);
        });
        let exec = instantiate(driver, graph);
        let zones = register(graph, exec);
        let kernels: usize = zones.lanes().iter().map(|count| count.kernels).sum();
        assert_eq!(kernels, 4);
        replay(driver, exec, one, 3);
        for replay in wait_for_replays(&sink, 3) {
            // Both begin at the layer's stamp.
            assert_length(&replay, &ATTENTION, 40, 1);
            assert_length(&replay, &MLP, 10, 1);
            assert_length(&replay, &LAYER, 41, 1);
        }
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!(report.graph_timing.captured, 4, "{report}");
    });
}

#[test]
fn a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole() {
    on_stub("a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (main, side) = (driver.stream(), driver.stream());
        let graph = capture(driver, main, GLOBAL, || {
            kernel(driver, main, 1);
            let forked = driver.record(main);
            assert_eq!(driver.cuStreamWaitEvent(side, forked, 0), SUCCESS);
            // Nothing is ever captured in it.
            drop(REDUCE.zone(&raw(side)));
            {
                let _attention = ATTENTION.zone(&raw(side));
                let _inner = REDUCE.zone(&raw(side));
                kernel(driver, side, 10);
                let joined = driver.record(side);
                assert_eq!(driver.cuStreamWaitEvent(main, joined, 0), SUCCESS);
            }
            // Behind the join: one with nothing in it, within another.
            {
                let _outer = REDUCE.zone(&raw(side));
                drop(REDUCE.zone(&raw(side)));
            }
            zone(driver, &MLP, main, 30);
        });
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, main, 3);
        for replay in wait_for_replays(&sink, 3) {
            assert_eq!(replay.zones.len(), 6, "{replay:?}");
            assert_length(&replay, &ATTENTION, 10, 1);
            assert_length(&replay, &MLP, 30, 1);
        }
        assert_all_timed(&session.finish());
        // What would come of it otherwise.
        let (_session, _sink) = stamped();
        driver.fail("cuStreamUpdateCaptureDependencies_v2", 0, u64::MAX, 801);
        assert_eq!(driver.cuStreamBeginCapture_v2(main, GLOBAL), SUCCESS);
        let forked = driver.record(main);
        assert_eq!(driver.cuStreamWaitEvent(side, forked, 0), SUCCESS);
        drop(ATTENTION.zone(&raw(side)));
        let mut graph = 0;
        assert_eq!(driver.cuStreamEndCapture(main, &mut graph), CAPTURE_UNJOINED);
    });
}

#[test]
fn captures_that_are_given_up_leave_nothing() {
    on_stub("captures_that_are_given_up_leave_nothing", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        for _ in 0..100 {
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
            {
                let _zone = MLP.zone(&raw(stream));
                kernel(driver, stream, 1);
                assert_eq!(driver.cuStreamQuery(stream), CAPTURE_UNSUPPORTED);
            }
            let mut graph = 0;
            assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), CAPTURE_INVALIDATED);
            let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
            let exec = instantiate(driver, graph);
            let _zones = register(graph, exec);
            replay(driver, exec, stream, 1);
            let replays = wait_for_replays(&sink, 1);
            assert_eq!(replays[0].zones.len(), 1);
            assert_length(&replays[0], &ATTENTION, 10, 1);
            assert_eq!((driver.cuGraphExecDestroy(exec), driver.cuGraphDestroy(graph)), (SUCCESS, SUCCESS));
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.graph_timing.replays, report.graph_timing.unknown), (100, 0), "{report}");
    });
}

#[test]
fn zones_that_begin_before_the_capture_or_end_after_it_are_not_timed_and_counted() {
    on_stub("zones_that_begin_before_the_capture_or_end_after_it_are_not_timed_and_counted", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let before = LAYER.zone(&raw(stream));
        let mut after = None;
        let graph = capture(driver, stream, GLOBAL, || {
            zone(driver, &ATTENTION, stream, 10);
            after = Some(MLP.zone(&raw(stream)));
            kernel(driver, stream, 5);
        });
        drop(after);
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 1);
        let replays = wait_for_replays(&sink, 1);
        assert_eq!(replays[0].zones.len(), 1, "{replays:?}");
        drop(before);
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed_spanning, 1, "{report}");
    });
}

#[test]
fn graphs_that_are_instantiated_again_updated_and_cloned_say_whose_replay_it_was() {
    on_stub("graphs_that_are_instantiated_again_updated_and_cloned_say_whose_replay_it_was", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let of = |range, us| capture(driver, stream, GLOBAL, || zone(driver, range, stream, us));
        let (first, second) = (of(&ATTENTION, 10), of(&MLP, 20));
        let (exec, again) = (instantiate(driver, first), instantiate(driver, first));
        let zones = (register(first, exec), register(second, 0));
        for exec in [exec, again] {
            replay(driver, exec, stream, 2);
            for replay in wait_for_replays(&sink, 2) {
                assert_eq!(replay.graph, zones.0.number());
                assert_length(&replay, &ATTENTION, 10, 1);
            }
        }
        // Updated: it is the other graph's, by its stamps, without being told.
        assert_eq!(driver.cuGraphExecUpdate_v2(again, second, std::ptr::null_mut()), SUCCESS);
        replay(driver, again, stream, 1);
        let replays = wait_for_replays(&sink, 1);
        assert_eq!(replays[0].graph, zones.1.number());
        assert_length(&replays[0], &MLP, 20, 1);
        // A clone has the stamps of what it was made of.
        let mut clone = 0;
        assert_eq!(driver.cuGraphClone(&mut clone, first), SUCCESS);
        let cloned = instantiate(driver, clone);
        replay(driver, cloned, stream, 1);
        assert_eq!(wait_for_replays(&sink, 1)[0].graph, zones.0.number());
        assert_all_timed(&session.finish());
    });
}

#[test]
fn two_executable_graphs_of_one_graph_at_the_same_time_are_counted_and_not_mixed_up() {
    on_stub("two_executable_graphs_of_one_graph_at_the_same_time_are_counted_and_not_mixed_up", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (one, two) = (driver.stream(), driver.stream());
        let graph = capture(driver, one, GLOBAL, || {
            zone(driver, &ATTENTION, one, 1_000);
            zone(driver, &MLP, one, 1_000);
        });
        let (first, second) = (instantiate(driver, graph), instantiate(driver, graph));
        let _zones = register(graph, first);
        replay(driver, first, one, 1);
        wait_for_replays(&sink, 1);
        driver.stub_hold_stamps(true);
        replay(driver, first, one, 1);
        replay(driver, second, two, 1);
        driver.stub_hold_stamps(false);
        // The next ones are alone again: behind some that nobody can be sure of.
        replay(driver, first, one, 4);
        let replays = wait_for_replays(&sink, 1);
        assert_length(&replays[0], &ATTENTION, 1_000, 1);
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!((counts.replays, counts.mixed, counts.incomplete), (2, 5, 0), "{report}");
    });
}

/// Holds the collector in it until it is told to go on.
struct Held {
    enters: Sender<()>,
    leave: Receiver<()>,
}

impl Sink for Held {
    fn records(&mut self, _batch: &[ZoneRecord]) -> io::Result<()> {
        Ok(())
    }

    fn replays(&mut self, _batch: &[ReplayRecord]) -> io::Result<()> {
        let _ = self.enters.send(());
        let _ = self.leave.recv();
        Ok(())
    }
}

#[test]
fn stamps_that_come_faster_than_they_are_read_are_counted_to_the_last_one() {
    on_stub("stamps_that_come_faster_than_they_are_read_are_counted_to_the_last_one", |driver| {
        const REPLAYS: usize = 10_000;
        driver.start();
        let ((enters, entered), (leaves, leave)) = (channel(), channel());
        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps).sink(Held { enters, leave }));
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || (0..32).for_each(|_| zone(driver, &ATTENTION, stream, 0)));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        let before = driver.stub_stamps();
        replay(driver, exec, stream, 1);
        entered.recv_timeout(Duration::from_secs(10)).expect("the collector comes to it");
        // 33 stamps each: more than the ring holds, while nobody reads it.
        replay(driver, exec, stream, REPLAYS - 1);
        drop(leaves);
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!(counts.stamps + counts.lost, driver.stub_stamps() - before, "{report}");
        assert!(counts.lost > 0 && counts.replays > 1_000, "{report}");
        // What was lost was whole replays, but for those at its border.
        assert!(counts.replays + counts.lost / 33 + 2 >= REPLAYS as u64, "{report}");
        assert_eq!(counts.replays as usize, sink.take_replays().len());
        assert!(report.to_string().contains("stamps lost"), "{report}");
        assert_eq!(counts.mixed, 0, "{report}");
    });
}

#[test]
fn an_executable_graph_that_outlives_its_session_writes_to_memory_that_is_there() {
    on_stub("an_executable_graph_that_outlives_its_session_writes_to_memory_that_is_there", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 1);
        wait_for_replays(&sink, 1);
        session.finish();
        let (calls, stamps) = (driver.all_calls(), driver.stub_stamps());
        replay(driver, exec, stream, 100);
        assert_eq!(driver.stub_stamps() - stamps, 200);
        assert_eq!(driver.all_calls() - calls, 100, "no session, no call");
        // The next session takes what comes from now on.
        let (session, sink) = stamped();
        replay(driver, exec, stream, 3);
        let replays = wait_for_replays(&sink, 3);
        assert_length(&replays[0], &ATTENTION, 10, 1);
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!((report.graph_timing.stamps, report.graph_timing.captured), (6, 0), "{report}");
    });
}

#[test]
fn a_session_that_is_stopped_leaves_replays_out_and_takes_them_again() {
    on_stub("a_session_that_is_stopped_leaves_replays_out_and_takes_them_again", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 2);
        wait_for_replays(&sink, 2);
        session.stop();
        // By so much the clocks may be off.
        std::thread::sleep(Duration::from_millis(20));
        replay(driver, exec, stream, 10);
        // Longer than the collector rests.
        std::thread::sleep(Duration::from_millis(300));
        assert!(sink.take_replays().is_empty());
        session.start();
        std::thread::sleep(Duration::from_millis(300));
        replay(driver, exec, stream, 3);
        wait_for_replays(&sink, 3);
        let report = session.finish();
        assert_eq!((report.graph_timing.replays, report.graph_timing.mixed), (5, 0), "{report}");
    });
}

#[test]
fn replays_that_ended_before_the_session_was_stopped_are_taken_and_later_ones_counted() {
    on_stub("replays_that_ended_before_the_session_was_stopped_are_taken_and_later_ones_counted", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 1);
        wait_for_replays(&sink, 1);
        // The collector has come to rest: what is made now it reads after the stop.
        std::thread::sleep(Duration::from_millis(200));
        for round in 0..5 {
            replay(driver, exec, stream, 3);
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
            // By so much the clocks may be off.
            std::thread::sleep(Duration::from_millis(20));
            session.stop();
            std::thread::sleep(Duration::from_millis(20));
            replay(driver, exec, stream, 2);
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS, "{round}");
            std::thread::sleep(Duration::from_millis(20));
            session.start();
            std::thread::sleep(Duration::from_millis(20));
        }
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!((counts.replays, counts.stopped), (16, 20), "{report}");
        assert_eq!((counts.incomplete, counts.mixed, counts.stamps), (0, 0, 52), "{report}");
        assert!(
            report.to_string().contains("20 times of replays that began while the session was stopped"),
            "{report}"
        );
    });
}

#[test]
fn a_graph_that_nobody_registers_is_counted() {
    on_stub("a_graph_that_nobody_registers_is_counted", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        replay(driver, exec, stream, 4);
        let report = session.finish();
        assert!(sink.take_replays().is_empty());
        assert_eq!((report.graph_timing.unknown, report.graph_timing.replays), (8, 0), "{report}");
    });
}

#[test]
fn a_context_that_is_gone_is_asked_nothing() {
    on_stub("a_context_that_is_gone_is_asked_nothing", |driver| {
        driver.start();
        let mut context = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 1);
        wait_for_replays(&sink, 1);
        assert_eq!(driver.cuCtxDestroy_v2(context), SUCCESS);
        std::thread::sleep(Duration::from_millis(100));
        assert_all_timed(&session.finish());
        assert_eq!(driver.stub_orphan_uses(), 0);
    });
}

#[test]
fn traces_say_what_the_times_are_from_and_what_was_not_timed() {
    on_stub("traces_say_what_the_times_are_from_and_what_was_not_timed", |driver| {
        driver.start();
        let file = |suffix: &str| scratch(&format!("stamps-trace-{suffix}"));
        let (chrome, perfetto) = (file("chrome"), file("perfetto"));
        let session = Session::builder().settings("graph_timing=stamps").expect("a setting");
        let session = session.chrome(&chrome).perfetto(&perfetto).start().expect("no other session");
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || {
            zone(driver, &ATTENTION, stream, 10);
            driver.fail("cuLaunchKernel", 0, 1, INVALID_HANDLE);
            kernel(driver, stream, 1);
            zone(driver, &MLP, stream, 10);
        });
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        replay(driver, exec, stream, 3);
        let report = session.finish();
        assert_eq!((report.graph_timing.replays, report.graph_timing.untimed_refused), (3, 1), "{report}");
        let text = std::fs::read_to_string(&chrome).expect("it is there");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = json["traceEvents"].as_array().expect("events");
        let of = |name: &str| events.iter().filter(|event| event["name"] == name).cloned().collect::<Vec<_>>();
        let replays = events.iter().filter(|event| event["args"]["timed by"] == "stamps");
        assert_eq!((replays.count(), of(ATTENTION.name()).len(), of(MLP.name()).len()), (3, 3, 0), "{text}");
        let zone = &of(ATTENTION.name())[0];
        assert_eq!((zone["args"]["kernels"].clone(), zone["args"]["us"].clone()), (1.into(), 10.into()), "{zone}");
        let said = &json["otherData"]["replays"];
        assert_eq!((said["recorded"].clone(), said["untimed.refused"].clone()), (3.into(), 1.into()), "{said}");
        let trace = std::fs::read(&perfetto).expect("it is there");
        for word in ["timed_by", "stamps", "replays.recorded", "attention"] {
            assert!(trace.windows(word.len()).any(|bytes| bytes == word.as_bytes()), "{word}");
        }
    });
}

#[test]
fn eager_zones_and_replays_are_recorded_beside_each_other() {
    on_stub("eager_zones_and_replays_are_recorded_beside_each_other", |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        let _zones = register(graph, exec);
        for _ in 0..10 {
            let _eager = EAGER.zone(&raw(stream));
            replay(driver, exec, stream, 1);
        }
        let (zones, replays) = (wait_for(&sink, 10), wait_for_replays(&sink, 10));
        for (zone, replay) in zones.iter().zip(&replays) {
            let gpu = zone.gpu.expect("timed");
            // The clocks are compared each for itself.
            assert!(gpu.begin_ns - replay.gpu.begin_ns < 1_000_000, "{zone:?} {replay:?}");
        }
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!((report.recorded, report.captured, report.graph_timing.replays), (10, 1, 10), "{report}");
        assert_clean(driver);
    });
}

fn boot_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
