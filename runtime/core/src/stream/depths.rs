//! How much queues of timelines hold, on its way to the collector: a bounded list.

use std::sync::Mutex;

use crate::lock::lock;
use crate::wait::QueueDepth;

/// The most that wait for the collector, which takes them many times a second.
const MOST: usize = 1 << 16;

/// What queues said.
#[derive(Debug, Default)]
pub struct Depths(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<QueueDepth>,
    begun: u64,
    dropped: u64,
    is_closed: bool,
}

impl Depths {
    pub fn add(&self, depth: QueueDepth) {
        let mut state = lock(&self.0);
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
    pub fn take(&self) -> Vec<QueueDepth> {
        std::mem::take(&mut lock(&self.0).waiting)
    }

    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    /// How many came, and how many found no room.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.begun, state.dropped)
    }
}
