//! A hash that distinguishes catalogs, of the running program or of a binary.
//!
//! Traces and exports contain it. It is FNV-1a, 64 bits, over the sorted facts, each text preceded by its length. A running
//! program computes it on first use, from its own statics and without copying them.

use std::borrow::Cow;
use std::sync::OnceLock;

use super::record::{NamespaceRecord, RangeRecord, Records};
use super::spec::{NamespaceSpec, RangeSpec};
use super::{Catalog, catalog};
use crate::sorting;

impl Records {
    /// Returns a hash that distinguishes catalogs, equal in every build and on every machine.
    ///
    /// It covers what the ranges and namespaces *are* (every fact but module, file and line) and not where they are declared, so
    /// that moving code or building in another directory does not change it. FNV-1a, 64 bits, over the sorted records; each
    /// string is preceded by its length. It does not protect against deliberate collisions.
    pub fn catalog_hash(&self) -> u64 {
        hash(&mut self.ranges.iter().map(HashedRange::from), &mut self.namespaces.iter().map(Declared::from))
    }
}

impl Catalog {
    /// Returns [`Records::catalog_hash`] of this program's catalog. It is computed once; 10,000 ranges take some milliseconds.
    pub fn hash(&self) -> u64 {
        static HASH: OnceLock<u64> = OnceLock::new();
        *HASH.get_or_init(|| {
            let mut ranges: Vec<_> = catalog().iter().collect();
            // The name is compared first: it nearly always decides, and then the other facts are not read.
            let rest = |range: &RangeSpec| (range.version(), range.module(), range.file(), range.line());
            sorting::sort_by(&mut ranges, |a, b| a.name().cmp(b.name()).then_with(|| rest(a).cmp(&rest(b))));
            let mut namespaces: Vec<_> = catalog().namespaces().collect();
            sorting::sort_by_key(&mut namespaces, |space| {
                (space.name, space.version, space.module, space.file, space.line)
            });
            hash(&mut ranges.into_iter().map(HashedRange::from), &mut namespaces.into_iter().map(Declared::from))
        })
    }
}

/// The hashed facts of a range.
struct HashedRange<'a> {
    texts: [&'a str; 5],
    lane: Option<&'a str>,
    color: Option<u32>,
    fields: Cow<'a, [&'a str]>,
    /// The options of a collective that its mark leaves out.
    undescribed: Cow<'a, [&'a str]>,
    krate: &'a str,
    version: &'a str,
}

/// The hashed facts of a namespace.
struct Declared<'a>([&'a str; 4]);

impl<'a> From<&'a RangeRecord> for HashedRange<'a> {
    fn from(range: &'a RangeRecord) -> Self {
        HashedRange {
            texts: [&range.name, &range.namespace, &range.description, range.kind, range.level],
            lane: range.lane.as_deref(),
            color: range.color,
            fields: range.fields.iter().map(String::as_str).collect(),
            undescribed: range.undescribed.iter().map(String::as_str).collect(),
            krate: range.krate(),
            version: &range.version,
        }
    }
}

impl From<&'static RangeSpec> for HashedRange<'static> {
    fn from(range: &'static RangeSpec) -> Self {
        HashedRange {
            texts: [
                range.name(),
                range.namespace(),
                range.description(),
                range.kind().as_str(),
                range.level().as_str(),
            ],
            lane: range.lane(),
            color: range.color(),
            fields: range.fields().into(),
            undescribed: range.undescribed().into(),
            krate: range.krate(),
            version: range.version(),
        }
    }
}

impl<'a> From<&'a NamespaceRecord> for Declared<'a> {
    fn from(space: &'a NamespaceRecord) -> Self {
        Declared([&space.name, &space.about, space.krate(), &space.version])
    }
}

impl From<&'static NamespaceSpec> for Declared<'static> {
    fn from(space: &'static NamespaceSpec) -> Self {
        Declared([space.name, space.about, space.krate(), space.version])
    }
}

fn hash<'a>(
    ranges: &mut dyn ExactSizeIterator<Item = HashedRange<'a>>,
    namespaces: &mut dyn ExactSizeIterator<Item = Declared<'a>>,
) -> u64 {
    let mut hash = Fnv1a::new();
    hash.number(ranges.len() as u64);
    for range in ranges {
        range.texts.iter().for_each(|text| hash.text(text));
        hash.number(range.lane.is_some().into());
        hash.text(range.lane.unwrap_or(""));
        hash.number(range.color.map_or(u64::MAX, u64::from));
        hash.number(range.fields.len() as u64);
        range.fields.iter().for_each(|field| hash.text(field));
        range.undescribed.iter().for_each(|option| hash.text(option));
        hash.text(range.krate);
        hash.text(range.version);
    }
    hash.number(namespaces.len() as u64);
    for Declared(texts) in namespaces {
        texts.iter().for_each(|text| hash.text(text));
    }
    hash.0
}

struct Fnv1a(u64);

/// FNV's prime to the powers of 0 to 8: the factor by which that many zero bytes multiply the hash.
const POWERS: [u64; 9] = {
    let mut powers = [1_u64; 9];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = powers[n - 1].wrapping_mul(0x0000_0100_0000_01b3);
        n += 1;
    }
    powers
};

impl Fnv1a {
    fn new() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(POWERS[1]);
        }
    }

    /// Hashes eight bytes, little-endian. Most numbers are lengths whose bytes are mostly zeros, which take one step together.
    fn number(&mut self, number: u64) {
        let zeros = number.leading_zeros() as usize / 8;
        self.bytes(&number.to_le_bytes()[..8 - zeros]);
        self.0 = self.0.wrapping_mul(POWERS[zeros]);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_eight_bytes() {
        for number in [0, 1, 255, 256, 65_536, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let (mut number_wise, mut byte_wise) = (Fnv1a::new(), Fnv1a::new());
            number_wise.number(number);
            byte_wise.bytes(&number.to_le_bytes());
            assert_eq!(number_wise.0, byte_wise.0, "{number}");
        }
    }

    #[test]
    fn fnv_is_the_published_one() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut hash = Fnv1a::new();
            hash.bytes(text.as_bytes());
            assert_eq!(hash.0, expected, "{text}");
        }
    }
}
