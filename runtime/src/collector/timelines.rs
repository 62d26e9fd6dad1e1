//! What a session says of its timelines at the end: the time of each stream, names of semaphores, and the critical path.
//!
//! The collector adds what it records; the report asks. What it keeps is bounded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::path::PathLog;
use crate::record::{Span, StreamInfo, ZoneRecord};
use crate::session::{Report, SemaphoreStats, StreamStats, WaitedFor};
use crate::wait::WaitRecord;

/// The path is found in the last zones: at least so many.
const ZONES: usize = 1 << 15;

/// A stream's time is known in so many pieces; older ones become sums.
const PIECES: usize = 1 << 14;

/// So many streams are told by themselves; what comes then is told together.
const STREAMS: usize = 1024;

/// So many semaphores are told by name, and of each stream so many whom it waited for.
const NAMES: usize = 256;

pub(crate) struct Timelines {
    streams: BTreeMap<u32, Usage>,
    semaphores: HashMap<Arc<str>, (u64, i64)>,
    path: PathLog,
    window: Option<Span>,
}

/// What one stream does with its time.
struct Usage {
    name: String,
    device: String,
    /// In zones or waits.
    used: Union,
    waiting: Union,
    waited_for: HashMap<String, (u64, i64)>,
}

impl Default for Timelines {
    fn default() -> Timelines {
        let (streams, semaphores) = (BTreeMap::new(), HashMap::new());
        Timelines { streams, semaphores, path: PathLog::new(ZONES), window: None }
    }
}

impl Timelines {
    pub(super) fn add_zones(&mut self, batch: &[ZoneRecord]) {
        for zone in batch {
            self.path.zone(zone);
            if let (Some(stream), Some(gpu)) = (&zone.stream, zone.gpu) {
                self.stream(stream, gpu).used.add(gpu);
            }
        }
    }

    pub(super) fn add_waits(&mut self, batch: &[WaitRecord]) {
        for wait in batch {
            self.path.wait(wait);
            let ns = wait.duration_ns();
            let is_known = self.semaphores.contains_key(&wait.semaphore) || self.semaphores.len() < NAMES;
            let name = if is_known { Arc::clone(&wait.semaphore) } else { "…".into() };
            count(self.semaphores.entry(name).or_default(), ns);
            if let (Some(stream), Some(gpu)) = (&wait.stream, wait.gpu) {
                let by = wait.signal.as_ref().map_or_else(String::new, |signal| signal.by());
                let usage = self.stream(stream, gpu);
                usage.used.add(gpu);
                usage.waiting.add(gpu);
                let is_known = usage.waited_for.contains_key(&by) || usage.waited_for.len() < NAMES;
                count(usage.waited_for.entry(if is_known { by } else { "…".to_owned() }).or_default(), ns);
            }
        }
    }

    fn stream(&mut self, stream: &Arc<StreamInfo>, span: Span) -> &mut Usage {
        let window = self.window.get_or_insert(span);
        window.begin_ns = window.begin_ns.min(span.begin_ns);
        window.end_ns = window.end_ns.max(span.end_ns);
        let is_known = self.streams.len() < STREAMS || self.streams.contains_key(&stream.id);
        let (id, name) = if is_known { (stream.id, &*stream.name) } else { (u32::MAX, "…") };
        self.streams.entry(id).or_insert_with(|| Usage {
            name: name.to_owned(),
            device: stream.device.name.clone(),
            used: Union::default(),
            waiting: Union::default(),
            waited_for: HashMap::new(),
        })
    }

    /// Tells it.
    pub(super) fn tell(&self, report: &mut Report) {
        let all_ns = self.window.map_or(0, |window| window.duration_ns());
        let is_complete = report.is_complete();
        report.streams = self.streams.values().map(|usage| usage.stats(all_ns, is_complete)).collect();
        report.semaphores = self
            .semaphores
            .iter()
            .map(|(name, (waits, ns))| SemaphoreStats { name: name.to_string(), waits: *waits, waited_ns: *ns })
            .collect();
        report.semaphores.sort_by(|a, b| (b.waited_ns, &a.name).cmp(&(a.waited_ns, &b.name)));
        report.critical_path = self.path.path(None);
    }
}

fn count((count, sum_ns): &mut (u64, i64), ns: i64) {
    *count += 1;
    *sum_ns += ns;
}

impl Usage {
    fn stats(&self, all_ns: i64, is_complete: bool) -> StreamStats {
        let (used_ns, waiting_ns) = (self.used.length_ns(), self.waiting.length_ns());
        let whom = |(by, (count, ns)): (&String, &(u64, i64))| WaitedFor { by: by.clone(), count: *count, ns: *ns };
        let mut waited_for: Vec<_> = self.waited_for.iter().map(whom).collect();
        waited_for.sort_by(|a, b| (Reverse(a.ns), &a.by).cmp(&(Reverse(b.ns), &b.by)));
        let rest_ns = (all_ns - used_ns).max(0);
        StreamStats {
            name: self.name.clone(),
            device: self.device.clone(),
            busy_ns: (used_ns - waiting_ns).max(0),
            waiting_ns,
            idle_ns: is_complete.then_some(rest_ns),
            not_recorded_ns: if is_complete { 0 } else { rest_ns },
            waited_for,
        }
    }
}

/// The time that spans cover together, which come nearly in the order of time.
#[derive(Default)]
struct Union {
    /// In order, with gaps between them.
    pieces: Vec<Span>,
    /// What older pieces covered, and until when.
    older_ns: i64,
    older_until_ns: Option<i64>,
}

impl Union {
    fn add(&mut self, span: Span) {
        let begin_ns = self.older_until_ns.map_or(span.begin_ns, |until_ns| span.begin_ns.max(until_ns));
        let mut merged = Span { begin_ns, ..span };
        if merged.end_ns <= merged.begin_ns {
            return;
        }
        let mut to = self.pieces.len();
        while to > 0 && self.pieces[to - 1].begin_ns > merged.end_ns {
            to -= 1;
        }
        let mut from = to;
        while from > 0 && self.pieces[from - 1].end_ns >= merged.begin_ns {
            from -= 1;
            merged.begin_ns = merged.begin_ns.min(self.pieces[from].begin_ns);
            merged.end_ns = merged.end_ns.max(self.pieces[from].end_ns);
        }
        self.pieces.splice(from..to, [merged]);
        if self.pieces.len() > PIECES {
            for piece in self.pieces.drain(..PIECES / 2) {
                self.older_ns += piece.duration_ns();
                self.older_until_ns = Some(piece.end_ns);
            }
        }
    }

    fn length_ns(&self) -> i64 {
        self.older_ns + self.pieces.iter().map(|piece| piece.duration_ns()).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the spans, and in whatever order they come: their time is counted once.
        #[test]
        fn what_spans_cover_is_counted_once(spans in prop::collection::vec((0_i64..300, 0_i64..40), 0..200)) {
            let mut union = Union::default();
            let mut covered = [false; 340];
            for (begin_ns, length) in &spans {
                union.add(Span { begin_ns: *begin_ns, end_ns: begin_ns + length });
                covered[*begin_ns as usize..(begin_ns + length) as usize].fill(true);
            }
            prop_assert_eq!(union.length_ns(), covered.iter().filter(|covered| **covered).count() as i64);
        }
    }

    #[test]
    fn what_is_long_ago_stays_counted_and_takes_no_room() {
        let mut union = Union::default();
        for at in 0..100_000 {
            union.add(Span { begin_ns: 10 * at, end_ns: 10 * at + 4 });
        }
        assert!(union.pieces.len() <= PIECES);
        assert_eq!(union.length_ns(), 400_000);
    }
}
