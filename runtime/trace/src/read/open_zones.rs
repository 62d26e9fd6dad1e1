//! Reads the zones that were open when a flight recorder last wrote its file: what a program that was killed was doing.
//!
//! `warpline-ranks hang` calls it for ranks that are dead. Any bytes are possible input: the reader always ends.

use std::io::{Read, Seek};

use warpline_core::recovered::RecoverError;

use super::parts::{Annotation, Packet, Said, TrackEvent};
use super::wire::Fields;
use crate::flight::open_piece;
use crate::write::perfetto::open::{CATEGORY, is_said};
use crate::write::perfetto::proto::{PACKET, event};

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
    let packets = Fields(piece.as_deref().unwrap_or_default()).map_while(Result::ok);
    let packets = packets.filter(|(number, _)| *number == PACKET).map(|(_, packet)| packet.bytes());
    let mut zones: Vec<LastOpenZone> = packets.filter_map(zone).collect();
    zones.sort_by_key(|zone| (zone.begin_ns, zone.sequence));
    Ok((process, zones))
}

fn zone(packet: &[u8]) -> Option<LastOpenZone> {
    let packet = Packet::read(packet).ok()?;
    let event = TrackEvent::read(packet.event?).ok()?;
    if event.kind != event::SLICE_BEGIN || event.categories().last().is_none_or(|category| category != CATEGORY) {
        return None;
    }
    let name = event.name.as_deref().unwrap_or_default().to_owned();
    let mut zone = LastOpenZone { name, begin_ns: packet.timestamp?.cast_signed(), ..LastOpenZone::default() };
    event.annotations().flatten().for_each(|annotation| zone.annotate(&annotation));
    Some(zone)
}

impl LastOpenZone {
    fn annotate(&mut self, annotation: &Annotation<'_>) {
        let value = match &annotation.value {
            Some(Said::Text(text)) => Some(text.as_ref().to_owned()),
            Some(Said::Uint(number)) => Some(number.to_string()),
            Some(Said::Int(number)) => Some(number.to_string()),
            Some(Said::Bool(is)) => Some(is.to_string()),
            Some(Said::Double(number)) => Some(number.to_string()),
            _ => annotation.entries().chain(annotation.values()).next().map(|_| "…".to_owned()),
        };
        let Some(value) = value else { return };
        let name = annotation.name.as_deref().unwrap_or_default();
        match name {
            "began_at" => self.began_at = Some(value),
            "thread" => self.thread = value,
            "thread_id" => self.thread_id = value.parse().unwrap_or(0),
            "sequence" => self.sequence = value.parse().unwrap_or(0),
            "stream" => self.stream = Some(value),
            "launch_ns" => self.is_launched = true,
            "label" => self.fields.push((name.to_owned(), value)),
            _ if is_said(name) => {}
            _ => self.fields.push((name.strip_prefix("field.").unwrap_or(name).to_owned(), value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_have_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = zone(&bytes);
            let _ = open_zones(&mut std::io::Cursor::new(bytes));
        }
    }
}
