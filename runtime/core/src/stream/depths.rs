//! How much queues of timelines hold, on its way to the collector: a bounded list.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wait::QueueDepth;

/// The most that wait for the collector, which takes them many times a second.
const MOST: usize = 1 << 16;

/// What queues said.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<QueueDepth>,
    begun: u64,
    dropped: u64,
    is_closed: bool,
}

impl Depths {
    pub(crate) fn add(&self, depth: QueueDepth) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.begun += 1;
        if state.waiting.len() < MOST {
            state.waiting.push(depth);
        } else {
            state.dropped += 1;
        }
    }

    /// Takes what came since the last time.
    pub(crate) fn take(&self) -> Vec<QueueDepth> {
        std::mem::take(&mut self.lock().waiting)
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// How many came, and how many found no room.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.begun, state.dropped)
    }

    /// No code of others runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
