//! Programs that start their session first, before CUDA: what `graph_timing=stamps`, `kernels` and `calibrate` make of the first
//! context; and what a session with `kernels` leaves behind in launches of graphs.
//!
//! Each test has a process of its own: it begins where no driver is initialised, or where CUPTI has never been.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use gpu::{Gpu, Graph};
use warpline::Session;
use warpline::record::ReplayTiming;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::alone;

use super::captured::{GLOBAL, capture, register, zone};
use super::{CHILD, KERNEL, MS, US, assert_exact, child_with, device, start};

warpline::range! {
    FIRST = "cuda_tests.first": "A zone that is captured first thing.";
}

const REPLAYS: usize = 20;

/// Nodes of a graph whose launches are timed.
const NODES: usize = 100;

/// Runs the body in a process of its own, in which CUDA has not been initialised.
fn first_thing(test: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let _turn = alone();
    child_with(&format!("begin::{test}"), "begin", environment);
}

fn replay(graph: &Graph, stream: &Arc<CudaStream>, times: usize) {
    for _ in 0..times {
        graph.launch(0, stream).expect("launched");
    }
    stream.synchronize().expect("no error");
}

/// A graph of empty kernels.
fn empty_graph(gpu: &Gpu, stream: &Arc<CudaStream>) -> Graph {
    capture(stream, || (0..NODES).try_for_each(|_| gpu.null(stream)))
}

/// What a launch of it takes its thread, in ns: the median of many, each alone on the device.
fn launch_ns(graph: &Graph, stream: &Arc<CudaStream>) -> u128 {
    let one = || {
        let begin = Instant::now();
        graph.launch(0, stream).expect("launched");
        let taken = begin.elapsed().as_nanos();
        stream.synchronize().expect("no error");
        taken
    };
    let mut taken: Vec<u128> = (0..300).map(|_| one()).collect();
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn over(session: Session) -> Report {
    let report = session.finish();
    assert_exact(&report);
    println!("{report}");
    report
}

fn of_kernels() -> (Session, MemorySink) {
    start(Session::builder().kernels(true).ends(EndMode::Eager))
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_first_capture_is_timed() {
    first_thing("the_first_capture_is_timed", &[], || {
        let (session, sink) = start(Session::builder().graph_timing(GraphTiming::Stamps));
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        // In the strictest mode, in which the loading of a module breaks a capture unless the thread says otherwise.
        let graph = Graph::capture(&stream, GLOBAL, || zone(gpu, &FIRST, &stream, 20)).expect("the capture is whole");
        let _zones = register(&graph, 0);
        replay(&graph, &stream, REPLAYS);
        let report = over(session);
        let counts = report.graph_timing;
        assert_eq!((counts.replays, counts.untimed(), counts.lost), (REPLAYS as u64, 0, 0), "{report}");
        assert!(report.notes.is_empty(), "{report}");
        for replay in sink.take_replays() {
            let ns = replay.zones[0].zone.gpu_ns_corrected().expect("timed");
            assert!((18_000..40_000).contains(&ns), "{replay:?}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn with_kernels_and_stamps_each_replay_is_there_once() {
    first_thing("with_kernels_and_stamps_each_replay_is_there_once", &[], || {
        let (session, sink) = start(Session::builder().kernels(true).graph_timing(GraphTiming::Stamps));
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let graph = capture(&stream, || zone(gpu, &FIRST, &stream, 20));
        let _zones = register(&graph, 0);
        replay(&graph, &stream, REPLAYS);
        let report = over(session);
        let (replays, kernels) = (sink.take_replays(), sink.take_kernels());
        assert_eq!(replays.len(), REPLAYS, "{report}");
        assert!(replays.iter().all(|replay| replay.timed_by == ReplayTiming::Kernels), "{replays:?}");
        assert!(replays.iter().all(|replay| replay.kernels == 1 && replay.zones.len() == 1), "{replays:?}");
        let both = (report.graph_timing.replays, report.graph_timing.by_kernels);
        assert_eq!(both, (REPLAYS as u64, REPLAYS as u64), "{report}");
        assert!(kernels.iter().all(|kernel| !kernel.name.starts_with("warpline_")), "{kernels:?}");
        let cost = report.notes.iter().find(|note| note.contains("launches of CUDA graphs took"));
        assert!(cost.is_some_and(|cost| cost.starts_with("20 launches")), "{report}");
        let stays = report.notes.iter().find(|note| note.contains("CUPTI stays in this process"));
        assert!(stays.is_some_and(|stays| stays.contains("a graph was launched while")), "{report}");
        // The graph is as good as before: CUPTI was not ended.
        replay(&graph, &stream, REPLAYS);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_calibration_is_of_the_first_context() {
    first_thing("a_calibration_is_of_the_first_context", &[], || {
        let (session, sink) = start(Session::builder().calibrate().ends(EndMode::Eager));
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        drop(KERNEL.zone(&stream));
        stream.synchronize().expect("no error");
        // The collector comes to it.
        std::thread::sleep(std::time::Duration::from_millis(200));
        gpu.spin(&stream, MS, None).expect("launched");
        for _ in 0..20 {
            let _zone = KERNEL.zone(&stream);
            gpu.spin(&stream, 50 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
        let report = over(session);
        assert!(report.notes.is_empty(), "{report}");
        let mut lengths: Vec<i64> = sink.take().iter().skip(1).filter_map(|zone| zone.gpu_ns_corrected()).collect();
        lengths.sort_unstable();
        let median = lengths[lengths.len() / 2];
        assert!((49_500..52_500).contains(&median), "a spin of 50 us, as CUPTI would say it: {lengths:?}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn launches_of_graphs_are_as_fast_after_a_session_with_kernels_as_before() {
    let test = "launches_of_graphs_are_as_fast_after_a_session_with_kernels_as_before";
    first_thing(test, &[], || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let graph = empty_graph(gpu, &stream);
        let before = launch_ns(&graph, &stream);
        for round in 0..3 {
            let (session, sink) = of_kernels();
            for _ in 0..500 {
                let _zone = KERNEL.zone(&stream);
                gpu.null(&stream).expect("launched");
            }
            stream.synchronize().expect("no error");
            let report = over(session);
            assert_eq!((sink.take_kernels().len(), report.kernels.lost()), (500, 0), "round {round}: {report}");
            assert!(report.notes.is_empty(), "round {round}: {report}");
            let after = launch_ns(&graph, &stream);
            println!("round {round}: a launch took {before} ns before and {after} ns after");
            assert!(after < 2 * before + 2_000, "round {round}: {before} ns before, {after} ns after");
        }
        // A graph that is made now works as well.
        replay(&empty_graph(gpu, &stream), &stream, REPLAYS);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_that_was_launched_under_kernels_still_launches_and_the_report_says_what_stays() {
    let test = "a_graph_that_was_launched_under_kernels_still_launches_and_the_report_says_what_stays";
    first_thing(test, &[], || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let graph = empty_graph(gpu, &stream);
        let before = launch_ns(&graph, &stream);
        let (session, _sink) = of_kernels();
        let during = launch_ns(&graph, &stream);
        let report = over(session);
        assert!(report.notes.iter().any(|note| note.contains("CUPTI stays in this process")), "{report}");
        assert!(report.notes.iter().any(|note| note.contains("300 launches of CUDA graphs took")), "{report}");
        let after = launch_ns(&graph, &stream);
        println!("a launch took {before} ns before, {during} ns with kernels, {after} ns after");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cupti_stays_while_a_kernel_runs_past_the_session() {
    first_thing("cupti_stays_while_a_kernel_runs_past_the_session", &[], || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, _sink) = of_kernels();
        gpu.null(&stream).expect("launched");
        gpu.spin(&stream, 1_000 * MS, None).expect("launched");
        let report = over(session);
        let stays = report.notes.iter().find(|note| note.contains("CUPTI stays in this process"));
        assert!(stays.is_some_and(|stays| stays.contains("may not be complete")), "{report}");
        stream.synchronize().expect("no error");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_events_add_is_not_the_work_of_ten_threads() {
    first_thing("what_events_add_is_not_the_work_of_ten_threads", &[], || {
        let gpu = device();
        let streams = gpu.streams(10).expect("streams");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let quiet = {
            let (session, _sink) = start(Session::builder().ends(EndMode::Eager));
            drop(KERNEL.zone(&streams[0]));
            streams[0].synchronize().expect("no error");
            std::thread::sleep(std::time::Duration::from_millis(200));
            over(session).clocks[0].bracket_ns
        };
        let busy = std::thread::scope(|scope| {
            for stream in &streams {
                let is_over = &is_over;
                scope.spawn(move || {
                    let gpu = device();
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        (0..20).for_each(|_| gpu.spin(stream, 20 * US, None).expect("launched"));
                        stream.synchronize().expect("no error");
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            let (session, _sink) = start(Session::builder().ends(EndMode::Eager));
            for _ in 0..30 {
                let _zone = KERNEL.zone(&streams[0]);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            let report = over(session);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            report.clocks[0].clone()
        });
        println!("an empty pair: {quiet} ns on a quiet device; {busy:?}");
        // The device takes turns between the streams, which costs an empty pair 1.5 us or so. With a kernel of another thread in it, it is 20 us longer.
        assert!(busy.bracket_is_bound || busy.bracket_ns < quiet + 10_000, "{quiet} ns alone, {busy:?}");
    });
}
