//! Replays of graphs that are timed by stamps, on a stub driver that writes them as a device would: which zones each
//! replay has, for how long, and of which graph. What the capture sees of it is in `captures`, whether a second capture of the same work has the same
//! nodes in `recaptures`; what becomes of stamps that nobody reads, in `sessions`; how the device's clock is compared, in `clocks`. How stamps are put
//! together is tested where that is done, in `warpline`'s collector.

mod captures;
mod clocks;
mod recaptures;
mod sessions;

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::record::{ReplayRecord, ReplayTiming};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::GraphTiming;
use warpline::{RangeSpec, Session};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

warpline::range! {
    LAYER = "stub.cuda_stamps.layer": "A layer.";
    ATTENTION = "stub.cuda_stamps.attention": "Attention.", lane = "attention";
    MLP = "stub.cuda_stamps.mlp": "Feed-forward.", lane = "mlp";
    REDUCE = "stub.cuda_stamps.reduce": "Sums over the group.", kind = collective, lane = "comm: tp0";
    GATHER = "stub.cuda_stamps.gather": "Gathers from the group.", kind = collective;
    EAGER = "stub.cuda_stamps.eager": "Work that is not captured.";
}

/// How long a stamp takes on the stub.
const STAMP_NS: i64 = 2_000;
/// A timestamp's step: a length is off by less.
const STEP_NS: i64 = 32;

/// A session that times replays by stamps, and what it records.
fn stamped() -> (Session, MemorySink) {
    start(|builder| builder.graph_timing(GraphTiming::Stamps))
}

/// The same, and a graph with a zone of 10 µs, captured on a stream.
fn one_zone(driver: &Stub) -> (Session, MemorySink, Handle, Captured) {
    let ((session, sink), stream) = (stamped(), driver.stream());
    let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 10));
    (session, sink, stream, captured)
}

/// A session whose stamps hold the next kernel up only until they have begun.
fn stamped_by_launch_order() -> (Session, MemorySink) {
    start(|builder| builder.graph_timing(GraphTiming::LaunchOrderStamps))
}

/// The zone's kernels, and between them the stamps that are inside of it.
fn assert_length(replay: &ReplayRecord, range: &'static RangeSpec, us: i64, stamps: i64) {
    let (is, expected) = (length_ns(replay, range), us * 1_000 + stamps * STAMP_NS);
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
    on_stub(this_test!(), |driver| {
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
        let captured = Captured::read(driver, graph);
        let before_ns = boot_ns();
        captured.launch(driver, stream, 5);
        let replays = wait_for_replays(&sink, 5);
        for replay in &replays {
            assert_eq!(
                (replay.timed_by, replay.graph, replay.kernels),
                (ReplayTiming::Stamps, captured.zones.number(), 5)
            );
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
fn forks_and_joins_are_timed_on_both_sides() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (one, two) = (driver.stream(), driver.stream());
        let captured = Captured::new(driver, one, || {
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
        let kernels: usize = captured.zones.lanes().iter().map(|count| count.kernels).sum();
        assert_eq!(kernels, 4);
        captured.launch(driver, one, 3);
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
fn the_lanes_of_a_graph_are_those_of_its_replays_also_for_collectives_without_one_of_their_own() {
    on_stub(this_test!(), |driver| {
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
        launch(driver, exec, stream, 1);
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
fn graphs_that_are_instantiated_again_updated_and_cloned_say_whose_replay_it_was() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let of = |range, us| capture(driver, stream, GLOBAL, || zone(driver, range, stream, us));
        let (first, second) = (of(&ATTENTION, 10), of(&MLP, 20));
        let (exec, again) = (instantiate(driver, first), instantiate(driver, first));
        let zones = (register(first, exec), register(second, 0));
        for exec in [exec, again] {
            launch(driver, exec, stream, 2);
            for replay in wait_for_replays(&sink, 2) {
                assert_eq!(replay.graph, zones.0.number());
                assert_length(&replay, &ATTENTION, 10, 1);
            }
        }
        // Updated: it is the other graph's, by its stamps, without being told.
        assert_eq!(driver.cuGraphExecUpdate_v2(again, second, std::ptr::null_mut()), SUCCESS);
        launch(driver, again, stream, 1);
        let replays = wait_for_replays(&sink, 1);
        assert_eq!(replays[0].graph, zones.1.number());
        assert_length(&replays[0], &MLP, 20, 1);
        // A clone has the stamps of what it was made of.
        let mut clone = 0;
        assert_eq!(driver.cuGraphClone(&mut clone, first), SUCCESS);
        let cloned = instantiate(driver, clone);
        launch(driver, cloned, stream, 1);
        assert_eq!(wait_for_replays(&sink, 1)[0].graph, zones.0.number());
        assert_all_timed(&session.finish());
    });
}

#[test]
fn two_executable_graphs_of_one_graph_at_the_same_time_are_counted_and_not_mixed_up() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (one, two) = (driver.stream(), driver.stream());
        let graph = capture(driver, one, GLOBAL, || {
            zone(driver, &ATTENTION, one, 1_000);
            zone(driver, &MLP, one, 1_000);
        });
        let (first, second) = (instantiate(driver, graph), instantiate(driver, graph));
        let _zones = register(graph, first);
        launch(driver, first, one, 1);
        wait_for_replays(&sink, 1);
        driver.stub_hold_stamps(true);
        launch(driver, first, one, 1);
        launch(driver, second, two, 1);
        driver.stub_hold_stamps(false);
        // The next ones are alone again: behind some that nobody can be sure of.
        launch(driver, first, one, 4);
        let replays = wait_for_replays(&sink, 1);
        assert_length(&replays[0], &ATTENTION, 1_000, 1);
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!((counts.replays, counts.mixed, counts.incomplete), (2, 5, 0), "{report}");
    });
}

#[test]
fn traces_say_what_the_times_are_from_and_what_was_not_timed() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let file = |suffix: &str| scratch(&format!("stamps-trace-{suffix}"));
        let (chrome, perfetto) = (file("chrome"), file("perfetto"));
        let session = Session::builder().settings("graph_timing=stamps").expect("a setting");
        let session = session.chrome(&chrome).perfetto(&perfetto).start().expect("no other session");
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || {
            zone(driver, &ATTENTION, stream, 10);
            driver.fail("cuLaunchKernel", 0, 1, INVALID_HANDLE);
            kernel(driver, stream, 1);
            zone(driver, &MLP, stream, 10);
        });
        captured.launch(driver, stream, 3);
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
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        for _ in 0..10 {
            let _eager = EAGER.zone(&raw(stream));
            captured.launch(driver, stream, 1);
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

#[test]
fn each_iteration_of_a_captured_body_is_a_replay_of_the_body() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let ((session, sink), stream) = (stamped(), driver.stream());
        // Loops cannot be instantiated twice, nor cloned, and an event in a body cannot be instantiated at all: stamps are kernels.
        let graph = driver.graph();
        let first = driver.add_kernel(graph, &[]);
        let (_, bodies) = driver.add_conditional(graph, &[first], WHILE, 3, 1);
        let nothing = std::ptr::null();
        let mode = GLOBAL;
        assert_eq!(driver.cuStreamBeginCaptureToGraph(stream, bodies[0], nothing, nothing.cast(), 0, mode), SUCCESS);
        zone(driver, &ATTENTION, stream, 10);
        zone(driver, &MLP, stream, 20);
        assert_eq!(end(driver, stream), bodies[0]);
        let body = register(bodies[0], 0);
        let exec = instantiate(driver, graph);
        let outer = register(graph, exec);
        outer.inside(1, &body).expect("a body");
        launch(driver, exec, stream, 2);
        for replay in wait_for_replays(&sink, 6) {
            assert_eq!((replay.graph, replay.zones.len()), (body.number(), 2), "{replay:?}");
            assert_length(&replay, &ATTENTION, 10, 1);
            assert_length(&replay, &MLP, 20, 1);
        }
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!(report.captured, 2, "{report}");
    });
}
