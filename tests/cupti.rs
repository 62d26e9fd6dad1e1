//! Kernels of a session, on the stub CUPTI: which zone each belongs to, that what CUPTI says arrives whole, that whatever
//! goes wrong costs kernels and nothing else, and that nothing is left behind.
#![cfg(target_os = "linux")]

#[path = "stub-cupti/harness.rs"]
mod cupti;
#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cupti::*;
use stub::{Stub, in_child};
use warpline::graph::{GraphZones, RawGraph};
use warpline::{
    CollectiveKind, DataType, KernelRecord, KernelWork, MemorySink, Message, ProcessGroup, ReduceOp, Report, Session,
    Sink, ZoneRecord, ZoneRef,
};
use zones::{assert_exact, raw};

warpline::namespace!("cupti_test", "zones whose kernels are recorded");

warpline::range! {
    OUTER = "cupti_test.outer": "A step.";
    INNER = "cupti_test.inner": "A part of a step.";
    LAYER = "cupti_test.layer": "A layer.", fields(batch);
    ATTENTION = "cupti_test.attention": "Attention.", lane = "attention";
    REDUCE = "cupti_test.reduce": "Sums over the group.", kind = collective, lane = "comm";
    SUM = "cupti_test.sum": "Sums over the group, on its lane.", kind = collective;
    HOST = "cupti_test.host": "Work of the host.", kind = host;
}

/// A session with kernels, and where its records go.
fn start() -> (Session, MemorySink) {
    zones::start(|builder| builder.kernels(true))
}

/// The zones and the kernels of a session that is over, kernels by correlation.
fn finish(session: Session, sink: &MemorySink) -> (Report, Vec<ZoneRecord>, Vec<KernelRecord>) {
    let report = session.finish();
    assert_exact(&report);
    let mut kernels = sink.take_kernels();
    assert_eq!(kernels.len() as u64, report.kernels.recorded, "{report}");
    kernels.sort_by_key(|kernel| kernel.correlation);
    (report, sink.take(), kernels)
}

fn is_of(zone: Option<ZoneRef>, record: &ZoneRecord) -> bool {
    zone.is_some_and(|zone| {
        std::ptr::eq(zone.range, record.range)
            && zone.sequence == record.sequence
            && zone.stream == record.stream.as_ref().map(|stream| stream.id)
    })
}

fn only_note(report: &Report) -> &str {
    assert_eq!(report.notes.len(), 1, "{report}");
    &report.notes[0]
}

#[test]
fn a_kernel_belongs_to_the_innermost_zone_of_its_thread() {
    with_cupti("a_kernel_belongs_to_the_innermost_zone_of_its_thread", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (one, other) = (driver.stream(), driver.stream());
        cupti.launch(kernel(c"before"));
        for _ in 0..3 {
            let _outer = OUTER.zone(&raw(one));
            cupti.launch(kernel(c"in_outer"));
            {
                let _inner = INNER.zone(&raw(other));
                cupti.launch(kernel(c"in_inner"));
            }
            cupti.launch(kernel(c"in_outer"));
            // Another thread is in no zone.
            thread::scope(|scope| {
                scope.spawn(|| cupti.launch(kernel(c"elsewhere")));
            });
        }
        {
            let _host = HOST.host();
            cupti.launch(kernel(c"in_host"));
        }
        cupti.launch(kernel(c"after"));
        let (_, zones, kernels) = finish(session, &sink);
        assert_eq!(kernels.len(), 3 * 4 + 3);
        let of = |name: &str| kernels.iter().filter(|kernel| &*kernel.name == name).collect::<Vec<_>>();
        for free in ["before", "elsewhere", "after"] {
            assert!(of(free).iter().all(|kernel| kernel.zone.is_none()), "{free}");
        }
        for (range, name, each) in [(&OUTER, "in_outer", 2), (&INNER, "in_inner", 1), (&HOST, "in_host", 1)] {
            let mut marked: Vec<_> = zones.iter().filter(|zone| std::ptr::eq(zone.range, range)).collect();
            marked.sort_by_key(|zone| zone.sequence);
            let kernels = of(name);
            assert_eq!(kernels.len(), marked.len() * each);
            for (zone, kernels) in marked.into_iter().zip(kernels.chunks(each)) {
                assert!(kernels.iter().all(|kernel| is_of(kernel.zone, zone)), "{kernels:?} are not of {zone:?}");
            }
        }
        assert_eq!(cupti.stub_cupti_depth(), 0);
    });
}

#[test]
fn the_stack_of_zones_stays_balanced_however_zones_end() {
    with_cupti("the_stack_of_zones_stays_balanced_however_zones_end", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        // The outer one ends first.
        let outer = OUTER.zone(&raw(stream));
        let inner = INNER.zone(&raw(stream));
        drop(outer);
        let in_inner = cupti.launch(kernel(c"k"));
        drop(inner);
        assert_eq!(cupti.stub_cupti_depth(), 0);
        let free = cupti.launch(kernel(c"k"));
        // A panic.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _outer = OUTER.zone(&raw(stream));
            let _inner = INNER.zone(&raw(stream));
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(cupti.stub_cupti_depth(), 0);
        // A zone that ends on another thread says nothing of launches.
        let moving = OUTER.async_zone(&raw(stream));
        let in_moving = cupti.launch(kernel(c"k"));
        thread::spawn(move || drop(moving)).join().unwrap();
        // A zone that is never ended stays open; what comes after it has its own kernels.
        let outer = OUTER.zone(&raw(stream));
        std::mem::forget(INNER.zone(&raw(stream)));
        drop(outer);
        let next = OUTER.zone(&raw(stream));
        let in_next = cupti.launch(kernel(c"k"));
        drop(next);
        let (_, _, kernels) = finish(session, &sink);
        let range = |correlation: u32| {
            let kernel = kernels.iter().find(|kernel| kernel.correlation == correlation).expect("the kernel");
            kernel.zone.map(|zone| zone.range.name())
        };
        assert_eq!(range(in_inner), Some("cupti_test.inner"));
        assert_eq!((range(free), range(in_moving)), (None, None));
        assert_eq!(range(in_next), Some("cupti_test.outer"));
    });
}

#[test]
fn what_cupti_says_of_kernels_copies_and_sets_arrives_whole() {
    with_cupti("what_cupti_says_of_kernels_copies_and_sets_arrives_whole", |driver, cupti| {
        driver.start();
        // CUDA 12.0, 12.9, 13.0, 13.1, 13.5: their records differ in length.
        for version in [18, 28, 130_001, 130_100, 130_500] {
            cupti.stub_cupti_version(version);
            let (session, sink) = start();
            let now_ns = now_ns();
            let time = |launch: Launch, us: u64| Launch {
                begin_ns: now_ns + us * 1_000,
                end_ns: now_ns + us * 1_000 + 1_600,
                ..launch
            };
            let node = |launch: Launch| Launch { graph: 9, node: 9 << 32 | 3, ..launch };
            let of = |kind, bytes| Launch { kind, bytes, ..kernel(c"") };
            cupti.launch(time(kernel(c"_Z4gemmPf"), 10));
            cupti.launch(time(node(kernel(c"_Z4gemmPf")), 20));
            cupti.launch(time(of(MEMCPY, 16_000), 30));
            cupti.launch(time(node(of(MEMCPY2, 32_000)), 40));
            cupti.launch(time(of(MEMSET, 64), 50));
            let (report, _, kernels) = finish(session, &sink);
            assert_eq!((kernels.len(), report.kernels.lost()), (5, 0), "{version}: {report}");
            let names: Vec<_> = kernels.iter().map(|kernel| &*kernel.name).collect();
            let copies = ["Memcpy HtoD (Pinned -> Device)", "Memcpy PtoP (Device -> Device)", "Memset (Device)"];
            assert_eq!(names, ["gemm(float*)", "gemm(float*)", copies[0], copies[1], copies[2]]);
            let gemm = KernelWork::Kernel {
                grid: [8, 4, 2],
                block: [128, 2, 1],
                registers_per_thread: 40,
                static_shared_bytes: 1_024,
                dynamic_shared_bytes: 2_048,
            };
            assert_eq!((&kernels[0].work, &kernels[1].work), (&gemm, &gemm));
            let bytes: Vec<_> = kernels.iter().map(|kernel| kernel.work.bytes()).collect();
            assert_eq!(bytes, [None, None, Some(16_000), Some(32_000), Some(64)]);
            assert_eq!(kernels[2].bytes_per_second(), Some(1e10));
            for (index, kernel) in kernels.iter().enumerate() {
                assert_eq!((kernel.context, kernel.cuda_stream, kernel.duration_ns()), (1, 7, 1_600), "{kernel:?}");
                let wanted_ns = (now_ns + (index as u64 + 1) * 10_000).cast_signed();
                let off_ns = kernel.gpu.begin_ns - wanted_ns;
                assert!(off_ns.abs() < 1_000_000, "{version}: {index} is {off_ns} ns off");
                let graph = kernel.graph.map(|node| (node.graph, node.node));
                assert_eq!(graph, (index == 1 || index == 3).then_some((9, 9 << 32 | 3)), "{version}: {kernel:?}");
                let launch = kernel.launch.as_ref().expect("CUPTI has reported the call");
                assert_eq!((launch.thread.id, launch.host.duration_ns()), (stub::tid() as u64, 3_000));
            }
        }
    });
}

#[test]
fn the_kernels_of_one_graph_launch_share_its_correlation_and_its_zone() {
    with_cupti("the_kernels_of_one_graph_launch_share_its_correlation_and_its_zone", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        for _ in 0..2 {
            let _outer = OUTER.zone(&raw(stream));
            for node in 0..13 {
                let is_more = u32::from(node > 0);
                cupti.launch(Launch { graph: 4, node: 4 << 32 | node, is_more, ..kernel(c"node") });
            }
        }
        let (_, zones, kernels) = finish(session, &sink);
        assert_eq!(kernels.len(), 26);
        for (kernels, sequence) in kernels.chunks(13).zip(0..) {
            let zone = zones.iter().find(|zone| zone.sequence == sequence).expect("the zone");
            assert!(kernels.iter().all(|kernel| is_of(kernel.zone, zone)));
            assert!(kernels.iter().all(|kernel| kernel.correlation == kernels[0].correlation));
        }
    });
}

#[test]
fn kernels_stand_on_the_stream_of_the_zones() {
    with_cupti("kernels_stand_on_the_stream_of_the_zones", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let (marked, late) = (driver.stream(), driver.stream());
        let on = |stream| Launch { stream: number(stream), ..kernel(c"k") };
        drop(OUTER.zone(&raw(marked)));
        let first = cupti.launch(on(marked));
        let second = cupti.launch(on(late));
        let third = cupti.launch(Launch { stream: 3, ..kernel(c"k") });
        drop(HOST.zone(&raw(stub::LEGACY)));
        let fourth = cupti.launch(Launch { stream: 0, ..kernel(c"k") });
        // Until the kernels have arrived: then a zone begins on a stream that only CUPTI has seen.
        let mut kernels = arrived(&sink, 4);
        drop(INNER.zone(&raw(late)));
        driver.cuStreamSynchronize(late);
        let report = session.finish();
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (4, 0), "{report}");
        let zones = sink.take();
        kernels.sort_by_key(|kernel| kernel.correlation);
        let stream = |correlation: u32| {
            &kernels.iter().find(|kernel| kernel.correlation == correlation).expect("the kernel").stream
        };
        let of_zone =
            |range| zones.iter().find(|zone| std::ptr::eq(zone.range, range)).and_then(|zone| zone.stream.clone());
        assert_eq!(of_zone(&OUTER).as_ref(), Some(stream(first)));
        assert_eq!(of_zone(&INNER).as_ref(), Some(stream(second)));
        assert_eq!((of_zone(&HOST).as_ref(), &*stream(fourth).name), (Some(stream(fourth)), "default stream"));
        assert_eq!(stream(third).name, "CUDA stream 3");
        assert_eq!(stream(third).device, stream(first).device);
    });
}

#[test]
fn a_stream_that_is_being_captured_is_not_asked_for_its_number() {
    with_cupti("a_stream_that_is_being_captured_is_not_asked_for_its_number", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let mut graph = 0;
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, stub::GLOBAL), stub::SUCCESS);
        drop(OUTER.zone(&raw(stream)));
        assert_eq!((cupti.calls("cuptiGetStreamIdEx"), cupti.calls("cuptiGetContextId")), (0, 0));
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), stub::SUCCESS);
        let outer = OUTER.zone(&raw(stream));
        let correlation = cupti.launch(Launch { stream: number(stream), ..kernel(c"k") });
        drop(outer);
        driver.cuStreamSynchronize(stream);
        let (report, zones, kernels) = finish(session, &sink);
        assert_eq!((report.captured, zones.len(), kernels.len()), (1, 1, 1), "{report}");
        assert!(is_of(kernels[0].zone, &zones[0]) && kernels[0].correlation == correlation);
        assert_eq!(Some(&kernels[0].stream), zones[0].stream.as_ref());
    });
}

#[test]
fn a_replay_has_the_zones_that_were_captured_into_it() {
    with_cupti("a_replay_has_the_zones_that_were_captured_into_it", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let (_zones, exec) = captured(driver, stream);
        for replay in 0..3 {
            let _outer = OUTER.zone(&raw(stream));
            replay_graph(cupti, stream, exec, 1_000_000_000 + replay * 1_000_000);
        }
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (18, 18), "{report}");
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 3);
        for (replay, sequence) in replays.iter().zip(0..) {
            assert_eq!((replay.kernels, replay.gpu.duration_ns(), replay.exec), (6, 60_000, exec), "{replay:?}");
            assert_eq!(
                replay.zone.map(|zone| (zone.range.name(), zone.sequence)),
                Some(("cupti_test.outer", sequence))
            );
            assert!(replay.launch.is_some());
            let zones: Vec<_> = (replay.zones.iter())
                .map(|replayed| {
                    let zone = &replayed.zone;
                    let gpu = zone.gpu.expect("it has kernels");
                    let from_us = (gpu.begin_ns - replay.gpu.begin_ns) / 1_000;
                    let name = zone.range.name().trim_start_matches("cupti_test.");
                    (name, zone.depth, replayed.lane.as_deref(), replayed.kernels, from_us, gpu.duration_ns() / 1_000)
                })
                .collect();
            assert_eq!(
                zones,
                [
                    ("layer", 0, None, 5, 10, 50),
                    ("attention", 1, Some("attention"), 2, 10, 20),
                    // In the lane of the zone around it.
                    ("inner", 2, Some("attention"), 1, 20, 10),
                    // Twice captured, twice there.
                    ("attention", 1, Some("attention"), 1, 40, 10),
                    ("reduce", 1, Some("comm"), 1, 50, 10),
                ]
            );
            let fields: Vec<_> =
                replay.zones[0].zone.fields.iter().map(|(name, value)| (name, value.to_string())).collect();
            assert_eq!(
                (fields, replay.zones[0].zone.fields.label()),
                (vec![("batch", "4".to_owned())], Some("layer 0"))
            );
            let message = replay.zones[4].zone.message.as_ref().expect("a collective says what it moves");
            assert_eq!(message.bytes(), Some(4_096));
        }
    });
}

#[test]
fn a_captured_collective_says_all_in_every_replay_on_the_lane_of_its_group() {
    with_cupti("a_captured_collective_says_all_in_every_replay_on_the_lane_of_its_group", |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        let stream = driver.stream();
        let kernel_node = || assert_eq!(driver.stub_launch(stream, 0), stub::SUCCESS);
        let group = ProcessGroup::new("tp0", [0, 1], 1);
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, stub::GLOBAL), stub::SUCCESS);
        {
            // A section with a lane of its own, as the one that an all-reduce ends.
            let _attention = ATTENTION.zone(&raw(stream));
            kernel_node();
            {
                let message = Message::new(CollectiveKind::AllReduce).count(1_024_u32).dtype(DataType::F32);
                let _sum = SUM.zone(&raw(stream)).message(message.group(&group).op(ReduceOp::Sum));
                kernel_node();
            }
            let _inner = INNER.zone(&raw(stream));
            kernel_node();
        }
        let (mut graph, mut exec, mut id) = (0, 0, 0);
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), stub::SUCCESS);
        assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), stub::SUCCESS);
        assert_eq!(driver.cuGraphExecGetId(exec, &mut id), stub::SUCCESS);
        // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
        let raw_graph = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
        let _zones = GraphZones::of(&raw_graph).expect("a graph that is alive");
        for replay in 0..5 {
            for node in 0..3 {
                let begin_ns = 1_000_000_000 + replay * 1_000_000 + node * 10_000;
                cupti.launch(Launch {
                    stream: number(stream),
                    graph: id,
                    node: u64::from(id) << 32 | node,
                    is_more: u32::from(node > 0),
                    begin_ns,
                    // The next one begins a little before this one ends, as a device may have it.
                    end_ns: begin_ns + 10_100,
                    ..kernel(c"node")
                });
            }
        }
        let report = session.finish();
        assert_exact(&report);
        let replays = sink.take_replays();
        assert_eq!((replays.len(), report.captured), (5, 3), "{report}");
        for replay in &replays {
            let zones: Vec<_> = (replay.zones.iter())
                .map(|of| (of.zone.range.name(), of.zone.depth, of.lane.as_deref(), of.kernels))
                .collect();
            assert_eq!(
                zones,
                [
                    ("cupti_test.attention", 0, Some("attention"), 3),
                    ("cupti_test.sum", 1, Some(group.lane()), 1),
                    ("cupti_test.inner", 1, Some("attention"), 1),
                ]
            );
            let message = replay.zones[1].zone.message.as_ref().expect("a collective says what it moves");
            let of = message.group.as_ref().expect("a group");
            assert_eq!((message.kind, message.dtype), (CollectiveKind::AllReduce, Some(DataType::F32)));
            assert_eq!((message.count, message.bytes(), message.op), (Some(1_024), Some(4_096), Some(ReduceOp::Sum)));
            assert_eq!((message.seq, of.name(), of.ranks(), of.rank()), (Some(0), "tp0", &[0, 1][..], 1));
        }
    });
}

#[test]
fn a_driver_that_tells_no_ids_leaves_them_to_cupti() {
    with_cupti("a_driver_that_tells_no_ids_leaves_them_to_cupti", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, stub::GLOBAL), stub::SUCCESS);
        {
            let _attention = ATTENTION.zone(&raw(stream));
            (0..2).for_each(|_| assert_eq!(driver.stub_launch(stream, 0), stub::SUCCESS));
        }
        let (mut graph, mut exec, mut nodes, mut count) = (0, 0, [0; 2], 2);
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), stub::SUCCESS);
        assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), stub::SUCCESS);
        assert_eq!(driver.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count), stub::SUCCESS);
        // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
        let raw = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
        let _zones = GraphZones::of(&raw).expect("a graph that is alive");
        for (node, is_more) in nodes.into_iter().zip(0..) {
            let exec = exec as u32;
            let node = u64::from(exec) << 32 | u64::from(node as u32);
            cupti.launch(Launch { graph: exec, node, is_more, ..kernel(c"node") });
        }
        // Of a graph that nobody registered.
        cupti.launch(Launch { graph: 5, node: 5 << 32 | 1, ..kernel(c"node") });
        let report = session.finish();
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (3, 3), "{report}");
        let replays = sink.take_replays();
        let zones: Vec<_> = replays.iter().flat_map(|replay| &replay.zones).collect();
        assert_eq!((replays.len(), zones.len()), (1, 1), "{replays:?}");
        assert_eq!((zones[0].zone.range.name(), zones[0].kernels), ("cupti_test.attention", 2));
    });
}

/// Captures a layer into a graph: a kernel outside, two of attention with one in a zone of its own, one of the layer, one of
/// attention again, one of a collective. Gives what keeps the labels, and CUPTI's number of the executable graph.
fn captured(driver: &Stub, stream: stub::Handle) -> (GraphZones, u32) {
    // As CUDA 13.1's driver does.
    driver.stub_tells_ids(true);
    let kernel = || assert_eq!(driver.stub_launch(stream, 0), stub::SUCCESS);
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, stub::GLOBAL), stub::SUCCESS);
    kernel();
    {
        let _layer = LAYER.zone(&raw(stream)).label("layer 0").field("batch", 4_u32);
        {
            let _attention = ATTENTION.zone(&raw(stream));
            kernel();
            let _inner = INNER.zone(&raw(stream));
            kernel();
        }
        kernel();
        {
            let _attention = ATTENTION.zone(&raw(stream));
            kernel();
        }
        let message = Message::new(CollectiveKind::AllReduce).count(1_024_u32).dtype(DataType::F32);
        let _reduce = REDUCE.zone(&raw(stream)).message(message);
        kernel();
    }
    let (mut graph, mut exec, mut id) = (0, 0, 0);
    assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), stub::SUCCESS);
    assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), stub::SUCCESS);
    assert_eq!(driver.cuGraphExecGetId(exec, &mut id), stub::SUCCESS);
    // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
    let raw = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
    (GraphZones::of(&raw).expect("a graph that is alive"), id)
}

/// Six kernels of 10 us, one behind the other.
fn replay_graph(cupti: &Cupti, stream: stub::Handle, exec: u32, from_ns: u64) {
    for node in 0..6 {
        let begin_ns = from_ns + node * 10_000;
        cupti.launch(Launch {
            stream: number(stream),
            graph: exec,
            node: u64::from(exec) << 32 | node,
            is_more: u32::from(node > 0),
            begin_ns,
            end_ns: begin_ns + 10_000,
            ..kernel(c"node")
        });
    }
}

/// Waits until so many kernels are there.
fn arrived(sink: &MemorySink, count: usize) -> Vec<KernelRecord> {
    let (mut kernels, since) = (Vec::new(), Instant::now());
    while kernels.len() < count && since.elapsed() < Duration::from_secs(20) {
        kernels.extend(sink.take_kernels());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(kernels.len(), count);
    kernels
}

#[test]
fn without_kernels_in_the_settings_cupti_is_left_alone() {
    with_cupti("without_kernels_in_the_settings_cupti_is_left_alone", |driver, cupti| {
        driver.start();
        let (session, sink) = zones::start(|builder| builder);
        let stream = driver.stream();
        drop(OUTER.zone(&raw(stream)));
        driver.cuStreamSynchronize(stream);
        let (report, ..) = finish(session, &sink);
        assert_eq!((report.recorded, report.notes.len()), (1, 0), "{report}");
        for symbol in ["cuptiGetVersion", "cuptiSubscribe", "cuptiActivityPushExternalCorrelationId"] {
            assert_eq!(cupti.calls(symbol), 0, "{symbol}");
        }
    });
}

#[test]
fn a_stopped_session_turns_cupti_off_and_asks_nothing_of_it_until_it_starts_again() {
    let test = "a_stopped_session_turns_cupti_off_and_asks_nothing_of_it_until_it_starts_again";
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let launch = || {
            let _zone = OUTER.zone(&raw(stream));
            cupti.launch(kernel(c"k"))
        };
        let (session, sink) = start();
        let before = launch();
        session.stop();
        let until = |is_on: bool| {
            let begin = Instant::now();
            while cupti.stub_cupti_is_on(KERNEL) != is_on {
                assert!(begin.elapsed() < Duration::from_secs(20), "kernels should be on: {is_on}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        until(false);
        // The pass that turned it off ends.
        driver.cuStreamSynchronize(stream);
        thread::sleep(Duration::from_millis(100));
        let calls =
            || ["cuptiActivityFlushAll", "cuptiGetTimestamp", "cuptiActivityEnable"].map(|call| cupti.calls(call));
        let asked = calls();
        launch();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(calls(), asked, "it is asked nothing while the session is stopped");
        session.start();
        until(true);
        let after = launch();
        let (report, zones, kernels) = finish(session, &sink);
        assert_eq!((zones.len(), kernels.len(), report.notes.len()), (2, 2, 0), "{report}");
        for (zone, (kernel, correlation)) in zones.iter().zip(kernels.iter().zip([before, after])) {
            assert!(kernel.correlation == correlation && is_of(kernel.zone, zone), "{kernel:?} of {zone:?}");
        }
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn a_session_that_starts_and_ends_leaves_the_captures_of_other_threads_whole() {
    /// As the CUPTI of a driver may: a question that breaks a capture, unless the thread that asks has said otherwise.
    extern "C" fn ask() {
        static STUB: LazyLock<Stub> = LazyLock::new(Stub::load);
        STUB.cuEventQuery(EVENT.load(Ordering::Relaxed));
    }
    static EVENT: AtomicUsize = AtomicUsize::new(0);
    let test = "a_session_that_starts_and_ends_leaves_the_captures_of_other_threads_whole";
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        EVENT.store(driver.record(stream), Ordering::Relaxed);
        cupti.stub_cupti_asks(ask);
        for is_refused in [false, true] {
            cupti.fail("cuptiActivityEnable", i32::from(is_refused));
            let questions = driver.calls("cuEventQuery");
            assert_eq!(driver.cuStreamBeginCapture_v2(stream, stub::GLOBAL), stub::SUCCESS);
            let (session, modes) = thread::scope(|scope| {
                let session = scope.spawn(|| {
                    let (session, _sink) = start();
                    // What this thread does from now on is as before.
                    let mut mode = stub::RELAXED;
                    assert_eq!(driver.cuThreadExchangeStreamCaptureMode(&mut mode), stub::SUCCESS);
                    (session, mode)
                });
                session.join().expect("it starts")
            });
            assert_eq!(modes, stub::GLOBAL);
            let report = session.finish();
            assert_eq!(report.notes.len(), usize::from(is_refused), "{report}");
            let mut graph = 0;
            assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), stub::SUCCESS);
            assert!(driver.calls("cuEventQuery") > questions + 2, "CUPTI was started");
        }
    });
}

#[test]
fn a_session_leaves_nothing_on() {
    with_cupti("a_session_leaves_nothing_on", |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        for round in 1..4 {
            let (session, sink) = start();
            assert!(cupti.stub_cupti_on() > 5 && cupti.stub_cupti_is_on(KERNEL));
            let open = OUTER.zone(&raw(stream));
            cupti.launch(kernel(c"k"));
            let (_, _, kernels) = finish(session, &sink);
            assert_eq!((kernels.len(), kernels[0].zone.map(|zone| zone.sequence)), (1, Some(0)));
            assert_eq!((cupti.stub_cupti_on(), cupti.stub_cupti_lent()), (0, 0), "round {round}");
            // A zone that outlives its session is taken from the stack all the same.
            assert_eq!(cupti.stub_cupti_depth(), 1);
            drop(open);
            assert_eq!(cupti.stub_cupti_depth(), 0);
            let pushed = cupti.calls("cuptiActivityPushExternalCorrelationId");
            drop(OUTER.zone(&raw(stream)));
            assert_eq!(cupti.calls("cuptiActivityPushExternalCorrelationId"), pushed);
            // No launching thread is made to flush, and a forced flush comes once, at the end.
            assert_eq!(cupti.calls("cuptiActivityFlushAll(forced)"), round);
        }
    });
}

/// Zones without kernels, and one line that says why.
fn only_zones(driver: &Stub, said: &[&str]) {
    let (session, sink) = start();
    let stream = driver.stream();
    drop(OUTER.zone(&raw(stream)));
    driver.cuStreamSynchronize(stream);
    let (report, zones, kernels) = finish(session, &sink);
    assert_eq!((zones.len(), kernels.len()), (1, 0), "{report}");
    let note = only_note(&report);
    assert!(note.starts_with("no kernels are recorded: "), "{note}");
    for said in said {
        assert!(note.contains(said), "`{said}` is not in: {note}");
    }
}

#[test]
fn another_tool_has_cupti_and_zones_are_recorded_all_the_same() {
    with_cupti("another_tool_has_cupti_and_zones_are_recorded_all_the_same", |driver, cupti| {
        driver.start();
        cupti.fail("cuptiSubscribe", 39);
        only_zones(driver, &["another tool uses CUPTI", "39 (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)"]);
        assert_eq!((cupti.stub_cupti_on(), cupti.calls("cuptiActivityRegisterCallbacks")), (0, 0));
        // It has gone: the next session gets CUPTI.
        cupti.fail("cuptiSubscribe", 0);
        let (session, sink) = start();
        cupti.launch(kernel(c"k"));
        assert_eq!(finish(session, &sink).2.len(), 1);
    });
}

#[test]
fn a_start_that_fails_anywhere_leaves_nothing_on() {
    with_cupti("a_start_that_fails_anywhere_leaves_nothing_on", |driver, cupti| {
        driver.start();
        for symbol in ["cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiGetTimestamp"] {
            cupti.fail(symbol, 15);
            only_zones(driver, &["CUPTI finds no CUDA driver", symbol, "15 (CUPTI_ERROR_NOT_INITIALIZED)"]);
            assert_eq!((cupti.stub_cupti_on(), cupti.stub_cupti_lent()), (0, 0), "{symbol}");
            cupti.fail(symbol, 0);
        }
        let (session, sink) = start();
        cupti.launch(kernel(c"k"));
        assert_eq!(finish(session, &sink).2.len(), 1);
    });
}

#[test]
fn an_old_cupti_records_all_calls() {
    with_cupti("an_old_cupti_records_all_calls", |driver, cupti| {
        driver.start();
        cupti.fail("cuptiActivityEnableDriverApi", 11);
        let (session, sink) = start();
        assert!(cupti.stub_cupti_is_on(4) && cupti.stub_cupti_is_on(5));
        let stream = driver.stream();
        let outer = OUTER.zone(&raw(stream));
        cupti.launch(kernel(c"k"));
        drop(outer);
        let (_, _, kernels) = finish(session, &sink);
        assert_eq!(kernels[0].zone.map(|zone| zone.range.name()), Some("cupti_test.outer"));
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn without_a_library_that_is_one_the_report_says_what_to_do() {
    let test = "without_a_library_that_is_one_the_report_says_what_to_do";
    library();
    in_child(test, stub::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("/nowhere/libcupti.so.13".as_ref());
        only_zones(
            &driver,
            &["`/nowhere/libcupti.so.13`, which WARPLINE_CUPTI names, cannot be opened", "correct the path"],
        );
        // What was looked for once is not looked for again.
        only_zones(&driver, &["correct the path"]);
    });
}

#[test]
fn a_library_without_the_symbols_is_refused_with_the_one_that_it_lacks() {
    let test = "a_library_without_the_symbols_is_refused_with_the_one_that_it_lacks";
    in_child(test, stub::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("libcuda.so.1".as_ref());
        only_zones(&driver, &["`libcuda.so.1` has no `cuptiGetVersion`", "install CUPTI of CUDA 12.0 or newer"]);
    });
}

#[test]
fn a_cupti_of_cuda_11_is_refused() {
    with_cupti("a_cupti_of_cuda_11_is_refused", |driver, cupti| {
        driver.start();
        cupti.stub_cupti_version(16);
        only_zones(driver, &["CUPTI of an old toolkit (it says version 16)", "12.0 or newer"]);
    });
}

#[test]
fn a_kernel_that_still_runs_at_the_end_is_counted() {
    with_cupti("a_kernel_that_still_runs_at_the_end_is_counted", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        cupti.launch(kernel(c"done"));
        cupti.launch(Launch { is_pending: 1, ..kernel(c"running") });
        // What CUPTI could not take a time of.
        cupti.launch(Launch { begin_ns: 0, end_ns: 0, ..kernel(c"untimed") });
        let (report, _, kernels) = finish(session, &sink);
        assert_eq!((kernels.len(), report.kernels.untimed, report.kernels.dropped), (1, 2, 0), "{report}");
        assert!(report.to_string().contains("1 kernels and copies recorded, 0 dropped by CUPTI, 2 without a time"));
    });
}

/// A sink that does not return before it may.
struct Slow {
    kernels: u64,
    is_in: mpsc::Sender<()>,
    may_go: mpsc::Receiver<()>,
}

impl Sink for Slow {
    fn records(&mut self, _: &[ZoneRecord]) -> io::Result<()> {
        Ok(())
    }

    fn kernels(&mut self, batch: &[KernelRecord]) -> io::Result<()> {
        if self.kernels == 0 {
            self.is_in.send(()).expect("the test waits");
            let _ = self.may_go.recv();
        }
        self.kernels += batch.len() as u64;
        Ok(())
    }
}

#[test]
fn a_kernel_stays_where_it_ran_when_the_clock_is_set_back() {
    with_cupti("a_kernel_stays_where_it_ran_when_the_clock_is_set_back", |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let at = |begin_ns, name| Launch { begin_ns, end_ns: begin_ns + 10_000, ..kernel(name) };
        // It is told of when the clock has been set, and the clocks have been compared since.
        let before_ns = now_ns();
        cupti.launch(Launch { is_pending: 1, ..at(before_ns, c"before") });
        cupti.stub_cupti_set_back(10_000_000_000);
        let looks = cupti.calls("cuptiGetTimestamp");
        let since = Instant::now();
        while cupti.calls("cuptiGetTimestamp") < looks + 10 {
            assert!(since.elapsed() < Duration::from_secs(10), "the clocks are not compared");
            thread::sleep(Duration::from_millis(1));
        }
        let after_ns = now_ns();
        cupti.launch(at(after_ns, c"after"));
        cupti.stub_cupti_complete();
        let (_, _, kernels) = finish(session, &sink);
        let begins: Vec<_> = kernels.iter().map(|kernel| kernel.gpu.begin_ns.cast_unsigned()).collect();
        assert!(begins[0].abs_diff(before_ns) < 100_000_000, "{begins:?}, and began at {before_ns}");
        assert!(begins[1].abs_diff(after_ns) < 100_000_000, "{begins:?}, and began at {after_ns}");
    });
}

#[test]
fn memory_is_bounded_and_what_is_dropped_is_counted() {
    with_cupti("memory_is_bounded_and_what_is_dropped_is_counted", |driver, cupti| {
        driver.start();
        let (is_in, waits) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let slow = Slow { kernels: 0, is_in, may_go };
        let session = Session::builder().kernels(true).sink(slow).finish_timeout(Duration::from_secs(60));
        let session = session.start().expect("no other session");
        cupti.launch(kernel(c"first"));
        waits.recv().expect("the sink is called");
        // 64 buffers of 1 MiB hold fewer.
        const MANY: u64 = 300_000;
        for _ in 0..MANY {
            cupti.launch(kernel(c"k"));
        }
        go.send(()).expect("the sink waits");
        let report = session.finish();
        let kernels = report.kernels;
        assert_eq!(kernels.recorded + kernels.lost(), MANY + 1, "{report}");
        assert!(kernels.dropped > 10_000 && kernels.buffers_refused > 0, "{report}");
        assert!(report.to_string().contains("times there was no buffer left"), "{report}");
        assert!(cupti.stub_cupti_most_lent() <= 64);
    });
}

/// `CLOCK_BOOTTIME`.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    (now.tv_sec * 1_000_000_000 + now.tv_nsec).cast_unsigned()
}
