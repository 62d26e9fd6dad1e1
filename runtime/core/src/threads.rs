//! Creates every thread of warpline's.
//!
//! A signal of a process is delivered to any thread that does not block it. A thread of ours that blocked none would take a signal for which
//! the program waits (`sigwait`, `signalfd`), and the default action would end the program; a handler of the program's would run on it. So
//! every thread starts with all signals blocked, except those that a fault of the thread itself raises. A signal then goes to a thread of the
//! program, as it does without warpline.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::signals::with_signals_blocked;

/// Starts a thread with this name. In the operating system's name, `␀` replaces NUL.
///
/// # Errors
/// The operating system has no thread left.
pub fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    start(Builder::new(), name, work)
}

/// Starts a thread like [`spawn`], with a stack of so many bytes.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_with_stack<T: Send + 'static>(
    name: &str,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(Builder::new().stack_size(bytes), name, work)
}

fn start<T: Send + 'static>(
    thread: Builder,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = thread.name(name.replace('\0', "\u{2400}"));
    // The new thread inherits the mask. If it blocked the signals itself, one could come before it does.
    with_signals_blocked(|| thread.spawn(work))
}
