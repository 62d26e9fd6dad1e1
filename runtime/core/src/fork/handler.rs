//! The handler that runs in a child, and its fork counter.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of forks between this process and the one in which warpline was first used.
#[inline(always)]
pub(super) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting forks. Anything that a child must not touch is created after this call.
#[inline]
pub(super) fn follow() {
    static FOLLOWS: AtomicBool = AtomicBool::new(false);
    if !FOLLOWS.load(Ordering::Acquire) {
        // Two threads may both register it: counting a fork twice is harmless, missing one is not.
        register();
        FOLLOWS.store(true, Ordering::Release);
    }
}

/// Registers the handler. If the C library has no memory for it, forks are not detected.
#[cold]
fn register() {
    // SAFETY: the handler lives as long as the program.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Other tasks that run in a child. There are three today; one beyond the capacity would not run.
static TASKS: [AtomicPtr<()>; MOST_TASKS] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_TASKS];
const MOST_TASKS: usize = 8;

/// Registers `task` to run once in each child, before anything else. Registering it again has no effect. The task must be
/// async-signal-safe.
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

/// Runs in the child before anything else. It is async-signal-safe.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for place in &TASKS {
        let task = place.load(Ordering::Acquire);
        if !task.is_null() {
            // SAFETY: a non-null entry was created from a `fn()` in `in_children`.
            unsafe { std::mem::transmute::<*mut (), fn()>(task)() };
        }
    }
}
