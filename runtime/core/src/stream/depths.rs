//! A bounded list of the depths of timeline queues, on their way to the collector.

use std::sync::Mutex;

use crate::lock::lock;
use crate::wait::QueueDepth;

/// The most entries that wait for the collector, which takes them many times a second.
const MOST: usize = 1 << 16;

/// The depths that queues have reported.
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

    /// Takes the entries that were added since the last call.
    pub fn take(&self) -> Vec<QueueDepth> {
        std::mem::take(&mut lock(&self.0).waiting)
    }

    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    /// Returns how many depths were reported, and how many were dropped because the list was full.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.begun, state.dropped)
    }
}
