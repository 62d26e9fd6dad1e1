//! The sink for Perfetto (<https://ui.perfetto.dev>), which writes a trace while the session runs.
//!
//! `file` passes packets to the operating system. `trace` is a trace while it is written. `tables` has the state that all kinds of records
//! share in it, and finds their tracks; `zones`, `spans`, `kernels`, `replays`, `steps`, `waits` and `syncs` turn records into slices with
//! `annotations`, and `memory` into counters.
//! `category` has the categories of slices, `track` keeps lanes, `session_facts` writes the facts about the session, `catalog` its ranges,
//! `intern` numbers repeated items, and `proto` has the wire format. This module never changes a timestamp, leaves a slice open or omits a
//! zone.
//!
//! ```text
//! process
//! ├─ device group              one per device
//! │  └─ stream                 its zones with their fields, its waits and signals; overlapping zones on further lanes of the row
//! │     ├─ lane                the zones of ranges with their own lane
//! │     ├─ kernels             kernels and copies, where the session records them
//! │     └─ replays             launches of CUDA graphs, and the zones that were captured into them
//! │        └─ lane             zones of ranges with their own lane, and of groups
//! ├─ thread                    launches, host zones, spans, waits and signals; a flow leads from each launch to its zone,
//! │                            and from each signal to the wait that it ended
//! ├─ steps                     the steps of the program
//! ├─ queues                    the depth of each queue
//! ├─ memory                    the bytes of each device, and of those who hold them
//! └─ warpline                  the session: catalog hash, counts of zones begun, recorded and dropped, clock figures; the catalog
//! ```
//!
//! A zone's slice has its fields as typed annotations, its label, error and status, and its range's `description`. A launch has the
//! source location, because that is the line that launched. Perfetto has no place for a slice's color: its UI colors by name, and
//! only other sinks can show a range's color.

mod absolute;
mod annotations;
mod catalog;
mod category;
mod counters;
mod file;
mod intern;
mod kernels;
mod memory;
pub mod open;
mod pieces;
pub mod proto;
mod replays;
mod rotate;
#[cfg(unix)]
mod segments;
mod session_facts;
mod spans;
mod steps;
mod syncs;
mod tables;
mod trace;
mod track;
mod waits;
mod zones;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;

use crate::files::own::OwnFile;
use crate::write::catalog::MOST;
use crate::write::create::create;
use crate::write::order::Order;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

use file::Output;
pub use pieces::PieceSink;
use rotate::Files;
#[cfg(unix)]
pub use segments::FlightSink;
use trace::Trace;

/// Writes a trace for Perfetto.
///
/// The file is complete after every flush, about ten times a second: a killed process leaves a trace that loads, with every zone
/// that had been flushed. Its ids are unique across processes, so Perfetto opens the traces of several processes of one host as one if
/// they are in an archive (`tar`) and their process ids differ.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct PerfettoSink {
    name: String,
    output: Output,
    trace: Option<Trace>,
    order: Order,
    /// Whether the catalog is not written yet. The thread that starts the session does not wait for it.
    is_catalog_due: bool,
}

impl PerfettoSink {
    /// Creates a sink that writes to a new file or overwrites an existing one. `{pid}`, `{rank}` and `{host}` in the path have the
    /// same meaning as in `SessionBuilder::perfetto`. A file to which another trace is being written is left alone: the new file's
    /// name then contains the process id, and a line on standard error reports this.
    ///
    /// # Errors
    /// The file could not be created, or the path has an unknown placeholder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<PerfettoSink> {
        let (path, file) = create(path.as_ref())?;
        Ok(PerfettoSink::to_file(&path, file))
    }

    /// Creates a sink that writes to this file and is named after the path.
    #[doc(hidden)]
    pub fn to_file(path: &Path, file: OwnFile) -> PerfettoSink {
        PerfettoSink::with(format!("perfetto={}", path.display()), Output::to_file(file))
    }

    fn with(name: String, output: Output) -> PerfettoSink {
        PerfettoSink { name, output, trace: None, order: Order::default(), is_catalog_due: true }
    }

    /// Writes the catalog, unless it is written. Returns whether it was.
    fn write_catalog(&mut self) -> bool {
        let Some(trace) = self.trace.as_ref().filter(|_| self.is_catalog_due) else { return false };
        trace.catalog(MOST, &mut self.output.buffer);
        self.is_catalog_due = false;
        true
    }

    /// Creates a sink that writes to `out`, in chunks of about 64 KiB and at every flush. `out` needs no buffering.
    pub fn new(out: impl Write + Send + 'static) -> PerfettoSink {
        PerfettoSink::with("perfetto".to_owned(), Output::to_writer(Box::new(out)))
    }
}

impl std::fmt::Debug for PerfettoSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerfettoSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Sink for PerfettoSink {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.trace = Some(Trace::begin(session, &mut self.output.buffer));
        self.output.flush()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        self.output.make_room()?;
        let Output { buffer, marks, .. } = &mut self.output;
        self.order.each(batch, |record| {
            trace.record(record, buffer);
            if record.is_counted() {
                marks.end_record(buffer.len());
            }
            Ok(())
        })?;
        // Comes after the first records: if the disk has little room, they are worth more.
        self.write_catalog();
        self.output.write_when_large();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.write_catalog();
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        trace.end(report, &mut self.output.buffer);
        self.output.finish()
    }

    fn progress(&mut self, _: &Progress) -> io::Result<()> {
        self.output.check()?;
        if self.write_catalog() { self.output.flush() } else { Ok(()) }
    }

    /// Returns the number of records that a full disk did not take or that were removed.
    fn lost(&self) -> u64 {
        self.output.lost()
    }
}

/// Writes a Perfetto trace to a series of files and keeps the newest.
pub type RotatingSink = PieceSink<Files>;

impl RotatingSink {
    /// Creates the first file. Each file has at most `limit` bytes, and the newest `keep` files are kept.
    ///
    /// # Errors
    /// The file could not be created.
    pub fn create(path: &Path, limit: u64, keep: usize) -> io::Result<RotatingSink> {
        let (files, path) = Files::create(path, limit, keep)?;
        let name = format!("perfetto={}", path.display());
        Ok(PieceSink::to(files, name, path))
    }

    /// Returns the path after which the sink's files are named.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
