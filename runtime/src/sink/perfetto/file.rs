//! Packets to the operating system, whole and in order, also past an error.
//!
//! What could not be written stays in the buffer and is written first the next time, so a disk that was full for a while
//! tears no packet. Only the sink calls it. It must never write a packet twice or out of order.

use std::io::{self, Write};

use super::proto::Buffer;

/// Written without being asked.
const LARGE: usize = 64 << 10;

/// Takes no more while so much waits for a disk that refuses it.
const FULL: usize = 8 << 20;

pub(super) struct Output {
    pub(super) buffer: Buffer,
    out: Box<dyn Write + Send>,
}

impl Output {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Output {
        Output { buffer: Buffer::default(), out }
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
        self.out.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            match self.out.write(&self.buffer.as_bytes()[written..]) {
                _ if written == self.buffer.len() => break Ok(()),
                Ok(0) => break Err(io::Error::new(io::ErrorKind::WriteZero, "the trace takes no more bytes")),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.buffer.consume(written);
        result
    }
}
