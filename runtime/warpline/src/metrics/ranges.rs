//! The lengths of ranges: which of them have series of their own, and all others together.
//!
//! A range keeps its series to the end, because the figures of a series never decrease. What is not given a series is added to `(other)`,
//! and stays there: the sum of all series is always the sum of all zones. A zone whose length is only a bound
//! ([`ZoneRecord::is_bounded`]) is in none, and counted, as are such waits.

use std::collections::HashMap;

use super::histogram::Histogram;
use warpline_core::record::ZoneRecord;

/// The most ranges whose time is told apart. Later ones are added to `(other)` at once.
const MOST_RANGES: usize = 1024;

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

/// A range with its lengths, in seconds.
#[derive(Clone, Debug)]
pub(super) struct RangeSeries {
    pub(super) name: &'static str,
    pub(super) place: Place,
    /// The time from which its zones are in it, in ns since the Unix epoch.
    pub(super) since_unix_ns: i64,
    pub(super) lengths: Histogram,
}

/// The lengths of all ranges.
pub(super) struct Ranges {
    /// The most ranges that have series of their own.
    most_series: usize,
    places: HashMap<(&'static str, Place), usize>,
    /// Ranges, each with whether it has a series. Without one, its lengths are those since the last export.
    ranges: Vec<(RangeSeries, bool)>,
    other: Histogram,
    /// Zones and waits whose length is only a bound, and whether their number has a series. It takes the room of a range, if there is some.
    bounded: u64,
    bounded_has_series: bool,
    begin_unix_ns: i64,
    last_unix_ns: i64,
    /// Whether a range came that is not told apart.
    is_full: bool,
}

impl Ranges {
    pub(super) fn new(most_series: usize, begin_unix_ns: i64) -> Ranges {
        Ranges {
            most_series,
            places: HashMap::new(),
            ranges: Vec::new(),
            other: Histogram::default(),
            bounded: 0,
            bounded_has_series: false,
            begin_unix_ns,
            last_unix_ns: begin_unix_ns,
            is_full: false,
        }
    }

    /// Adds a zone.
    pub(super) fn add(&mut self, zone: &ZoneRecord, place: Place) {
        if zone.is_bounded() {
            return self.add_bounded();
        }
        // An entry of a batch has its share of the batch's time.
        let ns = zone.duration_ns();
        let ns = zone.entry.map_or(ns, |entry| (ns as f64 * entry.share) as i64);
        let key = (zone.range.name(), place);
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None if self.ranges.len() == MOST_RANGES => {
                self.is_full = true;
                return self.other.add_ns(ns);
            }
            None => {
                let (name, place) = key;
                let since_unix_ns = self.last_unix_ns;
                self.ranges.push((RangeSeries { name, place, since_unix_ns, lengths: Histogram::default() }, false));
                self.places.insert(key, self.ranges.len() - 1);
                self.ranges.len() - 1
            }
        };
        self.ranges[at].0.lengths.add_ns(ns);
    }

    /// Counts a zone or a wait whose length is only a bound.
    pub(super) fn add_bounded(&mut self) {
        self.bounded += 1;
    }

    /// Gives half of the free series, rounded up, to the ranges with the most time since the last export, so that what a program does at
    /// its start cannot take them all. The rest of the time goes to `(other)`. At the end of the session, all free series are given.
    pub(super) fn give_series(&mut self, now_unix_ns: i64, is_last: bool) {
        let has_room = self.ranges.iter().filter(|(_, has_series)| *has_series).count() < self.most_series;
        if self.bounded > 0 && !self.bounded_has_series && has_room {
            self.bounded_has_series = true;
            self.most_series -= 1;
        }
        let free = self.most_series - self.ranges.iter().filter(|(_, has_series)| *has_series).count();
        let given = if is_last { free } else { free.div_ceil(2) };
        let waits = |(_, (range, has_series)): &(usize, &(RangeSeries, bool))| !has_series && range.lengths.count > 0;
        let mut waiting: Vec<usize> = self.ranges.iter().enumerate().filter(waits).map(|(at, _)| at).collect();
        waiting.sort_by(|a, b| {
            let (a, b) = (&self.ranges[*a].0, &self.ranges[*b].0);
            b.lengths.sum.total_cmp(&a.lengths.sum).then_with(|| (a.name, a.place).cmp(&(b.name, b.place)))
        });
        for (rank, at) in waiting.into_iter().enumerate() {
            let (range, has_series) = &mut self.ranges[at];
            range.since_unix_ns = self.last_unix_ns;
            if rank < given {
                *has_series = true;
            } else {
                self.other.merge(&std::mem::take(&mut range.lengths));
            }
        }
        self.last_unix_ns = now_unix_ns;
    }

    /// Returns the ranges with series, in the order in which they got them.
    pub(super) fn series(&self) -> impl Iterator<Item = &RangeSeries> {
        self.ranges.iter().filter(|(_, has_series)| *has_series).map(|(range, _)| range)
    }

    /// Returns the lengths of everything else.
    pub(super) fn other(&self) -> &Histogram {
        &self.other
    }

    /// Returns the number of zones and waits that are in no series of lengths, because their length is only a bound; none if that number has no series.
    pub(super) fn bounded(&self) -> Option<u64> {
        self.bounded_has_series.then_some(self.bounded)
    }

    /// Returns the time from which `(other)` counts.
    pub(super) fn begin_unix_ns(&self) -> i64 {
        self.begin_unix_ns
    }

    /// Returns the number of ranges without a series; those that are not told apart count as one, and so does the number of bounded zones and waits.
    pub(super) fn left_out(&self) -> u64 {
        let without = self.ranges.iter().filter(|(_, has_series)| !has_series).count();
        let has_bounded = self.bounded > 0 && !self.bounded_has_series;
        without as u64 + u64::from(self.is_full) + u64::from(has_bounded)
    }
}
