//! The figures of the ranges of a window.
//!
//! Zones come by the thousand and ranges are few, so a range is found by the address of its name before it is found by the name.

use std::collections::HashMap;

use super::sketch::Sketch;
use warpline_core::record::is_bound;

/// The most ranges of a window that have figures of their own; later ones share a name.
const MOST_RANGES: usize = 4096;
const MORE: &str = "(more)";

/// The number of names whose places are known by address.
const KNOWN: usize = 64;

/// The figures of a range.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RangeFigures {
    pub(super) n: i64,
    pub(super) sum_ns: i64,
    pub(super) min_ns: i64,
    pub(super) max_ns: i64,
    pub(super) launch_ns: i64,
    /// Zones whose length is only a bound, which are in no figure above, and the sums of their longest possible and shortest possible lengths.
    pub(super) bounded: i64,
    pub(super) bounded_sum_ns: i64,
    pub(super) bounded_least_ns: i64,
}

impl RangeFigures {
    pub(super) fn add(&mut self, ns: i64, early_by_ns: i64, launch_ns: i64) {
        if is_bound(ns, early_by_ns) {
            self.bounded += 1;
            self.bounded_sum_ns = self.bounded_sum_ns.saturating_add(ns);
            self.bounded_least_ns = self.bounded_least_ns.saturating_add((ns - early_by_ns).max(0));
            return;
        }
        self.min_ns = if self.n == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.n += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.launch_ns = self.launch_ns.saturating_add(launch_ns);
    }
}

/// A range of a window.
pub(super) struct Range {
    pub(super) name: &'static str,
    pub(super) figures: RangeFigures,
    pub(super) sketch: Sketch,
}

/// All of them.
pub(super) struct Ranges {
    all: Vec<Range>,
    places: HashMap<&'static str, usize>,
    /// Names by address, and their places.
    known: [(&'static str, usize); KNOWN],
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges { all: Vec::new(), places: HashMap::new(), known: [("", usize::MAX); KNOWN] }
    }
}

impl Ranges {
    pub(super) fn add(&mut self, name: &'static str, ns: i64, early_by_ns: i64, launch_ns: i64) {
        let place = self.place(name);
        if let Some(range) = self.all.get_mut(place) {
            range.figures.add(ns, early_by_ns, launch_ns);
            if !is_bound(ns, early_by_ns) {
                range.sketch.add(ns);
            }
        }
    }

    fn place(&mut self, name: &'static str) -> usize {
        let address = name.as_ptr().addr();
        let slot = (address >> 3 ^ address >> 9) % KNOWN;
        let (known, place) = self.known[slot];
        // The name of no range is empty.
        if std::ptr::eq(known, name) && place < self.all.len() {
            return place;
        }
        let name = if self.all.len() < MOST_RANGES || self.places.contains_key(name) { name } else { MORE };
        let next = self.all.len();
        let place = *self.places.entry(name).or_insert(next);
        if place == next {
            self.all.push(Range { name, figures: RangeFigures::default(), sketch: Sketch::default() });
        }
        self.known[slot] = (name, place);
        place
    }

    /// Returns the ranges by name.
    pub(super) fn by_name(&self) -> Vec<&Range> {
        let mut all: Vec<&Range> = self.all.iter().collect();
        all.sort_unstable_by_key(|range| range.name);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_apart_by_name_and_bounded() {
        let mut ranges = Ranges::default();
        let name = |n: usize| -> &'static str { format!("test.{n:05}").leak() };
        // Two addresses of one name are one range.
        for name in [name(1), name(1), name(2)] {
            ranges.add(name, 5, 0, 1);
            ranges.add(name, 7, 0, 1);
        }
        let found: Vec<_> = ranges.by_name().iter().map(|range| (range.name, range.figures.n)).collect();
        assert_eq!(found, [("test.00001", 4), ("test.00002", 2)]);
        (3..5_000).for_each(|n| ranges.add(name(n), 1, 0, 0));
        let all = ranges.by_name();
        assert_eq!((all.len(), all[0].name, all[0].figures.n), (MOST_RANGES + 1, MORE, 4_999 - MOST_RANGES as i64));
        assert_eq!(all.iter().map(|range| range.figures.n).sum::<i64>(), 6 + 4_997);
    }

    #[test]
    fn a_length_that_is_only_a_bound_is_counted_apart() {
        let mut ranges = Ranges::default();
        ranges.add("test.range", 100, 5, 3);
        ranges.add("test.range", 90_000, 89_900, 3);
        let [range] = &ranges.all[..] else { panic!("one range") };
        assert_eq!(
            (range.figures.n, range.figures.sum_ns, range.figures.max_ns, range.figures.launch_ns),
            (1, 100, 100, 3)
        );
        let RangeFigures { bounded, bounded_sum_ns, bounded_least_ns, .. } = range.figures;
        assert_eq!((bounded, bounded_sum_ns, bounded_least_ns), (1, 90_000, 100));
        assert_eq!(range.sketch.counts().map(|(_, n)| n).sum::<i64>(), 1);
    }
}
