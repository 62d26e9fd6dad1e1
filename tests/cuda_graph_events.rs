//! Replays of graphs that are timed by events, with `graph_timing=events`, on a stub driver whose graphs record them: each launch that
//! was told of has its times, one that was not and one for which there were no events are counted, and captures see nothing else.
#![cfg(target_os = "linux")]

#[path = "stub-driver/graphs.rs"]
mod graphs;
#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use graphs::*;
use stub::*;
use warpline::graph::NodeKind;
use warpline::{Batch, GraphTiming, MemorySink, RangeSpec, ReplayRecord, ReplayTiming, Report, Session, Sink};
use warpline_tests::threads;
use zones::*;

warpline::namespace!("cuda_graph_events", "zones that are captured and timed by events");

warpline::range! {
    LAYER = "cuda_graph_events.layer": "A layer.";
    ATTENTION = "cuda_graph_events.attention": "Attention.", lane = "attention";
    MLP = "cuda_graph_events.mlp": "Feed-forward.", lane = "mlp";
}

/// Two timestamps' steps, and what a float of ms leaves out.
const STEP_NS: i64 = 100;
/// So many launches of one executable graph may wait to be read.
const MOST_WAITING: usize = 64;

fn timed() -> (Session, MemorySink) {
    start(|builder| builder.graph_timing(GraphTiming::Events))
}

fn assert_length(replay: &ReplayRecord, range: &'static RangeSpec, us: i64) {
    let is = length_ns(replay, range);
    assert!((is - us * 1_000).abs() <= STEP_NS, "{} is {is} ns, not {us} us: {replay:?}", range.name());
}

/// Replays, launches without events, launches that nobody told of, incomplete and mixed ones.
fn account(report: &Report) -> (u64, u64, u64, u64, u64) {
    let counts = report.graph_timing;
    (counts.replays, counts.launches_lost, counts.launches_untold, counts.incomplete, counts.mixed)
}

fn layer(driver: &Stub, stream: Handle) {
    let _layer = LAYER.zone(&raw(stream)).label("layer 0");
    zone(driver, &ATTENTION, stream, 20);
    zone(driver, &MLP, stream, 30);
}

#[test]
fn each_replay_that_was_told_of_has_its_zones_with_their_lengths() {
    on_stub("each_replay_that_was_told_of_has_its_zones_with_their_lengths", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || layer(driver, stream));
        let kinds: Vec<_> = captured.zones.nodes().map(|node| (node.kind, node.zones.len())).collect();
        use NodeKind::{EventRecord, Kernel};
        assert_eq!(kinds, [(EventRecord, 0), (Kernel, 2), (EventRecord, 0), (Kernel, 2), (EventRecord, 0)]);
        let counts = captured.zones.lanes();
        let lanes: Vec<_> = counts.iter().map(|count| (count.name.as_deref(), count.nodes)).collect();
        assert_eq!(lanes, [(Some("attention"), 1), (Some("mlp"), 1)], "none of ours is counted");
        captured.replay(driver, stream, 5);
        let replays = wait_for_replays(&sink, 5);
        for replay in &replays {
            assert_eq!((replay.timed_by, replay.kernels, replay.zones.len()), (ReplayTiming::Events, 2, 3));
            assert_length(replay, &ATTENTION, 20);
            assert_length(replay, &MLP, 30);
            assert_length(replay, &LAYER, 50);
            assert_eq!(replay.zones[0].zone.fields.label(), Some("layer 0"));
        }
        assert!(replays.windows(2).all(|pair| pair[0].gpu.end_ns <= pair[1].gpu.begin_ns + STEP_NS), "{replays:?}");
        let report = session.finish();
        assert_eq!(account(&report), (5, 0, 0, 0, 0), "{report}");
        let counts = report.graph_timing;
        assert_eq!((counts.captured, counts.shared, counts.stamps, counts.zones), (3, 3, 15, 15), "{report}");
        assert!(report.to_string().contains("5 replays of graphs timed by events"), "{report}");
        assert!(report.notes.is_empty(), "{report}");
        assert_exact(&report);
        assert_eq!(driver.stub_misuse(), 0);
    });
}

#[test]
fn sets_of_events_come_round_and_every_launch_has_its_own_times() {
    on_stub("sets_of_events_come_round_and_every_launch_has_its_own_times", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        let mut begins = Vec::new();
        for _ in 0..MOST_WAITING * 3 {
            // Told of long before it is launched: what the events said before is not taken for it.
            captured.tell();
            std::thread::yield_now();
            captured.launch(driver, stream, 1);
            let replay = wait_for_replays(&sink, 1).remove(0);
            assert_length(&replay, &ATTENTION, 20);
            begins.push(replay.gpu.begin_ns);
        }
        assert!(begins.is_sorted(), "{begins:?}");
        let report = session.finish();
        assert_eq!(account(&report), (MOST_WAITING as u64 * 3, 0, 0, 0, 0), "{report}");
    });
}

#[test]
fn launches_that_find_no_events_are_counted_and_never_wait() {
    on_stub("launches_that_find_no_events_are_counted_and_never_wait", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        let hold = driver.stub_hold(stream);
        captured.replay(driver, stream, MOST_WAITING + 10);
        driver.stub_release(hold);
        wait_for_replays(&sink, MOST_WAITING);
        captured.replay(driver, stream, 1);
        assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 20);
        let report = session.finish();
        assert_eq!(account(&report), (MOST_WAITING as u64 + 1, 10, 0, 0, 0), "{report}");
        assert!(report.to_string().contains("10 launches had no events"), "{report}");
    });
}

#[test]
fn a_launch_that_nobody_told_of_and_one_that_never_came_are_counted() {
    on_stub("a_launch_that_nobody_told_of_and_one_that_never_came_are_counted", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        captured.launch(driver, stream, 1);
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        captured.tell();
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        // One that is never launched is not waited for.
        captured.tell();
        let report = session.finish();
        assert_eq!(account(&report), (3, 0, 1, 2, 0), "{report}");
    });
}

#[test]
fn a_capture_sees_one_event_a_border_in_every_mode_and_is_whole() {
    on_stub("a_capture_sees_one_event_a_border_in_every_mode_and_is_whole", |driver| {
        driver.start();
        let (session, _sink) = timed();
        let stream = driver.stream();
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            driver.mark("capture");
            let graph = capture(driver, stream, mode, || zone(driver, &ATTENTION, stream, 10));
            assert_eq!(driver.stub_graph_nodes(graph), 3);
            let allowed = [
                "cuDriverGetVersion",
                "cuStreamIsCapturing",
                "cuStreamGetCaptureInfo_v3",
                "cuStreamUpdateCaptureDependencies_v2",
                "cuCtxGetCurrent",
                "cuCtxGetId",
                "cuThreadExchangeStreamCaptureMode",
                "cuEventCreate",
                "cuEventRecordWithFlags",
            ];
            let own = ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "stub_launch", "stub_graph_nodes"];
            assert_only(&driver.since("capture", tid()), &[&allowed, &own]);
        }
        // One that is refused leaves the capture as it was, and no event.
        let events = driver.stub_live_events();
        driver.fail("cuEventRecordWithFlags", 0, 1, INVALID_HANDLE);
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        assert_eq!((driver.stub_graph_nodes(graph), driver.stub_live_events()), (1, events));
        let report = session.finish();
        assert_eq!((report.graph_timing.untimed_refused, report.captured), (1, 4), "{report}");
        assert_eq!(driver.calls("cuModuleLoadData"), 0, "no kernel is needed");
    });
}

#[test]
fn a_graph_outlives_its_session_and_is_timed_in_the_next() {
    on_stub("a_graph_outlives_its_session_and_is_timed_in_the_next", |driver| {
        driver.start();
        let (session, _sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        let hold = driver.stub_hold(stream);
        captured.replay(driver, stream, 2);
        assert_eq!(account(&session.finish()), (0, 0, 0, 2, 0), "the device was at work");
        driver.stub_release(hold);
        // Without a session its nodes record what nobody reads, and are exchanged once.
        driver.mark("off");
        captured.replay(driver, stream, 3);
        let exchanged = driver.since("off", tid());
        assert_eq!(exchanged.iter().filter(|call| *call == "cuGraphExecEventRecordNodeSetEvent").count(), 2);
        let (session, sink) = timed();
        captured.replay(driver, stream, 3);
        for replay in wait_for_replays(&sink, 3) {
            assert_length(&replay, &ATTENTION, 20);
        }
        let report = session.finish();
        assert_eq!(account(&report), (3, 0, 0, 0, 0), "{report}");
        assert_eq!(driver.stub_misuse(), 0);
    });
}

#[test]
fn a_context_that_is_gone_is_asked_nothing() {
    on_stub("a_context_that_is_gone_is_asked_nothing", |driver| {
        driver.start();
        let mut context = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 10));
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        assert_eq!(driver.cuCtxDestroy_v2(context), SUCCESS);
        let report = session.finish();
        assert_eq!((account(&report), driver.stub_orphan_uses()), ((1, 0, 0, 0, 0), 0), "{report}");
    });
}

#[test]
fn a_graph_that_is_captured_on_two_contexts_is_counted() {
    on_stub("a_graph_that_is_captured_on_two_contexts_is_counted", |driver| {
        let primary = driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let first = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let mut other = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut other, 0, 0), SUCCESS);
        let second = driver.stream();
        assert_eq!(driver.cuStreamBeginCaptureToGraph(second, first, std::ptr::null(), std::ptr::null(), 0, GLOBAL), 0);
        zone(driver, &MLP, second, 10);
        let graph = end(driver, second);
        assert_eq!(driver.cuCtxSetCurrent(primary), SUCCESS);
        let captured = Captured::of(driver, graph);
        captured.replay(driver, stream, 3);
        let report = session.finish();
        assert_eq!(account(&report), (0, 3, 0, 0, 0), "{report}");
        assert!(sink.take_replays().is_empty());
    });
}

#[test]
fn another_graph_is_refused_and_one_without_events_is_let_be() {
    on_stub("another_graph_is_refused_and_one_without_events_is_let_be", |driver| {
        driver.start();
        let stream = driver.stream();
        let plain = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        let (session, sink) = timed();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        let error = captured.zones.before_launch(&plain.raw()).expect_err("another graph");
        assert!(error.to_string().contains("give the one that `GraphZones::of` was given"), "{error}");
        plain.replay(driver, stream, 2);
        // The driver refuses: the launch is not timed, and the next one is.
        driver.fail("cuGraphExecEventRecordNodeSetEvent", 1, 1, INVALID_HANDLE);
        captured.zones.before_launch(&captured.raw()).expect_err("the driver's refusal");
        captured.launch(driver, stream, 1);
        captured.replay(driver, stream, 1);
        assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 20);
        assert_eq!(account(&session.finish()), (1, 1, 0, 0, 0));
    });
}

#[test]
fn a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole() {
    on_stub("a_stream_that_was_joined_before_its_zone_ends_keeps_the_capture_whole", |driver| {
        driver.start();
        let (session, sink) = timed();
        let (main, side) = (driver.stream(), driver.stream());
        let captured = Captured::new(driver, main, || {
            let forked = driver.record(main);
            assert_eq!(driver.cuStreamWaitEvent(side, forked, 0), SUCCESS);
            {
                let _zone = ATTENTION.zone(&raw(side));
                kernel(driver, side, 10);
                let joined = driver.record(side);
                assert_eq!(driver.cuStreamWaitEvent(main, joined, 0), SUCCESS);
            }
            drop(MLP.zone(&raw(side)));
        });
        captured.replay(driver, main, 2);
        for replay in wait_for_replays(&sink, 2) {
            assert_length(&replay, &ATTENTION, 10);
        }
        assert_eq!(account(&session.finish()), (2, 0, 0, 0, 0));
    });
}

#[test]
fn a_capture_over_two_contexts_is_timed_in_the_first_one() {
    on_stub("a_capture_over_two_contexts_is_timed_in_the_first_one", |driver| {
        let primary = driver.start();
        let (session, sink) = timed();
        let (main, mut other) = (driver.stream(), 0);
        assert_eq!(driver.cuCtxCreate_v2(&mut other, 0, 0), SUCCESS);
        let side = driver.stream();
        assert_eq!(driver.cuCtxSetCurrent(primary), SUCCESS);
        let captured = Captured::new(driver, main, || {
            zone(driver, &ATTENTION, main, 10);
            let forked = driver.record(main);
            assert_eq!(driver.cuStreamWaitEvent(side, forked, 0), SUCCESS);
            assert_eq!(driver.cuCtxSetCurrent(other), SUCCESS);
            kernel(driver, side, 1);
            zone(driver, &MLP, side, 10);
            let joined = driver.record(side);
            assert_eq!(driver.cuCtxSetCurrent(primary), SUCCESS);
            assert_eq!(driver.cuStreamWaitEvent(main, joined, 0), SUCCESS);
        });
        captured.replay(driver, main, 2);
        for replay in wait_for_replays(&sink, 2) {
            assert_eq!(replay.zones.len(), 1, "{replay:?}");
            assert_length(&replay, &ATTENTION, 10);
        }
        let report = session.finish();
        assert_eq!((account(&report), report.graph_timing.untimed_spanning), ((2, 0, 0, 0, 0), 1), "{report}");
    });
}

/// Waits until something is so that other threads bring about.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(10), "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes replays, each batch only when it is let.
struct Gated {
    replays: MemorySink,
    came: mpsc::Sender<()>,
    gate: mpsc::Receiver<()>,
}

impl Gated {
    fn new() -> (Gated, MemorySink, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (replays, (came, is_in), (let_in, gate)) = (MemorySink::new(1_000), mpsc::channel(), mpsc::channel());
        (Gated { replays: replays.clone(), came, gate }, replays, is_in, let_in)
    }
}

impl Sink for Gated {
    fn name(&self) -> String {
        "gated".to_owned()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Batch::Replays(_) = batch else { return Ok(()) };
        let _ = self.came.send(());
        // Whoever has let go lets all in.
        let _ = self.gate.recv();
        self.replays.write(batch)
    }
}

#[test]
fn a_session_that_was_given_up_takes_nothing_of_the_next_one() {
    on_stub("a_session_that_was_given_up_takes_nothing_of_the_next_one", |driver| {
        driver.start();
        let session = |sink, ms| {
            let builder = Session::builder().sink(sink).graph_timing(GraphTiming::Events);
            builder.finish_timeout(Duration::from_millis(ms)).start().expect("no other session")
        };
        let (sink, _, is_in, let_first_in) = Gated::new();
        let first = session(sink, 10);
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        captured.replay(driver, stream, 1);
        is_in.recv().expect("the first collector is in its sink");
        let report = first.finish();
        assert!(report.to_string().contains("did not return in time"), "{report}");

        let (sink, replays, is_in, let_second_in) = Gated::new();
        let second = session(sink, 10_000);
        captured.replay(driver, stream, 1);
        is_in.recv().expect("the second collector is in its sink");
        // These wait to be read while the first collector comes back and ends.
        captured.replay(driver, stream, 5);
        driver.cuStreamSynchronize(stream);
        drop(let_first_in);
        wait_until(|| threads("warpline") == 1);
        drop(let_second_in);
        wait_for_replays(&replays, 6).iter().for_each(|replay| assert_length(replay, &ATTENTION, 20));
        let report = second.finish();
        assert_eq!(account(&report), (6, 0, 0, 0, 0), "{report}");
    });
}

#[test]
fn graphs_that_nobody_holds_are_forgotten_once_they_are_read() {
    /// Graphs that the process remembers although nobody holds them.
    const REMEMBERED: usize = 256;
    on_stub("graphs_that_nobody_holds_are_forgotten_once_they_are_read", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        // None is destroyed, so no handle comes again.
        let replay = || {
            let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 5));
            let Captured { graph, exec, zones } = captured;
            let captured = Captured { graph, exec, zones: zones.named("a step") };
            captured.replay(driver, stream, 1);
        };
        replay();
        let name = wait_for_replays(&sink, 1)[0].name.as_ref().map(Arc::downgrade).expect("it is named");
        for _ in 0..REMEMBERED + 2 {
            replay();
            wait_for_replays(&sink, 1);
        }
        assert!(name.upgrade().is_none(), "the first graph is remembered");
        assert_eq!(account(&session.finish()), (REMEMBERED as u64 + 3, 0, 0, 0, 0));
    });
}

#[test]
fn launches_in_a_context_that_goes_are_counted_and_not_asked_for_again() {
    on_stub("launches_in_a_context_that_goes_are_counted_and_not_asked_for_again", |driver| {
        driver.start();
        let (session, sink) = timed();
        let mut context = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 10));
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        driver.stub_hold(stream);
        captured.replay(driver, stream, 2);
        assert_eq!(driver.cuCtxDestroy_v2(context), SUCCESS);
        // What is told of meanwhile is soon read, and nothing is asked for between.
        let calls = || calls_of_others(driver, "cuCtxGetId");
        let mut last = (calls(), Instant::now());
        wait_until(|| {
            if calls() != last.0 {
                last = (calls(), Instant::now());
            }
            last.1.elapsed() > Duration::from_millis(200)
        });
        let report = session.finish();
        assert_eq!((account(&report), driver.stub_orphan_uses()), ((1, 0, 0, 2, 0), 0), "{report}");
    });
}

/// How often the collector has called it.
fn calls_of_others(driver: &Stub, symbol: &str) -> u64 {
    driver.calls(symbol) - driver.calls_on(symbol, tid())
}

#[test]
fn a_device_that_hangs_gets_one_event_of_ours_however_long_it_does() {
    on_stub("a_device_that_hangs_gets_one_event_of_ours_however_long_it_does", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        captured.replay(driver, stream, 1);
        wait_for_replays(&sink, 1);
        let hold = driver.stub_hold_device();
        let records = calls_of_others(driver, "cuEventRecord");
        captured.replay(driver, stream, 1);
        wait_until(|| calls_of_others(driver, "cuEventRecord") > records);
        let looks = calls_of_others(driver, "cuEventElapsedTime");
        wait_until(|| calls_of_others(driver, "cuEventElapsedTime") > looks + 40);
        assert_eq!(calls_of_others(driver, "cuEventRecord"), records + 1);
        driver.stub_release(hold);
        assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 20);
        captured.replay(driver, stream, 1);
        assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 20);
        assert_eq!(account(&session.finish()), (3, 0, 0, 0, 0));
    });
}

#[test]
fn a_device_that_is_late_to_tell_its_time_costs_no_replay() {
    on_stub("a_device_that_is_late_to_tell_its_time_costs_no_replay", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        // The session's own stream shares a queue with one that waits for another process.
        let hold = driver.stub_hold_next();
        captured.replay(driver, stream, 1);
        let behind = driver.record(stream);
        wait_until(|| calls_of_others(driver, "cuEventRecord") > 0);
        // Longer than the collector waits for its first event.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(calls_of_others(driver, "cuEventRecord"), 1, "it is asked for, and not put there again");
        captured.replay(driver, stream, 1);
        driver.stub_release(hold);
        let replays = wait_for_replays(&sink, 2);
        replays.iter().for_each(|replay| assert_length(replay, &ATTENTION, 20));
        let off_ns = replays[0].gpu.end_ns - driver.stub_event_ns(behind);
        assert!(off_ns.abs() < 50_000_000, "{off_ns} ns off");
        let report = session.finish();
        assert_eq!(account(&report), (2, 0, 0, 0, 0), "{report}");
        assert!(report.notes.is_empty(), "{report}");
    });
}

#[test]
fn a_clock_that_cannot_be_made_is_tried_again() {
    on_stub("a_clock_that_cannot_be_made_is_tried_again", |driver| {
        driver.start();
        let (session, sink) = timed();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || zone(driver, &ATTENTION, stream, 20));
        driver.fail("cuStreamCreate", 0, 2, OUT_OF_MEMORY);
        captured.replay(driver, stream, 1);
        assert_length(&wait_for_replays(&sink, 1)[0], &ATTENTION, 20);
        let report = session.finish();
        assert_eq!(account(&report), (1, 0, 0, 0, 0), "{report}");
        let [note] = &report.notes[..] else { panic!("{report}") };
        assert!(note.contains("`cuStreamCreate` gave CUDA_ERROR_OUT_OF_MEMORY"), "{note}");
    });
}
