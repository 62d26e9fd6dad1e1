//! Splits a Perfetto trace into its packets, which are borrowed from one buffer. Every reader of such a trace uses it.
//!
//! A trace is the field 1 of a message, again and again. Memory is bounded by [`MAX_PACKET`], the one limit of a packet, and grows with what the
//! file has: no length that a file claims takes any. Most readers skip and count a larger packet, and end at damage, because what precedes it
//! is sound, also in a compressed file ([`Packets::next_packet`]); the translator of another tool's trace refuses both ([`Packets::next_sound`]).

use std::io::{self, Read};

use super::document::MAX_VALUE;
use super::inputs;
use super::wire::varint;

/// The maximum size of a packet, in bytes: that of an event in Chrome JSON. Those of warpline have a few hundred; one of another tool may define many
/// names.
pub const MAX_PACKET: usize = MAX_VALUE;

/// The tag of a packet.
pub const FIRST: u8 = 1 << 3 | 2;

/// The longest header of a packet.
const HEADER: usize = 11;

/// The size of the buffer before a packet needs more.
const BUFFER: usize = 1 << 20;

/// The packets of a trace, in the order of the file.
pub struct Packets<R> {
    input: R,
    buffer: Vec<u8>,
    /// The bytes that were read and not taken.
    from: usize,
    to: usize,
    is_ended: bool,
    at: u64,
    pub too_large: u64,
    /// The byte at which the file stops being a trace.
    pub damaged_at: Option<u64>,
    /// Whether the last packet is cut.
    pub is_cut: bool,
}

/// Why the next packet, which begins at [`Packets::place`], is not sound.
#[derive(Debug)]
pub enum Unsound {
    /// The file cannot be read, or it is compressed and damaged.
    Io(io::Error),
    /// The file ends within the packet.
    Cut,
    /// It is no packet.
    NoPacket,
    /// Its message has more bytes than [`MAX_PACKET`]. The value is its length with the header. No byte of it has been taken.
    TooLarge(u64),
}

/// What a packet says of itself before its message.
pub enum Head {
    /// So many bytes come before the message, which has so many.
    Packet { header: usize, len: usize },
    /// With its header, it has so many bytes, and its message more than [`MAX_PACKET`].
    TooLarge(u64),
    /// It is no packet.
    NoPacket,
    /// More bytes are needed.
    Short,
}

impl Head {
    /// Reads the begin of a packet.
    #[inline]
    pub fn read(bytes: &[u8]) -> Head {
        let Some((first, rest)) = bytes.split_first() else { return Head::Short };
        if *first != FIRST {
            return Head::NoPacket;
        }
        let Some((len, width)) = varint(rest) else {
            return if bytes.len() < HEADER { Head::Short } else { Head::NoPacket };
        };
        let header = 1 + width;
        match usize::try_from(len) {
            Ok(len) if len <= MAX_PACKET => Head::Packet { header, len },
            _ => Head::TooLarge(len.saturating_add(header as u64)),
        }
    }
}

impl<R: Read> Packets<R> {
    pub fn new(input: R) -> Packets<R> {
        Packets {
            input,
            buffer: vec![0; BUFFER],
            from: 0,
            to: 0,
            is_ended: false,
            at: 0,
            too_large: 0,
            damaged_at: None,
            is_cut: false,
        }
    }

    /// Returns the next packet; none at the end, which may be within a packet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_packet(&mut self) -> io::Result<Option<&[u8]>> {
        let found = loop {
            let unsound = match self.find() {
                Ok(found) => break found,
                Err(unsound) => unsound,
            };
            match unsound {
                Unsound::TooLarge(len) => match self.skip(len) {
                    Ok(()) => continue,
                    Err(error) => self.end_at(error)?,
                },
                Unsound::Io(error) => self.end_at(error)?,
                Unsound::NoPacket => self.damaged_at = Some(self.at),
                Unsound::Cut => self.is_cut = true,
            }
            break None;
        };
        Ok(found.map(|(begin, end)| &self.buffer[begin..end]))
    }

    /// Ends a compressed file where it is damaged.
    fn end_at(&mut self, error: io::Error) -> io::Result<()> {
        if self.at == 0 || !inputs::is_damage(&error) {
            return Err(error);
        }
        self.damaged_at = Some(self.at);
        Ok(())
    }

    /// Returns the next packet; none at the end of the file.
    ///
    /// # Errors
    /// What is next is no whole packet within the limit.
    pub fn next_sound(&mut self) -> Result<Option<&[u8]>, Unsound> {
        Ok(self.find()?.map(|(begin, end)| &self.buffer[begin..end]))
    }

    /// The byte behind the last packet.
    pub fn place(&self) -> u64 {
        self.at
    }

    /// Finds the next packet, by its place in the buffer, and takes it; none at the end of the file.
    #[inline]
    fn find(&mut self) -> Result<Option<(usize, usize)>, Unsound> {
        self.fill(HEADER).map_err(Unsound::Io)?;
        let waiting = &self.buffer[self.from..self.to];
        if waiting.is_empty() {
            return Ok(None);
        }
        let (header, len) = match Head::read(waiting) {
            Head::Packet { header, len } => (header, len),
            Head::TooLarge(len) => return Err(Unsound::TooLarge(len)),
            Head::NoPacket => return Err(Unsound::NoPacket),
            Head::Short => return Err(Unsound::Cut),
        };
        self.fill(header + len).map_err(Unsound::Io)?;
        if self.to - self.from < header + len {
            return Err(Unsound::Cut);
        }
        let begin = self.from + header;
        self.from = begin + len;
        self.at += (header + len) as u64;
        Ok(Some((begin, begin + len)))
    }

    /// Reads until so many bytes are there, or the file ends. The buffer grows when it is full, at most to twice of what was read.
    #[inline]
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.to - self.from >= wanted || self.is_ended { Ok(()) } else { self.read(wanted) }
    }

    fn read(&mut self, wanted: usize) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < wanted {
            if self.to == self.buffer.len() {
                let more = self.to.min(wanted - self.to);
                self.buffer.reserve_exact(more);
                self.buffer.resize(self.to + more, 0);
            }
            match self.input.read(&mut self.buffer[self.to..]) {
                Ok(0) => {
                    self.is_ended = true;
                    break;
                }
                Ok(count) => self.to += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn skip(&mut self, mut len: u64) -> io::Result<()> {
        while len > 0 {
            self.fill(1)?;
            let count = len.min((self.to - self.from) as u64);
            if count == 0 {
                self.is_cut = true;
                return Ok(());
            }
            self.from += count as usize;
            self.at += count;
            len -= count;
        }
        self.too_large += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::perfetto::proto::Buffer;

    /// A trace of packets with contents of these lengths.
    fn trace(lengths: &[usize]) -> Vec<u8> {
        let mut trace = Buffer::default();
        for len in lengths {
            trace.packet(|packet| packet.bytes(99, &vec![0xAA; *len]));
        }
        trace.into_bytes()
    }

    #[test]
    fn packets_up_to_the_limit_are_read_and_larger_ones_counted() {
        let most = MAX_PACKET - 6;
        let trace = trace(&[1, 2 << 20, most, most + 1, 3]);
        let mut packets = Packets::new(&trace[..]);
        for len in [1, 2 << 20, most, 3] {
            let packet = packets.next_packet().unwrap().expect("a packet");
            assert_eq!(packet.iter().filter(|byte| **byte == 0xAA).count(), len);
        }
        assert!(packets.next_packet().unwrap().is_none() && !packets.is_cut && packets.damaged_at.is_none());
        assert_eq!((packets.too_large, packets.place()), (1, trace.len() as u64));
    }

    #[test]
    fn a_length_that_a_file_claims_takes_no_memory() {
        let mut bytes = trace(&[1]);
        bytes.extend([FIRST, 0x80, 0x80, 0x80, 0x07, 1, 2, 3]);
        let mut packets = Packets::new(&bytes[..]);
        assert!(packets.next_packet().unwrap().is_some());
        assert!(packets.next_packet().unwrap().is_none() && packets.is_cut);
        assert_eq!(packets.buffer.len(), BUFFER);
    }

    #[test]
    fn a_whole_reader_learns_what_is_wrong_and_where() {
        let sound = trace(&[1, 2]);
        let after = |more: &[u8]| {
            let bytes = [&sound[..], more].concat();
            let mut packets = Packets::new(&bytes[..]);
            assert!(packets.next_sound().unwrap().is_some() && packets.next_sound().unwrap().is_some());
            let place = packets.place();
            (packets.next_sound().map(|packet| packet.is_some()), place == sound.len() as u64)
        };
        assert!(matches!(after(&[]), (Ok(false), true)));
        assert!(matches!(after(&[FIRST, 9]), (Err(Unsound::Cut), true)));
        assert!(matches!(after(b"more"), (Err(Unsound::NoPacket), true)));
        assert!(matches!(after(&[FIRST, 0xFF, 0xFF, 0xFF, 0xFF, 1]), (Err(Unsound::TooLarge(_)), true)));
    }
}
