//! The thread that asks CUDA devices on behalf of those who sleep: futures, and host calls of queues.
//!
//! It exists once a process, from the first time that somebody needs it, and sleeps while nobody does. Threads that wait ask
//! for themselves; streams wait on the device.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::state::Core;
use super::error::Failure;
use super::point::{Timepoint, device};

const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// A nap is so small a part of the time since something was reached.
const PART: u32 = 64;

#[derive(Default)]
struct Watched {
    new: Vec<Arc<Core<Timepoint>>>,
    is_running: bool,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched { new: Vec::new(), is_running: false });
static SOME: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the semaphore's points are asked for, as long as somebody sleeps for them and they do not tell by themselves.
pub(super) fn watch(core: &Arc<Core<Timepoint>>) {
    if !core.watch() {
        return;
    }
    let mut watched = lock();
    watched.new.push(Arc::clone(core));
    if watched.is_running {
        drop(watched);
        return SOME.notify_one();
    }
    match thread::Builder::new().name("warpline-timeline".to_owned()).spawn(run) {
        Ok(_) => watched.is_running = true,
        // Nobody would ever wake them.
        Err(error) => {
            let cores = std::mem::take(&mut watched.new);
            drop(watched);
            for core in cores {
                let error = device("the thread that asks CUDA devices", &error.to_string());
                core.fail(Failure::new(Arc::clone(core.name()), error));
            }
        }
    }
}

fn run() {
    let mut cores: Vec<Arc<Core<Timepoint>>> = Vec::new();
    let mut progress = Instant::now();
    loop {
        {
            let mut watched = lock();
            while cores.is_empty() && watched.new.is_empty() {
                watched = SOME.wait(watched).unwrap_or_else(PoisonError::into_inner);
            }
            if !watched.new.is_empty() {
                progress = Instant::now();
                cores.append(&mut watched.new);
            }
        }
        let count = cores.len();
        for core in &cores {
            core.look();
        }
        cores.retain(|core| core.keep_watching());
        if cores.len() < count {
            progress = Instant::now();
        }
        if !cores.is_empty() {
            thread::sleep((progress.elapsed() / PART).clamp(SHORTEST_NAP, LONGEST_NAP));
        }
    }
}
