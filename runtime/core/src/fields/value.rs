//! The value of a field.

use std::fmt;

use super::item::{Item, within};
use super::list::List;
use super::map::Map;
use super::text;
#[cfg(doc)]
use super::text::MAX_TEXT_BYTES;

/// The value of a field. Two texts are equal if their characters are, whether [`Str`](Self::Str) or [`Text`](Self::Text).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned integer.
    U64(u64),
    /// A signed integer.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// Text that lives as long as the program.
    Str(&'static str),
    /// Text that was copied or created for this zone, of at most [`MAX_TEXT_BYTES`].
    Text(Box<str>),
    /// A list of numbers.
    List(List),
    /// A short map from names to numbers, `bool`s and texts.
    Map(Map),
}

// Records and slots hold them.
const _: () = assert!(size_of::<Value>() <= 24);

/// Not derived, because a test of a mark must not depend on whether the text was copied.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(one), Value::List(two)) => one == two,
            (Value::Map(one), Value::Map(two)) => one == two,
            _ => self.item().is_some_and(|item| other.item() == Some(item)),
        }
    }
}

impl Value {
    /// Returns a number, a `bool` or a text; none for a list and for a map.
    #[doc(hidden)]
    #[inline]
    pub fn item(&self) -> Option<Item<'_>> {
        Some(match self {
            Value::U64(value) => Item::U64(*value),
            Value::I64(value) => Item::I64(*value),
            Value::F64(value) => Item::F64(*value),
            Value::Bool(value) => Item::Bool(*value),
            Value::Str(value) => Item::Text(value),
            Value::Text(value) => Item::Text(value),
            Value::List(_) | Value::Map(_) => return None,
        })
    }

    /// Returns whether it was cut to its bound: a text that ends in `…`, a list or a map from which something is missing.
    #[inline]
    pub fn is_cut(&self) -> bool {
        match self {
            Value::Text(text) => text::is_cut(text),
            Value::List(list) => list.is_cut(),
            Value::Map(map) => map.is_cut(),
            _ => false,
        }
    }

    /// Returns the number of items or entries that a list or a map had, if it was cut.
    #[doc(hidden)]
    #[inline]
    pub fn cut_len(&self) -> Option<u64> {
        let len = match self {
            Value::List(list) if list.is_cut() => list.len(),
            Value::Map(map) if map.is_cut() => map.len(),
            _ => return None,
        };
        Some(len as u64)
    }

    /// Returns it as text of at most so many bytes. A list and a map have as many whole items as fit, and say how many there were.
    #[doc(hidden)]
    pub fn text_within(&self, bytes: usize) -> String {
        match self {
            Value::List(list) => {
                let kept = list.iter().len();
                within(bytes, ['[', ']'], list.iter(), (kept, list.len(), list.is_cut()))
            }
            Value::Map(map) => {
                let kept = map.iter().count();
                within(bytes, ['{', '}'], map.said(), (kept, map.len(), map.more().is_some()))
            }
            other => text::cut(&other.to_string(), bytes).to_owned(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U64(value) => value.fmt(f),
            Value::I64(value) => value.fmt(f),
            Value::F64(value) => value.fmt(f),
            Value::Bool(value) => value.fmt(f),
            Value::Str(value) => value.fmt(f),
            Value::Text(value) => value.fmt(f),
            Value::List(value) => value.fmt(f),
            Value::Map(value) => value.fmt(f),
        }
    }
}
