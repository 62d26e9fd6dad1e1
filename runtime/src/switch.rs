//! On or off: the one word that every zone reads first.
//!
//! Zero means off. Otherwise it is the epoch of the session that is on, so that a thread can tell whether the contexts it
//! remembers are of this session. The recorder behind it is only looked up when a thread meets a stream for the first time
//! in an epoch.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

use crate::stream::context::Recorder;

#[cfg(not(loom))]
static SWITCH: Switch = Switch::new();
#[cfg(loom)]
static SWITCH: std::sync::LazyLock<Switch> = std::sync::LazyLock::new(Switch::new);

static RECORDER: Mutex<Slot> = Mutex::new(Slot { last_epoch: 0, recorder: None });

struct Slot {
    last_epoch: u32,
    recorder: Option<Arc<Recorder>>,
}

/// The epoch of the session that is on.
#[inline(always)]
pub(crate) fn epoch() -> Option<NonZeroU32> {
    SWITCH.epoch()
}

/// The recorder of the session of this epoch, if it is still there.
pub(crate) fn recorder(epoch: NonZeroU32) -> Option<Arc<Recorder>> {
    lock().recorder.clone().filter(|recorder| recorder.epoch() == epoch)
}

/// The recorder that is there, on or off.
pub(crate) fn any_recorder() -> Option<Arc<Recorder>> {
    lock().recorder.clone()
}

/// Makes a recorder for a new epoch; none if another session is there.
pub(crate) fn reserve(make: impl FnOnce(NonZeroU32) -> Arc<Recorder>) -> Option<Arc<Recorder>> {
    let mut slot = lock();
    if slot.recorder.is_some() {
        return None;
    }
    slot.last_epoch = slot.last_epoch.checked_add(1).unwrap_or(1);
    let recorder = make(NonZeroU32::new(slot.last_epoch)?);
    slot.recorder = Some(Arc::clone(&recorder));
    Some(recorder)
}

/// Lets zones begin.
pub(crate) fn turn_on(epoch: NonZeroU32) {
    SWITCH.set(epoch.get());
}

/// Turns recording off; the recorder stays until [`remove`].
pub(crate) fn turn_off(epoch: NonZeroU32) {
    SWITCH.clear(epoch.get());
}

/// Makes room for another session.
pub(crate) fn remove(epoch: NonZeroU32) {
    turn_off(epoch);
    let mut slot = lock();
    if slot.recorder.as_ref().is_some_and(|recorder| recorder.epoch() == epoch) {
        slot.recorder = None;
    }
}

/// No code of a user's runs under this lock; a poisoned one holds a sound state.
fn lock() -> MutexGuard<'static, Slot> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word itself. Relaxed everywhere: whatever a zone finds through it is published by a lock or by the ring.
pub(crate) struct Switch(AtomicU32);

impl Switch {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Switch {
        Switch(AtomicU32::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Switch {
        Switch(AtomicU32::new(0))
    }

    #[inline(always)]
    pub(crate) fn epoch(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, epoch: u32) {
        self.0.store(epoch, Ordering::Relaxed);
    }

    /// Off, unless another epoch is on by now.
    pub(crate) fn clear(&self, epoch: u32) {
        let _ = self.0.compare_exchange(epoch, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
