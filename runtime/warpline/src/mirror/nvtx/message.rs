//! The data of a collective as a typed payload of its own, beside that of the zone's fields.
//!
//! A payload of a static schema has all of the schema's entries, and a message often lacks some values. A range therefore has one schema
//! for each set of values that its messages have; most have one set.
#![allow(unsafe_code)]

use std::ffi::CStr;

use super::abi::*;
use super::payload::{Bytes, Entry, Schemas, register_schema};
use warpline_core::collective::{Message, ProcessGroup};

/// The name of the schemas, in every domain.
const NAME: &CStr = c"warpline.collective";

const VALUES: usize = 13;

/// The values of a message, in the order of a payload: name, type, description.
const ENTRIES: [(&CStr, Entry, &CStr); VALUES] = [
    (c"operation", Entry::Text, c"The operation of the collective"),
    (c"dtype", Entry::Text, c"The type of the elements"),
    (c"count", Entry::U64, c"The number of elements that this rank sends"),
    (c"count_out", Entry::U64, c"The number of elements that this rank receives"),
    (c"bytes", Entry::U64, c"The size of the message in bytes, as NCCL's tests define it"),
    (c"group", Entry::Text, c"The name of the process group"),
    (c"group_size", Entry::U64, c"The number of ranks in the group"),
    (c"rank", Entry::U64, c"This rank's number in the group"),
    (c"root", Entry::U64, c"The root's number in the group"),
    (c"peer", Entry::U64, c"The peer's number in the group"),
    (c"reduction", Entry::Text, c"How elements are combined"),
    (c"seq", Entry::U64, c"The number of the collective in its group, the same on all ranks; with a session"),
    (c"is_async", Entry::U64, c"1 if the caller continues without waiting for it"),
];

enum MessageValue<'a> {
    Text(&'a str),
    Number(u64),
}

/// The schemas of a range's messages. A set has a bit for each value that the messages have.
pub(super) type MessageSchemas = Schemas<u16>;

/// The values of one message.
pub(super) type MessageBytes = Bytes<VALUES>;

impl MessageSchemas {
    /// Returns the message's values, and the tool's number of their schema; none if they cannot be sent.
    pub(super) fn encode(&self, domain: nvtxDomainHandle_t, message: &Message) -> Option<(u64, MessageBytes)> {
        let values = values(message);
        let known = values.iter().enumerate().fold(0, |known, (at, value)| known | u16::from(value.is_some()) << at);
        let id = self.find(|set| *set == known, || (known, register(domain, known)))?;
        let mut bytes = MessageBytes::new();
        for value in values.into_iter().flatten() {
            match value {
                MessageValue::Text(text) => bytes.text(text),
                MessageValue::Number(number) => bytes.number(number),
            }
        }
        Some((id, bytes))
    }
}

#[cold]
fn register(domain: nvtxDomainHandle_t, values: u16) -> u64 {
    let known = ENTRIES.into_iter().enumerate().filter(|(at, _)| values & 1 << at != 0);
    register_schema(domain, NAME, known.map(|(_, entry)| entry))
}

/// Returns the values of [`ENTRIES`], as far as they are known.
fn values(message: &Message) -> [Option<MessageValue<'_>>; VALUES] {
    let group = message.group.as_ref();
    let text = |text| Some(MessageValue::Text(text));
    let number = |number: Option<u64>| number.map(MessageValue::Number);
    [
        text(message.kind.as_str()),
        message.dtype.map(|dtype| MessageValue::Text(dtype.as_str())),
        number(message.count),
        number(message.elements_out()),
        number(message.bytes()),
        group.map(ProcessGroup::name).map(MessageValue::Text),
        number(group.map(|group| group.size() as u64)),
        number(group.map(|group| u64::from(group.rank()))),
        number(message.root.map(u64::from)),
        number(message.peer.map(u64::from)),
        message.op.map(|op| MessageValue::Text(op.as_str())),
        number(message.seq),
        number(message.is_async.map(u64::from)),
    ]
}
