//! The file: only appended to while the session runs, so that a kill at any moment leaves what readers accept.
//!
//! While events are written, the file is an array without its end, a form that Perfetto and `chrome://tracing` read. The room behind
//! its bracket is blank. At the end of the session the other members of the document are appended, and then one write puts the beginning
//! of an object into that room: only a finished file is the object that strict parsers read. A pipe, a terminal or a device gets an array.

use std::io::{self, Seek, SeekFrom, Write};

use crate::files::own::OwnFile;
use crate::written::{Marks, slow_reader, write_counted};

/// Linux copies a write into a regular file page by page, and a kill ends it between two pages. Larger pages begin at multiples of
/// this, too.
const PAGE: u64 = 4 << 10;

/// At this size the buffer takes no more events.
const FULL: usize = 16 << 20;

/// How a document begins, and what stands there while it is an array. Perfetto takes a file for JSON where `[{"` or `{"` is among its
/// first bytes, blanks aside: some versions look at 20 bytes, others at more.
const OBJECT: &[u8; 17] = b"{\"traceEvents\":[\n";
const ARRAY: &[u8; 17] = b"[               \n";

/// Closes a document that gets no members behind its events.
const END: &str = "\n]}\n";

/// Events that are not in the file yet.
///
/// None that fits into a page of the file lies in two: blanks before it fill the page up. So no kill cuts an event of usual size.
#[derive(Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
    /// Where in the file they go.
    at: u64,
    /// Where the last event begins in them, with the comma before it.
    event: usize,
    /// There is an event, here or in the file.
    any: bool,
}

impl Events {
    /// What is written from here on, up to [`end`](Self::end), is an event.
    pub(super) fn begin(&mut self) {
        self.event = self.bytes.len();
        if std::mem::replace(&mut self.any, true) {
            self.bytes.extend_from_slice(b",\n");
        }
    }

    /// The event is complete.
    pub(super) fn end(&mut self) {
        let (begin, end) = (self.at + self.event as u64, self.at + self.bytes.len() as u64);
        let room = PAGE - begin % PAGE;
        if end - begin > room && end - begin <= PAGE {
            self.bytes.splice(self.event..self.event, std::iter::repeat_n(b' ', room as usize));
        }
    }

    /// Their bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first of them are in the file.
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

/// A document that grows.
pub(super) struct Document {
    file: OwnFile,
    /// What is written can be written over: it is no pipe and no device.
    is_regular: bool,
    /// It ends with a whole record: it can be closed.
    ends_whole: bool,
    /// Events that are not in the file yet.
    pub(super) events: Events,
    /// Where the records in them end.
    pub(super) marks: Marks,
}

impl Document {
    pub(super) fn new(file: OwnFile) -> Document {
        Document { file, is_regular: false, ends_whole: true, events: Events::default(), marks: Marks::default() }
    }

    /// Begins the document.
    ///
    /// # Errors
    /// The file cannot be asked what it is.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.is_regular = self.file.metadata()?.is_file();
        self.events.write_all(ARRAY)
    }

    /// Before a batch.
    ///
    /// # Errors
    /// As much waits as may wait, or the file takes no more.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        self.file.look()?;
        if self.events.len() >= FULL {
            self.write()?;
        }
        if self.events.len() >= FULL { Err(slow_reader()) } else { Ok(()) }
    }

    /// Looks whether the file is still there, also while there is nothing to write.
    ///
    /// # Errors
    /// What has happened to it, once.
    pub(super) fn look_again(&mut self) -> io::Result<()> {
        self.file.look_again()
    }

    /// Records that were taken and are not in the file.
    pub(super) fn lost(&self) -> u64 {
        self.marks.lost_in(&self.file)
    }

    /// Appends what waits. After an error, what is not in the file waits for the next time.
    ///
    /// # Errors
    /// The file does not take all of it.
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

    /// The disk took only so many bytes: those of whole records stay, less the room that an end needs. None where the file cannot be
    /// cut: what a pipe has taken is gone.
    fn cut_back(&mut self, taken: usize) -> Option<usize> {
        // A file that another program has changed is not touched.
        if !self.is_regular || self.file.look().is_err() {
            return None;
        }
        let kept = self.marks.whole_within(taken.saturating_sub(END.len()));
        let end = self.events.at + kept as u64;
        self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end))).ok().map(|_| kept)
    }

    /// Appends what waits and the end: these members, which stand behind the events.
    ///
    /// # Errors
    /// The file does not take all of it. The document ends without the members then, and with the records that have room.
    pub(super) fn finish(&mut self, members: &str) -> io::Result<()> {
        if !self.is_regular {
            self.file.wait_for_reader();
            self.events.write_all(b"\n]\n")?;
            self.write()?;
            return if self.events.len() > 0 { Err(slow_reader()) } else { self.file.look() };
        }
        writeln!(self.events, "\n],\n{members}}}")?;
        let written = self.write();
        // Into bytes that the file had already. Where it does not take them, the array stays open, which readers accept.
        if written.is_err() && (!self.ends_whole || self.file.write_all(END.as_bytes()).is_err()) {
            return written;
        }
        // Last, because an object without its end is what no reader accepts.
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(OBJECT)?;
        written.and_then(|()| self.file.look())
    }
}
