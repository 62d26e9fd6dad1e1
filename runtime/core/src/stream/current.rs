//! The recorder of the current session: one per process, whether it is recording or not.
//!
//! A session reserves the place when it starts, and removes its recorder when it ends. Threads look the recorder up on the first use of a
//! session or a stream.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::recorder::Recorder;
use crate::backend::{self, StreamKey};
use crate::fork::PerProcess;
use crate::lock::{self, Locked};
use crate::switch::{self, MAX_EPOCH};

static RECORDER: PerProcess<Mutex<Option<Arc<Recorder>>>> = PerProcess::new(Mutex::default);

/// A forked child continues the count, so its epochs differ from those of its parent. Only `reserve` writes this, under the lock.
static LAST_EPOCH: AtomicU32 = AtomicU32::new(0);

/// Returns the recorder of the session of this epoch, if that session exists.
pub fn recorder(epoch: NonZeroU32) -> Option<Arc<Recorder>> {
    lock().clone().filter(|recorder| recorder.epoch() == epoch)
}

/// Returns the recorder, if there is a session.
pub(crate) fn any() -> Option<Arc<Recorder>> {
    lock().clone()
}

/// Creates a recorder for a new epoch; none if there is another session.
pub fn reserve(make: impl FnOnce(NonZeroU32) -> Arc<Recorder>) -> Option<Arc<Recorder>> {
    backend::on_drop(forget);
    let mut slot = lock();
    if slot.is_some() {
        return None;
    }
    let last = LAST_EPOCH.load(Ordering::Relaxed);
    let epoch = if last == MAX_EPOCH { 1 } else { last + 1 };
    LAST_EPOCH.store(epoch, Ordering::Relaxed);
    let recorder = make(NonZeroU32::new(epoch)?);
    *slot = Some(Arc::clone(&recorder));
    Some(recorder)
}

/// Removes the recorder, so that another session can start.
pub fn remove(epoch: NonZeroU32) {
    switch::turn_off(epoch);
    let mut slot = lock();
    if slot.as_ref().is_some_and(|recorder| recorder.epoch() == epoch) {
        *slot = None;
    }
}

fn lock() -> Locked<'static, Option<Arc<Recorder>>> {
    lock::lock(&RECORDER)
}

/// The application has dropped a stream.
fn forget(key: StreamKey) {
    if let Some(recorder) = any() {
        recorder.forget(key);
    }
}
