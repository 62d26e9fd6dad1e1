//! Interned names and typed arguments of a Perfetto trace.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use warpline_trace::read::budget::MemoryBudget;
use warpline_trace::read::event::{Members, scalar};

use crate::runtime::proto::{Buffer, annotation, event as field, interned};

/// The memory limit for interned names.
const WORDS: usize = 64 << 20;
/// The maximum depth of arguments. Deeper ones are written as text.
const MAX_DEPTH: usize = 16;

/// What is interned on the sequence.
pub(super) struct Words {
    numbers: [HashMap<String, u64>; 3],
    /// The names that were interned for the event that is being built.
    pub(super) fresh: Buffer,
    purse: MemoryBudget,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Event,
    Category,
    Annotation,
}

impl Words {
    pub(super) fn new() -> Words {
        Words { numbers: Default::default(), fresh: Buffer::default(), purse: MemoryBudget::new(WORDS) }
    }

    pub(super) fn number(&mut self, kind: Kind, text: &str) -> Option<u64> {
        let numbers = &mut self.numbers[kind as usize];
        if let Some(number) = numbers.get(text) {
            return Some(*number);
        }
        if !self.purse.spend(text.len() + 96) {
            return None;
        }
        let number = numbers.len() as u64 + 1;
        numbers.insert(text.to_owned(), number);
        let entries = match kind {
            Kind::Event => interned::EVENT_NAMES,
            Kind::Category => interned::EVENT_CATEGORIES,
            Kind::Annotation => interned::ANNOTATION_NAMES,
        };
        self.fresh.message(entries, |entry| {
            entry.uint(interned::IID, number);
            entry.text(interned::TEXT, text);
        });
        Some(number)
    }
}

fn name_annotation(name: &str, message: &mut Buffer, words: &mut Words) {
    match words.number(Kind::Annotation, name) {
        Some(number) => message.uint(annotation::NAME_IID, number),
        None => message.text(annotation::NAME, name),
    }
}

pub(super) fn raw_text(name: &str, text: &str, body: &mut Buffer, words: &mut Words) {
    body.message(field::ANNOTATIONS, |message| {
        name_annotation(name, message, words);
        message.text(annotation::STRING, text);
    });
}

pub(super) fn arguments(args: &Map<String, Value>, body: &mut Buffer, words: &mut Words) {
    for (name, value) in args {
        // A value is JSON.
        if let Ok(value) = serde_json::value::to_raw_value(value) {
            argument(Some(name), &value, 0, body, words);
        }
    }
}

/// Writes an argument with its type. `depth` counts the arguments around it.
pub(super) fn argument(name: Option<&str>, value: &RawValue, depth: usize, body: &mut Buffer, words: &mut Words) {
    let place = match (depth, name) {
        (0, _) => field::ANNOTATIONS,
        (_, Some(_)) => annotation::DICT_ENTRIES,
        (_, None) => annotation::ARRAY_VALUES,
    };
    body.message(place, |message| {
        if let Some(name) = name {
            name_annotation(name, message, words);
        }
        let text = value.get();
        match text.as_bytes().first() {
            Some(b't') => message.bool(annotation::BOOL, true),
            Some(b'f') => message.bool(annotation::BOOL, false),
            Some(b'{') if depth < MAX_DEPTH => match serde_json::from_str::<Members<'_>>(text) {
                Ok(Members(members)) if !members.is_empty() => {
                    members.iter().for_each(|(name, value)| argument(Some(name), value, depth + 1, message, words));
                }
                _ => message.text(annotation::STRING, text),
            },
            Some(b'[') if depth < MAX_DEPTH => match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(values) if !values.is_empty() => {
                    values.iter().for_each(|value| argument(None, value, depth + 1, message, words));
                }
                _ => message.text(annotation::STRING, text),
            },
            Some(b'-' | b'0'..=b'9') => number(text, message),
            _ => message.text(annotation::STRING, &scalar(value)),
        }
    });
}

fn number(text: &str, message: &mut Buffer) {
    if let Ok(number) = text.parse() {
        message.uint(annotation::UINT, number);
    } else if let Ok(number) = text.parse() {
        message.int(annotation::INT, number);
    } else {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => message.double(annotation::DOUBLE, number),
            _ => message.text(annotation::STRING, text),
        }
    }
}
