//! Ranges that are not in the catalog. Most are named at run time: those of kernels that a compiler generates, of an interpreter's source
//! lines, of callers in another language. Others are in a shared library that has a slice of its own, or in the program if the library with
//! this code is a shared one; they are met at their first zone.
//!
//! A name is interned: each becomes a [`RangeSpec`] that lives as long as the process, outside of the catalog's slice. `zone/named.rs` begins
//! their zones. Records and sinks do not distinguish them from ranges of the catalog. The collector's engine sets which of them a session
//! records, also for those that are named or met later.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalog::spec::{RangeMeta, RangeSpec};
use crate::catalog::{Kind, RangeId, catalog};
use crate::fields::cut;
use crate::fork::PerProcess;
use crate::plural::counted_are;
use crate::ranges::{RangeTable, chance_of};
use crate::reentrancy::Inside;
use crate::sample::Wanted;
use crate::sorting;

/// The most ranges that are named at run time. Zones of further names belong to one range, [`MORE`].
pub const MOST_RANGES: usize = 65_536;

/// The name of the range of all names beyond the first [`MOST_RANGES`].
pub const MORE: &str = "(more)";

/// The most bytes of a name, of a file and of a function. Longer texts are cut.
pub const MOST_TEXT_BYTES: usize = 255;

/// The namespace of all ranges that are named at run time.
const NAMESPACE: &str = "(dynamic)";

/// The namespace of warpline's own ranges, which requests use and which no filter leaves out.
const OWN: &str = "warpline";

const DESCRIPTION: &str = "A range that the program named while it ran.";

/// Decides what the current session records of a range.
type Policy = Box<dyn Fn(&'static RangeSpec) -> Wanted + Send + Sync>;

/// A forked process has its parent's ranges, which its code may have kept.
static TABLE: PerProcess<RwLock<Table>> = PerProcess::new(|| RwLock::new(Table::inherited()));

/// The ranges that were named or met so far.
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
        let [name, file, function] = [name, file, function].map(|text| cut(text, MOST_TEXT_BYTES));
        Key { name, file, line, function }
    }

    fn is(&self, range: &RangeSpec) -> bool {
        (self.name, self.file, self.line, self.function) == (range.name(), range.file(), range.line(), range.module())
    }
}

impl Table {
    /// Creates a table with the ranges that this process, or the one that it was forked from, has named.
    fn inherited() -> Table {
        let mut table = Table::default();
        for range in outside_catalog().filter(|range| range.namespace() == NAMESPACE) {
            let key = Key { name: range.name(), file: range.file(), line: range.line(), function: range.module() };
            if !std::ptr::eq(range, &REST) {
                table.by_hash.entry(table.hasher.hash_one(key)).or_default().push(range);
            }
            table.ranges.push(range);
        }
        table
    }

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
        self.number(range);
    }

    /// Gives a range its number. A zone that sees the number finds what the session records of the range.
    fn number(&self, range: &'static RangeSpec) -> u32 {
        let number = range.new_number();
        let _ = BY_NUMBER.of_number(number).set(range);
        if let Some(policy) = self.policy.as_ref().filter(|_| range.namespace() != OWN) {
            chance_of(number).set(policy(range));
        }
        range.set_number(number)
    }
}

impl RangeSpec {
    /// Returns the range's number, under which tables keep its run-time state: its id, or for a range outside the catalog a number
    /// after those of the catalog.
    #[doc(hidden)]
    #[inline]
    pub fn number(&'static self) -> u32 {
        self.known_number().unwrap_or_else(|| meet(self))
    }
}

/// Gives a range that a zone, or another use, shows for the first time its number.
#[cold]
fn meet(range: &'static RangeSpec) -> u32 {
    if range.id().is_some() {
        return range.set_number(range.new_number());
    }
    // Under the lock, an allocator that the program has marked begins no zone.
    let _inside = Inside::enter();
    let table = write();
    range.known_number().unwrap_or_else(|| table.number(range))
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

/// Returns the ranges that are neither in the catalog nor named at run time, and that were met so far.
pub fn unlisted() -> impl Iterator<Item = &'static RangeSpec> {
    outside_catalog().filter(|range| ![NAMESPACE, OWN].contains(&range.namespace()))
}

/// Returns all ranges outside of the catalog that were named or met so far, in this process or one that it was forked from. It takes no lock.
fn outside_catalog() -> impl Iterator<Item = &'static RangeSpec> {
    let numbers = (catalog().len() as u32..).take_while(|number| RangeSpec::has_number(*number));
    numbers.filter_map(|number| BY_NUMBER.at(number)?.get().copied())
}

/// Returns the ranges of the catalog, and those that were named or met so far.
pub fn all_ranges() -> impl Iterator<Item = &'static RangeSpec> {
    catalog().into_iter().chain(ranges()).chain(unlisted())
}

/// Returns a note that names the ranges outside of the catalog that were met, if there are any.
pub fn note() -> Option<String> {
    const MOST: usize = 8;
    let mut names: Vec<_> = unlisted().map(RangeSpec::name).collect();
    sorting::sort(&mut names);
    let named = names.iter().take(MOST).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = if names.len() > MOST { ", …" } else { "" };
    (!names.is_empty()).then(|| {
        format!(
            "{} outside of the catalog, in a shared library or beside one: {named}{more}; filters match {} by name, and the catalog of a trace \
             does not list {}; link the crate statically for one catalog",
            counted_are(names.len() as u64, "range"),
            if names.len() == 1 { "it" } else { "them" },
            if names.len() == 1 { "it" } else { "them" },
        )
    })
}

/// Returns the range with this number: one of the catalog, or one that was named or met at run time. It takes no lock.
pub fn by_number(number: u32) -> Option<&'static RangeSpec> {
    let named = || BY_NUMBER.at(number)?.get().copied();
    catalog().get(RangeId(number)).or_else(named)
}

/// Returns whether a range was named at run time, with its file.
pub(crate) fn has_place(range: &RangeSpec) -> bool {
    range.namespace() == NAMESPACE && !range.file().is_empty()
}

/// Sets what a session records of the ranges that were named or met so far and of those that will be. `is_new` says whether it is a new session.
pub fn choose(is_new: bool, policy: impl Fn(&'static RangeSpec) -> Wanted + Send + Sync + 'static) {
    let mut table = write();
    for range in table.ranges.iter().copied().chain(unlisted()) {
        if is_new {
            range.chance().reset(policy(range));
        } else {
            range.chance().set(policy(range));
        }
    }
    table.policy = Some(Box::new(policy));
}

const fn facts() -> RangeMeta {
    RangeMeta { namespace: NAMESPACE, label: "\0", description: DESCRIPTION, kind: Kind::Gpu, ..RangeMeta::EMPTY }
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

    #[test]
    fn a_range_outside_the_catalog_gets_what_the_session_records_of_it_with_its_number() {
        const fn outside(label: &'static str) -> RangeSpec {
            RangeSpec::new(RangeMeta { namespace: "outside", label, ..facts() })
        }
        static BEFORE: RangeSpec = outside("outside.before\0");
        static AFTER: RangeSpec = outside("outside.after\0");
        static WANTED: RangeSpec = outside("outside.wanted\0");
        assert!(BEFORE.chance().take().is_some(), "no session has said otherwise");
        choose(true, |range| if range.name() == "outside.wanted" { Wanted::All } else { Wanted::None });
        assert_eq!([&BEFORE, &AFTER, &WANTED].map(|range| range.chance().take().is_some()), [false, false, true]);
        assert!(by_number(AFTER.number()).is_some_and(|found| std::ptr::eq(found, &AFTER)));
        let met: Vec<_> = unlisted().map(RangeSpec::name).filter(|name| name.starts_with("outside.")).collect();
        assert_eq!(met, ["outside.before", "outside.after", "outside.wanted"]);
        assert!(ranges().iter().all(|named| named.namespace() != "outside"));
        assert!(note().is_some_and(|note| note.contains("`outside.after`, `outside.before`, `outside.wanted`")));
        choose(true, |_| Wanted::All);
    }

    #[cfg(all(unix, not(any(loom, miri))))]
    #[test]
    fn a_forked_process_has_its_parents_ranges_and_its_own_filter_covers_them() {
        let kept = range("fork.kept", "kernel.py", 1, "add");
        crate::fork::testing::in_a_fork(|| {
            choose(true, |range| if range.name() == "fork.kept" { Wanted::None } else { Wanted::All });
            assert!(kept.chance().take().is_none(), "it is left out");
            assert!(std::ptr::eq(range("fork.kept", "kernel.py", 1, "add"), kept));
            assert!(ranges().iter().any(|known| std::ptr::eq(*known, kept)));
        });
    }
}
