//! One pass over the streams: complete zones become records, and are delivered to the sinks.
//!
//! The collector's loop and its end call [`Collector::pass`]. A stream that fails loses what waits on it, and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::held::HeldZone;
use super::stream::{Stream, complete_prefix};
use super::streams::{evict, provide};
use super::{BATCH, Collector};
use warpline_core::backend::BackendError;
use warpline_core::record::{EndSource, ZoneRecord};
use warpline_core::stream::context::StreamContext;
use warpline_report::sink::Batch;

/// The number of zones read from one stream after which all streams are supplied again before the next is read.
const MANY: usize = 256;

/// The number of zones by which a slot is prefetched ahead of its read; its points are prefetched half as many ahead.
const AHEAD: usize = 8;

impl Collector {
    /// Reads what is complete on every stream. Returns the number of recorded zones. `asks` allows queries that make launching threads
    /// wait.
    pub(super) fn pass(&mut self, asks: bool) -> usize {
        let cx = &mut self.cx;
        cx.discover_streams();
        cx.streams.renew_clocks(&cx.recorder, &cx.stats);
        let mut recorded = 0;
        let mut streams = std::mem::take(&mut self.cx.streams.all);
        for index in 0..streams.len() {
            let read = self.pass_stream(&mut streams[index], asks);
            // During a long read, launching threads need more slots and events on every stream.
            if read >= MANY {
                provide(&self.cx.recorder, &streams);
            }
            recorded += read;
        }
        evict(&self.cx.recorder, &mut streams, |stream| self.waits.forget(stream));
        self.cx.streams.all = streams;
        self.cx.forget_threads();
        recorded + self.waits.hand_on(&mut self.cx, false)
    }

    fn pass_stream(&mut self, stream: &mut Stream, asks: bool) -> usize {
        let asks = stream.may_ask(asks);
        let Stream { context, pending, reader, .. } = stream;
        if let Some(reader) = reader {
            reader.pass(pending.len(), asks);
        }
        context.ring().collect(|token| pending.push_back(token));
        let mut recorded = 0;
        let complete = match complete_prefix(stream) {
            Ok(complete) => complete,
            Err(error) => {
                self.fail_stream(stream, &error);
                0
            }
        };
        if let Some(newest) = complete.checked_sub(1).and_then(|newest| stream.pending.get_mut(newest))
            && let Some(points) = stream.context.ring().slot(newest).and_then(|slot| slot.points())
            && let Some(reader) = &mut stream.reader
        {
            reader.seen(points);
        }
        for _ in 0..complete {
            stream.prefetch(AHEAD);
            match self.record_first(stream) {
                Ok(true) => {}
                // Two threads can publish in a different order than they recorded, and the next look may find a better end of a zone.
                // Both need one more pass.
                Ok(false) => break,
                Err(error) => {
                    self.fail_stream(stream, &error);
                    break;
                }
            }
            if self.batch.len() >= BATCH {
                stream.give_back();
                recorded += self.deliver(&stream.context);
            }
        }
        stream.give_back();
        if let Some(reader) = &mut stream.reader {
            reader.end_pass();
        }
        recorded += self.deliver(&stream.context);
        recorded
    }

    /// Turns the oldest pending zone into a record. Returns false if its events are not complete after all.
    fn record_first(&mut self, stream: &mut Stream) -> Result<bool, BackendError> {
        let Some(token) = stream.pending.front_mut() else { return Ok(false) };
        let Some(slot) = stream.context.ring().slot(token) else { return Ok(false) };
        let host = slot.host();
        let reading = match (slot.points_mut(), &mut stream.reader, self.cx.streams.clocks.get(stream.clock)) {
            (Some(points), Some(reader), Some(Ok(clock))) => {
                let Some(reading) = reader.read(points, host, clock)? else { return Ok(false) };
                let reading = reading.checked(host)?;
                Some((reading, clock.bracket().checked().busy_ns))
            }
            (Some(_), _, Some(Err(error))) => return Err(error.clone()),
            _ => None,
        };
        let thread = Arc::clone(self.cx.thread(slot.thread()));
        if slot.is_wait() {
            // The zones before the wait come first.
            self.waits.zones(&self.batch[self.shown..]);
            let reading = reading.map(|(reading, _)| reading).filter(|reading| reading.end != EndSource::Kernels);
            self.waits.wait(slot, &thread, &stream.context, reading);
            self.shown = self.batch.len();
            stream.clear_first();
            return Ok(true);
        }
        if let Some(range) = slot.range() {
            let info = stream.context.info.clone();
            if reading.is_some_and(|(reading, _)| reading.end == EndSource::Kernels) {
                let zone = slot.read(range, thread, info, reading);
                self.cx.held.waiting.push(HeldZone { zone, context: Arc::clone(&stream.context) });
            } else {
                slot.read_into(&mut self.batch, range, thread, info, reading);
            }
        }
        stream.clear_first();
        Ok(true)
    }

    /// Drops what waits on a failed stream, and notes that once.
    fn fail_stream(&mut self, stream: &mut Stream, error: &BackendError) {
        // While the zones that wait on it are known.
        self.flight.iter_mut().for_each(|flight| flight.stream_failed(&mut self.cx, stream, error));
        let (mut lost, mut lost_waits) = (0, 0);
        while let Some(token) = stream.pending.front_mut() {
            match stream.context.ring().slot(token) {
                Some(slot) if slot.is_wait() => lost_waits += 1,
                slot => lost += slot.map_or(1, |slot| slot.lose_to_stream(error)),
            }
            stream.clear_first();
        }
        stream.give_back();
        stream.context.waits().add_stream_failed(lost_waits);
        if stream.context.stream_failed.fetch_add(lost, Ordering::Release) == 0 && lost > 0 {
            let name = stream.context.info.as_ref().map_or("", |info| info.name.as_str());
            self.cx.note(format!("stream `{name}` failed: {error}; zones that waited on it are dropped"));
        }
    }

    pub(super) fn deliver(&mut self, context: &StreamContext) -> usize {
        if self.batch.is_empty() {
            return 0;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let shown = std::mem::take(&mut self.shown);
        self.waits.zones(&batch[shown..]);
        let end_ns = |record: &ZoneRecord| record.gpu.unwrap_or(record.host).end_ns;
        if !batch.is_sorted_by_key(end_ns) {
            // This sorts indices and moves each record once.
            batch.sort_by_cached_key(end_ns);
        }
        let recorded = batch.len();
        let steps = self.cx.recorder.steps();
        batch.retain(|record| !steps.is_warmup(record.host.begin_ns));
        self.cx.stats.warmup.zones.fetch_add((recorded - batch.len()) as u64, Ordering::Relaxed);
        if !batch.is_empty() {
            self.cx.hand_out(Batch::Zones(&batch));
        }
        context.recorded.fetch_add(recorded as u64, Ordering::Release);
        batch.clear();
        self.batch = batch;
        recorded
    }
}
