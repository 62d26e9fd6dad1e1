//! Runs a test in a forked process: what it changes of the process is no other test's, and a call that hangs ends.
#![allow(unsafe_code)]

/// A process that takes longer hangs.
const LIMIT_S: u32 = 20;

/// Runs `work` in a forked process, which must start no thread: the standard library takes a lock for that which other tests may have held.
#[track_caller]
pub(crate) fn in_a_fork(work: impl FnOnce()) {
    // SAFETY: the child uses what this crate makes safe to use after a fork, and ends without a look back.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the call takes a number.
            unsafe { libc::alarm(LIMIT_S) };
            let is_well = crate::panics::caught_or_text(work).is_ok();
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the place is valid for the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "how the forked process ended");
        }
    }
}
