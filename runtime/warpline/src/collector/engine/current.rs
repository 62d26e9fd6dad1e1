//! The engines of this process: at most one that records for a session or for external subscriptions, and at most one for requests.
//!
//! A forked child has none of its parent's engines.

use std::sync::{Arc, Mutex};

use super::Engine;
use warpline_core::fork::PerProcess;
use warpline_core::kernel::CUPTI_STAYS;
use warpline_core::lock::lock;
use warpline_core::stderr;
use warpline_core::stream::recorder::Recorder;

#[derive(Default)]
pub(super) struct Engines {
    recording: Mutex<Option<Arc<Engine>>>,
    /// Threads that begin zones take this lock, so nothing waits while holding it.
    pub(super) requests: Mutex<Option<Arc<Recorder>>>,
    /// The lock that a thread holds while it begins or ends the engine for external subscriptions.
    pub(super) turn: Mutex<()>,
}

pub(super) static ENGINES: PerProcess<Engines> = PerProcess::new(Engines::default);

/// Returns the engine that records, or may record again.
pub(crate) fn current() -> Option<Arc<Engine>> {
    lock(&ENGINES.recording).clone()
}

/// Registers an engine that runs.
pub(super) fn add(engine: &Arc<Engine>) {
    *lock(&ENGINES.recording) = Some(Arc::clone(engine));
}

/// Removes an engine that is over.
pub(super) fn forget(engine: &Engine) {
    lock(&ENGINES.recording).take_if(|current| std::ptr::eq(&**current, engine));
}

/// Ends the engine that is held for external subscriptions, if any: the last subscription has ended.
/// Its report is not read; the notes on what it leaves in the program go to standard error.
pub(crate) fn end_held() {
    let _turn = lock(&ENGINES.turn);
    end_held_in_turn();
}

/// Ends the engine that is held, and reserves its place for a session of the program before a subscriber can take it again.
pub(super) fn replace_held<T>(reserve: impl FnOnce() -> Option<T>) -> Option<T> {
    let _turn = lock(&ENGINES.turn);
    end_held_in_turn();
    reserve()
}

fn end_held_in_turn() {
    if let Some(engine) = current().filter(|engine| engine.is_held) {
        let (report, _) = engine.finish();
        report.notes.iter().filter(|note| note.starts_with(CUPTI_STAYS)).for_each(stderr::line);
    }
}
