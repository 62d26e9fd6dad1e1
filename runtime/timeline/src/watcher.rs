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
use warpline_core::fork::PerProcess;
use warpline_core::threads;

const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// A nap lasts for the time since the set of watched semaphores last changed, divided by this.
const PART: u32 = 64;

#[derive(Default)]
struct Watched {
    new: Vec<Arc<Core<Timepoint>>>,
    is_running: bool,
}

// A forked process has no such thread, and starts one of its own.
static WATCHED: PerProcess<Mutex<Watched>> = PerProcess::new(Mutex::default);
static SOME: PerProcess<Condvar> = PerProcess::new(Condvar::new);

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
    match threads::spawn("warpline-timeline", run) {
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
            core.poll_devices();
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

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_forked_process_has_no_watching_thread_of_its_parent() {
        let was_running = std::mem::replace(&mut lock().is_running, true);
        // SAFETY: the child takes a lock of its own, and ends without a look back.
        let child = match unsafe { libc::fork() } {
            // SAFETY: the call takes a number.
            0 => unsafe { libc::_exit(i32::from(lock().is_running)) },
            child => child,
        };
        let mut status = 0;
        // SAFETY: the place is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        lock().is_running = was_running;
        assert_eq!(status, 0, "it would start no thread");
    }
}
