//! Where records go: one file a UI.
//!
//! A sink never sees a backend. It runs on the collector's thread: while it works, zones wait in their rings, and when a
//! ring is full the newest zones are dropped and counted. So a slow sink costs records, never the application's time.

#[cfg(feature = "enable")]
mod chrome;
#[cfg(feature = "enable")]
mod lanes;
mod memory;
#[cfg(feature = "enable")]
mod perfetto;
#[cfg(feature = "enable")]
pub(crate) mod summary;
#[cfg(all(feature = "enable", feature = "tracy"))]
mod tracy;

#[cfg(all(test, feature = "enable"))]
mod fixture;

use std::io;

#[cfg(feature = "enable")]
pub use chrome::ChromeSink;
pub use memory::MemorySink;
#[cfg(feature = "enable")]
pub use perfetto::PerfettoSink;
#[cfg(all(feature = "enable", feature = "tracy"))]
pub use tracy::TracySink;

use crate::record::ZoneRecord;
use crate::session::Report;

/// Where a session's records go.
///
/// ```
/// use warpline::{Sink, ZoneRecord};
///
/// struct Slowest(i64);
///
/// impl Sink for Slowest {
///     fn records(&mut self, batch: &[ZoneRecord]) -> std::io::Result<()> {
///         self.0 = batch.iter().map(ZoneRecord::duration_ns).fold(self.0, i64::max);
///         Ok(())
///     }
/// }
/// ```
///
/// All methods are called on one thread, the collector's, in this order: `start`, any number of `records`, `flush` and
/// `progress`, `finish`, `lost`. An error is counted and its text kept for the [`Report`]; the session goes on, and so do its other sinks.
pub trait Sink: Send {
    /// The sink's name in errors and in the [`Report`].
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// The session begins.
    ///
    /// # Errors
    /// What keeps the sink from taking records. The session then starts without it and says so.
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let _ = session;
        Ok(())
    }

    /// Takes finished zones. A batch holds zones of one stream in the order in which the GPU ended them, or host zones.
    ///
    /// # Errors
    /// What kept the batch from being taken; its records are counted as lost by this sink.
    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()>;

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
}

/// What a sink is told when a session begins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// When the session began, in ns of the host's `CLOCK_BOOTTIME`.
    pub begin_ns: i64,
    /// The same instant, in ns since the Unix epoch.
    pub begin_unix_ns: i64,
    /// The process id.
    pub process_id: u32,
    /// The program's name.
    pub process_name: String,
    /// A hash of the catalog: equal for two runs of one binary.
    pub catalog_hash: u64,
}

/// How a session stands while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Zones that began.
    pub begun: u64,
    /// Zones that were timed and handed to the sinks.
    pub recorded: u64,
    /// Zones that began and will not be recorded.
    pub dropped: u64,
    /// How full the fullest ring is, from 0 to 1: at 1, zones of that stream are dropped.
    pub fullest_ring: f64,
}

/// Creates the file of a sink.
#[cfg(feature = "enable")]
fn create(path: &std::path::Path) -> io::Result<std::fs::File> {
    std::fs::File::create(path).map_err(|error| {
        let text =
            format!("cannot create the trace file `{}`: {error}; name a folder that can be written", path.display());
        io::Error::new(error.kind(), text)
    })
}

/// A sink was given records before it was started.
#[cfg(feature = "enable")]
fn not_started() -> io::Error {
    io::Error::other("the sink has not been started; call `start` first")
}

/// The name under which a trace shows a field. What the sinks themselves say of a zone has these names, and a field of the
/// same name stands beside it as `field.…`.
#[cfg(feature = "enable")]
fn shown(field: &'static str) -> &'static str {
    match field {
        "correlation" => "field.correlation",
        "description" => "field.description",
        "device" => "field.device",
        "error" => "field.error",
        "label" => "field.label",
        "status" => "field.status",
        "stream" => "field.stream",
        other => other,
    }
}
