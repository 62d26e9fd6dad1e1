//! The handle that an application holds: stop, start again, change, finish.
//!
//! It is the same with feature `enable` and without, so that an application compiles both ways. What it holds is in `running`; without
//! the feature there is none (`off`).

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

use super::{Listening, Running, why_nothing};
use crate::error::{ConfigError, Error};
use crate::settings::values::check_sample;
use crate::settings::{Config, Filter, SessionBuilder, unmatched};
use warpline_core::catalog::Level;
use warpline_core::recovered::Recovered;
use warpline_core::report::{Report, SinkReport};
use warpline_core::sink::{Change, Sink};
use warpline_core::stderr;

/// A session: it records from its start until [`finish`](Self::finish), or until it is dropped. In between it can stop and start
/// again as often as you like, and change what it records.
///
/// There is one at a time in a process. `Send` and `Sync`; zones of all threads belong to it, and any thread may call its
/// methods, also in the middle of zones: none of them waits for a zone or a device. Dropping it finishes it and discards the
/// report; its warnings go to standard error.
///
/// In a process that was forked from the one that started the session, nothing is recorded: the methods do nothing, the report of
/// `finish` says so, and files and sockets stay the parent's. The child may start a session of its own, before or after it drops
/// this one. The CUDA driver does not survive a fork: a child times zones on CUDA streams only where its parent did not use CUDA.
///
/// Without feature `enable` the settings are checked, and nothing is recorded.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
pub struct Session {
    /// None when the settings said `off`, or when the session is over.
    pub(super) running: Option<Running>,
    /// Keeps the control server running.
    #[allow(dead_code, reason = "held, not read")]
    pub(super) listening: Option<Listening>,
}

impl Session {
    /// Returns a builder, for settings that the program makes.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Whether zones that begin now are recorded.
    pub fn is_recording(&self) -> bool {
        self.running().is_some_and(|running| running.is_on())
    }

    pub(super) fn with(running: Option<Running>) -> Session {
        Session { running, listening: None }
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
        if cfg!(feature = "enable") {
            unmatched(&filters).into_iter().for_each(|text| self.warn(text));
        }
        let said = filters.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        self.change(Change::Filter(said), |config| config.filters = filters);
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

    /// Hands the records to one more sink from now on: all zones that begin after the call, and those before it that the collector has
    /// not read yet. The sink is started on this thread. At the end of the session it is completed as the others are; its counts in the
    /// report are those since it was added.
    ///
    /// A sink of a session that does not record is dropped.
    ///
    /// ```
    /// use warpline::Session;
    /// use warpline::sink::MemorySink;
    ///
    /// let session = Session::from_env_or("summary")?;
    /// let zones = MemorySink::new(100_000);
    /// let added = session.add_sink(zones.clone());
    /// // … the part of the program to look at …
    /// let report = session.remove_sink(added);
    /// for zone in zones.take() {
    ///     println!("{}", zone.range.name());
    /// }
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    pub fn add_sink(&self, sink: impl Sink + 'static) -> SinkId {
        SinkId(self.running().map(|running| (running.epoch(), running.add_sink(Box::new(sink)))))
    }

    /// Completes a sink that [`add_sink`](Self::add_sink) added, and drops it: `finish` of the sink gets the session's report until now.
    /// The collector reads first what is complete; zones that are still on their way are not in this sink. The wait for the
    /// collector takes at most the time limit of [`finish`](Self::finish). Returns the sink's counts.
    ///
    /// Returns none where the sink has been removed before, is of another session, or is not completed in time; the collector
    /// then completes it as soon as it can. A sink that calls it on the collector's own thread does not wait.
    pub fn remove_sink(&self, sink: SinkId) -> Option<SinkReport> {
        let (epoch, index) = sink.0?;
        self.running().filter(|running| running.epoch() == epoch)?.remove_sink(index)
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
        self.running().ok_or(Error::NoFlight)?.dump(path.as_ref())
    }

    /// Stops, waits until everything that ended is recorded (at most the time limit, 5 s by default), completes the
    /// sinks, and says what was recorded and what was dropped.
    ///
    /// It never waits for zones that are still open. With `summary` set, it prints the report.
    pub fn finish(mut self) -> Report {
        match self.running.take() {
            Some(running) => running.finish(),
            None => Report { notes: why_nothing(), ..Report::default() },
        }
    }

    fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        if let Some(running) = self.running() {
            running.change(what, change);
        }
    }
}

/// A sink that a session has added while it ran: see [`Session::add_sink`].
///
/// A plain value; it outlives its session, and then means no sink.
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
