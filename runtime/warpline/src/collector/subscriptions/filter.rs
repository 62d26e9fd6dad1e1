//! Which records a subscription takes: the zones of the ranges that its filters let through, and all other records, if they began before
//! its end.

use std::collections::HashMap;

use super::super::batch_part::{begin_of, only};
use crate::settings::{Filter, lets_through};
use warpline_core::catalog::RangeSpec;
use warpline_core::dynamic;
use warpline_core::replay::ReplayRecord;
use warpline_report::sink::Batch;

/// Takes everything by default.
pub(in crate::collector) struct RecordFilter {
    filters: Vec<Filter>,
    /// Whether the filters let a range through, by its number.
    known: HashMap<u32, bool>,
    /// The time from which everything that begins is left out.
    pub(in crate::collector) until_ns: i64,
    pub(in crate::collector) on_time: OnTime,
    /// The number of ranges of the catalog that the filters leave out.
    pub(in crate::collector) left_out: u64,
}

/// The numbers of records that began before the end, whatever their range.
#[derive(Clone, Copy, Default)]
pub(in crate::collector) struct OnTime {
    pub(in crate::collector) spans: u64,
    pub(in crate::collector) kernels: u64,
}

impl OnTime {
    fn add(&mut self, batch: Batch<'_>) {
        match batch {
            Batch::Spans(spans) => self.spans += spans.len() as u64,
            Batch::Kernels(kernels) => self.kernels += kernels.len() as u64,
            _ => {}
        }
    }
}

impl Default for RecordFilter {
    fn default() -> RecordFilter {
        RecordFilter::new(Vec::new())
    }
}

impl RecordFilter {
    pub(super) fn new(filters: Vec<Filter>) -> RecordFilter {
        let is_left_out = |range: &&RangeSpec| !filters.is_empty() && !lets_through(&filters, range.name());
        let left_out = dynamic::all_ranges().filter(is_left_out).count() as u64;
        RecordFilter { filters, known: HashMap::new(), until_ns: i64::MAX, on_time: OnTime::default(), left_out }
    }

    pub(super) fn lets_through(&mut self, range: &'static RangeSpec) -> bool {
        let filters = &self.filters;
        filters.is_empty() || *self.known.entry(range.number()).or_insert_with(|| lets_through(filters, range.name()))
    }

    /// Calls `give` with the wanted part of a batch, unless that is nothing.
    pub(super) fn select(&mut self, batch: Batch<'_>, give: impl FnOnce(&mut RecordFilter, Batch<'_>)) {
        let give = |filter: &mut RecordFilter, wanted: Batch<'_>| {
            if !wanted.is_empty() {
                give(filter, wanted);
            }
        };
        let (until_ns, is_all) = (self.until_ns, self.filters.is_empty());
        match batch {
            _ if is_all && until_ns == i64::MAX => {
                self.on_time.add(batch);
                give(self, batch);
            }
            Batch::Zones(zones) => {
                let zones = only(zones, |record| record.host.begin_ns < until_ns && self.lets_through(record.range));
                give(self, Batch::Zones(&zones));
            }
            Batch::Spans(spans) => {
                let on_time = only(spans, |record| record.host.begin_ns < until_ns);
                self.on_time.add(Batch::Spans(&on_time));
                give(self, Batch::Spans(&on_time));
            }
            // With filters, only the kernels that zones of the chosen ranges launched.
            Batch::Kernels(kernels) => {
                let on_time = only(kernels, |record| begin_of(record.launch.as_ref(), record.gpu) < until_ns);
                self.on_time.add(Batch::Kernels(&on_time));
                let chosen =
                    only(&on_time, |record| is_all || record.zone.is_some_and(|zone| self.lets_through(zone.range)));
                give(self, Batch::Kernels(&chosen));
            }
            Batch::Synchronizations(calls) => {
                let on_time = only(calls, |record| record.host.begin_ns < until_ns);
                let chosen =
                    only(&on_time, |record| is_all || record.zone.is_some_and(|zone| self.lets_through(zone.range)));
                give(self, Batch::Synchronizations(&chosen));
            }
            Batch::Replays(replays) => {
                let is_wanted = |record: &ReplayRecord| begin_of(record.launch.as_ref(), record.gpu) < until_ns;
                give(self, Batch::Replays(&only(replays, is_wanted)));
            }
            Batch::Waits(waits) => give(self, Batch::Waits(&only(waits, |record| record.host.begin_ns < until_ns))),
            Batch::Depths(depths) => give(self, Batch::Depths(&only(depths, |record| record.at_ns < until_ns))),
            Batch::Memory(changes) => give(self, Batch::Memory(&only(changes, |record| record.at_ns < until_ns))),
            Batch::Changes(changes) => give(self, Batch::Changes(&only(changes, |change| change.ns < until_ns))),
            other => give(self, other),
        }
    }
}
