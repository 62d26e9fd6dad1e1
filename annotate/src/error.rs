//! Why there is no output, and what to do about it. Every module that reads or writes a file returns this error.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use crate::document::{MAX_VALUE, Position};
use crate::runtime::counted_as;

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
        at: Position,
    },
    /// The trace is no JSON there.
    #[error("{}: damaged at {at}: {why}; export it again", path.display())]
    Damaged {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Position,
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
    #[error("{}: what begins at {at} has more than {} MiB; is that a trace?", path.display(), MAX_VALUE >> 20)]
    LargeEvent {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Position,
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
