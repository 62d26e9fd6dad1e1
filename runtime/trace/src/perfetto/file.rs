//! Writes packets to the file, whole and in order, also after an error.
//!
//! What cannot be written stays in the buffer and is written first at the next attempt, so a disk that is full for a while tears no
//! packet. What is still in the buffer at the end of the session is counted as lost. A file that is removed or truncated by someone
//! else has lost every record, and nothing more is written to it. Only the sink calls this module. It must never write a packet twice
//! or out of order.

use std::io::{self, Write};

use super::proto::Buffer;
use crate::files::own::OwnFile;
use crate::written::{Marks, slow_reader, write_counted};
use warpline_core::signals::without_signals;

/// At this size the buffer is written without waiting for a flush.
const LARGE: usize = 64 << 10;

/// At this size the buffer takes no more records.
const FULL: usize = 8 << 20;

pub(super) struct Output {
    pub(super) buffer: Buffer,
    /// Where the records in the buffer end.
    pub(super) marks: Marks,
    out: Out,
}

enum Out {
    File(OwnFile),
    /// The program's own.
    Writer(Box<dyn Write + Send>),
}

impl Output {
    pub(super) fn to_file(file: OwnFile) -> Output {
        Output { buffer: Buffer::default(), marks: Marks::default(), out: Out::File(file) }
    }

    pub(super) fn to_writer(out: Box<dyn Write + Send>) -> Output {
        Output { buffer: Buffer::default(), marks: Marks::default(), out: Out::Writer(out) }
    }

    /// Before a batch: fails while more waits than may wait, and where nothing is written any more.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        self.refuse()?;
        if self.buffer.len() >= FULL {
            self.write()?;
        }
        if self.buffer.len() >= FULL { Err(slow_reader()) } else { Ok(()) }
    }

    /// After a batch. An error is not told here, because the batch is safe in the buffer; the next flush meets it again.
    pub(super) fn write_when_large(&mut self) {
        if self.buffer.len() >= LARGE {
            let _ = self.write();
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        match &mut self.out {
            Out::File(file) => file.flush(),
            Out::Writer(out) => without_signals(|| out.flush()),
        }
    }

    /// Looks whether the file is still there, also while there is nothing to write.
    ///
    /// # Errors
    /// What has happened to it, once.
    pub(super) fn look(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::File(file) => file.look_again(),
            Out::Writer(_) => Ok(()),
        }
    }

    /// Writes all that waits, and waits for the reader of a pipe.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Out::File(file) = &mut self.out {
            file.wait_for_reader();
        }
        self.flush()?;
        self.refuse()?;
        if self.buffer.is_empty() { Ok(()) } else { Err(slow_reader()) }
    }

    /// Records that were taken and are not in the file.
    pub(super) fn lost(&self) -> u64 {
        match &self.out {
            Out::File(file) => self.marks.lost_in(file),
            Out::Writer(_) => self.marks.missing(),
        }
    }

    /// Fails where nothing is written any more.
    fn refuse(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::File(file) => file.look(),
            Out::Writer(_) => Ok(()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = self.buffer.as_bytes();
        let (written, result) = match &mut self.out {
            Out::File(file) => write_counted(file, bytes),
            // It may be a file or a pipe.
            Out::Writer(out) => without_signals(|| write_counted(out, bytes)),
        };
        self.buffer.consume(written);
        self.marks.wrote(written);
        result
    }
}
