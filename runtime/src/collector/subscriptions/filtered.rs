//! What a request takes of all that a session records: the zones of the ranges that its filters let through, and all that is no zone,
//! if it began before the request was cancelled.

use std::collections::HashMap;
use std::io;

use crate::catalog::{RangeSpec, catalog};
use crate::kernel::{KernelLaunch, KernelRecord};
use crate::record::{Span, SpanRecord, ZoneRecord};
use crate::replay::ReplayRecord;
use crate::session::Report;
use crate::settings::{Filter, lets_through};
use crate::sink::summary::Summary;
use crate::sink::{SessionChange, SessionInfo, Sink};
use crate::wait::{QueueDepth, WaitRecord};

pub(super) struct FilteredSink {
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    /// Whether a range is filtered, by its address.
    known: HashMap<usize, bool>,
    /// What begins from then on is left out.
    pub(super) until_ns: i64,
    /// Zones that the sink took.
    pub(super) passed: u64,
    /// Records that it did not take.
    pub(super) lost: u64,
    pub(super) late: Late,
    /// Ranges of the catalog that the filters leave out.
    pub(super) left_out: u64,
    /// Figures of the zones that the sink took.
    pub(super) summary: Summary,
}

/// What was left out since it began too late.
#[derive(Clone, Copy, Default)]
pub(super) struct Late {
    pub(super) spans: u64,
    pub(super) kernels: u64,
}

impl FilteredSink {
    pub(super) fn new(sink: Box<dyn Sink>, filters: Vec<Filter>) -> FilteredSink {
        let (known, until_ns, late) = (HashMap::new(), i64::MAX, Late::default());
        let summary = Summary::of_part();
        let is_left_out = |range: &&RangeSpec| !filters.is_empty() && !lets_through(&filters, range.name());
        let left_out = catalog().iter().filter(is_left_out).count() as u64;
        FilteredSink { sink, filters, known, until_ns, passed: 0, lost: 0, late, left_out, summary }
    }

    /// What the sink itself could not keep.
    pub(super) fn lost_inside(&self) -> u64 {
        self.sink.lost()
    }

    fn lets_through(&mut self, range: &'static RangeSpec) -> bool {
        let filters = &self.filters;
        filters.is_empty()
            || *self
                .known
                .entry(std::ptr::from_ref(range).addr())
                .or_insert_with(|| lets_through(filters, range.name()))
    }

    /// Hands on what is wanted of a batch, and says how much the sink took of it.
    fn pass<T: Clone>(
        &mut self,
        batch: &[T],
        mut is_wanted: impl FnMut(&mut FilteredSink, &T) -> bool,
        hand: impl FnOnce(&mut dyn Sink, &[T]) -> io::Result<()>,
    ) -> (usize, io::Result<()>) {
        let wanted: Vec<bool> = batch.iter().map(|record| is_wanted(self, record)).collect();
        let count = wanted.iter().filter(|is_wanted| **is_wanted).count();
        let taken = match count {
            0 => return (0, Ok(())),
            all if all == batch.len() => hand(self.sink.as_mut(), batch),
            _ => {
                let wanted =
                    batch.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|(record, _)| record.clone());
                hand(self.sink.as_mut(), &wanted.collect::<Vec<_>>())
            }
        };
        match taken {
            Ok(()) => (count, Ok(())),
            Err(error) => {
                self.lost += count as u64;
                (0, Err(error))
            }
        }
    }
}

/// When a kernel or a replay began for the program: with its launch, where that is known.
fn begin_of(launch: Option<&KernelLaunch>, gpu: Span) -> i64 {
    launch.map_or(gpu.begin_ns, |launch| launch.host.begin_ns)
}

impl Sink for FilteredSink {
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.sink.start(session)
    }

    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &ZoneRecord| {
            record.host.begin_ns < filtered.until_ns && filtered.lets_through(record.range)
        };
        let (passed, taken) = self.pass(batch, is_wanted, |sink, batch| sink.records(batch));
        self.passed += passed as u64;
        if passed > 0 {
            for record in batch {
                if is_wanted(self, record) {
                    self.summary.add_one(record);
                }
            }
        }
        taken
    }

    fn spans(&mut self, batch: &[SpanRecord]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &SpanRecord| {
            let is_late = record.host.begin_ns >= filtered.until_ns;
            filtered.late.spans += u64::from(is_late);
            !is_late
        };
        self.pass(batch, is_wanted, |sink, batch| sink.spans(batch)).1
    }

    /// Of chosen ranges those kernels that their zones launched.
    fn kernels(&mut self, batch: &[KernelRecord]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &KernelRecord| {
            let is_late = begin_of(record.launch.as_ref(), record.gpu) >= filtered.until_ns;
            filtered.late.kernels += u64::from(is_late);
            let is_of_chosen =
                |filtered: &mut FilteredSink| record.zone.is_some_and(|zone| filtered.lets_through(zone.range));
            !is_late && (filtered.filters.is_empty() || is_of_chosen(filtered))
        };
        self.pass(batch, is_wanted, |sink, batch| sink.kernels(batch)).1
    }

    fn replays(&mut self, batch: &[ReplayRecord]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &ReplayRecord| {
            begin_of(record.launch.as_ref(), record.gpu) < filtered.until_ns
        };
        self.pass(batch, is_wanted, |sink, batch| sink.replays(batch)).1
    }

    fn waits(&mut self, batch: &[WaitRecord]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &WaitRecord| record.host.begin_ns < filtered.until_ns;
        self.pass(batch, is_wanted, |sink, batch| sink.waits(batch)).1
    }

    fn depths(&mut self, batch: &[QueueDepth]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, record: &QueueDepth| record.at_ns < filtered.until_ns;
        self.pass(batch, is_wanted, |sink, batch| sink.depths(batch)).1
    }

    fn changes(&mut self, batch: &[SessionChange]) -> io::Result<()> {
        let is_wanted = |filtered: &mut FilteredSink, change: &SessionChange| change.ns < filtered.until_ns;
        self.pass(batch, is_wanted, |sink, batch| sink.changes(batch)).1
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
    use crate::sink::MemorySink;
    use crate::sink::fixture::{BEGIN_NS, COPY, STEP, span, spans, thread, zone};

    #[test]
    fn what_begins_after_the_request_was_cancelled_is_left_out_and_counted() {
        let zones = MemorySink::new(100);
        let mut filtered =
            FilteredSink::new(Box::new(zones.clone()), Filter::parse_all("demo.step").expect("a pattern"));
        let main = thread(1, None);
        let at = |range, begin_ns| zone(range, None, &main, span(begin_ns, begin_ns + 100), None);
        let pass = |filtered: &mut FilteredSink| {
            filtered.records(&[at(&STEP, 10), at(&COPY, 15), at(&STEP, 20), at(&STEP, 30)]).expect("room");
            filtered.spans(&spans()).expect("room");
            (zones.take().iter().map(|zone| zone.host.begin_ns - BEGIN_NS).collect::<Vec<_>>(), filtered.late.spans)
        };
        assert_eq!(pass(&mut filtered), (vec![10, 20, 30], 0));
        filtered.until_ns = BEGIN_NS + 20;
        let all = spans();
        let late = all.iter().filter(|span| span.host.begin_ns >= filtered.until_ns).count() as u64;
        assert!(late > 0 && late <= all.len() as u64);
        // What began before may end whenever it does.
        assert_eq!(pass(&mut filtered), (vec![10], late));
        assert_eq!((filtered.passed, filtered.lost), (4, 0));
    }
}
