//! Splits a Perfetto trace into packets. Every command that reads such a trace uses it.
//!
//! A trace is the field 1 of a message, again and again. The caller bounds the length of the packets that it keeps.

use std::io::{self, BufRead};

pub(crate) enum Frame {
    /// The length of the packet that follows, and of the header that was read.
    Packet { len: u64, header: u64 },
    /// Anything other than a packet.
    Other,
}

/// Reads the next frame header; none at the end of the file, even within a header.
pub(crate) fn frame(trace: &mut impl BufRead) -> io::Result<Option<Frame>> {
    /// Field 1, length-delimited.
    const PACKET: u8 = 1 << 3 | 2;
    let Some(key) = byte(trace)? else { return Ok(None) };
    if key != PACKET {
        return Ok(Some(Frame::Other));
    }
    let mut len = 0;
    for width in 0..10 {
        let Some(byte) = byte(trace)? else { return Ok(None) };
        len |= u64::from(byte & 0x7f) << (7 * width).min(63);
        if byte & 0x80 == 0 {
            return Ok(Some(Frame::Packet { len, header: width + 2 }));
        }
    }
    Ok(Some(Frame::Other))
}

fn byte(trace: &mut impl BufRead) -> io::Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match trace.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(byte[0])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
