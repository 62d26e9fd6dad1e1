//! Reads the catalog from a Perfetto trace: the instants of category `catalog`, packet by packet.

use std::io::Read;

use warpline_core::catalog::record::MAX_FIELDS;
use warpline_trace::read::Packets;
use warpline_trace::read::parts::{Annotation, Packet, Said, TrackEvent};
use warpline_trace::read::wire::Malformed;

use super::facts::Facts;
use super::{CatalogError, Found};

/// Reads the whole trace. A truncated last packet is accepted, because a killed process leaves one.
pub(super) fn read(trace: impl Read, found: &mut Found) -> Result<(), CatalogError> {
    let (mut packets, mut understood) = (Packets::new(trace), false);
    while let Some(bytes) = packets.next_packet()? {
        let Ok(packet) = Packet::read(bytes) else { continue };
        // Arbitrary bytes can decode as a message, but every packet of warpline has a sequence id.
        understood |= packet.sequence != 0;
        let Some(Ok(event)) = packet.event.map(TrackEvent::read) else { continue };
        if event.categories().eq(["catalog"]) {
            match entry(&event, found) {
                Ok(()) | Err(Stop::Malformed) => {}
                Err(Stop::Catalog(error)) => return Err(error),
            }
        }
    }
    if understood { Ok(()) } else { Err(CatalogError::NotATrace("no packet of a Perfetto trace".to_owned())) }
}

/// Why an instant of the catalog is not read.
enum Stop {
    Malformed,
    Catalog(CatalogError),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Stop {
        Stop::Malformed
    }
}

impl From<CatalogError> for Stop {
    fn from(error: CatalogError) -> Stop {
        Stop::Catalog(error)
    }
}

fn entry(event: &TrackEvent<'_>, found: &mut Found) -> Result<(), Stop> {
    match event.name.as_deref() {
        Some("catalog") => {
            let mut declared = 0_u64;
            for said in event.annotations() {
                let said = said?;
                if matches!(said.name.as_deref(), Some("ranges" | "namespaces")) {
                    declared = declared.saturating_add(said.uint().unwrap_or(0));
                }
            }
            found.declared = found.declared.max(declared);
        }
        Some("namespace") => found.namespace(facts(event)?.declaration()?)?,
        Some("range") => found.range(facts(event)?.range()?)?,
        _ => {}
    }
    Ok(())
}

fn facts(event: &TrackEvent<'_>) -> Result<Facts, Stop> {
    let mut facts = Facts::default();
    for said in event.annotations() {
        let said = said?;
        let text = || text(&said).unwrap_or_default();
        match said.name.as_deref().unwrap_or_default() {
            "name" => facts.name = text(),
            "namespace" => facts.namespace = text(),
            "description" => facts.description = text(),
            "about" => facts.about = text(),
            "package" => facts.package = text(),
            "kind" => facts.kind = text(),
            "level" => facts.level = text(),
            "lane" => facts.lane = Some(text()),
            "color" => facts.color = Some(text()),
            "fields" => facts.fields.0 = texts(&said)?,
            "undescribed" => facts.undescribed.0 = texts(&said)?,
            "module" => facts.module = text(),
            "version" => facts.version = text(),
            "file" => facts.file = text(),
            "line" => facts.line = said.uint().and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
            _ => {}
        }
    }
    Ok(facts)
}

fn text(said: &Annotation<'_>) -> Option<String> {
    if let Some(Said::Text(text)) = &said.value { Some(text.as_ref().to_owned()) } else { None }
}

/// The texts of an array.
fn texts(said: &Annotation<'_>) -> Result<Vec<String>, Stop> {
    let mut texts = Vec::new();
    for value in said.values() {
        if texts.len() == MAX_FIELDS {
            return Err(CatalogError::Damaged("more than 64 fields or options in one range").into());
        }
        texts.extend(text(&value?));
    }
    Ok(texts)
}
