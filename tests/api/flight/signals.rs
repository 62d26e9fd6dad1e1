//! SIGUSR2 is the session's as long as the session runs: afterwards, and in forked processes, it has the effect that the program gave it.

use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use warpline::Session;
use warpline_tests::{in_a_process_of_its_own, this_test};

use crate::child::{raise_sigusr2, scratch};

fn action() -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: it only writes the current action, and zeros are a valid one.
    unsafe {
        libc::sigaction(libc::SIGUSR2, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

fn set(action: &libc::sigaction) {
    // SAFETY: the action was in place before, or its handler has the signature that its flags say.
    unsafe { libc::sigaction(libc::SIGUSR2, action, std::ptr::null_mut()) };
}

/// Which signal ends a forked process that raises SIGUSR2.
fn ends_a_child() -> Option<i32> {
    // SAFETY: the child raises a signal and ends.
    let child = match unsafe { libc::fork() } {
        0 => {
            raise_sigusr2();
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: the place is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    ExitStatus::from_raw(status).signal()
}

/// How often the program's handler ran, and the handler that it calls in turn.
static CAME: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the information is that of the signal.
    if signal == libc::SIGUSR2 && unsafe { (*info).si_signo } == signal {
        CAME.fetch_add(1, Ordering::Relaxed);
    }
    let next = NEXT.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: it is the handler that this one replaced, whose flags have `SA_SIGINFO`.
        let next =
            unsafe { std::mem::transmute::<usize, extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)>(next) };
        next(signal, info, context);
    }
}

fn counting() -> libc::sigaction {
    let mut action = action();
    (action.sa_sigaction, action.sa_flags) = (count as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART);
    action
}

#[test]
fn sigusr2_is_the_programs_again_when_the_session_has_ended() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let file = scratch(this_test!());
    let start = || {
        let settings = format!("flight=1MiB:{},dump_on=sigusr2", file.display());
        Session::builder().settings(&settings).expect("settings").start().expect("no other session")
    };
    assert_eq!(ends_a_child(), Some(libc::SIGUSR2), "the default action");
    let session = start();
    assert_eq!(ends_a_child(), Some(libc::SIGUSR2), "no session of the child wants it");
    raise_sigusr2();
    session.finish();
    assert_eq!(ends_a_child(), Some(libc::SIGUSR2), "the default action is in place again");

    // A handler that the program had before runs during the session and after it, directly.
    set(&counting());
    let session = start();
    assert_ne!(action().sa_sigaction, counting().sa_sigaction);
    raise_sigusr2();
    session.finish();
    let now = action();
    assert_eq!((now.sa_sigaction, now.sa_flags & libc::SA_SIGINFO), (counting().sa_sigaction, libc::SA_SIGINFO));
    raise_sigusr2();
    assert_eq!(CAME.load(Ordering::Relaxed), 2);

    // One that the program installs during the session stays, and may call the session's, which then has nothing to do.
    let mut default = counting();
    (default.sa_sigaction, default.sa_flags) = (libc::SIG_DFL, 0);
    set(&default);
    let session = start();
    let replaced = action();
    NEXT.store(replaced.sa_sigaction, Ordering::Relaxed);
    set(&counting());
    session.finish();
    assert_eq!(action().sa_sigaction, counting().sa_sigaction);
    raise_sigusr2();
    assert_eq!(CAME.load(Ordering::Relaxed), 3, "nothing ends the program");
    // A program that puts the session's handler back gets the action before it.
    set(&replaced);
    assert_eq!(ends_a_child(), Some(libc::SIGUSR2));
}
