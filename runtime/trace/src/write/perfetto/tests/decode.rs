//! Reads a trace back for the tests: first the wire format, then begins and ends as a trace UI pairs them.
//!
//! It shares nothing with the encoder except the field numbers.

use std::collections::HashMap;

use super::super::proto::{PACKET, annotation, clock, defaults, event, interned, packet, track};

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Int(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message in order, or none if the bytes are not a message.
pub(super) fn fields(mut bytes: &[u8]) -> Option<Vec<(u32, Wire<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Wire::Int(varint(&mut bytes)?),
            1 => {
                let (fixed, rest) = bytes.split_first_chunk::<8>()?;
                bytes = rest;
                Wire::Fixed(u64::from_le_bytes(*fixed))
            }
            2 => {
                let len = varint(&mut bytes)? as usize;
                let (content, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                Wire::Bytes(content)
            }
            _ => return None,
        };
        fields.push(((key >> 3) as u32, value));
    }
    Some(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A message whose fields are looked up by number.
#[derive(Debug)]
pub(super) struct Message<'a>(pub(super) Vec<(u32, Wire<'a>)>);

impl<'a> Message<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Message<'a> {
        Message(fields(bytes).expect("a whole message"))
    }

    pub(super) fn all(&self, field: u32) -> impl Iterator<Item = Wire<'a>> {
        self.0.iter().filter(move |(id, _)| *id == field).map(|(_, value)| *value)
    }

    pub(super) fn int(&self, field: u32) -> Option<u64> {
        self.all(field).find_map(|value| if let Wire::Int(int) = value { Some(int) } else { None })
    }

    pub(super) fn message(&self, field: u32) -> Option<Message<'a>> {
        self.messages(field).next()
    }

    pub(super) fn messages(&self, field: u32) -> impl Iterator<Item = Message<'a>> {
        self.all(field)
            .filter_map(|value| if let Wire::Bytes(bytes) = value { Some(Message::read(bytes)) } else { None })
    }

    pub(super) fn text(&self, field: u32) -> Option<String> {
        self.all(field).find_map(|value| match value {
            Wire::Bytes(bytes) => Some(String::from_utf8(bytes.to_vec()).expect("UTF-8")),
            _ => None,
        })
    }
}

/// A slice as a UI reads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    /// The number of slices around it on its track.
    pub(super) depth: usize,
    /// The name of its track, or `thread <tid>`.
    pub(super) track: String,
    pub(super) track_uuid: u64,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) flows: Vec<u64>,
    pub(super) correlation: Option<String>,
}

#[derive(Default)]
struct Sequence {
    track: u64,
    clock: u64,
    clock_zero: i64,
    names: HashMap<u64, String>,
    annotation_names: HashMap<u64, String>,
    strings: HashMap<u64, String>,
    correlations: HashMap<u64, String>,
}

/// Reads all slices, and panics if a reader would lose data. An incomplete last packet is left out.
pub(super) fn slices(trace: &[u8]) -> Vec<Slice> {
    let (slices, open) = slices_of_killed(trace);
    assert_eq!(open, 0, "slices were left open");
    slices
}

/// Like [`slices`], for a process that was killed while writing. Also returns the number of open slices.
pub(super) fn slices_of_killed(mut trace: &[u8]) -> (Vec<Slice>, usize) {
    let mut sequences: HashMap<u64, Sequence> = HashMap::new();
    let mut tracks: HashMap<u64, String> = HashMap::new();
    let mut events: Vec<(i64, u64, Option<Slice>)> = Vec::new();
    while let Some(bytes) = next_packet(&mut trace) {
        let message = Message::read(bytes);
        let id = message.int(packet::SEQUENCE_ID).expect("a sequence");
        let flags = message.int(packet::SEQUENCE_FLAGS).unwrap_or(0);
        if flags & packet::STATE_CLEARED != 0 {
            assert!(sequences.insert(id, Sequence::default()).is_none(), "two sequences with one id");
        }
        let sequence = sequences.get_mut(&id).expect("a sequence begins with cleared state");
        if let Some(described) = message.message(packet::TRACK_DESCRIPTOR) {
            let uuid = described.int(track::UUID).expect("a track has an id");
            let thread = described.message(track::THREAD).and_then(|thread| thread.int(track::THREAD_TID));
            let name = thread.map(|tid| format!("thread {tid}")).or_else(|| described.text(track::NAME));
            let parent = described.int(track::PARENT_UUID);
            assert!(parent.is_none_or(|parent| tracks.contains_key(&parent)), "a track before its parent");
            let is_process = described.message(track::PROCESS).is_some();
            // A track that was forgotten must be described again with the same name.
            let name = name.unwrap_or_default();
            let old = tracks.insert(uuid, name.clone());
            assert!(is_process || old.is_none_or(|old| old == name), "two tracks with one id");
        }
        if let Some(said) = message.message(packet::DEFAULTS) {
            sequence.clock = said.int(defaults::TIMESTAMP_CLOCK_ID).unwrap_or(0);
            let event = said.message(defaults::TRACK_EVENT);
            sequence.track = event.and_then(|event| event.int(defaults::TRACK_UUID)).unwrap_or(0);
            for clock in
                message.message(packet::CLOCK_SNAPSHOT).expect("the clock of the sequence").messages(clock::CLOCKS)
            {
                if clock.int(clock::ID) == Some(clock::BOOTTIME) {
                    sequence.clock_zero = clock.int(clock::TIMESTAMP).expect("a time") as i64;
                }
            }
        }
        if let Some(data) = message.message(packet::INTERNED_DATA) {
            for (field, table) in [
                (interned::EVENT_NAMES, &mut sequence.names),
                (interned::ANNOTATION_NAMES, &mut sequence.annotation_names),
                (interned::ANNOTATION_STRINGS, &mut sequence.strings),
                (interned::CORRELATION_IDS, &mut sequence.correlations),
            ] {
                for entry in data.messages(field) {
                    let old = table
                        .insert(entry.int(interned::IID).expect("an id"), entry.text(interned::TEXT).expect("a text"));
                    assert_eq!(old, None, "one id was given twice");
                }
            }
        }
        let Some(said) = message.message(packet::TRACK_EVENT) else { continue };
        let time = message.int(packet::TIMESTAMP).expect("a time") as i64;
        let clock = message.int(packet::TIMESTAMP_CLOCK_ID).unwrap_or(sequence.clock);
        let time = if clock == clock::SESSION { sequence.clock_zero + time } else { time };
        let uuid = said.int(event::TRACK_UUID).unwrap_or(sequence.track);
        match said.int(event::TYPE) {
            Some(event::SLICE_BEGIN) => {
                events.push((time, uuid, Some(read_slice(&said, sequence, time, uuid, &tracks))))
            }
            Some(event::SLICE_END) => events.push((time, uuid, None)),
            _ => {}
        }
    }
    pair(events)
}

fn read_slice(said: &Message, sequence: &Sequence, time: i64, uuid: u64, tracks: &HashMap<u64, String>) -> Slice {
    let annotations = said.messages(event::ANNOTATIONS).map(|said| {
        let name = match said.int(annotation::NAME_IID) {
            Some(iid) => sequence.annotation_names[&iid].clone(),
            None => said.text(annotation::NAME).expect("a name"),
        };
        (name, read_value(&said, sequence))
    });
    let flow = |value| if let Wire::Fixed(id) = value { Some(id) } else { None };
    Slice {
        name: match said.int(event::NAME_IID) {
            Some(iid) => sequence.names[&iid].clone(),
            None => said.text(event::NAME).expect("a name"),
        },
        begin_ns: time,
        end_ns: i64::MIN,
        depth: 0,
        track: tracks[&uuid].clone(),
        track_uuid: uuid,
        annotations: annotations.collect(),
        correlation: said.int(event::CORRELATION_ID_STR_IID).map(|iid| sequence.correlations[&iid].clone()),
        flows: said.all(event::FLOW_IDS).chain(said.all(event::TERMINATING_FLOW_IDS)).filter_map(flow).collect(),
    }
}

/// Reads the value of an annotation; those in an array or a dictionary with commas between.
fn read_value(said: &Message, sequence: &Sequence) -> String {
    let value = said.0.iter().find_map(|(field, value)| match (*field, *value) {
        (annotation::UINT, Wire::Int(value)) => Some(format!("uint {value}")),
        (annotation::INT, Wire::Int(value)) => Some(format!("int {}", value as i64)),
        (annotation::BOOL, Wire::Int(value)) => Some(format!("bool {}", value == 1)),
        (annotation::DOUBLE, Wire::Fixed(bits)) => Some(format!("double {}", f64::from_bits(bits))),
        (annotation::STRING, _) => said.text(annotation::STRING),
        (annotation::STRING_IID, Wire::Int(iid)) => Some(sequence.strings[&iid].clone()),
        _ => None,
    });
    let items = said.messages(annotation::ARRAY_VALUES).map(|item| read_value(&item, sequence));
    let entries = said.messages(annotation::DICT_ENTRIES).map(|entry| {
        format!("{}: {}", entry.text(annotation::NAME).expect("an entry has a name"), read_value(&entry, sequence))
    });
    let several: Vec<_> = items.chain(entries).collect();
    assert!(value.is_some() == several.is_empty(), "an annotation has one value: {value:?} {several:?}");
    value.unwrap_or_else(|| several.join(", "))
}

/// Pairs begins and ends as the trace processor does: sorted by time, with equal times in the order of the file. Each end closes
/// the innermost open slice of its track.
fn pair(mut events: Vec<(i64, u64, Option<Slice>)>) -> (Vec<Slice>, usize) {
    events.sort_by_key(|(time, ..)| *time);
    let mut open: HashMap<u64, Vec<Slice>> = HashMap::new();
    let mut slices = Vec::new();
    for (time, track, begun) in events {
        let stack = open.entry(track).or_default();
        match begun {
            Some(slice) => {
                let depth = stack.len();
                stack.push(Slice { depth, ..slice });
            }
            None => {
                let slice = stack.pop().expect("an end has its begin");
                slices.push(Slice { end_ns: time, ..slice });
            }
        }
    }
    (slices, open.values().map(Vec::len).sum())
}

pub(super) fn next_packet<'a>(trace: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = *trace;
    if rest.is_empty() {
        return None;
    }
    let key = varint(&mut rest)?;
    assert_eq!(key, u64::from(PACKET << 3 | 2), "a trace is packets and nothing else");
    let len = varint(&mut rest)? as usize;
    let (packet, rest) = rest.split_at_checked(len)?;
    *trace = rest;
    Some(packet)
}
