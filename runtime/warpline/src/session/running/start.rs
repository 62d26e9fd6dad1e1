//! Starts a session from its settings: creates the sinks and files, and the engine that writes to them.
//!
//! [`SessionBuilder::start`] calls it. An error leaves nothing running, and no zone is recorded before everything is set up.

use std::path::PathBuf;

use super::reports::ReportFile;
use super::warn;
use super::written::{Format, Written};
use super::{Files, Listening, Running};
use crate::collector::SessionStats;
use crate::collector::engine::{CollectorThread, EngineBuilder};
use crate::error::Error;
use crate::exit;
use crate::flight::Flight;
use crate::mirror;
use crate::settings::{Config, KEPT, SessionBuilder, unmatched};
use warpline_core::if_feature;
use warpline_core::reentrancy::Inside;
use warpline_core::stderr;
use warpline_report::sink::{SessionInfo, Sink};
use warpline_trace::files::claim;
use warpline_trace::files::claim::FileClaim;
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::{PerfettoSink, RotatingSink};

/// Starts a session as the settings require: what records, and the control server.
pub(in crate::session) fn begin(mut builder: SessionBuilder) -> Result<(Option<Running>, Option<Listening>), Error> {
    let _inside = Inside::enter();
    builder.check()?;
    mirror::attach(builder.config.nvtx, builder.config.roctx);
    if builder.config.off {
        return Ok((None, None));
    }
    if builder.config.control {
        return builder.start_listening();
    }
    Ok((Some(builder.start_recording()?), None))
}

impl SessionBuilder {
    /// Starts the control server. Without an output in the settings, the session records only what clients request. If the server
    /// cannot start, the session still records to its outputs.
    fn start_listening(self) -> Result<(Option<Running>, Option<Listening>), Error> {
        let listening = Listening::start(&self.config);
        let records = self.config.has_output() || !self.sinks.is_empty();
        let (mut texts, running) = match records {
            true => (Vec::new(), Some(self.start_recording()?)),
            false => {
                self.environment.iter().for_each(|environment| environment.warn_of_replaced(&self.config));
                (unmatched(&self.config.filters), None)
            }
        };
        let listening = listening
            .inspect_err(|why| texts.push(format!("the program cannot be controlled from outside: {why}")))
            .ok();
        texts.into_iter().for_each(|text| match &running {
            Some(running) => running.warn(text),
            None => stderr::line(text),
        });
        Ok((running, listening))
    }

    /// Starts an engine with the sinks and files of the settings.
    fn start_recording(mut self) -> Result<Running, Error> {
        let info = SessionInfo::now();
        let mut engine = EngineBuilder::reserve(&self.config, false)?;
        // Change no file before all of them are locked and the thread that writes them exists. The flight recorder's file comes first,
        // because it can be undone.
        let files = self.claim_files()?;
        let reports = self.claim_reports()?;
        let thread = CollectorThread::spawn("warpline").map_err(Error::Thread)?;
        engine.flight = Flight::open(&self.config, &info)?;
        let files = self.begin_files(files, &engine.stats);
        reports.iter().filter_map(ReportFile::notice).for_each(|notice| engine.stats.warn(notice));
        if let (Err(_), Some(flight)) = (&files, &engine.flight) {
            flight.undo();
        }
        let mut written = files?;
        adapters(&self.config, &engine).for_each(|sink| self.sinks.push(sink));
        let is_asked_for =
            self.config.flight.is_none() || !self.sinks.is_empty() || self.config.has_output_beside_flight();
        self.config.budget = self.config.budget(is_asked_for);
        if let Some(flight) = &engine.flight {
            self.sinks.push(flight.sink());
            flight.notice().into_iter().for_each(|notice| engine.stats.warn(notice));
            if !flight.is_temporary() {
                written.push(Written::new(Format::Flight, flight.path()));
            }
        }
        warn::at_start(&self.config, !self.sinks.is_empty(), self.environment.as_ref(), &engine.stats);
        let on_signals = self.config.finish_on_signal;
        let engine = engine.run(thread, self.config, self.sinks, &info);
        engine.recorder.turn_on();
        let running = Running::new(engine, Files { written, reports });
        let unfinished = running.clone();
        exit::watch(running.epoch(), move || unfinished.finish_at_exit(), on_signals);
        Ok(running)
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
    fn begin_files(&mut self, files: Vec<Claimed>, stats: &SessionStats) -> Result<Vec<Written>, Error> {
        let mut written = Vec::new();
        for file in files {
            let (what, claim) = match file {
                Claimed::Rotating(asked, sink) => {
                    if asked != sink.path() {
                        stats.warn(claim::notice(&asked, sink.path()));
                    }
                    self.sinks.push(sink);
                    continue;
                }
                Claimed::Perfetto(claim) => (Format::Perfetto, claim),
                Claimed::Chrome(claim) => (Format::Chrome, claim),
            };
            claim.notice().into_iter().for_each(|notice| stats.warn(notice));
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
}

/// Creates the sinks of the adapters that this build has and the settings name.
fn adapters(config: &Config, engine: &EngineBuilder) -> impl Iterator<Item = Box<dyn Sink>> {
    // A build may have none.
    let _ = (config, engine);
    let sinks: [Option<Box<dyn Sink>>; 5] = [
        if_feature!("tracing", crate::spans::layer::log::sink(config), None),
        if_feature!("tracy", crate::tracy::sink::create(config), None),
        if_feature!("otlp", crate::metrics::otlp::sink(config, engine), None),
        if_feature!("prometheus", crate::metrics::prometheus::sink(config, engine), None),
        if_feature!("ranks", crate::ranks::sink(config, engine), None),
    ];
    sinks.into_iter().flatten()
}

/// A file that this session has locked and not changed yet.
enum Claimed {
    /// The first file of a rotated trace, which is new, with the requested path.
    Rotating(PathBuf, Box<RotatingSink>),
    Perfetto(FileClaim),
    Chrome(FileClaim),
}
