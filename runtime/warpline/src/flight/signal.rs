//! Requests a trace on SIGUSR2, if the settings enable it.
//!
//! A handler that the program installed earlier is called, too. At the end of the session, the earlier action is in place again. If the program
//! has installed a handler in the meantime, that one stays; it may call ours, which then only calls the earlier one.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use libc::{SIGUSR2, c_int, siginfo_t};

use crate::exit::signals::handlers::{action, handler, install, keep_loaded, restore};
use warpline_core::fork::{Home, PerProcess};
use warpline_core::lock::lock;

// A signal handler can reach only statics.
/// Whether the signal has arrived since the collector looked.
static HAS_COME: AtomicBool = AtomicBool::new(false);

/// The process whose sessions want the signal; 0 if none does. A forked child has the handler, too.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The action that was in place before the handler. It is never freed: the handler may be running.
static EARLIER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// The number of recorders that want the signal: that of a session which ends may exist while the next one starts.
static WANTED: PerProcess<Mutex<u32>> = PerProcess::new(Mutex::default);

/// The earlier action gets the signal's information, as this one does. System calls of the program go on, and a thread's own stack for
/// signals is used if it has one.
const FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;

/// Takes the signal until [`Handler::end`], or until it is dropped.
pub(super) struct Handler {
    home: Home,
    is_over: AtomicBool,
}

impl Handler {
    pub(super) fn install() -> io::Result<Handler> {
        let mut wanted = lock(&WANTED);
        if handler(SIGUSR2) != ours() {
            let earlier = action(SIGUSR2);
            EARLIER.store(Box::into_raw(Box::new(earlier)), Ordering::Release);
            install(SIGUSR2, ours(), FLAGS)?;
        }
        HAS_COME.store(false, Ordering::Relaxed);
        // SAFETY: the call takes no argument.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::Release);
        *wanted += 1;
        Ok(Handler { home: Home::here(), is_over: AtomicBool::new(false) })
    }

    /// Returns whether the signal has arrived since the last call.
    pub(super) fn has_come(&self) -> bool {
        HAS_COME.load(Ordering::Relaxed) && HAS_COME.swap(false, Ordering::Relaxed)
    }

    /// Gives the signal back, unless another recorder wants it.
    pub(super) fn end(&self) {
        // In a forked child, the handler finds out that the session is the parent's.
        if !self.home.is_here() || self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut wanted = lock(&WANTED);
        *wanted -= 1;
        if *wanted > 0 {
            return;
        }
        PROCESS.store(0, Ordering::Release);
        if !give_back() {
            keep_loaded(ours());
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Puts the earlier action in place again. Returns false if another handler is in place by now.
fn give_back() -> bool {
    // SAFETY: it is null, or was leaked by `install`.
    let earlier = unsafe { EARLIER.load(Ordering::Acquire).as_ref() };
    handler(SIGUSR2) == ours() && earlier.is_some_and(|earlier| restore(SIGUSR2, earlier).is_ok())
}

fn ours() -> libc::sighandler_t {
    handle as *const () as libc::sighandler_t
}

/// Runs in a signal handler: only calls that are allowed there.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the call takes no argument.
    if PROCESS.load(Ordering::Acquire) == unsafe { libc::getpid() } {
        HAS_COME.store(true, Ordering::Relaxed);
    } else if give_back() {
        // No session of this process wants the signal, as in a forked child: it has the effect that it has without one, when this returns.
        // SAFETY: the call takes a number.
        unsafe { libc::raise(signal) };
        return;
    }
    // SAFETY: it is null, or was leaked by `install`.
    let Some(earlier) = (unsafe { EARLIER.load(Ordering::Acquire).as_ref() }) else { return };
    let (its, takes_information) = (earlier.sa_sigaction, earlier.sa_flags & libc::SA_SIGINFO != 0);
    if its == libc::SIG_DFL || its == libc::SIG_IGN || its == ours() {
        return;
    }
    // SAFETY: the program installed the handler with this signature, as its flag says.
    unsafe {
        if takes_information {
            std::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(its)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(its)(signal);
        }
    }
}
