//! The output file. It only grows while the session runs, so that a kill at any moment leaves a file that readers accept.
//!
//! While events are written, the file is an array without its end, a form that Perfetto and `chrome://tracing` read. The bytes
//! after its bracket are blank. At the end of the session, the other members of the document are appended, and then one write puts
//! the beginning of an object into the blank bytes: only a finished file is the object that strict parsers read. A pipe, a terminal
//! or a device gets an array.

use std::io::{self, Seek, SeekFrom, Write};

use crate::files::own::OwnFile;
use crate::write::accounting::{Marks, slow_reader, write_counted};

/// Linux copies a write into a regular file page by page, and a kill ends it between two pages. Larger pages also begin at
/// multiples of this size.
const PAGE: u64 = 4 << 10;

/// The buffer size at which no more events are accepted.
const FULL: usize = 16 << 20;

/// The beginning of a document, and its replacement while the file is an array. Perfetto recognizes JSON by `[{"` or `{"` among the
/// first bytes, not counting blanks: some versions check 20 bytes, others more.
const OBJECT: &[u8; 17] = b"{\"traceEvents\":[\n";
const ARRAY: &[u8; 17] = b"[               \n";

/// Closes a document that gets no members after its events.
const END: &str = "\n]}\n";

/// Events that are not in the file yet.
///
/// An event that fits into a page of the file never crosses a page boundary: blanks fill the page before it. So a kill cuts no
/// event of usual size.
#[derive(Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
    /// The position of the bytes in the file.
    at: u64,
    /// The position of the last event in the bytes, including the comma before it.
    event: usize,
    /// Whether there is an event, here or in the file.
    any: bool,
}

impl Events {
    /// Begins an event, which extends to the call of [`end`](Self::end).
    pub(super) fn begin(&mut self) {
        self.event = self.bytes.len();
        if std::mem::replace(&mut self.any, true) {
            self.bytes.extend_from_slice(b",\n");
        }
    }

    /// Ends the event.
    pub(super) fn end(&mut self) {
        let (begin, end) = (self.at + self.event as u64, self.at + self.bytes.len() as u64);
        let room = PAGE - begin % PAGE;
        if end - begin > room && end - begin <= PAGE {
            self.bytes.splice(self.event..self.event, std::iter::repeat_n(b' ', room as usize));
        }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the first `bytes` bytes, which are now in the file.
    fn wrote(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        self.at += bytes as u64;
    }
}

impl Write for Events {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A document that is being written.
pub(super) struct Document {
    file: OwnFile,
    /// Whether written bytes can be overwritten: not in a pipe or a device.
    is_regular: bool,
    /// Whether the file ends with a complete record, so that the document can be closed.
    ends_whole: bool,
    /// Events that are not in the file yet.
    pub(super) events: Events,
    /// The positions at which the records in the events end.
    pub(super) marks: Marks,
}

impl Document {
    pub(super) fn new(file: OwnFile) -> Document {
        Document { file, is_regular: false, ends_whole: true, events: Events::default(), marks: Marks::default() }
    }

    /// Begins the document.
    ///
    /// # Errors
    /// The type of the file cannot be read.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.is_regular = self.file.metadata()?.is_file();
        self.events.write_all(ARRAY)
    }

    /// Makes room for a batch.
    ///
    /// # Errors
    /// The buffer is full, or the file takes no more bytes.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        self.file.check()?;
        if self.events.len() >= FULL {
            self.write()?;
        }
        if self.events.len() >= FULL { Err(slow_reader()) } else { Ok(()) }
    }

    /// Checks that the file still exists, even if there is nothing to write.
    ///
    /// # Errors
    /// What happened to the file, once.
    pub(super) fn check_again(&mut self) -> io::Result<()> {
        self.file.check_again()
    }

    /// Returns the number of accepted records that are not in the file.
    pub(super) fn lost(&self) -> u64 {
        self.marks.lost_in(&self.file)
    }

    /// Appends the buffered events. After an error, the events that are not in the file are kept for the next attempt.
    ///
    /// # Errors
    /// The file does not take all of them.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let (taken, result) = write_counted(&mut self.file, &self.events.bytes);
        let kept = match &result {
            Ok(()) => Some(taken),
            Err(_) => self.cut_back(taken),
        };
        self.ends_whole = kept.is_some();
        let written = kept.unwrap_or(taken);
        self.events.wrote(written);
        self.marks.wrote(written);
        result
    }

    /// Shortens the file after a disk took only part of a write: keeps complete records and room for the end of the document.
    /// Returns none if the file cannot be shortened: bytes that a pipe has taken are gone.
    fn cut_back(&mut self, taken: usize) -> Option<usize> {
        // A file that another program has changed is left alone.
        if !self.is_regular || self.file.check().is_err() {
            return None;
        }
        let kept = self.marks.whole_within(taken.saturating_sub(END.len()));
        let end = self.events.at + kept as u64;
        self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end))).ok().map(|_| kept)
    }

    /// Appends the buffered events, then these members and the end of the document.
    ///
    /// # Errors
    /// The file does not take all of it. The document then ends without the members, and with the records that have room.
    pub(super) fn finish(&mut self, members: &str) -> io::Result<()> {
        if !self.is_regular {
            self.file.wait_for_reader();
            self.events.write_all(b"\n]\n")?;
            self.write()?;
            return if self.events.len() > 0 { Err(slow_reader()) } else { self.file.check() };
        }
        writeln!(self.events, "\n],\n{members}}}")?;
        let written = self.write();
        // Overwrites bytes that the file already had. If the file does not take them, the array stays open, which readers accept.
        if written.is_err() && (!self.ends_whole || self.file.write_all(END.as_bytes()).is_err()) {
            return written;
        }
        // Comes last, because no reader accepts an object without its end.
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(OBJECT)?;
        written.and_then(|()| self.file.check())
    }
}
