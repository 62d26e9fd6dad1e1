//! The sink for readers of Chrome's JSON trace format: `chrome://tracing`, TensorBoard-style tools, pandas.
//!
//! `trace` turns records into events, with `kernels`, `replays` and `waits` for those of kernels, graphs and timelines. `rows` finds the
//! row of each slice, `json` writes values, `document` is the file. Launches, host zones and spans stand under the process, zones under their
//! device, as PyTorch's profiler lays its traces out. Nothing here moves a time or leaves a zone out.

mod document;
mod json;
mod kernels;
mod replays;
mod rows;
mod trace;
mod waits;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;

use crate::create::create;
use crate::files::own::OwnFile;
use crate::order::Order;
use warpline_core::report::Report;
use warpline_core::sink::{Batch, Progress, SessionInfo, Sink, not_started};

use document::Document;
use trace::Trace;

/// Written without being asked.
const LARGE: usize = 256 << 10;

/// Writes a trace in Chrome's JSON format.
///
/// Until the session is finished, the file is a JSON array without its closing bracket, and is only appended to, about ten times a
/// second. A process that is killed leaves such a file, with every zone that had been flushed; Perfetto and `chrome://tracing` read
/// it, and `warpline recover` makes a JSON document of it. A finished file is a document, an object with `traceEvents`. A pipe
/// gets an array of events and nothing else. A range's color and description are not in it; the format has no place for them.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct ChromeSink {
    name: String,
    document: Document,
    trace: Option<Trace>,
    order: Order,
}

impl ChromeSink {
    /// Writes to a new file, or over an old one. `{pid}`, `{rank}` and `{host}` in the path stand for what they stand for in
    /// `SessionBuilder::chrome`. A file that another trace is being written to is left alone:
    /// this one gets the process id into its name, which a line on standard error says.
    ///
    /// # Errors
    /// The file could not be created, or the path has an unknown placeholder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<ChromeSink> {
        let (path, file) = create(path.as_ref())?;
        Ok(ChromeSink::to_file(&path, file))
    }

    /// Writes to this file, which the sink is named after.
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
            // The batch is safe in memory; if the disk refuses it, the next flush meets the error again.
            let _ = self.document.write();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.document.write()
    }

    /// A process that is killed leaves this of its account.
    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.document.look_again()?;
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        // What has no room is said with the next batch.
        if self.document.make_room().is_ok() && trace.drops(progress.dropped, &mut self.document.events)? {
            self.document.write()?;
        }
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(trace) = &self.trace else { return Err(not_started()) };
        self.document.finish(&trace.end(report))
    }

    /// What a full disk did not take, or was removed.
    fn lost(&self) -> u64 {
        self.document.lost()
    }
}
