//! Annotations of slices, with interned names, including those that several kinds of records share.

use super::intern::{Numbers, Word};
use super::proto::{Buffer, annotation, event};
use super::track::{Sequence, text_iid};
use crate::names::len_name;
use warpline_core::fields::{Item, Value};
use warpline_core::record::SpanRef;

/// The parent span of a record.
pub(super) struct Parent {
    of: SpanRef,
    name: Word<'static>,
    id: Word<'static>,
    /// The number of the span's name.
    text: Option<u32>,
}

impl Parent {
    /// Defines what [`write`](Self::write) refers to.
    pub(super) fn define(of: SpanRef, lane: &mut Sequence, texts: &mut Numbers, buffer: &mut Buffer) -> Parent {
        let [name, id] = [Word::PARENT, Word::PARENT_ID].map(|word| lane.defined(word, buffer));
        Parent { of, name, id, text: lane.text(of.name, texts, buffer) }
    }

    pub(super) fn write(&self, event: &mut Buffer) {
        annotate(event, self.name, |annotation| write_value(annotation, &Value::Str(self.of.name), self.text));
        uint(event, self.id, self.of.id);
    }
}

#[inline]
pub(super) fn annotate<'a>(event: &mut Buffer, word: impl Into<Word<'a>>, value: impl FnOnce(&mut Buffer)) {
    let Word { id, name } = word.into();
    event.message(event::ANNOTATIONS, |annotation| {
        match id {
            Some(id) => annotation.uint(annotation::NAME_IID, u64::from(id)),
            None => annotation.text(annotation::NAME, name),
        }
        value(annotation);
    });
}

pub(super) fn text<'a>(event: &mut Buffer, word: impl Into<Word<'a>>, value: &str) {
    annotate(event, word, |annotation| annotation.text(annotation::STRING, value));
}

#[inline]
pub(super) fn uint<'a>(event: &mut Buffer, word: impl Into<Word<'a>>, value: u64) {
    annotate(event, word, |annotation| annotation.uint(annotation::UINT, value));
}

#[inline]
pub(super) fn int<'a>(event: &mut Buffer, word: impl Into<Word<'a>>, value: i64) {
    annotate(event, word, |annotation| annotation.int(annotation::INT, value));
}

#[inline]
pub(super) fn double<'a>(event: &mut Buffer, word: impl Into<Word<'a>>, value: f64) {
    annotate(event, word, |annotation| annotation.double(annotation::DOUBLE, value));
}

/// Writes a value. The number of a text that lives as long as the program stands for it.
#[inline]
pub(super) fn write_value(annotation: &mut Buffer, value: &Value, id: Option<u32>) {
    match (value, id) {
        (Value::Str(_), Some(id)) => annotation.uint(annotation::STRING_IID, text_iid(u64::from(id))),
        (Value::List(list), _) if !list.is_empty() => {
            for item in list.iter() {
                annotation.message(annotation::ARRAY_VALUES, |value| write_item(value, item));
            }
        }
        (Value::Map(map), _) if !map.is_empty() => {
            for (name, item) in map.iter() {
                annotation.message(annotation::DICT_ENTRIES, |entry| {
                    entry.text(annotation::NAME, name);
                    write_item(entry, item);
                });
            }
        }
        (value, _) => match value.item() {
            Some(item) => write_item(annotation, item),
            // An annotation without a value is not shown, so an empty list is `[]`.
            None => annotation.text(annotation::STRING, &value.to_string()),
        },
    }
}

#[inline]
fn write_item(annotation: &mut Buffer, item: Item<'_>) {
    match item {
        Item::U64(value) => annotation.uint(annotation::UINT, value),
        Item::I64(value) => annotation.int(annotation::INT, value),
        Item::F64(value) => annotation.double(annotation::DOUBLE, value),
        Item::Bool(value) => annotation.bool(annotation::BOOL, value),
        Item::Text(text) => annotation.text(annotation::STRING, text),
        other => annotation.text(annotation::STRING, &other.to_string()),
    }
}

/// Writes the number of items that a list or a map had, if it was cut, beside it.
#[inline]
pub(super) fn annotate_len(event: &mut Buffer, name: &str, value: &Value) {
    if let Some(len) = value.cut_len() {
        uint(event, &len_name(name), len);
    }
}
