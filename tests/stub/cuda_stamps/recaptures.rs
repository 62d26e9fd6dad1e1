//! The same work is captured twice, and an executable graph of the first capture is updated with the second one: stamps are nodes, so both
//! captures must have the same ones.

use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use warpline::graph::NodeKind;
use warpline::timing::GraphTiming;
use warpline_tests::this_test;

use super::{ATTENTION, LAYER, MLP, assert_all_timed, stamped};
use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

/// Two zones, with something between them.
fn work(driver: &Stub, stream: Handle, between: impl FnOnce()) {
    let _layer = LAYER.zone(&raw(stream));
    zone(driver, &ATTENTION, stream, 10);
    between();
    kernel(driver, stream, 1);
    zone(driver, &MLP, stream, 20);
}

/// Its kernels, and with stamps those before, between and behind the zones.
const UNSTAMPED: u64 = 3;
const STAMPED: u64 = 7;

fn kinds(graph: Handle) -> Vec<NodeKind> {
    register(graph, 0).nodes().map(|node| node.kind).collect()
}

/// The second capture has the nodes of the first one, and an executable graph takes it.
#[track_caller]
fn assert_same(driver: &Stub, first: Handle, second: Handle, nodes: u64) {
    assert_eq!([first, second].map(|graph| driver.stub_graph_nodes(graph)), [nodes; 2]);
    assert_eq!(kinds(first), kinds(second));
    assert_eq!(driver.cuGraphExecUpdate_v2(instantiate(driver, first), second, null_mut()), SUCCESS);
}

/// Runs `during` while another thread stands in the middle of preparing the context for its own capture. `during` gets what lets that thread
/// go on, and waits until its capture is over.
fn while_a_thread_prepares(driver: &Stub, context: Handle, during: impl FnOnce(&dyn Fn())) -> Handle {
    driver.stop_at("cuModuleLoadData");
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
            let stream = driver.stream();
            capture(driver, stream, THREAD_LOCAL, || work(driver, stream, || ()))
        });
        while !driver.stub_is_stopped() {
            thread::sleep(Duration::from_millis(1));
        }
        during(&|| {
            driver.stub_go_on();
            while !other.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        other.join().expect("no panic")
    })
}

#[test]
fn a_context_that_becomes_ready_between_two_captures_has_stamps_in_neither() {
    on_stub(this_test!(), |driver| {
        let (session, _sink) = stamped();
        let (context, mut first) = (driver.start(), 0);
        let stream = driver.stream();
        let capture = || capture(driver, stream, THREAD_LOCAL, || work(driver, stream, || ()));
        let other = while_a_thread_prepares(driver, context, |go_on| {
            first = capture();
            go_on();
        });
        assert_same(driver, first, capture(), UNSTAMPED);
        assert_same(driver, other, first, UNSTAMPED);
        let report = session.finish();
        assert_eq!((report.graph_timing.captured, report.graph_timing.untimed_not_ready), (0, 9), "{report}");
        let notes = report.notes.iter().filter(|note| note.contains("start another session")).count();
        assert_eq!(notes, 1, "{report}");
        // The context is ready now, and the next session decides anew.
        let (session, _sink) = stamped();
        assert_same(driver, capture(), capture(), STAMPED);
        assert_all_timed(&session.finish());
    });
}

#[test]
fn a_context_that_becomes_ready_in_a_capture_has_no_stamps_there_nor_in_the_next_one() {
    on_stub(this_test!(), |driver| {
        let (session, _sink) = stamped();
        let (context, mut first) = (driver.start(), 0);
        let stream = driver.stream();
        while_a_thread_prepares(driver, context, |go_on| {
            first = capture(driver, stream, THREAD_LOCAL, || work(driver, stream, go_on));
        });
        let second = capture(driver, stream, THREAD_LOCAL, || work(driver, stream, || ()));
        assert_same(driver, first, second, UNSTAMPED);
        assert_eq!(session.finish().graph_timing.captured, 0);
    });
}

#[test]
fn a_capture_whose_first_border_has_no_context_has_no_stamps_at_all() {
    on_stub(this_test!(), |driver| {
        let context = driver.start();
        let (session, _sink) = stamped();
        let stream = driver.stream();
        let capture = || {
            capture(driver, stream, THREAD_LOCAL, || {
                assert_eq!(driver.cuCtxSetCurrent(0), SUCCESS);
                zone(driver, &ATTENTION, stream, 10);
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                zone(driver, &MLP, stream, 20);
            })
        };
        assert_same(driver, capture(), capture(), 2);
        assert_eq!(session.finish().graph_timing.untimed_not_ready, 4);
    });
}

/// A zone that the sample leaves out is labelled and stamped where it is captured.
#[test]
fn a_sample_leaves_no_zone_out_of_a_capture() {
    const ZONES: u64 = 20;
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let capture =
            || capture(driver, stream, THREAD_LOCAL, || (0..ZONES).for_each(|_| zone(driver, &ATTENTION, stream, 10)));
        let (session, _sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps).sample(0.5));
        assert_same(driver, capture(), capture(), 2 * ZONES + 1);
        // Outside of captures it is a sample.
        (0..500).for_each(|_| zone(driver, &ATTENTION, stream, 0));
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.captured, report.begun + report.not_sampled), (2 * ZONES, 500 + 2 * ZONES), "{report}");
        assert!((100..400).contains(&report.not_sampled), "{report}");
        // Nor does one within the windows of a budget, whether a window is open or not.
        let (session, _sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps).sample(0.5).budget(0.5));
        for _ in 0..100 {
            assert_eq!(driver.stub_graph_nodes(capture()), 2 * ZONES + 1);
            zone(driver, &ATTENTION, stream, 0);
            thread::sleep(Duration::from_millis(5));
        }
        assert_exact(&session.finish());
        // Without stamps, it is a sample in captures, too.
        let (session, _sink) = start(|builder| builder.sample(0.5));
        (0..10).for_each(|_| _ = capture());
        let report = session.finish();
        assert!((50..150).contains(&report.captured), "{report}");
        assert_eq!(report.captured + report.not_sampled, 10 * ZONES, "{report}");
    });
}

/// Other captures do not make it forget its stamps while it goes on.
#[test]
fn a_capture_that_goes_on_among_others_keeps_its_stamps() {
    const ZONES: u64 = 5;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _sink) = stamped();
        let (stream, other) = (driver.stream(), driver.stream());
        let capture = |others: usize| {
            capture(driver, stream, RELAXED, || {
                for _ in 0..ZONES {
                    // Each begins at the stamp with which the last one ended.
                    zone(driver, &ATTENTION, stream, 10);
                    for _ in 0..others {
                        capture(driver, other, RELAXED, || zone(driver, &MLP, other, 10));
                    }
                }
            })
        };
        assert_same(driver, capture(0), capture(100), 2 * ZONES + 1);
        let report = session.finish();
        assert_eq!(report.graph_timing.untimed(), 0, "{report}");
    });
}

/// What the page on graphs says: a graph that was captured outside of a session with stamps is updated with none of a capture in it.
#[test]
fn a_session_that_begins_stops_or_ends_between_two_captures_changes_the_nodes() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let capture = || capture(driver, stream, THREAD_LOCAL, || work(driver, stream, || ()));
        let before = capture();
        let (session, _sink) = stamped();
        let within = capture();
        let update = |exec, graph| driver.cuGraphExecUpdate_v2(exec, graph, null_mut());
        assert_eq!(update(instantiate(driver, before), within), GRAPH_EXEC_UPDATE_FAILURE);
        session.stop();
        assert_same(driver, before, capture(), UNSTAMPED);
        session.start();
        assert_same(driver, within, capture(), STAMPED);
        assert_all_timed(&session.finish());
        assert_same(driver, before, capture(), UNSTAMPED);
        // Two sessions capture the same stamps.
        let (session, _sink) = stamped();
        assert_same(driver, within, capture(), STAMPED);
        assert_all_timed(&session.finish());
    });
}
