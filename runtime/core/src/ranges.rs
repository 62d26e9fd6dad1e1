//! Run-time state of ranges, in tables separate from the catalog, which contains only constant data.
//!
//! A range has a dense number ([`RangeSpec::number`]), which is its index in a [`RangeTable`]. Zones look up here whether they
//! are recorded, and adapters look up their data about a range. Nothing here locks, so a launching thread never waits and a
//! forked child finds every table in a consistent state.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::catalog::RangeSpec;
use crate::reentrancy::Inside;
use crate::sample::SampleRate;
use crate::windows::Nesting;

/// A value for each range, created at the first access and kept until the program ends.
///
/// The values are stored in blocks, each twice as large as the previous one.
pub struct RangeTable<T: 'static>([AtomicPtr<T>; BLOCKS]);

/// The number of values in the first block.
const FIRST: u64 = 64;

/// The number of blocks: enough for every `u32`.
const BLOCKS: usize = 27;

impl<T: Default + Send + Sync> RangeTable<T> {
    pub const fn new() -> RangeTable<T> {
        RangeTable([const { AtomicPtr::new(ptr::null_mut()) }; BLOCKS])
    }

    /// Returns the value of a range.
    #[inline]
    pub fn get(&self, range: &'static RangeSpec) -> &'static T {
        self.of_number(range.number())
    }

    /// Returns the value of the range with this number; none if no range has it.
    pub fn at(&self, number: u32) -> Option<&'static T> {
        RangeSpec::has_number(number).then(|| self.of_number(number))
    }

    /// Returns the value of the range that has this number, or is about to get it.
    #[inline]
    pub(crate) fn of_number(&self, number: u32) -> &'static T {
        let (block, at) = position(number);
        let mut values = self.0[block].load(Ordering::Acquire);
        if values.is_null() {
            values = self.add(block);
        }
        // SAFETY: a block has `len_of(block)` values and `at` is less. No code frees the block, or writes to it except through
        // `T`.
        unsafe { &*values.add(at) }
    }

    /// Creates a block. If two threads do so at once, both use the first one's block.
    #[cold]
    #[inline(never)]
    fn add(&self, block: usize) -> *mut T {
        let _inside = Inside::enter();
        let values: Box<[T]> = (0..len_of(block)).map(|_| T::default()).collect();
        let values = Box::into_raw(values);
        match self.0[block].compare_exchange(ptr::null_mut(), values.cast(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => values.cast(),
            Err(first) => {
                // SAFETY: it was just created, and no other thread has seen it.
                drop(unsafe { Box::from_raw(values) });
                first
            }
        }
    }
}

const fn len_of(block: usize) -> u64 {
    FIRST << block
}

/// Returns the block of a number, and the index in that block.
#[inline]
const fn position(number: u32) -> (usize, usize) {
    let number = number as u64 + FIRST;
    let block = number.ilog2() - FIRST.ilog2();
    (block as usize, (number - (FIRST << block)) as usize)
}

/// The state that zones read of their range.
#[derive(Default)]
struct RangeState {
    /// The selection of zones that the current session records. Meaningless without a session.
    chance: SampleRate,
    /// The number of requests that wait for a zone of the range.
    asked: AtomicU32,
    /// Where its zones begin, as observed by sessions with windows.
    nesting: Nesting,
}

static STATES: RangeTable<RangeState> = RangeTable::new();

/// Returns the selection of zones of the range that is about to get this number.
pub(crate) fn chance_of(number: u32) -> &'static SampleRate {
    &STATES.of_number(number).chance
}

impl RangeSpec {
    /// Returns the selection of zones that the current session records.
    #[inline]
    #[doc(hidden)]
    pub fn chance(&'static self) -> &'static SampleRate {
        &STATES.get(self).chance
    }

    /// Returns where zones of the range begin, as observed by sessions with windows.
    pub(crate) fn nesting(&'static self) -> &'static Nesting {
        &STATES.get(self).nesting
    }

    /// Returns whether a zone of the range is requested.
    #[inline]
    pub(crate) fn asked(&'static self) -> bool {
        STATES.get(self).asked.load(Ordering::Relaxed) > 0
    }

    /// Adds or removes a request for zones of the range.
    pub(crate) fn ask(&'static self, on: bool) {
        let asked = &STATES.get(self).asked;
        if on {
            asked.fetch_add(1, Ordering::Relaxed)
        } else {
            asked.fetch_sub(1, Ordering::Relaxed)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::spec::refused;

    #[test]
    fn numbers_fill_block_after_block() {
        assert_eq!([0, 63, 64, 191, 192].map(position), [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0)]);
        let (block, at) = position(u32::MAX);
        assert!(block < BLOCKS && (at as u64) < len_of(block), "{block} {at}");
    }

    #[test]
    fn a_range_in_no_slice_has_a_value_of_its_own_and_two_threads_find_one() {
        static RANGES: [RangeSpec; 200] = [const { refused() }; 200];
        static TABLE: RangeTable<AtomicU32> = RangeTable::new();
        let add = || RANGES.iter().for_each(|range| _ = TABLE.get(range).fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(add))));
        assert!(RANGES.iter().all(|range| TABLE.get(range).load(Ordering::Relaxed) == 2));
    }
}
