//! What a capture sees of the marks in it, and what is left of captures that come to nothing.

use warpline::graph::GraphZones;
use warpline_tests::this_test;

use super::{ATTENTION, LAYER, MLP, TIMED, kernel, paths, zone};
use crate::harness::driver::*;
use crate::harness::graphs::{begin, end, raw_graph, register};
use crate::harness::zones::*;

#[test]
fn captures_that_come_to_nothing_leave_nothing_and_are_not_broken_by_us() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, other) = (driver.stream(), driver.stream());
        // Broken in the middle of a zone; the driver gives the graph's handle again.
        begin(driver, stream);
        kernel(driver, stream);
        let broken = ATTENTION.zone(&raw(stream));
        kernel(driver, stream);
        assert_eq!(driver.cuStreamQuery(stream), CAPTURE_UNSUPPORTED);
        drop(broken);
        let mut graph = 0;
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), CAPTURE_INVALIDATED);
        begin(driver, stream);
        kernel(driver, stream);
        zone(driver, &MLP, stream, 1);
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), ["", "mlp"]);
        // Each call that a captured zone makes fails once: the zone is counted, and the capture goes on.
        for failing in ["cuStreamGetCaptureInfo_v3", "cuStreamIsCapturing"] {
            begin(driver, other);
            driver.fail(failing, 0, 1, NOT_PERMITTED);
            zone(driver, &MLP, other, 1);
            zone(driver, &ATTENTION, other, 1);
            let graph = end(driver, other);
            assert_eq!(paths(&register(graph, 0)), ["", "attention"], "{failing}");
            assert_eq!(driver.stub_graph_nodes(graph), 2);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured), (6, 3), "{report}");
        let dropped = report.dropped;
        assert_eq!((dropped.capture_failed, dropped.event_failed), (2, 1), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn without_a_session_nothing_is_asked_and_nothing_is_known() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        begin(driver, stream);
        driver.mark("capture");
        zone(driver, &MLP, stream, 1);
        assert_eq!(driver.since("capture", tid()), ["stub_launch"]);
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), [""]);
        let gone = GraphZones::for_graph(&raw_graph(0, 0)).expect_err("no graph");
        assert_eq!(
            gone.to_string(),
            "the graph's handle is null: register a graph that is alive; a `CudaGraph` gives its handle from cudarc 0.19.4 \
             on (`cargo update -p cudarc`)"
        );
    });
}

#[test]
fn captures_that_nobody_registers_are_bounded_and_told() {
    const CAPTURES: usize = 300;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        for _ in 0..CAPTURES {
            begin(driver, stream);
            zone(driver, &MLP, stream, 1);
            end(driver, stream);
        }
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, CAPTURES as u64, "{report}");
        assert!(
            report.notes.iter().any(|note| note.contains("zones of 44 captured graphs were discarded")),
            "{report}"
        );
    });
}

#[test]
fn a_graph_is_asked_for_once_and_not_by_the_zones() {
    const NODES: u64 = 1_024;
    const DEPTH: usize = 64;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        let mut open = Vec::new();
        for node in 0..NODES as usize {
            if node % (NODES as usize / DEPTH) == 0 {
                open.push(LAYER.zone(&raw(stream)).field("depth", open.len()));
            }
            kernel(driver, stream);
        }
        while open.pop().is_some() {}
        let graph = end(driver, stream);
        // Twice for each begin and end, but for the first begin, which has nothing before it.
        assert_eq!(driver.calls("cuStreamGetCaptureInfo_v3"), 4 * DEPTH as u64 - 1);
        assert_eq!(driver.calls("cuGraphGetNodes"), 0, "nobody looks into a graph that is still captured");
        let zones = register(graph, 0);
        let depths: Vec<_> = zones.nodes().map(|node| node.zones.len()).collect();
        assert!((0..NODES as usize).all(|node| depths[node] == node / (NODES as usize / DEPTH) + 1), "{depths:?}");
        assert_eq!(
            (driver.calls("cuGraphGetNodes"), driver.calls("cuGraphGetEdges_v2")),
            (2, 2),
            "how many, and which"
        );
        assert_eq!(driver.calls("cuGraphNodeGetType"), NODES);
        assert_eq!(driver.calls("cuFuncGetName"), 1, "once a kernel");
        let registered = driver.all_calls();
        drop((zones.ranges(), zones.lanes(), zones.unlabelled(), GraphZones::find(std::ptr::null_mut(), 0)));
        zones.save(scratch("graph_asked")).expect("a file");
        assert_eq!(driver.all_calls(), registered, "what is known is not asked again");
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn zones_of_every_mode_thread_and_kind_of_guard_are_captured() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, busy) = (driver.stream(), driver.stream());
        for mode in [GLOBAL, 1, RELAXED] {
            // The collector has something to ask for all the time.
            {
                let _busy = TIMED.zone(&raw(busy));
                assert_eq!(driver.stub_launch(busy, 5_000_000), SUCCESS);
            }
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
            kernel(driver, stream);
            let layer = LAYER.async_zone(&raw(stream));
            // Another thread puts its work into the same capture, and ends the zone.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    driver.cuCtxSetCurrent(context);
                    zone(driver, &MLP, stream, 2);
                    drop(layer);
                });
            });
            kernel(driver, stream);
            assert_eq!(paths(&register(end(driver, stream), 0)), ["", "layer/mlp", "layer/mlp", ""], "mode {mode}");
        }
        // The handle of the per-thread stream means another one on another thread.
        begin(driver, PER_THREAD);
        kernel(driver, PER_THREAD);
        zone(driver, &MLP, PER_THREAD, 1);
        let moved = LAYER.async_zone(&raw(PER_THREAD));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                driver.cuCtxSetCurrent(context);
                drop(moved);
            });
        });
        kernel(driver, PER_THREAD);
        assert_eq!(paths(&register(end(driver, PER_THREAD), 0)), ["", "mlp", ""]);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.captured, report.dropped.capture_failed, report.recorded), (7, 1, 3), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn threads_capture_and_register_beside_each_other() {
    const THREADS: usize = 4;
    const CAPTURES: usize = 200;
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (session, _records) = start(|builder| builder);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    driver.cuCtxSetCurrent(context);
                    let stream = driver.stream();
                    let (range, name) = if thread % 2 == 0 { (&ATTENTION, "attention") } else { (&MLP, "mlp") };
                    let mut kept = None;
                    for n in 0..CAPTURES {
                        // With times, and around every other capture.
                        let around = (n % 2 == 0).then(|| LAYER.zone(&raw(stream)));
                        assert_eq!(driver.cuStreamBeginCapture_v2(stream, 1), SUCCESS);
                        zone(driver, range, stream, 1 + n % 3);
                        let graph = end(driver, stream);
                        let zones = register(graph, 0);
                        let is_around = around.is_some();
                        drop(around);
                        let expected = if is_around { format!("layer/{name}") } else { name.to_owned() };
                        assert_eq!(paths(&zones), vec![expected; 1 + n % 3], "capture {n} of thread {thread}");
                        // The graph goes before its zones do, and its handle comes back.
                        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
                        kept = Some(zones);
                    }
                    drop(kept);
                });
            }
        });
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.captured, (THREADS * CAPTURES) as u64, "{report}");
        assert!(report.notes.iter().all(|note| note.contains("no ids of their nodes")), "{report}");
        assert_clean(driver);
    });
}

#[test]
fn a_session_that_ends_during_a_capture_leaves_it_alone() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        zone(driver, &MLP, stream, 1);
        let open = LAYER.zone(&raw(stream));
        kernel(driver, stream);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.captured, report.dropped.unfinished), (1, 1), "{report}");
        driver.mark("over");
        drop(open);
        zone(driver, &MLP, stream, 1);
        assert_eq!(driver.since("over", tid()), ["stub_launch"], "nothing is asked after the session");
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), ["mlp", "", ""], "what was noted is not lost");
        assert_eq!(driver.stub_misuse(), 0);
    });
}
