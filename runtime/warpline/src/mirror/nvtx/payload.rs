//! Typed payloads: how values become the entries of a schema, and the payload of a zone's fields. Fields have one schema for each range
//! and set of fields, registered when the set is first used.
//!
//! Numbers take 8 bytes, and text, lists and maps, which become text, and the label 64, in the order of the mark. All data of a zone is on the stack. `message` and `sync`
//! have the payloads of collectives and of semaphores.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use super::abi::*;
use super::table;
use warpline_core::fields;
use warpline_core::fields::{Fields, MAX_FIELDS, MAX_LABEL_BYTES, Value};

/// The size of a text in bytes, including its NUL. A label always fits, and other text is cut between characters.
const TEXT: usize = 64;
const NUMBER: usize = 8;

const _: () = assert!(MAX_LABEL_BYTES < TEXT);

/// The maximum number of sets of values of a range. Zones and messages with further sets have no payload.
const MOST_SCHEMAS: usize = 16;

/// The type of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    U64,
    I64,
    F64,
    Bool,
    Text,
}

impl Entry {
    fn encode(value: &Value) -> Entry {
        match value {
            Value::U64(_) => Entry::U64,
            Value::I64(_) => Entry::I64,
            Value::F64(_) => Entry::F64,
            Value::Bool(_) => Entry::Bool,
            _ => Entry::Text,
        }
    }

    fn bytes(self) -> usize {
        if self == Entry::Text { TEXT } else { NUMBER }
    }

    fn type_id(self) -> u64 {
        match self {
            Entry::U64 => NVTX_PAYLOAD_ENTRY_TYPE_UINT64,
            Entry::I64 => NVTX_PAYLOAD_ENTRY_TYPE_INT64,
            Entry::F64 => NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE,
            Entry::Bool => NVTX_PAYLOAD_ENTRY_TYPE_UINT8,
            Entry::Text => NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8,
        }
    }
}

/// The schemas of one range, each for one set of values: a list that only grows.
#[derive(Default)]
pub(super) struct Schemas<S>(OnceLock<Box<Schema<S>>>);

struct Schema<S> {
    set: S,
    /// The tool's number; 0 if the tool refused the schema.
    id: u64,
    next: Schemas<S>,
}

impl<S: Default> Schemas<S> {
    /// Returns the tool's number of the schema whose set fits, or none if the values cannot be sent. `register` returns the values' set and the
    /// number of its schema.
    #[inline]
    pub(super) fn find(&self, fits: impl Fn(&S) -> bool, register: impl Fn() -> (S, u64)) -> Option<u64> {
        let mut schemas = self;
        for _ in 0..MOST_SCHEMAS {
            let schema = schemas.0.get_or_init(|| {
                let (set, id) = register();
                Box::new(Schema { set, id, next: Schemas::default() })
            });
            if fits(&schema.set) {
                return Some(schema.id).filter(|id| *id != 0);
            }
            schemas = &schema.next;
        }
        None
    }
}

/// A set of fields, and whether a label is with them.
#[derive(Default)]
pub(super) struct FieldSet {
    fields: Vec<(&'static str, Entry)>,
    has_label: bool,
}

impl Schemas<FieldSet> {
    /// Returns the tool's number of the schema of these fields, or none if they cannot be sent.
    #[inline]
    pub(super) fn id(&self, domain: nvtxDomainHandle_t, range: &CStr, fields: &Fields) -> Option<u64> {
        self.find(|set| set.fits(fields), || FieldSet::register(domain, range, fields))
    }
}

impl FieldSet {
    fn fits(&self, fields: &Fields) -> bool {
        self.fields.len() == fields.len()
            && self.has_label == fields.label().is_some()
            && self.fields.iter().zip(fields.iter()).all(|((known, entry), (name, value))| {
                *entry == Entry::encode(value) && (known.as_ptr() == name.as_ptr() || *known == name)
            })
    }

    #[cold]
    fn register(domain: nvtxDomainHandle_t, range: &CStr, fields: &Fields) -> (FieldSet, u64) {
        let known: Vec<_> = fields.iter().map(|(name, value)| (name, Entry::encode(value))).collect();
        let label = fields.label().map(|_| ("label", Entry::Text));
        // A name that contains a NUL becomes empty. Marks never contain one.
        let names: Vec<CString> =
            known.iter().chain(&label).map(|(name, _)| CString::new(*name).unwrap_or_default()).collect();
        let entries = known.iter().chain(&label).zip(&names);
        let id = register_schema(domain, range, entries.map(|((_, entry), name)| (&**name, *entry, c"")));
        (FieldSet { fields: known, has_label: label.is_some() }, id)
    }
}

/// Registers a schema with these entries: name, type and description, which may be empty. Returns the tool's number, or 0 if the tool
/// accepts no schemas.
#[cold]
pub(super) fn register_schema<'a>(
    domain: nvtxDomainHandle_t,
    name: &CStr,
    entries: impl Iterator<Item = (&'a CStr, Entry, &'a CStr)>,
) -> u64 {
    let mut bytes = 0;
    let entries: Vec<_> = entries
        .map(|(name, entry, description)| {
            let offset = bytes;
            bytes += entry.bytes();
            describe(entry, name, description, offset)
        })
        .collect();
    let attributes = nvtxPayloadSchemaAttr_t {
        fieldMask: NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME
            | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE
            | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES
            | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES
            | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
        name: name.as_ptr(),
        r#type: NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
        flags: 0,
        entries: entries.as_ptr(),
        numEntries: entries.len(),
        payloadStaticSize: bytes,
        packAlign: 0,
        schemaId: 0,
        extension: std::ptr::null_mut(),
    };
    // SAFETY: the attributes, and what they point to, outlive the call; the tool copies what it keeps.
    table::payload_schema_register().map_or(0, |register| unsafe { register(domain, &raw const attributes) })
}

fn describe(entry: Entry, name: &CStr, description: &CStr, offset: usize) -> nvtxPayloadSchemaEntry_t {
    nvtxPayloadSchemaEntry_t {
        flags: 0,
        r#type: entry.type_id(),
        name: name.as_ptr(),
        description: if description.is_empty() { std::ptr::null() } else { description.as_ptr() },
        arrayOrUnionDetail: if entry == Entry::Text { TEXT as u64 } else { 0 },
        offset: offset as u64,
        semantics: std::ptr::null(),
        reserved: std::ptr::null(),
    }
}

/// The values of one payload, in the layout of its schema, with room for `N` texts.
#[repr(C, align(8))]
pub(super) struct Bytes<const N: usize> {
    bytes: [[u8; TEXT]; N],
    len: usize,
}

/// The values of a zone's fields and its label.
pub(super) type FieldBytes = Bytes<{ MAX_FIELDS + 1 }>;

impl<const N: usize> Bytes<N> {
    pub(super) const fn new() -> Bytes<N> {
        Bytes { bytes: [[0; TEXT]; N], len: 0 }
    }

    pub(super) fn number(&mut self, number: u64) {
        self.push(&number.to_ne_bytes(), NUMBER);
    }

    /// Adds a text, as far as it fits before a NUL.
    pub(super) fn text(&mut self, text: &str) {
        self.push(fields::cut(text, TEXT - 1).as_bytes(), TEXT);
    }

    fn push(&mut self, value: &[u8], room: usize) {
        self.bytes.as_flattened_mut()[self.len..self.len + value.len()].copy_from_slice(value);
        self.len += room;
    }

    /// Returns the payload of a schema.
    pub(super) fn of_schema(&self, id: u64) -> nvtxPayloadData_t {
        nvtxPayloadData_t { schemaId: id, size: self.len, payload: self.bytes.as_ptr().cast() }
    }
}

impl FieldBytes {
    pub(super) fn encode(fields: &Fields) -> FieldBytes {
        let mut all = FieldBytes::new();
        for (_, value) in fields.iter() {
            match value {
                Value::U64(number) => all.number(*number),
                Value::I64(number) => all.number(number.cast_unsigned()),
                Value::F64(number) => all.number(number.to_bits()),
                Value::Bool(truth) => all.push(&[u8::from(*truth)], NUMBER),
                Value::Str(text) => all.text(text),
                Value::Text(text) => all.text(text),
                other => all.text(&other.text_within(TEXT - 1)),
            }
        }
        if let Some(label) = fields.label() {
            all.text(label);
        }
        all
    }
}
