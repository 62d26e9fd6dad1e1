//! The number of handles that wait for answers, and the time since which none does.
//!
//! A request adds its handle here, and its last answer or the drop of the handle removes it. The engine above, which serves zones that no
//! session records, rests while no handle waits.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::fork::PerProcess;
use crate::lock::{Locked, lock};

static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Waiting {
    handles: usize,
    /// When the last handle stopped waiting.
    ended: Option<Instant>,
}

/// Counts a handle that begins to wait.
pub(super) fn begin() {
    waiting().handles += 1;
}

/// Counts a handle that has stopped waiting.
pub(super) fn end() {
    let mut waiting = waiting();
    waiting.handles -= 1;
    waiting.ended = Some(Instant::now());
}

/// Calls `then` if no handle has waited for `rest`. No handle begins to wait before `then` returns.
pub fn if_idle_for(rest: Duration, then: impl FnOnce()) {
    let waiting = waiting();
    if waiting.handles == 0 && waiting.ended.is_none_or(|ended| ended.elapsed() >= rest) {
        then();
    }
}

fn waiting() -> Locked<'static, Waiting> {
    lock(&WAITING)
}
