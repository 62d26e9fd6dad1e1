//! What times inside replays cost, and how good they are: stamps beside event-record nodes whose events are exchanged at each
//! launch, and zones by stamps beside the same zones by CUPTI's records of their kernels.
//!
//! One border of a zone has one stamp, or one event; neighbouring zones share theirs. The session with stamps is on while these and raw
//! events replay in turns, so that what the collector does is in the figures.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use gpu::{Event, EventNode, Gpu, Graph, Result};
use warpline::graph::GraphZones;
use warpline::record::ReplayRecord;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::timing::GraphTiming;
use warpline::{Session, SessionBuilder};

use crate::figures::{Table, median, percentile, ratio, verdict};
use crate::graph::MODE;

warpline::range! {
    TIMED = "gpu_bench.timed": "A part of a captured graph that is timed in each replay.";
}

const ZONES: usize = 64;
/// Replays in a timed round.
const REPLAYS: usize = 20;
/// Sets of events: so many launches may be under way while their events are read.
const SETS: usize = 4;

pub fn run(gpu: &Gpu, stream: &Arc<CudaStream>, rounds: u64) -> Result {
    costs(gpu, stream, rounds)?;
    lengths(gpu, stream)
}

/// A graph with event nodes, and the events that take turns in them.
struct Evented {
    graph: Graph,
    nodes: Vec<EventNode>,
    sets: Vec<Vec<Event>>,
}

fn evented(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result<Evented> {
    let sets = (0..SETS).map(|_| Event::many(ZONES + 1)).collect::<Result<Vec<_>>>()?;
    let graph = Graph::capture(stream, MODE, || {
        for event in &sets[0][..ZONES] {
            event.capture(stream)?;
            gpu.null(stream)?;
        }
        sets[0][ZONES].capture(stream)
    })?;
    let nodes = graph.event_nodes()?;
    if nodes.len() != ZONES + 1 {
        return Err(format!("{} event nodes, not {}", nodes.len(), ZONES + 1).into());
    }
    Ok(Evented { graph, nodes, sets })
}

fn zones(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    for _ in 0..ZONES {
        let _zone = TIMED.zone(stream);
        gpu.null(stream)?;
    }
    Ok(())
}

fn costs(gpu: &Gpu, stream: &Arc<CudaStream>, rounds: u64) -> Result {
    let plain = Graph::capture(stream, MODE, || zones(gpu, stream))?;
    let evented = evented(gpu, stream)?;
    // A session has one way of timing graphs, and captures of an earlier one keep theirs.
    let session = Session::builder().graph_timing(GraphTiming::LaunchOrderStamps).start()?;
    let by_launch_order = Graph::capture(stream, MODE, || zones(gpu, stream))?;
    session.finish();
    let session = Session::builder().graph_timing(GraphTiming::Stamps).start()?;
    let stamped = Graph::capture(stream, MODE, || zones(gpu, stream))?;
    let _zones = [GraphZones::for_graph(&stamped.raw(0))?, GraphZones::for_graph(&by_launch_order.raw(0))?];
    let mut launched = 0;
    let mut turn = |which: usize| -> Result<(f64, f64)> {
        replay(stream, || match which {
            0 => Ok(plain.launch(0, stream)?),
            1 => Ok(stamped.launch(0, stream)?),
            2 => Ok(by_launch_order.launch(0, stream)?),
            _ => {
                launched += 1;
                for (node, event) in evented.nodes.iter().zip(&evented.sets[launched % SETS]) {
                    evented.graph.exchange(0, node, event)?;
                }
                Ok(evented.graph.launch(0, stream)?)
            }
        })
    };
    let (mut wall, mut cpu): ([Vec<f64>; 4], [Vec<f64>; 4]) = Default::default();
    for round in 0..=rounds as usize {
        for place in 0..4 {
            let which = (round + place) % 4;
            let (wall_us, cpu_us) = turn(which)?;
            // The first round warms up.
            if round > 0 {
                wall[which].push(wall_us);
                cpu[which].push(cpu_us);
            }
        }
    }
    let report = session.finish();
    let counts = report.graph_timing;
    if counts.captured != ZONES as u64 + 1 || counts.untimed() > 0 || counts.lost + counts.mixed > 0 {
        return Err(format!("not all was timed: {report}").into());
    }
    let borders = ZONES as f64 + 1.0;
    let added = |which: usize| {
        let pairs = wall[which].iter().zip(&wall[0]);
        median(&pairs.map(|(timed, plain)| (timed - plain) / borders).collect::<Vec<_>>())
    };
    let columns = [
        "",
        "wall us",
        "launch CPU us",
        "launch CPU / plain",
        "goal 1.05",
        "added wall us a border",
        "goal 0.78 us",
        "cheaper than events, wall",
        "cheaper than events, CPU",
    ];
    let title = format!(
        "graph: times in each replay of {ZONES} zones of one null kernel, {} borders; medians of {rounds} rounds of {REPLAYS}",
        ZONES + 1
    );
    let mut table = Table::new(&title, &columns);
    for (which, name) in ["plain", "stamps", "launch-order stamps", "events, exchanged"].into_iter().enumerate() {
        let mut cells =
            vec![name.to_owned(), format!("{:.2}", median(&wall[which])), format!("{:.2}", median(&cpu[which]))];
        if which > 0 {
            let (of_cpu, us) = (ratio(&cpu[which], &cpu[0]), added(which));
            let is_ours = which < 3;
            let goal = |is: f64, goal: f64| if is_ours { verdict(is, goal).to_owned() } else { String::new() };
            cells.extend([format!("{of_cpu:.3}"), goal(of_cpu, 1.05), format!("{us:.3}"), goal(us, 0.78)]);
            if is_ours {
                let (wall, cpu) = (added(3) / us, median(&cpu[3]) / median(&cpu[which]));
                cells.extend([format!("{wall:.2} x"), format!("{cpu:.2} x")]);
            }
        }
        table.row(&cells);
    }
    table.print();
    println!(
        "\n{} replays timed by stamps, bracket {} ns, positions within {} ns",
        counts.replays, counts.bracket_ns, counts.uncertainty_ns
    );
    Ok(())
}

/// us of one replay: wall time until the stream is through, and the time of its launch.
fn replay(stream: &Arc<CudaStream>, mut launch: impl FnMut() -> Result) -> Result<(f64, f64)> {
    stream.synchronize()?;
    let (begin, mut cpu) = (Instant::now(), 0.0);
    for _ in 0..REPLAYS {
        let since = Instant::now();
        launch()?;
        cpu += since.elapsed().as_secs_f64();
        // One at a time: a full queue would make the launch wait.
        stream.synchronize()?;
    }
    let us = 1e6 / REPLAYS as f64;
    Ok((begin.elapsed().as_secs_f64() * us, cpu * us))
}

fn lengths(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    const EACH: usize = 16;
    const TIMES: usize = 50;
    let columns = [
        "spin us",
        "by CUPTI us",
        "by stamps us",
        "corrected us",
        "corrected - CUPTI us: p5 / median / p95",
        "median |error| us",
        "goal 0.5",
        "bracket us",
        "zones",
    ];
    let title = "graph: zones of one kernel in replays of one graph, by stamps in one session and by CUPTI in the next; medians";
    let mut table = Table::new(title, &columns);
    for us in [5_u64, 10, 20, 50, 100] {
        let (mut graph, mut zones) = (None, Vec::new());
        let mut session = |builder: SessionBuilder| -> Result<(Vec<ReplayRecord>, Report)> {
            let sink = MemorySink::new(100_000);
            let session = builder.sink(sink.clone()).start()?;
            let graph = match &mut graph {
                Some(graph) => graph,
                none => none.insert(Graph::capture(stream, MODE, || {
                    for _ in 0..EACH {
                        let _zone = TIMED.zone(stream);
                        gpu.spin(stream, us * 1_000, None)?;
                    }
                    Ok(())
                })?),
            };
            // A session with kernels needs it anew, for the ids that CUPTI gives.
            zones.push(GraphZones::for_graph(&graph.raw(0))?);
            for _ in 0..TIMES {
                graph.launch(0, stream)?;
                stream.synchronize()?;
            }
            let report = session.finish();
            let mut replays = sink.take_replays();
            replays.sort_by_key(|replay| replay.correlation);
            match replays.len() {
                TIMES => Ok((replays, report)),
                count => Err(format!("{count} replays, not {TIMES}: {report}").into()),
            }
        };
        let (stamps, report) = session(Session::builder().graph_timing(GraphTiming::Stamps))?;
        let (kernels, _) = session(Session::builder().kernels(true))?;
        let pairs = kernels.iter().zip(&stamps).flat_map(|(kernels, stamps)| {
            kernels.zones.iter().zip(&stamps.zones).map(|(kernel, stamp)| (&kernel.zone, &stamp.zone))
        });
        let pairs: Vec<_> = pairs.collect();
        if pairs.len() != EACH * TIMES {
            return Err(format!("{} zones with both times, not {}: {report}", pairs.len(), EACH * TIMES).into());
        }
        let each = |figure: &dyn Fn(i64, i64, i64) -> i64| -> Vec<f64> {
            let figure = |(kernel, stamp): &(&warpline::record::ZoneRecord, &warpline::record::ZoneRecord)| {
                let corrected = stamp.gpu_ns_corrected().unwrap_or(0);
                figure(kernel.gpu_ns().unwrap_or(0), stamp.gpu_ns().unwrap_or(0), corrected) as f64 / 1e3
            };
            pairs.iter().map(figure).collect()
        };
        let off = each(&|kernel, _, corrected| corrected - kernel);
        let error = median(&off.iter().map(|off| off.abs()).collect::<Vec<_>>());
        table.row(&[
            us.to_string(),
            format!("{:.2}", median(&each(&|kernel, _, _| kernel))),
            format!("{:.2}", median(&each(&|_, stamp, _| stamp))),
            format!("{:.2}", median(&each(&|_, _, corrected| corrected))),
            format!("{:+.2} / {:+.2} / {:+.2}", percentile(&off, 5.0), median(&off), percentile(&off, 95.0)),
            format!("{error:.2}"),
            verdict(error, 0.5).to_owned(),
            format!("{:.2}", report.graph_timing.bracket_ns as f64 / 1e3),
            pairs.len().to_string(),
        ]);
    }
    table.print();
    Ok(())
}
