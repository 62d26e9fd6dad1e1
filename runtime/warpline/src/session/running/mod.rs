//! A session that records: its engine, and the files that it writes.
//!
//! `start` creates it from the settings. `hints` explains an empty session, `warn` reports likely mistakes, `written` has the files that a
//! session leaves, and `reports` those with its report.
//!
//! The handle ([`Session`](super::Session)) calls it, on any thread and in the middle of zones. Nothing here waits for a zone or a
//! device; the end waits for the collector, up to the configured timeout.

mod hints;
mod reports;
mod start;
mod warn;
mod written;

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use reports::ReportFile;
use written::Written;

use crate::collector::engine::{Engine, GRACE};
use crate::error::Error;
use crate::exit;
use crate::mirror::nvtx;
use crate::settings::values::Console;
use warpline_core::file_name;
use warpline_core::lock::lock;
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_core::stderr;
use warpline_report::Report;

pub(super) use crate::control::Listening;
pub(super) use start::begin;

/// The state of a session from its start to its end, also while it is stopped. The handle shares it with `exit`.
#[derive(Clone)]
pub(super) struct Running {
    engine: Arc<Engine>,
    /// None when the session is finished. Code that finishes it holds the lock.
    files: Arc<Mutex<Option<Files>>>,
}

/// The files of a session.
struct Files {
    /// Those that the session writes, except those of a rotated trace.
    written: Vec<Written>,
    /// Those to which the report is written at the end.
    reports: Vec<ReportFile>,
}

/// The note in the report of a session that was finished before, because the program was ending.
const FINISHED: &str = "the session was finished when the program began to end";

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
    fn new(engine: Arc<Engine>, files: Files) -> Running {
        Running { engine, files: Arc::new(Mutex::new(Some(files))) }
    }

    /// Writes the flight recorder's zones to a trace.
    pub(super) fn dump(&self, path: &Path) -> Result<Recovered, Error> {
        let flight = self.flight.as_ref().ok_or(Error::NoFlight)?;
        let no_name = |problem| RecoverError::Write(io::Error::new(io::ErrorKind::InvalidInput, problem));
        let dump = || flight.dump(&file_name::expand(path).map_err(no_name)?);
        dump().map_err(|source| Error::Dump { path: path.to_owned(), source })
    }

    /// Finishes, and prints the notes of the report that were not printed before.
    pub(super) fn abandon(self) {
        if !self.is_here() {
            drop(self.finish());
            return;
        }
        let stats = Arc::clone(&self.stats);
        let report = self.end(true);
        let said = nvtx::problem();
        let is_said = |note: &&String| said.as_ref() == Some(note) || stats.has_warned(note);
        report.notes.iter().filter(|note| !is_said(note) && *note != FINISHED).for_each(stderr::line);
    }

    /// Finishes at the end of the program, on the thread that ends it.
    pub(super) fn finish_at_exit(&self) {
        if self.is_on_collector() {
            return stderr::line("the session is not finished: a sink of the program ended the program");
        }
        self.clone().abandon();
    }

    /// Stops, waits for the collector within the time limit, and returns the report.
    pub(super) fn finish(self) -> Report {
        self.end(false)
    }

    fn end(self, is_dropped: bool) -> Report {
        if !self.is_here() {
            // State shared with the collector may stay locked forever in a forked process, and the files are the parent's.
            std::mem::forget(self);
            let note = "this process was forked from one that records, and its own zones are in no trace; start a session in this process";
            return Report { notes: vec![note.to_owned()], ..Report::default() };
        }
        let mut unfinished = lock(&self.files);
        let Some(mut files) = unfinished.take() else {
            return Report { notes: vec![FINISHED.to_owned()], ..Report::default() };
        };
        let (begin, timeout) = (Instant::now(), lock(&self.config).finish_timeout);
        let (mut report, is_written) = self.engine.finish();
        // A program with sinks alone reads its records itself.
        let is_for_user = lock(&self.config).has_output();
        if let Some(note) = is_for_user.then(|| hints::of_no_zones(&report, is_dropped)).flatten() {
            self.warn(note.clone());
            report.notes.push(note);
        }
        if is_written {
            let moved: Vec<_> = written::moved(&files.written, &report.sinks).collect();
            moved.iter().for_each(|note| self.warn(note.clone()));
            report.notes.extend(moved);
        }
        warn::of_failed_sinks(&report);
        for file in std::mem::take(&mut files.reports) {
            let within = timeout.saturating_sub(begin.elapsed()).max(GRACE);
            // Where sinks hang, the file system may not answer.
            let outcome = match is_written {
                true => file.write(&report, within),
                false => Err(file.is_not_written("the sinks did not end in time")),
            };
            match outcome {
                Ok(written) => files.written.push(written),
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
        match summary {
            Some(Console::Output) => report.print(),
            Some(Console::Error) => stderr::report(&report),
            None => {}
        }
        report.is_printed = summary.is_some();
        if is_written && !quiet {
            written::say(&files.written, &report);
        }
        exit::forget(self.epoch());
        report
    }
}
