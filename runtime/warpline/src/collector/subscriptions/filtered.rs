//! The records that a request receives: the zones of the ranges that its filters let through, and all other records, if they began
//! before the request was cancelled.

use std::collections::HashMap;
use std::io;

use super::super::session_stats::session_figures;
use super::super::wanted::{begin_of, only};
use crate::settings::{Filter, lets_through};
use warpline_core::catalog::RangeSpec;
use warpline_core::dynamic;
use warpline_core::replay::ReplayRecord;
use warpline_report::Report;
use warpline_report::builder::SessionFigures;
use warpline_report::sink::{Batch, SessionInfo, Sink};

pub(in crate::collector) struct FilteredSink {
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    /// Whether the filters let a range through, by its number.
    known: HashMap<u32, bool>,
    /// The time from which everything that begins is left out.
    pub(in crate::collector) until_ns: i64,
    /// The number of zones that the sink took.
    pub(in crate::collector) passed: u64,
    /// The number of records that it did not take.
    pub(in crate::collector) lost: u64,
    pub(in crate::collector) late: Late,
    /// The number of ranges of the catalog that the filters leave out.
    pub(in crate::collector) left_out: u64,
    /// The figures of the records that the sink took.
    pub(in crate::collector) figures: SessionFigures,
}

/// The numbers of records that were left out because they began too late.
#[derive(Clone, Copy, Default)]
pub(in crate::collector) struct Late {
    pub(in crate::collector) spans: u64,
    pub(in crate::collector) kernels: u64,
}

impl FilteredSink {
    pub(in crate::collector) fn new(sink: Box<dyn Sink>, filters: Vec<Filter>) -> FilteredSink {
        let (known, until_ns, late) = (HashMap::new(), i64::MAX, Late::default());
        let is_left_out = |range: &&RangeSpec| !filters.is_empty() && !lets_through(&filters, range.name());
        let left_out = dynamic::all_ranges().filter(is_left_out).count() as u64;
        FilteredSink {
            sink,
            filters,
            known,
            until_ns,
            passed: 0,
            lost: 0,
            late,
            left_out,
            figures: session_figures(true),
        }
    }

    /// Returns the number of records that the sink itself could not keep.
    pub(in crate::collector) fn lost_inside(&self) -> u64 {
        self.sink.lost()
    }

    fn lets_through(&mut self, range: &'static RangeSpec) -> bool {
        let filters = &self.filters;
        filters.is_empty() || *self.known.entry(range.number()).or_insert_with(|| lets_through(filters, range.name()))
    }

    /// Hands on the wanted part of a batch.
    fn pass(&mut self, wanted: Batch<'_>) -> io::Result<()> {
        self.give(wanted)?;
        self.figures.add(wanted);
        Ok(())
    }

    fn give(&mut self, wanted: Batch<'_>) -> io::Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        self.sink.write(wanted).inspect_err(|_| self.lost += wanted.len() as u64)
    }
}

impl Sink for FilteredSink {
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.sink.start(session)
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let until_ns = self.until_ns;
        match batch {
            Batch::Zones(zones) => {
                let zones = only(zones, |record| record.host.begin_ns < until_ns && self.lets_through(record.range));
                self.pass(Batch::Zones(&zones))?;
                self.passed += zones.len() as u64;
                Ok(())
            }
            Batch::Spans(spans) => {
                let on_time = only(spans, |record| record.host.begin_ns < until_ns);
                self.late.spans += (spans.len() - on_time.len()) as u64;
                self.pass(Batch::Spans(&on_time))
            }
            // With filters, only the kernels that zones of the chosen ranges launched.
            Batch::Kernels(kernels) => {
                let on_time = only(kernels, |record| begin_of(record.launch.as_ref(), record.gpu) < until_ns);
                self.late.kernels += (kernels.len() - on_time.len()) as u64;
                let is_all = self.filters.is_empty();
                let chosen =
                    only(&on_time, |record| is_all || record.zone.is_some_and(|zone| self.lets_through(zone.range)));
                self.pass(Batch::Kernels(&chosen))
            }
            Batch::Synchronizations(calls) => {
                let on_time = only(calls, |record| record.host.begin_ns < until_ns);
                let is_all = self.filters.is_empty();
                let chosen =
                    only(&on_time, |record| is_all || record.zone.is_some_and(|zone| self.lets_through(zone.range)));
                self.pass(Batch::Synchronizations(&chosen))
            }
            Batch::Replays(replays) => {
                let is_wanted = |record: &ReplayRecord| begin_of(record.launch.as_ref(), record.gpu) < until_ns;
                let replays = only(replays, is_wanted);
                self.give(Batch::Replays(&replays))?;
                let mut figures = std::mem::take(&mut self.figures);
                replays.iter().for_each(|replay| figures.add_replay(replay, |range| self.lets_through(range)));
                self.figures = figures;
                Ok(())
            }
            Batch::Waits(waits) => self.pass(Batch::Waits(&only(waits, |record| record.host.begin_ns < until_ns))),
            Batch::Depths(depths) => self.pass(Batch::Depths(&only(depths, |record| record.at_ns < until_ns))),
            Batch::Memory(changes) => self.pass(Batch::Memory(&only(changes, |record| record.at_ns < until_ns))),
            Batch::Changes(changes) => self.pass(Batch::Changes(&only(changes, |change| change.ns < until_ns))),
            other => self.pass(other),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.sink.finish(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_report::fixture::{BEGIN_NS, COPY, STEP, span, spans, thread, zone};
    use warpline_report::sink::MemorySink;

    #[test]
    fn what_begins_after_the_request_was_cancelled_is_left_out_and_counted() {
        let zones = MemorySink::new(100);
        let mut filtered =
            FilteredSink::new(Box::new(zones.clone()), Filter::parse_all("demo.step").expect("a pattern"));
        let main = thread(1, None);
        let at = |range, begin_ns| zone(range, None, &main, span(begin_ns, begin_ns + 100), None);
        let pass = |filtered: &mut FilteredSink| {
            let batch = [at(&STEP, 10), at(&COPY, 15), at(&STEP, 20), at(&STEP, 30)];
            filtered.write(Batch::Zones(&batch)).expect("room");
            filtered.write(Batch::Spans(&spans())).expect("room");
            (zones.take().iter().map(|zone| zone.host.begin_ns - BEGIN_NS).collect::<Vec<_>>(), filtered.late.spans)
        };
        assert_eq!(pass(&mut filtered), (vec![10, 20, 30], 0));
        filtered.until_ns = BEGIN_NS + 20;
        let all = spans();
        let late = all.iter().filter(|span| span.host.begin_ns >= filtered.until_ns).count() as u64;
        assert!(late > 0 && late <= all.len() as u64);
        // A zone that began before may end at any time.
        assert_eq!(pass(&mut filtered), (vec![10], late));
        assert_eq!((filtered.passed, filtered.lost), (4, 0));
    }
}
