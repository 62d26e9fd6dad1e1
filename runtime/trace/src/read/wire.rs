//! Protocol buffers without copies: the fields of a message, one after another, borrowed from its bytes. All readers of Perfetto traces take
//! messages apart with it, and the merger of traces copies them with it.

use std::borrow::Cow;

use crate::write::perfetto::proto::Buffer;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Int(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Value<'a> {
    /// The number of an integer; 0 for what is none.
    pub fn int(self) -> u64 {
        match self {
            Value::Int(value) | Value::Fixed64(value) => value,
            _ => 0,
        }
    }

    /// The bytes of a text or a message; none for a number.
    pub fn bytes(self) -> &'a [u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// The number of a `double`; 0 for what is none.
    pub fn double(self) -> f64 {
        if let Value::Fixed64(bits) = self { f64::from_bits(bits) } else { 0.0 }
    }

    /// The text; invalid UTF-8 is replaced.
    pub fn text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Malformed;

/// The fields of a message, in the order of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    // Out of line, each field would pass through memory, which takes a third of the time of reading a trace.
    #[inline(always)]
    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let fixed = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| Malformed);
        let value = match key & 7 {
            0 => Value::Int(self.varint()?),
            1 => Value::Fixed64(fixed(self.take(8)?)?),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Value::Fixed32)?,
            _ => return Err(Malformed),
        };
        if number == 0 { Err(Malformed) } else { Ok((number, value)) }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let (value, width) = varint(self.0).ok_or(Malformed)?;
        self.0 = &self.0[width..];
        Ok(value)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The first field of a message with this number; none if what precedes it is damaged.
pub fn first(message: &[u8], number: u32) -> Option<Value<'_>> {
    Fields(message).map_while(Result::ok).find(|(found, _)| *found == number).map(|(_, value)| value)
}

/// A copy of a message in which `replace` may write something else for a field, or nothing: it returns whether it has decided. The fields after a
/// damaged one are left out.
pub fn rewrite(message: &[u8], mut replace: impl FnMut(u32, Value<'_>, &mut Buffer) -> bool) -> Buffer {
    let (mut copy, mut rest) = (Buffer::default(), Fields(message));
    loop {
        let before = rest.0;
        let Some(Ok((number, value))) = rest.next() else { return copy };
        if !replace(number, value, &mut copy) {
            copy.encoded(&before[..before.len() - rest.0.len()]);
        }
    }
}

/// Decodes a number, and returns how many bytes it took; none if it is cut or too long.
#[inline]
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(byte) = bytes.first()
        && byte & 0x80 == 0
    {
        return Some((u64::from(*byte), 1));
    }
    let mut value = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at as u32).min(63);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_damage_ends_them() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x19, 1, 0, 0, 0, 0, 0, 0, 0];
        let fields: Vec<_> = Fields(&message).collect::<Result<_, _>>().unwrap();
        assert_eq!(fields, [(1, Value::Int(150)), (2, Value::Bytes(b"hi")), (3, Value::Fixed64(1))]);
        for end in [1, 2, 4, 6, 12] {
            assert_eq!(Fields(&message[..end]).last(), Some(Err(Malformed)), "{end}");
        }
        // A group, field 0, and a number of more than 64 bits.
        for bytes in [&[0x0b][..], &[0x00, 0x01], &[0xff; 12]] {
            assert_eq!(Fields(bytes).next(), Some(Err(Malformed)));
        }
    }

    #[test]
    fn a_copy_has_what_is_not_replaced_and_ends_at_damage() {
        let mut message = Buffer::default();
        message.uint(1, 300);
        message.text(2, "a");
        message.message(90, |inner| inner.int(3, -1));
        message.fixed(5, 1);
        let message = message.as_bytes();
        assert_eq!(rewrite(message, |_, _, _| false).as_bytes(), message);
        let shorter = rewrite(message, |number, value, out| match number {
            1 => {
                out.uint(1, value.int() + 1);
                true
            }
            90 => true,
            _ => false,
        });
        let fields: Vec<_> = Fields(shorter.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(fields, [(1, Value::Int(301)), (2, Value::Bytes(b"a")), (5, Value::Fixed64(1))]);
        assert_eq!(first(message, 90).and_then(|inner| first(inner.bytes(), 3)), Some(Value::Int(u64::MAX)));
        for end in 0..message.len() {
            assert!(message.starts_with(rewrite(&message[..end], |_, _, _| false).as_bytes()), "{end}");
        }
    }
}
