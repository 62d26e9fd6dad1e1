//! What a session says and does of rotation and of its flight recorder: the builder's settings, and `dump`.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::Arc;
use std::time::Duration;

use super::config::{Config, FlightSettings};
use super::error::Error;
use super::on::{Session, SessionBuilder};
use super::values::{check_flight, check_keep, check_rotate, check_stall};
use crate::flight::Recovered;
#[cfg(unix)]
use crate::flight::{Flight, FlightPlan};
#[cfg(unix)]
use crate::sink::{FlightSink, SessionInfo};

impl Session {
    /// Writes the last zones to a Perfetto trace, in a session with a [flight recorder](SessionBuilder::flight): those
    /// that it holds, and what is open now. It may be called at any time, on any thread. It waits for a copy of the
    /// recorder's file, and up to a second for the collector, which reads its rings first; never for a device.
    ///
    /// ```no_run
    /// let session = warpline::Session::from_env_or("flight=64MiB")?;
    /// // … the program …
    /// let found = session.dump("last.pftrace")?;
    /// println!("{} zones, and {} that are open", found.zones, found.open_zones);
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoFlight`]; [`Error::Dump`] where the trace cannot be written. Then no file is left.
    pub fn dump(&self, path: impl AsRef<Path>) -> Result<Recovered, Error> {
        let path = path.as_ref();
        #[cfg(unix)]
        if let Some(flight) = self.running.as_ref().and_then(|running| running.flight.as_ref()) {
            return flight.dump(path).map_err(|source| Error::Dump { path: path.to_owned(), source });
        }
        let _ = path;
        Err(Error::NoFlight)
    }
}

impl SessionBuilder {
    /// Writes each Perfetto trace to one file after the other, of at most `bytes` bytes each, and keeps the newest:
    /// `trace.pftrace` becomes `trace.0001.pftrace` and so on. Each file can be read alone. See [`keep`](Self::keep).
    /// `WARPLINE=rotate=256MiB`.
    pub fn rotate(mut self, bytes: u64) -> Self {
        self.config.rotate = self.checked(format_args!("rotate({bytes})"), check_rotate(bytes));
        self
    }

    /// How many files of a trace stay that is written with [`rotate`](Self::rotate), with the one that is being written;
    /// 4 by default. No file is removed that the session has not made. `WARPLINE=keep=4`.
    pub fn keep(mut self, files: usize) -> Self {
        self.config.keep = self.checked(format_args!("keep({files})"), check_keep(files));
        self
    }

    /// Keeps the last `bytes` bytes of zones in a file, whatever becomes of the program: `warpline recover` makes a trace
    /// of the file of a program that was killed, and [`Session::dump`] one of a program that runs. One is written as well
    /// when a thread panics, when a stream fails, and for [`stall`](Self::stall) and
    /// [`dump_on_sigusr2`](Self::dump_on_sigusr2). On Unix.
    ///
    /// The file lies in the working directory, as `warpline-PID.flight`, and goes when the session finishes;
    /// [`flight_at`](Self::flight_at) says another place, where it stays. `WARPLINE=flight=64MiB`.
    pub fn flight(self, bytes: u64) -> Self {
        self.flight_in(bytes, None)
    }

    /// As [`flight`](Self::flight), in this file, which stays when the session finishes. The file of an earlier session
    /// is put aside as `FILE.previous`. `WARPLINE=flight=64MiB:FILE`.
    pub fn flight_at(self, bytes: u64, path: impl AsRef<Path>) -> Self {
        self.flight_in(bytes, Some(path.as_ref().to_owned()))
    }

    fn flight_in(mut self, bytes: u64, path: Option<PathBuf>) -> Self {
        let checked = self.checked(format_args!("flight({bytes})"), check_flight(bytes));
        self.config.flight = checked.map(|bytes| FlightSettings { bytes, path });
        self
    }

    /// Writes the flight recorder out when a stream has open zones and finishes none for so long, at least 100 ms.
    /// `WARPLINE=stall=10s`.
    pub fn stall(mut self, time: Duration) -> Self {
        self.config.stall = self.checked(format_args!("stall({time:?})"), check_stall(time));
        self
    }

    /// Writes the flight recorder out when the signal SIGUSR2 comes. A handler of the program's own that was there before
    /// is called, too. `WARPLINE=dump_on=sigusr2`.
    pub fn dump_on_sigusr2(mut self) -> Self {
        self.config.dump_on_sigusr2 = true;
        self
    }

    #[cfg(unix)]
    pub(super) fn open_flight(&mut self, info: &SessionInfo) -> Result<Option<Arc<Flight>>, Error> {
        let Config { flight, stall, dump_on_sigusr2, finish_timeout, .. } = &self.config;
        let Some(FlightSettings { bytes, path }) = flight else { return Ok(None) };
        let plan = FlightPlan {
            bytes: *bytes,
            path: path.as_deref(),
            stall: *stall,
            on_signal: *dump_on_sigusr2,
            finish_timeout: *finish_timeout,
        };
        let flight = Flight::create(&plan, info).map_err(|(path, problem)| Error::Flight { path, problem })?;
        self.sinks.push(Box::new(FlightSink::new(Arc::clone(flight.ring()))));
        Ok(Some(flight))
    }
}
