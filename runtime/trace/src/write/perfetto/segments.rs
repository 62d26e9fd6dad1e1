//! The ring of a flight recorder: pieces of a trace in the segments of its file. The newest piece overwrites the oldest.
//!
//! The session gives a [`FlightSink`] to the collector, which calls it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::pieces::{Holds, Medium, PieceSink};
use crate::flight::file::RingFile;
use crate::flight::format::{PIECE_HEADER, PieceHeader};
use warpline_report::{Retention, TraceFile};

/// Writes a Perfetto trace into the ring of a flight recorder.
pub type FlightSink = PieceSink<Segments>;

impl FlightSink {
    pub fn new(ring: Arc<RingFile>) -> FlightSink {
        let (name, path) = ("flight".to_owned(), ring.path.clone());
        PieceSink::to(Segments::new(ring), name, path)
    }
}

pub struct Segments {
    ring: Arc<RingFile>,
    /// The header of the current piece, as it will be committed next.
    header: PieceHeader,
    checksum: crc32fast::Hasher,
    /// The contents of each piece in the ring, oldest first.
    pieces: VecDeque<Holds>,
    /// The number of overwritten pieces, and of zones in them.
    removed: u64,
    removed_zones: u64,
}

impl Segments {
    pub(super) fn new(ring: Arc<RingFile>) -> Segments {
        Segments {
            ring,
            header: PieceHeader { sequence: 1, ..PieceHeader::default() },
            checksum: crc32fast::Hasher::new(),
            pieces: VecDeque::from([Holds::default()]),
            removed: 0,
            removed_zones: 0,
        }
    }

    /// Returns the position of a piece.
    fn begin(&self, sequence: u64) -> u64 {
        let layout = &self.ring.layout;
        layout.segment_at(((sequence - 1) % u64::from(layout.segments)) as u32)
    }

    /// Returns the pieces of the ring, and whether each can be read: not if the file was removed or truncated.
    fn readable(&self) -> impl Iterator<Item = (Holds, bool)> {
        self.ring.check();
        let first = (self.header.sequence + 1).saturating_sub(self.pieces.len() as u64);
        let is_whole = !self.ring.is_harmed();
        let has_some = is_whole || self.ring.is_readable();
        (first..).zip(&self.pieces).map(move |(sequence, holds)| {
            let is_there = || self.ring.has_piece(self.begin(sequence), sequence);
            (*holds, is_whole || has_some && is_there())
        })
    }
}

impl Medium for Segments {
    fn size(&self) -> usize {
        self.ring.layout.segment as usize - PIECE_HEADER
    }

    fn room(&self) -> usize {
        self.size() - self.header.len as usize
    }

    fn append(&mut self, bytes: &[u8], holds: Holds) -> (usize, io::Result<()>) {
        if bytes.is_empty() {
            return (0, Ok(()));
        }
        if bytes.len() > self.room() {
            return (
                0,
                Err(io::Error::other("what is to be written is larger than a segment; make the recorder larger")),
            );
        }
        let begin = self.begin(self.header.sequence);
        let mut checksum = self.checksum.clone();
        checksum.update(bytes);
        let header = PieceHeader {
            zones: holds.zones,
            len: self.header.len + bytes.len() as u32,
            checksum: checksum.clone().finalize(),
            ..self.header
        };
        let at = begin + PIECE_HEADER as u64 + u64::from(self.header.len);
        // The bytes do not count until the header includes them, so they can be written again.
        if let Err(error) = self.ring.write_at(at, bytes).and_then(|()| self.ring.commit(begin, header)) {
            return (0, Err(error));
        }
        (self.header, self.checksum) = (header, checksum);
        if let Some(newest) = self.pieces.back_mut() {
            *newest = holds;
        }
        (bytes.len(), Ok(()))
    }

    fn next(&mut self, before: u64) -> io::Result<()> {
        let sequence = self.header.sequence + 1;
        // The old piece is invalidated before anything is written over it.
        self.ring.clear(self.begin(sequence))?;
        self.header = PieceHeader { sequence, before, ..PieceHeader::default() };
        self.checksum = crc32fast::Hasher::new();
        self.pieces.push_back(Holds::default());
        if self.pieces.len() > self.ring.layout.segments as usize {
            self.removed += 1;
            self.removed_zones += self.pieces.pop_front().map_or(0, |oldest| oldest.zones);
        }
        Ok(())
    }

    /// Does nothing: a failed write adds nothing to the piece, and the last successful one set what it holds.
    fn holds(&mut self, _: Holds) {}

    fn lost(&self) -> u64 {
        self.readable().filter(|(_, is_there)| !is_there).map(|(holds, _)| holds.records).sum()
    }

    fn kept(&self) -> Retention {
        let zones = self.readable().filter(|(_, is_there)| *is_there).map(|(holds, _)| holds.zones).sum();
        let file = TraceFile { path: self.ring.path.clone(), zones, bytes: self.ring.layout.file_bytes() };
        let is_there = !self.ring.is_harmed() || self.ring.is_readable();
        Retention {
            files: is_there.then_some(file).into_iter().collect(),
            removed: self.removed,
            removed_zones: self.removed_zones,
        }
    }
}
