//! Figures of threads' waits for the device, for the report: by thread, call and range.
//!
//! The collector adds the synchronisations that CUPTI delivers. The memory is bounded.

use std::borrow::Cow;
use std::collections::HashMap;

use warpline_core::catalog::RangeSpec;
use warpline_core::record::ThreadInfo;
use warpline_core::synchronization::{SyncKind, SyncRecord};
use warpline_report::figures::HostWaitStats;

/// The largest number of combinations that are counted separately. Later ones are counted under the thread [`MORE`], by call.
const MOST: usize = 4_096;
const MORE: &str = "…";

#[derive(Default)]
pub(crate) struct HostWaits {
    /// By the thread's id and name, because ids are reused, then by call and the range's number.
    rows: HashMap<(u64, Option<String>, SyncKind, Option<u32>), Row>,
    /// By call.
    more: HashMap<SyncKind, Row>,
}

struct Row {
    range: Option<&'static RangeSpec>,
    count: u64,
    total_ns: i64,
    max_ns: i64,
}

impl Row {
    fn new(range: Option<&'static RangeSpec>) -> Row {
        Row { range, count: 0, total_ns: 0, max_ns: 0 }
    }

    fn add(&mut self, ns: i64) {
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    fn stats(&self, thread: String, kind: SyncKind) -> HostWaitStats {
        let Row { range, count, total_ns, max_ns } = *self;
        let range = range.map(|range| Cow::Borrowed(range.name()));
        HostWaitStats { thread, call: kind.as_str().into(), range, count, total_ns, max_ns }
    }
}

impl HostWaits {
    /// Adds a call, if its thread waited.
    pub(crate) fn add(&mut self, record: &SyncRecord) {
        if !record.kind.is_on_thread() {
            return;
        }
        let range = record.zone.map(|zone| zone.range);
        let ThreadInfo { id, name } = &*record.thread;
        let key = (*id, name.clone(), record.kind, range.map(RangeSpec::number));
        let is_full = self.rows.len() >= MOST && !self.rows.contains_key(&key);
        let row = match is_full {
            true => self.more.entry(record.kind).or_insert(Row::new(None)),
            false => self.rows.entry(key).or_insert(Row::new(range)),
        };
        row.add(record.duration_ns());
    }

    /// Returns the figures, with the largest total first.
    pub(crate) fn stats(&self) -> Vec<HostWaitStats> {
        let rows = self.rows.iter().map(|((id, name, kind, _), row)| {
            let thread = name.clone().unwrap_or_else(|| format!("thread {id}"));
            row.stats(thread, *kind)
        });
        let more = self.more.iter().map(|(kind, row)| row.stats(MORE.to_owned(), *kind));
        let mut stats: Vec<_> = rows.chain(more).collect();
        stats.sort_by(|a, b| {
            let names = || (&a.thread, &a.call, &a.range).cmp(&(&b.thread, &b.call, &b.range));
            b.total_ns.cmp(&a.total_ns).then_with(names)
        });
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use warpline_core::kernel::ZoneRef;
    use warpline_report::fixture::{STEP, span, thread};

    fn wait(kind: SyncKind, of: &Arc<ThreadInfo>, ns: i64, is_in_step: bool) -> SyncRecord {
        SyncRecord {
            kind,
            thread: Arc::clone(of),
            host: span(0, ns),
            stream: None,
            cuda_stream: None,
            context: 1,
            event: None,
            correlation: 1,
            zone: is_in_step.then_some(ZoneRef { range: &STEP, stream: None, sequence: 0 }),
        }
    }

    #[test]
    fn waits_are_counted_by_thread_call_and_range_and_queued_waits_are_not() {
        let (main, loader) = (thread(1, Some("main")), thread(2, None));
        let mut waits = HostWaits::default();
        for (kind, of, ns, is_in_step) in [
            (SyncKind::StreamSynchronize, &main, 10, true),
            (SyncKind::StreamSynchronize, &main, 30, true),
            (SyncKind::StreamSynchronize, &main, 7, false),
            (SyncKind::ContextSynchronize, &main, 5, true),
            (SyncKind::EventSynchronize, &loader, 90, false),
            (SyncKind::StreamWaitEvent, &main, 1_000, true),
        ] {
            waits.add(&wait(kind, of, ns, is_in_step));
        }
        let stats = waits.stats();
        let rows: Vec<_> = stats
            .iter()
            .map(|row| (row.thread.clone(), &*row.call, row.range.is_some(), row.count, row.total_ns, row.max_ns))
            .collect();
        let (main, other) = (|| "main".to_owned(), || "thread 2".to_owned());
        assert_eq!(
            rows,
            [
                (other(), "cuEventSynchronize", false, 1, 90, 90),
                (main(), "cuStreamSynchronize", true, 2, 40, 30),
                (main(), "cuStreamSynchronize", false, 1, 7, 7),
                (main(), "cuCtxSynchronize", true, 1, 5, 5),
            ]
        );
    }

    #[test]
    fn ever_new_threads_are_counted_together_beyond_the_bound() {
        let mut waits = HostWaits::default();
        for id in 0..2 * MOST as u64 {
            waits.add(&wait(SyncKind::StreamSynchronize, &thread(id, None), 10, false));
        }
        let stats = waits.stats();
        assert_eq!((stats.len(), stats[0].thread.as_str(), stats[0].count), (MOST + 1, MORE, MOST as u64));
    }
}
