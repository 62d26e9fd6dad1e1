//! What a packet sequence has defined: its clock, its track, and the names that its packets refer to by number.

use super::super::fields;
use super::super::ids::ById;
use super::super::kinds::{Args, Key, Kind, Said};
use super::super::parts::{Annotation, Interned, Packet};
use super::super::wire::Fields;
use super::Stop;
use crate::write::perfetto::proto::{annotation, interned};
use warpline_report::names::{Name, Names};

/// The deepest nesting of a field.
const DEPTH: usize = 8;

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
    pub(super) arguments: ById<(Key, Name)>,
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
                interned::ANNOTATION_NAMES => {
                    let name = text.text();
                    self.arguments.insert(iid, (Key::of(&name), names.number(&name)?));
                }
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
        // Most writers begin with the name.
        match read? {
            (annotation::NAME_IID, iid) => key = sequence.arguments.get(iid.int()).map_or(Key::Other, |(key, _)| *key),
            (annotation::NAME, name) => key = Key::of(&name.text()),
            _ => continue,
        }
        break;
    }
    if key == Key::Other {
        return Ok(());
    }
    for read in Fields(bytes) {
        let (number, value) = read?;
        let said = match number {
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

/// Adds an annotation to the arguments that may be fields.
pub(super) fn add_field(bytes: &[u8], sequence: &Sequence, args: &mut Args, names: &mut Names) -> Result<(), Stop> {
    let annotation = Annotation::read(bytes)?;
    let (value, name) = {
        let interned = OfSequence { sequence, names };
        (fields::value(&annotation, &interned, DEPTH)?, fields::name_of(&annotation, &interned).to_owned())
    };
    args.add_field(&name, names, || value)?;
    Ok(())
}

/// The names and texts that a sequence has defined.
struct OfSequence<'a> {
    sequence: &'a Sequence,
    names: &'a Names,
}

impl fields::Interned for OfSequence<'_> {
    fn name(&self, iid: u64) -> Option<&str> {
        self.sequence.arguments.get(iid).map(|(_, name)| &**self.names.text(*name))
    }

    fn text(&self, iid: u64) -> Option<&str> {
        self.sequence.strings.get(iid).map(|name| &**self.names.text(*name))
    }
}
