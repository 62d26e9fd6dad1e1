//! The sink for readers of Chrome's JSON trace format: `chrome://tracing`, TensorBoard-style tools, pandas.
//!
//! `trace` turns records into events; `kernels`, `replays`, `waits`, `syncs` and `memory` do so for kernels, graphs, timelines,
//! synchronisations and device memory. `rows` finds the
//! row of each slice, `colors` its color, `json` writes values, and `document` is the file. Launches, host zones and spans are below the process, and
//! zones are below their device, as in the traces of PyTorch's profiler. This module never changes a time and never omits a zone.

mod colors;
mod document;
mod json;
mod kernels;
mod memory;
mod replays;
mod rows;
mod syncs;
mod trace;
mod waits;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;

use crate::files::own::OwnFile;
use crate::write::create::create;
use crate::write::order::Order;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

use document::Document;
use trace::Trace;

/// The buffer size at which events are written without a flush.
const LARGE: usize = 256 << 10;

/// Writes a trace in Chrome's JSON format.
///
/// Until the session is finished, the file is a JSON array without its closing bracket, and only grows, about ten times a second. A
/// killed process leaves such a file, with every zone that had been flushed; Perfetto and `chrome://tracing` read it, and
/// `warpline recover` makes a JSON document from it. A finished file is a document, an object with `traceEvents`. A pipe gets an
/// array of events and nothing else. A slice has the reserved
/// color of the format that is nearest to its range's color. The catalog, with all descriptions, is in `otherData` of a document.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct ChromeSink {
    name: String,
    document: Document,
    trace: Option<Trace>,
    order: Order,
}

impl ChromeSink {
    /// Creates a sink that writes to a new file or overwrites an existing one. `{pid}`, `{rank}` and `{host}` in the path have the
    /// same meaning as in `SessionBuilder::chrome`. A file to which another trace is being written is left alone: the new file's
    /// name then contains the process id, and a line on standard error reports this.
    ///
    /// # Errors
    /// The file could not be created, or the path has an unknown placeholder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<ChromeSink> {
        let (path, file) = create(path.as_ref())?;
        Ok(ChromeSink::to_file(&path, file))
    }

    /// Creates a sink that writes to this file and is named after the path.
    #[doc(hidden)]
    pub fn to_file(path: &Path, file: OwnFile) -> ChromeSink {
        let document = Document::new(file);
        ChromeSink { name: format!("chrome={}", path.display()), document, trace: None, order: Order::default() }
    }
}

impl fmt::Debug for ChromeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChromeSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Sink for ChromeSink {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.document.begin()?;
        self.trace = Some(Trace::begin(session, &mut self.document.events)?);
        self.document.write()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        self.document.make_room()?;
        let Document { events, marks, .. } = &mut self.document;
        self.order.each(batch, |record| {
            trace.record(record, events)?;
            if record.is_counted() {
                marks.end_record(events.len());
            }
            Ok(())
        })?;
        if self.document.events.len() >= LARGE {
            // The batch is safe in memory. If the disk refuses it, the next flush meets the error again.
            let _ = self.document.write();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.document.write()
    }

    /// Writes the progress, so that the trace of a killed process contains this much of its account.
    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.document.check_again()?;
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        // Counts that do not fit are written with the next batch.
        if self.document.make_room().is_ok() && trace.drops(progress.dropped, &mut self.document.events)? {
            self.document.write()?;
        }
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(trace) = &self.trace else { return Err(not_started()) };
        self.document.finish(&trace.end(report))
    }

    /// Returns the number of records that a full disk did not take or that were removed.
    fn lost(&self) -> u64 {
        self.document.lost()
    }
}
