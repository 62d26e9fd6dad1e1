//! Reads, installs and restores the handlers of the process's signals.
//!
//! The session's end on SIGINT and SIGTERM (`signals`) and the trace on SIGUSR2 (`flight`) use it. The program may install a handler at any time,
//! and that handler may call the one that it replaced. So one of warpline's is removed only if it is still in place. If it is not, the
//! library that contains it stays loaded.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::c_int;

/// Returns what the process does on a signal.
pub(crate) fn action(signal: c_int) -> libc::sigaction {
    let mut current = MaybeUninit::zeroed();
    // SAFETY: it only writes the current action, and zeros are a valid one if it fails.
    unsafe {
        libc::sigaction(signal, ptr::null(), current.as_mut_ptr());
        current.assume_init()
    }
}

/// Returns the signal's handler.
pub(crate) fn handler(signal: c_int) -> libc::sighandler_t {
    action(signal).sa_sigaction
}

/// Installs a handler, or the default action.
///
/// # Errors
/// The operating system refuses it.
pub(crate) fn install(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    // SAFETY: zeros are a valid action, which the lines after it fill; the handler is ours or the default.
    let action = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigemptyset(&raw mut action.sa_mask);
        action
    };
    restore(signal, &action)
}

/// Installs an action that was in place before, or a new one.
///
/// # Errors
/// The operating system refuses it.
pub(crate) fn restore(signal: c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the action is valid for the call.
    match unsafe { libc::sigaction(signal, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps the library that contains a handler loaded until the process ends, because a handler of the program may call it. The program itself
/// always stays.
pub(crate) fn keep_loaded(handler: libc::sighandler_t) {
    let mut place = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place is valid for the call. The flags find a library that is loaded, and change nothing of it but that it stays, so no code
    // runs. The handle is not closed.
    unsafe {
        if libc::dladdr(handler as *const _, place.as_mut_ptr()) != 0 {
            let name = place.assume_init().dli_fname;
            if !name.is_null() {
                libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
            }
        }
    }
}
