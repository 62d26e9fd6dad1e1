//! The session of a program that was built with feature `enable`: it owns the collector.

use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::config::{Config, ConfigError, Filter, KEPT, NO_CUDA, NO_CUPTI, NO_TRACING, VARIABLE, is_share};
use super::{Ends, GraphTiming, Report};
#[cfg(feature = "cuda")]
use crate::backend::cuda::stamps;
use crate::budget::{Budget, Share};
use crate::catalog::{CatalogFault, Level, catalog};
use crate::clock;
use crate::collector::{Collector, Guests, Tally, lock};
#[cfg(target_os = "linux")]
use crate::control;
#[cfg(unix)]
use crate::flight::Flight;
use crate::flight::RecoverError;
use crate::nvtx;
#[cfg(feature = "tracing")]
use crate::sink::log::LogSink;
use crate::sink::{Change, ChromeSink, PerfettoSink, RotatingSink, SessionInfo, Sink};
use crate::stream::recorder::{Limits, Recorder};
use crate::switch;

/// Where a setting stands that does not come from there.
const PROGRAM: &str = "the program";

/// As good as for ever, and no clock overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How much longer than its time limit `finish` waits for a sink that does not return.
const GRACE: Duration = Duration::from_millis(500);

/// Why a session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is not one. Nothing was started.
    #[error("{origin} has a setting that cannot be used: {source}")]
    Config {
        /// Where the setting stands: `WARPLINE` or the program.
        origin: &'static str,
        /// The setting and what to write instead.
        source: ConfigError,
    },
    /// `WARPLINE` is not UTF-8. Nothing was started.
    #[error("WARPLINE is not UTF-8: write its paths and names in UTF-8")]
    NotUnicode,
    /// A session is on already: its `finish` must come first.
    #[error("a session is already recording in this process: finish it before another one starts")]
    AlreadyRecording,
    /// The program's catalog has faults that no compiler could see. Nothing was started.
    #[error("{}", catalog_text(.0))]
    Catalog(Vec<CatalogFault>),
    /// A trace file could not be made. Nothing was started.
    #[error("cannot write the {what} trace to `{}`: {source}; choose another path", path.display())]
    Create {
        /// The kind of trace.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The flight recorder's file could not be made, or the signal that it waits for not be handled. Nothing was started.
    #[error("cannot keep the flight recorder in `{}`: {problem}", path.display())]
    Flight {
        /// The file.
        path: PathBuf,
        /// What is in the way, and the remedy.
        problem: String,
    },
    /// There is no flight recorder to write out.
    #[error("this session has no flight recorder: start it with the setting `flight=64MiB`")]
    NoFlight,
    /// The flight recorder could not be written out.
    #[error("cannot write the last zones to `{}`: {source}", path.display())]
    Dump {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
    /// The operating system gave no thread for the collector.
    #[error("cannot start the collector's thread: {0}")]
    Thread(io::Error),
    /// The program cannot be asked from outside, as `control` wants. Nothing was started.
    #[error("`control` is not to be had: {0}")]
    Control(String),
}

fn catalog_text(faults: &[CatalogFault]) -> String {
    let lines: Vec<_> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    format!("the catalog of this program has {} faults; nothing was recorded:{}", faults.len(), lines.concat())
}

/// A session: it records from its start until [`finish`](Self::finish), or until it is dropped; between the two it can stop
/// and start again as often as one likes, and change what it records.
///
/// There is one at a time in a process. `Send` and `Sync`; zones of all threads belong to it, and any thread may call its
/// methods, also in the middle of zones: none of them waits for a zone or a device. Dropping it finishes it and throws the
/// report away, except for what a user must know, which goes to standard error.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
pub struct Session {
    /// None when the settings said `off`, or when the session is over.
    pub(super) running: Option<Running>,
    /// As long as it is there, the process can be asked from outside.
    #[cfg(target_os = "linux")]
    listening: Option<control::Listening>,
}

pub(super) struct Running {
    epoch: NonZeroU32,
    recorder: Arc<Recorder>,
    tally: Arc<Tally>,
    collector: Thread,
    /// Only `finish` waits for it; the lock makes the session `Sync`.
    done: Mutex<Receiver<()>>,
    started: Instant,
    /// The settings as they are by now.
    config: Mutex<Config>,
    /// The config's `sample`, for the collector.
    sample: Share,
    #[cfg(unix)]
    pub(super) flight: Option<Arc<Flight>>,
    /// It is held for those who ask from outside: what they change of it is no change of the program's.
    is_held: bool,
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
        self.running.as_ref().is_some_and(|running| switch::epoch() == Some(running.epoch))
    }

    /// Records no zone that begins from now on. Zones that are open are still recorded when they end, until `finish`; when
    /// the last of them is through its stream, the session asks nothing of any device until it starts again or finishes.
    /// Stopping one that is stopped changes nothing.
    pub fn stop(&self) {
        if let Some(running) = &self.running {
            let was_on = switch::epoch() == Some(running.epoch);
            switch::turn_off(running.epoch);
            #[cfg(feature = "cuda")]
            running.recorder.is_stopped.store(true, Ordering::Release);
            if was_on {
                #[cfg(feature = "cuda")]
                running.recorder.pauses.begin();
                running.note(Change::Stopped);
            }
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
        if let Some(running) = &self.running {
            let was_off = switch::epoch() != Some(running.epoch);
            switch::turn_on(running.epoch);
            #[cfg(feature = "cuda")]
            running.recorder.is_stopped.store(false, Ordering::Release);
            if was_off {
                #[cfg(feature = "cuda")]
                running.recorder.pauses.end();
                running.note(Change::Started);
            }
            running.collector.unpark();
        }
    }

    /// Replaces the filters: patterns as [`SessionBuilder::filter`] takes them, joined by commas (`demo.*,!demo.mlp`); an
    /// empty text lets every name through. It holds for zones that begin from now on, and costs them nothing.
    ///
    /// # Errors
    /// [`Error::Config`] for what is no pattern; then nothing is changed.
    pub fn set_filter(&self, patterns: &str) -> Result<(), Error> {
        let filters = Filter::parse_all(patterns).map_err(|source| Error::Config { origin: PROGRAM, source })?;
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
        if !is_share(share) {
            return Err(Error::Config { origin: PROGRAM, source: no_sample(share) });
        }
        self.change(Change::Sample(share), |config| config.sample = share);
        Ok(())
    }

    fn of(running: Option<Running>) -> Session {
        Session {
            running,
            #[cfg(target_os = "linux")]
            listening: None,
        }
    }

    /// A session for those who ask from outside: the guests that are at its door.
    #[cfg(target_os = "linux")]
    pub(crate) fn hold(config: Config, guests: Arc<Guests>) -> Result<Session, Error> {
        SessionBuilder { config, guests, ..SessionBuilder::default() }.start_recording(true)
    }

    /// As [`set_filter`](Self::set_filter), for a session that is held for others.
    #[cfg(target_os = "linux")]
    pub(crate) fn narrow(&self, filters: Vec<Filter>) {
        let said = filters.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        self.change(Change::Filter(said), |config| config.filters = filters);
    }

    /// Changes the settings, and what follows from them for each range.
    fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        let Some(running) = &self.running else { return };
        let mut config = lock(&running.config);
        change(&mut config);
        running.sample.set(config.sample);
        for range in catalog() {
            range.chance().set(config.wants(range));
        }
        // Under the lock, so that changes are told in the order in which they were made.
        running.note(what);
    }

    /// Stops, waits until everything that ended is recorded (at most the time limit, 5 s by default), completes the
    /// sinks, and says what was recorded and what was dropped.
    ///
    /// It never waits for zones that are still open. With `summary` set, it prints the report.
    pub fn finish(mut self) -> Report {
        self.running.take().map(Running::finish).unwrap_or_default()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let report = running.finish();
        for sink in &report.sinks {
            if let Some(error) = &sink.first_error {
                eprintln!("warpline: sink {}: {} records lost: {error}", sink.name, sink.lost);
            }
        }
        let said = nvtx::problem();
        for note in report.notes.iter().filter(|note| said.as_ref() != Some(note)) {
            eprintln!("warpline: {note}");
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("recording", &self.is_recording()).finish_non_exhaustive()
    }
}

impl Running {
    fn note(&self, change: Change) {
        if !self.is_held {
            self.tally.note_change(change);
        }
    }

    fn finish(self) -> Report {
        switch::turn_off(self.epoch);
        #[cfg(feature = "cuda")]
        stamps::turn_off();
        let (finish_timeout, summary) = {
            let config = lock(&self.config);
            (config.finish_timeout.min(LONGEST), config.summary)
        };
        *lock(&self.tally.deadline) = Some(Instant::now() + finish_timeout);
        self.collector.unpark();
        let waited = lock(&self.done).recv_timeout(finish_timeout + GRACE);
        if let Err(why) = waited {
            self.give_up(why);
        }
        #[cfg(target_os = "linux")]
        control::end(self.epoch);
        #[cfg(unix)]
        if let Some(flight) = &self.flight {
            lock(&self.tally.notes).extend(flight.note());
            flight.end();
        }
        let duration = self.started.elapsed();
        self.recorder.close();
        #[cfg(feature = "cuda")]
        lock(&self.tally.notes).extend(crate::graph::note());
        let mut report = self.tally.report(&self.recorder, duration);
        switch::remove(self.epoch);
        if summary {
            report.print();
            report.is_printed = true;
        }
        report
    }

    /// The collector did not come back: it is left to itself, and the report says where it is.
    fn give_up(&self, why: RecvTimeoutError) {
        self.tally.abandoned.store(true, Ordering::Release);
        let note = match (why, self.tally.inside()) {
            (RecvTimeoutError::Timeout, Some(sink)) => {
                format!("sink {sink} did not return in time; its output is not complete")
            }
            (RecvTimeoutError::Timeout, None) => "the collector did not come to its end in time".to_owned(),
            (RecvTimeoutError::Disconnected, _) => {
                "the collector ended early; this is a fault of warpline, please report it".to_owned()
            }
        };
        lock(&self.tally.notes).push(note);
    }
}

/// Puts a session together.
///
/// ```
/// use warpline::{Level, Session};
///
/// let session = Session::builder().level(Level::Coarse).filter("demo.*").start()?;
/// # session.finish();
/// # Ok::<(), warpline::Error>(())
/// ```
#[derive(Default)]
pub struct SessionBuilder {
    pub(super) config: Config,
    pub(super) sinks: Vec<Box<dyn Sink>>,
    /// How sinks come later.
    guests: Arc<Guests>,
    pub(super) wrong: Option<ConfigError>,
}

impl SessionBuilder {
    /// Adds the settings that the environment variable `WARPLINE` says, or `settings` when it is not set. So a program
    /// can have sinks of its own beside what its user asks for.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NotUnicode`].
    pub fn env_or(self, settings: &str) -> Result<Self, Error> {
        match std::env::var(VARIABLE) {
            Ok(line) if line.trim().is_empty() => self.add("off", VARIABLE),
            Ok(line) => self.add(&line, VARIABLE),
            Err(std::env::VarError::NotPresent) => self.add(settings, PROGRAM),
            Err(std::env::VarError::NotUnicode(_)) => Err(Error::NotUnicode),
        }
    }

    /// Adds settings in the form that `WARPLINE` has: `perfetto=a.pftrace,level=coarse`.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn settings(self, line: &str) -> Result<Self, Error> {
        self.add(line, PROGRAM)
    }

    fn add(mut self, line: &str, origin: &'static str) -> Result<Self, Error> {
        self.config.add(line).map_err(|source| Error::Config { origin, source })?;
        Ok(self)
    }

    /// Writes a Perfetto trace to this file. `WARPLINE=perfetto=…`.
    pub fn perfetto(mut self, path: impl AsRef<Path>) -> Self {
        self.config.perfetto.push(path.as_ref().to_owned());
        self
    }

    /// Writes a Chrome JSON trace to this file. `WARPLINE=chrome=…`.
    pub fn chrome(mut self, path: impl AsRef<Path>) -> Self {
        self.config.chrome.push(path.as_ref().to_owned());
        self
    }

    /// Shows zones live in [Tracy](https://github.com/wolfpld/tracy). `WARPLINE=tracy`. It needs feature `tracy`; without it
    /// [`start`](Self::start) says so.
    pub fn tracy(mut self) -> Self {
        if let Err(problem) = self.config.add("tracy") {
            self.wrong.get_or_insert(problem);
        }
        self
    }

    /// Prints the report at the end. `WARPLINE=summary`.
    pub fn summary(mut self) -> Self {
        self.config.summary = true;
        self
    }

    /// Emits each zone, when it is complete, as an event of `tracing` with its namespace as target, for programs that have
    /// logs and no trace UI. They go to the subscriber of the thread that starts the session, or to the global one where it
    /// has none. Needs feature `tracing`. `WARPLINE=log`.
    pub fn log(mut self) -> Self {
        if cfg!(feature = "tracing") {
            self.config.log = true;
        } else {
            self.wrong.get_or_insert(ConfigError::new("log".to_owned(), NO_TRACING.to_owned()));
        }
        self
    }

    /// Leaves out ranges that are finer than this. `WARPLINE=level=…`; `fine` by default, which leaves none out.
    pub fn level(mut self, level: Level) -> Self {
        self.config.level = level;
        self
    }

    /// Records only ranges whose name fits the pattern (`demo.*`), or leaves those out (`!demo.mlp`). Of several, a range
    /// must fit one of the first kind, if there is any, and none of the second. `WARPLINE=filter=…`.
    pub fn filter(mut self, pattern: &str) -> Self {
        match Filter::parse(pattern) {
            Ok(filter) => self.config.filters.push(filter),
            Err(problem) => {
                self.wrong.get_or_insert(ConfigError::new(format!("filter={pattern}"), problem));
            }
        }
        self
    }

    /// The most zones of one stream that may wait for their events; 4,096 by default. `WARPLINE=ring=…`.
    pub fn ring(mut self, zones: usize) -> Self {
        self.config.ring = zones;
        self
    }

    /// How the end of a zone on a GPU stream is found; [`Ends::Auto`] by default. `WARPLINE=ends=…`.
    pub fn ends(mut self, ends: Ends) -> Self {
        self.config.ends = ends;
        self
    }

    /// The most events that the session may hold in one GPU context, two for each zone that waits; 16,384 by default.
    /// `WARPLINE=events=…`.
    pub fn event_budget(mut self, events: usize) -> Self {
        self.config.events = events;
        self
    }

    /// The share of a launching thread's time that the session may cost it, above 0 and up to 1: of the zones of frequent
    /// ranges only an unbiased sample is recorded then. `WARPLINE=budget=0.5%`; without one all zones are.
    pub fn budget(mut self, share: f64) -> Self {
        if is_share(share) {
            self.config.budget = Some(share);
        } else {
            let problem = "a budget is a share of the launching thread's time, above 0 and up to 1".to_owned();
            self.wrong.get_or_insert(ConfigError::new(format!("budget({share})"), problem));
        }
        self
    }

    /// The share of each range's zones that is recorded, above 0 and up to 1, each zone by chance on its own;
    /// [`ZoneRecord::sample_share`](crate::ZoneRecord::sample_share) says it. Collectives are recorded whole: ranks match
    /// them by number. With a budget, this is the most of a range that it pays for. `WARPLINE=sample=10%`.
    pub fn sample(mut self, share: f64) -> Self {
        if is_share(share) {
            self.config.sample = share;
        } else {
            self.wrong.get_or_insert(no_sample(share));
        }
        self
    }

    /// Measures, at the start and on the thread that starts, with a kernel in that thread's CUDA context, what a pair of
    /// events adds to a kernel: [`ZoneRecord::gpu_ns_corrected`](crate::ZoneRecord::gpu_ns_corrected) is nearer to the
    /// kernel's own time then. It takes some ms and may wait for work in the context, so it belongs before the program is
    /// under way. `WARPLINE=calibrate`.
    pub fn calibrate(mut self) -> Self {
        self.config.calibrate = true;
        self
    }

    /// Whether kernels, copies and memory sets are recorded, too, each with its exact time on the device and with the zone
    /// that launched it: [`Sink::kernels`]. It needs feature `cupti` and NVIDIA's CUPTI on the machine; where that cannot be
    /// had, or another tool has it, the report says so and zones are recorded all the same. `WARPLINE=kernels`.
    pub fn kernels(mut self, record: bool) -> Self {
        if record && cfg!(not(feature = "cupti")) {
            self.wrong.get_or_insert(ConfigError::new("kernels".to_owned(), NO_CUPTI.to_owned()));
        }
        self.config.kernels = record;
        self
    }

    /// How zones that are captured into CUDA graphs are timed in each replay without a profiler: [`Sink::replays`];
    /// [`GraphTiming::Off`] by default. Graphs that are captured before keep what they have. With stamps, kernels are compiled
    /// when the session starts, in the calling thread's CUDA context if it has one, which takes some ms and may wait for work in it, so
    /// that belongs before the program is under way; in other contexts on a thread of the session's own. It needs feature `cuda`.
    /// `WARPLINE=graph_timing=stamps`, `graph_timing=events`.
    pub fn graph_timing(mut self, timing: GraphTiming) -> Self {
        if timing != GraphTiming::Off && cfg!(not(feature = "cuda")) {
            self.wrong.get_or_insert(ConfigError::new("graph_timing".to_owned(), NO_CUDA.to_owned()));
        }
        self.config.graph_timing = timing;
        self
    }

    /// Whether zones are mirrored to NVTX, for Nsight and other tools. Without this setting they are where a tool is
    /// attached; with `false` not even there; with `true` also to the library of an old toolkit, and it is said when there
    /// is no tool at all. `WARPLINE=nvtx`, `nvtx=off`; of several wishes, off wins. It holds for all zones of the process, with
    /// a session or without, until another session starts.
    pub fn nvtx(mut self, mirror: bool) -> Self {
        self.config.wish_nvtx(mirror);
        self
    }

    /// Lets the command `warpline` ask this process for its state, for a trace or for single zones, as long as the session is
    /// there: `warpline ps`, `record`, `top`, … of the same user on the same machine. With nowhere to write to, the session
    /// records only what is asked for. Linux only; elsewhere [`start`](Self::start) says so. `WARPLINE=control`.
    pub fn control(mut self) -> Self {
        if let Err(problem) = self.config.add("control") {
            self.wrong.get_or_insert(problem);
        }
        self
    }

    /// The longest that [`Session::finish`] waits; 5 s by default. `WARPLINE=timeout=…`.
    pub fn finish_timeout(mut self, timeout: Duration) -> Self {
        self.config.finish_timeout = timeout;
        self
    }

    /// Hands the records to a sink of your own, too.
    pub fn sink(mut self, sink: impl Sink + 'static) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Starts recording.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn start(self) -> Result<Session, Error> {
        if let Some(source) = self.wrong.clone().or_else(|| self.config.check().err()) {
            return Err(Error::Config { origin: PROGRAM, source });
        }
        nvtx::look(self.config.nvtx);
        if self.config.off {
            return Ok(Session::of(None));
        }
        #[cfg(target_os = "linux")]
        if self.config.control {
            return self.start_listening();
        }
        self.start_recording(false)
    }

    /// The program can be asked from outside; without anywhere to write to it records only what is asked for.
    #[cfg(target_os = "linux")]
    fn start_listening(self) -> Result<Session, Error> {
        let listening = control::Listening::start(&self.config).map_err(Error::Control)?;
        let records = self.config.has_output() || !self.sinks.is_empty();
        let mut session = if records { self.start_recording(false)? } else { Session::of(None) };
        session.listening = Some(listening);
        Ok(session)
    }

    /// Starts recording, for the program or for those who ask from outside.
    fn start_recording(self, is_held: bool) -> Result<Session, Error> {
        let records = catalog().records();
        let faults = records.faults();
        if !faults.is_empty() {
            return Err(Error::Catalog(faults));
        }
        let info = SessionInfo::now(records.catalog_hash());
        let limits = Limits {
            zones: self.config.ring,
            events: self.config.events,
            ends: self.config.ends,
            watch: self.config.flight.is_some(),
        };
        let reserve = || switch::reserve(|epoch| Arc::new(Recorder::new(epoch, limits)));
        let recorder = reserve();
        // What somebody outside asked for makes room for what the program wants.
        #[cfg(target_os = "linux")]
        let recorder = recorder.or_else(|| {
            if is_held {
                return None;
            }
            control::give_way();
            reserve()
        });
        let recorder = recorder.ok_or(Error::AlreadyRecording)?;
        let epoch = recorder.epoch();
        match self.run(recorder, &info, is_held) {
            Ok(running) => {
                switch::turn_on(epoch);
                Ok(Session::of(Some(running)))
            }
            Err(error) => {
                #[cfg(feature = "cuda")]
                stamps::turn_off();
                switch::remove(epoch);
                Err(error)
            }
        }
    }

    /// Makes everything that a session needs, and lets no zone begin yet.
    fn run(mut self, recorder: Arc<Recorder>, info: &SessionInfo, is_held: bool) -> Result<Running, Error> {
        self.open_files()?;
        #[cfg(unix)]
        let flight = self.open_flight(info)?;
        for range in catalog() {
            range.chance().reset(self.config.wants(range));
        }
        let tally = Arc::new(Tally::default());
        lock(&tally.notes).extend(nvtx::problem());
        if let Some(why) = self.config.calibrate.then(calibrate).and_then(Result::err) {
            lock(&tally.notes).push(format!("nothing was calibrated: {why}"));
        }
        let sample = Share::new(self.config.sample);
        let budget = self.config.budget.map(|share| Budget::new(share, sample.clone()));
        // Before the sinks start: they are told whether there will be kernels.
        #[cfg(feature = "cupti")]
        let kernels = self.config.kernels.then(crate::cupti::Kernels::start);
        #[cfg(feature = "cupti")]
        let info = &SessionInfo { kernels: matches!(kernels, Some(Ok(_))), ..info.clone() };
        #[cfg(all(feature = "cupti", target_os = "linux"))]
        let has_kernels = kernels.as_ref().map(|kernels| kernels.as_ref().map(drop).map_err(Clone::clone));
        #[cfg(all(not(feature = "cupti"), target_os = "linux"))]
        let has_kernels = None;
        let (mine, its) = (Arc::clone(&recorder), Arc::clone(&tally));
        let mut collector = Collector::new(mine, its, self.sinks, info, self.config.ends, budget);
        #[cfg(feature = "cupti")]
        if let Some(kernels) = kernels {
            collector.take_kernels_from(kernels);
        }
        #[cfg(feature = "cuda")]
        match self.config.graph_timing {
            GraphTiming::Off => {}
            GraphTiming::Stamps => {
                stamps::turn_on(stamps::By::Stamps);
                stamps::want_current();
                collector.time_graphs(stamps::By::Stamps);
            }
            GraphTiming::Events => {
                stamps::turn_on(stamps::By::Events);
                collector.time_graphs(stamps::By::Events);
            }
        }
        collector.take_guests_from(Arc::clone(&self.guests));
        #[cfg(unix)]
        if let Some(flight) = &flight {
            collector.watch_for(Arc::clone(flight));
        }
        let (say_done, done) = mpsc::channel();
        let thread = std::thread::Builder::new().name("warpline".to_owned()).spawn(move || {
            collector.run();
            // Nobody listens when `finish` gave up.
            let _ = say_done.send(());
        });
        #[cfg(unix)]
        if let (Err(_), Some(flight)) = (&thread, &flight) {
            flight.end();
        }
        let collector = thread.map_err(Error::Thread)?.thread().clone();
        recorder.waker.set(collector.clone());
        #[cfg(target_os = "linux")]
        control::begin(control::Current {
            epoch: recorder.epoch(),
            recorder: Arc::clone(&recorder),
            guests: self.guests,
            collector: collector.clone(),
            is_held,
            kernels: has_kernels,
            flight: flight.clone(),
        });
        #[cfg(unix)]
        if let Some(flight) = &flight {
            flight.begin(collector.clone());
        }
        Ok(Running {
            epoch: recorder.epoch(),
            recorder,
            tally,
            collector,
            done: Mutex::new(done),
            started: Instant::now(),
            config: Mutex::new(self.config),
            sample,
            #[cfg(unix)]
            flight,
            is_held,
        })
    }

    fn open_files(&mut self) -> Result<(), Error> {
        let create = |what, path: &Path| {
            File::create(path).map_err(|source| Error::Create { what, path: path.to_owned(), source })
        };
        for path in &self.config.perfetto {
            if let Some(limit) = self.config.rotate {
                let sink = RotatingSink::create(path, limit, self.config.keep.unwrap_or(KEPT));
                let wrong = |source| Error::Create { what: "Perfetto", path: path.to_owned(), source };
                self.sinks.push(Box::new(sink.map_err(wrong)?));
                continue;
            }
            self.sinks.push(Box::new(PerfettoSink::to_file(path, create("Perfetto", path)?)));
        }
        for path in &self.config.chrome {
            self.sinks.push(Box::new(ChromeSink::to_file(path, create("Chrome", path)?)));
        }
        #[cfg(feature = "tracing")]
        if self.config.log {
            self.sinks.push(Box::new(LogSink::default()));
        }
        #[cfg(feature = "tracy")]
        if self.config.tracy {
            self.sinks.push(Box::new(crate::sink::TracySink::new()));
        }
        Ok(())
    }
}

fn no_sample(share: f64) -> ConfigError {
    let problem = "a sample is a share of each range's zones, above 0 and up to 1".to_owned();
    ConfigError::new(format!("sample({share})"), problem)
}

#[cfg(feature = "cuda")]
fn calibrate() -> Result<(), String> {
    crate::backend::cuda::calibrate::calibrate().map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn calibrate() -> Result<(), String> {
    Err("this program was built without warpline's feature `cuda`".to_owned())
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The variables in which launchers say a process's number in its job: torchrun, Open MPI, MPICH and others, Slurm.
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

fn rank() -> u32 {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok()).unwrap_or(0)
}

impl SessionInfo {
    pub(crate) fn now(catalog_hash: u64) -> SessionInfo {
        let name = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        SessionInfo {
            begin_ns: clock::now_ns(),
            begin_unix_ns: clock::unix_ns(),
            process_id: std::process::id(),
            process_name: name.unwrap_or_else(|| "process".to_owned()),
            rank: rank(),
            catalog_hash,
            kernels: false,
        }
    }
}
