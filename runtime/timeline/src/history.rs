//! What a semaphore remembers of its signals while a session records, so that a wait can say who ended it.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpline_core::clock::now_ns;
use warpline_core::fork::Home;
use warpline_core::stream::waited::GivenSignal;

/// The most signals that a semaphore remembers: the last ones.
const MOST: usize = 256;

/// The last signals of one semaphore, by value.
#[derive(Debug)]
pub(crate) struct History {
    /// What it was made with: nobody signals that.
    initial: u64,
    /// Nearly always it is empty, and nobody has to look.
    is_used: AtomicBool,
    /// Elsewhere, the lock may be held for ever.
    home: Home,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Of one session.
    list: VecDeque<Arc<GivenSignal>>,
    /// Who signalled this or less is not known, or not any more.
    unknown: u64,
}

impl History {
    pub(crate) fn new(initial: u64) -> History {
        History { initial, is_used: AtomicBool::new(false), home: Home::here(), notes: Mutex::default() }
    }

    /// Whether the semaphore was made with this value: to wait for it is no wait.
    pub(crate) fn is_initial(&self, value: u64) -> bool {
        value <= self.initial
    }

    /// Remembers a signal that is about to be given; until now, so much was submitted.
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

    /// It was not given after all.
    pub(crate) fn forget(&self, note: &Arc<GivenSignal>) {
        if !self.home.is_here() {
            return;
        }
        self.lock().list.retain(|known| !Arc::ptr_eq(known, note));
    }

    /// The value has been reached now, says who knows it at once for signals of in-process streams, and some time later for
    /// others.
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

    /// The first signal of this value or a greater one that the session saw.
    pub(crate) fn signal_at(&self, value: u64, epoch: NonZeroU32) -> Option<Arc<GivenSignal>> {
        if !self.is_used.load(Ordering::Acquire) || !self.home.is_here() {
            return None;
        }
        let notes = self.lock();
        let at = notes.list.partition_point(|known| known.value < Some(value));
        let note = notes.list.get(at).filter(|note| note.epoch == epoch && value > notes.unknown)?;
        Some(Arc::clone(note))
    }

    /// No code of others runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
