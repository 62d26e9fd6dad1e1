//! Numbers for repeated items: ranges, names of fields, static texts, process groups.
//!
//! A number has the same meaning in the whole trace. Each sequence of packets has a [`Seen`] with the numbers that it has defined.
//! Both are bounded: an item without a number is written as text.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use warpline_core::record::SpanSite;

/// The maximum number of static texts with a number. A program has fewer, unless it leaks texts to make them static.
const TEXTS: usize = 1 << 14;

/// The number of the sink's own words, which is the last of their numbers.
const OWN_WORDS: u32 = 8;

/// The maximum number of additional texts of process groups. A program that creates a group for every step has more.
const GROUP_TEXTS: usize = 1 << 12;

/// Numbers by address. A text that is in the program twice gets two numbers, which costs only a few bytes.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    ids: HashMap<(usize, usize), u32, BuildHasherDefault<AddressHasher>>,
    of_groups: HashMap<u64, u32, BuildHasherDefault<AddressHasher>>,
}

impl Numbers {
    /// Returns the number of a process group's text, above those of all static texts, or none if there are too many.
    pub(super) fn of_group(&mut self, text: u64) -> Option<u32> {
        let next = (TEXTS + self.of_groups.len()) as u32 + 1;
        match self.of_groups.get(&text) {
            Some(id) => Some(*id),
            None => (self.of_groups.len() < GROUP_TEXTS).then(|| *self.of_groups.entry(text).or_insert(next)),
        }
    }

    /// Returns the number of this text, above those of the sink's own words, or none if there are too many.
    #[inline]
    pub(super) fn text(&mut self, text: &'static str) -> Option<u32> {
        let key = (text.as_ptr() as usize, text.len());
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let next = OWN_WORDS + self.ids.len() as u32 + 1;
        (next <= TEXTS as u32).then(|| *self.ids.entry(key).or_insert(next))
    }

    /// Returns the number of this static object, from 1.
    #[inline]
    pub(super) fn object<T>(&mut self, object: &'static T) -> u32 {
        let next = self.ids.len() as u32 + 1;
        *self.ids.entry((std::ptr::from_ref(object) as usize, 0)).or_insert(next)
    }
}

/// The name of an annotation, with its number if the sequence has defined it.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) id: Option<u32>,
    pub(super) name: &'a str,
}

/// The names of annotations that the sink itself gives. Their numbers are fixed, so a record needs no look-up for them.
impl Word<'static> {
    pub(super) const DESCRIPTION: Self = Self::own(1, "description");
    pub(super) const LABEL: Self = Self::own(2, "label");
    pub(super) const STATUS: Self = Self::own(3, "status");
    pub(super) const ERROR: Self = Self::own(4, "error");
    pub(super) const END: Self = Self::own(5, "end");
    pub(super) const PARENT: Self = Self::own(6, "parent");
    pub(super) const PARENT_ID: Self = Self::own(7, "parent_id");
    pub(super) const SPAN_ID: Self = Self::own(OWN_WORDS, "span_id");

    const fn own(id: u32, name: &'static str) -> Self {
        Word { id: Some(id), name }
    }
}

impl<'a, T: AsRef<str> + ?Sized> From<&'a T> for Word<'a> {
    #[inline]
    fn from(name: &'a T) -> Word<'a> {
        Word { id: None, name: name.as_ref() }
    }
}

/// The numbers of the sites that create spans and events.
#[derive(Debug, Default)]
pub(super) struct Sites {
    ids: HashMap<[usize; 5], u32, BuildHasherDefault<AddressHasher>>,
}

impl Sites {
    /// Returns the number of this site, from 1, or none if there are too many.
    #[inline]
    pub(super) fn site(&mut self, site: &SpanSite) -> Option<u32> {
        let address = |text: &str| text.as_ptr() as usize;
        let file = site.file.map_or(0, address);
        // The level is not in the key: the addresses of the other texts and the line identify the site.
        let key = [address(site.name), site.name.len(), address(site.target), file, site.line.unwrap_or(0) as usize];
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let next = self.ids.len() as u32 + 1;
        (self.ids.len() < TEXTS).then(|| *self.ids.entry(key).or_insert(next))
    }
}

/// The numbers that one sequence has defined.
#[derive(Debug, Default)]
pub(super) struct Seen {
    words: Vec<u64>,
}

impl Seen {
    /// Whether this number is new. Records it.
    #[inline]
    pub(super) fn is_first(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        match self.words.get_mut(word) {
            Some(word) if *word & bit != 0 => false,
            Some(word) => {
                *word |= bit;
                true
            }
            None => {
                self.words.resize(word + 1, 0);
                self.words[word] |= bit;
                true
            }
        }
    }
}

/// Mixes addresses, which no outsider can choose.
#[derive(Debug, Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        // An odd constant with bits in all positions, because the table uses the highest and the lowest bits of the product.
        let product = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}
