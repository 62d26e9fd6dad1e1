//! The process at the other end of a socket, as the kernel reports it. The program and the command `warpline` both use it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The process at the other end: the one that connected, or that began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id in this process's PID namespace; none if the peer is in no namespace that is visible from here.
    pub process: Option<u32>,
    /// The effective user id.
    pub user: u32,
}

impl Peer {
    /// Returns the process at the other end of a connection.
    ///
    /// # Errors
    /// The system's error.
    pub fn from_stream(stream: &UnixStream) -> io::Result<Peer> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both places outlive the call, and the length is the size of the first.
        let code = unsafe {
            let peer = (&raw mut peer).cast();
            libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &raw mut length)
        };
        if code != 0 || length as usize != size_of::<libc::ucred>() {
            return Err(io::Error::last_os_error());
        }
        Ok(Peer { process: u32::try_from(peer.pid).ok().filter(|process| *process != 0), user: peer.uid })
    }
}

/// Returns the resource that ran out, with the remedy, if a system call failed for lack of a file descriptor.
pub fn out_of_descriptors(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some("no file descriptor is left in this process; raise `ulimit -n`, or close files"),
        libc::ENFILE => Some("no file descriptor is left on this machine; close files, or raise `sysctl fs.file-max`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(Peer::from_stream(&one).expect("a peer").process, Some(std::process::id()));
    }

    #[test]
    fn only_a_lack_of_descriptors_is_one() {
        assert!(
            out_of_descriptors(&io::Error::from_raw_os_error(libc::EMFILE)).is_some_and(|text| text.contains("ulimit"))
        );
        for error in [io::Error::from_raw_os_error(libc::ENOENT), io::Error::other("x")] {
            assert_eq!(out_of_descriptors(&error), None);
        }
    }
}
