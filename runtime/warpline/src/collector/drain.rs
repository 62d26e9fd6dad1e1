//! The end of a session: closes the rings, collects what is in flight while there is time, and releases all resources.
//!
//! The collector runs this once, after its loop. The thread that finishes the session waits for it, but no longer than its timeout. A
//! device or a sink that hangs costs what it holds, and the report says so.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Collector;
use super::clocks::Clocks;
use super::pace::SHORTEST;
use warpline_core::lock::lock;
use warpline_core::plural::counted_are;
use warpline_report::DEAR;

/// The minimum duration of a session for a note on the cost of recording.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

impl Collector {
    /// Collects what has begun until the deadline, completes the sinks, and releases the devices.
    pub(super) fn end(mut self, deadline: Instant) {
        self.drain(deadline);
        let duration = self.duration();
        let cx = &mut self.cx;
        if !cx.stats.abandoned.load(Ordering::Acquire) {
            let report = cx.stats.report(&cx.recorder, duration);
            cx.subscriptions.finish(&report);
        }
        cx.subscriptions.end();
        cx.end_requests();
        // Last, because a device that hangs may also block here.
        cx.streams.clocks = Clocks::default();
        cx.streams.all.clear();
        self.stages.clear();
        self.flight = None;
        self.cx.recorder.close_shared();
    }

    /// Closes the rings and collects what was published, until nothing is pending or the time is up.
    fn drain(&mut self, deadline: Instant) {
        self.cx.recorder.close();
        // Some zones need two passes.
        self.pass(true);
        self.cx.streams.all.iter_mut().filter_map(|stream| stream.reader.as_mut()).for_each(|reader| reader.drain());
        loop {
            self.pass(true);
            self.stages.iter_mut().for_each(|stage| stage.drain(&mut self.cx));
            self.deliver_timed();
            let is_given_up = || self.cx.stats.abandoned.load(Ordering::Acquire);
            let is_waiting = self.cx.streams.are_waiting() || !self.cx.held.waiting.is_empty();
            if !is_waiting || Instant::now() >= deadline || is_given_up() {
                break;
            }
            std::thread::sleep(SHORTEST);
        }
        self.waits.hand_on(&mut self.cx, true);
        self.stages.iter_mut().for_each(|stage| stage.finish(&mut self.cx));
        self.flight.iter_mut().for_each(|flight| flight.finish(&mut self.cx));
        self.deliver_timed();
        self.cx.pass_changes();
        self.tell_what_is_missing();
        self.tell_what_it_cost();
        self.give_up();
    }

    /// Notes which streams were still busy.
    fn tell_what_is_missing(&mut self) {
        let mut notes = Vec::new();
        for stream in &mut self.cx.streams.all {
            let Some(info) = &stream.context.info else { continue };
            let ring = stream.context.ring();
            let zones: Vec<_> = stream.pending.iter_mut().filter_map(|token| ring.slot(token)?.range()).collect();
            if let (Some(range), waiting) = (zones.first(), zones.len()) {
                notes.push(format!(
                    "stream `{}` was still busy when the session ended: {} missing, the first of range `{}`; synchronise \
                     before `finish`, or give it a longer `timeout`",
                    info.name,
                    counted_are(waiting as u64, "zone"),
                    range.name()
                ));
            }
        }
        lock(&self.cx.stats.notes).extend(notes);
    }

    /// Notes the remedy if every zone is recorded and that costs a thread much of its time.
    fn tell_what_it_cost(&mut self) {
        let duration = self.duration();
        if duration < LONG_ENOUGH || lock(&self.cx.stats.windows).is_some() {
            return;
        }
        let streams = self.cx.streams.all.iter();
        let costs = streams.filter_map(|stream| {
            let zone_ns = self.cx.streams.clocks.zone_ns_at(stream.clock)?;
            let zones = stream.context.ring().taken();
            let share = zones as f64 * zone_ns as f64 / duration.as_nanos() as f64;
            Some((share, stream.context.info.as_ref()?, zones, zone_ns))
        });
        let Some((share, info, zones, zone_ns)) = costs.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        if share > DEAR {
            let note = format!(
                "recording took about {:.0} % of the time of the thread that launches on stream `{}` (estimated: {zones} zones, {:.1} µs each, in \
                 {:.1} s); `budget=1%` records complete steps in windows of the time, `level=coarse` and `filter=` record fewer zones",
                share * 100.0,
                info.name,
                zone_ns as f64 / 1e3,
                duration.as_secs_f64()
            );
            lock(&self.cx.stats.notes).push(note);
        }
    }

    /// Gives up the zones that are still pending: releases their events, and drops their tickets, which notifies the requesters.
    fn give_up(&mut self) {
        for stream in &mut self.cx.streams.all {
            for token in &mut stream.pending {
                if let Some(slot) = stream.context.ring().slot(token) {
                    slot.give_up();
                }
            }
        }
    }
}
