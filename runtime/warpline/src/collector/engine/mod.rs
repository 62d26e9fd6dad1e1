//! An engine: a recorder, the collector that reads it, and the collector's thread. Every consumer of records subscribes to one.
//!
//! A session starts an engine with its sinks. `control` subscribes to the running engine, or starts one that is held for external
//! subscriptions (`subscribe`). A request for a zone that no session records uses a separate engine (`requests`). `start` creates an
//! engine from settings, and `current` holds the engines of the process.
//!
//! Any thread may call an engine, also inside zones. No call waits for a zone or a device. `finish` waits for the collector, but no
//! longer than the time limit.

mod current;
mod requests;
mod sinks;
mod start;
#[cfg(feature = "cupti")]
pub(crate) mod submissions;
mod subscribe;

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::budget;
use super::session_stats::SessionStats;
use super::stage::GivesKernels;
use super::subscriptions::Inbox;
use crate::flight::Flight;
use crate::mirror::nvtx;
use crate::settings::Config;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::dynamic;
use warpline_core::if_feature;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::reentrancy;
use warpline_core::reentrancy::Inside;
use warpline_core::sample::Wanted;
use warpline_core::stream::recorder::{self, Recorder};
use warpline_core::switch;
use warpline_core::timing::GraphTiming;
use warpline_report::Report;
use warpline_report::sink::Change;

pub(crate) use current::{current, end_held};
pub(crate) use requests::for_requests;
pub(crate) use start::{CollectorThread, EngineBuilder};
pub(crate) use subscribe::{Subscriber, subscribe};

/// A practically infinite time that overflows no clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time beyond its limit that `finish` waits for a sink that does not return.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// An engine that records, or may record again. A process has at most one, not counting the one for requests.
pub(crate) struct Engine {
    /// The process of its collector.
    process: Process,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) stats: Arc<SessionStats>,
    inbox: Arc<Inbox>,
    collector: Thread,
    /// The end of the collector. Only `finish` waits for it; the lock makes the engine `Sync`.
    done: Mutex<Receiver<()>>,
    started: Instant,
    /// The current settings. Code that changes the engine holds the lock.
    pub(crate) config: Mutex<Config>,
    /// Whether it is held for external subscriptions: their changes to it are not changes by the program.
    pub(crate) is_held: bool,
    pub(crate) kernels: GivesKernels,
    pub(crate) flight: Option<Arc<Flight>>,
}

impl Engine {
    /// Returns whether this is the process that records, and not a fork of it.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Returns whether zones that begin now are recorded.
    pub(crate) fn is_on(&self) -> bool {
        switch::epoch() == Some(self.epoch())
    }

    pub(crate) fn epoch(&self) -> NonZeroU32 {
        self.recorder.epoch()
    }

    /// Warns on standard error now, and in the report.
    pub(crate) fn warn(&self, text: String) {
        self.stats.warn(text);
    }

    /// Returns whether this thread is its collector's, which cannot wait for itself.
    pub(crate) fn is_on_collector(&self) -> bool {
        std::thread::current().id() == self.collector.id()
    }

    /// Stops recording: no zone begins from now on.
    pub(crate) fn stop(&self) {
        // Serialises concurrent stops and starts, including their effects.
        let turn = lock(&self.config);
        let was_on = !self.recorder.steps().is_stopped();
        self.recorder.turn_off();
        self.recorder.is_stopped.store(true, Ordering::Release);
        if was_on {
            self.recorder.pauses.begin();
            if !self.is_held {
                lock(&self.stats.left_out).set_stopped(true);
            }
            self.note(Change::Stopped);
            if turn.budget.is_some() {
                // The time of the budget stands still from now on.
                self.collector.unpark();
            }
        }
    }

    /// Resumes recording: zones may begin again.
    pub(crate) fn start(&self) {
        let turn = lock(&self.config);
        let was_on = !self.recorder.steps().is_stopped();
        if turn.budget.is_some() && !was_on {
            budget::suspend(self.recorder.windows());
        }
        self.recorder.turn_on();
        self.recorder.is_stopped.store(false, Ordering::Release);
        if !was_on {
            self.recorder.pauses.end();
            lock(&self.stats.left_out).set_stopped(false);
            self.note(Change::Started);
        }
        self.collector.unpark();
    }

    /// Changes the settings, and applies them to each range.
    pub(crate) fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        let mut config = lock(&self.config);
        change(&mut config);
        self.choose_ranges(&config, |_| true);
        // Under the lock, so that changes are reported in the order in which they were made.
        self.note(what);
    }

    /// Records, from now on, zones of the ranges that the settings want and `fits` accepts.
    fn choose_ranges(&self, config: &Config, fits: impl Fn(&str) -> bool + Send + Sync + 'static) {
        let config = config.clone();
        let wants = move |range: &RangeSpec| if fits(range.name()) { config.wants(range) } else { Wanted::None };
        for range in catalog() {
            range.chance().set(wants(range));
        }
        dynamic::choose(false, wants);
        lock(&self.stats.left_out).see_ranges();
    }

    fn note(&self, change: Change) {
        if !self.is_held {
            self.stats.note_change(change);
        }
    }

    /// Stops, waits for the collector within the time limit, and creates the report. Also returns whether the collector ended. Called
    /// once, in the process that records.
    pub(crate) fn finish(&self) -> (Report, bool) {
        let _inside = Inside::enter();
        let duration = *self.stats.duration.get_or_init(|| self.started.elapsed());
        self.recorder.turn_off();
        self.recorder.steps().end_session();
        if_feature!("cuda", warpline_cuda::stamps::turn_off(), ());
        let finish_timeout = lock(&self.config).finish_timeout.min(LONGEST);
        let deadline = Instant::now() + finish_timeout;
        *lock(&self.stats.deadline) = Some(deadline);
        self.collector.unpark();
        let waited = lock(&self.done).recv_timeout(finish_timeout + GRACE);
        if let Err(why) = waited {
            self.give_up(why);
        }
        current::forget(self);
        if let Some(flight) = &self.flight {
            flight.end(deadline.saturating_duration_since(Instant::now()).max(GRACE));
            let is_new = |problem: &String| !self.stats.has_warned(problem);
            let problems: Vec<_> = flight.problems().into_iter().filter(is_new).collect();
            lock(&self.stats.notes).extend(problems);
        }
        self.recorder.close();
        let needs_ids = lock(&self.config).graph_timing == GraphTiming::Off;
        // Not under the lock of the notes: the driver and the graphs have locks of their own.
        let notes = cuda_notes(needs_ids);
        lock(&self.stats.notes).extend(notes);
        lock(&self.stats.notes).extend(nvtx::refusals());
        lock(&self.stats.notes).extend(dynamic::note());
        lock(&self.stats.notes).extend(reentrancy::note());
        let report = self.stats.report(&self.recorder, duration);
        recorder::remove(self.epoch());
        (report, waited.is_ok())
    }

    /// Abandons a collector that did not return, and notes in the report where it is.
    fn give_up(&self, why: RecvTimeoutError) {
        self.stats.abandoned.store(true, Ordering::Release);
        let note = match (why, self.stats.inside()) {
            (RecvTimeoutError::Timeout, Some(sink)) => {
                format!("sink {sink} did not return in time; its output is not complete")
            }
            (RecvTimeoutError::Timeout, None) => "the collector did not finish in time".to_owned(),
            (RecvTimeoutError::Disconnected, _) => {
                "the collector ended early; this is a fault of warpline, please report it".to_owned()
            }
        };
        lock(&self.stats.notes).push(note);
    }
}

/// Returns what the session's graphs and its calibration could not do. `needs_ids`: graphs are not timed by stamps.
fn cuda_notes(needs_ids: bool) -> Vec<String> {
    if_feature!("cuda", warpline_cuda::graph::note(needs_ids).chain(warpline_cuda::calibrate::finish()).collect(), {
        _ = needs_ids;
        Vec::new()
    })
}
