//! Splits a Perfetto trace into its packets, one at a time: memory is bounded by the largest packet.

use std::io::{self, BufRead};

use prost::Message;

use super::proto::Packet;
use crate::read::document::{MAX_VALUE, Refused};

/// The tag of `Trace.packet`.
pub(super) const PACKET: u8 = 0x0A;

/// The packets of a trace, in the order of the file.
pub(super) struct Packets<R> {
    input: R,
    at: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Packets<R> {
    pub(super) fn new(input: R) -> Packets<R> {
        Packets { input, at: 0, bytes: Vec::new() }
    }

    /// The next packet; none after the last one.
    ///
    /// # Errors
    /// The file cannot be read, is truncated, or is no trace that this reader understands.
    pub(super) fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        let begin = self.at;
        let damaged = |why: String| {
            io::Error::other(Refused(format!(
                "damaged at byte {begin}: {why}; name a trace that PyTorch's profiler wrote"
            )))
        };
        let Some(tag) = self.byte()? else { return Ok(None) };
        if tag != PACKET {
            return Err(damaged("no packet of a Perfetto trace".to_owned()));
        }
        let length = self.varint()?.ok_or_else(|| truncated(begin))?;
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_VALUE);
        let length = length.ok_or_else(|| damaged(format!("a packet of more than {} MiB", MAX_VALUE >> 20)))?;
        self.bytes.resize(length, 0);
        self.input.read_exact(&mut self.bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => truncated(begin),
            _ => error,
        })?;
        self.at += length as u64;
        let packet = Packet::decode(&self.bytes[..]).map_err(|error| damaged(error.to_string()))?;
        if packet.compressed.is_some() {
            return Err(damaged("compressed packets, which PyTorch's profiler does not write".to_owned()));
        }
        // From 64, clocks are of the sequence's own, which may count differences.
        if packet.clock >= 64 {
            return Err(damaged("times of a clock that PyTorch's profiler does not use".to_owned()));
        }
        Ok(Some(packet))
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = loop {
            match self.input.fill_buf() {
                Ok(bytes) => break bytes.first().copied(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if byte.is_some() {
            self.input.consume(1);
            self.at += 1;
        }
        Ok(byte)
    }

    /// None if the file ends in it, or if it is longer than a length can be.
    fn varint(&mut self) -> io::Result<Option<u64>> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let Some(byte) = self.byte()? else { return Ok(None) };
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Ok(Some(u64::MAX))
    }
}

fn truncated(at: u64) -> io::Error {
    let why = format!("the trace is truncated in the packet at byte {at}; export it or copy it again");
    io::Error::other(Refused(why))
}
