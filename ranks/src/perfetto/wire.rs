//! Protobuf's wire format, as far as a trace needs it: the fields of a message, and a message with some of them replaced.
//!
//! The numbers are those of `protos/perfetto/trace` in Perfetto's repository.

use std::io::{self, BufRead, Read};

/// Larger packets are skipped: those of warpline have a few hundred bytes.
const MAX_PACKET: u64 = 4 << 20;

/// `Trace.packet`.
const PACKET: u32 = 1;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field<'a> {
    pub id: u32,
    pub value: Value<'a>,
    /// As it stands in the message, with its key.
    pub raw: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn uint(self) -> Option<u64> {
        if let Value::Varint(value) = self { Some(value) } else { None }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// The fields of a message; those after a damaged one are missing.
pub fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let (field, after) = field(rest)?;
        rest = after;
        Some(field)
    })
}

fn field(message: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (key, rest) = varint(message)?;
    let (value, rest) = match key & 7 {
        0 => varint(rest).map(|(value, rest)| (Value::Varint(value), rest))?,
        1 => rest.split_first_chunk().map(|(value, rest)| (Value::Fixed64(u64::from_le_bytes(*value)), rest))?,
        2 => {
            let (len, rest) = varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Value::Bytes(bytes), rest)
        }
        5 => rest.split_first_chunk().map(|(value, rest)| (Value::Fixed32(u32::from_le_bytes(*value)), rest))?,
        _ => return None,
    };
    let raw = &message[..message.len() - rest.len()];
    Some((Field { id: u32::try_from(key >> 3).ok()?, value, raw }, rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// The first field of a message with this number.
pub fn first(message: &[u8], id: u32) -> Option<Value<'_>> {
    fields(message).find(|field| field.id == id).map(|field| field.value)
}

/// Appends fields to a message.
pub trait Write {
    fn varint(&mut self, value: u64);
    fn uint(&mut self, id: u32, value: u64);
    fn bytes(&mut self, id: u32, value: &[u8]);

    /// An `int64`.
    fn int(&mut self, id: u32, value: i64) {
        self.uint(id, value as u64);
    }

    fn text(&mut self, id: u32, value: &str) {
        self.bytes(id, value.as_bytes());
    }

    fn message(&mut self, id: u32, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut message = Vec::new();
        fill(&mut message);
        self.bytes(id, &message);
    }

    /// A packet of a trace.
    fn packet(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.message(PACKET, fill);
    }
}

impl Write for Vec<u8> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn uint(&mut self, id: u32, value: u64) {
        self.varint(u64::from(id) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, id: u32, value: &[u8]) {
        self.varint(u64::from(id) << 3 | 2);
        self.varint(value.len() as u64);
        self.extend_from_slice(value);
    }
}

/// A copy of the message in which `replace` may write something else for a field: it returns whether it has.
pub fn rewrite(message: &[u8], mut replace: impl FnMut(&Field<'_>, &mut Vec<u8>) -> bool) -> Vec<u8> {
    let mut copy = Vec::with_capacity(message.len() + 16);
    for field in fields(message) {
        if !replace(&field, &mut copy) {
            copy.extend_from_slice(field.raw);
        }
    }
    copy
}

/// Reads the next packet of a trace into `packet`. Returns false at the end, which may be within a packet, and where the file stops being
/// a trace.
pub fn next_packet(trace: &mut impl BufRead, packet: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let mut key = [0];
        if trace.read(&mut key)? == 0 || key[0] != (PACKET << 3 | 2) as u8 {
            return Ok(false);
        }
        let mut len = 0_u64;
        for at in 0.. {
            let mut byte = [0];
            if at == 10 || trace.read(&mut byte)? == 0 {
                return Ok(false);
            }
            len |= u64::from(byte[0] & 0x7f) << (7 * at).min(63);
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        packet.clear();
        if len <= MAX_PACKET {
            return Ok(trace.take(len).read_to_end(packet)? as u64 == len);
        }
        if io::copy(&mut trace.take(len), &mut io::sink())? != len {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Vec::new();
        message.uint(1, 300);
        message.text(2, "a");
        message.message(90, |inner| inner.int(3, -1));
        message.extend([5 << 3 | 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        let read: Vec<_> = fields(&message).map(|field| (field.id, field.value)).collect();
        let inner = [24, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let expected =
            [(1, Value::Varint(300)), (2, Value::Bytes(b"a")), (90, Value::Bytes(&inner)), (5, Value::Fixed64(1))];
        assert_eq!(read, expected);
        assert_eq!(first(&inner, 3).and_then(Value::uint), Some(u64::MAX));
        assert_eq!(rewrite(&message, |_, _| false), message);
        for end in 0..message.len() {
            assert!(fields(&message[..end]).count() <= 4);
        }
    }
}
