//! `warpline stragglers`: reads the traces that the user named, warns about what is missing, and judges the rest.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::{Calls, Findings, Skipped, TraceError};
use crate::inputs::{self, InputError, PERFETTO};
use crate::output;

/// Why nothing could be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StragglersError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{}: {error}{}", path.display(), remedy(error))]
    Trace { path: PathBuf, error: TraceError },
    #[error("no trace could be read; the lines above name each with the reason")]
    NoTrace,
    #[error("no collective in {}; mark them with `#[collective]` and record them", count(*traces))]
    NoCollective { traces: usize },
    /// Warnings have given the reason for each trace.
    #[error("every collective in {} is left out; the warnings say why and what to do", count(*traces))]
    NoneToCompare { traces: usize },
}

/// The findings, and whether every trace could be read.
pub(crate) struct Judged {
    pub(crate) findings: Findings,
    pub(crate) is_complete: bool,
}

/// Reads the traces and judges their collectives. A trace that cannot be read is named, and the others are judged. Prints at most `top`
/// complaints.
///
/// # Errors
/// Nothing can be judged.
pub(crate) fn judge(paths: &[PathBuf], top: usize) -> Result<Judged, StragglersError> {
    let paths = inputs::expand(paths, PERFETTO)?;
    let (mut calls, mut read, mut left_out) = (Calls::default(), 0, 0);
    let bar = inputs::bar(&paths, "reading");
    let mut complaints = Complaints { left: top.max(1), more: 0 };
    for path in &paths {
        let trace = inputs::open(path, &bar).map_err(TraceError::from).and_then(|trace| calls.read(trace));
        match trace {
            Ok(skipped) => {
                read += 1;
                bar.suspend(|| complaints.of_trace(path, &skipped));
                left_out += skipped.ungrouped + skipped.calls;
            }
            Err(error) if paths.len() == 1 => {
                bar.finish_and_clear();
                return Err(StragglersError::Trace { path: path.clone(), error });
            }
            Err(error) => {
                let remedy = remedy(&error);
                bar.suspend(|| complaints.add(format_args!("error: {}: {error}{remedy}", path.display())));
            }
        }
    }
    bar.finish_and_clear();
    complaints.end();
    match (read, left_out) {
        (0, _) => Err(StragglersError::NoTrace),
        (traces, 0) if calls.is_empty() => Err(StragglersError::NoCollective { traces }),
        (traces, _) if calls.is_empty() => Err(StragglersError::NoneToCompare { traces }),
        _ => Ok(Judged { findings: calls.judge(top), is_complete: read == paths.len() }),
    }
}

/// The remedy for an error of the system. The other errors contain theirs.
fn remedy(error: &TraceError) -> &'static str {
    match error {
        TraceError::Io(_) => "; name the `.pftrace` of a rank, as `WARPLINE=perfetto=FILE` writes it",
        _ => "",
    }
}

fn count(traces: usize) -> String {
    if traces == 1 { "the trace".to_owned() } else { format!("the {traces} traces") }
}

/// Complaints about the traces of many ranks, of which only the first are printed.
struct Complaints {
    left: usize,
    more: u64,
}

impl Complaints {
    fn add(&mut self, text: impl Display) {
        if self.left == 0 {
            self.more += 1;
            return;
        }
        self.left -= 1;
        output::complain(text);
    }

    fn end(&self) {
        if self.more > 0 {
            output::complain(format_args!("… and {}; `--top` shows more", output::counted(self.more, "more line")));
        }
    }

    fn of_trace(&mut self, path: &Path, skipped: &Skipped) {
        let path = path.display();
        for warning in skipped.unread.warnings() {
            self.add(format_args!("warning: {path}: {warning}"));
        }
        if skipped.ungrouped > 0 {
            self.add(format_args!(
                "warning: {path}: {} no group and cannot be matched with other ranks; add `group = …` to their marks \
                 (`warpline check --strict` lists them)",
                have(skipped.ungrouped)
            ));
        }
        if skipped.calls > 0 {
            self.add(format_args!(
                "warning: {path}: {} no rank, number or known kind, and {} left out; if a newer warpline wrote the trace, update \
                 warpline-cli",
                have(skipped.calls),
                output::is_or_are(skipped.calls)
            ));
        }
        if skipped.dropped > 0 {
            self.add(format_args!(
                "warning: {path}: its session dropped {}; a dropped collective takes no number, so later ones may be \
                 compared with the wrong ones; record with a larger `ring=` or a `filter=`, or give `seq`",
                output::counted(skipped.dropped, "zone")
            ));
        }
    }
}

fn have(collectives: u64) -> String {
    let have = if collectives == 1 { "has" } else { "have" };
    format!("{} {have}", output::counted(collectives, "collective"))
}
