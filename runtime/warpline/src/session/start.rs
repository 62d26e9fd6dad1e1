//! Starts a session from its settings: creates the sinks and files, and the engine that writes to them.
//!
//! [`SessionBuilder::start`] calls it. An error leaves nothing running, and no zone is recorded before everything is set up.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "ranks")]
use std::time::Duration;

use super::handle::Session;
use super::reports::ReportFile;
use super::running::{Files, Running};
use super::warn;
use super::written::{Format, Written};
use crate::collector::SessionStats;
use crate::collector::engine::{CollectorThread, EngineBuilder};
#[cfg(target_os = "linux")]
use crate::control;
use crate::error::Error;
use crate::exit;
#[cfg(unix)]
use crate::flight::{Flight, FlightPlan};
#[cfg(any(feature = "otlp", feature = "prometheus"))]
use crate::metrics;
use crate::mirror;
#[cfg(feature = "ranks")]
use crate::ranks::RanksSink;
#[cfg(unix)]
use crate::settings::{Config, FlightSettings};
use crate::settings::{KEPT, SessionBuilder, unmatched};
#[cfg(feature = "tracing")]
use crate::spans::log::LogSink;
use warpline_core::inside::Inside;
use warpline_report::sink::SessionInfo;
use warpline_trace::files::claim;
use warpline_trace::files::claim::FileClaim;
use warpline_trace::write::chrome::ChromeSink;
#[cfg(unix)]
use warpline_trace::write::perfetto::FlightSink;
use warpline_trace::write::perfetto::{PerfettoSink, RotatingSink};

/// The length of a window of the tables of ranks.
#[cfg(feature = "ranks")]
const RANKS_WINDOW: Duration = Duration::from_secs(60);

/// Starts a session as the settings require.
pub(super) fn begin(mut builder: SessionBuilder) -> Result<Session, Error> {
    let _inside = Inside::enter();
    builder.check()?;
    mirror::look(builder.config.nvtx, builder.config.roctx);
    if builder.config.off {
        return Ok(Session::with(None));
    }
    #[cfg(target_os = "linux")]
    if builder.config.control {
        return builder.start_listening();
    }
    builder.start_recording()
}

impl SessionBuilder {
    /// Starts the control server. Without an output in the settings, the session records only what clients request. If the server
    /// cannot start, the session still records to its outputs.
    #[cfg(target_os = "linux")]
    fn start_listening(self) -> Result<Session, Error> {
        let listening = control::Listening::start(&self.config);
        let records = self.config.has_output() || !self.sinks.is_empty();
        let (filters, mut session) = match records {
            true => (Vec::new(), self.start_recording()?),
            false => {
                self.environment.iter().for_each(|environment| environment.warn_of_replaced(&self.config));
                (unmatched(&self.config.filters), Session::with(None))
            }
        };
        filters.into_iter().for_each(|text| session.warn(text));
        match listening {
            Ok(listening) => session.listening = Some(listening),
            Err(why) => session.warn(format!("the program cannot be controlled from outside: {why}")),
        }
        Ok(session)
    }

    /// Starts an engine with the sinks and files of the settings.
    fn start_recording(mut self) -> Result<Session, Error> {
        let info = SessionInfo::now();
        #[cfg_attr(not(unix), expect(unused_mut, reason = "the flight recorder comes later"))]
        let mut engine = EngineBuilder::reserve(&self.config, false)?;
        // Change no file before all of them are locked and the thread that writes them exists. The flight recorder's file comes first,
        // because it can be undone.
        let files = self.claim_files()?;
        let reports = self.claim_reports()?;
        let thread = CollectorThread::spawn("warpline").map_err(Error::Thread)?;
        #[cfg(unix)]
        {
            engine.flight = self.open_flight(&info)?;
        }
        let files = self.begin_files(files, &engine.tally);
        reports.iter().filter_map(ReportFile::notice).for_each(|notice| engine.tally.warn(notice));
        #[cfg(unix)]
        if let (Err(_), Some(flight)) = (&files, &engine.flight) {
            flight.undo();
        }
        #[cfg_attr(not(unix), expect(unused_mut, reason = "the flight recorder's file comes later"))]
        let mut written = files?;
        self.add_guest_sinks();
        self.add_metrics(&engine.tally);
        #[cfg(feature = "ranks")]
        if let Some(folder) = &self.config.ranks {
            let window = self.config.ranks_window.unwrap_or(RANKS_WINDOW);
            let (recorder, tally) = (Arc::clone(&engine.recorder), Arc::clone(&engine.tally));
            let timeout = self.config.finish_timeout;
            #[cfg(unix)]
            let flight = engine.flight.as_deref().map(|flight| flight.ring().path.clone());
            #[cfg(not(unix))]
            let flight = None;
            let sink = RanksSink::new(folder.clone(), window, timeout, recorder, tally).with_flight(flight);
            self.sinks.push(Box::new(sink));
        }
        let is_asked_for =
            self.config.flight.is_none() || !self.sinks.is_empty() || self.config.has_output_beside_flight();
        self.config.budget = self.config.budget(is_asked_for);
        #[cfg(unix)]
        if let Some(flight) = &engine.flight {
            self.sinks.push(Box::new(FlightSink::new(Arc::clone(flight.ring()))));
            flight.notice.iter().for_each(|notice| engine.tally.warn(notice.clone()));
            if !flight.is_temporary {
                written.push(Written::new(Format::Flight, &flight.ring().path));
            }
        }
        warn::at_start(&self.config, !self.sinks.is_empty(), self.environment.as_ref(), &engine.tally);
        let on_signals = self.config.finish_on_signal;
        let engine = engine.run(thread, self.config, self.sinks, &info);
        engine.recorder.turn_on();
        let running = Running::new(engine, Files { written, reports });
        let unfinished = running.clone();
        exit::watch(running.epoch(), move || unfinished.finish_at_exit(), on_signals);
        Ok(Session::with(Some(running)))
    }

    /// Opens and locks the files that the settings name. Existing files are not changed yet.
    fn claim_files(&self) -> Result<Vec<Claimed>, Error> {
        let mut files = Vec::new();
        for path in &self.config.perfetto {
            let wrong = |source| Error::Create { what: "Perfetto", path: path.clone(), source };
            files.push(match self.config.rotate {
                Some(limit) => {
                    let keep = self.config.keep.unwrap_or(KEPT);
                    Claimed::Rotating(path.clone(), Box::new(RotatingSink::create(path, limit, keep).map_err(wrong)?))
                }
                None => Claimed::Perfetto(FileClaim::acquire(path).map_err(wrong)?),
            });
        }
        for path in &self.config.chrome {
            let wrong = |source| Error::Create { what: "Chrome", path: path.clone(), source };
            files.push(Claimed::Chrome(FileClaim::acquire(path).map_err(wrong)?));
        }
        Ok(files)
    }

    /// Opens and locks the files for the report, which are written at the end.
    fn claim_reports(&self) -> Result<Vec<ReportFile>, Error> {
        self.config.summary_files.iter().map(|path| ReportFile::claim(path)).collect()
    }

    /// Creates the sinks of these files, and warns about each that has another name than requested.
    fn begin_files(&mut self, files: Vec<Claimed>, tally: &SessionStats) -> Result<Vec<Written>, Error> {
        let mut written = Vec::new();
        for file in files {
            let (what, claim) = match file {
                Claimed::Rotating(asked, sink) => {
                    if asked != sink.path() {
                        tally.warn(claim::notice(&asked, sink.path()));
                    }
                    self.sinks.push(sink);
                    continue;
                }
                Claimed::Perfetto(claim) => (Format::Perfetto, claim),
                Claimed::Chrome(claim) => (Format::Chrome, claim),
            };
            claim.notice().into_iter().for_each(|notice| tally.warn(notice));
            let path = claim.path().to_owned();
            if claim.is_regular() {
                written.push(Written::new(what, &path));
            }
            let begin = |kind| claim.begin().map_err(|source| Error::Create { what: kind, path: path.clone(), source });
            self.sinks.push(match what {
                Format::Chrome => Box::new(ChromeSink::to_file(&path, begin("Chrome")?)),
                _ => Box::new(PerfettoSink::to_file(&path, begin("Perfetto")?)),
            });
        }
        Ok(written)
    }

    /// Creates the sinks that pass zones to other libraries.
    fn add_guest_sinks(&mut self) {
        #[cfg(feature = "tracing")]
        if self.config.log {
            self.sinks.push(Box::new(LogSink::default()));
        }
        #[cfg(feature = "tracy")]
        if self.config.tracy {
            self.sinks.push(Box::new(crate::tracy::sink::TracySink::new()));
        }
    }

    /// Creates the sinks of live metrics.
    #[cfg_attr(not(any(feature = "otlp", feature = "prometheus")), expect(unused_variables, reason = "there are none"))]
    fn add_metrics(&mut self, tally: &Arc<SessionStats>) {
        #[cfg(any(feature = "otlp", feature = "prometheus"))]
        let plan = || metrics::Plan::new(&self.config);
        #[cfg(feature = "otlp")]
        if let Some(url) = &self.config.otlp {
            let (interval, timeout) = (self.config.otlp_interval, self.config.finish_timeout);
            let sink = metrics::OtlpSink::new(url.clone(), interval, timeout, plan(), Arc::clone(tally));
            self.sinks.push(Box::new(sink));
        }
        #[cfg(feature = "prometheus")]
        if let Some(at) = self.config.prometheus {
            self.sinks.push(Box::new(metrics::PrometheusSink::new(&self.config, at, plan(), Arc::clone(tally))));
        }
    }

    /// Creates the flight recorder, if the settings name one.
    #[cfg(unix)]
    fn open_flight(&self, info: &SessionInfo) -> Result<Option<Arc<Flight>>, Error> {
        let Config { flight, stall, dump_on_sigusr2, .. } = &self.config;
        let Some(FlightSettings { bytes, path }) = flight else { return Ok(None) };
        let plan = FlightPlan { bytes: *bytes, path: path.as_deref(), stall: *stall, on_signal: *dump_on_sigusr2 };
        Flight::create(&plan, info).map(Some).map_err(|(path, problem)| Error::Flight { path, problem })
    }
}

/// A file that this session has locked and not changed yet.
enum Claimed {
    /// The first file of a rotated trace, which is new, with the requested path.
    Rotating(PathBuf, Box<RotatingSink>),
    Perfetto(FileClaim),
    Chrome(FileClaim),
}
