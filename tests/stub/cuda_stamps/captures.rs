//! What a capture sees of the stamps that time it, and which of its zones are not timed.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use warpline::graph::{GraphZones, NodeKind};
use warpline::timing::GraphTiming;
use warpline_tests::this_test;

use super::{ATTENTION, LAYER, MLP, REDUCE, assert_all_timed, assert_length, stamped, stamped_by_launch_order};
use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

#[test]
fn stamps_are_nobodys_kernels() {
    on_stub(this_test!(), |driver| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, _sink) = stamped();
        let stream = driver.stream();
        let work = || {
            let _layer = LAYER.zone(&raw(stream));
            kernel(driver, stream, 1);
            zone(driver, &ATTENTION, stream, 1);
        };
        let Captured { exec, zones, .. } = Captured::new(driver, stream, work);
        let kinds: Vec<_> = zones.nodes().map(|node| (node.kind, node.zones.len())).collect();
        use NodeKind::{Kernel, Stamp};
        assert_eq!(kinds, [(Stamp, 0), (Kernel, 1), (Stamp, 0), (Kernel, 2), (Stamp, 0)]);
        let counts = zones.lanes();
        let lanes: Vec<_> = counts.iter().map(|count| (count.name.as_deref(), count.nodes, count.kernels)).collect();
        assert_eq!(lanes, [(None, 1, 1), (Some("attention"), 1, 1)]);
        assert!(GraphZones::find(exec as *mut c_void, 2).is_none(), "a stamp's id leads nowhere");
        assert_eq!(GraphZones::find(exec as *mut c_void, 3).map(|zones| zones.len()), Some(2));
        let file = scratch(this_test!());
        zones.save(&file).expect("a file");
        let text = std::fs::read_to_string(&file).expect("it is there");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let schema = serde_json::from_str(include_str!("../../../docs/graph.schema.json")).expect("JSON");
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
fn graphs_that_are_captured_between_the_windows_of_a_budget_have_all_their_zones() {
    const GRAPHS: usize = 25;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps).budget(0.001));
        let stream = driver.stream();
        let mut begun = 0;
        for _ in 0..GRAPHS {
            let captured = Captured::new(driver, stream, || {
                let _layer = LAYER.zone(&raw(stream));
                zone(driver, &ATTENTION, stream, 10);
            });
            captured.launch(driver, stream, 1);
            driver.cuStreamSynchronize(stream);
            // Outside of captures, a zone between windows is not recorded.
            drop(MLP.zone(&raw(stream)));
            begun += 3;
            std::thread::sleep(Duration::from_millis(2));
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, 2 * GRAPHS as u64, "{report}");
        assert!(report.begun < begun, "{report}");
        let replays = sink.take_replays();
        assert_eq!(replays.len(), GRAPHS);
        assert!(replays.iter().all(|replay| replay.zones.len() == 2), "{replays:?}");
    });
}

#[test]
fn only_the_kernel_behind_a_begin_waits_for_a_stamps_launch_alone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let work = || {
            kernel(driver, stream, 1);
            // The second zone begins at the end of the first one, and the third one, too.
            (0..3).for_each(|_| zone(driver, &ATTENTION, stream, 2));
            kernel(driver, stream, 1);
        };
        let (session, sink) = stamped_by_launch_order();
        let captured = Captured::new(driver, stream, work);
        assert_eq!(driver.stub_launch_edges(captured.graph), 3, "the last kernel is beside the last stamp");
        captured.launch(driver, stream, 2);
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!(sink.take_replays().len(), 2);
        // A graph's first stamp, whose kernel would begin late; and a stamp behind a stamp.
        let (session, _sink) = stamped_by_launch_order();
        let graph = capture(driver, stream, GLOBAL, || {
            let _outer = LAYER.zone(&raw(stream));
            kernel(driver, stream, 1);
        });
        assert_eq!(driver.stub_launch_edges(graph), 0);
        session.finish();
        // Nor is one without being asked for.
        let (session, _sink) = stamped();
        assert_eq!(driver.stub_launch_edges(capture(driver, stream, GLOBAL, work)), 0);
        session.finish();
    });
}

/// The edge stays whole where the driver refuses to join by launch order, and the zones are timed.
#[test]
fn a_driver_that_refuses_launch_order_gets_whole_edges() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (session, sink) = stamped_by_launch_order();
        // The first change of place is the one behind the stamp of the begin.
        driver.fail("cuStreamUpdateCaptureDependencies_v2", 0, 1, INVALID_HANDLE);
        let captured = Captured::new(driver, stream, || {
            kernel(driver, stream, 1);
            zone(driver, &ATTENTION, stream, 2);
        });
        assert_eq!(driver.stub_launch_edges(captured.graph), 0);
        captured.launch(driver, stream, 2);
        assert_all_timed(&session.finish());
        assert_eq!(sink.take_replays().len(), 2);
    });
}

#[test]
fn a_capture_sees_one_launch_a_border_in_every_mode_and_is_whole() {
    on_stub(this_test!(), |driver| {
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
            assert_only(&calls, &[&allowed, &["cuStreamBeginCapture_v2", "cuStreamEndCapture", "stub_launch"]]);
            let captured = Captured::read(driver, graph);
            captured.launch(driver, stream, 1);
            assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 10, 1);
        }
        assert_all_timed(&session.finish());
    });
}

#[test]
fn a_stamp_that_is_refused_leaves_the_capture_as_it_was() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        // The first border of the capture is refused, and it has no stamps at all; then the second one, which is alone in that.
        for (skip, nodes) in [(0, 2), (1, 5)] {
            let captured = Captured::new(driver, stream, || {
                driver.fail("cuLaunchKernel", skip, 1, INVALID_HANDLE);
                zone(driver, &ATTENTION, stream, 10);
                zone(driver, &MLP, stream, 20);
            });
            assert_eq!(driver.stub_graph_nodes(captured.graph), nodes);
            assert_eq!(captured.zones.lanes().len(), 2, "labelled all the same");
            captured.launch(driver, stream, 1);
            if skip == 1 {
                let replays = wait_for_replays(&sink, 1);
                assert_eq!(replays[0].zones.len(), 1, "{replays:?}");
                assert_length(&replays[0], &MLP, 20, 1);
            }
        }
        let report = session.finish();
        assert_eq!((report.graph_timing.untimed_refused, report.captured), (3, 4), "{report}");
        assert!(report.to_string().contains("3 captured zones are not timed"), "{report}");
    });
}

#[test]
fn a_stream_of_another_context_keeps_its_capture() {
    on_stub(this_test!(), |driver| {
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
fn a_session_that_starts_before_cuda_times_the_first_capture() {
    const REPLAYS: usize = 20;
    on_stub(this_test!(), |driver| {
        let (session, sink) = stamped();
        assert_eq!(driver.calls("cuInit"), 0, "the program decides when CUDA starts");
        driver.start();
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            // A context of its own, in which nothing has been done yet.
            let mut context = 0;
            assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
            let stream = driver.stream();
            driver.mark("capture");
            let captured = Captured::read(
                driver,
                capture(driver, stream, mode, || {
                    zone(driver, &ATTENTION, stream, 10);
                    zone(driver, &MLP, stream, 20);
                }),
            );
            let calls = driver.since("capture", tid());
            assert_eq!(driver.stub_graph_nodes(captured.graph), 5, "{calls:?}");
            for call in
                ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamQuery", "cuEventQuery"]
            {
                assert!(!calls.iter().any(|called| called == call), "{calls:?}");
            }
            // The thread's mode is what it was.
            let mut of_thread = RELAXED;
            assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut of_thread), SUCCESS);
            assert_eq!(of_thread, GLOBAL);
            assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut of_thread), SUCCESS);
            // At once: the collector has not looked at the context yet.
            captured.launch(driver, stream, REPLAYS);
            for replay in wait_for_replays(&sink, REPLAYS) {
                assert_length(&replay, &ATTENTION, 10, 1);
                assert_length(&replay, &MLP, 20, 1);
            }
        }
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!(report.graph_timing.replays, 3 * REPLAYS as u64, "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_program_that_is_over_before_the_collector_looks_has_its_replays() {
    on_stub(this_test!(), |driver| {
        let (session, sink) = stamped();
        driver.start();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 10));
        captured.launch(driver, stream, 5);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!(sink.take_replays().len(), 5, "{report}");
    });
}

#[test]
fn two_threads_whose_first_captures_are_in_one_context_are_both_timed() {
    on_stub(this_test!(), |driver| {
        let (session, _sink) = stamped();
        let context = driver.start();
        // The first one stands in the middle of preparing the context.
        driver.stop_at("cuModuleLoadData");
        let captured = std::thread::scope(|scope| {
            let capture_one = || {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                let stream = driver.stream();
                let graph = capture(driver, stream, THREAD_LOCAL, || zone(driver, &ATTENTION, stream, 10));
                driver.stub_graph_nodes(graph)
            };
            let first = scope.spawn(capture_one);
            while !driver.stub_is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let second = scope.spawn(capture_one);
            std::thread::sleep(Duration::from_millis(20));
            driver.stub_go_on();
            [first, second].map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!((captured, driver.calls("cuModuleLoadData")), ([3, 3], 1));
        assert_all_timed(&session.finish());
    });
}

#[test]
fn a_capture_waits_once_for_a_thread_that_does_not_finish_preparing_the_context() {
    const ZONES: usize = 20;
    on_stub(this_test!(), |driver| {
        let (session, _sink) = stamped();
        let context = driver.start();
        driver.stop_at("cuModuleLoadData");
        let (took, nodes) = std::thread::scope(|scope| {
            let capture_some = |zones: usize| {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                let (stream, begin) = (driver.stream(), Instant::now());
                let work = || (0..zones).for_each(|_| zone(driver, &ATTENTION, stream, 10));
                let graph = capture(driver, stream, THREAD_LOCAL, work);
                (begin.elapsed(), driver.stub_graph_nodes(graph))
            };
            let first = scope.spawn(move || capture_some(1));
            while !driver.stub_is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let second = scope.spawn(move || capture_some(ZONES)).join().expect("no panic");
            driver.stub_go_on();
            assert_eq!(first.join().expect("no panic").1, 1, "nor is the thread that prepared the context timed");
            second
        });
        // One wait is half a second.
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert_eq!(nodes, ZONES as u64, "the capture is whole");
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed_not_ready, ZONES as u64 + 1, "{report}");
        let line = "another thread was still preparing their context for stamps";
        assert_eq!(report.notes.iter().filter(|note| note.contains(line)).count(), 1, "{report}");
    });
}

#[test]
fn a_driver_that_compiles_nothing_is_a_note_and_zones_are_labelled() {
    on_stub(this_test!(), |driver| {
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
fn a_capture_that_is_not_timed_is_said_on_standard_error_once_while_the_program_runs() {
    on_stub(this_test!(), |driver| {
        let said = scratch("untimed-said");
        let stderr = StandardError::to(&said);
        driver.start();
        let (session, _sink) = stamped();
        let stream = driver.stream();
        driver.fail("cuLaunchKernel", 0, u64::MAX, INVALID_HANDLE);
        for _ in 0..3 {
            capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        }
        let line = "captured zones are not timed in replays: the driver refused a stamp";
        let lines = || std::fs::read_to_string(&said).expect("it is there").matches(line).count();
        let since = Instant::now();
        while lines() == 0 {
            assert!(since.elapsed() < Duration::from_secs(10), "nothing is said");
            std::thread::sleep(Duration::from_millis(1));
        }
        let report = session.finish();
        drop(stderr);
        assert_eq!((lines(), report.notes.len()), (1, 1), "{report}");
        assert!(report.notes[0].contains(line), "{report}");
        assert_eq!(report.graph_timing.untimed_refused, 3, "{report}");
    });
}

#[test]
fn a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let (main, side) = (driver.stream(), driver.stream());
        let captured = Captured::new(driver, main, || {
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
        captured.launch(driver, main, 3);
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
fn a_session_that_ends_within_a_zone_keeps_the_capture_whole() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _sink) = stamped();
        let (main, side) = (driver.stream(), driver.stream());
        assert_eq!(driver.cuStreamBeginCapture_v2(main, GLOBAL), SUCCESS);
        let forked = driver.record(main);
        assert_eq!(driver.cuStreamWaitEvent(side, forked, 0), SUCCESS);
        kernel(driver, side, 10);
        let joined = driver.record(side);
        assert_eq!(driver.cuStreamWaitEvent(main, joined, 0), SUCCESS);
        // Its begin has led the stream behind a stamp that nothing joins.
        let open = ATTENTION.zone(&raw(side));
        assert_exact(&session.finish());
        driver.mark("over");
        drop(open);
        let stamps = driver.since("over", tid()).iter().filter(|call| **call == "cuLaunchKernel").count();
        let mut graph = 0;
        assert_eq!((driver.cuStreamEndCapture(main, &mut graph), stamps), (SUCCESS, 0));
        assert_eq!(driver.stub_misuse(), 0);
    });
}

#[test]
fn captures_that_are_given_up_leave_nothing() {
    on_stub(this_test!(), |driver| {
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
            let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 10));
            captured.launch(driver, stream, 1);
            let replays = wait_for_replays(&sink, 1);
            assert_eq!(replays[0].zones.len(), 1);
            assert_length(&replays[0], &ATTENTION, 10, 1);
            let destroyed = (driver.cuGraphExecDestroy(captured.exec), driver.cuGraphDestroy(captured.graph));
            assert_eq!(destroyed, (SUCCESS, SUCCESS));
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.graph_timing.replays, report.graph_timing.unknown), (100, 0), "{report}");
    });
}

#[test]
fn zones_that_begin_before_the_capture_or_end_after_it_are_not_timed_and_counted() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let before = LAYER.zone(&raw(stream));
        let mut after = None;
        let captured = Captured::new(driver, stream, || {
            zone(driver, &ATTENTION, stream, 10);
            after = Some(MLP.zone(&raw(stream)));
            kernel(driver, stream, 5);
        });
        drop(after);
        captured.launch(driver, stream, 1);
        let replays = wait_for_replays(&sink, 1);
        assert_eq!(replays[0].zones.len(), 1, "{replays:?}");
        drop(before);
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed_spanning, 1, "{report}");
    });
}

/// Another thread ends the capture, destroys its graph and begins another one on the stream while a zone captures the stamp of its
/// end: the stream is not led back to a node that is gone.
#[test]
fn a_capture_that_another_thread_exchanges_is_left_alone() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (session, _sink) = stamped();
        let stream = driver.stream();
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, RELAXED), SUCCESS);
        kernel(driver, stream, 1);
        let zone = ATTENTION.async_zone(&raw(stream));
        kernel(driver, stream, 1);
        driver.stop_at("cuLaunchKernel");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                drop(zone);
            });
            while !driver.stub_is_stopped() {
                std::thread::yield_now();
            }
            // Its handle is the one that the driver gives again.
            kernel(driver, stream, 1);
            assert_eq!(driver.cuGraphDestroy(made(|graph| driver.cuStreamEndCapture(stream, graph))), SUCCESS);
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, RELAXED), SUCCESS);
            driver.stub_go_on();
        });
        kernel(driver, stream, 1);
        let graph = made(|graph| driver.cuStreamEndCapture(stream, graph));
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        assert_exact(&session.finish());
        assert_eq!(driver.stub_misuse(), 0, "nodes of the graph that is gone: {:#?}", driver.last_calls(12));
    });
}

/// The session's own thread takes hold of the context while the capture goes on.
#[test]
fn a_context_of_stamps_is_retained_without_breaking_the_capture() {
    on_stub(this_test!(), |driver| {
        let (session, _sink) = stamped();
        driver.start();
        let (stream, retained) = (driver.stream(), driver.calls("cuDevicePrimaryCtxRetain"));
        let graph = capture(driver, stream, GLOBAL, || {
            zone(driver, &ATTENTION, stream, 10);
            let since = Instant::now();
            while driver.calls("cuDevicePrimaryCtxRetain") == retained {
                assert!(since.elapsed() < Duration::from_secs(10), "the session does not retain the context");
                std::thread::sleep(Duration::from_millis(1));
            }
            zone(driver, &MLP, stream, 10);
        });
        assert_eq!(driver.stub_graph_nodes(graph), 5);
        assert_all_timed(&session.finish());
        assert_eq!(driver.calls("cuStreamGetCtx_v2"), 0, "no captured stream of a primary context is asked");
        assert_eq!(
            (driver.cuDevicePrimaryCtxRelease_v2(0), driver.stub_live_contexts()),
            (SUCCESS, 0),
            "nobody else holds it"
        );
    });
}
