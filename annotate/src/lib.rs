//! Joins the annotations of CUDA graphs, which `warpline::graph::save` or PyTorch saved at capture, with a trace that PyTorch's
//! profiler or another tool wrote. The result is one trace in which each kernel of a replay names the ranges it belongs to.
//!
//! [`annotate()`] is the whole API: the command `warpline annotate` parses its arguments into [`Options`], shows the progress that an
//! [`Observer`] reports, and prints the [`Summary`].
//!
//! The trace is read twice: in the first reading, `index` collects what must be known of the whole trace, and `join` matches kernels with
//! nodes; in the second, `write` writes the output, event by event. `annotations` reads the annotations that were saved at capture, `find` finds their
//! file, and `reading` opens the trace with the reader of all commands, [`warpline_trace::read`].
//!
//! Every lost event is counted, no time is changed, and every kernel stays on its stream. Memory is a few dozen bytes for each event,
//! plus the largest event. The output appears under its name when it is complete. This crate prints nothing.
#![forbid(unsafe_code)]

mod annotations;
mod error;
mod find;
mod index;
mod join;
mod open;
mod output;
mod reading;
mod runtime;
mod write;

use std::path::{Path, PathBuf};

pub use error::AnnotateError;
pub use find::find_annotations;
#[doc(hidden)]
pub use output::beside;
pub use warpline_trace::read::document::Position;

use annotations::Annotations;
use index::{Index, Link, Lost};
use join::Outcome;
use output::Output;
use reading::Reading;
use runtime::{counted, counted_as};
use write::FirstReading;
use write::chrome::Chrome;
use write::perfetto::Perfetto;

/// The default limit on the size of a decompressed trace, in bytes.
pub const DEFAULT_LIMIT: u64 = 8 << 30;

/// How kernels are matched with nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By the node ids in the trace.
    Id,
    /// By launch, and by order within the launch.
    Order,
}

/// What to join.
#[derive(Clone, Debug)]
pub struct Options {
    /// The annotations that `warpline::graph::save` or PyTorch saved.
    pub annotations: PathBuf,
    /// The trace: Chrome JSON, or a Perfetto trace of PyTorch's profiler. Either may be compressed with gzip or zstd.
    pub trace: PathBuf,
    /// The output, whose name ends with `.pftrace`, `.json` or `.json.gz`.
    pub output: PathBuf,
    /// How kernels are matched with nodes.
    pub by: By,
    /// The maximum size of the decompressed trace, in bytes, such as [`DEFAULT_LIMIT`].
    pub limit: u64,
}

/// What was joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events of the trace.
    pub events: u64,
    /// Kernels, copies and fills that belong to graphs according to the trace.
    pub of_graphs: u64,
    /// Those that are a node of the annotations.
    pub joined: u64,
    /// Replays whose kernels are known.
    pub replays: u64,
    /// Graphs of the annotations: those that were replayed, and all.
    pub graphs: (u64, u64),
    /// Launches of graphs whose kernels are not in the trace.
    pub idle_launches: u64,
    /// Joined kernels that do not name their launch: they are on no lane.
    pub without_launch: u64,
    /// What the output does not show as the input does, with counts.
    pub lost: Vec<(&'static str, u64)>,
    /// Copies of annotations (`gpu_user_annotation`) on streams without work, which are left out.
    pub copies: u64,
    /// Where the kernels, copies and fills of the trace are before and after: the streams of each device, then the added lanes.
    pub lanes: Vec<LaneCount>,
    /// Where the trace is truncated because its program was killed. The incomplete event is left out.
    pub cut: Option<Position>,
}

/// The number of kernels, copies and fills on one stream or lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneCount {
    /// The device, as the trace names it.
    pub device: String,
    /// The stream, as the trace names it, or the lane.
    pub lane: String,
    /// All of them, in the trace.
    pub before: u64,
    /// With the lanes: on a stream, those without a zone; on a lane, those whose innermost zone it shows. No kernel leaves its stream in
    /// the output; those that have a zone are also drawn in its lane.
    pub after: u64,
}

/// A phase of [`annotate()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first reading of the trace.
    Reading,
    /// The second reading of the trace, in which the output is written.
    Writing,
}

/// Receives the progress of [`annotate()`]. `()` ignores it.
pub trait Observer {
    /// The output is written to this temporary file until it is complete. If you end the process earlier, remove the file.
    fn temporary(&self, path: &Path) {
        let _ = path;
    }

    /// So many bytes of the trace's file have been read in this phase.
    fn progress(&self, phase: Phase, bytes: u64) {
        let _ = (phase, bytes);
    }
}

impl Observer for () {}

/// Joins the annotations with the trace, and writes the output.
///
/// # Errors
/// Why there is no output. No partial output is left.
pub fn annotate(options: &Options, observer: &dyn Observer) -> Result<Summary, AnnotateError> {
    let mut output = Output::new(options)?;
    let annotations = annotations::read(&options.annotations)?;
    let mut reading = Reading::new(options, observer);
    let (mut index, outcome) = reading.first(&annotations)?;
    check_matches(options, &annotations, &index, &outcome)?;
    for (replay, number) in outcome.replays.iter().zip(1..) {
        if let Some((launch, _)) = replay.launch {
            index.links.push(Link { number: launch, arrow: index.arrows + number, is_end: false });
        }
    }
    index.links.sort_unstable();
    let (base_ns, seed) = (reading.base_ns, reading.seed);
    let known = FirstReading { annotations: &annotations, index: &index, outcome: &outcome, base_ns, seed };
    let out = output.open(|path| observer.temporary(path))?;
    let texts = if output.is_perfetto {
        let mut format = Perfetto::new(known, out).map_err(|error| output.failed(error))?;
        reading.second(&known, &mut format, &output)?
    } else {
        reading.second(&known, &mut Chrome::new(known, out), &output)?
    };
    output.keep()?;
    index.lose(Lost::CounterText, texts);
    let cut = reading.cut;
    Ok(Summary { cut, ..summary(&annotations, &index, &outcome, output.is_perfetto) })
}

fn summary(annotations: &Annotations, index: &Index, outcome: &Outcome, is_perfetto: bool) -> Summary {
    let mut replayed = vec![false; annotations.graphs.len()];
    outcome.joined.iter().for_each(|joined| replayed[joined.graph as usize] = true);
    let in_output = |(why, _): &(&Lost, &u64)| is_perfetto || why.is_of_all();
    let mut lost: Vec<_> = index.lost.iter().filter(in_output).map(|(why, count)| (*why, *count)).collect();
    lost.sort_unstable();
    Summary {
        events: index.events() as u64,
        of_graphs: outcome.of_graphs,
        joined: outcome.joined.len() as u64,
        replays: outcome.replays.len() as u64,
        graphs: (replayed.iter().filter(|replayed| **replayed).count() as u64, replayed.len() as u64),
        idle_launches: outcome.idle_launches,
        without_launch: outcome.joined.iter().filter(|joined| joined.replay.is_none()).count() as u64,
        lost: lost.into_iter().map(|(why, count)| (why.text(), count)).collect(),
        copies: index.copies,
        lanes: lanes(index, outcome),
        cut: None,
    }
}

/// The streams of each device in the order of the trace, each device followed by its lanes.
fn lanes(index: &Index, outcome: &Outcome) -> Vec<LaneCount> {
    let rows = &index.rows;
    let device = |process: u32| rows.processes[process as usize].title().into_owned();
    let streams = outcome.on_rows.iter().map(|(row, before)| {
        let of = &rows.rows[*row as usize];
        let after = before - outcome.moved.get(row).copied().unwrap_or(0);
        let lane = of.title(&rows.processes[of.process as usize]).into_owned();
        ((of.process, 0), LaneCount { device: device(of.process), lane, before: *before, after })
    });
    let lanes = outcome.on_lanes.iter().map(|((process, lane), after)| {
        let lane = lane.clone().unwrap_or_else(|| write::ZONES.to_owned());
        ((*process, 1), LaneCount { device: device(*process), lane, before: 0, after: *after })
    });
    let mut all: Vec<_> = streams.chain(lanes).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, count)| count).collect()
}

fn check_matches(
    options: &Options,
    annotations: &Annotations,
    index: &Index,
    outcome: &Outcome,
) -> Result<(), AnnotateError> {
    if !outcome.joined.is_empty() {
        return Ok(());
    }
    let file = options.annotations.display();
    let why = if options.by == By::Order {
        "no graph launch has kernels in the trace; profile with `ProfilerActivity.CUDA`".to_owned()
    } else if !annotations.has_ids() {
        format!("{file} has no node ids to join by; join by launch and order with `--by order`")
    } else if outcome.of_graphs == 0 {
        format!(
            "none of its {} has a `graph node id` to join {file} by; join by launch and order with `--by order`",
            counted(index.events() as u64, "event")
        )
    } else {
        format!(
            "it has {}, and none is in {file}; save the annotations in the run that is profiled, after the \
             last instantiation",
            counted_as(outcome.of_graphs, "kernel of a graph", "kernels of graphs")
        )
    };
    Err(AnnotateError::NoMatch { path: options.trace.clone(), why })
}
