//! Waits of streams and threads: from their slots to records, with the signals that ended them.
//!
//! A signal on a CUDA stream has no event with a time. It was issued at the position of the stream when its thread called, so it takes
//! the time of the last zone that ended before that call. That is exact if the thread had no time to launch anything in between. The
//! collector may reach that zone later than the wait, so waits are held for a few looks. No signal is reported later than the end of a
//! wait for it, and no wait of a stream ends after the next item on the stream has begun.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::BATCH;
use super::context::Context;
use super::stream::Stream;
use warpline_core::backend::Reading;
use warpline_core::record::{DeviceKind, EndSource, Span, StreamInfo, ThreadInfo, ZoneRecord};
use warpline_core::sorting;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::slot::Slot;
use warpline_core::stream::waits::SHORTEST_LAUNCH_NS;
use warpline_core::stream::waits::{GivenSignal, Waited, semaphores_exist};
use warpline_core::wait::{SignalInfo, WaitRecord};
use warpline_report::sink::Batch;

/// The number of looks for which a wait is held: two for a lazy end, and one more for its zone.
const LOOKS: u32 = 3;

/// The number of latest waits that are searched for the wait right before a zone.
const NEAR: usize = 16;

/// The number of ends of zones that are kept for each stream.
const ENDS: usize = 1024;

/// The duration above which a wait has blocked; a shorter one is two points with nothing between them.
const LONGEST_PASS_NS: i64 = 20_000;

#[derive(Default)]
pub(super) struct WaitStage {
    held: Vec<PendingWait>,
    ends: HashMap<u32, VecDeque<End>>,
}

/// A wait whose signal has no time yet.
struct PendingWait {
    looks: u32,
    /// Whether it has been held for the required number of looks.
    is_due: bool,
    context: Arc<StreamContext>,
    record: WaitRecord,
    signal: Option<Arc<GivenSignal>>,
    /// Whether it is one of several values that a thread waited for at once.
    is_one_of: bool,
}

impl PendingWait {
    /// Returns the call that waited.
    fn call(&self) -> (u64, Span) {
        (self.record.thread.id, self.record.host)
    }
}

/// The end of a zone, on its thread and on its stream.
#[derive(Clone, Copy)]
struct End {
    host_ns: i64,
    thread: u64,
    gpu_ns: i64,
    early_by_ns: i64,
}

impl WaitStage {
    /// Adds the recorded zones of one stream.
    fn saw(&mut self, stream: &StreamInfo, zones: &[ZoneRecord]) {
        if !self.held.is_empty() {
            for zone in zones {
                let Some(gpu) = zone.gpu else { continue };
                self.end_before(stream, zone.sequence, gpu.begin_ns);
            }
        }
        let ends = self.ends.entry(stream.id).or_default();
        // Signals come soon after the zones that they follow.
        for zone in &zones[zones.len().saturating_sub(ENDS)..] {
            let Some(gpu) = zone.gpu.filter(|_| zone.entry.is_none()) else { continue };
            let end = End {
                host_ns: zone.host.end_ns,
                thread: zone.thread.id,
                gpu_ns: gpu.end_ns,
                early_by_ns: zone.end_early_by_ns,
            };
            if ends.len() == ENDS {
                ends.pop_front();
            }
            // It is nearly always the last one.
            let later = ends.iter().rev().take_while(|known| known.host_ns > end.host_ns).count();
            if later == 0 { ends.push_back(end) } else { ends.insert(ends.len() - later, end) }
        }
    }

    /// Ends the wait before an item that begins at `begin_ns` on a stream. Ends and begins are placed on the host's clock separately,
    /// so equal times can come out some microseconds apart.
    fn end_before(&mut self, stream: &StreamInfo, sequence: u64, begin_ns: i64) {
        let before = |held: &&mut PendingWait| {
            let WaitRecord { stream: of, sequence: place, .. } = &held.record;
            of.as_ref().is_some_and(|of| of.id == stream.id) && *place < sequence
        };
        // The wait right before it on its stream arrived shortly before it.
        if let Some(held) = self.held.iter_mut().rev().take(NEAR).find(before) {
            end_by(&mut held.record, begin_ns);
        }
    }

    fn signal(&self, note: &GivenSignal, wait: &WaitRecord, thread: Arc<ThreadInfo>) -> SignalInfo {
        let waited = wait.span();
        let (at_ns, early_by_ns) = match (note.at_ns(), &note.stream) {
            (Some(at_ns), _) => (at_ns.min(waited.end_ns), 0),
            (None, None) => (waited.end_ns, wait.early_by_ns()),
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
                    // Unmarked work may lie between the zone and the signal. If the stream had to wait, the signal ended that wait.
                    zone => {
                        let zone_ns = zone.map_or(i64::MIN, |end| end.gpu_ns - end.early_by_ns);
                        let earliest_ns = zone_ns.max(note.host_ns);
                        // A wait whose end is not timed may have been long.
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

    /// Hands on the waits whose signals are known, and the depths of queues, after the streams have been read. Returns the number of
    /// waits.
    pub(super) fn hand_on(&mut self, cx: &mut Context, is_last: bool) -> usize {
        let depths = cx.recorder.depths().take();
        for batch in depths.chunks(BATCH) {
            cx.hand_out(Batch::Depths(batch));
        }
        if self.held.is_empty() {
            return 0;
        }
        let mut held = std::mem::take(&mut self.held);
        let (mut records, mut contexts) = (Vec::new(), Vec::new());
        let mut calls: HashMap<(u64, Span), Vec<usize>> = HashMap::new();
        // The values that a thread waited for at once arrive one by one, and are handed on together.
        let mut early = HashSet::new();
        for wait in held.iter_mut().filter(|_| !is_last) {
            let is_due = wait.looks == 0;
            wait.looks = wait.looks.saturating_sub(1);
            if wait.is_one_of && !is_due {
                early.insert(wait.call());
            }
            wait.is_due = is_due;
        }
        for mut wait in held {
            if !is_last && (!wait.is_due || wait.is_one_of && early.contains(&wait.call())) {
                self.held.push(wait);
                continue;
            }
            if let Some(note) = &wait.signal {
                let thread = cx.recorder.thread(note.thread);
                wait.record.signal = Some(self.signal(note, &wait.record, thread));
            }
            if wait.is_one_of {
                calls.entry(wait.call()).or_default().push(records.len());
            }
            records.push(wait.record);
            contexts.push(wait.context);
        }
        for ((_, call), of) in calls {
            one_after_another(&mut records, call, of);
        }
        for batch in records.chunks(BATCH) {
            cx.hand_out(Batch::Waits(batch));
        }
        contexts.iter().for_each(|context| context.waits().add_recorded(1));
        records.len()
    }

    /// Receives zones of one stream that have become records, in the order of the ring. Called once per batch.
    pub(super) fn zones(&mut self, zones: &[ZoneRecord]) {
        // Only a signal needs the ends of zones.
        if !semaphores_exist() {
            return;
        }
        let stream = |zone: &ZoneRecord| zone.stream.as_ref().map(|stream| stream.id);
        // Nearly always, all zones of a batch are of one stream.
        for zones in zones.chunk_by(|one, other| stream(one) == stream(other)) {
            if let Some(stream) = zones.first().and_then(|zone| zone.stream.as_ref()) {
                self.saw(stream, zones);
            }
        }
    }

    /// Receives a slot that holds a wait, not a zone.
    pub(super) fn wait(
        &mut self,
        slot: &mut Slot,
        thread: &Arc<ThreadInfo>,
        stream: &Arc<StreamContext>,
        reading: Option<Reading>,
    ) {
        let Some((waited, sequence, host)) = slot.take_wait() else { return };
        let Waited { semaphore, value, queue, outcome, signal, of } = waited;
        let record = WaitRecord {
            semaphore,
            value,
            stream: stream.info.clone(),
            thread: Arc::clone(thread),
            queue,
            sequence,
            host,
            gpu: reading.map(|reading| reading.gpu),
            end: reading.map_or(EndSource::Event, |reading| reading.end),
            end_early_by_ns: reading.map_or(0, |reading| reading.end_early_by_ns),
            outcome,
            signal: None,
        };
        let is_known = signal.as_ref().is_none_or(|note| note.at_ns().is_some());
        let is_one_of = of > 1;
        let is_exact = record.stream.as_ref().is_none_or(|stream| stream.device.kind == DeviceKind::Host);
        let looks = if is_known && is_exact && !is_one_of { 0 } else { LOOKS };
        if let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) {
            self.end_before(stream, record.sequence, gpu.begin_ns);
        }
        self.held.push(PendingWait { looks, is_due: false, context: Arc::clone(stream), record, signal, is_one_of });
    }

    /// Returns whether it holds waits back until the next reads of the streams.
    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Forgets a stream: all its zones are accounted for.
    pub(super) fn forget(&mut self, stream: &Stream) {
        if let Some(StreamInfo { id, .. }) = stream.context.info.as_deref() {
            self.ends.remove(id);
        }
    }
}

/// Ends a wait one nanosecond before the next item begins, if the two are as close as clocks can distinguish. The wait is reported
/// later, and readers close the innermost of the slices that are open at one time.
fn end_by(record: &mut WaitRecord, begin_ns: i64) {
    if let Some(gpu) = &mut record.gpu
        && gpu.begin_ns < begin_ns
        && (0..LONGEST_PASS_NS).contains(&(gpu.end_ns - begin_ns))
    {
        let earlier_by_ns = gpu.end_ns - (begin_ns - 1);
        gpu.end_ns = begin_ns - 1;
        record.end_early_by_ns = (record.end_early_by_ns - earlier_by_ns).max(0);
    }
}

/// Orders the values that a thread waited for at once: it waited for each after the previous one was signalled.
fn one_after_another(records: &mut [WaitRecord], call: Span, mut of: Vec<usize>) {
    let at_ns = |record: &WaitRecord| record.signal.as_ref().map_or(call.end_ns, |signal| signal.at_ns);
    sorting::sort_by_key(&mut of, |at| at_ns(&records[*at]));
    let last = of.len() - 1;
    let mut begin_ns = call.begin_ns;
    for (place, at) in of.into_iter().enumerate() {
        let end_ns = if place == last { call.end_ns } else { at_ns(&records[at]).clamp(begin_ns, call.end_ns) };
        records[at].host = Span { begin_ns, end_ns };
        begin_ns = end_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use warpline_report::fixture::{STEP, span, stream, thread, waits, zone};

    #[test]
    fn a_wait_ends_by_the_begin_of_what_is_behind_it_but_for_what_is_no_question_of_clocks() {
        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        let gpu = wait.gpu.expect("it has times");
        let ended = |ns: i64, begin_ns: i64| {
            let mut wait = WaitRecord { gpu: Some(Span { end_ns: gpu.begin_ns + ns, ..gpu }), ..wait.clone() };
            end_by(&mut wait, gpu.begin_ns + begin_ns);
            wait.span().duration_ns()
        };
        assert_eq!(ended(50_000, 48_700), 48_699);
        assert_eq!(ended(50_000, 50_000), 49_999);
        assert_eq!(ended(50_000, 60_000), 50_000);
        // Another thread's zone that began during the wait, and one from before it.
        assert_eq!((ended(50_000, 10_000), ended(50_000, -10)), (50_000, 50_000));
    }

    #[test]
    fn an_end_that_moves_keeps_its_earliest_time() {
        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        let gpu = Span { begin_ns: 0, end_ns: 50_000 };
        for (early_by_ns, left_ns) in [(0, 0), (900, 0), (20_000, 18_699)] {
            let mut wait = WaitRecord { gpu: Some(gpu), end_early_by_ns: early_by_ns, ..wait.clone() };
            end_by(&mut wait, 48_700);
            assert_eq!((wait.span().end_ns, wait.end_early_by_ns), (48_699, left_ns), "{early_by_ns}");
        }
    }

    #[test]
    fn a_signal_is_as_uncertain_as_the_ends_that_date_it() {
        let (main, copy, compute) = (thread(7, None), stream(1, "copy"), stream(2, "compute"));
        let mut stage = WaitStage::default();
        let mut before = zone(&STEP, Some(&copy), &main, span(0, 10), Some(span(0, 200_000)));
        (before.sequence, before.end_early_by_ns) = (1, 150_000);
        stage.saw(&copy, &[before]);
        let wait = |end_early_by_ns| {
            let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
            let gpu = Some(span(20_000, 300_000));
            WaitRecord { stream: Some(Arc::clone(&compute)), gpu, end_early_by_ns, ..wait }
        };
        let signal = |stream: Option<&Arc<StreamInfo>>, host_ns, wait: &WaitRecord| {
            let host_ns = warpline_report::fixture::BEGIN_NS + host_ns;
            let note = GivenSignal::new(None, NonZeroU32::MIN, (stream.cloned(), false), (7, host_ns), None);
            let signal = stage.signal(&note, wait, Arc::clone(&main));
            (signal.at_ns - warpline_report::fixture::BEGIN_NS, signal.early_by_ns)
        };
        // Right behind the zone.
        assert_eq!(signal(Some(&copy), 20, &wait(0)), (200_000, 150_000));
        // Unmarked work may lie between. The zone may have ended at 50,000.
        assert_eq!(signal(Some(&copy), 30_000, &wait(0)), (300_000, 250_000));
        assert_eq!(signal(Some(&copy), 90_000, &wait(250_000)), (300_000, 210_000));
    }
}
