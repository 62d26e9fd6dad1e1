//! The calls with which Linux takes room for a file, and skips room that was never written. `file` calls them.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};

/// Where the next bytes from here on are that were ever written; none if there are no more. A file system that does not know says `at`.
pub(super) fn next_data(file: &File, at: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// Takes room for so many bytes. False where the file system cannot do that.
pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<bool> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
