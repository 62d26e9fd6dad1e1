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
use crate::collector::budget::Budget;
use crate::collector::session_stats::SessionStats;
use crate::collector::stage::{GivesKernels, Stage};
use crate::collector::subscriptions::Inbox;
use crate::error::Error;
use crate::exit;
use crate::flight::Flight;
use crate::mirror;
use crate::mirror::nvtx;
use crate::settings::Config;
use crate::settings::values::MOST_ZONES;
use warpline_core::backend::Limits;
use warpline_core::catalog::catalog;
use warpline_core::dynamic;
use warpline_core::if_feature;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::reentrancy;
use warpline_core::stream::recorder::{self, Recorder};
use warpline_core::stream::ring::MAX_CAPACITY;
use warpline_core::threads;
use warpline_core::timing::GraphTiming;
use warpline_report::sink::SessionInfo;
use warpline_report::sink::held::HeldSinks;

const _: () = assert!(MOST_ZONES == MAX_CAPACITY, "the settings know the maximum capacity of a ring");

/// An engine that has its recorder and does not run yet.
pub(crate) struct EngineBuilder {
    pub(crate) stats: Arc<SessionStats>,
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
        recorder::remove(self.0);
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
        if_feature!("cuda", warpline_cuda::register(), ());
        let Config { ring, events, ends, .. } = *config;
        let limits = Limits { zones: ring, events, ends, watch: config.flight.is_some() || config.ranks.is_some() };
        let reserve = || recorder::reserve(|epoch| Arc::new(Recorder::new(epoch, limits)));
        let mut recorder = reserve();
        if recorder.is_none() && !is_held {
            recorder = current::replace_held(reserve);
        }
        let recorder = recorder.ok_or(Error::AlreadyRecording)?;
        let _ = recorder.on_device.set(exit::watch_device);
        reentrancy::reset();
        Ok(EngineBuilder {
            stats: Arc::default(),
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
        let EngineBuilder { recorder, stats, flight, inbox, reservation, is_held } = self;
        // The engine releases it at its end.
        std::mem::forget(reservation);
        for range in catalog() {
            range.chance().reset(config.wants(range));
        }
        let wants = config.clone();
        dynamic::choose(true, move |range| wants.wants(range));
        lock(&stats.left_out).see_ranges();
        let problems = mirror::problems(&config);
        lock(&stats.notes).extend(problems);
        nvtx::begin_session();
        if let Some(events) = config.event_pool_capacity {
            if_feature!("timeline", warpline_timeline::set_event_pool_capacity(events), _ = events);
        }
        if config.calibrate {
            if_feature!("cuda", warpline_cuda::calibrate::start(), {
                let note = "nothing was calibrated: this program was built without warpline's feature `cuda`";
                lock(&stats.notes).push(note.to_owned());
            });
        }
        // Before the sinks start, because they learn then whether there will be kernels.
        let (kernel_stage, kernels) = start_kernels(&config, &recorder, &stats);
        let info = &SessionInfo { kernels: matches!(kernels, Some(Ok(()))), ..info.clone() };
        let (its, figures, requests) = (Arc::clone(&recorder), Arc::clone(&stats), Arc::clone(&inbox));
        let mut collector = Collector::new(its, figures, requests, sinks, info);
        if let Some(share) = config.budget {
            if config.kernels || config.graph_timing != GraphTiming::Off {
                recorder.windows().take_captures();
            }
            let budget = Budget::new(recorder.windows(), share);
            *lock(&stats.windows) = Some(budget.figures());
            collector.add(Box::new(budget));
        }
        let replay_stage = start_replays(&config, &recorder, &stats);
        [kernel_stage, replay_stage].into_iter().flatten().for_each(|stage| collector.add(stage));
        flight.iter().for_each(|flight| collector.watch(Arc::clone(flight)));
        recorder.steps().begin_session(config.schedule());
        let collector = thread.run(collector);
        let engine = Arc::new(Engine {
            process: Process::this(),
            recorder,
            stats,
            inbox,
            collector: collector.clone(),
            done: Mutex::new(done),
            started: Instant::now(),
            config: Mutex::new(config),
            is_held,
            kernels,
            flight,
        });
        current::add(&engine);
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

/// Starts CUPTI if the settings need it.
fn start_kernels(config: &Config, recorder: &Recorder, stats: &SessionStats) -> (Option<Box<dyn Stage>>, GivesKernels) {
    if_feature!("cupti", crate::collector::kernels::KernelStage::start(config, recorder, stats), {
        let _ = (config, recorder, stats);
        (None, None)
    })
}

/// Times zones in CUDA graphs from now on, if the settings ask for it.
fn start_replays(config: &Config, recorder: &Recorder, stats: &SessionStats) -> Option<Box<dyn Stage>> {
    if config.graph_timing == GraphTiming::Off {
        return None;
    }
    let in_order = config.graph_timing == GraphTiming::LaunchOrderStamps;
    if_feature!("cuda", Some(crate::collector::stamps::ReplayStage::start(in_order, recorder, stats)), {
        let _ = (in_order, recorder, stats);
        None
    })
}
