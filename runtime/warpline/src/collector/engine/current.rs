//! The engines of this process: at most one that records for a session or for those who ask from outside, and at most one for requests.
//!
//! A forked child has none of its parent's.

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
    /// Taken by threads that begin zones: nothing is waited for under it.
    pub(super) requests: Mutex<Option<Arc<Recorder>>>,
    /// Whoever begins or ends an engine that is held has it for as long as that takes.
    pub(super) turn: Mutex<()>,
}

pub(super) static ENGINES: PerProcess<Engines> = PerProcess::new(Engines::default);

/// The engine that records, or may record again.
pub(crate) fn current() -> Option<Arc<Engine>> {
    lock(&ENGINES.recording).clone()
}

/// It runs.
pub(super) fn add(engine: &Arc<Engine>) {
    *lock(&ENGINES.recording) = Some(Arc::clone(engine));
}

/// It is over.
pub(super) fn forget(engine: &Engine) {
    lock(&ENGINES.recording).take_if(|current| std::ptr::eq(&**current, engine));
}

/// Ends the engine that is held for those who ask from outside, if there is one: the program starts a session, or nobody subscribes
/// any more. Nobody reads its report; what it leaves in the program is said here.
pub(crate) fn end_held() {
    let _turn = lock(&ENGINES.turn);
    if let Some(engine) = current().filter(|engine| engine.is_held) {
        let (report, _) = engine.finish();
        report.notes.iter().filter(|note| note.starts_with(CUPTI_STAYS)).for_each(stderr::line);
    }
}
