//! Protocol buffers without copies: the fields of a message, one after another, borrowed from its bytes.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Int(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Value<'a> {
    pub(super) fn int(self) -> u64 {
        match self {
            Value::Int(value) | Value::Fixed64(value) => value,
            _ => 0,
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// The text; invalid UTF-8 is replaced.
    pub(super) fn text(self) -> std::borrow::Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Malformed;

/// The fields of a message, in the order of the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

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

/// Decodes a number, and returns how many bytes it took; none if it is cut or too long.
#[inline]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
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
}
