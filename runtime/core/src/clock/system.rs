//! Linux's clock and thread ids.
#![allow(unsafe_code)]

/// Now, in ns of `CLOCK_BOOTTIME`, as the kernel gives it.
#[inline]
pub(super) fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec, and the clock exists since Linux 2.6.39.
    unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now);
    }
    #[allow(clippy::unnecessary_cast, reason = "both are narrower on some targets")]
    return now.tv_sec as i64 * 1_000_000_000 + now.tv_nsec as i64;
}

/// The operating system's id of this thread.
pub(crate) fn thread_id() -> u64 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() as u64 }
}
