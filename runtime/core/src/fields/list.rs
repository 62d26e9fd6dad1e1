//! Lists of numbers as the values of fields: the first items, and how many there were.
//!
//! A list is one allocation, which is made when a zone records. Nothing here is on the path of a zone without a list.

use std::fmt;

use super::item::{Item, write_all};

/// The maximum number of items that a list keeps. [`List::len`] counts the others too.
pub const MAX_LIST_ITEMS: usize = 64;

/// A list of numbers in a field. It keeps the first [`MAX_LIST_ITEMS`] items and their number.
///
/// It takes 8 bytes for each item that it keeps, and 8 for their number. `Send` and `Sync`.
#[derive(Clone)]
pub struct List {
    /// The number of items that there were, and the bits of those that are kept.
    words: Box<[u64]>,
    kind: NumberKind,
}

/// The type of all items of a list.
#[derive(Clone, Copy)]
pub(super) enum NumberKind {
    U64,
    I64,
    F64,
    Bool,
}

impl List {
    /// Creates a list. `bits` returns the bits of an item.
    pub(super) fn new<T: Copy>(kind: NumberKind, items: &[T], bits: impl Fn(T) -> u64) -> List {
        let kept = items.len().min(MAX_LIST_ITEMS);
        let mut words = [0; 1 + MAX_LIST_ITEMS];
        words[0] = items.len() as u64;
        for (word, item) in words[1..].iter_mut().zip(items) {
            *word = bits(*item);
        }
        List { words: Box::from(&words[..=kept]), kind }
    }

    /// Packs it into these bytes, with as many items as fit: type, number of all, items. Returns how many bytes it takes.
    pub(crate) fn pack(&self, bytes: &mut [u8]) -> usize {
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        let fits = 1 + bytes.len().saturating_sub(1) / 8 * 8;
        let packed = std::iter::once(self.kind as u8).chain(words);
        bytes.iter_mut().take(fits).zip(packed).map(|(byte, packed)| *byte = packed).count()
    }

    /// Returns the list that was packed so.
    pub(crate) fn unpack(bytes: &[u8]) -> Option<List> {
        let (kind, words) = bytes.split_first()?;
        let kind = [NumberKind::U64, NumberKind::I64, NumberKind::F64, NumberKind::Bool]
            .into_iter()
            .find(|known| *known as u8 == *kind)?;
        let words: Vec<u64> =
            words.chunks_exact(8).filter_map(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word)).collect();
        (!words.is_empty()).then(|| List { words: words.into(), kind })
    }

    /// Returns the number of items that the value had. More than [`MAX_LIST_ITEMS`] means that the list is cut.
    pub fn len(&self) -> usize {
        usize::try_from(self.words[0]).unwrap_or(usize::MAX)
    }

    /// Returns whether the value had no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether items are left out.
    pub fn is_cut(&self) -> bool {
        self.len() > self.words.len() - 1
    }

    /// Returns the items that are kept: the first ones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Item<'static>> + Clone + '_ {
        let item = |bits: &u64| match self.kind {
            NumberKind::U64 => Item::U64(*bits),
            NumberKind::I64 => Item::I64(bits.cast_signed()),
            NumberKind::F64 => Item::F64(f64::from_bits(*bits)),
            NumberKind::Bool => Item::Bool(*bits != 0),
        };
        self.words[1..].iter().map(item)
    }
}

/// Not derived, so that a NaN is equal to nothing, as in a number of its own.
impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for List {
    /// `[4, 128, 64]`, and `[0, 1, 2, … of 100]` if items are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_all(f, ['[', ']'], self.iter(), self.is_cut().then(|| self.len()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::{IntoValue, Value};

    fn list(value: impl IntoValue) -> List {
        match value.into_value() {
            Value::List(list) => list,
            other => panic!("{other:?} is no list"),
        }
    }

    #[test]
    fn a_list_has_the_type_of_its_items() {
        let none = Vec::<u8>::new();
        for (text, list) in [
            ("[4, 128]", list([4_usize, 128])),
            ("[-1, 2]", list(vec![-1, 2])),
            ("[0.5, -2]", list(&[0.5_f32, -2.0][..])),
            ("[true, false]", list([true, false])),
            ("[]", list(&none)),
        ] {
            assert_eq!((list.to_string().as_str(), list.is_cut()), (text, false));
        }
        assert_eq!(list([1_i8]).iter().collect::<Vec<_>>(), [Item::I64(1)]);
        assert_ne!(list([1_i8]), list([1_u8]), "a signed number is another value");
        assert_ne!(list([f64::NAN]), list([f64::NAN]));
        assert_eq!(list([u64::MAX]).iter().next(), Some(Item::U64(u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_list_keeps_its_first_items_and_the_number_of_all(items in prop::collection::vec(any::<i64>(), 0..200), room in 0..200_usize) {
            let list = list(&items);
            let kept: Vec<_> = items.iter().take(MAX_LIST_ITEMS).map(|item| Item::I64(*item)).collect();
            prop_assert_eq!((list.len(), list.is_cut()), (items.len(), items.len() > MAX_LIST_ITEMS));
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), kept.clone());
            prop_assert!(list.words.len() <= 1 + MAX_LIST_ITEMS);

            let mut bytes = vec![0; room];
            let packed = list.pack(&mut bytes);
            match List::unpack(&bytes[..packed]) {
                Some(unpacked) => {
                    let fit = ((room - 9) / 8).min(kept.len());
                    prop_assert_eq!((unpacked.len(), unpacked.is_cut()), (items.len(), fit < items.len()));
                    prop_assert_eq!(unpacked.iter().collect::<Vec<_>>(), kept[..fit].to_vec());
                }
                None => prop_assert!(room < 9),
            }

            let text = Value::List(list).text_within(room);
            prop_assert!(text.len() <= room && (room < 12 || text.starts_with('[')), "{}", text);
            let says_all = text.contains(&format!("… of {}]", items.len()));
            prop_assert!(room < 12 || says_all || text.matches(',').count() + 1 == items.len().max(1), "{}", text);
        }
    }
}
