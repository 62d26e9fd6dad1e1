//! Why there is no output, and what to do about it. Every module that reads or writes a file returns this error.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use warpline_trace::read::document::{MAX_VALUE, Position, Refused};

use crate::runtime::counted_as;

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotateError {
    /// A file cannot be read, or it is compressed and damaged.
    #[error("{}: {}", path.display(), read_error(error))]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// The path is a pipe or a folder.
    #[error("{}: not a file; the trace is read twice, so write a pipe to a file first", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The user named no annotations, and none belong to the trace.
    #[error(
        "no file of annotations is beside {}; with `--annotations FILE`, name the one that `warpline::graph::save` or PyTorch saved",
        trace.display()
    )]
    NoAnnotations {
        /// The trace.
        trace: PathBuf,
    },
    /// The user named no annotations, and several files may belong to the trace.
    #[error("several files of annotations are beside {}: {}; name one with `--annotations FILE`", trace.display(), files.join(", "))]
    SeveralAnnotations {
        /// The trace.
        trace: PathBuf,
        /// The files.
        files: Vec<String>,
    },
    /// The file does not contain annotations.
    #[error("{}: not a file of graph annotations: {}", path.display(), with_remedy(why))]
    NotAnnotations {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file is not a trace.
    #[error("{}: not a Chrome trace: {why}; export one with `prof.export_chrome_trace(\"trace.json.gz\")`", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The trace is truncated.
    #[error("{}: the trace is truncated at {at}; export it or copy it again", path.display())]
    Short {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Position,
    },
    /// The trace is not JSON at this position.
    #[error("{}: damaged at {at}: {why}; export it again", path.display())]
    Damaged {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Position,
        /// What is wrong.
        why: String,
    },
    /// The trace exceeds a limit.
    #[error("{}: {what}; if the trace is correct, raise the limit with `--limit`", path.display())]
    TooLarge {
        /// The trace.
        path: PathBuf,
        /// What exceeds the limit.
        what: String,
    },
    /// A single value exceeds the limit.
    #[error("{}: the value at {at} has more than {} MiB; is this a trace?", path.display(), MAX_VALUE >> 20)]
    LargeEvent {
        /// The trace.
        path: PathBuf,
        /// Where.
        at: Position,
    },
    /// The trace changed between the two readings.
    #[error("{}: the file changed while it was read; wait until it is complete", path.display())]
    Changed {
        /// The trace.
        path: PathBuf,
    },
    /// No kernel of the trace matches a node of the annotations.
    #[error("{}: {why}", path.display())]
    NoMatch {
        /// The trace.
        path: PathBuf,
        /// What was found, and what to do.
        why: String,
    },
    /// Joining by order: the trace contains no graph launch.
    #[error(
        "{}: it contains no graph launch; profile with `ProfilerActivity.CPU` and `ProfilerActivity.CUDA`", path.display()
    )]
    NoLaunches {
        /// The trace.
        path: PathBuf,
    },
    /// Joining by order: a graph cannot be matched by order.
    #[error("{graph} cannot be joined by order: {reason}; join by id")]
    NoOrder {
        /// The name of the graph in messages.
        graph: String,
        /// Why.
        reason: &'static str,
    },
    /// Joining by order: the work of a launch matches no graph.
    #[error(
        "launch {replay} (correlation {correlation}) has {}, and {graphs}; nothing is joined: \
         annotate the run that was profiled, and all graphs that it launches",
        counted_as(*.kernels as u64, "kernel, copy or fill", "kernels, copies and fills")
    )]
    OtherCount {
        /// The number of the launch, from 1.
        replay: usize,
        /// The launch's correlation.
        correlation: u64,
        /// The number of its kernels, copies and fills.
        kernels: usize,
        /// The graphs and their nodes, as text.
        graphs: String,
    },
    /// Joining by order: a launch matches two graphs.
    #[error(
        "the launch with correlation {correlation} may be {first} or {second}; annotate one of them, or join by id"
    )]
    TwoGraphs {
        /// The launch's correlation.
        correlation: u64,
        /// A graph that matches.
        first: String,
        /// Another one.
        second: String,
    },
    /// The ending of the name is not that of a format.
    #[error("{}: the name must end with `.pftrace` (Perfetto), `.json` or `.json.gz` (Chrome)", path.display())]
    OutputName {
        /// The path.
        path: PathBuf,
    },
    /// The output is one of the inputs.
    #[error("{}: the output must not be one of the inputs; choose another file with `-o`", path.display())]
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
        io::ErrorKind::UnexpectedEof => "the compressed file is truncated; copy or export it again".to_owned(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("the compressed file is damaged: {error}; copy or export it again")
        }
        _ if error.get_ref().is_some_and(|inner| inner.is::<Refused>()) => error.to_string(),
        _ => format!("{error}; name what `warpline::graph::save` or the profiler has written"),
    }
}

/// Adds a remedy to reasons that do not contain one.
fn with_remedy(why: &str) -> Cow<'_, str> {
    if why.contains("; ") { why.into() } else { format!("{why}; save them with `warpline::graph::save`").into() }
}
