//! Destinations of records: one file per UI.
//!
//! A sink never accesses a backend. Once started, it runs on the collector's thread: while it works, zones wait in their rings,
//! and when a ring is full the newest zones are dropped and counted. A slow sink therefore loses records, but never delays the
//! application.

mod batch;
pub mod held;
#[cfg(feature = "build")]
mod info;
mod memory;

use std::io;

pub use batch::Batch;
pub use memory::MemorySink;

use crate::{Report, Retention};
use warpline_core::catalog::{Level, RangeSpec, catalog};
use warpline_core::record::ThreadInfo;

/// A destination of a session's records.
///
/// ```
/// use warpline::record::ZoneRecord;
/// use warpline::sink::{Batch, Sink};
///
/// struct Slowest(i64);
///
/// impl Sink for Slowest {
///     fn write(&mut self, batch: Batch<'_>) -> std::io::Result<()> {
///         self.0 = batch.zones().iter().map(ZoneRecord::duration_ns).fold(self.0, i64::max);
///         Ok(())
///     }
/// }
/// ```
///
/// The thread that starts the session calls `name` and `start`. The collector's thread calls everything else: any number of
/// `write`, `flush` and `progress`, then `finish`, `lost` and `kept`. An error is counted, and its text is kept for the
/// [`Report`]; the session and its other sinks continue.
pub trait Sink: Send {
    /// Returns the sink's name, for errors and the [`Report`].
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// Called when the session begins.
    ///
    /// # Errors
    /// The reason why the sink cannot take records. The session then starts without it, reports the error, and counts its records
    /// as lost.
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let _ = session;
        Ok(())
    }

    /// Takes a batch of records of one kind. A sink ignores kinds that it does not use.
    ///
    /// The reason why the batch was not taken. The report counts its records as lost by this sink.
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()>;

    /// Makes all records durable: killing the process after this call loses none of them. Called about ten times a second if
    /// there are new records.
    ///
    /// # Errors
    /// The reason why the records are not durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Receives the state of the session, for sinks that show it live. Called about ten times a second, even without new records.
    ///
    /// # Errors
    /// The reason why the sink could not show it.
    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let _ = progress;
        Ok(())
    }

    /// Called when the session is over. `report` contains what was recorded and what was dropped.
    ///
    /// # Errors
    /// The reason why the sink could not complete its output.
    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let _ = report;
        Ok(())
    }

    /// Returns the number of records that the sink took but could not write. Called once, after `finish`, whose error gives the
    /// reason; these records count as lost by this sink.
    fn lost(&self) -> u64 {
        0
    }

    /// Returns the remaining output, and how much the sink removed to make room for newer records. Called once, after `finish`.
    fn kept(&self) -> Retention {
        Retention::default()
    }
}

/// The data that a sink receives when a session begins.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The begin of the session, in ns of the host's `CLOCK_BOOTTIME`.
    pub begin_ns: i64,
    /// The same instant, in ns since the Unix epoch.
    pub begin_unix_ns: i64,
    /// The process id.
    pub process_id: u32,
    /// The program's name.
    pub process_name: String,
    /// The process's rank in its job, from the launcher's environment variable (`RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`,
    /// `SLURM_PROCID`); none without one.
    pub rank: Option<u32>,
    /// The name of the machine.
    pub host: String,
    /// The identity of the machine's boot, on systems that have one (Linux): two sessions with the same one read the same
    /// `CLOCK_BOOTTIME`.
    pub boot_id: Option<String>,
    /// For tests: a hash that replaces that of the catalog.
    #[doc(hidden)]
    pub hash: Option<u64>,
    /// For tests: ranges that replace those of the catalog. The catalog then has no namespaces.
    #[doc(hidden)]
    pub ranges: Option<&'static [&'static RangeSpec]>,
    /// Whether kernels are recorded too.
    pub kernels: bool,
}

impl SessionInfo {
    /// Returns a hash of the catalog: equal for two runs of one binary. The first call in a process computes it.
    pub fn catalog_hash(&self) -> u64 {
        self.hash.unwrap_or_else(|| catalog().hash())
    }
}

/// The state of a running session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Zones that began.
    pub begun: u64,
    /// Zones that were timed and handed to the sinks.
    pub recorded: u64,
    /// Zones that were captured into CUDA graphs with their streams.
    pub captured: u64,
    /// Zones that were dropped.
    pub dropped: u64,
    /// The fill level of the fullest ring, from 0 to 1: at 1, zones of that stream are dropped.
    pub fullest_ring: f64,
}

/// A change of a running session, such as `Session::stop`.
#[derive(Clone, Debug)]
pub struct SessionChange {
    /// The time, in ns of the host's `CLOCK_BOOTTIME`.
    pub ns: i64,
    /// The change.
    pub what: Change,
    /// The thread that made the change.
    pub thread: ThreadInfo,
}

/// The kind of a [`SessionChange`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Zones that begin from now on are not recorded.
    Stopped,
    /// Zones that begin from now on are recorded again.
    Started,
    /// The filters were replaced by these.
    Filter(String),
    /// Only ranges up to this level are recorded now.
    Level(Level),
    /// Each range's zones are recorded with this probability now.
    Sample(f64),
    /// A window of a session with a budget opens: zones inside root zones that begin from now on are recorded.
    WindowOpened,
    /// The window is closed: nothing is recorded until the next one.
    WindowClosed,
    /// This many more changes came faster than they were collected; nothing else is known about them.
    More(u64),
}

/// Returns the error of a sink that gets records before it was started.
pub fn not_started() -> io::Error {
    io::Error::other("the sink has not been started; call `start` first")
}
