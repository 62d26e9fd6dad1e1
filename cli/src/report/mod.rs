//! `warpline report`: the report of a session from its traces, or from traces of PyTorch's profiler.
//!
//! `figures` adds what the reader ([`crate::trace`]) finds, `messages` has the sizes of collectives, `memory` the bytes
//! of devices, and `account` the counts that a session writes at its end. The tables and their text are those of a
//! session's report in `warpline_report`, as is the HTML page, for which `page` collects what a trace shows beside the
//! report: `calls` and `steps` with the figures, and `timeline` in a second reading.

mod account;
mod figures;
mod memory;
mod merged;
mod messages;
mod page;
mod shown;
mod steps;
mod texts;
mod timeline;
mod visitor;

use std::path::{Path, PathBuf};

use warpline_report::Report;

use crate::files;
use crate::inputs::{TRACES, stem, uncompressed};
use crate::output;
use crate::trace::{self, Names, ReadError, Skipped};
use figures::Figures;
pub(crate) use shown::Shown;
use shown::StepFinder;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "no zone, kernel or step in {0}; record with `WARPLINE=perfetto=FILE`, and mark functions with `#[gpu_zone]`"
    )]
    Empty(String),
    #[error("no zone, kernel or step in {0}: {1}")]
    Unfinished(String, String),
    #[error("no step {0} in {1}; `warpline query TRACE 'select step from steps'` lists those that are there")]
    NoStep(u64, String),
    #[error(
        "no zone, kernel or step in {0}: {1}. In Chrome traces of other tools, only the categories of PyTorch's profiler are read: `kernel`, `gpu_memcpy`, `gpu_memset`, \
         `gpu_user_annotation`, `user_annotation`, `cpu_op` and `cuda_sync`"
    )]
    OtherTool(String, String),
}

/// How an error names files in which nothing was found: one file by the tool that wrote it, if that is known.
fn traces(files: &[PathBuf]) -> String {
    match files {
        [file] => {
            trace::other(file).map_or_else(|| "the trace".to_owned(), |what| format!("the file, which is {what}"))
        }
        files => format!("the {} traces", files.len()),
    }
}

/// Reads the traces, and returns their common report. Warnings go to standard error.
pub(crate) fn report(paths: &[PathBuf], shown: &Shown) -> Result<Report, ReportError> {
    let files = files::expand(paths, TRACES).map_err(ReadError::from)?;
    let mut names = Names::default();
    let mut report = read(&files, shown, &mut names, Figures::default())?.report(&names);
    shown.apply(&mut report);
    Ok(report)
}

/// Reads the traces, and returns their common report and its page, which needs a second reading.
pub(crate) fn report_and_page(paths: &[PathBuf], shown: &Shown) -> Result<(Report, String), ReportError> {
    let files = files::expand(paths, TRACES).map_err(ReadError::from)?;
    let mut names = Names::default();
    let mut figures = read(&files, shown, &mut names, Figures::for_page())?;
    let mut report = figures.report(&names);
    shown.apply(&mut report);
    let page = page::page(&report, figures, &files, &mut names)?;
    Ok((report, page))
}

fn read(files: &[PathBuf], shown: &Shown, names: &mut Names, mut figures: Figures) -> Result<Figures, ReportError> {
    figures.name_traces(short_names(files));
    figures.by.clone_from(&shown.by);
    let mut has_step = shown.step.is_none();
    for path in files {
        if let Some(step) = shown.step {
            // A step comes behind its zones.
            let mut finder = StepFinder { step, spans: Vec::new() };
            trace::read(path, names, &mut finder)?;
            has_step |= !finder.spans.is_empty();
            figures.only = Some(finder.spans);
        }
        let skipped = trace::read(path, names, &mut figures)?;
        complain_of(path, &skipped);
        let is_whole = !skipped.is_cut && skipped.damaged_at.is_none() && skipped.malformed + skipped.unplaced == 0;
        figures.end_trace(is_whole, skipped.is_ours, names);
    }
    if let Some(step) = shown.step.filter(|_| !has_step) {
        return Err(ReportError::NoStep(step, traces(files)));
    }
    if figures.is_empty() {
        return Err(match (figures.unfinished_note(), figures.others_note()) {
            (Some(note), _) => ReportError::Unfinished(traces(files), note),
            (None, Some(note)) => ReportError::OtherTool(traces(files), note),
            (None, None) => ReportError::Empty(traces(files)),
        });
    }
    Ok(figures)
}

/// The short names by which files are told apart: their paths without the folders that all are in, and without endings.
fn short_names(files: &[PathBuf]) -> Vec<String> {
    let folders = |file: &PathBuf| file.parent().map_or(0, |folder| folder.components().count());
    let is_common = |count: usize| {
        let first = |file: &PathBuf| file.components().take(count).collect::<PathBuf>();
        files.windows(2).all(|pair| first(&pair[0]) == first(&pair[1]))
    };
    let fewest = files.iter().map(folders).min().unwrap_or(0);
    let common = (0..=fewest).rev().find(|count| is_common(*count)).unwrap_or(0);
    let short = |file: &PathBuf| {
        let name = file.components().skip(common).collect::<PathBuf>().to_string_lossy().into_owned();
        let name = uncompressed(&name);
        output::printable(stem(name, TRACES).unwrap_or(name))
    };
    files.iter().map(short).collect()
}

/// The report's text. On a terminal that has colors, the heads of its tables are bold.
pub(crate) fn text(report: &Report, on_terminal: bool) -> String {
    let columns = warpline_core::terminal::columns().filter(|_| on_terminal);
    let text = columns.map_or_else(|| format!("{report}\n"), |columns| format!("{report:columns$}\n"));
    let has_colors = on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if !has_colors {
        return text;
    }
    // The last block are the lines after the tables.
    let blocks: Vec<&str> = text.split("\n\n").collect();
    let tables = blocks.len().saturating_sub(1);
    let bold = |(at, block): (usize, &&str)| match block.split_once('\n') {
        Some((head, rest)) if at < tables => format!("\u{1b}[1m{head}\u{1b}[0m\n{rest}"),
        _ => (*block).to_owned(),
    };
    blocks.iter().enumerate().map(bold).collect::<Vec<_>>().join("\n\n")
}

pub(crate) fn complain_of(path: &Path, skipped: &Skipped) {
    for warning in skipped.warnings() {
        output::complain(format_args!("warning: {}: {warning}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_what_tells_them_apart() {
        for (files, names) in [
            (&["run/rank0.pftrace.gz", "run/rank1.json"][..], &["rank0", "rank1"][..]),
            (&["run/host0/rank0/t.pftrace", "run/host1/rank0/t.pftrace.zst"], &["host0/rank0/t", "host1/rank0/t"]),
            (&["a/t.pftrace", "b.perfetto-trace"], &["a/t", "b"]),
            (&["/tmp/trace"], &["trace"]),
        ] {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(short_names(&files), names);
        }
    }
}
