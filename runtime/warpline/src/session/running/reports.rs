//! The files to which a session writes its report: `summary=FILE`.
//!
//! A file is opened and locked at the start, so that a wrong path is an error before anything is recorded, and written at the end. Its ending says
//! in which format.

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::written::{Format, Written};
use crate::error::{Error, REPORT};
use warpline_core::threads;
use warpline_report::Report;
use warpline_trace::files::claim::FileClaim;

/// A file that is locked, and unchanged until the end of the session.
pub(super) struct ReportFile {
    claim: FileClaim,
    /// When it was opened: the program may change its working directory.
    written: Written,
}

impl ReportFile {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn claim(path: &Path) -> Result<ReportFile, Error> {
        let wrong = |source| Error::Create { what: REPORT, path: path.to_owned(), source };
        let claim = FileClaim::acquire(path).map_err(wrong)?;
        let written = Written::new(Format::Report, claim.path());
        Ok(ReportFile { claim, written })
    }

    /// Returns what the user must know of its name.
    pub(super) fn notice(&self) -> Option<String> {
        self.claim.notice()
    }

    /// Writes the report on a thread of its own, because the file system may not answer.
    ///
    /// # Errors
    /// What to tell the user: also if it is not written within this time.
    pub(super) fn write(self, report: &Report, within: Duration) -> Result<Written, String> {
        let ReportFile { claim, written } = self;
        let text = match claim.path().extension().and_then(|ending| ending.to_str()) {
            Some("html") => report.to_html(),
            Some("md") => report.to_markdown(),
            _ => report.to_json(),
        };
        let write = move || {
            let mut file = claim.begin()?;
            // A pipe takes only some of it at once.
            file.wait_for_reader();
            file.write_all(text.as_bytes())?;
            file.flush()
        };
        let (done, outcome) = mpsc::channel();
        let send = move || drop(done.send(write()));
        let outcome = match threads::spawn("warpline-report", send) {
            Ok(_) => outcome.recv_timeout(within).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => Ok(written),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(written.is_not_written("the file system did not answer in time"))
            }
            Err(error) => Err(written.is_not_written(&error.to_string())),
        }
    }

    /// Returns what to tell the user if it is not written.
    pub(super) fn is_not_written(&self, why: &str) -> String {
        self.written.is_not_written(why)
    }
}
