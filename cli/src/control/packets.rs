//! Writes the pieces of a trace that a program sends as whole packets, so that the file is a valid trace at every moment.
//! `record` calls it.
//!
//! A Perfetto trace is a sequence of packets, each the field 1 of the message `Trace`: a byte `0x0a`, a length as a varint, the packet.
//! A piece may end anywhere. This module does not look into the packets.

use std::io::{self, Write};

/// The tag of a packet.
const TAG: u8 = 0x0a;

/// The limit of a packet. warpline writes far shorter ones.
const MOST_BYTES: usize = 16 << 20;

/// Why a piece is not written.
#[derive(Debug)]
pub(super) enum PieceError {
    /// It is no piece of a trace.
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
    /// The bytes are no packets, or cannot be written.
    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), PieceError> {
        self.rest.extend_from_slice(piece);
        let mut whole = 0;
        let wrong = loop {
            match length(&self.rest[whole..]) {
                Ok(Some(length)) if length <= self.rest.len() - whole => whole += length,
                Ok(_) => break false,
                Err(()) => break true,
            }
        };
        self.to.write_all(&self.rest[..whole]).map_err(PieceError::Write)?;
        self.rest.drain(..whole);
        if wrong { Err(PieceError::NoPacket) } else { Ok(()) }
    }

    /// Flushes what was written so far.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The length of the packet that begins there, with its tag; none if more bytes are needed to know it.
fn length(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let Some((tag, bytes)) = bytes.split_first() else { return Ok(None) };
    if *tag != TAG {
        return Err(());
    }
    let mut length = 0;
    for (at, byte) in bytes.iter().enumerate().take(4) {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return if length > MOST_BYTES { Err(()) } else { Ok(Some(1 + at + 1 + length)) };
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
