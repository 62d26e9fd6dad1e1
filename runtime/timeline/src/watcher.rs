//! The thread that queries CUDA devices for sleeping waiters: futures, and host calls of queues.
//!
//! A process has at most one such thread. It is created when it is first needed, and sleeps while there is nothing to query. Threads that
//! wait query the devices themselves, and streams wait on the device.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::Failure;
use super::point::{Timepoint, device};
use super::state::Core;

const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// A nap lasts for the time since the set of watched semaphores last changed, divided by this.
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

/// Queries the semaphore's points from now on, if a sleeping waiter needs them.
pub(super) fn watch(core: &Arc<Core<Timepoint>>) {
    if core.watch() {
        start(core);
    }
}

/// Queries the points of a semaphore that was marked as watched just now, until no sleeping waiter needs them.
#[cold]
pub(super) fn start(core: &Arc<Core<Timepoint>>) {
    let mut watched = lock();
    watched.new.push(Arc::clone(core));
    if watched.is_running {
        drop(watched);
        return SOME.notify_one();
    }
    match thread::Builder::new().name("warpline-timeline".to_owned()).spawn(run) {
        Ok(_) => watched.is_running = true,
        // Otherwise, the waiters would never be woken.
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
