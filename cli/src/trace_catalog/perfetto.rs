//! Reads the catalog from a Perfetto trace: the instants of category `catalog`, packet by packet.
//!
//! The tags are from `protos/perfetto/trace` in Perfetto's repository, which documents each field.

use std::io::Read;

use prost::Message;
use warpline_core::catalog::record::MAX_FIELDS;

use super::facts::Facts;
use super::{CatalogError, Found};
use crate::trace::Packets;

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint32, tag = "10")]
    sequence: u32,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<Annotation>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, tag = "23")]
    name: String,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, tag = "10")]
    name: String,
    #[prost(uint64, optional, tag = "3")]
    uint: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string: Option<String>,
    #[prost(message, repeated, tag = "12")]
    values: Vec<Annotation>,
}

/// Reads the whole trace. A truncated last packet is accepted, because a killed process leaves one.
pub(super) fn read(trace: impl Read, found: &mut Found) -> Result<(), CatalogError> {
    let (mut packets, mut understood) = (Packets::new(trace), false);
    while let Some(bytes) = packets.next_packet()? {
        let Ok(packet) = Packet::decode(bytes) else { continue };
        // Arbitrary bytes can decode as a message, but every packet of warpline has a sequence id.
        understood |= packet.sequence != 0;
        if let Some(event) = packet.event.filter(|event| event.categories == ["catalog"]) {
            entry(event, found)?;
        }
    }
    if understood { Ok(()) } else { Err(CatalogError::NotATrace("no packet of a Perfetto trace".to_owned())) }
}

fn entry(event: Event, found: &mut Found) -> Result<(), CatalogError> {
    match event.name.as_str() {
        "catalog" => {
            let counts = event.annotations.iter().filter(|said| ["ranges", "namespaces"].contains(&&*said.name));
            let declared = counts.fold(0, |sum: u64, said| sum.saturating_add(said.uint.unwrap_or(0)));
            found.declared = found.declared.max(declared);
            Ok(())
        }
        "namespace" => found.namespace(facts(event)?.declaration()?),
        "range" => found.range(facts(event)?.range()?),
        _ => Ok(()),
    }
}

fn facts(event: Event) -> Result<Facts, CatalogError> {
    let mut facts = Facts::default();
    for Annotation { name, uint, string, values } in event.annotations {
        if values.len() > MAX_FIELDS {
            return Err(CatalogError::Damaged("more than 64 fields or options in one range"));
        }
        let list = || values.into_iter().filter_map(|value| value.string).collect();
        let text = string.unwrap_or_default();
        match name.as_str() {
            "name" => facts.name = text,
            "namespace" => facts.namespace = text,
            "description" => facts.description = text,
            "about" => facts.about = text,
            "package" => facts.package = text,
            "kind" => facts.kind = text,
            "level" => facts.level = text,
            "lane" => facts.lane = Some(text),
            "color" => facts.color = Some(text),
            "fields" => facts.fields.0 = list(),
            "undescribed" => facts.undescribed.0 = list(),
            "module" => facts.module = text,
            "version" => facts.version = text,
            "file" => facts.file = text,
            "line" => facts.line = uint.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
            _ => {}
        }
    }
    Ok(facts)
}
