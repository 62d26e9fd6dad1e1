//! Counts which records of a sink are in its file, also after a disk has taken only some of them.
//!
//! A sink that buffers records marks where each one ends, and says how many bytes were written. A record that is not whole in the file
//! at the end of the session is lost, and the sink counts it. Nothing here writes twice.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::files::own::OwnFile;

/// The ends of the records that are not whole in the file.
#[derive(Default)]
pub(super) struct Marks {
    /// In bytes from the beginning of everything that the sink has buffered, in order.
    ends: VecDeque<u64>,
    written: u64,
    /// Records that have been taken, in the file or not.
    records: u64,
}

impl Marks {
    /// Adds a record that ends `waiting` bytes behind what is in the file.
    #[inline]
    pub(super) fn end_record(&mut self, waiting: usize) {
        self.ends.push_back(self.written + waiting as u64);
        self.records += 1;
    }

    /// Adds `bytes` to what is in the file.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        let whole = self.ends.partition_point(|end| *end <= self.written);
        self.ends.drain(..whole);
    }

    /// Of the next `bytes` to be written: how many of them belong to records that would be whole.
    pub(super) fn whole_within(&self, bytes: usize) -> usize {
        let whole = self.ends.partition_point(|end| *end <= self.written + bytes as u64);
        let last = whole.checked_sub(1).and_then(|last| self.ends.get(last));
        last.map_or(0, |end| usize::try_from(end - self.written).unwrap_or(0))
    }

    /// Records that are not whole in the file.
    pub(super) fn missing(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Records that cannot be read in the file: all of them if it was removed or truncated.
    pub(super) fn lost_in(&self, file: &OwnFile) -> u64 {
        if file.has_lost_all() { self.records } else { self.missing() }
    }
}

/// The error for a full pipe whose buffer is full, too.
pub(super) fn slow_reader() -> io::Error {
    io::Error::other("the reader of the pipe is too slow; use a faster one, or a file")
}

/// Writes all bytes, and returns how many were written: fewer than all after an error, or if a pipe is full.
pub(super) fn write_counted(out: &mut (impl Write + ?Sized), bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => {
                return (written, Err(io::Error::new(io::ErrorKind::WriteZero, "the file takes no more bytes")));
            }
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What waits is written when the reader has taken something.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (written, Ok(())),
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
