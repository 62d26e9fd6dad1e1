//! A session that records: what its handle and the collector's thread share, and how it stops, changes and ends.
//!
//! The handle ([`Session`](super::Session)) and `control` call it, on any thread and in the middle of zones. Nothing here waits for
//! a zone or a device; the end waits for the collector, and no longer than it was told to.

#[cfg(unix)]
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::warn;
use super::written::{self, Written};
use crate::collector::SessionStats;
#[cfg(target_os = "linux")]
use crate::control;
use crate::error::Error;
#[cfg(unix)]
use crate::flight::Flight;
use crate::nvtx;
use crate::settings::Config;
use warpline_core::catalog::catalog;
#[cfg(unix)]
use warpline_core::file_name;
use warpline_core::inside;
use warpline_core::inside::Inside;
use warpline_core::lock::lock;
use warpline_core::process::Process;
#[cfg(unix)]
use warpline_core::recovered::RecoverError;
use warpline_core::recovered::Recovered;
use warpline_core::report::Report;
use warpline_core::sample::Share;
use warpline_core::sink::Change;
use warpline_core::stderr;
use warpline_core::stream::current;
use warpline_core::stream::recorder::Recorder;
use warpline_core::switch;
#[cfg(feature = "cuda")]
use warpline_cuda::stamps;

#[cfg(target_os = "linux")]
pub(super) use crate::control::Listening;
/// Nobody can ask from outside here.
#[cfg(not(target_os = "linux"))]
pub(super) enum Listening {}

/// As good as for ever, and no clock overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How much longer than its time limit `finish` waits for a sink that does not return.
const GRACE: Duration = Duration::from_millis(500);

/// What there is of a session as long as it records or may record again.
pub(super) struct Running {
    /// Where its collector is.
    pub(super) process: Process,
    pub(super) epoch: NonZeroU32,
    pub(super) recorder: Arc<Recorder>,
    pub(super) tally: Arc<SessionStats>,
    pub(super) collector: Thread,
    /// Only `finish` waits for it; the lock makes the session `Sync`.
    pub(super) done: Mutex<Receiver<()>>,
    pub(super) started: Instant,
    /// The settings as they are by now. Whoever changes the session holds the lock.
    pub(super) config: Mutex<Config>,
    /// The config's `sample`, for the collector.
    pub(super) sample: Share,
    #[cfg(unix)]
    pub(super) flight: Option<Arc<Flight>>,
    /// It is held for those who ask from outside: what they change of it is no change of the program's.
    pub(super) is_held: bool,
    /// The files that it writes, but for those of a trace that is rotated.
    pub(super) written: Vec<Written>,
}

/// Why a session that never ran has an empty report: its settings said so, and nothing more is to be said.
pub(super) fn why_nothing() -> Vec<String> {
    Vec::new()
}

impl Running {
    /// Whether this is the process that records, and not one that was forked from it.
    pub(super) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Says it now, and in the report.
    pub(super) fn warn(&self, text: String) {
        self.tally.warn(text);
    }

    /// Writes the flight recorder's zones to a trace.
    pub(super) fn dump(&self, path: &Path) -> Result<Recovered, Error> {
        #[cfg(unix)]
        if let Some(flight) = &self.flight {
            let no_name = |problem| RecoverError::Write(io::Error::new(io::ErrorKind::InvalidInput, problem));
            let dump = || flight.dump(&file_name::expand(path).map_err(no_name)?);
            return dump().map_err(|source| Error::Dump { path: path.to_owned(), source });
        }
        let _ = path;
        Err(Error::NoFlight)
    }

    /// Finishes, and prints the notes of the report that were not printed before.
    pub(super) fn abandon(self) {
        if !self.is_here() {
            drop(self.finish());
            return;
        }
        let tally = Arc::clone(&self.tally);
        let report = self.finish();
        let said = nvtx::problem();
        let is_said = |note: &&String| said.as_ref() == Some(note) || tally.has_warned(note);
        report.notes.iter().filter(|note| !is_said(note)).for_each(stderr::line);
    }

    /// Whether zones that begin now are recorded.
    pub(super) fn is_on(&self) -> bool {
        switch::epoch() == Some(self.epoch)
    }

    /// Lets no zone begin from now on.
    pub(super) fn stop(&self) {
        // Of two threads, one stops it before the other starts it, in all that follows from it.
        let _turn = lock(&self.config);
        let was_on = self.is_on();
        switch::turn_off(self.epoch);
        #[cfg(feature = "cuda")]
        self.recorder.is_stopped.store(true, Ordering::Release);
        if was_on {
            #[cfg(feature = "cuda")]
            self.recorder.pauses.begin();
            if !self.is_held {
                lock(&self.tally.left_out).set_stopped(true);
            }
            self.note(Change::Stopped);
        }
    }

    /// Lets zones begin again.
    pub(super) fn start(&self) {
        let _turn = lock(&self.config);
        let was_on = self.is_on();
        switch::turn_on(self.epoch);
        #[cfg(feature = "cuda")]
        self.recorder.is_stopped.store(false, Ordering::Release);
        if !was_on {
            #[cfg(feature = "cuda")]
            self.recorder.pauses.end();
            lock(&self.tally.left_out).set_stopped(false);
            self.note(Change::Started);
        }
        self.collector.unpark();
    }

    /// Changes the settings, and what follows from them for each range.
    pub(super) fn change(&self, what: Change, change: impl FnOnce(&mut Config)) {
        let mut config = lock(&self.config);
        change(&mut config);
        self.sample.set(config.sample);
        for range in catalog() {
            range.chance().set(config.wants(range));
        }
        lock(&self.tally.left_out).see_ranges();
        // Under the lock, so that changes are told in the order in which they were made.
        self.note(what);
    }

    /// Stops, waits for the collector within the time limit, and says what became of everything.
    pub(super) fn finish(self) -> Report {
        let _inside = Inside::enter();
        if !self.process.is_this() {
            // What it shares with the collector may be locked for ever, and its files are the parent's.
            std::mem::forget(self);
            let note =
                "this process was forked from the one that records: its zones are in no trace; start a session here";
            return Report { notes: vec![note.to_owned()], ..Report::default() };
        }
        switch::turn_off(self.epoch);
        #[cfg(feature = "cuda")]
        stamps::turn_off();
        let (finish_timeout, summary, quiet) = {
            let config = lock(&self.config);
            (config.finish_timeout.min(LONGEST), config.summary, config.quiet)
        };
        let deadline = Instant::now() + finish_timeout;
        *lock(&self.tally.deadline) = Some(deadline);
        self.collector.unpark();
        let waited = lock(&self.done).recv_timeout(finish_timeout + GRACE);
        if let Err(why) = waited {
            self.give_up(why);
        }
        let is_written = waited.is_ok();
        #[cfg(target_os = "linux")]
        control::end(self.epoch);
        #[cfg(unix)]
        if let Some(flight) = &self.flight {
            flight.end(deadline.saturating_duration_since(Instant::now()).max(GRACE));
            let is_new = |problem: &String| !self.tally.has_warned(problem);
            let problems: Vec<_> = flight.problems().into_iter().filter(is_new).collect();
            lock(&self.tally.notes).extend(problems);
        }
        let duration = self.started.elapsed();
        self.recorder.close();
        #[cfg(feature = "cuda")]
        lock(&self.tally.notes).extend(warpline_cuda::graph::note().chain(warpline_cuda::calibrate::finish()));
        if is_written {
            let sinks = lock(&self.tally.sinks).clone();
            written::moved(&self.written, &sinks).for_each(|note| self.tally.warn(note));
        }
        lock(&self.tally.notes).extend(inside::note());
        let mut report = self.tally.report(&self.recorder, duration);
        current::remove(self.epoch);
        warn::of_failed_sinks(&report);
        if summary {
            report.print();
            report.is_printed = true;
        }
        if is_written && !quiet {
            written::say(&self.written, &report);
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

    fn note(&self, change: Change) {
        if !self.is_held {
            self.tally.note_change(change);
        }
    }
}
