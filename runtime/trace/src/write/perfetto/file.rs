//! Writes packets to the file, complete and in order, even after an error.
//!
//! Bytes that cannot be written stay in the buffer and are written first at the next attempt, so a temporarily full disk cuts no
//! packet. Records that are still in the buffer at the end of the session are counted as lost. A file that another program removes
//! or truncates has lost every record, and is no longer written to. Only the sink calls this module. It must never write a packet
//! twice or out of order.

use std::io::{self, Write};

use super::proto::Buffer;
use crate::files::own::OwnFile;
use crate::write::accounting::{Marks, slow_reader, write_counted};
use warpline_core::signals::without_signals;

/// The buffer size at which packets are written without a flush.
const LARGE: usize = 64 << 10;

/// The buffer size at which no more records are accepted.
const FULL: usize = 8 << 20;

pub(super) struct Output {
    pub(super) buffer: Buffer,
    /// The positions at which the records in the buffer end.
    pub(super) marks: Marks,
    out: Out,
}

enum Out {
    File(OwnFile),
    /// A writer that the program supplies.
    Writer(Box<dyn Write + Send>),
}

impl Output {
    pub(super) fn to_file(file: OwnFile) -> Output {
        Output { buffer: Buffer::default(), marks: Marks::default(), out: Out::File(file) }
    }

    pub(super) fn to_writer(out: Box<dyn Write + Send>) -> Output {
        Output { buffer: Buffer::default(), marks: Marks::default(), out: Out::Writer(out) }
    }

    /// Makes room for a batch. Fails if the buffer is full, or if the file takes no more bytes.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        self.refuse()?;
        if self.buffer.len() >= FULL {
            self.write()?;
        }
        if self.buffer.len() >= FULL { Err(slow_reader()) } else { Ok(()) }
    }

    /// Writes a large buffer after a batch. An error is not reported here, because the batch is safe in the buffer; the next flush
    /// meets it again.
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

    /// Checks that the file still exists, even if there is nothing to write.
    ///
    /// # Errors
    /// What happened to the file, once.
    pub(super) fn check(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::File(file) => file.check_again(),
            Out::Writer(_) => Ok(()),
        }
    }

    /// Writes the whole buffer, and waits for the reader of a pipe.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Out::File(file) = &mut self.out {
            file.wait_for_reader();
        }
        self.flush()?;
        self.refuse()?;
        if self.buffer.is_empty() { Ok(()) } else { Err(slow_reader()) }
    }

    /// Returns the number of accepted records that are not in the file.
    pub(super) fn lost(&self) -> u64 {
        match &self.out {
            Out::File(file) => self.marks.lost_in(file),
            Out::Writer(_) => self.marks.missing(),
        }
    }

    /// Fails if the file takes no more bytes.
    fn refuse(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::File(file) => file.check(),
            Out::Writer(_) => Ok(()),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = self.buffer.as_bytes();
        let (written, result) = match &mut self.out {
            Out::File(file) => write_counted(file, bytes),
            // The writer may be a file or a pipe.
            Out::Writer(out) => without_signals(|| write_counted(out, bytes)),
        };
        self.buffer.consume(written);
        self.marks.wrote(written);
        result
    }
}
