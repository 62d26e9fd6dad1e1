//! Ranges that are named at run time: those of kernels that a compiler generates, of an interpreter's source lines, of callers in another
//! language.
//!
//! A name is interned: each becomes a [`RangeSpec`] that lives as long as the process, outside of the catalog's slice. `zone/named.rs` begins
//! their zones. Records and sinks do not distinguish them from ranges of the catalog. The collector's engine sets which of them a session
//! records, also for those that are named later.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalog::spec::{RangeMeta, RangeSpec};
use crate::catalog::{Kind, Level, RangeId, catalog};
use crate::fork::PerProcess;
use crate::inside::Inside;
use crate::ranges::RangeTable;
use crate::sample::Wanted;

/// The most ranges that are named at run time. Zones of further names belong to one range, [`MORE`].
pub const MOST_RANGES: usize = 65_536;

/// The name of the range of all names beyond the first [`MOST_RANGES`].
pub const MORE: &str = "(more)";

/// The most bytes of a name, of a file and of a function. Longer texts are cut.
pub const MOST_TEXT_BYTES: usize = 255;

/// The namespace of all ranges that are named at run time.
const NAMESPACE: &str = "(dynamic)";

const DESCRIPTION: &str = "A range that the program named while it ran.";

/// Decides what the current session records of a range.
type Policy = Box<dyn Fn(&'static RangeSpec) -> Wanted + Send + Sync>;

static TABLE: PerProcess<RwLock<Table>> = PerProcess::new(RwLock::default);

/// The ranges that were named so far.
static BY_NUMBER: RangeTable<OnceLock<&'static RangeSpec>> = RangeTable::new();

/// The range of all names beyond the first [`MOST_RANGES`].
static REST: RangeSpec = RangeSpec::new(RangeMeta { label: "(more)\0", ..facts() });

#[derive(Default)]
struct Table {
    /// By the hash of the texts. Ranges whose hashes are equal share an entry.
    by_hash: HashMap<u64, Vec<&'static RangeSpec>>,
    hasher: RandomState,
    ranges: Vec<&'static RangeSpec>,
    policy: Option<Policy>,
}

/// What identifies a range that is named at run time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    name: &'a str,
    file: &'a str,
    line: u32,
    function: &'a str,
}

impl<'a> Key<'a> {
    fn new(name: &'a str, file: &'a str, line: u32, function: &'a str) -> Key<'a> {
        let [name, file, function] = [name, file, function].map(shortened);
        Key { name, file, line, function }
    }

    fn is(&self, range: &RangeSpec) -> bool {
        (self.name, self.file, self.line, self.function) == (range.name(), range.file(), range.line(), range.module())
    }
}

impl Table {
    fn find(&self, hash: u64, key: &Key<'_>) -> Option<&'static RangeSpec> {
        self.by_hash.get(&hash)?.iter().copied().find(|range| key.is(range))
    }

    fn add(&mut self, hash: u64, key: &Key<'_>) -> &'static RangeSpec {
        if self.ranges.len() >= MOST_RANGES {
            if self.ranges.len() == MOST_RANGES {
                self.adopt(&REST);
            }
            return &REST;
        }
        let forever = |text: &str| -> &'static str { Box::leak(Box::from(text)) };
        let range: &'static RangeSpec = Box::leak(Box::new(RangeSpec::new(RangeMeta {
            label: forever(&format!("{}\0", key.name)),
            module: forever(key.function),
            file: forever(key.file),
            line: key.line,
            ..facts()
        })));
        self.by_hash.entry(hash).or_default().push(range);
        self.adopt(range);
        range
    }

    fn adopt(&mut self, range: &'static RangeSpec) {
        self.ranges.push(range);
        let _ = BY_NUMBER.get(range).set(range);
        if let Some(policy) = &self.policy {
            range.chance().set(policy(range));
        }
    }
}

/// Returns the range of this name and place, which stays the same until the process ends.
pub fn range(name: &str, file: &str, line: u32, function: &str) -> &'static RangeSpec {
    if !cfg!(feature = "enable") {
        return &REST;
    }
    let clean = match name {
        "" => Cow::Borrowed("(unnamed)"),
        name if name.contains('\0') => Cow::Owned(name.replace('\0', "␀")),
        name => Cow::Borrowed(name),
    };
    let key = Key::new(&clean, file, line, function);
    // Under the lock, an allocator that the program has marked begins no zone.
    let _inside = Inside::enter();
    let table = read();
    let hash = table.hasher.hash_one(key);
    if let Some(known) = table.find(hash, &key) {
        return known;
    }
    drop(table);
    let mut table = write();
    table.find(hash, &key).unwrap_or_else(|| table.add(hash, &key))
}

/// Returns the ranges that were named so far, oldest first.
pub fn ranges() -> Vec<&'static RangeSpec> {
    read().ranges.clone()
}

/// Returns the ranges of the catalog, and those that were named so far.
pub fn all_ranges() -> impl Iterator<Item = &'static RangeSpec> {
    catalog().into_iter().chain(ranges())
}

/// Returns the range with this number: one of the catalog, or one that was named at run time. It takes no lock.
pub fn by_number(number: u32) -> Option<&'static RangeSpec> {
    let named = || BY_NUMBER.at(number)?.get().copied();
    catalog().get(RangeId(number)).or_else(named)
}

/// Returns whether a range was named at run time, with its file.
pub(crate) fn has_place(range: &RangeSpec) -> bool {
    range.namespace() == NAMESPACE && !range.file().is_empty()
}

/// Sets what a session records of the ranges that were named so far and of those that will be. `is_new` says whether it is a new session.
pub fn choose(is_new: bool, policy: impl Fn(&'static RangeSpec) -> Wanted + Send + Sync + 'static) {
    let mut table = write();
    for range in &table.ranges {
        if is_new {
            range.chance().reset(policy(range));
        } else {
            range.chance().set(policy(range));
        }
    }
    table.policy = Some(Box::new(policy));
}

const fn facts() -> RangeMeta {
    RangeMeta {
        namespace: NAMESPACE,
        label: "\0",
        description: DESCRIPTION,
        kind: Kind::Gpu,
        level: Level::Coarse,
        lane: None,
        color: None,
        fields: &[],
        undescribed: &[],
        module: "",
        version: "",
        file: "",
        line: 0,
    }
}

/// Cuts a text to [`MOST_TEXT_BYTES`], between two characters.
fn shortened(text: &str) -> &str {
    let fits = |at: &usize| text.is_char_boundary(*at);
    let len = (0..=text.len().min(MOST_TEXT_BYTES)).rev().find(fits).unwrap_or(0);
    text.split_at(len).0
}

fn read() -> RwLockReadGuard<'static, Table> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Table> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "enable"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_place_are_one_range_and_another_place_is_another() {
        let first = range("jit.add", "kernel.py", 7, "add");
        assert!(std::ptr::eq(first, range("jit.add", "kernel.py", 7, "add")));
        assert_eq!(
            (first.name(), first.file(), first.line(), first.module(), first.label()),
            ("jit.add", "kernel.py", 7, "add", c"jit.add")
        );
        for other in [range("jit.sub", "kernel.py", 7, "add"), range("jit.add", "kernel.py", 8, "add")] {
            assert!(!std::ptr::eq(first, other) && first.number() != other.number());
        }
        assert!(by_number(first.number()).is_some_and(|found| std::ptr::eq(found, first)));
        assert!(ranges().iter().any(|known| std::ptr::eq(*known, first)));
    }

    #[test]
    fn texts_of_any_kind_make_a_name() {
        let long = "ß".repeat(200);
        let range = range(&long, "", 0, "");
        assert_eq!((range.name().len(), range.name().chars().count()), (254, 127));
        assert_eq!(super::range("a\0b", "", 0, "").label(), c"a␀b");
        assert_eq!(super::range("", "", 0, "").name(), "(unnamed)");
    }
}
