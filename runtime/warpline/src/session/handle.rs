//! The handle with which an application stops, restarts, changes and finishes a session.
//!
//! Its API is the same with and without the feature `enable`, so an application compiles both ways. Its state is in `running`, which `off`
//! replaces without the feature.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

use super::{Listening, Running, why_nothing};
use crate::error::{ConfigError, Error};
use crate::settings::values::check_sample;
use crate::settings::{Config, Filter, SessionBuilder, unmatched};
use warpline_core::catalog::Level;
use warpline_core::collective::IntoCount;
use warpline_core::recovered::Recovered;
use warpline_core::stderr;
use warpline_report::sink::{Change, Sink};
use warpline_report::{Report, SinkReport};

/// A session, which records from its start until [`finish`](Self::finish) or until it is dropped. Meanwhile it can stop and start again any
/// number of times, and change what it records.
///
/// A process has one session at a time, which records the zones of all threads. A session is `Send` and `Sync`. Any thread may call its
/// methods, also within a zone, and none of them waits for a zone or a device. Dropping a session finishes it and discards the report; its
/// warnings go to standard error.
///
/// In a process that was forked from the one that started the session, nothing is recorded. The methods do nothing, the report of `finish`
/// says so, and files and sockets remain the parent's. The child may start its own session, before or after it drops this one. The CUDA
/// driver does not survive a fork, so a child times zones on CUDA streams only if its parent did not use CUDA.
///
/// Without the feature `enable`, the settings are checked, and nothing is recorded.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
pub struct Session {
    /// None if the session records nothing, or is over.
    pub(super) running: Option<Running>,
    /// Keeps the control server running.
    #[allow(dead_code, reason = "held, not read")]
    pub(super) listening: Option<Listening>,
    /// Why the session did not start, for its report.
    refused: Option<String>,
}

impl Session {
    /// Returns a builder, for settings of the program's own.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Returns whether zones that begin now are recorded.
    pub fn is_recording(&self) -> bool {
        self.running().is_some_and(|running| running.is_on())
    }

    pub(super) fn new(running: Option<Running>, listening: Option<Listening>) -> Session {
        Session { running, listening, refused: None }
    }

    /// Returns a session that records nothing, and why.
    pub(super) fn refused(why: String) -> Session {
        Session { running: None, listening: None, refused: Some(why) }
    }

    /// Returns the recording session; none in a process that was forked from the one that records.
    pub(super) fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.is_here())
    }

    /// Prints a warning, and adds it to the report if there will be one.
    pub(super) fn warn(&self, text: String) {
        match self.running() {
            Some(running) => running.warn(text),
            None => stderr::line(text),
        }
    }

    /// Stops the recording of zones that begin from now on. Open zones are still recorded when they end, until `finish`. When the last of
    /// them has ended on its stream, the session queries no device until it starts again or finishes. Stopping a stopped session has no
    /// effect.
    pub fn stop(&self) {
        if let Some(running) = self.running() {
            running.stop();
        }
    }

    /// Records again after [`stop`](Self::stop), to the same sinks and files. A zone that began in between is not recorded and does not
    /// count as begun in the report. Starting a session that records has no effect.
    ///
    /// ```
    /// let session = warpline::Session::from_env_or("summary");
    /// for epoch in 0..100 {
    ///     if epoch % 10 == 0 { session.start() } else { session.stop() }
    ///     // … train …
    /// }
    /// session.finish();
    /// ```
    pub fn start(&self) {
        if let Some(running) = self.running() {
            running.start();
        }
    }

    /// Begins step `number` of the program, and ends the step before it. It is [`warpline::step`](crate::step()), for code that has the session.
    #[inline]
    pub fn step(&self, number: impl IntoCount) {
        crate::step(number);
    }

    /// Replaces the filters with these patterns, which have the form of [`SessionBuilder::filter`] and are joined by commas
    /// (`demo.*,!demo.mlp`). An empty text selects every range. The filters apply to zones that begin from now on, and cost them nothing.
    ///
    /// # Errors
    /// [`Error::Config`] if a pattern is invalid. Then nothing changes.
    pub fn set_filter(&self, patterns: &str) -> Result<(), Error> {
        let filters = Filter::parse_all(patterns).map_err(Error::of_program)?;
        if cfg!(feature = "enable") {
            unmatched(&filters).into_iter().for_each(|text| self.warn(text));
        }
        let said = filters.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        self.change(Change::Filter(said), |config| config.filters = filters);
        Ok(())
    }

    /// Leaves out ranges that are finer than `level`, from now on.
    pub fn set_level(&self, level: Level) {
        self.change(Change::Level(level), |config| config.level = level);
    }

    /// Records this share of each range's zones, above 0 and up to 1, from now on. See [`SessionBuilder::sample`].
    ///
    /// # Errors
    /// [`Error::Config`] if the share is invalid. Then nothing changes.
    pub fn set_sample(&self, share: f64) -> Result<(), Error> {
        check_sample(share)
            .map_err(|problem| Error::of_program(ConfigError::new(format!("sample({share})"), problem)))?;
        self.change(Change::Sample(share), |config| config.sample = share);
        Ok(())
    }

    /// Adds a sink, which gets the records of all zones that begin after the call, and of earlier zones that the collector has not read
    /// yet. The sink is started on this thread and completed with the others at the end of the session. Its counts in the report begin when
    /// it is added.
    ///
    /// If the session never records, the sink is dropped.
    ///
    /// ```
    /// use warpline::Session;
    /// use warpline::sink::MemorySink;
    ///
    /// let session = Session::from_env_or("summary");
    /// let zones = MemorySink::new(100_000);
    /// let added = session.add_sink(zones.clone());
    /// // … the part of the program to look at …
    /// let report = session.remove_sink(added);
    /// for zone in zones.take() {
    ///     println!("{}", zone.range.name());
    /// }
    /// # session.finish();
    /// ```
    pub fn add_sink(&self, sink: impl Sink + 'static) -> SinkId {
        SinkId(self.running().map(|running| (running.epoch(), running.add_sink(Box::new(sink)))))
    }

    /// Completes a sink that [`add_sink`](Self::add_sink) added, drops it, and returns its counts. The sink's `finish` gets the session's
    /// report so far. The collector first reads the zones that are complete; zones that are not complete do not reach this sink. The call
    /// waits for the collector for at most the time limit of [`finish`](Self::finish).
    ///
    /// Returns none if the sink was removed before, belongs to another session, or is not completed in time. In the last case, the
    /// collector completes it as soon as it can. If a sink calls this on the collector's thread, it does not wait.
    pub fn remove_sink(&self, sink: SinkId) -> Option<SinkReport> {
        let (epoch, index) = sink.0?;
        self.running().filter(|running| running.epoch() == epoch)?.remove_sink(index)
    }

    /// Writes a Perfetto trace of the zones that the session's [flight recorder](SessionBuilder::flight) holds, and of the zones that are
    /// open now. Any thread may call it at any time. It waits for a copy of the recorder's file, and up to a second for the collector,
    /// which reads its rings first. It never waits for a device. The path may contain the placeholders of [`SessionBuilder::perfetto`].
    ///
    /// ```no_run
    /// let session = warpline::Session::from_env_or("flight=64MiB");
    /// // … the program …
    /// let found = session.dump("last.pftrace")?;
    /// println!("{} zones, and {} that are open", found.zones, found.open_zones);
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoFlight`], or [`Error::Dump`] if the trace cannot be written. Then no file is left.
    pub fn dump(&self, path: impl AsRef<Path>) -> Result<Recovered, Error> {
        self.running().ok_or(Error::NoFlight)?.dump(path.as_ref())
    }

    /// Stops, waits until everything that ended is recorded (at most the time limit, 5 s by default), completes the sinks, and returns the
    /// report of what was recorded and dropped.
    ///
    /// It never waits for open zones. With the setting `summary`, it prints the report.
    pub fn finish(mut self) -> Report {
        match self.running.take() {
            Some(running) => running.finish(),
            None => {
                let notes = why_nothing().into_iter().chain(self.refused.take()).collect();
                Report { notes, ..Report::default() }
            }
        }
    }

    fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        if let Some(running) = self.running() {
            running.change(what, change);
        }
    }
}

/// The id of a sink that a session added while it ran. See [`Session::add_sink`].
///
/// It is a plain value that may outlive its session, and then identifies no sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId(Option<(NonZeroU32, usize)>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abandon();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("recording", &self.is_recording()).finish_non_exhaustive()
    }
}
