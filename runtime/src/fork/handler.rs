//! The handler that runs in a child, and what it counts.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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
#[cfg(unix)]
#[cold]
fn register() {
    // SAFETY: the handler lives as long as the program.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(unix))]
fn register() {}

/// Runs in the child before anything else does. It only does what is safe in a signal handler.
#[cfg(unix)]
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    #[cfg(feature = "enable")]
    {
        crate::switch::leave_to_parent();
        super::descriptors::leave_to_parent();
    }
}
