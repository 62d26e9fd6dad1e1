//! SIGINT and SIGTERM of a program that handles neither.
//!
//! A handler is installed only where the default action, which ends the program, is in place. It resets itself, so that a second signal has
//! the default action. If the program installs a handler later, it takes this one's place, even if it calls this one.

pub(crate) mod handlers;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use handlers::{handler, install, keep_loaded};

/// The signals with which users and supervisors end a program.
const SIGNALS: [c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// The end of the pipe to which the handler writes; -1 if none. A signal handler can reach only a static.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// The process whose session it is: a forked child has the handler, too, and the pipe.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Tells the thread to end.
const ENDED: u8 = 0;

/// Watches until it is dropped.
pub(super) struct Watch {
    pipe: PipeWriter,
    /// The signals for which it installed a handler.
    taken: Vec<c_int>,
}

impl Watch {
    /// Installs the handlers and starts the thread. None if the program handles both signals, or if the system refuses; then signals do what they
    /// would do without warpline.
    pub(super) fn start() -> Option<Watch> {
        let taken: Vec<_> = SIGNALS.into_iter().filter(|&signal| handler(signal) == libc::SIG_DFL).collect();
        if taken.is_empty() {
            return None;
        }
        let (reader, writer) = std::io::pipe().ok()?;
        warpline_core::threads::spawn("warpline-signals", move || wait(reader)).ok()?;
        // SAFETY: the call takes no argument.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        PIPE.store(writer.as_raw_fd(), Ordering::Release);
        taken.iter().for_each(|&signal| set(signal, ours()));
        Some(Watch { pipe: writer, taken })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for signal in self.taken.iter().copied() {
            match handler(signal) {
                its if its == ours() => set(signal, libc::SIG_DFL),
                libc::SIG_DFL => {}
                // It may call this one.
                _ => keep_loaded(ours()),
            }
        }
        PIPE.store(-1, Ordering::Release);
        let _ = self.pipe.write_all(&[ENDED]);
    }
}

fn ours() -> libc::sighandler_t {
    handle as *const () as libc::sighandler_t
}

/// Installs the handler or the default action. System calls of the program go on, and the next signal has the default action.
fn set(signal: c_int, handler: libc::sighandler_t) {
    // A signal that cannot be handled has the default action.
    let _ = install(signal, handler, libc::SA_RESTART | libc::SA_RESETHAND);
}

/// Runs in a signal handler: only calls that are allowed there.
extern "C" fn handle(signal: c_int) {
    // A handler of the program calls this one: the program decides what the signal does.
    if handler(signal) != libc::SIG_DFL {
        return;
    }
    // SAFETY: the calls are allowed in a handler; the byte is valid for the call.
    unsafe {
        let (pipe, byte) = (PIPE.load(Ordering::Acquire), signal as u8);
        let is_here = pipe >= 0 && PROCESS.load(Ordering::Relaxed) == libc::getpid();
        if !is_here || libc::write(pipe, (&raw const byte).cast(), 1) != 1 {
            libc::raise(signal);
        }
    }
}

/// Returns whether the process exists.
pub(super) fn is_running(process: u32) -> bool {
    // SAFETY: the signal 0 only asks.
    unsafe { libc::kill(process as libc::pid_t, 0) == 0 }
}

/// Waits for a signal, finishes the session and lets the signal end the program.
fn wait(mut pipe: PipeReader) {
    let mut byte = [ENDED];
    if pipe.read_exact(&mut byte).is_err() || byte == [ENDED] {
        return;
    }
    super::finish();
    // This thread blocks the signal, so another one takes it: a thread of the program, whose mask decides as it does without a session.
    // SAFETY: the call takes numbers. The handler has reset itself, so the action is the default one or a handler of the program.
    unsafe { libc::kill(libc::getpid(), c_int::from(byte[0])) };
}
