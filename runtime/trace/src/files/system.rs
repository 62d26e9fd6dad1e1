//! The Unix calls that files need: locks, identities and pipes. `own`, `claim`, `watch` and the sinks use them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

/// Takes the file's lock without waiting. Returns whether this process has it now, or an error if the file system has no locks.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases the file's lock.
pub(super) fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

/// Waits until the reader of a pipe has read something. Returns false on a timeout.
pub(super) fn wait_for_room(file: &File, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&timeout)) {
        Ok(0) => Ok(false),
        // A signal interrupted the wait: the caller tries again.
        Ok(_) | Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Sets the option that neither opening the file nor writing to it waits for the reader of a pipe.
pub(super) fn never_block(options: &mut OpenOptions) {
    options.custom_flags(libc::O_NONBLOCK);
}

/// Whether the path leads to a pipe.
pub(super) fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo())
}

/// Whether the error means that a pipe could not be opened because no process reads it.
pub(super) fn says_no_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENXIO)
}

/// Whether the error means that the file was removed on another machine.
pub(super) fn says_removed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}

/// Returns the number of the file's names, or none if it is unknown.
pub(super) fn links(metadata: &Metadata) -> Option<u64> {
    Some(metadata.nlink())
}

/// Returns an identity that is unique to the file, or none if it is unknown.
pub fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    Some((metadata.dev(), metadata.ino()))
}

/// Whether the path currently names the open file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let there = fs::metadata(path).map(|there| identity(&there));
    let ours = file.metadata().map(|ours| identity(&ours));
    matches!((there, ours), (Ok(there), Ok(ours)) if there == ours)
}
