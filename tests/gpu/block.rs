//! A transformer block, captured as a graph: every kernel of every replay is in the zone and the lane that it was captured in.
//!
//! What should be where is not taken from warpline: the library `transformer` launches kernels of its own names between those
//! of cuBLAS, and on one stream they run in the order of the capture, so CUPTI's names say which section each kernel is of.
//! `collectives` has the same for two ranks.

use std::ffi::c_void;

use tensor::{Comm, Device};
use transformer::{Block, Captured, Shape, reference};
use warpline::Session;
use warpline::graph::{GraphZones, NodeKind};
use warpline::record::{KernelRecord, ReplayRecord};

use warpline_tests::this_test;

use super::told::{told_apart, wanted};
use super::{alone_in_a_process, assert_exact, start};

pub(super) const REPLAYS: usize = 5;

/// What the block computes from; it has computed from another input before.
const INPUT: usize = 1;

/// A block that has run and is not captured yet, and what it makes of [`INPUT`].
pub(super) fn warm(ordinal: usize, comm: impl FnOnce(&Device) -> Option<Comm>) -> (Block, Vec<f32>) {
    let (device, _) = Device::gpu(ordinal).expect("a GPU and NVRTC");
    let block = Block::new(&device, Shape::TUTORIAL, comm(&device)).expect("a block, with cuBLAS");
    let run = |input| {
        block.set_input(input).expect("no error");
        block.forward().expect("queued");
        block.output().expect("no error")
    };
    let eager = run(INPUT);
    run(INPUT + 1);
    block.set_input(INPUT).expect("no error");
    (block, eager)
}

/// Captures and replays; the result must be that of the block without a graph.
pub(super) fn replayed(block: Block, eager: &[f32]) -> (Captured, GraphZones) {
    let captured = Captured::new(block).expect("it can be captured");
    let zones = GraphZones::for_graph(&captured).expect("a graph that is alive").named("block");
    for _ in 0..REPLAYS {
        captured.replay().expect("launched");
    }
    let output = captured.block().output().expect("no error");
    assert!(output.iter().zip(eager).all(|(is, was)| is.to_bits() == was.to_bits()), "not what it is without a graph");
    reference::check(Shape::TUTORIAL, INPUT, &output).expect("what the reference says");
    (captured, zones)
}

/// Every kernel of every replay, by CUPTI's own names and counts: in its zones, in its lane, and of its node. Gives the replays.
pub(super) fn check<'a>(
    zones: &GraphZones,
    exec: *mut c_void,
    ranks: usize,
    kernels: &[KernelRecord],
    replays: &'a [ReplayRecord],
) -> Vec<&'a ReplayRecord> {
    let wanted = wanted(ranks);
    let nodes: Vec<_> = zones
        .nodes()
        .filter(|node| matches!(node.kind, NodeKind::Kernel | NodeKind::Memcpy | NodeKind::Memset))
        .collect();
    let replays: Vec<_> = replays.iter().filter(|replay| replay.graph == zones.number()).collect();
    assert_eq!(replays.len(), REPLAYS);
    let mut seen = 0;
    for replay in &replays {
        let mut own: Vec<_> = kernels.iter().filter(|kernel| kernel.correlation == replay.correlation).collect();
        own.sort_by_key(|kernel| kernel.gpu.begin_ns);
        seen += own.len();
        assert_eq!((own.len(), replay.kernels as usize), (nodes.len(), nodes.len()), "{own:?}\n{nodes:?}");
        let names: Vec<&str> = own.iter().map(|kernel| &*kernel.name).collect();
        let told = told_apart(&wanted, &names);
        for (index, ((kernel, node), told)) in own.iter().zip(&nodes).zip(&told).enumerate() {
            // The driver's name of the node is CUPTI's of the kernel.
            let name = node.kernel.as_deref().expect("a driver from 12.3 on names kernels");
            assert_eq!(name, &*kernel.name, "node {index}");
            let id = kernel.graph.expect("a kernel of a graph").node;
            let found = GraphZones::find(exec, id as u32).expect("a node of the executable graph");
            for zones in [&found, &node.zones] {
                let path: Vec<_> = zones.iter().map(|zone| zone.range.name()).collect();
                assert_eq!(
                    path,
                    [&format!("transformer.{}", told.section)[..], told.operation],
                    "{name}, node {index}"
                );
            }
        }
        // The zones of the replay: in the lanes that the marks say, as long as their kernels, and with as many.
        for section in ["qkv_proj", "attention", "out_proj", "mlp"] {
            let zone = replay.zones.iter().find(|of| of.zone.range.name() == format!("transformer.{section}"));
            let zone = zone.expect("each section is in each replay");
            let of_section: Vec<_> = own
                .iter()
                .zip(&told)
                .filter(|(_, told)| told.section == section)
                .map(|(kernel, _)| kernel.gpu)
                .collect();
            let lane = Some(section).filter(|section| ["attention", "mlp"].contains(section));
            assert_eq!((zone.lane.as_deref(), zone.kernels as usize), (lane, of_section.len()), "{section}");
            let gpu = zone.zone.gpu.expect("it has kernels");
            let begin = of_section.iter().map(|gpu| gpu.begin_ns).min();
            let end = of_section.iter().map(|gpu| gpu.end_ns).max();
            assert_eq!((Some(gpu.begin_ns), Some(gpu.end_ns)), (begin, end), "{section}");
        }
        // Operations are in the lane of their section, but for collectives.
        for zone in &replay.zones {
            let sections = ["transformer.attention", "transformer.mlp"];
            let is_inside = |section: &&str| {
                let outer = replay.zones.iter().find(|of| of.zone.range.name() == *section).and_then(|of| of.zone.gpu);
                outer.zip(zone.zone.gpu).is_some_and(|(o, i)| o.begin_ns <= i.begin_ns && i.end_ns <= o.end_ns)
            };
            let lane =
                sections.iter().find(|section| is_inside(section)).map(|section| &section["transformer.".len()..]);
            let group = zone.zone.message.as_ref().and_then(|message| Some(message.group.as_ref()?.lane()));
            assert_eq!(zone.lane.as_deref(), group.or(lane), "{}", zone.zone.range.name());
        }
    }
    let names: std::collections::BTreeSet<_> = nodes.iter().filter_map(|node| node.kernel.as_deref()).collect();
    println!(
        "child: graph {} (ranks: {ranks}): {} nodes of {} names, {seen} kernels in {REPLAYS} replays; ",
        zones.number(),
        nodes.len(),
        names.len()
    );
    replays
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_kernel_of_a_block_is_in_its_zone_and_lane_in_all_replays() {
    alone_in_a_process(this_test!(), || {
        let (block, eager) = warm(0, |_| None);
        let (session, sink) = start(Session::builder().kernels(true));
        let (captured, zones) = replayed(block, &eager);
        let report = session.finish();
        assert_exact(&report);
        assert!(super::notes(&report).is_empty() && report.kernels.lost() == 0, "{report}");
        let (kernels, replays) = (sink.take_kernels(), sink.take_replays());
        check(&zones, captured.exec(), 1, &kernels, &replays);
        // A profiler alone knows of no zone: the graph was launched outside all.
        assert!(kernels.iter().all(|kernel| kernel.zone.is_none()));
    });
}
