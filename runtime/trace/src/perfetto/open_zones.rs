//! Reads the zones that were open when a flight recorder last wrote its file: what a program that was killed was doing.
//!
//! `warpline-ranks hang` calls it for ranks that are dead. Any bytes are possible input: the reader always ends.

use std::io::{Read, Seek};

use super::open::{CATEGORY, is_said};
use super::proto::{PACKET, annotation, event, packet};
use crate::flight::open_piece;
use warpline_core::recovered::RecoverError;

/// A zone that had not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastOpenZone {
    /// The name of its range.
    pub name: String,
    /// When it began, on the host's `CLOCK_BOOTTIME`.
    pub begin_ns: i64,
    /// The file and line where it began, as `FILE:LINE`.
    pub began_at: Option<String>,
    pub thread: String,
    pub thread_id: u64,
    pub stream: Option<String>,
    /// Whether its mark had ended, and its stream had not come to its end.
    pub is_launched: bool,
    /// Its number among the zones of its stream or thread.
    pub sequence: u64,
    /// Its fields and its label, as text.
    pub fields: Vec<(String, String)>,
}

/// Returns the process that wrote the file, and the zones that were open in it, oldest first.
///
/// # Errors
/// The file cannot be read, or is not a flight recorder's.
pub fn open_zones(file: &mut (impl Read + Seek)) -> Result<(u32, Vec<LastOpenZone>), RecoverError> {
    let (process, piece) = open_piece(file)?;
    let packets = piece.as_deref().map(Fields).into_iter().flatten();
    let packets = packets.filter(|(tag, _)| *tag == PACKET).filter_map(|(_, packet)| packet.bytes());
    let mut zones: Vec<LastOpenZone> = packets.filter_map(zone).collect();
    zones.sort_by_key(|zone| (zone.begin_ns, zone.sequence));
    Ok((process, zones))
}

fn zone(packet: &[u8]) -> Option<LastOpenZone> {
    let begin_ns = Fields(packet).find(|(tag, _)| *tag == packet::TIMESTAMP)?.1.number()?.cast_signed();
    let event = Fields(packet).find(|(tag, _)| *tag == packet::TRACK_EVENT)?.1.bytes()?;
    let mut zone = LastOpenZone { begin_ns, ..LastOpenZone::default() };
    let (mut is_begin, mut is_open) = (false, false);
    for (tag, value) in Fields(event) {
        match tag {
            event::TYPE => is_begin = value.number() == Some(event::SLICE_BEGIN),
            event::CATEGORIES => is_open = value.bytes() == Some(CATEGORY.as_bytes()),
            event::NAME => zone.name = value.text(),
            event::ANNOTATIONS => zone.annotate(value.bytes().unwrap_or_default()),
            _ => {}
        }
    }
    (is_begin && is_open).then_some(zone)
}

impl LastOpenZone {
    fn annotate(&mut self, bytes: &[u8]) {
        let (mut name, mut value) = (String::new(), None);
        for (tag, part) in Fields(bytes) {
            match tag {
                annotation::NAME => name = part.text(),
                annotation::STRING => value = Some(part.text()),
                annotation::UINT => value = part.number().map(|number| number.to_string()),
                annotation::INT => value = part.number().map(|number| number.cast_signed().to_string()),
                annotation::BOOL => value = part.number().map(|number| (number != 0).to_string()),
                annotation::DOUBLE => value = part.number().map(|bits| f64::from_bits(bits).to_string()),
                annotation::DICT_ENTRIES | annotation::ARRAY_VALUES => value = Some("…".to_owned()),
                _ => {}
            }
        }
        let Some(value) = value else { return };
        match name.as_str() {
            "began_at" => self.began_at = Some(value),
            "thread" => self.thread = value,
            "thread_id" => self.thread_id = value.parse().unwrap_or(0),
            "sequence" => self.sequence = value.parse().unwrap_or(0),
            "stream" => self.stream = Some(value),
            "launch_ns" => self.is_launched = true,
            "label" => self.fields.push((name, value)),
            _ if is_said(&name) => {}
            _ => self.fields.push((name.strip_prefix("field.").unwrap_or(&name).to_owned(), value)),
        }
    }
}

/// The fields of a message. Bytes that are no field end them.
struct Fields<'a>(&'a [u8]);

#[derive(Clone, Copy)]
enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Part<'a> {
    fn number(self) -> Option<u64> {
        if let Part::Number(number) = self { Some(number) } else { None }
    }

    fn bytes(self) -> Option<&'a [u8]> {
        if let Part::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(self.bytes().unwrap_or_default()).into_owned()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Part<'a>);

    fn next(&mut self) -> Option<(u32, Part<'a>)> {
        let key = self.varint()?;
        let part = match key & 7 {
            0 => Part::Number(self.varint()?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                Part::Number(u64::from_le_bytes(*bytes))
            }
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Part::Bytes(bytes)
            }
            5 => {
                let (bytes, rest) = self.0.split_first_chunk::<4>()?;
                self.0 = rest;
                Part::Number(u32::from_le_bytes(*bytes).into())
            }
            _ => return None,
        };
        Some((u32::try_from(key >> 3).ok()?, part))
    }
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for width in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << (7 * width);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_have_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Fields(&bytes).count() <= bytes.len());
            let _ = zone(&bytes);
            let _ = open_zones(&mut std::io::Cursor::new(bytes));
        }
    }
}
