//! From settings to a session that records: files, recorder and collector are made, and only then may zones begin.
//!
//! [`SessionBuilder::start`] comes here, and `control` for those who ask from outside. An error leaves nothing running, and no zone
//! begins before all is there.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use super::handle::Session;
use super::running::Running;
use super::warn;
use super::written::{Format, Written};
use crate::budget::Budget;
#[cfg(feature = "cupti")]
use crate::collector::KernelStage;
#[cfg(feature = "cuda")]
use crate::collector::ReplayStage;
#[cfg(unix)]
use crate::collector::StallMonitor;
use crate::collector::{BudgetStage, Collector, Inbox, SessionStats};
#[cfg(target_os = "linux")]
use crate::control;
use crate::error::Error;
#[cfg(unix)]
use crate::flight::{Flight, FlightPlan};
use crate::nvtx;
#[cfg(unix)]
use crate::settings::FlightSettings;
use crate::settings::{Config, Filter, KEPT, SessionBuilder, unmatched};
#[cfg(feature = "tracing")]
use crate::spans::log::LogSink;
use warpline_core::backend::Limits;
use warpline_core::catalog::catalog;
use warpline_core::inside;
use warpline_core::inside::Inside;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::report::Report;
#[cfg(unix)]
use warpline_core::sample::Share;
use warpline_core::sink::SessionInfo;
use warpline_core::stream::current;
use warpline_core::stream::recorder::Recorder;
use warpline_core::switch;
#[cfg(feature = "cuda")]
use warpline_core::timing::GraphTiming;
#[cfg(feature = "cuda")]
use warpline_cuda::{calibrate, stamps};
use warpline_trace::chrome::ChromeSink;
use warpline_trace::files::claim;
use warpline_trace::files::claim::FileClaim;
use warpline_trace::perfetto::FlightSink;
use warpline_trace::perfetto::{PerfettoSink, RotatingSink};

impl Session {
    /// A session for those who ask from outside: the requests in this inbox.
    #[cfg(target_os = "linux")]
    fn hold(config: Config, guests: Arc<Inbox>) -> Result<Box<dyn control::HeldSession>, Error> {
        let mut builder = SessionBuilder::default();
        builder.config = config;
        Ok(Box::new(builder.start_recording(guests, true)?))
    }
}

#[cfg(target_os = "linux")]
impl control::HeldSession for Session {
    fn start(&self) {
        Session::start(self);
    }

    fn stop(&self) {
        Session::stop(self);
    }

    fn narrow(&self, filters: Vec<Filter>) {
        Session::narrow(self, filters);
    }

    fn finish(self: Box<Self>) -> Report {
        Session::finish(*self)
    }
}

/// Starts what the settings say.
pub(super) fn begin(mut builder: SessionBuilder) -> Result<Session, Error> {
    let _inside = Inside::enter();
    builder.check()?;
    nvtx::look(builder.config.nvtx);
    if builder.config.off {
        return Ok(Session::with(None));
    }
    #[cfg(target_os = "linux")]
    if builder.config.control {
        return builder.start_listening();
    }
    builder.start_recording(Arc::default(), false)
}

impl SessionBuilder {
    /// The program can be asked from outside; without anywhere to write to it records only what is asked for. Where nobody can
    /// ask, it does all else that it was started for.
    #[cfg(target_os = "linux")]
    fn start_listening(self) -> Result<Session, Error> {
        let listening = control::Listening::start(&self.config, Session::hold);
        let records = self.config.has_output() || !self.sinks.is_empty();
        let (filters, mut session) = match records {
            true => (Vec::new(), self.start_recording(Arc::default(), false)?),
            false => (unmatched(&self.config.filters), Session::with(None)),
        };
        filters.into_iter().for_each(|text| session.warn(text));
        match listening {
            Ok(listening) => session.listening = Some(listening),
            Err(why) => session.warn(format!("the program cannot be asked from outside: {why}")),
        }
        Ok(session)
    }

    /// Starts recording, for the program or for those who ask from outside.
    fn start_recording(self, guests: Arc<Inbox>, is_held: bool) -> Result<Session, Error> {
        let faults = catalog().faults();
        if !faults.is_empty() {
            return Err(Error::Catalog(faults));
        }
        #[cfg(feature = "cuda")]
        warpline_cuda::register();
        let info = SessionInfo::now();
        let limits = Limits {
            zones: self.config.ring,
            events: self.config.events,
            ends: self.config.ends,
            watch: self.config.flight.is_some(),
        };
        let reserve = || current::reserve(|epoch| Arc::new(Recorder::new(epoch, limits)));
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
        match self.run(recorder, guests, &info, is_held) {
            Ok(running) => {
                switch::turn_on(epoch);
                Ok(Session::with(Some(running)))
            }
            Err(error) => {
                #[cfg(feature = "cuda")]
                {
                    stamps::turn_off();
                    calibrate::finish();
                }
                current::remove(epoch);
                Err(error)
            }
        }
    }

    /// Makes everything that a session needs, and lets no zone begin yet.
    fn run(
        mut self,
        recorder: Arc<Recorder>,
        guests: Arc<Inbox>,
        info: &SessionInfo,
        is_held: bool,
    ) -> Result<Running, Error> {
        inside::reset();
        let tally = Arc::new(SessionStats::default());
        // No file is changed before all of them are ours, and there is a thread to write them. The flight recorder's comes first, because
        // it can be taken back.
        let files = self.claim_files()?;
        let (thread, done) = CollectorThread::spawn().map_err(Error::Thread)?;
        #[cfg(unix)]
        let flight = self.open_flight(info)?;
        let files = self.begin_files(files, &tally);
        #[cfg(unix)]
        if let (Err(_), Some(flight)) = (&files, &flight) {
            flight.undo();
        }
        #[cfg_attr(not(unix), expect(unused_mut, reason = "the flight recorder's file comes later"))]
        let mut written = files?;
        self.add_guest_sinks();
        #[cfg(unix)]
        if let Some(flight) = &flight {
            self.sinks.push(Box::new(FlightSink::new(Arc::clone(flight.ring()))));
            flight.notice.iter().for_each(|notice| tally.warn(notice.clone()));
            if !flight.is_temporary {
                written.push(Written::new(Format::Flight, &flight.ring().path));
            }
        }
        for range in catalog() {
            range.chance().reset(self.config.wants(range));
        }
        lock(&tally.left_out).see_ranges();
        lock(&tally.notes).extend(nvtx::problem());
        if !is_held {
            warn::at_start(&self.config, !self.sinks.is_empty(), self.environment.as_ref(), &tally);
        }
        if self.config.calibrate {
            lock(&tally.notes).extend(start_calibration());
        }
        let sample = Share::new(self.config.sample);
        let budget = self.config.budget.map(|share| Budget::new(share, sample.clone()));
        // Before the sinks start: they are told whether there will be kernels.
        #[cfg(feature = "cupti")]
        let kernels = self.config.kernels.then(warpline_cuda::cupti::Kernels::start);
        #[cfg(feature = "cupti")]
        let info = &SessionInfo { kernels: matches!(kernels, Some(Ok(_))), ..info.clone() };
        #[cfg(all(feature = "cupti", target_os = "linux"))]
        let has_kernels = kernels.as_ref().map(|kernels| kernels.as_ref().map(drop).map_err(Clone::clone));
        #[cfg(all(not(feature = "cupti"), target_os = "linux"))]
        let has_kernels = None;
        let (mine, its) = (Arc::clone(&recorder), Arc::clone(&tally));
        let mut collector = Collector::new(mine, its, self.sinks, info, self.config.ends);
        budget.into_iter().for_each(|budget| collector.add(BudgetStage(budget)));
        #[cfg(feature = "cupti")]
        let kernels = kernels.and_then(|kernels| KernelStage::new(kernels, &tally));
        #[cfg(feature = "cupti")]
        kernels.into_iter().for_each(|stage| collector.add(stage));
        #[cfg(feature = "cuda")]
        if self.config.graph_timing == GraphTiming::Stamps {
            stamps::turn_on();
            stamps::want_current();
            collector.add(ReplayStage::new(&recorder, &tally));
        }
        collector.take_requests_from(Arc::clone(&guests));
        #[cfg(unix)]
        if let Some(flight) = &flight {
            collector.add(StallMonitor::new(Arc::clone(flight)));
        }
        let collector = thread.run(collector);
        recorder.waker.set(collector.clone());
        #[cfg(target_os = "linux")]
        control::begin(control::Current {
            epoch: recorder.epoch(),
            recorder: Arc::clone(&recorder),
            tally: Arc::clone(&tally),
            guests,
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
            process: Process::this(),
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
            written,
        })
    }

    /// Opens and locks the files that the settings name. None that is there is changed.
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

    /// Makes the sinks of these files, and says which have another name than was asked for.
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

    /// Makes the sinks that hand zones to other libraries.
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

    /// Makes the flight recorder that the settings name.
    #[cfg(unix)]
    fn open_flight(&self, info: &SessionInfo) -> Result<Option<Arc<Flight>>, Error> {
        let Config { flight, stall, dump_on_sigusr2, .. } = &self.config;
        let Some(FlightSettings { bytes, path }) = flight else { return Ok(None) };
        let plan = FlightPlan { bytes: *bytes, path: path.as_deref(), stall: *stall, on_signal: *dump_on_sigusr2 };
        Flight::create(&plan, info).map(Some).map_err(|(path, problem)| Error::Flight { path, problem })
    }
}

/// A file that is ours, and not changed yet.
enum Claimed {
    /// The first of several, and the path that was asked for. It is new.
    Rotating(PathBuf, Box<RotatingSink>),
    Perfetto(FileClaim),
    Chrome(FileClaim),
}

/// A thread that waits for the collector. It ends when it is dropped without one.
struct CollectorThread {
    thread: Thread,
    waiting: Option<(JoinHandle<()>, Sender<Collector>)>,
}

impl CollectorThread {
    /// The thread, and what says that its collector has come to its end.
    fn spawn() -> io::Result<(CollectorThread, Receiver<()>)> {
        let (give, given) = mpsc::channel::<Collector>();
        let (say_done, done) = mpsc::channel();
        let thread = std::thread::Builder::new().name("warpline".to_owned()).spawn(move || {
            let Ok(collector) = given.recv() else { return };
            collector.run();
            // Nobody listens when `finish` gave up.
            let _ = say_done.send(());
        })?;
        Ok((CollectorThread { thread: thread.thread().clone(), waiting: Some((thread, give)) }, done))
    }

    /// Runs the collector on the thread.
    fn run(mut self, collector: Collector) -> Thread {
        if let Some((_, give)) = self.waiting.take() {
            // The thread waits for it.
            let _ = give.send(collector);
        }
        self.thread.clone()
    }
}

impl Drop for CollectorThread {
    fn drop(&mut self) {
        if let Some((thread, give)) = self.waiting.take() {
            drop(give);
            let _ = thread.join();
        }
    }
}

/// Begins to measure what events add to a kernel; says why that cannot be.
#[cfg(feature = "cuda")]
fn start_calibration() -> Option<String> {
    calibrate::start();
    None
}

#[cfg(not(feature = "cuda"))]
fn start_calibration() -> Option<String> {
    Some("nothing was calibrated: this program was built without warpline's feature `cuda`".to_owned())
}
