//! Joins the annotations of CUDA graphs, which `warpline::graph::save` or PyTorch saved at capture, with a trace that PyTorch's
//! profiler or another tool wrote. The result is one trace in which each kernel of a replay names the ranges it belongs to.
//!
//! [`annotate()`] is the whole API: the command `warpline annotate` parses its arguments into [`Options`], shows the progress that an
//! [`Observer`] reports, and prints the [`Summary`].
//!
//! The trace is read twice: `index` finds out where everything belongs and `join` which kernel is which node; then `write` writes
//! the output, event by event. `annotations` reads what was saved at capture, `input` unpacks and bounds, `document` takes a trace
//! apart, `event` knows what an event is.
//!
//! No event is lost without being counted, no time is moved, and no kernel leaves its stream. Memory is a few dozen bytes
//! for each event and the largest one. The output appears under its name when it is whole, and not before. This crate prints
//! nothing.
#![forbid(unsafe_code)]

mod annotations;
#[doc(hidden)]
pub mod document;
mod error;
mod event;
mod index;
mod input;
mod join;
mod output;
mod reading;
mod runtime;
mod write;

use std::path::{Path, PathBuf};

pub use document::Position;
pub use error::AnnotateError;
#[doc(hidden)]
pub use output::beside;

use annotations::Annotations;
use index::{Index, Link, Lost};
use join::Outcome;
use output::Output;
use reading::Reading;
use runtime::{counted, counted_as};
use write::FirstReading;
use write::chrome::Chrome;
use write::perfetto::Perfetto;

/// How many unpacked bytes a trace may have, if nothing else is said.
pub const DEFAULT_LIMIT: u64 = 8 << 30;

/// How kernels find their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By the node ids in the trace.
    Id,
    /// By launch, and by the order within it.
    Order,
}

/// What to join.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `warpline::graph::save` or PyTorch saved.
    pub annotations: PathBuf,
    /// Chrome JSON, packed with gzip or not.
    pub trace: PathBuf,
    /// A name that ends with `.pftrace`, `.json` or `.json.gz`.
    pub output: PathBuf,
    /// How kernels find their nodes.
    pub by: By,
    /// The most bytes that the trace may have when it is unpacked; [`DEFAULT_LIMIT`].
    pub limit: u64,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events of the trace.
    pub events: u64,
    /// Kernels, copies and fills that belong to graphs, as far as the trace says it.
    pub of_graphs: u64,
    /// Those of them that are a node of the annotations.
    pub joined: u64,
    /// Replays whose kernels are known.
    pub replays: u64,
    /// Graphs of the annotations that were replayed, of all.
    pub graphs: (u64, u64),
    /// Launches of graphs whose kernels are not in the trace.
    pub idle_launches: u64,
    /// Joined kernels that do not say their launch: they are on no lane.
    pub without_launch: u64,
    /// What the Perfetto output does not show as the input has it, and how many of each.
    pub lost: Vec<(&'static str, u64)>,
    /// Where the trace ends in the middle of an event, which is left out: its program was killed.
    pub cut: Option<Position>,
}

/// What [`annotate()`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It reads the trace for the first time.
    Reading,
    /// It reads the trace again, and writes the output.
    Writing,
}

/// Learns what [`annotate()`] does while it runs. `()` is an observer that ignores it.
pub trait Observer {
    /// The output is written to this file until it is whole. Whoever ends the process before that should remove the file.
    fn temporary(&self, path: &Path) {
        let _ = path;
    }

    /// In this phase, so many bytes of the trace's file have been read so far.
    fn progress(&self, phase: Phase, bytes: u64) {
        let _ = (phase, bytes);
    }
}

impl Observer for () {}

/// Joins the annotations with the trace, and writes the output.
///
/// # Errors
/// Why there is no output. What was written until then is removed.
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
    // Chrome's output has every event as it was.
    let mut lost: Vec<_> = index.lost.iter().filter(|_| is_perfetto).map(|(why, count)| (*why, *count)).collect();
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
        cut: None,
    }
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
        "no launch of a graph has kernels in the trace; profile with `ProfilerActivity.CUDA`".to_owned()
    } else if !annotations.has_ids() {
        format!("{file} has no node ids to join by; join by launch and order with `--by order`")
    } else if outcome.of_graphs == 0 {
        format!(
            "of its {}, none has a `graph node id` that {file} could be joined by; join by launch and order with `--by order`",
            counted(index.events() as u64, "event")
        )
    } else {
        format!(
            "it has {}, and none is in {file}; save the annotations in the run that is profiled, behind the \
             last instantiation",
            counted_as(outcome.of_graphs, "kernel of a graph", "kernels of graphs")
        )
    };
    Err(AnnotateError::NoMatch { path: options.trace.clone(), why })
}
