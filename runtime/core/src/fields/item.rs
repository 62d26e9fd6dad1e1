//! The items of lists and maps, and both as text.

use std::fmt::{self, Display};

/// An item of a [`List`](super::List), or the value of an entry of a [`Map`](super::Map).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// An unsigned integer.
    U64(u64),
    /// A signed integer.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// A text; only in maps.
    Text(&'a str),
}

impl Item<'_> {
    /// Returns the bits of a number; 0 for a text.
    pub(super) fn bits(self) -> u64 {
        match self {
            Item::U64(number) => number,
            Item::I64(number) => number.cast_unsigned(),
            Item::F64(number) => number.to_bits(),
            Item::Bool(truth) => truth.into(),
            Item::Text(_) => 0,
        }
    }
}

impl Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::U64(value) => value.fmt(f),
            Item::I64(value) => value.fmt(f),
            Item::F64(value) => value.fmt(f),
            Item::Bool(value) => value.fmt(f),
            Item::Text(value) => value.fmt(f),
        }
    }
}

/// Writes the items between the delimiters. `of` is the number of all items, if some are left out.
pub(super) fn write_all(
    out: &mut impl fmt::Write,
    [open, close]: [char; 2],
    items: impl Iterator<Item = impl Display>,
    of: Option<usize>,
) -> fmt::Result {
    out.write_char(open)?;
    let mut gap = "";
    for item in items {
        write!(out, "{gap}{item}")?;
        gap = ", ";
    }
    if let Some(of) = of {
        write!(out, "{gap}… of {of}")?;
    }
    out.write_char(close)
}

/// Returns the same in at most `bytes` bytes, with as many whole items as fit.
pub(super) fn within(
    bytes: usize,
    delimiters: [char; 2],
    items: impl Iterator<Item = impl Display> + Clone,
    (kept, len, is_cut): (usize, usize, bool),
) -> String {
    (0..=kept)
        .rev()
        .find_map(|count| {
            let mut text = String::new();
            let of = (is_cut || count < kept).then_some(len);
            write_all(&mut text, delimiters, items.clone().take(count), of).ok()?;
            (text.len() <= bytes).then_some(text)
        })
        .unwrap_or_default()
}
