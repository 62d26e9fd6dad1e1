//! The few calls of the operating system that the standard library does not make.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What is waited for, and what has come.
pub(super) type Poll = libc::pollfd;

/// Something came that can be read, or the other end says no more.
pub(super) const IN: i16 = libc::POLLIN;
/// There is room to write.
pub(super) const OUT: i16 = libc::POLLOUT;
/// The other end is gone.
pub(super) const GONE: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

pub(super) fn interest(of: &impl AsRawFd, events: i16) -> Poll {
    Poll { fd: of.as_raw_fd(), events, revents: 0 }
}

/// Waits until something comes, or the time is up; without a time as long as it takes.
pub(super) fn poll(polls: &mut [Poll], time: Option<Duration>) {
    // Rounded up: a wait that is too short would be made again and again.
    let ms = time.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: the slice is valid for its length, and the call keeps nothing of it.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, ms) };
    if ready < 0 {
        // A signal came: nothing is ready.
        polls.iter_mut().for_each(|poll| poll.revents = 0);
    }
}

/// Writes what there is room for. A reader that is gone is an error and never a signal.
pub(super) fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for their length, and the call keeps nothing of them.
    let sent = unsafe {
        libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The user of this process, as whom it makes files.
pub(super) fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
