//! What a packet sequence has defined: its clock, its track, and the names that its packets refer to by number.

use super::super::ids::ById;
use super::super::kinds::{Args, Key, Kind, Said};
use super::super::parts::{Interned, Packet};
use super::super::wire::Fields;
use super::Stop;
use crate::perfetto::proto::{annotation, interned};
use warpline_report::names::{Name, Names};

#[derive(Default)]
pub(super) struct Sequence {
    /// The clock of timestamps that do not name one; 0 for `BOOTTIME`.
    pub(super) clock: u64,
    /// `BOOTTIME` when the sequence's own clock was zero.
    pub(super) zero: Option<i64>,
    pub(super) track: u64,
    /// The kind, and the name.
    pub(super) categories: ById<(Kind, Name)>,
    pub(super) event_names: ById<Name>,
    pub(super) arguments: ById<Key>,
    pub(super) strings: ById<Name>,
    pub(super) specifications: ById<Name>,
    pub(super) open: Vec<Open>,
}

/// A slice that has begun.
pub(super) struct Open {
    pub(super) track: u64,
    pub(super) kind: Kind,
    /// The name of a category that is not read.
    pub(super) category: Name,
    pub(super) name: Name,
    pub(super) begin_ns: i64,
    pub(super) flows: Flows,
    pub(super) args: Args,
}

/// The ids of arrows that begin and end at an event.
#[derive(Clone, Copy, Default)]
pub(super) struct Flows {
    pub(super) out: u64,
    pub(super) into: u64,
}

impl Sequence {
    /// Takes the names that a packet defines.
    pub(super) fn define(&mut self, packet: &Packet<'_>, names: &mut Names) -> Result<(), Stop> {
        for entry in packet.interned() {
            let Interned { number, iid, text, .. } = entry?;
            match number {
                interned::EVENT_CATEGORIES => {
                    let text = text.text();
                    self.categories.insert(iid, (Kind::of_category(&text), names.number(&text)?));
                }
                interned::ANNOTATION_NAMES => self.arguments.insert(iid, Key::of(&text.text())),
                interned::EVENT_NAMES => self.event_names.insert(iid, names.number(&text.text())?),
                interned::ANNOTATION_STRINGS => self.strings.insert(iid, names.number(&text.text())?),
                interned::GPU_SPECIFICATIONS => self.specifications.insert(iid, names.number(&text.text())?),
                _ => continue,
            }
            names.spend(0)?;
        }
        Ok(())
    }
}

/// Reads an annotation into the arguments, if figures need it.
#[inline]
pub(super) fn annotate(bytes: &[u8], sequence: &Sequence, args: &mut Args, names: &mut Names) -> Result<(), Stop> {
    let mut key = Key::Other;
    for read in Fields(bytes) {
        let (number, value) = read?;
        let said = match number {
            annotation::NAME_IID => {
                key = sequence.arguments.get(value.int()).copied().unwrap_or(Key::Other);
                continue;
            }
            annotation::NAME => {
                key = Key::of(&value.text());
                continue;
            }
            _ if key == Key::Other => return Ok(()),
            annotation::UINT | annotation::INT => Said::Number(value.int() as i64),
            annotation::STRING_IID => Said::Text(sequence.strings.get(value.int()).copied().unwrap_or_default()),
            annotation::DOUBLE => Said::Real(value.double()),
            annotation::STRING => Said::Text(names.number(&value.text())?),
            _ => continue,
        };
        args.set(key, said);
    }
    Ok(())
}
