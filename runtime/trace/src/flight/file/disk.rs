//! Linux calls that reserve room for a file, and skip room that was never written. `file` calls them.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};

/// Returns the position of the next data from `at` on, or none if there is no more. Returns `at` itself on a file system without
/// this information.
pub(super) fn next_data(file: &File, at: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// Reserves room for this many bytes. Returns false on a file system that cannot do so.
pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<bool> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
