//! The ring of a flight recorder: pieces of a trace in the segments of its file, the newest in place of the oldest.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::pieces::{Holds, Medium};
use crate::flight::file::RingFile;
use crate::flight::format::{PIECE_HEADER, PieceHeader};
use warpline_core::report::{Retention, TraceFile};

pub struct Segments {
    ring: Arc<RingFile>,
    /// The piece that is being written: its header as it will be committed next.
    header: PieceHeader,
    checksum: crc32fast::Hasher,
    /// What is in each piece of the ring, oldest first.
    pieces: VecDeque<Holds>,
    /// Pieces that were overwritten, and zones in them.
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

    /// Where the piece begins.
    fn begin(&self, sequence: u64) -> u64 {
        let layout = &self.ring.layout;
        layout.segment_at(((sequence - 1) % u64::from(layout.segments)) as u32)
    }

    /// The pieces of the ring, and whether each can be read: not where somebody has removed or cut the file.
    fn readable(&self) -> impl Iterator<Item = (Holds, bool)> {
        self.ring.look();
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
        // Until the header says so, none of it counts, and it can be written again.
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
        // What is there is void before anything is written over it.
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

    /// A write that fails adds nothing to the piece, and what it holds was said with the last one that did not.
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
