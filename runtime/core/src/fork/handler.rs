//! The handler that runs in a child, and what it counts.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one in which warpline was first used.
#[inline(always)]
pub(super) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on. Whatever a child must not touch is made after a call of this.
#[inline]
pub(super) fn follow() {
    static FOLLOWS: AtomicBool = AtomicBool::new(false);
    if !FOLLOWS.load(Ordering::Acquire) {
        // Two threads may both register it: to count a fork twice does no harm, to miss one does.
        register();
        FOLLOWS.store(true, Ordering::Release);
    }
}

/// Where the C library has no memory for the handler, forks go unnoticed.
#[cold]
fn register() {
    // SAFETY: the handler lives as long as the program.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// What else runs in a child. There are two today; one that found no place would not run.
static TASKS: [AtomicPtr<()>; MOST_TASKS] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_TASKS];
const MOST_TASKS: usize = 8;

/// From now on each child calls `task` before anything else runs there, once, however often it is given here. The task must only do
/// what is safe in a signal handler.
#[inline]
pub(crate) fn in_children(task: fn()) {
    let task = task as *mut ();
    for place in &TASKS {
        let known = place.load(Ordering::Relaxed);
        let known = if known.is_null() {
            follow();
            place
                .compare_exchange(known, task, Ordering::AcqRel, Ordering::Acquire)
                .map_or_else(|other| other, |_| task)
        } else {
            known
        };
        if known == task {
            return;
        }
    }
}

/// Runs in the child before anything else does. It only does what is safe in a signal handler.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &TASKS {
        let task = place.load(Ordering::Acquire);
        if !task.is_null() {
            // SAFETY: what is not null was made of a `fn()` in `in_children`.
            unsafe { std::mem::transmute::<*mut (), fn()>(task)() };
        }
    }
}
