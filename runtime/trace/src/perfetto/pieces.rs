//! A trace in pieces, each of which can be read without the others: files that follow one another, and the segments of the
//! flight recorder.
//!
//! A record is written whole into one piece. Where it does not fit any more, the piece ends with its account, and the
//! record goes into the next one, in which clocks, tracks and names are said again. What cannot be written stays in
//! memory, one piece at most, until the next flush; what comes meanwhile and finds no room is counted as lost, and so is
//! what still waits at the end. Where somebody removes or cuts the piece that is being written, all of it is lost, and the trace goes
//! on in the next one. Called by the sinks on the collector's thread.

use std::io;

use super::proto::Buffer;
use super::session_facts::Piece;
use super::trace::Trace;
use crate::written::Marks;
use warpline_core::clock::now_ns;
use warpline_core::record::ZoneRecord;
use warpline_core::report::{Report, Retention};
use warpline_core::sink::{Batch, Progress, SessionInfo, not_started};

/// Written without being asked.
const LARGE: usize = 64 << 10;

/// Takes no more while so much waits for a medium that refuses it.
const FULL: usize = 8 << 20;

/// What the account at the end of a piece takes at most.
const ACCOUNT: usize = 1 << 10;

/// Where pieces go.
pub(super) trait Medium {
    /// Bytes that a piece takes.
    fn size(&self) -> usize;

    /// Bytes that the piece still takes.
    fn room(&self) -> usize;

    /// Adds to the piece, which has so much then, and says how many bytes it took: fewer than these with an error alone.
    fn append(&mut self, bytes: &[u8], holds: Holds) -> (usize, io::Result<()>);

    /// Makes room for another piece, with so many zones before it.
    ///
    /// # Errors
    /// There is none; the last piece stays.
    fn next(&mut self, before: u64) -> io::Result<()>;

    /// After an error: so much of the piece is whole in it.
    fn holds(&mut self, holds: Holds);

    /// Looks whether the piece is still there, also while there is nothing to write.
    ///
    /// # Errors
    /// What has happened to it, once.
    fn look(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Looks at the end whether the pieces that are complete are as they were written.
    ///
    /// # Errors
    /// What has happened to the first that is not. Its records are in [`lost`](Self::lost).
    fn look_at_complete(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether nothing of the piece can be read any more, as far as that is known.
    fn has_lost_piece(&self) -> bool {
        false
    }

    /// Records in pieces that the medium took and that cannot be read any more, other than those of
    /// [`has_lost_piece`](Self::has_lost_piece).
    fn lost(&self) -> u64 {
        0
    }

    /// What is left of all that was written.
    fn kept(&self) -> Retention;
}

/// What a piece holds: zones, and records of all kinds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    pub(super) zones: u64,
    pub(super) records: u64,
}

/// What is put into a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Zone,
    /// Another record.
    Record,
    /// What is no record, and in no count.
    Change,
}

pub(super) struct Pieces<M> {
    medium: M,
    trace: Option<Trace>,
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

impl What {
    fn records(self) -> u64 {
        u64::from(self != What::Change)
    }
}

impl<M: Medium> Pieces<M> {
    pub(super) fn new(medium: M) -> Pieces<M> {
        Pieces {
            medium,
            trace: None,
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
        match batch {
            Batch::Zones(zones) => self.zones(zones)?,
            Batch::Spans(spans) => self.each(What::Record, spans, Trace::span),
            Batch::Kernels(kernels) => self.each(What::Record, kernels, Trace::kernel),
            Batch::Replays(replays) => self.each(What::Record, replays, Trace::replay),
            Batch::Waits(waits) => self.each(What::Record, waits, Trace::wait),
            Batch::Depths(depths) => self.each(What::Record, depths, Trace::depth),
            Batch::Changes(changes) => self.each(What::Change, changes, Trace::change),
            _ => {}
        }
        self.write_when_large();
        Ok(())
    }

    fn zones(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(not_started()) };
        let mut order = std::mem::take(&mut trace.order);
        let in_order = order.outer_first(batch);
        in_order.for_each(|record| self.put(What::Zone, |trace, buffer| trace.zone(record, buffer)));
        if let Some(trace) = &mut self.trace {
            trace.order = order;
        }
        Ok(())
    }

    fn each<T>(&mut self, what: What, batch: &[T], write: impl Fn(&mut Trace, &T, &mut Buffer)) {
        batch.iter().for_each(|record| self.put(what, |trace, buffer| write(trace, record, buffer)));
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
    fn put(&mut self, what: What, write: impl Fn(&mut Trace, &mut Buffer)) {
        let Some(trace) =
            self.trace.as_mut().filter(|_| !self.is_over && self.refused.is_none() && self.buffer.len() < FULL)
        else {
            self.lost += what.records();
            return;
        };
        let begin = self.buffer.len();
        write(trace, &mut self.buffer);
        if self.buffer.len() + ACCOUNT <= self.medium.room() {
            return self.mark(what);
        }
        self.buffer.truncate(begin);
        self.put_into_next(what, write);
    }

    #[cold]
    fn put_into_next(&mut self, what: What, write: impl Fn(&mut Trace, &mut Buffer)) {
        // Behind a beginning of a new piece the trace cannot say any more how this one ends.
        let begin = self.buffer.len();
        self.account("ends", Some(self.zones));
        let Some(trace) = &mut self.trace else { return };
        // A new piece may cost the oldest one: not for a record that fits into none, between two accounts.
        let mut alone = Buffer::default();
        trace.next_piece(&mut alone);
        let again = alone.len();
        write(trace, &mut alone);
        let fits = alone.len() + 2 * ACCOUNT <= self.medium.size();
        if !fits {
            self.lost += what.records();
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
            self.lost += if fits { what.records() } else { 0 };
            return;
        }
        if let (true, Some(trace)) = (fits, &mut self.trace) {
            write(trace, &mut self.buffer);
            self.mark(what);
        }
    }

    /// It ends here.
    #[inline]
    fn mark(&mut self, what: What) {
        if what != What::Change {
            self.marks.end_record(self.buffer.len());
            self.records += 1;
        }
        if what == What::Zone {
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
        // A process that is killed now leaves a piece that can be read. An error is met again by the next flush.
        let _ = self.write();
        Ok(())
    }

    /// Counts what was put into a piece that nobody can read any more as lost, and begins the next one.
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
