//! Writes the pieces of a trace that a program sends as whole packets, so that the file is a valid trace at every
//! moment. `record` calls it.
//!
//! A piece may end anywhere. This module does not look into the packets.

use std::io::{self, Write};

use warpline_trace::read::Head;

/// Why a piece is not written.
#[derive(Debug)]
pub(super) enum PieceError {
    /// It is not a piece of a trace.
    NoPacket,
    /// The trace cannot be written.
    Write(io::Error),
}

/// Writes the packets of a trace.
pub(super) struct Packets<W> {
    to: W,
    /// The beginning of a packet whose end has not come.
    rest: Vec<u8>,
}

impl<W: Write> Packets<W> {
    pub(super) fn new(to: W) -> Packets<W> {
        Packets { to, rest: Vec::new() }
    }

    /// Adds a piece, and writes the packets that are complete.
    ///
    /// # Errors
    /// The bytes are not packets, or cannot be written.
    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), PieceError> {
        self.rest.extend_from_slice(piece);
        let mut whole = 0;
        let wrong = loop {
            match Head::read(&self.rest[whole..]) {
                Head::Packet { header, len } if header + len <= self.rest.len() - whole => whole += header + len,
                Head::Packet { .. } | Head::Short => break false,
                // warpline writes far shorter ones than the limit.
                Head::NoPacket | Head::TooLarge(_) => break true,
            }
        };
        self.to.write_all(&self.rest[..whole]).map_err(PieceError::Write)?;
        self.rest.drain(..whole);
        if wrong { Err(PieceError::NoPacket) } else { Ok(()) }
    }

    /// Flushes the packets that were written so far.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use warpline_trace::read::FIRST as TAG;

    fn packet(length: usize) -> Vec<u8> {
        let mut bytes = vec![TAG];
        let mut left = length;
        while left >= 0x80 {
            bytes.push((left & 0x7f | 0x80) as u8);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes.resize(bytes.len() + length, 7);
        bytes
    }

    proptest! {
        #[test]
        fn whatever_the_pieces_are_whole_packets_are_written(lengths in prop::collection::vec(0_usize..40_000, 1..9), piece in 1_usize..70_000) {
            let packets: Vec<_> = lengths.iter().map(|length| packet(*length)).collect();
            let all = packets.concat();
            let mut out = Packets::new(Vec::new());
            let mut fed = 0;
            for piece in all.chunks(piece) {
                out.write(piece).expect("a trace");
                fed += piece.len();
                let mut whole = 0;
                packets.iter().map(Vec::len).take_while(|length| { let fits = whole + length <= fed; whole += if fits { *length } else { 0 }; fits }).count();
                prop_assert_eq!(out.to.len(), whole);
            }
            prop_assert_eq!(out.to, all);
        }
    }

    #[test]
    fn what_is_no_packet_is_not_written_and_what_came_before_is() {
        for wrong in [&b"x"[..], &[TAG, 0xff, 0xff, 0xff, 0xff, 1], &[TAG, 0xff, 0xff, 0xff, 0x7f]] {
            let mut out = Packets::new(Vec::new());
            let first = packet(300);
            assert!(matches!(out.write(&[&first, wrong].concat()), Err(PieceError::NoPacket)), "{wrong:?}");
            assert_eq!(out.to, first);
        }
    }
}
