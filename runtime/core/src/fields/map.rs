//! Short maps as the values of fields: the first entries, and how many there were.
//!
//! A map is one allocation of at most [`MAX_TEXT_BYTES`] bytes, which is made when a zone records.

use std::fmt;

use super::item::{Item, write_all};
use super::text::{CUT, MAX_TEXT_BYTES, cut};

/// The maximum number of entries that a map keeps. [`Map::len`] counts the others too.
pub const MAX_MAP_ENTRIES: usize = 16;

/// The maximum size of a name in bytes; a longer one is cut between characters and ends in `…`.
const MAX_NAME_BYTES: usize = 62;

/// The maximum size of a text in bytes; a longer one is cut between characters and ends in `…`.
const MAX_ENTRY_TEXT_BYTES: usize = 126;

/// The number of entries that there were, and whether something is cut.
const HEADER: usize = 9;

/// A map from names to numbers, `bool`s and texts in a field. It keeps the first [`MAX_MAP_ENTRIES`] entries and their number.
///
/// An entry that does not fit into [`MAX_TEXT_BYTES`] with those before it is left out, and so is a second entry of one name. `Send` and
/// `Sync`.
#[derive(Clone)]
pub struct Map(Box<[u8]>);

/// Collects the entries of a map, on the stack.
pub(super) struct MapBuilder {
    bytes: [u8; MAX_TEXT_BYTES],
    used: usize,
    is_cut: bool,
}

impl MapBuilder {
    /// Begins a map that has `len` entries in all.
    pub(super) fn new(len: usize) -> MapBuilder {
        let mut bytes = [0; MAX_TEXT_BYTES];
        bytes[..HEADER - 1].copy_from_slice(&(len as u64).to_le_bytes());
        MapBuilder { bytes, used: HEADER, is_cut: len > MAX_MAP_ENTRIES }
    }

    /// Adds an entry, if there is room for the whole of it and none has its name.
    pub(super) fn add(&mut self, name: &str, item: Item<'_>) {
        let mut name_room = [0; MAX_NAME_BYTES];
        let mut text_room = [0; MAX_ENTRY_TEXT_BYTES];
        let name = self.bounded(name, &mut name_room);
        let number = item.bits().to_le_bytes();
        let (kind, value): (u8, &[u8]) = match item {
            Item::U64(_) => (b'u', &number),
            Item::I64(_) => (b'i', &number),
            Item::F64(_) => (b'f', &number),
            Item::Bool(_) => (b'b', &number[..1]),
            Item::Text(text) => (b't', self.bounded(text, &mut text_room)),
        };
        let end = self.used + 3 + name.len() + value.len();
        if end > self.bytes.len() || entries(&self.bytes[HEADER..self.used]).any(|(known, _)| known.as_bytes() == name)
        {
            self.is_cut = true;
            return;
        }
        for part in [&[kind, name.len() as u8], name, &[value.len() as u8], value] {
            self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
            self.used += part.len();
        }
    }

    /// Returns the text as far as it fits, and notes whether it is cut.
    fn bounded<'a>(&mut self, text: &'a str, room: &'a mut [u8]) -> &'a [u8] {
        if text.len() <= room.len() {
            return text.as_bytes();
        }
        self.is_cut = true;
        let kept = cut(text, room.len() - CUT.len()).as_bytes();
        let end = kept.len() + CUT.len();
        room[..kept.len()].copy_from_slice(kept);
        room[kept.len()..end].copy_from_slice(CUT.as_bytes());
        &room[..end]
    }

    pub(super) fn build(mut self) -> Map {
        self.bytes[HEADER - 1] = self.is_cut.into();
        Map(Box::from(&self.bytes[..self.used]))
    }
}

impl Map {
    /// Returns its packed form of at most `room` bytes, with as many whole entries as fit.
    pub(crate) fn pack(&self, room: usize) -> &[u8] {
        let mut rest = self.0.get(HEADER..).unwrap_or_default();
        let mut end = HEADER.min(self.0.len());
        while entry(&mut rest).is_some() && self.0.len() - rest.len() <= room {
            end = self.0.len() - rest.len();
        }
        &self.0[..end]
    }

    /// Returns the map that was packed so.
    pub(crate) fn unpack(bytes: &[u8]) -> Map {
        let mut map = Map(bytes.into());
        let is_short = map.more().is_some();
        if let Some(is_cut) = map.0.get_mut(HEADER - 1) {
            *is_cut |= u8::from(is_short);
        }
        map
    }

    /// Returns the number of entries that the value had.
    pub fn len(&self) -> usize {
        let len = self.0.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
        usize::try_from(len).unwrap_or(usize::MAX)
    }

    /// Returns whether the value had no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether entries are left out, or a name or text in it is cut.
    pub fn is_cut(&self) -> bool {
        self.0.get(HEADER - 1) == Some(&1)
    }

    /// Returns the entries that are kept, in the order of the value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Item<'_>)> + Clone {
        entries(self.0.get(HEADER..).unwrap_or_default())
    }

    /// Returns the entry with this name.
    pub fn get(&self, name: &str) -> Option<Item<'_>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, item)| item)
    }

    /// Returns the number of all entries, if some are left out.
    pub(super) fn more(&self) -> Option<usize> {
        (self.iter().count() < self.len()).then(|| self.len())
    }

    /// Returns its entries as text.
    pub(super) fn said(&self) -> impl Iterator<Item = impl fmt::Display> + Clone {
        self.iter().map(|(name, item)| Entry { name, item })
    }
}

#[derive(Clone)]
struct Entry<'a> {
    name: &'a str,
    item: Item<'a>,
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.item)
    }
}

/// Reads entries.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (&str, Item<'_>)> + Clone {
    std::iter::from_fn(move || entry(&mut bytes))
}

/// Reads the next entry: kind, name and value.
fn entry<'a>(bytes: &mut &'a [u8]) -> Option<(&'a str, Item<'a>)> {
    let (kind, name) = (take(bytes, 1)?[0], taken(bytes)?);
    let value = taken(bytes)?;
    let number = || value.first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
    let item = match kind {
        b'u' => Item::U64(number()),
        b'i' => Item::I64(number().cast_signed()),
        b'f' => Item::F64(f64::from_bits(number())),
        b'b' => Item::Bool(value != [0]),
        _ => Item::Text(str::from_utf8(value).unwrap_or_default()),
    };
    Some((str::from_utf8(name).unwrap_or_default(), item))
}

/// Takes a length, and as many bytes.
fn taken<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take(bytes, 1)?[0];
    take(bytes, len.into())
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Map {
    /// `{rows: 4, mode: fast}`, and `{rows: 4, … of 20}` if entries are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_all(f, ['{', '}'], self.said(), self.more())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::fields::{IntoValue, Value};

    fn map(value: impl IntoValue) -> Map {
        match value.into_value() {
            Value::Map(map) => map,
            other => panic!("{other:?} is no map"),
        }
    }

    #[test]
    fn a_map_has_what_the_pairs_have() {
        let rows = [("rows", 4_u32), ("columns", 8)];
        assert_eq!(map(rows).to_string(), "{rows: 4, columns: 8}");
        assert_eq!(map(rows.as_slice()), map(rows.map(|(name, value)| (name.to_owned(), value)).to_vec()));
        assert_eq!(map(&BTreeMap::from(rows)).to_string(), "{columns: 8, rows: 4}");
        let mixed = map([
            ("n", Value::from(-1)),
            ("half", Value::from(0.5)),
            ("on", true.into()),
            ("mode", "fast".into()),
            ("shape", [1, 2].into_value()),
        ]);
        assert_eq!(mixed.to_string(), "{n: -1, half: 0.5, on: true, mode: fast, shape: [1, 2]}");
        assert_eq!((mixed.get("half"), mixed.get("none")), (Some(Item::F64(0.5)), None));
        assert!(!mixed.is_cut() && mixed.len() == 5);
        assert_eq!(map([("", 0); 0]).to_string(), "{}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let twice = map([("a", 1), ("a", 2), ("b", 3)]);
        assert_eq!((twice.to_string().as_str(), twice.is_cut()), ("{a: 1, b: 3, … of 3}", true));
        let many: Vec<_> = (0..40).map(|n| (format!("n{n}"), n)).collect();
        let many = map(many);
        assert_eq!((many.len(), many.iter().count(), many.is_cut()), (40, MAX_MAP_ENTRIES, true));
        let long = map([("ü".repeat(100), "x".repeat(200))]);
        assert_eq!((long.len(), long.is_cut(), long.more()), (1, true, None));
        let (name, text) =
            long.iter().next().map(|(name, item)| (name.to_owned(), item.to_string())).unwrap_or_default();
        assert_eq!((name, text), ("ü".repeat(29) + "…", "x".repeat(123) + "…"));
        // Of ten that are as large as can be, five fit, and a small one behind them does as well.
        let large = (0..10).map(|n| (format!("{n}{}", "k".repeat(61)), "t".repeat(126)));
        let large = map(large.chain([("last".to_owned(), "one".to_owned())]).collect::<Vec<_>>());
        assert_eq!((large.len(), large.iter().count(), large.get("last")), (11, 6, Some(Item::Text("one"))));
    }

    proptest! {
        #[test]
        fn a_map_is_bounded_and_survives_its_packing(
            entries in prop::collection::vec((".{0,70}", ".{0,140}"), 0..24),
            room in HEADER..600,
        ) {
            let map = map(&entries);
            prop_assert!(map.0.len() <= MAX_TEXT_BYTES && map.iter().count() <= MAX_MAP_ENTRIES);
            prop_assert_eq!(map.len(), entries.len());
            for (name, item) in map.iter() {
                let begins = |text: &str, of: &str| of.starts_with(text.trim_end_matches('…'));
                let of_it = |(known, text): &(String, String)| begins(name, known) && begins(&item.to_string(), text);
                prop_assert!(entries.iter().any(of_it), "{}: {}", name, item);
            }
            prop_assert!(map.is_cut() || map.iter().count() == entries.len());
            let packed = map.pack(room);
            let unpacked = Map::unpack(packed);
            prop_assert!(packed.len() <= room && unpacked.len() == map.len());
            prop_assert!(unpacked.iter().zip(map.iter()).all(|(one, two)| one == two));
            prop_assert_eq!(unpacked.is_cut(), map.is_cut() || unpacked.iter().count() < map.len());
            let text = Value::Map(map).text_within(room);
            prop_assert!(text.len() <= room && (room < 12 || text.starts_with('{') && text.ends_with('}')), "{}", text);
        }
    }
}
