//! Splits a Perfetto trace into its packets, which are borrowed from one buffer. Every command that reads such a trace uses it.
//!
//! A trace is the field 1 of a message, again and again. Memory is bounded by [`MAX_PACKET`]; a larger packet is skipped and counted. What
//! precedes damage is sound, also in a compressed file, so damage ends a trace and is no error.

use std::io::{self, Read};

use super::inputs;
use super::wire::varint;

/// Larger packets are skipped. The packets of warpline are a few hundred bytes long.
pub const MAX_PACKET: usize = 1 << 20;

/// The tag of a packet.
pub const FIRST: u8 = 1 << 3 | 2;

/// The longest header of a packet.
const HEADER: usize = 11;

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

impl<R: Read> Packets<R> {
    pub fn new(input: R) -> Packets<R> {
        Packets {
            input,
            buffer: vec![0; MAX_PACKET + (64 << 10)],
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
        match self.find() {
            Ok(Some((begin, len))) => Ok(Some(&self.buffer[begin..begin + len])),
            Ok(None) => Ok(None),
            Err(error) if self.at > 0 && inputs::is_damage(&error) => {
                self.damaged_at = Some(self.at);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the next packet, and returns where it is in the buffer.
    fn find(&mut self) -> io::Result<Option<(usize, usize)>> {
        loop {
            self.fill(HEADER)?;
            let waiting = &self.buffer[self.from..self.to];
            let Some((first, rest)) = waiting.split_first() else { return Ok(None) };
            if *first != FIRST {
                self.damaged_at = Some(self.at);
                return Ok(None);
            }
            let Some((len, width)) = varint(rest) else {
                if rest.len() + 1 < HEADER {
                    self.is_cut = true;
                } else {
                    self.damaged_at = Some(self.at);
                }
                return Ok(None);
            };
            let header = 1 + width;
            let Some(len) = usize::try_from(len).ok().filter(|len| *len <= MAX_PACKET) else {
                self.skip(len.saturating_add(header as u64))?;
                continue;
            };
            self.fill(header + len)?;
            if self.to - self.from < header + len {
                self.is_cut = true;
                return Ok(None);
            }
            let begin = self.from + header;
            self.from = begin + len;
            self.at += (header + len) as u64;
            return Ok(Some((begin, len)));
        }
    }

    /// Reads until so many bytes are there, or the file ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.to - self.from >= wanted || self.is_ended {
            return Ok(());
        }
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        while self.to < wanted {
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
