//! `warpline annotate`: finds the traces and their outputs, shows the progress of `warpline_annotate`, and prints what
//! was joined.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use warpline_annotate::{AnnotateError, By, LaneCount, Observer, Options, Phase, Summary, find_annotations};

use crate::inputs::{self, InputError, TRACES};
use crate::output::{self, Column, fitted};
use crate::output_file::{self, PlaceError};

/// Why nothing was annotated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnnotatingError {
    #[error(transparent)]
    Annotate(#[from] AnnotateError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{}: the output for a folder of traces must be a folder, and `{}` is the name of a trace; name a folder with `-o`", path.display(), output.display())]
    OneOutput { path: PathBuf, output: PathBuf },
    #[error("{} and {} have the same output, {}; annotate one of them alone", first.display(), second.display(), output.display())]
    SameOutput { first: PathBuf, second: PathBuf, output: PathBuf },
}

/// The traces to annotate, and the options.
pub(crate) struct Annotating {
    /// The annotations; none if they are beside each trace.
    pub(crate) annotations: Option<PathBuf>,
    /// A trace, or a folder of traces.
    pub(crate) trace: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) by: By,
    pub(crate) limit: u64,
    pub(crate) before_after: bool,
}

impl Annotating {
    /// Returns each trace with its output. For a folder of traces, the output is a folder, which is created if it is
    /// missing. The outputs in it have the names of the traces. The output of a trace that is compressed with zstd is
    /// compressed with gzip.
    pub(crate) fn traces(&self) -> Result<Vec<(PathBuf, PathBuf)>, AnnotatingError> {
        let to = output_file::expand_here(&self.output)?;
        if !self.trace.is_dir() {
            return Ok(vec![(self.trace.clone(), to)]);
        }
        if inputs::has_ending(&to.to_string_lossy(), TRACES) {
            return Err(AnnotatingError::OneOutput { path: self.trace.clone(), output: to });
        }
        let mut traces = inputs::expand(std::slice::from_ref(&self.trace), TRACES)?;
        // Outputs of an earlier run.
        traces.retain(|trace| !trace.starts_with(&to));
        let output = |trace: &Path| {
            let output = to.join(trace.strip_prefix(&self.trace).unwrap_or(trace));
            let is_zstd = output.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zst"));
            if is_zstd { output.with_extension("gz") } else { output }
        };
        let mut by_output = HashMap::new();
        for trace in &traces {
            if let Some(first) = by_output.insert(output(trace), trace) {
                let (first, second) = (first.clone(), trace.clone());
                return Err(AnnotatingError::SameOutput { first, output: output(&second), second });
            }
        }
        let all = traces.iter().map(|trace| {
            let output = output(trace);
            let folder = output.parent().unwrap_or(&to);
            fs::create_dir_all(folder).map_err(|error| PlaceError::Write { path: folder.to_owned(), error })?;
            Ok((trace.clone(), output))
        });
        all.collect()
    }

    /// Annotates a trace, and returns what was joined. `on_temporary` is called with the temporary file that becomes
    /// the output when it is complete.
    pub(crate) fn annotate(
        &self,
        trace: &Path,
        output: &Path,
        on_temporary: fn(&Path),
    ) -> Result<String, AnnotatingError> {
        let annotations = self.annotations.clone().map_or_else(|| find_annotations(trace), Ok)?;
        let mut text = String::new();
        if self.annotations.is_none() {
            text = format!("annotations: {}\n", output::printable(&annotations.display().to_string()));
        }
        let (trace, output) = (trace.to_owned(), output.to_owned());
        let options = Options { annotations, trace, output, by: self.by, limit: self.limit };
        let summary = joined(&options, on_temporary)?;
        text += &describe(&summary, &options.output);
        if self.before_after {
            text += &before_after(&summary, output::stdout_is_terminal());
        }
        Ok(text)
    }
}

fn joined(options: &Options, on_temporary: fn(&Path)) -> Result<Summary, AnnotateError> {
    let length = fs::metadata(&options.trace).map_or(0, |file| file.len());
    let bar = inputs::steps(2 * length, "");
    let progress = Progress { bar, length, phase: Cell::new(None), on_temporary };
    let result = warpline_annotate::annotate(options, &progress);
    progress.bar.finish_and_clear();
    result
}

/// A bar over both readings of the trace.
struct Progress {
    bar: ProgressBar,
    /// The bytes of the trace's file.
    length: u64,
    phase: Cell<Option<Phase>>,
    on_temporary: fn(&Path),
}

impl Observer for Progress {
    fn temporary(&self, path: &Path) {
        (self.on_temporary)(path);
    }

    fn progress(&self, phase: Phase, bytes: u64) {
        let (message, before) = match phase {
            Phase::Reading => ("reading", 0),
            Phase::Writing => ("writing", self.length),
        };
        if self.phase.replace(Some(phase)) != Some(phase) {
            self.bar.set_message(message);
        }
        self.bar.set_position(before + bytes);
    }
}

/// The numbers of kernels, copies and fills by lane, before and after.
fn before_after(summary: &Summary, on_terminal: bool) -> String {
    let columns = ["device", "stream or lane", "before", "after"].map(Column::whole).to_vec();
    let number = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
    let row =
        |count: &LaneCount| vec![count.device.clone(), count.lane.clone(), number(count.before), number(count.after)];
    let (table, _) = fitted(columns, summary.lanes.iter().map(row).collect(), on_terminal);
    format!("\nkernels, copies and fills:\n{table}\n")
}

/// Describes what was joined.
fn describe(summary: &Summary, output: &Path) -> String {
    let Summary {
        events, of_graphs, joined, replays, graphs: (replayed, graphs), idle_launches, without_launch, ..
    } = summary;
    let of_graphs = output::counted_as(*of_graphs, "kernel, copy or fill", "kernels, copies and fills");
    let (replays, graphs) = (output::counted(*replays, "replay"), output::counted(*graphs, "graph"));
    let (are, events) = (output::is_or_are(*joined), output::counted(*events, "event"));
    let mut text = format!(
        "{joined} of {of_graphs} of graphs {are} annotated, in {replays} ({replayed} of {graphs}); {events} read\n"
    );
    let mut add = |count: u64, one: &str, more: &str| {
        if count > 0 {
            text += &(output::counted_as(count, one, more) + "\n");
        }
    };
    add(
        *idle_launches,
        "launch of a graph has no kernels in the trace",
        "launches of graphs have no kernels in the trace",
    );
    add(
        *without_launch,
        "annotated kernel does not name its launch (`correlation`), and is on no lane",
        "annotated kernels do not name their launch (`correlation`), and are on no lane",
    );
    add(
        summary.copies,
        "copy of an annotation (`gpu_user_annotation`) on a stream without work is left out",
        "copies of annotations (`gpu_user_annotation`) on streams without work are left out",
    );
    for (why, count) in &summary.lost {
        text += &format!("{why}: {count}\n");
    }
    if let Some(at) = summary.cut {
        text += &format!("the trace is truncated at {at}; the incomplete event is left out\n");
    }
    output::printable(&output.display().to_string()) + ": " + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_annotated_is_counted_in_the_singular_and_in_the_plural() {
        let of = |count: u64| Summary {
            events: count,
            of_graphs: count,
            joined: count,
            replays: count,
            graphs: (count, count),
            idle_launches: count,
            without_launch: count,
            lost: Vec::new(),
            copies: 0,
            lanes: Vec::new(),
            cut: None,
        };
        assert_eq!(
            describe(&of(1), Path::new("out.json")),
            "out.json: 1 of 1 kernel, copy or fill of graphs is annotated, in 1 replay (1 of 1 graph); 1 event read\n\
             1 launch of a graph has no kernels in the trace\n\
             1 annotated kernel does not name its launch (`correlation`), and is on no lane\n"
        );
        assert_eq!(
            describe(&of(2), Path::new("out.json")),
            "out.json: 2 of 2 kernels, copies and fills of graphs are annotated, in 2 replays (2 of 2 graphs); 2 events \
             read\n\
             2 launches of graphs have no kernels in the trace\n\
             2 annotated kernels do not name their launch (`correlation`), and are on no lane\n"
        );
    }
}
