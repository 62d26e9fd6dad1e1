//! All figures of a session that metrics show, and how many series each kind may have.

use super::bandwidths::Bandwidths;
use super::histogram::Histogram;
use super::ranges::{Place, Ranges};
use warpline_core::catalog::{Kind, catalog};
use warpline_core::record::ZoneRecord;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress};

/// The most series of one process in each of the two outputs.
const MOST_SERIES: usize = 20;

/// Collectives that have series of their own: groups, kinds and sizes.
const COLLECTIVES: usize = 2;

/// The number of series that an output has for one of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) range: usize,
    pub(super) collective: usize,
    pub(super) steps: usize,
    pub(super) waits: usize,
    /// For counts of zones, and for what is left out.
    pub(super) rest: usize,
}

impl Series {
    /// Returns how many ranges and how many collectives may have series of their own. One more range is `(other)`.
    fn shares(self, has_collectives: bool, has_waits: bool) -> (usize, usize) {
        let collectives = if has_collectives { COLLECTIVES } else { 0 };
        let waits = if has_waits { self.waits } else { 0 };
        let taken = self.rest + self.steps + waits + collectives * self.collective;
        (MOST_SERIES.saturating_sub(taken) / self.range - 1, collectives)
    }
}

/// The figures.
pub(super) struct Figures {
    pub(super) ranges: Ranges,
    pub(super) bandwidths: Bandwidths,
    /// Of steps, in seconds.
    pub(super) steps: Histogram,
    /// Of waits of streams and of threads, in seconds. A wait whose length is only a bound is in none, and counted.
    pub(super) waits: [Histogram; 2],
    pub(super) zones: Progress,
    /// Whether zones were recorded by chance: the figures are then those of the recorded zones.
    pub(super) is_sampled: bool,
    pub(super) begin_unix_ns: i64,
    /// Records that were added.
    pub(super) records: u64,
}

impl Figures {
    pub(super) fn new(series: Series, is_sampled: bool, begin_unix_ns: i64) -> Figures {
        let has_collectives = catalog().iter().any(|range| range.kind() == Kind::Collective);
        let (ranges, collectives) = series.shares(has_collectives, cfg!(feature = "timeline"));
        Figures {
            ranges: Ranges::new(ranges, begin_unix_ns),
            bandwidths: Bandwidths::new(collectives),
            steps: Histogram::default(),
            waits: <[Histogram; 2]>::default(),
            zones: Progress::default(),
            is_sampled,
            begin_unix_ns,
            records: 0,
        }
    }

    /// Adds a batch of records.
    pub(super) fn add(&mut self, batch: Batch<'_>, now_ns: i64) {
        match batch {
            Batch::Zones(zones) => {
                for zone in zones {
                    self.zone(zone, if zone.gpu.is_some() { Place::Stream } else { Place::Thread }, now_ns);
                }
            }
            Batch::Replays(replays) => {
                for replayed in replays.iter().flat_map(|replay| &replay.zones) {
                    self.zone(&replayed.zone, Place::Replay, now_ns);
                }
            }
            Batch::Waits(waits) => {
                for wait in waits {
                    if wait.is_bounded() {
                        self.ranges.add_bounded();
                    } else {
                        self.waits[usize::from(wait.gpu.is_none())].add_ns(wait.duration_ns());
                    }
                }
            }
            Batch::Steps(steps) => steps.iter().for_each(|step| self.steps.add_ns(step.duration_ns())),
            _ => return,
        }
        self.records += batch.records() as u64;
    }

    fn zone(&mut self, zone: &ZoneRecord, place: Place, now_ns: i64) {
        self.is_sampled |= zone.sample_share < 1.0;
        self.ranges.add(zone, place);
        self.bandwidths.add(zone, now_ns);
    }

    /// Takes the counts of the finished session.
    pub(super) fn finish(&mut self, report: &Report) {
        let Report { begun, recorded, captured, ref dropped, .. } = *report;
        self.zones = Progress { begun, recorded, captured, dropped: dropped.total(), fullest_ring: 0.0 };
    }

    /// Chooses what has series in the next export.
    pub(super) fn give_series(&mut self, now_ns: i64, now_unix_ns: i64, is_last: bool) {
        self.ranges.give_series(now_unix_ns, is_last);
        self.bandwidths.give_series(now_ns);
    }

    /// Returns the number of ranges, and of groups, kinds and sizes of collectives, without series of their own.
    pub(super) fn left_out(&self) -> u64 {
        self.ranges.left_out() + self.bandwidths.left_out()
    }

    /// Returns the waits that were recorded, by what waited.
    pub(super) fn waits(&self) -> impl Iterator<Item = (Place, &Histogram)> {
        [Place::Stream, Place::Thread].into_iter().zip(&self.waits).filter(|(_, waits)| waits.count > 0)
    }
}
