//! Packets to the operating system, whole and in order, also past an error.
//!
//! What could not be written stays in the buffer and is written first the next time, so a disk that was full for a while
//! tears no packet; what is still there when the session is over is lost, and known by its marks. Only the sink calls it. It
//! must never write a packet twice or out of order.

use std::io::{self, Write};

use super::proto::Buffer;
use crate::files::signals::without_signals;
use crate::sink::written::{Marks, write_counted};

/// Written without being asked.
const LARGE: usize = 64 << 10;

/// Takes no more while so much waits for a disk that refuses it.
const FULL: usize = 8 << 20;

pub(super) struct Output {
    pub(super) buffer: Buffer,
    /// Where the records in the buffer end.
    pub(super) marks: Marks,
    out: Box<dyn Write + Send>,
}

impl Output {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Output {
        Output { buffer: Buffer::default(), marks: Marks::default(), out }
    }

    /// Before a batch: fails while more waits than may wait.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FULL { self.write() } else { Ok(()) }
    }

    /// After a batch. An error is not told here, because the batch is safe in the buffer; the next flush meets it again.
    pub(super) fn write_when_large(&mut self) {
        if self.buffer.len() >= LARGE {
            let _ = self.write();
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        without_signals(|| self.out.flush())
    }

    fn write(&mut self) -> io::Result<()> {
        // The program's own writer may be a file or a pipe.
        let (written, result) = without_signals(|| write_counted(&mut self.out, self.buffer.as_bytes()));
        self.buffer.consume(written);
        self.marks.wrote(written);
        result
    }
}
