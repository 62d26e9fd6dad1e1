//! Signals on threads: writes that fail with an error where the operating system would otherwise end the program with a signal, and
//! code that runs while no signal of the program is delivered to its thread.
//!
//! A write beyond the limit on file sizes (`ulimit -f`) raises SIGXFSZ, and a write to a pipe without a reader raises SIGPIPE.
//! Both end a program that does not expect them. Every write of warpline, on any thread, runs inside [`without_signals`]. The two
//! signals are blocked on this thread only, for the duration of the call, and a signal that the call raised is consumed. The
//! program's own handlers and dispositions never change, and a signal that was already pending stays pending.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

/// The signals that a fault of the running thread raises. The kernel ends a program whose thread blocks one that it raises there, and the
/// program's own handler for it has to run.
const FAULTS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Runs `work` while this thread blocks every signal but those that a fault raises. A thread that `work` creates starts with that mask.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut blocked = MaybeUninit::uninit();
    // SAFETY: the first call initializes the whole set, and the others take valid signals out of it.
    let blocked = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in FAULTS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        blocked.assume_init()
    };
    let _mask = Mask::block(&blocked);
    work()
}

/// A thread's previous mask, which is restored when this is dropped on that thread.
struct Mask(libc::sigset_t);

impl Mask {
    /// Blocks further signals; none if they cannot be blocked.
    fn block(signals: &libc::sigset_t) -> Option<Mask> {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call; it changes this thread's mask and nothing else.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals, mask.as_mut_ptr()) };
        // SAFETY: a call that succeeds has written the set.
        (failed == 0).then(|| Mask(unsafe { mask.assume_init() }))
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: the set is the thread's previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// The signals that a write raises.
const RAISED: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

/// Runs `write`, which must only write. It fails with the operating system's error instead of a signal.
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::new();
    write()
}

/// Blocks the signals on the thread that created it, until it is dropped there.
struct Blocked {
    /// Whether each of the signals was already pending.
    was_pending: [bool; RAISED.len()],
    /// Dropped last.
    _mask: Mask,
}

impl Blocked {
    /// Blocks the signals; none if they cannot be blocked.
    fn new() -> Option<Blocked> {
        let mask = Mask::block(&set(&RAISED))?;
        Some(Blocked { was_pending: pending(), _mask: mask })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let pending = pending();
        for (at, signal) in RAISED.into_iter().enumerate() {
            // The kernel sends both signals to the thread that writes, so no other thread takes one between the two calls.
            if pending[at] && !self.was_pending[at] {
                consume(signal);
            }
        }
    }
}

/// Returns the set of these signals.
fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initializes the whole set, and the others add valid signals to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Returns which of the signals are pending for this thread or the process.
fn pending() -> [bool; RAISED.len()] {
    let mut pending = set(&[]);
    // SAFETY: the set is valid for the call.
    if unsafe { libc::sigpending(&raw mut pending) } != 0 {
        return [false; RAISED.len()];
    }
    // SAFETY: the set is valid, and so is each signal.
    RAISED.map(|signal| unsafe { libc::sigismember(&raw const pending, signal) } == 1)
}

/// Consumes a signal that is pending and blocked, without waiting.
#[cfg(target_os = "linux")]
fn consume(signal: libc::c_int) {
    let (signal, at_once) = (set(&[signal]), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set and the time are valid for the call, and no information on the signal is requested.
    unsafe { libc::sigtimedwait(&raw const signal, ptr::null_mut(), &raw const at_once) };
}

/// Consumes a signal that is pending and blocked.
#[cfg(not(target_os = "linux"))]
fn consume(signal: libc::c_int) {
    let (signal, mut taken) = (set(&[signal]), 0);
    // SAFETY: the set and the number are valid for the call, which returns at once for a pending signal.
    unsafe { libc::sigwait(&raw const signal, &raw mut taken) };
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::os::fd::FromRawFd;

    use super::*;

    /// Returns a pipe without a reader.
    fn broken_pipe() -> std::fs::File {
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors, which no other code uses.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            std::fs::File::from_raw_fd(ends[1])
        }
    }

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut mask = set(&[]);
        // SAFETY: the set is valid for the calls.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, signal) == 1
        }
    }

    #[test]
    fn a_signal_that_a_write_raises_is_consumed_and_one_that_was_pending_stays() {
        // On a separate thread, whose mask the test may change.
        let test = || {
            let raised = set(&RAISED);
            let write = || without_signals(|| broken_pipe().write(b"x").expect_err("nobody reads").kind());
            assert_eq!((write(), is_blocked(libc::SIGPIPE)), (io::ErrorKind::BrokenPipe, false));
            // SAFETY: the set is valid for the call.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const raised, ptr::null_mut()) };
            assert_eq!((write(), pending()), (io::ErrorKind::BrokenPipe, [false; 2]));
            // SAFETY: the thread is this one, and the signal is blocked on it.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) };
            assert_eq!((write(), pending()), (io::ErrorKind::BrokenPipe, [true, false]));
            consume(libc::SIGXFSZ);
            assert_eq!((pending(), is_blocked(libc::SIGPIPE)), ([false; 2], true), "the thread's own mask stays");
        };
        std::thread::spawn(test).join().expect("it passes");
    }
}
