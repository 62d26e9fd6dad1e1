//! What labels cost a captured graph: its replays, which must not change, and the capture itself with 64 zones in one
//! another.
//!
//! Both graphs hold the same null kernels. The labelled one is captured and registered while a session records; no session is
//! on while the two replay in turns, and both are of one age: they are captured right behind one another.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaStream, sys};
use gpu::{Gpu, Graph, Result};
use warpline::graph::GraphZones;
use warpline::{Session, Zone};

use crate::figures::{Table, median, ratio, verdict};
use crate::options::Options;
use crate::stamps;

warpline::range! {
    SECTION = "gpu_bench.section": "A part of a captured graph.";
}

pub const MODE: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const DEPTH: usize = 64;
/// Replays in a timed round.
const REPLAYS: usize = 20;

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    let rounds = options.size("rounds", 60);
    replays(&gpu, &stream, rounds)?;
    captures(&gpu, &stream, rounds)?;
    stamps::run(&gpu, &stream, rounds)
}

/// Kernels in so many zones within one another, evenly.
fn nested(gpu: &Gpu, stream: &Arc<CudaStream>, nodes: usize, zones: usize) -> Result {
    let mut open: Vec<Zone> = Vec::with_capacity(zones);
    for node in 0..nodes {
        if zones > 0 && node % (nodes / zones).max(1) == 0 && open.len() < zones {
            open.push(SECTION.zone(stream).field("depth", open.len()));
        }
        gpu.null(stream)?;
    }
    while open.pop().is_some() {}
    Ok(())
}

fn replays(gpu: &Gpu, stream: &Arc<CudaStream>, rounds: u64) -> Result {
    let title =
        format!("graph: us of one replay, medians of {rounds} rounds of {REPLAYS}, labelled and unlabelled in turns");
    let columns = [
        "nodes",
        "unlabelled, wall",
        "labelled, wall",
        "ratio",
        "goal 1.01",
        "unlabelled, launch CPU",
        "labelled, launch CPU",
        "ratio",
        "goal 1.01",
        "nodes labelled",
    ];
    let mut table = Table::new(&title, &columns);
    for nodes in [64, 1024] {
        let plain = Graph::capture(stream, MODE, || nested(gpu, stream, nodes, DEPTH))?;
        let session = Session::builder().start()?;
        let labelled = Graph::capture(stream, MODE, || nested(gpu, stream, nodes, DEPTH))?;
        let zones = GraphZones::for_graph(&labelled.raw(0))?;
        session.finish();
        let known = zones.nodes().filter(|node| !node.zones.is_empty()).count();
        let (mut wall, mut cpu) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for graph in [&plain, &labelled] {
            replay(graph, stream)?;
        }
        for round in 0..rounds {
            // Who comes first changes, so that neither profits from it.
            for turn in 0..2 {
                let which = ((round + turn) % 2) as usize;
                let (wall_us, cpu_us) = replay([&plain, &labelled][which], stream)?;
                wall[which].push(wall_us);
                cpu[which].push(cpu_us);
            }
        }
        let (of_wall, of_cpu) = (ratio(&wall[1], &wall[0]), ratio(&cpu[1], &cpu[0]));
        table.row(&[
            nodes.to_string(),
            format!("{:.2}", median(&wall[0])),
            format!("{:.2}", median(&wall[1])),
            format!("{of_wall:.3}"),
            verdict(of_wall, 1.01).to_owned(),
            format!("{:.2}", median(&cpu[0])),
            format!("{:.2}", median(&cpu[1])),
            format!("{of_cpu:.3}"),
            verdict(of_cpu, 1.01).to_owned(),
            format!("{known} of {nodes}"),
        ]);
        if known != nodes {
            return Err(format!("{known} of {nodes} nodes are labelled").into());
        }
    }
    table.print();
    Ok(())
}

/// us of one replay: wall time until the stream is through, and the time of its launch call.
fn replay(graph: &Graph, stream: &Arc<CudaStream>) -> Result<(f64, f64)> {
    stream.synchronize()?;
    let (begin, mut cpu) = (Instant::now(), 0.0);
    for _ in 0..REPLAYS {
        let launch = Instant::now();
        graph.launch(0, stream)?;
        cpu += launch.elapsed().as_secs_f64();
        // One at a time: a full queue would make the launch wait.
        stream.synchronize()?;
    }
    let us = 1e6 / REPLAYS as f64;
    Ok((begin.elapsed().as_secs_f64() * us, cpu * us))
}

fn captures(gpu: &Gpu, stream: &Arc<CudaStream>, rounds: u64) -> Result {
    const NODES: usize = 1024;
    let title = format!(
        "graph: us to capture and instantiate {NODES} nodes in {DEPTH} nested zones, medians of {rounds} rounds in turns"
    );
    let columns =
        ["unlabelled", "labelled", "ratio", "labelled and registered", "ratio", "goal 1.5", "nodes with zones known"];
    let mut table = Table::new(&title, &columns);
    let (mut plain, mut labelled, mut registered, mut walked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = Instant::now();
        let graph = Graph::capture(stream, MODE, || nested(gpu, stream, NODES, DEPTH))?;
        plain.push(begin.elapsed().as_secs_f64() * 1e6);
        drop(graph);
        let session = Session::builder().start()?;
        let begin = Instant::now();
        let graph = Graph::capture(stream, MODE, || nested(gpu, stream, NODES, DEPTH))?;
        labelled.push(begin.elapsed().as_secs_f64() * 1e6);
        let zones = GraphZones::for_graph(&graph.raw(0))?;
        registered.push(begin.elapsed().as_secs_f64() * 1e6);
        // The walk is made when somebody asks first.
        let deepest = zones.nodes().map(|node| node.zones.len()).max();
        walked.push(begin.elapsed().as_secs_f64() * 1e6);
        session.finish();
        if deepest != Some(DEPTH) {
            return Err(format!("the deepest node is in {deepest:?} zones, not {DEPTH}").into());
        }
    }
    let (of_capture, of_all) = (ratio(&labelled, &plain), ratio(&registered, &plain));
    table.row(&[
        format!("{:.0}", median(&plain)),
        format!("{:.0}", median(&labelled)),
        format!("{of_capture:.3}"),
        format!("{:.0}", median(&registered)),
        format!("{of_all:.3}"),
        verdict(of_all, 1.5).to_owned(),
        format!("{:.0} us", median(&walked)),
    ]);
    table.print();
    Ok(())
}
