//! A trace in pieces, each of which can be read without the others: numbered files, and the segments of the flight recorder.
//!
//! A record is written whole into one piece. If it does not fit, the piece ends with its account, and the record goes into the next
//! piece, which repeats clocks, tracks and names. What cannot be written stays in memory until the next flush, one piece at most. Records
//! that arrive meanwhile and find no room are counted as lost, and so is what is still in memory at the end. If the current piece is
//! removed or truncated by someone else, all of it is lost, and the trace continues in the next one. The sinks call this module on the
//! collector's thread.

use std::io;

use super::proto::Buffer;
use super::session_facts::Piece;
use super::trace::Trace;
use crate::order::{Order, Record};
use crate::written::Marks;
use warpline_core::clock::now_ns;
use warpline_core::report::{Report, Retention};
use warpline_core::sink::{Batch, Progress, SessionInfo, not_started};

/// At this size the buffer is written without waiting for a flush.
const LARGE: usize = 64 << 10;

/// At this size the buffer takes no more records.
const FULL: usize = 8 << 20;

/// The largest account at the end of a piece.
const ACCOUNT: usize = 1 << 10;

/// Where pieces go.
pub(super) trait Medium {
    /// Bytes that a piece takes.
    fn size(&self) -> usize;

    /// Bytes that the piece still takes.
    fn room(&self) -> usize;

    /// Appends to the piece, which then holds `holds`. Returns how many bytes were taken: fewer than given only with an error.
    fn append(&mut self, bytes: &[u8], holds: Holds) -> (usize, io::Result<()>);

    /// Begins another piece, with `before` zones before it.
    ///
    /// # Errors
    /// There is none; the last piece stays.
    fn next(&mut self, before: u64) -> io::Result<()>;

    /// After an error: what the piece holds whole.
    fn holds(&mut self, holds: Holds);

    /// Checks whether the piece still exists, also while there is nothing to write.
    ///
    /// # Errors
    /// What has happened to it, once.
    fn look(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Checks at the end whether the complete pieces are as they were written.
    ///
    /// # Errors
    /// What has happened to the first that is not. Its records are in [`lost`](Self::lost).
    fn look_at_complete(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the piece is known to be unreadable.
    fn has_lost_piece(&self) -> bool {
        false
    }

    /// Records in pieces that the medium took and that cannot be read any more, other than those of
    /// [`has_lost_piece`](Self::has_lost_piece).
    fn lost(&self) -> u64 {
        0
    }

    /// The files that remain of all that was written.
    fn kept(&self) -> Retention;
}

/// What a piece holds: zones, and records of all kinds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    pub(super) zones: u64,
    pub(super) records: u64,
}

pub(super) struct Pieces<M> {
    medium: M,
    trace: Option<Trace>,
    order: Order,
    /// What belongs to the piece and is not in it yet.
    buffer: Buffer,
    /// Where the records in the buffer end, and the zones among them.
    marks: Marks,
    zone_marks: Marks,
    /// The piece, from 1.
    number: u64,
    /// Zones in it, and in those before it.
    zones: u64,
    before: u64,
    /// Records in it.
    records: u64,
    standing: Progress,
    /// The account of the piece is written, and there is no other piece yet.
    is_over: bool,
    /// The medium refused something since the last flush.
    refused: Option<io::Error>,
    /// A record since the last flush fits into no piece.
    is_too_large: bool,
    lost: u64,
}

impl<M: Medium> Pieces<M> {
    pub(super) fn new(medium: M) -> Pieces<M> {
        Pieces {
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
            refused: None,
            is_too_large: false,
            lost: 0,
        }
    }

    pub(super) fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.trace = Some(Trace::begin(session, &mut self.buffer));
        self.write()
    }

    /// Writes each record into this piece, or into the next one.
    pub(super) fn batch(&mut self, batch: Batch<'_>) -> io::Result<()> {
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

    pub(super) fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        self.standing = *progress;
        let found = self.medium.look();
        if found.is_err() {
            self.replace_piece();
        }
        found
    }

    /// What the medium refused it is asked to take again.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let refused = self.refused.take();
        let written = if self.is_over { self.turn() } else { self.write() };
        if written.is_err() && self.medium.has_lost_piece() {
            self.replace_piece();
        }
        written?;
        refused.map_or(Ok(()), Err)?;
        self.say_what_was_too_large()
    }

    pub(super) fn finish(&mut self, report: &Report) -> io::Result<()> {
        // What was lost by that is said, also where there is room again.
        let refused = self.refused.take();
        self.standing = Progress {
            begun: report.begun,
            recorded: report.recorded,
            captured: report.captured,
            dropped: report.dropped.total(),
            ..self.standing
        };
        // The last account is longer than that of a piece.
        let begin = self.buffer.len();
        if !self.is_over {
            self.end(report);
        }
        if self.is_over || self.buffer.len() > self.medium.room() {
            self.buffer.truncate(begin);
            self.turn()?;
            self.end(report);
        }
        self.write()?;
        refused.map_or(Ok(()), Err)?;
        self.medium.look_at_complete()?;
        self.say_what_was_too_large()
    }

    fn say_what_was_too_large(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.is_too_large) {
            false => Ok(()),
            true => Err(io::Error::other("a record is larger than a whole piece; make the pieces larger")),
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost + self.marks.missing() + self.medium.lost()
    }

    pub(super) fn kept(&self) -> Retention {
        self.medium.kept()
    }

    /// Writes one record into this piece, or into the next one.
    #[inline]
    fn put(&mut self, record: Record<'_>) {
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

    #[cold]
    fn put_into_next(&mut self, record: Record<'_>) {
        // Behind a beginning of a new piece the trace cannot say any more how this one ends.
        let begin = self.buffer.len();
        self.account("ends", Some(self.zones));
        let Some(trace) = &mut self.trace else { return };
        // A new piece may cost the oldest one: not for a record that fits into none, between two accounts.
        let mut alone = Buffer::default();
        trace.next_piece(&mut alone);
        let again = alone.len();
        trace.record(record, &mut alone);
        let fits = alone.len() + 2 * ACCOUNT <= self.medium.size();
        if !fits {
            self.lost += u64::from(record.is_counted());
            self.is_too_large = true;
            if begin + again + ACCOUNT <= self.medium.room() {
                // What it said first is not in the piece: all is said again.
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

    /// It ends here.
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

    /// Ends the piece and begins the next one. What an error keeps from being done is done the next time.
    fn turn(&mut self) -> io::Result<()> {
        if !self.is_over {
            self.account("ends", Some(self.zones));
            self.is_over = true;
        }
        self.write()?;
        self.medium.next(self.before + self.zones)?;
        self.is_over = false;
        self.before += self.zones;
        self.zones = 0;
        self.records = 0;
        self.number += 1;
        if let Some(trace) = &mut self.trace {
            trace.next_piece(&mut self.buffer);
        }
        self.account("begins", None);
        // A process that is killed now leaves a readable piece. The next flush meets an error again.
        let _ = self.write();
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
        if self.buffer.len() >= LARGE && self.refused.is_none() {
            self.refused = self.write().err();
        }
    }

    fn write(&mut self) -> io::Result<()> {
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
