//! Starts an engine: reserves the recorder, creates the stages that the settings need, and runs the collector on its thread.
//!
//! Steps that can fail come first. An [`EngineBuilder`] that is dropped before it runs leaves nothing behind.

use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use super::{Engine, current};
use crate::collector::Collector;
#[cfg(feature = "cupti")]
use crate::collector::KernelStage;
#[cfg(feature = "cuda")]
use crate::collector::ReplayStage;
#[cfg(unix)]
use crate::collector::StallMonitor;
use crate::collector::budget::Budget;
use crate::collector::session_stats::{SessionStats, session_figures};
use crate::collector::subscriptions::Inbox;
use crate::error::Error;
use crate::exit;
#[cfg(unix)]
use crate::flight::Flight;
use crate::nvtx;
use crate::settings::Config;
use warpline_core::backend::Limits;
use warpline_core::catalog::catalog;
use warpline_core::dynamic;
use warpline_core::inside;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::stream::current as reserved;
use warpline_core::stream::recorder::Recorder;
use warpline_core::threads;
use warpline_core::timing::GraphTiming;
#[cfg(feature = "cuda")]
use warpline_cuda::{calibrate, stamps};
use warpline_report::sink::SessionInfo;
use warpline_report::sink::held::HeldSinks;

/// An engine that has its recorder and does not run yet.
pub(crate) struct EngineBuilder {
    pub(crate) tally: Arc<SessionStats>,
    #[cfg(unix)]
    pub(crate) flight: Option<Arc<Flight>>,
    pub(super) inbox: Arc<Inbox>,
    pub(crate) recorder: Arc<Recorder>,
    reservation: Reservation,
    is_held: bool,
}

/// The reservation of the process's only recorder. Dropping it frees the recorder's place.
struct Reservation(NonZeroU32);

impl Drop for Reservation {
    fn drop(&mut self) {
        reserved::remove(self.0);
    }
}

impl EngineBuilder {
    /// Creates the recorder, for the program or for external subscriptions. An engine for external subscriptions gives way to the
    /// program.
    ///
    /// # Errors
    /// [`Error::Catalog`], and [`Error::AlreadyRecording`] if there is an engine.
    pub(crate) fn reserve(config: &Config, is_held: bool) -> Result<EngineBuilder, Error> {
        let faults = catalog().faults();
        if !faults.is_empty() {
            return Err(Error::Catalog(faults));
        }
        #[cfg(feature = "cuda")]
        warpline_cuda::register();
        let Config { ring, events, ends, .. } = *config;
        let limits = Limits { zones: ring, events, ends, watch: config.flight.is_some() || config.ranks.is_some() };
        let reserve = || reserved::reserve(|epoch| Arc::new(Recorder::new(epoch, limits)));
        let mut recorder = reserve();
        if recorder.is_none() && !is_held {
            recorder = current::replace_held(reserve);
        }
        let recorder = recorder.ok_or(Error::AlreadyRecording)?;
        let _ = recorder.on_device.set(exit::watch_device);
        inside::reset();
        Ok(EngineBuilder {
            tally: Arc::default(),
            #[cfg(unix)]
            flight: None,
            inbox: Arc::default(),
            reservation: Reservation(recorder.epoch()),
            recorder,
            is_held,
        })
    }

    /// Creates everything that the settings need, and runs the collector on the thread. No zone begins yet.
    pub(crate) fn run(
        self,
        (thread, done): (CollectorThread, Receiver<()>),
        config: Config,
        sinks: HeldSinks,
        info: &SessionInfo,
    ) -> Arc<Engine> {
        let EngineBuilder { recorder, tally, inbox, reservation, is_held, .. } = self;
        // The engine releases it at its end.
        std::mem::forget(reservation);
        for range in catalog() {
            range.chance().reset(config.wants(range));
        }
        let wants = config.clone();
        dynamic::choose(true, move |range| wants.wants(range));
        lock(&tally.left_out).see_ranges();
        *lock(&tally.figures) = session_figures(false);
        lock(&tally.notes).extend(nvtx::problem());
        nvtx::begin_session();
        lock(&tally.notes).extend(roctx_problem(&config));
        #[cfg(feature = "timeline")]
        if let Some(events) = config.event_pool_capacity {
            warpline_timeline::set_event_pool_capacity(events);
        }
        if config.calibrate {
            lock(&tally.notes).extend(start_calibration());
        }
        // Before the sinks start, because they learn then whether there will be kernels.
        #[cfg(feature = "cupti")]
        let (stage, kernels) = KernelStage::start(&config, &recorder, &tally);
        #[cfg(not(feature = "cupti"))]
        let kernels: Option<Result<(), String>> = None;
        let info = &SessionInfo { kernels: matches!(kernels, Some(Ok(()))), ..info.clone() };
        let (its, figures, requests) = (Arc::clone(&recorder), Arc::clone(&tally), Arc::clone(&inbox));
        let mut collector = Collector::new(its, figures, requests, sinks, info);
        if let Some(share) = config.budget {
            if config.kernels || config.graph_timing != GraphTiming::Off {
                recorder.windows().take_captures();
            }
            let budget = Budget::new(recorder.windows(), share);
            *lock(&tally.windows) = Some(budget.figures());
            collector.add(budget);
        }
        #[cfg(feature = "cupti")]
        stage.into_iter().for_each(|stage| collector.add(stage));
        #[cfg(feature = "cuda")]
        if config.graph_timing != GraphTiming::Off {
            recorder.windows().take_captures();
            stamps::turn_on(config.graph_timing == GraphTiming::LaunchOrderStamps);
            stamps::want_current();
            collector.add(ReplayStage::new(&recorder, &tally));
        }
        #[cfg(unix)]
        if let Some(flight) = &self.flight {
            collector.add(StallMonitor::new(Arc::clone(flight)));
        }
        recorder.steps().begin_session(config.schedule());
        let collector = thread.run(collector);
        let engine = Arc::new(Engine {
            process: Process::this(),
            recorder,
            tally,
            inbox,
            collector: collector.clone(),
            done: Mutex::new(done),
            started: Instant::now(),
            config: Mutex::new(config),
            is_held,
            kernels,
            #[cfg(unix)]
            flight: self.flight,
        });
        current::add(&engine);
        #[cfg(unix)]
        if let Some(flight) = &engine.flight {
            flight.begin(collector, || current::current()?.flight.clone());
        }
        engine
    }
}

/// A thread that waits for its collector. It ends if it is dropped without one.
pub(crate) struct CollectorThread {
    thread: Thread,
    waiting: Option<(JoinHandle<()>, Sender<Collector>)>,
}

impl CollectorThread {
    /// Spawns the thread. Also returns a receiver that is notified when its collector has ended.
    ///
    /// # Errors
    /// The reason why there is no thread.
    pub(crate) fn spawn(name: &str) -> io::Result<(CollectorThread, Receiver<()>)> {
        let (give, given) = mpsc::channel::<Collector>();
        let (say_done, done) = mpsc::channel();
        let thread = threads::spawn(name, move || {
            let Ok(collector) = given.recv() else { return };
            collector.run();
            // The receiver is gone if `finish` gave up.
            let _ = say_done.send(());
        })?;
        Ok((CollectorThread { thread: thread.thread().clone(), waiting: Some((thread, give)) }, done))
    }

    /// Runs the collector on the thread.
    pub(super) fn run(mut self, collector: Collector) -> Thread {
        if let Some((_, give)) = self.waiting.take() {
            // The thread is waiting for it.
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

/// Returns why no zone reaches roctx, if the settings ask for that.
#[cfg(feature = "hip")]
fn roctx_problem(_: &Config) -> Option<String> {
    crate::roctx::problem()
}

#[cfg(not(feature = "hip"))]
fn roctx_problem(config: &Config) -> Option<String> {
    let is_asked = config.roctx == Some(true);
    is_asked.then(|| "no zone reaches roctx: this program was built without warpline's feature `hip`".to_owned())
}

/// Starts to measure what events add to a kernel. Returns the reason if that is not possible.
#[cfg(feature = "cuda")]
fn start_calibration() -> Option<String> {
    calibrate::start();
    None
}

#[cfg(not(feature = "cuda"))]
fn start_calibration() -> Option<String> {
    Some("nothing was calibrated: this program was built without warpline's feature `cuda`".to_owned())
}
