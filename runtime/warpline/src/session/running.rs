//! A session that records: its engine, and the files that it writes.
//!
//! The handle ([`Session`](super::Session)) calls it, on any thread and in the middle of zones. Nothing here waits for a zone or a
//! device; the end waits for the collector, up to the configured timeout.

#[cfg(unix)]
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::reports::ReportFile;
use super::warn;
use super::written::{self, Written};
use crate::collector::engine::{Engine, GRACE};
use crate::error::Error;
use crate::nvtx;
#[cfg(unix)]
use warpline_core::file_name;
use warpline_core::inside::Inside;
use warpline_core::lock::lock;
#[cfg(unix)]
use warpline_core::recovered::RecoverError;
use warpline_core::recovered::Recovered;
use warpline_core::report::Report;
use warpline_core::stderr;

#[cfg(target_os = "linux")]
pub(super) use crate::control::Listening;
/// The control server, which exists only on Linux.
#[cfg(not(target_os = "linux"))]
pub(super) enum Listening {}

/// The state of a session from its start to its end, also while it is stopped.
pub(super) struct Running {
    pub(super) engine: Arc<Engine>,
    /// The files that the session writes, except those of a rotated trace.
    pub(super) written: Vec<Written>,
    /// The files to which the report is written at the end.
    pub(super) reports: Vec<ReportFile>,
}

/// Returns the notes for the report of a session that never ran: none, because its settings requested no recording.
pub(super) fn why_nothing() -> Vec<String> {
    Vec::new()
}

impl Deref for Running {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Running {
    /// Writes the flight recorder's zones to a trace.
    pub(super) fn dump(&self, path: &Path) -> Result<Recovered, Error> {
        #[cfg(unix)]
        if let Some(flight) = &self.flight {
            let no_name = |problem| RecoverError::Write(io::Error::new(io::ErrorKind::InvalidInput, problem));
            let dump = || flight.dump(&file_name::expand(path).map_err(no_name)?);
            return dump().map_err(|source| Error::Dump { path: path.to_owned(), source });
        }
        let _ = path;
        Err(Error::NoFlight)
    }

    /// Finishes, and prints the notes of the report that were not printed before.
    pub(super) fn abandon(self) {
        if !self.is_here() {
            drop(self.finish());
            return;
        }
        let tally = Arc::clone(&self.tally);
        let report = self.finish();
        let said = nvtx::problem();
        let is_said = |note: &&String| said.as_ref() == Some(note) || tally.has_warned(note);
        report.notes.iter().filter(|note| !is_said(note)).for_each(stderr::line);
    }

    /// Stops, waits for the collector within the time limit, and returns the report.
    pub(super) fn finish(mut self) -> Report {
        if !self.is_here() {
            // State shared with the collector may stay locked forever in a forked process, and the files are the parent's.
            std::mem::forget(self);
            let note = "this process was forked from one that records, and its own zones are in no trace; start a session in this process";
            return Report { notes: vec![note.to_owned()], ..Report::default() };
        }
        let _inside = Inside::enter();
        let (begin, timeout) = (Instant::now(), lock(&self.config).finish_timeout);
        let (mut report, is_written) = self.engine.finish();
        if is_written {
            let moved: Vec<_> = written::moved(&self.written, &report.sinks).collect();
            moved.iter().for_each(|note| self.warn(note.clone()));
            report.notes.extend(moved);
        }
        warn::of_failed_sinks(&report);
        for file in std::mem::take(&mut self.reports) {
            let within = timeout.saturating_sub(begin.elapsed()).max(GRACE);
            // Where sinks hang, the file system may not answer.
            let outcome = match is_written {
                true => file.write(&report, within),
                false => Err(file.is_not_written("the sinks did not end in time")),
            };
            match outcome {
                Ok(written) => self.written.push(written),
                Err(note) => {
                    self.warn(note.clone());
                    report.notes.push(note);
                }
            }
        }
        let (summary, quiet) = {
            let config = lock(&self.config);
            (config.summary, config.quiet)
        };
        if summary {
            report.print();
            report.is_printed = true;
        }
        if is_written && !quiet {
            written::say(&self.written, &report);
        }
        report
    }
}
