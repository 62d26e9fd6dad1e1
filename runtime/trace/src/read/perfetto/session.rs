//! The facts about a session: its begin, its account at the end, and what was changed meanwhile.

use crate::perfetto::proto::{annotation, attribute, event};

use super::super::names::{Name, Names};
use super::super::wire::Fields;
use super::{Fact, Reader, Stop, Visitor};

impl<V: Visitor> Reader<'_, V> {
    /// Whether warpline wrote the trace is in its attributes.
    pub(super) fn attributes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        for read in Fields(bytes) {
            let (attribute::ATTRIBUTE, value) = read? else { continue };
            for read in Fields(value.bytes()) {
                if let (attribute::KEY, key) = read? {
                    self.skipped.is_ours |= key.text() == "warpline.version";
                }
            }
        }
        Ok(())
    }

    /// An instant of the session: its begin, its account, or a change.
    pub(super) fn session(&mut self, name: Name, ns: i64, bytes: &[u8], names: &Names) -> Result<(), Stop> {
        let name = names.text(name).clone();
        match &*name {
            "session begins" => self.visitor.fact(Fact::Begun(ns)),
            "session ends" => {
                for read in Fields(bytes) {
                    let (event::ANNOTATIONS, value) = read? else { continue };
                    let (mut key, mut number, mut text) = (String::new(), None, None);
                    for read in Fields(value.bytes()) {
                        match read? {
                            (annotation::NAME, value) => key = value.text().into_owned(),
                            (annotation::UINT, value) => number = i64::try_from(value.int()).ok(),
                            (annotation::INT, value) => number = Some(value.int() as i64),
                            (annotation::STRING, value) => text = Some(value.text().into_owned()),
                            _ => {}
                        }
                    }
                    match (number, text) {
                        (Some(number), _) => self.visitor.fact(Fact::Number(key, number)),
                        (None, Some(text)) if key.starts_with("note.") => self.visitor.fact(Fact::Note(text)),
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
