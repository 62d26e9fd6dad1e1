//! The lengths of ranges: which of them have series of their own, and all others together.
//!
//! The choice does not depend on times, which differ between the ranks of a job. Half of the series are reserved by the catalog and the
//! settings, which are the same on all ranks. The others go to further ranges as they first run: only where more of them run than there
//! are series may ranks differ. A series begins with the session, and no lengths move from one to another: the sum of all series is always the
//! sum of all zones. A zone whose length is only a bound ([`ZoneRecord::is_bounded`]) is in none, and counted, as are such waits.

use std::collections::{HashMap, HashSet};

use super::histogram::Histogram;
use crate::settings::Config;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::record::ZoneRecord;

/// The most ranges that have series of their own. No metric has many more series than the 100 that Prometheus advises.
pub(super) const MOST_RANGES: usize = 100;

/// Of them, as many are reserved for ranges of the catalog.
pub(super) const RESERVED: usize = MOST_RANGES / 2;

/// The name of all ranges without a series of their own.
pub(super) const OTHER: &str = "(other)";

/// Where zones are timed. A range that is timed in several ways has figures for each, as in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    Stream,
    Thread,
    Replay,
}

impl Place {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Place::Stream => "stream",
            Place::Thread => "thread",
            Place::Replay => "replay",
        }
    }
}

/// The ranges that have series of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen(HashSet<&'static str>);

impl Chosen {
    /// Reserves series for what a session with these settings records: coarse ranges first, then in the order of names.
    pub(crate) fn new(config: &Config) -> Chosen {
        Chosen::of(catalog().iter().filter(|range| !config.leaves_out(range)))
    }

    pub(super) fn of(ranges: impl Iterator<Item = &'static RangeSpec>) -> Chosen {
        let mut all: Vec<_> = ranges.map(|range| (range.level(), range.name())).collect();
        all.sort_unstable();
        // Two versions of a crate have ranges of one name.
        all.dedup();
        Chosen(all.into_iter().map(|(_, name)| name).take(RESERVED).collect())
    }

    /// Returns whether a range that runs has series of its own.
    fn has(&mut self, name: &'static str) -> bool {
        self.0.contains(name) || self.0.len() < MOST_RANGES && self.0.insert(name)
    }
}

/// A range with its lengths, in seconds.
#[derive(Clone, Debug)]
pub(super) struct RangeSeries {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) lengths: Histogram,
}

/// The lengths of all ranges.
#[derive(Default)]
pub(super) struct Ranges {
    chosen: Chosen,
    /// The ranges that ran and have no series of their own.
    others: HashSet<&'static str>,
    /// The series of each range that ran.
    places: HashMap<(&'static str, Place), usize>,
    series: Vec<RangeSeries>,
    /// Zones and waits whose length is only a bound.
    pub(super) bounded: u64,
}

impl Ranges {
    pub(super) fn new(chosen: Chosen) -> Ranges {
        Ranges { chosen, ..Ranges::default() }
    }

    /// Adds a zone.
    pub(super) fn add(&mut self, zone: &ZoneRecord, place: Place) {
        if zone.is_bounded() {
            self.bounded += 1;
            return;
        }
        // An entry of a batch has its share of the batch's time.
        let ns = zone.duration_ns();
        let ns = zone.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let key = (zone.range.name(), place);
        let at = self.places.get(&key).copied().unwrap_or_else(|| self.place(key));
        self.series[at].lengths.add_ns(ns);
    }

    /// Returns the series of a range that runs there for the first time.
    fn place(&mut self, (name, place): (&'static str, Place)) -> usize {
        let own = if self.chosen.has(name) {
            name
        } else {
            self.others.insert(name);
            OTHER
        };
        let known = self.series.iter().position(|series| (series.name, series.place) == (own, place));
        let at = known.unwrap_or(self.series.len());
        if known.is_none() {
            self.series.push(RangeSeries { name: own, place, lengths: Histogram::default() });
        }
        self.places.insert((name, place), at);
        at
    }

    /// Returns all series, `(other)` among them.
    pub(super) fn series(&self) -> &[RangeSeries] {
        &self.series
    }

    /// Returns the number of ranges that ran and have no series of their own.
    pub(super) fn left_out(&self) -> u64 {
        self.others.len() as u64
    }
}
