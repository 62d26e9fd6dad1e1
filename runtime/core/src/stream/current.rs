//! The recorder of the session that is there: one a process, on or off.
//!
//! A session reserves the place when it starts and removes its recorder at its end; threads look it up when they meet a session or
//! a stream for the first time.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::recorder::Recorder;
use crate::backend::{self, StreamKey};
use crate::fork::PerProcess;
use crate::lock::{self, Locked};
use crate::switch::{self, MAX_EPOCH};

static RECORDER: PerProcess<Mutex<Option<Arc<Recorder>>>> = PerProcess::new(Mutex::default);

/// A child goes on counting: no epoch of its own is one of its parent's. Only `reserve` writes it, under the lock.
static LAST_EPOCH: AtomicU32 = AtomicU32::new(0);

/// The recorder of the session of this epoch, if it is still there.
pub(crate) fn recorder(epoch: NonZeroU32) -> Option<Arc<Recorder>> {
    lock().clone().filter(|recorder| recorder.epoch() == epoch)
}

/// The recorder that is there, on or off.
fn any() -> Option<Arc<Recorder>> {
    lock().clone()
}

/// Makes a recorder for a new epoch; none if another session is there.
pub(crate) fn reserve(make: impl FnOnce(NonZeroU32) -> Arc<Recorder>) -> Option<Arc<Recorder>> {
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

/// Makes room for another session.
pub(crate) fn remove(epoch: NonZeroU32) {
    switch::turn_off(epoch);
    let mut slot = lock();
    if slot.as_ref().is_some_and(|recorder| recorder.epoch() == epoch) {
        *slot = None;
    }
}

fn lock() -> Locked<'static, Option<Arc<Recorder>>> {
    lock::lock(&RECORDER)
}

/// The application lets go of a stream.
fn forget(key: StreamKey) {
    if let Some(recorder) = any() {
        recorder.forget(key);
    }
}
