//! Kernels of graphs: the replays that they make up, and the zones that were captured into these.

use std::collections::BTreeMap;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup, ReduceOp};
use warpline::record::{ReplayRecord, ReplayTiming};
use warpline::timing::GraphTiming;
use warpline_tests::this_test;

use super::{ATTENTION, INNER, LAYER, OUTER, REDUCE, SUM, finish, is_of, start};
use crate::harness::cupti::*;
use crate::harness::driver::{self, Stub};
use crate::harness::graphs::{self, Captured, exec_id};
use crate::harness::zones::{assert_exact, raw};

#[test]
fn the_kernels_of_one_graph_launch_share_its_correlation_and_its_zone() {
    with_cupti(this_test!(), |driver, cupti| {
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
fn with_kernels_and_stamps_each_replay_is_there_once_and_kernels_of_the_session_are_nowhere() {
    const REPLAYS: usize = 20;
    // So long that the two clocks agree, however late this thread is.
    const KERNEL_NS: u64 = 10_000_000;
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        // Before CUDA, and so before the first context.
        let (session, sink) =
            crate::harness::zones::start(|builder| builder.kernels(true).graph_timing(GraphTiming::Stamps));
        driver.stub_tells_ids(true);
        driver.start();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || graphs::zone(driver, &ATTENTION, stream, KERNEL_NS / 1_000));
        let exec = exec_id(driver, captured.exec);
        for own in [c"warpline_stamp", c"warpline_anchor", c"warpline_spin"] {
            cupti.launch(kernel(own));
        }
        // What stamps add is measured with a graph; one of its kernels has no time.
        cupti.launch(Launch { graph: 900, node: 900 << 32, ..kernel(c"warpline_spin") });
        cupti.launch(Launch { begin_ns: 0, end_ns: 0, ..kernel(c"warpline_anchor") });
        for _ in 0..REPLAYS {
            let now_ns = boot_ns();
            captured.launch(driver, stream, 1);
            let stamp_ns = 2_000;
            let work = [(c"warpline_stamp", 0, stamp_ns), (c"node", stamp_ns, KERNEL_NS)];
            for (node, (name, from_ns, ns)) in
                work.into_iter().chain([(c"warpline_stamp", stamp_ns + KERNEL_NS, stamp_ns)]).enumerate()
            {
                let begin_ns = now_ns + from_ns;
                cupti.launch(Launch {
                    stream: number(stream),
                    graph: exec,
                    node: u64::from(exec) << 32 | node as u64,
                    is_more: u32::from(node > 0),
                    begin_ns,
                    end_ns: begin_ns + ns,
                    ..kernel(name)
                });
            }
            driver.cuStreamSynchronize(stream);
        }
        let report = session.finish();
        assert_exact(&report);
        let (replays, kernels) = (sink.take_replays(), sink.take_kernels());
        assert_eq!(replays.len(), REPLAYS, "{report}");
        assert!(replays.iter().all(|replay| replay.timed_by == ReplayTiming::Kernels), "{replays:?}");
        let both = (report.graph_timing.replays, report.graph_timing.by_kernels);
        assert_eq!(both, (REPLAYS as u64, REPLAYS as u64), "{report}");
        assert!(replays.iter().all(|replay| replay.zones.len() == 1 && replay.kernels == 1), "{replays:?}");
        let is_exact = |replay: &ReplayRecord| replay.gpu.duration_ns() == KERNEL_NS as i64;
        assert!(replays.iter().all(is_exact), "the stamps are not in it: {replays:?}");
        assert_eq!((kernels.len(), report.kernels.recorded), (REPLAYS, REPLAYS as u64), "{report}");
        assert_eq!(report.kernels.untimed, 0, "{report}");
        assert!(report.notes.iter().any(|note| note.starts_with("20 launches of CUDA graphs took")), "{report}");
        assert!(kernels.iter().all(|kernel| &*kernel.name == "node"), "{kernels:?}");
    });
}

/// The stub's clock of CUPTI.
fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    (now.tv_sec * 1_000_000_000 + now.tv_nsec).unsigned_abs()
}

#[test]
fn a_stream_that_is_being_captured_is_not_asked_for_its_number() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let mut graph = 0;
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, driver::GLOBAL), driver::SUCCESS);
        drop(OUTER.zone(&raw(stream)));
        assert_eq!((cupti.calls("cuptiGetStreamIdEx"), cupti.calls("cuptiGetContextId")), (0, 0));
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), driver::SUCCESS);
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
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let captured = layer(driver, stream);
        let exec = exec_id(driver, captured.exec);
        for replay in 0..3 {
            let _outer = OUTER.zone(&raw(stream));
            cupti.replay(stream, exec, 6, 1_000_000_000 + replay * 1_000_000, 10_000);
        }
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.kernels.recorded, sink.take_kernels().len()), (18, 18), "{report}");
        // The kernels of a replay are in the zones that were captured around them; one was captured outside of all, in the launch's zone.
        let mut in_ranges: BTreeMap<_, u64> = BTreeMap::new();
        for kernel in &report.top_kernels {
            assert_eq!((kernel.total_ns, kernel.max_ns), (10_000 * kernel.count as i64, 10_000), "{kernel:?}");
            let range = kernel.range.as_deref().expect("all are in zones");
            *in_ranges.entry(range.trim_start_matches("stub.cupti_test.")).or_default() += kernel.count;
        }
        let expected = [("attention", 6), ("inner", 3), ("layer", 3), ("outer", 3), ("reduce", 3)];
        assert_eq!(in_ranges, expected.into(), "{report}");
        assert!(report.to_string().contains("\nkernel "), "{report}");
        let replayed = report.ranges.iter().filter(|range| range.in_replays);
        let replayed: BTreeMap<_, _> = replayed.map(|range| (&*range.name, range.count)).collect();
        assert_eq!((replayed.len(), replayed.get("stub.cupti_test.attention")), (4, Some(&6)), "{report}");
        let replays = sink.take_replays();
        assert_eq!(replays.len(), 3);
        for (replay, sequence) in replays.iter().zip(0..) {
            assert_eq!((replay.kernels, replay.gpu.duration_ns(), replay.exec), (6, 60_000, exec), "{replay:?}");
            assert_eq!(
                replay.zone.map(|zone| (zone.range.name(), zone.sequence)),
                Some(("stub.cupti_test.outer", sequence))
            );
            assert!(replay.launch.is_some());
            let zones: Vec<_> = (replay.zones.iter())
                .map(|replayed| {
                    let zone = &replayed.zone;
                    let gpu = zone.gpu.expect("it has kernels");
                    let from_us = (gpu.begin_ns - replay.gpu.begin_ns) / 1_000;
                    let name = zone.range.name().trim_start_matches("stub.cupti_test.");
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
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let (session, sink) = start();
        let stream = driver.stream();
        let kernel_node = || graphs::kernel(driver, stream, 0);
        let group = ProcessGroup::new("tp0", [0, 1], 1);
        let captured = Captured::new(driver, stream, || {
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
        });
        let exec = exec_id(driver, captured.exec);
        for replay in 0..5 {
            // The next one begins a little before this one ends, as a device may have it.
            cupti.replay(stream, exec, 3, 1_000_000_000 + replay * 1_000_000, 10_100);
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
                    ("stub.cupti_test.attention", 0, Some("attention"), 3),
                    ("stub.cupti_test.sum", 1, Some(group.lane()), 1),
                    ("stub.cupti_test.inner", 1, Some("attention"), 1),
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
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = start();
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || {
            let _attention = ATTENTION.zone(&raw(stream));
            (0..2).for_each(|_| graphs::kernel(driver, stream, 0));
        });
        let (mut nodes, mut count) = ([0; 2], 2);
        assert_eq!(driver.cuGraphGetNodes(captured.graph, nodes.as_mut_ptr(), &mut count), driver::SUCCESS);
        for (node, is_more) in nodes.into_iter().zip(0..) {
            let exec = captured.exec as u32;
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
        assert_eq!((zones[0].zone.range.name(), zones[0].kernels), ("stub.cupti_test.attention", 2));
    });
}

/// Captures a layer into a graph: a kernel outside, two of attention with one in a zone of its own, one of the layer, one of
/// attention again, one of a collective.
fn layer(driver: &Stub, stream: driver::Handle) -> Captured {
    // As CUDA 13.1's driver does.
    driver.stub_tells_ids(true);
    let kernel = || graphs::kernel(driver, stream, 0);
    Captured::new(driver, stream, || {
        kernel();
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
    })
}
