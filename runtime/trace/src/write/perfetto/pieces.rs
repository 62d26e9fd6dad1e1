//! A trace in pieces, each of which can be read without the others: numbered files, and the segments of the flight recorder.
//!
//! A record is written whole into one piece. If it does not fit, the piece ends with its account, and the record is written to the
//! next piece, which repeats clocks, tracks and names. Bytes that cannot be written stay in memory until the next flush, up to one
//! piece. Records that then find no room are counted as lost, and so are the records that are still in memory at the end. If
//! another program removes or truncates the current piece, all of it is lost, and the trace continues in the next one. The sinks
//! call this module on the collector's thread.

use std::io;
use std::path::PathBuf;

use super::proto::Buffer;
use super::session_facts::Piece;
use super::trace::Trace;
use crate::write::accounting::Marks;
use crate::write::catalog::MOST;
use crate::write::order::{Order, Record};
use warpline_core::clock::now_ns;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};
use warpline_report::{Report, Retention};

/// The buffer size at which bytes are written without a flush.
const LARGE: usize = 64 << 10;

/// The buffer size at which no more records are accepted.
const FULL: usize = 8 << 20;

/// The share of a piece that the catalog may take: one part of so many.
const SHARE: usize = 8;

/// The maximum size of the account at the end of a piece.
const ACCOUNT: usize = 1 << 10;

/// The medium to which pieces are written.
pub trait Medium {
    /// Returns the size of a piece, in bytes.
    fn size(&self) -> usize;

    /// Returns the number of bytes that the piece still takes.
    fn room(&self) -> usize;

    /// Appends to the piece, which then holds `holds`. Returns how many bytes were taken: fewer than given only with an error.
    fn append(&mut self, bytes: &[u8], holds: Holds) -> (usize, io::Result<()>);

    /// Begins another piece, with `before` zones before it.
    ///
    /// # Errors
    /// The next piece could not be created; the current piece stays.
    fn next(&mut self, before: u64) -> io::Result<()>;

    /// Sets what the piece holds completely, after an error.
    fn holds(&mut self, holds: Holds);

    /// Checks whether the piece still exists, even if there is nothing to write.
    ///
    /// # Errors
    /// What happened to it, once.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Checks at the end whether the complete pieces are still as they were written.
    ///
    /// # Errors
    /// What happened to the first changed piece. [`lost`](Self::lost) counts its records.
    fn check_complete(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the piece is known to be unreadable.
    fn has_lost_piece(&self) -> bool {
        false
    }

    /// Returns the number of records in written pieces that cannot be read any more, except those of
    /// [`has_lost_piece`](Self::has_lost_piece).
    fn lost(&self) -> u64 {
        0
    }

    /// Returns the files that remain of all that was written.
    fn kept(&self) -> Retention;
}

/// The number of zones and of all records in a piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holds {
    pub(super) zones: u64,
    pub(super) records: u64,
}

/// Writes a Perfetto trace in pieces, each of which can be read alone.
pub struct PieceSink<M> {
    name: String,
    /// The path after which the pieces are named.
    pub(super) path: PathBuf,
    medium: M,
    trace: Option<Trace>,
    order: Order,
    /// The bytes of the piece that are not written yet.
    buffer: Buffer,
    /// The positions in the buffer at which records end, and at which zones end.
    marks: Marks,
    zone_marks: Marks,
    /// The number of the piece, from 1.
    number: u64,
    /// The number of zones in the piece, and in the pieces before it.
    zones: u64,
    before: u64,
    /// The number of records in the piece.
    records: u64,
    standing: Progress,
    /// Whether the account of the piece is written and the next piece has not begun.
    is_over: bool,
    /// Whether the piece does not contain the catalog yet.
    is_catalog_due: bool,
    /// The medium's first error since the last flush.
    refused: Option<io::Error>,
    /// The error of a piece that became unreadable and was replaced since the last flush.
    lost_piece: Option<io::Error>,
    /// Whether a record since the last flush was too large for any piece.
    is_too_large: bool,
    lost: u64,
}

impl<M: Medium + Send> Sink for PieceSink<M> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.trace = Some(Trace::begin(session, &mut self.buffer));
        self.write_buffer()
    }

    /// Writes each record into this piece or the next one.
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if self.trace.is_none() {
            return Err(not_started());
        }
        let mut order = std::mem::take(&mut self.order);
        let put = order.each(batch, |record| {
            self.put(record);
            Ok(())
        });
        self.order = order;
        self.write_when_large();
        put
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.standing = *progress;
        self.write_catalog();
        let found = self.medium.check();
        if found.is_err() {
            self.replace_piece();
        }
        found
    }

    /// Writes the buffer, including bytes that the medium refused before.
    fn flush(&mut self) -> io::Result<()> {
        let refused = self.refused.take().or(self.lost_piece.take());
        let written = if self.is_over { self.turn() } else { self.write_buffer() };
        if written.is_err() && self.medium.has_lost_piece() {
            self.replace_piece();
        }
        written?;
        refused.map_or(Ok(()), Err)?;
        self.say_what_was_too_large()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        // The records lost by the refusal are reported even if there is room again.
        let refused = self.refused.take().or(self.lost_piece.take());
        self.standing = Progress {
            begun: report.begun,
            recorded: report.recorded,
            captured: report.captured,
            dropped: report.dropped.total(),
            ..self.standing
        };
        self.write_catalog();
        // The last account is longer than the account of a piece.
        let begin = self.buffer.len();
        if !self.is_over {
            self.end(report);
        }
        if self.is_over || self.buffer.len() > self.medium.room() {
            self.buffer.truncate(begin);
            self.turn()?;
            self.end(report);
        }
        self.write_buffer()?;
        refused.map_or(Ok(()), Err)?;
        self.medium.check_complete()?;
        self.say_what_was_too_large()
    }

    fn lost(&self) -> u64 {
        self.lost + self.marks.missing() + self.medium.lost()
    }

    fn kept(&self) -> Retention {
        self.medium.kept()
    }
}

impl<M: Medium> PieceSink<M> {
    pub(super) fn to(medium: M, name: String, path: PathBuf) -> PieceSink<M> {
        PieceSink {
            name,
            path,
            medium,
            trace: None,
            order: Order::default(),
            buffer: Buffer::default(),
            marks: Marks::default(),
            zone_marks: Marks::default(),
            number: 1,
            zones: 0,
            before: 0,
            records: 0,
            standing: Progress::default(),
            is_over: false,
            is_catalog_due: true,
            refused: None,
            lost_piece: None,
            is_too_large: false,
            lost: 0,
        }
    }

    fn say_what_was_too_large(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_too_large) {
            false => Ok(()),
            true => Err(io::Error::other("a record is larger than a whole piece; make the pieces larger")),
        }
    }

    /// Writes one record into this piece or the next one.
    #[inline]
    fn put(&mut self, record: Record<'_>) {
        if self.is_catalog_due {
            self.write_catalog();
        }
        let Some(trace) =
            self.trace.as_mut().filter(|_| !self.is_over && self.refused.is_none() && self.buffer.len() < FULL)
        else {
            self.lost += u64::from(record.is_counted());
            return;
        };
        let begin = self.buffer.len();
        trace.record(record, &mut self.buffer);
        if self.buffer.len() + ACCOUNT <= self.medium.room() {
            return self.mark(record);
        }
        self.buffer.truncate(begin);
        self.put_into_next(record);
    }

    /// Writes as much of the catalog as may be in a piece, if it is not there yet and the piece takes it.
    #[cold]
    fn write_catalog(&mut self) {
        if !self.is_catalog_due || self.is_over || self.refused.is_some() {
            return;
        }
        let Some(trace) = &self.trace else { return };
        let begin = self.buffer.len();
        trace.catalog(MOST.min(self.medium.size() / SHARE), &mut self.buffer);
        if self.buffer.len() + ACCOUNT > self.medium.room() {
            self.buffer.truncate(begin);
        }
        self.is_catalog_due = false;
    }

    #[cold]
    fn put_into_next(&mut self, record: Record<'_>) {
        // Once the next piece has begun in the trace, the end of this one can no longer be written.
        let begin = self.buffer.len();
        self.account("ends", Some(self.zones));
        let Some(trace) = &mut self.trace else { return };
        // A new piece may overwrite the oldest one. It is not begun for a record that fits into no piece between two accounts.
        let mut alone = Buffer::default();
        trace.next_piece(&mut alone);
        let again = alone.len();
        trace.record(record, &mut alone);
        let fits = alone.len() + 2 * ACCOUNT <= self.medium.size();
        if !fits {
            self.lost += u64::from(record.is_counted());
            self.is_too_large = true;
            if begin + again + ACCOUNT <= self.medium.room() {
                // Definitions written with the record are no longer in the piece, so all are written again.
                self.buffer.truncate(begin);
                return trace.next_piece(&mut self.buffer);
            }
        }
        self.is_over = true;
        if let Err(error) = self.turn() {
            self.refused = Some(error);
            self.lost += u64::from(fits && record.is_counted());
            return;
        }
        if let (true, Some(trace)) = (fits, &mut self.trace) {
            trace.record(record, &mut self.buffer);
            self.mark(record);
        }
    }

    /// Marks the end of the record at the end of the buffer.
    #[inline]
    fn mark(&mut self, record: Record<'_>) {
        if record.is_counted() {
            self.marks.end_record(self.buffer.len());
            self.records += 1;
        }
        if let Record::Zone(_) = record {
            self.zone_marks.end_record(self.buffer.len());
            self.zones += 1;
        }
    }

    /// Ends the piece and begins the next one. After an error, the next call resumes where this one stopped.
    fn turn(&mut self) -> io::Result<()> {
        if !self.is_over {
            self.account("ends", Some(self.zones));
            self.is_over = true;
        }
        self.write_buffer()?;
        self.medium.next(self.before + self.zones)?;
        self.is_over = false;
        self.is_catalog_due = true;
        self.before += self.zones;
        self.zones = 0;
        self.records = 0;
        self.number += 1;
        if let Some(trace) = &mut self.trace {
            trace.next_piece(&mut self.buffer);
        }
        self.account("begins", None);
        // From here on, a killed process leaves a readable piece. The next flush meets an error again.
        let _ = self.write_buffer();
        Ok(())
    }

    /// Counts the records of an unreadable piece as lost, and begins the next one.
    fn replace_piece(&mut self) {
        self.lose_piece();
        if let Err(error) = self.turn() {
            self.refused = Some(error);
        }
    }

    fn lose_piece(&mut self) {
        self.lost += std::mem::take(&mut self.records);
        self.zones = 0;
        self.buffer.truncate(0);
        (self.marks, self.zone_marks) = (Marks::default(), Marks::default());
        self.medium.holds(Holds::default());
        self.is_over = true;
    }

    fn account(&mut self, what: &str, zones: Option<u64>) {
        let Some(trace) = &self.trace else { return };
        let piece = Piece { number: self.number, before: self.before, zones, standing: self.standing };
        trace.piece(what, now_ns(), &piece, &mut self.buffer);
    }

    /// Writes the account of the whole session.
    fn end(&mut self, report: &Report) {
        if self.number > 1 {
            self.account("ends", Some(self.zones));
        }
        if let Some(trace) = &mut self.trace {
            trace.end(report, &mut self.buffer);
        }
    }

    fn write_when_large(&mut self) {
        if self.buffer.len() < LARGE || self.refused.is_some() {
            return;
        }
        let error = self.write_buffer().err();
        if error.is_some() && self.medium.has_lost_piece() {
            // The records that follow go into the next piece, and the next flush reports the error.
            self.lost_piece = self.lost_piece.take().or(error);
            self.replace_piece();
        } else {
            self.refused = error;
        }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let holds = Holds { zones: self.zones, records: self.records };
        let (taken, result) = self.medium.append(self.buffer.as_bytes(), holds);
        self.buffer.consume(taken);
        self.marks.wrote(taken);
        self.zone_marks.wrote(taken);
        if result.is_err() && self.medium.has_lost_piece() {
            self.lose_piece();
        } else if result.is_err() {
            let (zones, records) = (self.zone_marks.missing(), self.marks.missing());
            self.medium.holds(Holds { zones: self.zones - zones, records: self.records - records });
        }
        result
    }
}
