//! Joins the annotations of CUDA graphs with a trace that PyTorch's profiler or another tool wrote.
//!
//! Called by `warpline annotate`. The trace is read twice: `index` finds out where
//! everything belongs and `join` which kernel is which node; then `write` writes it, event by event. `annotations` reads what
//! was saved at capture, `input` unpacks and bounds, `document` takes a trace apart, `event` knows what an event is.
//!
//! No event is lost without being counted, no time is moved, and no kernel leaves its stream. Memory is a few dozen bytes
//! for each event and the largest one. The output appears under its name when it is whole, and not before.

mod annotations;
pub(crate) mod document;
mod event;
mod index;
mod input;
mod join;
mod output;
mod write;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::value::RawValue;

pub use document::Place;

use annotations::Annotations;
use document::{Broken, Document, Piece};
use event::{Event, scalar};
use index::{Index, Indexer, Link, Lost};
use join::{Join, Outcome};
use output::Output;
use write::chrome::Chrome;
use write::perfetto::Perfetto;
use write::{Format, Known, Told};

use crate::output::{counted, counted_as};

/// How many unpacked bytes a trace may have, if nothing else is said.
pub const DEFAULT_LIMIT: u64 = 8 << 30;

/// Of how many unpacked bytes one event is allowed: what is kept of each bounds the memory.
const BYTES_PER_EVENT: u64 = 256;

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

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotateError {
    /// The system does not let us at a file, or it is damaged as a gzip file.
    #[error("{}: {}", path.display(), read_error(error))]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// A pipe or a folder.
    #[error("{}: not a file; it is read twice, so write a pipe to a file first", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Something else than annotations.
    #[error("{}: no annotations of graphs: {}", path.display(), with_remedy(why))]
    NotAnnotations {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Something else than a trace.
    #[error("{}: not a Chrome trace: {why}; export one with `prof.export_chrome_trace(\"trace.json.gz\")`", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The trace ends in the middle.
    #[error("{}: the trace ends at {at}, in the middle; export it again, or copy it again", path.display())]
    Short {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Place,
    },
    /// The trace is no JSON there.
    #[error("{}: damaged at {at}: {why}; export it again", path.display())]
    Damaged {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Place,
        /// What is wrong.
        why: String,
    },
    /// More than is allowed.
    #[error("{}: {what}; if that is right, allow more with `--limit`", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// How much of what.
        what: String,
    },
    /// A single event larger than any event is.
    #[error("{}: what begins at {at} has more than {} MiB; is that a trace?", path.display(), document::MAX_VALUE >> 20)]
    LargeEvent {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Place,
    },
    /// The trace was another one when it was read the second time.
    #[error("{}: it changed while it was read; wait until it is written", path.display())]
    Changed {
        /// The trace.
        path: PathBuf,
    },
    /// No kernel of the trace is a node of the annotations.
    #[error("{}: {why}", path.display())]
    NoMatch {
        /// The trace.
        path: PathBuf,
        /// What was found, and what to do.
        why: String,
    },
    /// By order: no launch of a graph.
    #[error(
        "{}: no launch of a graph is in it; profile with `ProfilerActivity.CPU` and `ProfilerActivity.CUDA`", path.display()
    )]
    NoLaunches {
        /// The trace.
        path: PathBuf,
    },
    /// By order: the graphs cannot be told by it.
    #[error("{graph} cannot be joined by order: {reason}; join by id")]
    NoOrder {
        /// What messages call the graph.
        graph: String,
        /// Why.
        reason: &'static str,
    },
    /// By order: a launch does other work than the graphs.
    #[error(
        "launch {replay} (correlation {correlation}) has {}, and {graphs}; nothing is joined: \
         annotate the run that was profiled, and all graphs that it launches",
        counted_as(*.kernels as u64, "kernel, copy or fill", "kernels, copies and fills")
    )]
    OtherCount {
        /// Counts launches from 1.
        replay: usize,
        /// The launch's correlation.
        correlation: u64,
        /// The work that it caused.
        kernels: usize,
        /// The graphs, with their nodes.
        graphs: String,
    },
    /// By order: a launch could be either of two graphs.
    #[error(
        "the launch with correlation {correlation} may be {first} or {second}; annotate one of them, or join by id"
    )]
    TwoGraphs {
        /// The launch's correlation.
        correlation: u64,
        /// A graph that fits.
        first: String,
        /// Another one.
        second: String,
    },
    /// Another name than one that says a format.
    #[error("{}: the name must end with `.pftrace` (Perfetto), `.json` or `.json.gz` (Chrome)", path.display())]
    OutputName {
        /// The path.
        path: PathBuf,
    },
    /// One of the inputs.
    #[error("{}: it is read, and cannot be the output, too; choose another file with `-o`", path.display())]
    OutputIsInput {
        /// The path.
        path: PathBuf,
    },
    /// The output cannot be written.
    #[error("cannot write {}: {error}; choose another file with `-o`", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
}

fn read_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the gzip file is cut short; copy or export it again".to_owned(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("damaged as a gzip file: {error}; copy or export it again")
        }
        _ => format!("{error}; name what `warpline::graph::save` or the profiler has written"),
    }
}

/// Some reasons say themselves what to do.
fn with_remedy(why: &str) -> Cow<'_, str> {
    if why.contains("; ") { why.into() } else { format!("{why}; save them with `warpline::graph::save`").into() }
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
    pub cut: Option<Place>,
}

/// Joins, and writes the output. `on_temporary` is told the file that it is written to until it is whole.
///
/// # Errors
/// Why there is no output. What was written until then is removed.
pub fn annotate(options: &Options, on_temporary: impl FnOnce(&Path)) -> Result<Summary, AnnotateError> {
    let length = std::fs::metadata(&options.trace).map_or(0, |file| file.len());
    // It is drawn only where standard error is a terminal.
    let progress = ProgressBar::new(2 * length).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {percent} %").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let result = join_and_write(options, &progress, on_temporary);
    progress.finish_and_clear();
    result
}

fn join_and_write(
    options: &Options,
    progress: &ProgressBar,
    on_temporary: impl FnOnce(&Path),
) -> Result<Summary, AnnotateError> {
    let mut output = Output::new(options)?;
    let annotations = annotations::read(&options.annotations)?;
    progress.set_message("reading");
    let mut reading = Reading { options, base_ns: None, seed: 0, cut: None, progress };
    let (mut index, outcome) = reading.first(&annotations)?;
    check_matches(options, &annotations, &index, &outcome)?;
    for (replay, number) in outcome.replays.iter().zip(1..) {
        if let Some((launch, _)) = replay.launch {
            index.links.push(Link { number: launch, arrow: index.arrows + number, is_end: false });
        }
    }
    index.links.sort_unstable();
    progress.set_message("writing");
    let (base_ns, seed) = (reading.base_ns, reading.seed);
    let known = Known { annotations: &annotations, index: &index, outcome: &outcome, base_ns, seed };
    let out = output.open(on_temporary)?;
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

/// The two readings of the trace.
struct Reading<'a> {
    options: &'a Options,
    base_ns: Option<i64>,
    seed: u64,
    /// Where the trace ends in the middle.
    cut: Option<Place>,
    progress: &'a ProgressBar,
}

impl Reading<'_> {
    fn document(&self) -> Result<Document<input::Bytes>, AnnotateError> {
        Ok(Document::new(input::open(&self.options.trace, self.options.limit, self.progress)?))
    }

    fn path(&self) -> PathBuf {
        self.options.trace.clone()
    }

    fn first(&mut self, annotations: &Annotations) -> Result<(Index, Outcome), AnnotateError> {
        let mut document = self.document()?;
        let mut indexer = Indexer::new(Join::new(annotations, self.options.by));
        let most =
            usize::try_from(self.options.limit / BYTES_PER_EVENT).unwrap_or(usize::MAX).min(u32::MAX as usize / 2);
        let mut has_events = false;
        loop {
            // The place is that of the piece, which borrows the document.
            match document.next() {
                Ok(None) => break,
                Ok(Some(Piece::Events)) => has_events = true,
                Ok(Some(Piece::Member(name, value))) => match whole_member(name, value) {
                    Ok(value) if name == b"\"baseTimeNanoseconds\"" => self.base_ns = scalar(value).parse().ok(),
                    Ok(_) => {}
                    Err(error) => {
                        let offset = offset(value, &error);
                        return Err(self.damaged(document.place(), offset, &error));
                    }
                },
                Ok(Some(Piece::Event(bytes))) => {
                    if indexer.events() == most {
                        let what = format!("more than {most} events");
                        return Err(AnnotateError::TooLarge { path: self.path(), what });
                    }
                    let event = match Event::read(bytes) {
                        Ok(event) => event,
                        Err(error) => {
                            let offset = offset(bytes, &error);
                            return Err(self.damaged(document.place(), offset, &error));
                        }
                    };
                    indexer.event(&event).map_err(|index::TooMany| AnnotateError::TooLarge {
                        path: self.path(),
                        what: "more names of processes and threads than 256 MiB".to_owned(),
                    })?;
                }
                Err(broken) => return Err(self.broken(broken)),
            }
        }
        if !has_events {
            let why = "it has no `traceEvents`".to_owned();
            return Err(AnnotateError::NotATrace { path: self.path(), why });
        }
        let (index, join) = indexer.finish();
        (self.seed, self.cut) = (index.seed(), document.cut());
        Ok((index, join.finish(&self.options.trace)?))
    }

    fn second(&self, known: &Known<'_>, format: &mut dyn Format, output: &Output) -> Result<u64, AnnotateError> {
        let mut document = self.document()?;
        let changed = || AnnotateError::Changed { path: self.path() };
        let (mut links, mut joined) = (&known.index.links[..], &known.outcome.joined[..]);
        let mut number = 0;
        while let Some(piece) = document.next().map_err(|broken| self.broken(broken))? {
            match piece {
                Piece::Events => Ok(()),
                Piece::Member(name, value) => format.member(name, value),
                Piece::Event(bytes) => {
                    let event = Event::read(bytes).map_err(|_| changed())?;
                    let fate = known.index.fate(number as usize).ok_or_else(changed)?;
                    let mine = links.iter().take_while(|link| link.number == number).count();
                    let (mine, rest) = links.split_at(mine);
                    links = rest;
                    let node = joined.first().filter(|joined| joined.number == number);
                    joined = &joined[usize::from(node.is_some())..];
                    let told = Told { bytes, event: &event, number, fate, joined: node, links: mine };
                    number += 1;
                    format.event(&told)
                }
            }
            .map_err(|error| output.failed(error))?;
        }
        if number as usize != known.index.events() {
            return Err(changed());
        }
        format.finish().map_err(|error| output.failed(error))
    }

    /// `at` is where the bytes begin that are no JSON.
    fn damaged(&self, at: Place, bytes: u64, error: &serde_json::Error) -> AnnotateError {
        let text = error.to_string();
        let why = text.rsplit_once(" at line ").map_or(&*text, |(why, _)| why).to_owned();
        let at = Place { byte: at.byte + bytes, line: at.line + (error.line() as u64).saturating_sub(1) };
        AnnotateError::Damaged { path: self.path(), at, why }
    }

    fn broken(&self, broken: Broken) -> AnnotateError {
        let path = self.path();
        match broken {
            Broken::Io(error) => AnnotateError::Read { path, error },
            Broken::TooLong(limit) => {
                AnnotateError::TooLarge { path, what: format!("more than {limit} bytes, unpacked") }
            }
            Broken::Short(at) => AnnotateError::Short { path, at },
            Broken::NoTrace(why) => AnnotateError::NotATrace { path, why: why.to_owned() },
            Broken::Wrong(at, why) => AnnotateError::Damaged { path, at, why: why.to_owned() },
            Broken::TooLarge(at) => AnnotateError::LargeEvent { path, at },
        }
    }
}

/// Where in the bytes an error is.
fn offset(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let before = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len);
    before.sum::<usize>() as u64 + (error.column() as u64).saturating_sub(1)
}

/// A member's value, if it and its name are JSON.
fn whole_member<'a>(name: &[u8], value: &'a [u8]) -> serde_json::Result<&'a RawValue> {
    serde_json::from_slice::<Cow<'_, str>>(name)?;
    serde_json::from_slice(value)
}
