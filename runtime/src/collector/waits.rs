//! Waits of streams and threads: from their slots to records, with the signals that ended them.
//!
//! A signal on a CUDA stream has no event with a time. It was given where the stream stood when its thread called, so it takes
//! the time of the zone that ended last before that call: exactly, if the thread had no time to launch anything in between. The
//! collector may come to that zone later than to the wait, so waits are held for a few looks. No signal is told to
//! be later than the end of a wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::stream::Stream;
use super::{BATCH, Collector, lock};
use crate::backend::Reading;
use crate::record::{EndFound, Span, StreamInfo, ThreadInfo, ZoneRecord};
use crate::stream::context::StreamContext;
use crate::stream::slot::Slot;
use crate::stream::waits::SHORTEST_LAUNCH_NS;
use crate::timeline::{Note, Waited};
use crate::wait::{SignalInfo, WaitRecord};

/// A lazy end takes two looks; the zone is there one look later.
const LOOKS: u32 = 3;

/// So many ends of zones are known of each stream.
const ENDS: usize = 1024;

/// A wait that is longer than this waited; a shorter one is two points with nothing between them.
const LONGEST_PASS_NS: i64 = 20_000;

/// What the collector has of waits.
#[derive(Default)]
pub(super) struct Waits {
    held: Vec<Held>,
    ends: HashMap<u32, VecDeque<End>>,
}

/// A wait whose signal has no time yet.
struct Held {
    looks: u32,
    context: Arc<StreamContext>,
    record: WaitRecord,
    signal: Option<Arc<Note>>,
    /// One of several values that a thread waited for at once.
    is_one_of: bool,
}

/// The end of a zone, on its thread and on its stream.
#[derive(Clone, Copy)]
struct End {
    host_ns: i64,
    thread: u64,
    gpu_ns: i64,
    early_by_ns: i64,
}

impl Waits {
    /// A zone was recorded.
    pub(super) fn saw(&mut self, zone: &ZoneRecord) {
        let (Some(stream), Some(gpu)) = (&zone.stream, zone.gpu) else { return };
        let ends = self.ends.entry(stream.id).or_default();
        let end = End {
            host_ns: zone.host.end_ns,
            thread: zone.thread.id,
            gpu_ns: gpu.end_ns,
            early_by_ns: zone.end_early_by_ns,
        };
        // Nearly always it is the last one.
        let at = ends.len() - ends.iter().rev().take_while(|known| known.host_ns > end.host_ns).count();
        ends.insert(at, end);
        if ends.len() > ENDS {
            ends.pop_front();
        }
    }

    /// A stream is forgotten.
    pub(super) fn forget(&mut self, stream: u32) {
        self.ends.remove(&stream);
    }

    fn signal(&self, note: &Note, wait: &WaitRecord, thread: Arc<ThreadInfo>) -> SignalInfo {
        let waited = wait.span();
        let (at_ns, early_by_ns) = match (note.at_ns(), &note.stream) {
            (Some(at_ns), _) => (at_ns.min(waited.end_ns), 0),
            (None, None) => (waited.end_ns, 0),
            (None, Some(stream)) => {
                let zone = self.ends.get(&stream.id).and_then(|ends| {
                    let after = ends.partition_point(|end| end.host_ns <= note.host_ns);
                    after.checked_sub(1).and_then(|at| ends.get(at))
                });
                match zone {
                    Some(end) if end.thread == note.thread && note.host_ns - end.host_ns < SHORTEST_LAUNCH_NS => {
                        let at_ns = end.gpu_ns.min(waited.end_ns);
                        (at_ns, (end.early_by_ns - (end.gpu_ns - at_ns)).max(0))
                    }
                    // Work that nobody marked may lie between the zone and the signal: if the stream had to wait, the signal
                    // is what ended that.
                    zone => {
                        let earliest_ns = zone.map_or(note.host_ns, |end| end.gpu_ns.max(note.host_ns));
                        let has_waited = waited.duration_ns() > LONGEST_PASS_NS;
                        let latest_ns = if has_waited { waited.end_ns } else { waited.begin_ns };
                        (latest_ns.min(waited.end_ns), (latest_ns - earliest_ns).max(0))
                    }
                }
            }
        };
        SignalInfo {
            value: note.value,
            stream: note.stream.clone(),
            thread,
            queue: note.queue.clone(),
            host_ns: note.host_ns,
            at_ns,
            early_by_ns,
        }
    }
}

impl Collector {
    /// Takes the wait in a slot of this stream.
    pub(super) fn take_wait(
        &mut self,
        slot: &Slot,
        waited: Waited,
        thread: Arc<ThreadInfo>,
        stream: &Arc<StreamContext>,
        reading: Option<(Reading, i64)>,
    ) {
        let Waited { semaphore, value, queue, outcome, signal, of } = waited;
        let record = WaitRecord {
            semaphore,
            value,
            stream: stream.info.clone(),
            thread,
            queue,
            sequence: slot.sequence,
            host: slot.host,
            gpu: reading.map(|(reading, _)| reading.gpu),
            end: reading.map_or(EndFound::Event, |(reading, _)| reading.end),
            end_early_by_ns: reading.map_or(0, |(reading, _)| reading.end_early_by_ns),
            outcome,
            signal: None,
        };
        let is_known = signal.as_ref().is_none_or(|note| note.at_ns().is_some());
        let is_one_of = of > 1;
        let looks = if is_known && !is_one_of { 0 } else { LOOKS };
        self.waits.held.push(Held { looks, context: Arc::clone(stream), record, signal, is_one_of });
    }

    /// A look is over: hands on the waits whose signals are known, and what queues hold. Says how many waits.
    pub(super) fn pass_waits(&mut self, is_last: bool) -> usize {
        let depths = self.recorder.depths().take();
        for batch in depths.chunks(BATCH) {
            self.hand_out(batch.len(), |sink| sink.depths(batch));
        }
        if self.waits.held.is_empty() {
            return 0;
        }
        let held = std::mem::take(&mut self.waits.held);
        let (mut records, mut contexts) = (Vec::new(), Vec::new());
        let mut calls: HashMap<(u64, Span), Vec<usize>> = HashMap::new();
        for mut wait in held {
            if wait.looks > 0 && !is_last {
                wait.looks -= 1;
                self.waits.held.push(wait);
                continue;
            }
            if let Some(note) = &wait.signal {
                let thread = self.recorder.thread(note.thread);
                wait.record.signal = Some(self.waits.signal(note, &wait.record, thread));
            }
            if wait.is_one_of {
                calls.entry((wait.record.thread.id, wait.record.host)).or_default().push(records.len());
            }
            records.push(wait.record);
            contexts.push(wait.context);
        }
        for ((_, call), of) in calls {
            one_after_another(&mut records, call, of);
        }
        for batch in records.chunks(BATCH) {
            lock(&self.tally.timelines).add_waits(batch);
            self.hand_out(batch.len(), |sink| sink.waits(batch));
        }
        contexts.iter().for_each(|context| context.waits().add_recorded(1));
        records.len()
    }

    /// Whether waits are held until their signals are known.
    pub(super) fn holds_waits(&self) -> bool {
        !self.waits.held.is_empty()
    }

    pub(super) fn forget_stream(&mut self, stream: &Stream) {
        if let Some(StreamInfo { id, .. }) = stream.context.info.as_deref() {
            self.waits.forget(*id);
        }
    }
}

/// A thread that waited for several values at once waited for each after the one that was signalled before it.
fn one_after_another(records: &mut [WaitRecord], call: Span, mut of: Vec<usize>) {
    let at_ns = |record: &WaitRecord| record.signal.as_ref().map_or(call.end_ns, |signal| signal.at_ns);
    of.sort_by_key(|at| at_ns(&records[*at]));
    let last = of.len() - 1;
    let mut begin_ns = call.begin_ns;
    for (place, at) in of.into_iter().enumerate() {
        let end_ns = if place == last { call.end_ns } else { at_ns(&records[at]).clamp(begin_ns, call.end_ns) };
        records[at].host = Span { begin_ns, end_ns };
        begin_ns = end_ns;
    }
}
