//! Where records go: one file a UI.
//!
//! A sink never sees a backend. Once it has started, it runs on the collector's thread: while it works, zones wait in their
//! rings, and when a ring is full the newest zones are dropped and counted. So a slow sink costs records, never the application's
//! time.

mod batch;
pub mod held;
mod info;
mod memory;

use std::io;

pub use batch::Batch;
pub use memory::MemorySink;

use crate::catalog::{Level, catalog};
use crate::record::ThreadInfo;
use crate::report::{Report, Retention};

/// Where a session's records go.
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
/// The thread that starts the session calls `name` and `start`. Everything else is called on one thread, the collector's: any
/// number of `write`, `flush` and `progress`, then `finish`, `lost` and `kept`. An error is counted and its text kept for the
/// [`Report`]; the session and its other sinks go on.
pub trait Sink: Send {
    /// The sink's name in errors and in the [`Report`].
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// The session begins.
    ///
    /// # Errors
    /// What keeps the sink from taking records. The session then starts without it, says so, and counts its records as lost.
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let _ = session;
        Ok(())
    }

    /// Takes a batch of records of one kind. A sink ignores the kinds that it has no use for.
    ///
    /// # Errors
    /// Why the batch was not taken. The report counts its records as lost by this sink.
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()>;

    /// Makes what was taken durable: after it, killing the process loses none of it. Called about ten times a second
    /// while there is something new.
    ///
    /// # Errors
    /// What kept it from being durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// How the session stands. Called about ten times a second, whether there is something new or not: for sinks that show it
    /// live.
    ///
    /// # Errors
    /// What kept the sink from showing it.
    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let _ = progress;
        Ok(())
    }

    /// The session is over; `report` says what was recorded and what was dropped.
    ///
    /// # Errors
    /// What kept the sink from completing its output.
    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let _ = report;
        Ok(())
    }

    /// How many of the records that it took the sink could not show after all. Asked once, after `finish`, whose error says
    /// why; they count as lost by this sink.
    fn lost(&self) -> u64 {
        0
    }

    /// What is left of what the sink wrote, and how much of it made room for newer records. Asked once, after `finish`.
    fn kept(&self) -> Retention {
        Retention::default()
    }
}

/// What a sink is told when a session begins.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// When the session began, in ns of the host's `CLOCK_BOOTTIME`.
    pub begin_ns: i64,
    /// The same instant, in ns since the Unix epoch.
    pub begin_unix_ns: i64,
    /// The process id.
    pub process_id: u32,
    /// The program's name.
    pub process_name: String,
    /// The process's number in its job, as the usual launchers say it in the environment (`RANK`, `OMPI_COMM_WORLD_RANK`,
    /// `PMI_RANK`, `SLURM_PROCID`); none where none does.
    pub rank: Option<u32>,
    /// The name of the machine.
    pub host: String,
    /// The identity of the machine's boot, where the system has one (Linux): two sessions with the same one read the same
    /// `CLOCK_BOOTTIME`.
    pub boot_id: Option<String>,
    /// In tests, the hash in place of that of the catalog.
    #[doc(hidden)]
    pub hash: Option<u64>,
    /// Whether kernels are recorded, too.
    pub kernels: bool,
}

impl SessionInfo {
    /// A hash of the catalog: equal for two runs of one binary. The first call in a process computes it.
    pub fn catalog_hash(&self) -> u64 {
        self.hash.unwrap_or_else(|| catalog().hash())
    }
}

/// How a session stands while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Zones that began.
    pub begun: u64,
    /// Zones that were timed and handed to the sinks.
    pub recorded: u64,
    /// Zones that were captured into CUDA graphs with their streams.
    pub captured: u64,
    /// Zones that began and will be neither.
    pub dropped: u64,
    /// How full the fullest ring is, from 0 to 1: at 1, zones of that stream are dropped.
    pub fullest_ring: f64,
}

/// What somebody changed of a session while it ran: `Session::stop` and its likes.
#[derive(Clone, Debug)]
pub struct SessionChange {
    /// When, in ns of the host's `CLOCK_BOOTTIME`.
    pub ns: i64,
    /// What.
    pub what: Change,
    /// The thread that did it.
    pub thread: ThreadInfo,
}

/// See [`SessionChange`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Zones that begin from now on are not recorded.
    Stopped,
    /// Zones that begin from now on are recorded again.
    Started,
    /// The filters are these now.
    Filter(String),
    /// Finer ranges are left out now.
    Level(Level),
    /// This share of each range's zones is recorded now.
    Sample(f64),
    /// There were so many more changes, of which nothing else is known: they came faster than they were collected.
    More(u64),
}

/// A sink was given records before it was started.
pub fn not_started() -> io::Error {
    io::Error::other("the sink has not been started; call `start` first")
}
