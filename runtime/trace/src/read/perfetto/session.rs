//! The facts about a session: its begin, its account at the end, and what was changed meanwhile.

use super::super::parts::{Annotation, Packet, Said, TrackEvent};
use super::{Fact, Reader, Stop, Visitor};
use warpline_report::names::{Name, Names};

impl<V: Visitor> Reader<'_, V> {
    /// Whether warpline wrote the trace is in its attributes.
    pub(super) fn attributes(&mut self, packet: &Packet<'_>) -> Result<(), Stop> {
        for attribute in packet.attributes() {
            self.skipped.is_ours |= attribute?.0 == "warpline.version";
        }
        Ok(())
    }

    /// An instant of the session: its begin, its account, or a change.
    pub(super) fn session(&mut self, name: Name, ns: i64, bytes: &[u8], names: &Names) -> Result<(), Stop> {
        let name = names.text(name).clone();
        match &*name {
            "session begins" => self.visitor.fact(Fact::Begun(ns)),
            "session ends" => {
                for annotation in TrackEvent::read(bytes)?.annotations() {
                    let Annotation { name, value, .. } = annotation?;
                    let key = name.unwrap_or_default();
                    match value {
                        Some(Said::Uint(number)) => {
                            if let Ok(number) = i64::try_from(number) {
                                self.visitor.fact(Fact::Number(key.into_owned(), number));
                            }
                        }
                        Some(Said::Int(number)) => self.visitor.fact(Fact::Number(key.into_owned(), number)),
                        Some(Said::Text(text)) if key.starts_with("note.") => {
                            self.visitor.fact(Fact::Note(text.into_owned()));
                        }
                        _ => {}
                    }
                }
                self.visitor.fact(Fact::Ended(ns));
            }
            name if !name.starts_with("piece ") => self.visitor.fact(Fact::Changed(name.to_owned())),
            _ => {}
        }
        Ok(())
    }
}
