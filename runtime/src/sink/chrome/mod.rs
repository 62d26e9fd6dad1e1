//! The sink for readers of Chrome's JSON trace format: `chrome://tracing`, TensorBoard-style tools, pandas.
//!
//! `trace` turns records into events and keeps rows and lanes, `kernels`, `replays` and `waits` those of kernels, graphs and timelines, `json` writes values. Launches, host zones and spans stand
//! under the process, zones under their device, as PyTorch's profiler lays its traces out. The file is a whole JSON document after
//! every flush. Nothing here moves a time or leaves a zone out.

mod json;
mod kernels;
mod replays;
mod trace;
mod waits;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::written::{Marks, write_counted};
use super::{Progress, SessionChange, SessionInfo, Sink};
use crate::files::own::OwnFile;
use crate::kernel::KernelRecord;
use crate::record::{SpanRecord, ZoneRecord};
use crate::replay::ReplayRecord;
use crate::session::Report;
use crate::wait::{QueueDepth, WaitRecord};

use trace::Trace;

/// Written without being asked.
const LARGE: usize = 256 << 10;

/// Takes no more while so much waits for a disk that refuses it.
const FULL: usize = 16 << 20;

/// Closes the document until there is more.
const OPEN_END: &str = "\n]}\n";

/// Writes a trace in Chrome's JSON format.
///
/// The file is a whole JSON document after every flush, about ten times a second: a process that is killed leaves one with
/// every zone that had been flushed. A range's color and description are not in it; the format has no place for them.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct ChromeSink {
    name: String,
    document: Document,
    trace: Option<Trace>,
}

impl ChromeSink {
    /// Writes to a new file, or over an old one. `{pid}`, `{rank}` and `{host}` in the path stand for what they stand for in
    /// [`SessionBuilder::chrome`](crate::SessionBuilder::chrome). A file that another trace is being written to is left alone:
    /// this one gets the process id into its name, which a line on standard error says.
    ///
    /// # Errors
    /// The file could not be created, or the path has an unknown placeholder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<ChromeSink> {
        let (path, file) = super::create(path.as_ref())?;
        Ok(ChromeSink::to_file(&path, file))
    }

    /// Writes to this file, which the sink is named after.
    pub(crate) fn to_file(path: &Path, file: OwnFile) -> ChromeSink {
        let document = Document {
            file,
            written: 0,
            closed: 0,
            head: 0,
            waiting: Vec::new(),
            marks: Marks::default(),
            end: OPEN_END.to_owned(),
        };
        ChromeSink { name: format!("chrome={}", path.display()), document, trace: None }
    }

    /// Takes a batch.
    fn take(&mut self, write: impl FnOnce(&mut Trace, &mut Vec<u8>, &mut Marks) -> io::Result<()>) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(super::not_started()) };
        self.document.file.look()?;
        if self.document.waiting.len() >= FULL {
            self.document.write()?;
        }
        write(trace, &mut self.document.waiting, &mut self.document.marks)?;
        if self.document.waiting.len() >= LARGE {
            // The batch is safe in memory; if the disk refuses it, the next flush meets the error again.
            let _ = self.document.write();
        }
        Ok(())
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
        self.trace = Some(Trace::begin(session, &mut self.document.waiting)?);
        self.document.head = self.document.waiting.len();
        self.document.write()
    }

    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.zones(batch, out, marks))
    }

    fn spans(&mut self, batch: &[SpanRecord]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.spans(batch, out, marks))
    }

    fn kernels(&mut self, batch: &[KernelRecord]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.kernels(batch, out, marks))
    }

    fn replays(&mut self, batch: &[ReplayRecord]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.replays(batch, out, marks))
    }

    fn changes(&mut self, batch: &[SessionChange]) -> io::Result<()> {
        self.take(|trace, out, _| batch.iter().try_for_each(|change| trace.change(change, out)))
    }

    fn waits(&mut self, batch: &[WaitRecord]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.waits(batch, out, marks))
    }

    fn depths(&mut self, batch: &[QueueDepth]) -> io::Result<()> {
        self.take(|trace, out, marks| trace.depths(batch, out, marks))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.document.write()
    }

    fn progress(&mut self, _: &Progress) -> io::Result<()> {
        self.document.file.look_again()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(trace) = &self.trace else { return Err(super::not_started()) };
        self.document.end = trace.end(report);
        self.document.write()?;
        self.document.file.look()
    }

    /// What a full disk did not take, or somebody has removed.
    fn lost(&self) -> u64 {
        self.document.marks.lost_in(&self.document.file)
    }
}

/// A document that is complete after each write, also one that a full disk cuts short.
struct Document {
    file: OwnFile,
    /// Bytes of the document that are in the file, less its end.
    written: u64,
    /// Bytes of the end that stands behind them now.
    closed: usize,
    /// Bytes of the document before its first record: without them it is none.
    head: usize,
    /// Events that are not in the file.
    waiting: Vec<u8>,
    /// Where the records in them end.
    marks: Marks,
    end: String,
}

impl Document {
    /// Writes what waits and a new end over the old end. After an error what is not in the file is still there for the next
    /// time.
    fn write(&mut self) -> io::Result<()> {
        let events = self.waiting.len();
        self.waiting.extend_from_slice(self.end.as_bytes());
        let (taken, result) = match self.file.seek(SeekFrom::Start(self.written)) {
            Ok(_) => write_counted(&mut self.file, &self.waiting),
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => {
                let text =
                    "a Chrome trace cannot be written to a pipe or a terminal; name a file, or write a Perfetto trace";
                (0, Err(io::Error::new(error.kind(), text)))
            }
            Err(error) => (0, Err(error)),
        };
        self.waiting.truncate(events);
        match result {
            Ok(()) => self.take(events, self.end.len()),
            Err(_) if taken > 0 => self.close_early(taken),
            Err(_) => {}
        }
        result
    }

    /// The disk took only so many bytes, and they stand over the old end: as many records as have room before a new one stay,
    /// in bytes that the file has already. What cannot be written now either is as it would be after a kill.
    fn close_early(&mut self, taken: usize) {
        let room = taken.max(self.closed).saturating_sub(OPEN_END.len());
        let mut keep = self.marks.whole_within(room.min(taken));
        if self.written == 0 && keep == 0 {
            if room < self.head {
                return;
            }
            keep = self.head;
        }
        let end = self.written + keep as u64;
        let closes = self.file.seek(SeekFrom::Start(end)).and_then(|_| self.file.write_all(OPEN_END.as_bytes()));
        if closes.is_ok() && self.file.set_len(end + OPEN_END.len() as u64).is_ok() {
            self.take(keep, OPEN_END.len());
        }
    }

    /// So many bytes more are in the file, and so many that close the document.
    fn take(&mut self, events: usize, closed: usize) {
        self.written += events as u64;
        self.closed = closed;
        self.waiting.drain(..events);
        self.marks.wrote(events);
    }
}
