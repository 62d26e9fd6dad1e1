//! Counts which records of a sink are in its file, even after a disk has taken only some of them.
//!
//! A sink that buffers records marks where each one ends, and reports how many bytes were written. A record that is not complete in
//! the file at the end of the session is lost, and the sink counts it. Nothing is written twice.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::files::own::OwnFile;

/// The ends of the records that are not complete in the file.
#[derive(Default)]
pub(super) struct Marks {
    /// The ends, in bytes from the beginning of everything that the sink has buffered, in order.
    ends: VecDeque<u64>,
    written: u64,
    /// The number of accepted records, in the file or not.
    records: u64,
}

impl Marks {
    /// Adds a record that ends `waiting` bytes after the end of the file.
    #[inline]
    pub(super) fn end_record(&mut self, waiting: usize) {
        self.ends.push_back(self.written + waiting as u64);
        self.records += 1;
    }

    /// Adds `bytes` to the bytes in the file.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        let whole = self.ends.partition_point(|end| *end <= self.written);
        self.ends.drain(..whole);
    }

    /// Returns how many of the next `bytes` bytes belong to records that would then be complete.
    pub(super) fn whole_within(&self, bytes: usize) -> usize {
        let whole = self.ends.partition_point(|end| *end <= self.written + bytes as u64);
        let last = whole.checked_sub(1).and_then(|last| self.ends.get(last));
        last.map_or(0, |end| usize::try_from(end - self.written).unwrap_or(0))
    }

    /// Returns the number of records that are not complete in the file.
    pub(super) fn missing(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns the number of records that cannot be read from the file: all of them if it was removed or truncated.
    pub(super) fn lost_in(&self, file: &OwnFile) -> u64 {
        if file.has_lost_all() { self.records } else { self.missing() }
    }
}

/// Returns the error for a full pipe whose buffer is full, too.
pub(super) fn slow_reader() -> io::Error {
    io::Error::other("the reader of the pipe is too slow; use a faster one, or a file")
}

/// Writes all bytes and returns how many were written: fewer than all after an error, or if a pipe is full.
pub(super) fn write_counted(out: &mut (impl Write + ?Sized), bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => {
                return (written, Err(io::Error::new(io::ErrorKind::WriteZero, "the file takes no more bytes")));
            }
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The rest is written when the reader has read something.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (written, Ok(())),
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
