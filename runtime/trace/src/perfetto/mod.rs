//! The sink for Perfetto (<https://ui.perfetto.dev>): a trace that is written as it goes.
//!
//! `file` gets packets to the operating system. `trace` is a trace while it is written, and `tables` is what all kinds of records share
//! in it; `zones`, `spans`, `kernels`, `replays` and `waits` turn records into slices with `annotations`. `category` says what each slice
//! is, `rows` finds its track, `track` keeps lanes, `facts` writes what the trace says of itself, `intern` numbers what repeats, `proto`
//! knows the wire format. Nothing here moves a timestamp, leaves a slice open or leaves a zone out.
//!
//! ```text
//! process
//! ├─ device group              one a device
//! │  └─ stream                 its zones, each with its fields, and its waits and signals; overlapping ones on further lanes of the same row
//! │     ├─ lane                the zones of ranges with a lane of their own
//! │     ├─ kernels             kernels and copies, where the session records them
//! │     └─ replays             launches of CUDA graphs, and the zones that were captured into them
//! │        └─ lane             those of ranges with a lane of their own, and of groups
//! ├─ thread                    launches, host zones, spans, waits and signals; a flow leads from each launch to its zone,
//! │                            and from each signal to the wait that it ended
//! ├─ queues                    how much each holds
//! └─ warpline                  the session: catalog hash, counts of zones begun, recorded and dropped, clock figures
//! ```
//!
//! A zone's slice carries its fields as typed annotations, its label, error and status, and its range's `description`; a
//! launch carries the source location, because it is the line that launched. Perfetto has no place for a slice's color:
//! its UI colors by name, and a range's color is left to sinks that can show it.

mod annotations;
mod category;
mod file;
mod intern;
mod kernels;
#[cfg(unix)]
pub mod open;
mod pieces;
pub mod proto;
mod replays;
mod rotate;
mod rows;
#[cfg(unix)]
mod segments;
mod session_facts;
mod spans;
mod tables;
mod trace;
mod track;
mod waits;
mod zones;

#[cfg(test)]
mod decode;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::Arc;

use crate::create::create;
use crate::files::own::OwnFile;
#[cfg(unix)]
use crate::flight::file::RingFile;
use warpline_core::report::{Report, Retention};
use warpline_core::sink::{Batch, Progress, SessionInfo, Sink, not_started};

use file::Output;
use pieces::{Medium, Pieces};
use rotate::Files;
use trace::Trace;

/// Writes a trace for Perfetto.
///
/// The file is complete after every flush, about ten times a second: a process that is killed leaves a trace that loads,
/// with every zone that had been flushed. Ids in it are unique across processes, so the traces of several can be put into
/// one file (`cat a.pftrace b.pftrace`), as long as their process ids differ.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct PerfettoSink {
    name: String,
    output: Output,
    trace: Option<Trace>,
}

impl PerfettoSink {
    /// Writes to a new file, or over an old one. `{pid}`, `{rank}` and `{host}` in the path stand for what they stand for in
    /// `SessionBuilder::perfetto`. A file that another trace is being written to is left
    /// alone: this one gets the process id into its name, which a line on standard error says.
    ///
    /// # Errors
    /// The file could not be created, or the path has an unknown placeholder.
    pub fn create(path: impl AsRef<Path>) -> io::Result<PerfettoSink> {
        let (path, file) = create(path.as_ref())?;
        Ok(PerfettoSink::to_file(&path, file))
    }

    /// Writes to this file, which the sink is named after.
    #[doc(hidden)]
    pub fn to_file(path: &Path, file: OwnFile) -> PerfettoSink {
        PerfettoSink { name: format!("perfetto={}", path.display()), output: Output::to_file(file), trace: None }
    }

    /// Writes to `out`, in pieces of some 64 KiB and at every flush. No buffering around it is needed.
    pub fn new(out: impl Write + Send + 'static) -> PerfettoSink {
        PerfettoSink { name: "perfetto".to_owned(), output: Output::to_writer(Box::new(out)), trace: None }
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
        trace.write(batch, &mut self.output.buffer, &mut self.output.marks);
        self.output.write_when_large();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        trace.end(report, &mut self.output.buffer);
        self.output.finish()
    }

    fn progress(&mut self, _: &Progress) -> io::Result<()> {
        self.output.look()
    }

    /// What a full disk did not take, or somebody has removed.
    fn lost(&self) -> u64 {
        self.output.lost()
    }
}

/// Writes a Perfetto trace in pieces, each of which can be read alone.
pub struct PieceSink<M> {
    name: String,
    /// What the pieces are named after.
    path: PathBuf,
    pieces: Pieces<M>,
}

/// Writes a Perfetto trace to one file after the other, and keeps the last ones.
pub type RotatingSink = PieceSink<Files>;

impl RotatingSink {
    /// Makes the first file. Each has at most `limit` bytes, and the newest `keep` of them stay.
    ///
    /// # Errors
    /// The file could not be made.
    pub fn create(path: &Path, limit: u64, keep: usize) -> io::Result<RotatingSink> {
        let (files, path) = Files::create(path, limit, keep)?;
        let name = format!("perfetto={}", path.display());
        Ok(PieceSink { name, path, pieces: Pieces::new(files) })
    }

    /// The path that its files are named after.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes a Perfetto trace into the ring of a flight recorder.
#[cfg(unix)]
pub type FlightSink = PieceSink<segments::Segments>;

#[cfg(unix)]
impl FlightSink {
    pub fn new(ring: Arc<RingFile>) -> FlightSink {
        PieceSink {
            name: "flight".to_owned(),
            path: ring.path.clone(),
            pieces: Pieces::new(segments::Segments::new(ring)),
        }
    }
}

impl<M: Medium + Send> Sink for PieceSink<M> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.pieces.start(session)
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.pieces.batch(batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pieces.flush()
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.pieces.progress(progress)
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.pieces.finish(report)
    }

    fn lost(&self) -> u64 {
        self.pieces.lost()
    }

    fn kept(&self) -> Retention {
        self.pieces.kept()
    }
}
