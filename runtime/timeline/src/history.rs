//! The history of a semaphore's signals during a session, which shows what ended a wait.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpline_core::clock::now_ns;
use warpline_core::fork::Home;
use warpline_core::stream::waits::GivenSignal;

/// The most signals that a history keeps; it keeps the latest ones.
const MOST: usize = 256;

/// The latest signals of one semaphore, in the order of their values.
#[derive(Debug)]
pub(crate) struct History {
    /// The semaphore's initial value, which is never signalled.
    initial: u64,
    /// Whether a signal was ever stored. Usually none was, and readers avoid the lock.
    is_used: AtomicBool,
    /// The process of the semaphore. In a forked child, the lock may be held forever.
    home: Home,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// The signals of one session.
    list: VecDeque<Arc<GivenSignal>>,
    /// Signals of this value and smaller ones are unknown.
    unknown: u64,
}

impl History {
    pub(crate) fn new(initial: u64) -> History {
        History { initial, is_used: AtomicBool::new(false), home: Home::here(), notes: Mutex::default() }
    }

    /// Returns whether the semaphore was created with this value or a greater one. Waiting for it is not recorded.
    pub(crate) fn is_initial(&self, value: u64) -> bool {
        value <= self.initial
    }

    /// Stores a signal that is about to be submitted. `submitted` is the greatest value submitted before it.
    pub(crate) fn note(&self, note: Arc<GivenSignal>, submitted: u64) {
        if !self.home.is_here() {
            return;
        }
        self.is_used.store(true, Ordering::Release);
        let mut notes = self.lock();
        if notes.list.back().is_none_or(|last| last.epoch != note.epoch) {
            notes.list.clear();
            notes.unknown = submitted;
        }
        if notes.list.len() == MOST
            && let Some(oldest) = notes.list.pop_front()
        {
            notes.unknown = oldest.value.unwrap_or(0);
        }
        let at = notes.list.partition_point(|known| known.value < note.value);
        notes.list.insert(at, note);
    }

    /// Removes a signal that was not submitted.
    pub(crate) fn forget(&self, note: &Arc<GivenSignal>) {
        if !self.home.is_here() {
            return;
        }
        self.lock().list.retain(|known| !Arc::ptr_eq(known, note));
    }

    /// Stores the current time as the time of the value's signal. Signals that do not report by themselves are observed too late for this.
    pub(crate) fn reached(&self, value: u64) {
        if !self.is_used.load(Ordering::Acquire) || !self.home.is_here() {
            return;
        }
        let notes = &self.lock().list;
        let at = notes.partition_point(|known| known.value < Some(value));
        if let Some(note) = notes.get(at).filter(|note| note.value == Some(value) && note.tells) {
            note.set_at(now_ns());
        }
    }

    /// Returns the session's first signal of this value or a greater one.
    pub(crate) fn signal_at(&self, value: u64, epoch: NonZeroU32) -> Option<Arc<GivenSignal>> {
        if !self.is_used.load(Ordering::Acquire) || !self.home.is_here() {
            return None;
        }
        let notes = self.lock();
        let at = notes.list.partition_point(|known| known.value < Some(value));
        let note = notes.list.get(at).filter(|note| note.epoch == epoch && value > notes.unknown)?;
        Some(Arc::clone(note))
    }

    /// Takes the lock. Only code of this module runs under it.
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
