//! The facts about a session: its begin, its account at the end, and what was changed meanwhile.

use super::super::parts::{Annotation, Clocks, Packet, Said, TrackEvent};
use super::{Fact, Reader, Stop, Visitor};
use warpline_report::names::{Name, Names};

impl<V: Visitor> Reader<'_, V> {
    /// Whether warpline wrote the trace is in its attributes.
    pub(super) fn attributes(&mut self, packet: &Packet<'_>) -> Result<(), Stop> {
        for attribute in packet.attributes() {
            let (name, text) = attribute?;
            self.skipped.is_ours |= name == "warpline.version";
            self.visitor.fact(Fact::Attribute(name.into_owned(), text.into_owned()));
        }
        Ok(())
    }

    /// The clocks of a sequence, or of the host.
    pub(super) fn clocks(&mut self, on: usize, packet: &Packet<'_>) -> Result<(), Stop> {
        let clocks = packet.clocks()?;
        if let Some(sequence) = self.sequences.get_mut(on) {
            sequence.zero = clocks.zero_ns().or(sequence.zero);
        }
        if let Clocks { boot_ns: Some(boot_ns), real_ns: Some(wall_ns), .. } = clocks {
            self.visitor.fact(Fact::Clocks { boot_ns, wall_ns });
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
