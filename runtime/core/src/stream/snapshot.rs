//! Snapshots of open zones, which other threads can read while the zone's own thread continues.
//!
//! A slot is accessible only to its own zone. In a session with a flight recorder, each slot therefore has a snapshot. The launching thread
//! writes it when the zone begins, changes and ends, with plain stores and without waiting. The collector reads it, and discards a copy
//! that was written in the meantime. The size of a snapshot is bounded: long texts are truncated, and of long lists and
//! maps the first items are kept.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::dynamic;
use crate::fields::{self, Fields, List, Map, Value};
use crate::record::open::{OpenState, OpenZoneRecord};

/// The size of the fields and the label, in bytes.
const TEXT_BYTES: usize = 240;
const TEXT: usize = 5;
const WORDS: usize = TEXT + TEXT_BYTES / 8;

/// The maximum size of one name or text, in bytes.
const LONGEST: usize = 96;

/// A copy of an open zone. All but the text is in its first cache line.
#[repr(C, align(64))]
pub struct OpenZoneSnapshot {
    /// Odd while the words are being written.
    version: AtomicU32,
    place: AtomicLocation,
    /// In this order: state, text length and range in one word; thread; begin; sequence; end on the host; text.
    words: [AtomicU64; WORDS],
}

const _: () = assert!(std::mem::offset_of!(OpenZoneSnapshot, words) + TEXT * 8 <= 64);

impl Default for OpenZoneSnapshot {
    fn default() -> OpenZoneSnapshot {
        OpenZoneSnapshot {
            version: AtomicU32::new(0),
            place: AtomicLocation::default(),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }
}

/// The place where the zone began.
#[derive(Default)]
struct AtomicLocation(AtomicPtr<Location<'static>>);

impl AtomicLocation {
    #[inline]
    fn set(&self, place: &'static Location<'static>) {
        self.0.store(ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
    }

    fn get(&self) -> Option<&'static Location<'static>> {
        let place = self.0.load(Ordering::Relaxed);
        // SAFETY: the pointer is null, or was created in `set` from a `'static` reference and is only read through.
        #[allow(unsafe_code)]
        unsafe {
            place.as_ref()
        }
    }
}

/// The data of a zone in a snapshot.
pub(crate) struct ZoneContent<'a> {
    pub(crate) range: Option<&'static RangeSpec>,
    pub(crate) thread: u64,
    pub(crate) begin_ns: i64,
    pub(crate) sequence: u64,
    pub(crate) fields: &'a Fields,
    pub(crate) message: Option<&'a Message>,
}

const NO_RANGE: u64 = u32::MAX as u64;

impl OpenZoneSnapshot {
    /// Records the begin of the zone at this place.
    pub(crate) fn begin<'a>(&self, zone: impl Into<ZoneContent<'a>>, place: &'static Location<'static>) {
        self.write_at(&zone.into(), Some(place));
    }

    /// Records a change of the zone's fields or label.
    pub(crate) fn write<'a>(&self, zone: impl Into<ZoneContent<'a>>) {
        self.write_at(&zone.into(), None);
    }

    fn write_at(&self, zone: &ZoneContent<'_>, place: Option<&'static Location<'static>>) {
        // Most zones have no text.
        if zone.message.is_none() && zone.fields.is_empty() && zone.fields.label().is_none() {
            return self.store(zone, place, 0, &[]);
        }
        let mut text = Text { bytes: [0; TEXT_BYTES], len: 0 };
        text.add_message(zone.message);
        text.add_all(zone.fields);
        self.store(zone, place, text.len, &text.bytes[..text.len.next_multiple_of(8)]);
    }

    /// Stores a zone with a text of this length, in whole words.
    #[inline]
    fn store(&self, zone: &ZoneContent<'_>, place: Option<&'static Location<'static>>, len: usize, text: &[u8]) {
        let range = zone.range.map_or(NO_RANGE, |range| range.number().into());
        let head = 1 | (len as u64) << 8 | range << 32;
        self.change(|words| {
            if let Some(place) = place {
                self.place.set(place);
            }
            let numbers = [head, zone.thread, zone.begin_ns as u64, zone.sequence, 0];
            for (word, number) in words.iter().zip(numbers) {
                word.store(number, Ordering::Relaxed);
            }
            for (word, bytes) in words[TEXT..].iter().zip(text.chunks_exact(8)) {
                let bytes = bytes.first_chunk().copied().unwrap_or_default();
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        });
    }

    /// Records the end of the mark.
    pub(crate) fn launched(&self, ns: i64) {
        self.change(|words| {
            let head = words[0].load(Ordering::Relaxed);
            words[0].store(head & !0xff | 2, Ordering::Relaxed);
            words[4].store(ns as u64, Ordering::Relaxed);
        });
    }

    /// Records the end of the zone.
    pub(crate) fn clear(&self) {
        if self.words[0].load(Ordering::Relaxed) != 0 {
            self.change(|words| words[0].store(0, Ordering::Relaxed));
        }
    }

    /// Only the slot's holder calls this, so there is one writer at a time.
    #[inline]
    fn change(&self, write: impl FnOnce(&[AtomicU64; WORDS])) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        write(&self.words);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns whether a zone is open, without synchronisation.
    pub fn is_open(&self) -> bool {
        self.words[0].load(Ordering::Relaxed) != 0
    }

    /// Returns the open zone. Returns none if there is none, or if it changed while it was read.
    pub fn read(&self) -> Option<OpenZoneRecord> {
        let before = self.version.load(Ordering::Acquire);
        let words: [u64; WORDS] = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        let place = self.place.get();
        fence(Ordering::Acquire);
        if !before.is_multiple_of(2) || self.version.load(Ordering::Relaxed) != before {
            return None;
        }
        let state = match words[0] & 0xff {
            1 => OpenState::OnThread,
            2 => OpenState::OnStream,
            _ => return None,
        };
        let len = (words[0] >> 8 & 0xff_ffff) as usize;
        let bytes: Vec<u8> = words[TEXT..].iter().flat_map(|word| word.to_le_bytes()).take(len).collect();
        let (fields, label, collective, transfer) = read_text(&bytes);
        let range = dynamic::by_number((words[0] >> 32) as u32);
        Some(OpenZoneRecord {
            state,
            range,
            thread: words[1],
            begin_ns: words[2] as i64,
            launched_ns: words[4] as i64,
            sequence: words[3],
            // A range that is named at run time says where it is, which is not where the zone was begun for it.
            place: place.filter(|_| !range.is_some_and(dynamic::has_place)),
            fields,
            label,
            collective,
            transfer,
        })
    }
}

/// The compact form of fields and label: kind, name and value of each.
struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Text {
    /// Adds the communicator and the number of a collective, and the other end of a transfer, before anything that
    /// could take their room.
    fn add_message(&mut self, message: Option<&Message>) {
        let Some(message) = message else { return };
        let Some((group, seq)) = message.group.as_ref().zip(message.seq) else { return };
        self.add(b'c', group.comm(), &seq.to_le_bytes());
        let peer = message.peer.filter(|_| message.kind.is_between_two());
        if let Some(rank) = peer.and_then(|peer| group.ranks().get(peer as usize)) {
            self.add(b'p', message.kind.as_str(), &rank.to_le_bytes());
        }
    }

    fn add_all(&mut self, fields: &Fields) {
        if let Some(label) = fields.label() {
            self.add(b'l', "", label.as_bytes());
        }
        for (name, value) in fields.iter() {
            match value {
                Value::U64(value) => self.add(b'u', name, &value.to_le_bytes()),
                Value::I64(value) => self.add(b'i', name, &value.to_le_bytes()),
                Value::F64(value) => self.add(b'f', name, &value.to_bits().to_le_bytes()),
                Value::Bool(value) => self.add(b'b', name, &[u8::from(*value)]),
                Value::Str(text) => self.add(b't', name, cut(text)),
                Value::Text(text) => self.add(b't', name, cut(text)),
                Value::List(list) => {
                    let mut bytes = [0; LONGEST];
                    let len = list.pack(&mut bytes);
                    self.add(b'n', name, &bytes[..len]);
                }
                Value::Map(map) => self.add(b'm', name, map.pack(LONGEST)),
            }
        }
    }

    /// Adds an entry if there is room for the whole of it.
    fn add(&mut self, kind: u8, name: &str, value: &[u8]) {
        let name = cut(name);
        let parts: [&[u8]; 4] = [&[kind, name.len() as u8], name, &[value.len() as u8], value];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.len + len > TEXT_BYTES {
            return;
        }
        for part in parts {
            self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
            self.len += part.len();
        }
    }
}

/// Truncates a text to the maximum size of an entry.
fn cut(text: &str) -> &[u8] {
    fields::cut(text, LONGEST).as_bytes()
}

/// The fields, the label, the communicator and number of a collective, and the operation and other end of a transfer.
type Said = (Vec<(String, Value)>, Option<String>, Option<(String, u64)>, Option<(String, u32)>);

fn read_text(mut bytes: &[u8]) -> Said {
    let (mut fields, mut label, mut collective, mut transfer) = (Vec::new(), None, None, None);
    while let Some((kind, name, value)) = read_entry(&mut bytes) {
        let number = || value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let text = || String::from_utf8_lossy(value).into_owned();
        let value = match kind {
            b'l' => {
                label = Some(text());
                continue;
            }
            b'c' => {
                collective = number().map(|seq| (String::from_utf8_lossy(name).into_owned(), seq));
                continue;
            }
            b'p' => {
                let rank = value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
                transfer = rank.map(|rank| (String::from_utf8_lossy(name).into_owned(), rank));
                continue;
            }
            b'u' => number().map(Value::U64),
            b'i' => number().map(|bits| Value::I64(bits as i64)),
            b'f' => number().map(|bits| Value::F64(f64::from_bits(bits))),
            b'b' => Some(Value::Bool(value != [0])),
            b'n' => List::unpack(value).map(Value::List),
            b'm' => Some(Value::Map(Map::unpack(value))),
            _ => Some(Value::Text(text().into())),
        };
        fields.extend(value.map(|value| (String::from_utf8_lossy(name).into_owned(), value)));
    }
    (fields, label, collective, transfer)
}

fn read_entry<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at_checked(count)?;
        *bytes = rest;
        Some(taken)
    };
    let (kind, name_len) = (take(1)?[0], take(1)?[0]);
    let name = take(usize::from(name_len))?;
    let value_len = take(1)?[0];
    Some((kind, name, take(usize::from(value_len))?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::catalog::RangeSpec;
    use crate::catalog::spec::refused;
    use crate::stream::slot::Slot;

    /// This range is in no catalog.
    static STEP: RangeSpec = refused();

    fn slot(n: u64) -> Slot {
        let mut slot = Slot::default();
        slot.set_for_test(&STEP, n, n as i64);
        slot.change_fields(|fields| {
            fields.push("n", n);
            fields.push("kind", "forward");
        });
        slot
    }

    #[test]
    fn a_note_has_what_the_zone_carries() {
        let note = OpenZoneSnapshot::default();
        assert!(note.read().is_none() && !note.is_open());
        let mut slot = slot(7);
        slot.change_fields(|fields| fields.push("share", 0.5));
        slot.change_fields(|fields| fields.push("down", -3_i64));
        slot.change_fields(|fields| fields.push("is", true));
        slot.change_fields(|fields| fields.push("sizes", (0..100_u32).collect::<Vec<_>>()));
        slot.change_fields(|fields| fields.push("tile", [("rows", 4), ("columns", 8)]));
        slot.change_fields(|fields| fields.set_label("layer 7"));
        let place = Location::caller();
        note.begin(&slot, place);
        let open = note.read().expect("it is open");
        let said: Vec<_> = open.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            said,
            [
                "n=7",
                "kind=forward",
                "share=0.5",
                "down=-3",
                "is=true",
                "sizes=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … of 100]",
                "tile={rows: 4, columns: 8}"
            ]
        );
        // The range of the test is in no catalog, and was met.
        assert!(open.label.as_deref() == Some("layer 7") && open.range.is_some_and(|range| std::ptr::eq(range, &STEP)));
        assert_eq!((open.state, open.thread, open.begin_ns, open.sequence), (OpenState::OnThread, 7, 7, 7));
        slot.change_fields(|fields| fields.push("late", 1_u64));
        note.write(&slot);
        let open = note.read().expect("it is open");
        assert_eq!((open.place, open.fields.len()), (Some(place), 8), "what changes has begun where it began");
        note.launched(9);
        let open = note.read().expect("it is open");
        assert_eq!((open.state, open.launched_ns, open.fields.len()), (OpenState::OnStream, 9, 8));
        note.clear();
        assert!(note.read().is_none());
    }

    #[test]
    fn the_other_end_of_a_transfer_is_said_as_a_rank_of_the_job() {
        use crate::collective::{CollectiveKind, ProcessGroup};
        let group = ProcessGroup::new("snapshot", [3, 7, 11], 0);
        let open = |kind, peer| {
            let (note, mut slot) = (OpenZoneSnapshot::default(), slot(1));
            let mut message = Message::new(kind).group(&group).seq(5_u32);
            message.peer = peer;
            slot.set_message(message);
            note.begin(&slot, Location::caller());
            let open = note.read().expect("it is open");
            assert_eq!(open.collective, Some((group.comm().to_owned(), 5)));
            open.transfer
        };
        assert_eq!(open(CollectiveKind::Recv, Some(2)), Some(("recv".to_owned(), 11)));
        // No rank of the group, none at all, and a root that is no peer.
        assert_eq!(open(CollectiveKind::Recv, Some(3)), None);
        assert_eq!(open(CollectiveKind::Send, None), None);
        assert_eq!(open(CollectiveKind::AllReduce, Some(1)), None);
    }

    #[test]
    #[cfg(feature = "enable")]
    fn a_range_that_is_named_at_run_time_says_its_place() {
        let (note, mut slot) = (OpenZoneSnapshot::default(), slot(1));
        let open = |note: &OpenZoneSnapshot| note.read().expect("it is open");
        slot.open(dynamic::range("snapshot.open", "kernel.py", 7, "f"), crate::sample::Chance::ALWAYS, false);
        note.begin(&slot, Location::caller());
        assert_eq!((open(&note).place, open(&note).range.map(RangeSpec::file)), (None, Some("kernel.py")));
        slot.open(dynamic::range("snapshot.open", "", 0, ""), crate::sample::Chance::ALWAYS, false);
        note.begin(&slot, Location::caller());
        assert!(open(&note).place.is_some(), "it says none");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let note = OpenZoneSnapshot::default();
        let mut slot = slot(1);
        slot.change_fields(|fields| fields.push("long", "ü".repeat(200)));
        slot.change_fields(|fields| fields.push("longer", "x".repeat(2_000)));
        slot.change_fields(|fields| fields.push("last", 5_u64));
        slot.change_fields(|fields| fields.push("is", true));
        note.begin(&slot, Location::caller());
        let open = note.read().expect("it is open");
        assert_eq!(open.fields[2], ("long".to_owned(), Value::Text("ü".repeat(48).into())));
        let names: Vec<_> = open.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["n", "kind", "long", "longer", "is"],
            "what has no room is left out, and what is behind it is not"
        );
    }

    #[test]
    fn what_is_read_while_it_is_written_is_whole() {
        const COUNT: u64 = if cfg!(miri) { 50 } else { 50_000 };
        let (note, is_over) = (OpenZoneSnapshot::default(), AtomicBool::new(false));
        // One place for even zones and one for odd ones.
        let even = Location::caller();
        let places = [even, Location::caller()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..COUNT {
                    note.begin(&slot(n), places[n as usize % 2]);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                if let Some(open) = note.read() {
                    let n = open.thread;
                    assert_eq!((open.begin_ns, open.sequence), (n as i64, n));
                    assert_eq!(open.place, Some(places[n as usize % 2]));
                    assert_eq!(open.fields[0], ("n".to_owned(), Value::U64(n)));
                }
            }
        });
        assert_eq!(note.read().map(|open| open.thread), Some(COUNT - 1));
    }
}
