//! System calls that the standard library does not wrap.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A descriptor with the events to wait for and the events that occurred.
pub(super) type Poll = libc::pollfd;

/// Data can be read, or the peer has closed its sending side.
pub(super) const IN: i16 = libc::POLLIN;
/// The socket accepts data.
pub(super) const OUT: i16 = libc::POLLOUT;
/// The connection is closed or broken.
pub(super) const GONE: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

pub(super) fn interest(of: &impl AsRawFd, events: i16) -> Poll {
    Poll { fd: of.as_raw_fd(), events, revents: 0 }
}

/// Waits for an event until the timeout expires; without a timeout it waits indefinitely.
pub(super) fn poll(polls: &mut [Poll], time: Option<Duration>) {
    // Round up: a timeout that is too short would make the caller spin.
    let ms = time.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: the slice is valid for its length, and the call keeps nothing of it.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, ms) };
    if ready < 0 {
        // A signal interrupted the call: nothing is ready.
        polls.iter_mut().for_each(|poll| poll.revents = 0);
    }
}

/// Sends as much as the socket accepts without blocking. A closed connection is an error and never raises SIGPIPE.
pub(super) fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for their length, and the call keeps nothing of them.
    let sent = unsafe {
        libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Returns the effective user id of this process, which owns the files that it creates.
pub(super) fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
