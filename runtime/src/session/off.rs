//! The session of a program that was built without feature `enable`: the same calls, and nothing behind them.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::{Ends, GraphTiming, Report};
use crate::catalog::Level;
use crate::flight::Recovered;
use crate::sink::Sink;

/// Why a session could not start. Without feature `enable` it always starts, and does nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no flight recorder to write out.
    NoFlight,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoFlight => f.write_str(
                "there is no flight recorder: this program was built without warpline's feature `enable`; build it with that",
            ),
        }
    }
}

impl std::error::Error for Error {}

/// A session that records nothing: this program was built without feature `enable`.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
#[derive(Debug)]
pub struct Session(());

impl Session {
    /// As with feature `enable`; the settings are not looked at.
    ///
    /// # Errors
    /// None.
    pub fn from_env() -> Result<Session, Error> {
        Ok(Session(()))
    }

    /// As with feature `enable`; the settings are not looked at.
    ///
    /// # Errors
    /// None.
    pub fn from_env_or(settings: &str) -> Result<Session, Error> {
        let _ = settings;
        Ok(Session(()))
    }

    /// As with feature `enable`.
    pub fn builder() -> SessionBuilder {
        SessionBuilder(())
    }

    /// Always `false`.
    pub fn is_recording(&self) -> bool {
        false
    }

    /// Does nothing.
    pub fn stop(&self) {}

    /// Does nothing.
    pub fn start(&self) {}

    /// Does nothing; the patterns are not looked at.
    ///
    /// # Errors
    /// None.
    pub fn set_filter(&self, patterns: &str) -> Result<(), Error> {
        let _ = patterns;
        Ok(())
    }

    /// Does nothing.
    pub fn set_level(&self, level: Level) {
        let _ = level;
    }

    /// Does nothing; the share is not looked at.
    ///
    /// # Errors
    /// None.
    pub fn set_sample(&self, share: f64) -> Result<(), Error> {
        let _ = share;
        Ok(())
    }

    /// There is nothing to write.
    ///
    /// # Errors
    /// [`Error::NoFlight`], always.
    pub fn dump(&self, path: impl AsRef<Path>) -> Result<Recovered, Error> {
        let _ = path;
        Err(Error::NoFlight)
    }

    /// A [`Report`] that says why there is nothing in it.
    pub fn finish(self) -> Report {
        Report {
            notes: vec!["nothing was recorded: this program was built without warpline's feature `enable`".to_owned()],
            ..Report::default()
        }
    }
}

/// Takes the settings of a session and ignores them.
#[derive(Debug, Default)]
pub struct SessionBuilder(());

impl SessionBuilder {
    /// Ignored.
    ///
    /// # Errors
    /// None.
    pub fn env_or(self, settings: &str) -> Result<Self, Error> {
        let _ = settings;
        Ok(self)
    }

    /// Ignored.
    ///
    /// # Errors
    /// None.
    pub fn settings(self, line: &str) -> Result<Self, Error> {
        let _ = line;
        Ok(self)
    }

    /// Ignored.
    pub fn perfetto(self, path: impl AsRef<Path>) -> Self {
        let _ = path;
        self
    }

    /// Ignored.
    pub fn chrome(self, path: impl AsRef<Path>) -> Self {
        let _ = path;
        self
    }

    /// Ignored.
    pub fn rotate(self, bytes: u64) -> Self {
        let _ = bytes;
        self
    }

    /// Ignored.
    pub fn keep(self, files: usize) -> Self {
        let _ = files;
        self
    }

    /// Ignored.
    pub fn flight(self, bytes: u64) -> Self {
        let _ = bytes;
        self
    }

    /// Ignored.
    pub fn flight_at(self, bytes: u64, path: impl AsRef<Path>) -> Self {
        let _ = (bytes, path);
        self
    }

    /// Ignored.
    pub fn stall(self, time: Duration) -> Self {
        let _ = time;
        self
    }

    /// Ignored.
    pub fn dump_on_sigusr2(self) -> Self {
        self
    }

    /// Ignored.
    pub fn tracy(self) -> Self {
        self
    }

    /// Ignored.
    pub fn summary(self) -> Self {
        self
    }

    /// Ignored.
    pub fn log(self) -> Self {
        self
    }

    /// Ignored.
    pub fn level(self, level: Level) -> Self {
        let _ = level;
        self
    }

    /// Ignored.
    pub fn filter(self, pattern: &str) -> Self {
        let _ = pattern;
        self
    }

    /// Ignored.
    pub fn ring(self, zones: usize) -> Self {
        let _ = zones;
        self
    }

    /// Ignored.
    pub fn ends(self, ends: Ends) -> Self {
        let _ = ends;
        self
    }

    /// Ignored.
    pub fn event_budget(self, events: usize) -> Self {
        let _ = events;
        self
    }

    /// Ignored.
    pub fn budget(self, share: f64) -> Self {
        let _ = share;
        self
    }

    /// Ignored.
    pub fn sample(self, share: f64) -> Self {
        let _ = share;
        self
    }

    /// Ignored.
    pub fn calibrate(self) -> Self {
        self
    }

    /// Ignored.
    pub fn graph_timing(self, timing: GraphTiming) -> Self {
        let _ = timing;
        self
    }

    /// Ignored.
    pub fn kernels(self, record: bool) -> Self {
        let _ = record;
        self
    }

    /// Ignored.
    pub fn nvtx(self, mirror: bool) -> Self {
        let _ = mirror;
        self
    }

    /// Ignored.
    pub fn control(self) -> Self {
        self
    }

    /// Ignored.
    pub fn finish_timeout(self, timeout: Duration) -> Self {
        let _ = timeout;
        self
    }

    /// Ignored.
    pub fn sink(self, sink: impl Sink + 'static) -> Self {
        let _ = sink;
        self
    }

    /// A session that records nothing.
    ///
    /// # Errors
    /// None.
    pub fn start(self) -> Result<Session, Error> {
        Ok(Session(()))
    }
}
