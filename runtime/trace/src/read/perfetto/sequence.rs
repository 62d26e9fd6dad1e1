//! What a packet sequence has defined: its clock, its track, and the names that its packets refer to by number.

use std::collections::HashMap;

use crate::perfetto::proto::{annotation, clock, defaults, interned};

use super::super::kinds::{Args, Key, Kind, Said};
use super::super::names::{Name, Names};
use super::super::wire::{Fields, Malformed, Value};
use super::Stop;

#[derive(Default)]
pub(super) struct Sequence {
    /// The clock of timestamps that do not name one; 0 for `BOOTTIME`.
    pub(super) clock: u64,
    /// `BOOTTIME` when the sequence's own clock was zero.
    pub(super) zero: Option<i64>,
    pub(super) track: u64,
    pub(super) categories: HashMap<u64, Kind>,
    pub(super) event_names: HashMap<u64, Name>,
    pub(super) arguments: HashMap<u64, Key>,
    pub(super) strings: HashMap<u64, Name>,
    pub(super) specifications: HashMap<u64, Name>,
    pub(super) open: Vec<Open>,
}

/// A slice that has begun.
pub(super) struct Open {
    pub(super) track: u64,
    pub(super) kind: Kind,
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
    pub(super) fn clocks(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (mut boot, mut zero) = (None, None);
        for read in Fields(bytes) {
            let (clock::CLOCKS, value) = read? else { continue };
            let (mut id, mut time) = (0, 0);
            for read in Fields(value.bytes()) {
                match read? {
                    (clock::ID, value) => id = value.int(),
                    (clock::TIMESTAMP, value) => time = value.int() as i64,
                    _ => {}
                }
            }
            match id {
                clock::BOOTTIME => boot = Some(time),
                clock::SESSION => zero = Some(time),
                _ => {}
            }
        }
        if let (Some(boot), Some(zero)) = (boot, zero) {
            self.zero = Some(boot.wrapping_sub(zero));
        }
        Ok(())
    }

    pub(super) fn defaults(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        for read in Fields(bytes) {
            match read? {
                (defaults::TIMESTAMP_CLOCK_ID, value) => self.clock = value.int(),
                (defaults::TRACK_EVENT, value) => {
                    for read in Fields(value.bytes()) {
                        if let (defaults::TRACK_UUID, value) = read? {
                            self.track = value.int();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn define(&mut self, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        for read in Fields(bytes) {
            let (number, value) = read?;
            let (mut iid, mut text) = (0, Value::Bytes(&[]));
            if !matches!(
                number,
                interned::EVENT_CATEGORIES
                    | interned::EVENT_NAMES
                    | interned::ANNOTATION_NAMES
                    | interned::ANNOTATION_STRINGS
                    | interned::GPU_SPECIFICATIONS
            ) {
                continue;
            }
            for read in Fields(value.bytes()) {
                match read? {
                    (interned::IID, value) => iid = value.int(),
                    (interned::TEXT, value) => text = value,
                    _ => {}
                }
            }
            names.spend(0)?;
            match number {
                interned::EVENT_CATEGORIES => drop(self.categories.insert(iid, Kind::of_category(&text.text()))),
                interned::ANNOTATION_NAMES => drop(self.arguments.insert(iid, Key::of(&text.text()))),
                interned::EVENT_NAMES => drop(self.event_names.insert(iid, names.number(&text.text())?)),
                interned::ANNOTATION_STRINGS => drop(self.strings.insert(iid, names.number(&text.text())?)),
                _ => drop(self.specifications.insert(iid, names.number(&text.text())?)),
            }
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
                key = sequence.arguments.get(&value.int()).copied().unwrap_or(Key::Other);
                continue;
            }
            annotation::NAME => {
                key = Key::of(&value.text());
                continue;
            }
            _ if key == Key::Other => return Ok(()),
            annotation::UINT | annotation::INT => Said::Number(value.int() as i64),
            annotation::STRING_IID => Said::Text(sequence.strings.get(&value.int()).copied().unwrap_or_default()),
            annotation::DOUBLE => Said::Real,
            annotation::STRING => Said::Text(names.number(&value.text())?),
            _ => continue,
        };
        args.set(key, said);
    }
    Ok(())
}
