//! What of a sink's records is in its file: a full disk takes some of them, and not the rest.
//!
//! A sink that takes records into memory and writes them later marks where each ends, and says how many bytes got through.
//! What has not got through whole when the session is over is lost, and counted by the sink. Nothing here writes twice.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::files::own::OwnFile;

/// Where the records end that are not whole in the file.
#[derive(Default)]
pub(super) struct Marks {
    /// In bytes from the beginning of all that was ever to be written, in order.
    ends: VecDeque<u64>,
    written: u64,
    /// Records that have been taken, in the file or not.
    records: u64,
}

impl Marks {
    /// A record has been taken: it ends so many bytes behind what is in the file.
    #[inline]
    pub(super) fn end_record(&mut self, waiting: usize) {
        self.ends.push_back(self.written + waiting as u64);
        self.records += 1;
    }

    /// So many bytes more are in the file.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        let whole = self.ends.partition_point(|end| *end <= self.written);
        self.ends.drain(..whole);
    }

    /// How many of the bytes that wait would be records that are whole, if so many of them fit.
    pub(super) fn whole_within(&self, bytes: usize) -> usize {
        let whole = self.ends.partition_point(|end| *end <= self.written + bytes as u64);
        let last = whole.checked_sub(1).and_then(|last| self.ends.get(last));
        last.map_or(0, |end| usize::try_from(end - self.written).unwrap_or(0))
    }

    /// Records that are not whole in the file.
    pub(super) fn missing(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Records that cannot be read in the file: all of them where somebody has removed or cut it.
    pub(super) fn lost_in(&self, file: &OwnFile) -> u64 {
        if file.has_lost_all() { self.records } else { self.missing() }
    }
}

/// A pipe is full, and so is what may wait for it.
pub(super) fn slow_reader() -> io::Error {
    io::Error::other("the reader of the pipe is too slow; use a faster one, or a file")
}

/// Writes all of it, and says how much got through: less than all with an error, or where a pipe is full.
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
