//! Annotations of slices, with interned names, including those that several kinds of records share.

use super::intern::Numbers;
use super::proto::{Buffer, annotation, event};
use super::track::{Sequence, text_iid};
use crate::names::len_name;
use warpline_core::fields::{Item, Value};
use warpline_core::record::SpanRef;

/// The numbers of the texts that the sink itself writes.
pub(super) struct Words {
    pub(super) description: Option<u32>,
    pub(super) label: Option<u32>,
    pub(super) status: Option<u32>,
    pub(super) error: Option<u32>,
    pub(super) end: Option<u32>,
    pub(super) parent: Option<u32>,
    pub(super) parent_id: Option<u32>,
    pub(super) span_id: Option<u32>,
}

/// The parent span of a record, and the number of its name.
pub(super) type Parent = (SpanRef, Option<u32>);

impl Words {
    pub(super) fn new(texts: &mut Numbers) -> Words {
        Words {
            description: texts.text(DESCRIPTION),
            label: texts.text(LABEL),
            status: texts.text(STATUS),
            error: texts.text(ERROR),
            end: texts.text(END),
            parent: texts.text(PARENT),
            parent_id: texts.text(PARENT_ID),
            span_id: texts.text(SPAN_ID),
        }
    }

    /// Defines what [`write_parent`](Self::write_parent) refers to.
    pub(super) fn define_parent(
        &self,
        parent: SpanRef,
        lane: &mut Sequence,
        texts: &mut Numbers,
        buffer: &mut Buffer,
    ) -> Parent {
        for (id, name) in [(self.parent, PARENT), (self.parent_id, PARENT_ID)] {
            if let Some(id) = id {
                lane.define_name(id, name, buffer);
            }
        }
        let name = texts.text(parent.name);
        if let Some(id) = name {
            lane.define_text(id, parent.name, buffer);
        }
        (parent, name)
    }

    pub(super) fn write_parent(&self, (parent, name): Parent, event: &mut Buffer) {
        annotate(event, self.parent, PARENT, |annotation| write_value(annotation, &Value::Str(parent.name), name));
        annotate(event, self.parent_id, PARENT_ID, |annotation| annotation.uint(annotation::UINT, parent.id));
    }
}

pub(super) const DESCRIPTION: &str = "description";
pub(super) const LABEL: &str = "label";
pub(super) const STATUS: &str = "status";
pub(super) const ERROR: &str = "error";
pub(super) const END: &str = "end";
pub(super) const PARENT: &str = "parent";
pub(super) const PARENT_ID: &str = "parent_id";
pub(super) const SPAN_ID: &str = "span_id";

#[inline]
pub(super) fn annotate(event: &mut Buffer, id: Option<u32>, name: &str, value: impl FnOnce(&mut Buffer)) {
    event.message(event::ANNOTATIONS, |annotation| {
        match id {
            Some(id) => annotation.uint(annotation::NAME_IID, u64::from(id)),
            None => annotation.text(annotation::NAME, name),
        }
        value(annotation);
    });
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
        annotate(event, None, &len_name(name), |annotation| annotation.uint(annotation::UINT, len));
    }
}
