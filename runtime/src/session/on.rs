//! The session of a program that was built with feature `enable`: the handle that an application holds.
//!
//! It has what the twin in `off` has, method for method. What is behind it is in `running`, and how it comes to be in `builder`
//! and `start`.

use std::fmt;
#[cfg(unix)]
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::builder::SessionBuilder;
use super::config::Config;
use super::error::{ConfigError, Error};
use super::filter::Filter;
use super::running::Running;
use super::values::check_sample;
use super::{Report, warn};
use crate::catalog::Level;
#[cfg(target_os = "linux")]
use crate::control;
#[cfg(unix)]
use crate::files::name;
#[cfg(unix)]
use crate::flight::RecoverError;
use crate::flight::Recovered;
use crate::nvtx;
use crate::sink::Change;
use crate::tell::tell;

/// A session: it records from its start until [`finish`](Self::finish), or until it is dropped; between the two it can stop
/// and start again as often as one likes, and change what it records.
///
/// There is one at a time in a process. `Send` and `Sync`; zones of all threads belong to it, and any thread may call its
/// methods, also in the middle of zones: none of them waits for a zone or a device. Dropping it finishes it and throws the
/// report away, except for what a user must know, which goes to standard error.
///
/// A process that was forked from the one that started the session has no part in it: there nothing is recorded, the methods do
/// nothing, the report of `finish` says so, and files and sockets stay the parent's. It may start a session of its own, before or
/// after it drops this one. What the CUDA driver needs does not survive a fork: a child times zones on CUDA streams only where
/// its parent did not use CUDA.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
pub struct Session {
    /// None when the settings said `off`, or when the session is over.
    pub(super) running: Option<Running>,
    /// As long as it is there, the process can be asked from outside.
    #[cfg(target_os = "linux")]
    pub(super) listening: Option<control::Listening>,
}

impl Session {
    /// Starts what the environment variable `WARPLINE` says; nothing when it is not set, empty, or `off`.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn from_env() -> Result<Session, Error> {
        Session::from_env_or("off")
    }

    /// Starts what the environment variable `WARPLINE` says, and what `settings` say when it is not set.
    ///
    /// ```
    /// let session = warpline::Session::from_env_or("summary,level=coarse")?;
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn from_env_or(settings: &str) -> Result<Session, Error> {
        Session::builder().env_or(settings)?.start()
    }

    /// A session whose settings the program says itself.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Whether zones that begin now are recorded.
    pub fn is_recording(&self) -> bool {
        self.running().is_some_and(Running::is_on)
    }

    /// None also in a process that was forked from the one that records.
    pub(super) fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.process.is_this())
    }

    /// Records no zone that begins from now on. Zones that are open are still recorded when they end, until `finish`; when
    /// the last of them is through its stream, the session asks nothing of any device until it starts again or finishes.
    /// Stopping one that is stopped changes nothing.
    pub fn stop(&self) {
        if let Some(running) = self.running() {
            running.stop();
        }
    }

    /// Records again after [`stop`](Self::stop), to the same sinks and files. A zone that began in between stays unrecorded,
    /// and is not among those that the report calls begun. Starting one that records changes nothing.
    ///
    /// ```
    /// let session = warpline::Session::from_env_or("summary")?;
    /// for epoch in 0..100 {
    ///     if epoch % 10 == 0 { session.start() } else { session.stop() }
    ///     // … train …
    /// }
    /// session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    pub fn start(&self) {
        if let Some(running) = self.running() {
            running.start();
        }
    }

    /// Replaces the filters: patterns as [`SessionBuilder::filter`] takes them, joined by commas (`demo.*,!demo.mlp`); an
    /// empty text lets every name through. It holds for zones that begin from now on, and costs them nothing.
    ///
    /// # Errors
    /// [`Error::Config`] for what is no pattern; then nothing is changed.
    pub fn set_filter(&self, patterns: &str) -> Result<(), Error> {
        let filters = Filter::parse_all(patterns).map_err(Error::of_program)?;
        warn::unmatched(&filters).into_iter().for_each(|text| self.warn(text));
        self.narrow(filters);
        Ok(())
    }

    /// Leaves out ranges that are finer than this, from now on.
    pub fn set_level(&self, level: Level) {
        self.change(Change::Level(level), |config| config.level = level);
    }

    /// Records this share of each range's zones from now on, above 0 and up to 1: see [`SessionBuilder::sample`].
    ///
    /// # Errors
    /// [`Error::Config`] for what is no share; then nothing is changed.
    pub fn set_sample(&self, share: f64) -> Result<(), Error> {
        check_sample(share)
            .map_err(|problem| Error::of_program(ConfigError::new(format!("sample({share})"), problem)))?;
        self.change(Change::Sample(share), |config| config.sample = share);
        Ok(())
    }

    /// Writes the last zones to a Perfetto trace, in a session with a [flight recorder](SessionBuilder::flight): those
    /// that it holds, and what is open now. It may be called at any time, on any thread. It waits for a copy of the
    /// recorder's file, and up to a second for the collector, which reads its rings first; never for a device. The path may
    /// have the placeholders of [`SessionBuilder::perfetto`].
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
        if let Some(flight) = self.running().and_then(|running| running.flight.as_ref()) {
            let no_name = |problem| RecoverError::Write(io::Error::new(io::ErrorKind::InvalidInput, problem));
            let dump = || flight.dump(&name::expand(path).map_err(no_name)?);
            return dump().map_err(|source| Error::Dump { path: path.to_owned(), source });
        }
        let _ = path;
        Err(Error::NoFlight)
    }

    /// Stops, waits until everything that ended is recorded (at most the time limit, 5 s by default), completes the
    /// sinks, and says what was recorded and what was dropped.
    ///
    /// It never waits for zones that are still open. With `summary` set, it prints the report.
    pub fn finish(mut self) -> Report {
        self.running.take().map(Running::finish).unwrap_or_default()
    }

    /// As [`set_filter`](Self::set_filter), with patterns that were read before.
    pub(crate) fn narrow(&self, filters: Vec<Filter>) {
        let said = filters.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        self.change(Change::Filter(said), |config| config.filters = filters);
    }

    fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        if let Some(running) = self.running() {
            running.change(what, change);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if !running.process.is_this() {
            drop(running.finish());
            return;
        }
        let tally = Arc::clone(&running.tally);
        let report = running.finish();
        let said = nvtx::problem();
        let is_said = |note: &&String| said.as_ref() == Some(note) || tally.has_warned(note);
        report.notes.iter().filter(|note| !is_said(note)).for_each(tell);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("recording", &self.is_recording()).finish_non_exhaustive()
    }
}
