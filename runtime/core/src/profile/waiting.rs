//! How many handles wait for answers, and since when none does.
//!
//! A request counts its handle here, and its answers take it off. What serves zones that no session has, in the engine above, rests on it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::fork::PerProcess;
use crate::lock::{Locked, lock};

static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Waiting {
    handles: usize,
    /// When the last one stopped waiting.
    ended: Option<Instant>,
}

/// A handle waits.
pub(super) fn begin() {
    waiting().handles += 1;
}

/// A handle waits no longer.
pub(super) fn end() {
    let mut waiting = waiting();
    waiting.handles -= 1;
    waiting.ended = Some(Instant::now());
}

/// Calls `then` if no handle has waited for so long. No handle begins to wait before it returns.
pub fn if_idle_for(rest: Duration, then: impl FnOnce()) {
    let waiting = waiting();
    if waiting.handles == 0 && waiting.ended.is_none_or(|ended| ended.elapsed() >= rest) {
        then();
    }
}

fn waiting() -> Locked<'static, Waiting> {
    lock(&WAITING)
}
