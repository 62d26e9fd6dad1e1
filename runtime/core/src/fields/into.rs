//! The types that can be the value of a field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::item::Item;
#[cfg(doc)]
use super::list::MAX_LIST_ITEMS;
use super::list::{List, NumberKind};
use super::map::{MAX_MAP_ENTRIES, MapBuilder};
use super::text::{BoundedText, MAX_TEXT_BYTES};
use super::value::Value;

/// Types that can be the value of a field: integers up to 64 bits, floats, `bool`, text, lists and short maps of these, and references to
/// them. For any other type with a [`Display`](fmt::Display), use [`display`].
///
/// Text is copied when the zone records, which allocates. Text of more than [`MAX_TEXT_BYTES`] bytes is cut at a character
/// boundary and ends in `…`. A string literal in a mark is not copied, nor is [`Value::Str`] or `Cow::Borrowed` of a `&'static
/// str`.
///
/// A list is a slice, an array or a `Vec` of numbers or `bool`s: `[4, 128, 64]`, `&self.sizes`. A map is one of pairs of a name and a value,
/// `[("rows", 4), ("columns", 8)]`, or a `&BTreeMap`; its values have one type, which may be [`Value`]:
/// `[("rows", Value::from(4)), ("mode", Value::from("fast"))]`. Either is copied when the zone records, which is one allocation. A list keeps
/// [`MAX_LIST_ITEMS`] items and a map [`MAX_MAP_ENTRIES`] entries; both keep the number of all, and the session's report counts fields that
/// were cut.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a zone's field",
    label = "not a number, a `bool`, text, a list of numbers or a map",
    note = "write `warpline::display(&value)` to record its `Display`, with `format_args!` inside for its `Debug`"
)]
pub trait IntoValue {
    /// Returns the value to record.
    fn into_value(self) -> Value;
}

/// The types of which a slice is a list or a map: numbers and `bool`, and pairs of a name and a value.
#[diagnostic::on_unimplemented(
    message = "a list of `{Self}` cannot be the value of a zone's field",
    label = "not a list of numbers, nor of pairs of a name and a value",
    note = "write `warpline::display(format_args!(\"{{:?}}\", value))` to record its `Debug` as text"
)]
pub trait Element: Sized {
    /// Returns the list or map of these items.
    #[doc(hidden)]
    fn collect(items: &[Self]) -> Value;
}

/// The types that can be the value of a map's entry: numbers, `bool`, text, and [`Value`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in the map of a zone's field",
    label = "not a number, a `bool` or text",
    note = "use `warpline::Value` for values of several types: `[(\"rows\", Value::from(4)), (\"mode\", Value::from(\"fast\"))]`"
)]
pub trait EntryValue {
    /// Calls `each` with the value.
    #[doc(hidden)]
    fn with_item(&self, each: impl FnOnce(Item<'_>));
}

/// Formats anything that has a [`Display`](fmt::Display) as the value of a field. It allocates when the zone records, and is cut
/// to [`MAX_TEXT_BYTES`] bytes.
pub fn display<T: fmt::Display>(value: T) -> Displayed<T> {
    Displayed(value)
}

/// See [`display`].
#[derive(Clone, Copy, Debug)]
pub struct Displayed<T>(T);

impl<T: fmt::Display> IntoValue for Displayed<T> {
    fn into_value(self) -> Value {
        let mut text = BoundedText(String::new());
        // If the `Display` fails, the text that it wrote before stays.
        let _ = write!(text, "{}", self.0);
        Value::Text(text.0.into())
    }
}

macro_rules! into_value {
    ($($variant:ident as $wide:ty: $($narrow:ty)*;)*) => {
        $($(
            impl IntoValue for $narrow {
                #[inline]
                fn into_value(self) -> Value {
                    Value::$variant(self as $wide)
                }
            }
            impl IntoValue for &$narrow {
                #[inline]
                fn into_value(self) -> Value {
                    Value::$variant(*self as $wide)
                }
            }
            impl From<$narrow> for Value {
                fn from(value: $narrow) -> Value {
                    value.into_value()
                }
            }
            impl Element for $narrow {
                fn collect(items: &[$narrow]) -> Value {
                    Value::List(List::new(NumberKind::$variant, items, |item| Item::$variant(item as $wide).bits()))
                }
            }
            impl EntryValue for $narrow {
                fn with_item(&self, each: impl FnOnce(Item<'_>)) {
                    each(Item::$variant(*self as $wide));
                }
            }
        )*)*
    };
}

into_value! {
    U64 as u64: u8 u16 u32 u64 usize;
    I64 as i64: i8 i16 i32 i64 isize;
    F64 as f64: f32 f64;
    Bool as bool: bool;
}

impl IntoValue for Value {
    #[inline]
    fn into_value(self) -> Value {
        match self {
            Value::Text(text) if text.len() > MAX_TEXT_BYTES => copied(&text),
            value => value,
        }
    }
}

impl IntoValue for &str {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for &&str {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for String {
    fn into_value(self) -> Value {
        Value::Text(self.into()).into_value()
    }
}

impl IntoValue for &String {
    fn into_value(self) -> Value {
        copied(self)
    }
}

impl IntoValue for Box<str> {
    fn into_value(self) -> Value {
        Value::Text(self).into_value()
    }
}

impl IntoValue for Cow<'static, str> {
    fn into_value(self) -> Value {
        match self {
            Cow::Borrowed(text) => Value::Str(text),
            Cow::Owned(text) => text.into_value(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        copied(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        text.into_value()
    }
}

/// Returns a copy of the text, truncated if it is too long.
fn copied(text: &str) -> Value {
    let mut copy = BoundedText(String::new());
    // The write fails when it truncates.
    let _ = copy.write_str(text);
    Value::Text(copy.0.into())
}

macro_rules! of_elements {
    ($([$($generics:tt)*] $list:ty;)*) => {
        $(
            impl<T: Element, $($generics)*> IntoValue for $list {
                fn into_value(self) -> Value {
                    T::collect(&self[..])
                }
            }
        )*
    };
}

of_elements! {
    [] &[T];
    [] &&[T];
    [] &mut [T];
    [const N: usize] [T; N];
    [const N: usize] &[T; N];
    [] Vec<T>;
    [] &Vec<T>;
    [] Box<[T]>;
    [] &Box<[T]>;
}

impl<K: AsRef<str>, V: EntryValue> Element for (K, V) {
    fn collect(items: &[(K, V)]) -> Value {
        map(items.len(), items.iter().map(|(name, value)| (name, value)))
    }
}

impl<K: AsRef<str>, V: EntryValue> IntoValue for &BTreeMap<K, V> {
    fn into_value(self) -> Value {
        map(self.len(), self.iter())
    }
}

/// Returns the map of these entries. Those beyond its bound are not looked at.
fn map<'a, K: AsRef<str> + 'a, V: EntryValue + 'a>(len: usize, entries: impl Iterator<Item = (&'a K, &'a V)>) -> Value {
    let mut map = MapBuilder::new(len);
    for (name, value) in entries.take(MAX_MAP_ENTRIES) {
        value.with_item(|item| map.add(name.as_ref(), item));
    }
    Value::Map(map.build())
}

impl EntryValue for str {
    fn with_item(&self, each: impl FnOnce(Item<'_>)) {
        each(Item::Text(self));
    }
}

impl EntryValue for String {
    fn with_item(&self, each: impl FnOnce(Item<'_>)) {
        each(Item::Text(self));
    }
}

impl<T: EntryValue + ?Sized> EntryValue for &T {
    fn with_item(&self, each: impl FnOnce(Item<'_>)) {
        (**self).with_item(each);
    }
}

/// A list or a map in a map is recorded as text.
impl EntryValue for Value {
    fn with_item(&self, each: impl FnOnce(Item<'_>)) {
        match self.item() {
            Some(item) => each(item),
            None => each(Item::Text(&self.text_within(MAX_NESTED_BYTES))),
        }
    }
}

/// The maximum size of a list or a map that is in a map, as text.
const MAX_NESTED_BYTES: usize = 126;
