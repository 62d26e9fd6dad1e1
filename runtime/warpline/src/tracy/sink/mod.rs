//! The sink for Tracy (<https://github.com/wolfpld/tracy>): zones of streams, live, while the program runs, and beside them collectives,
//! kernels, replays and waits (`rows`).
//!
//! `order` holds a zone back until its enclosing zones are known, and `contexts` shows zones on GPU contexts of Tracy. `crate::tracy`
//! contains the calls, and shows launches and host zones on their own threads, without this sink.
//!
//! A GPU context of Tracy is a stack: an end closes the zone that began last. Zones are therefore sent only when their nesting is known,
//! and a begin, its time, the zones inside, the end and its time follow one another directly. Zones that overlap go to a further context of
//! the same stream. Times are not changed, so Tracy's lengths are those of the records. A zone whose length is only a bound has a location of
//! its own, whose name says so, and is therefore not in Tracy's statistics of its range.

mod contexts;
mod order;
mod rows;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::time::Instant;

use crate::settings::Config;
use crate::tracy::gpu::{Calls, Live, Plot};
use crate::tracy::launch;
use crate::tracy::names::Name;
use crate::tracy::{Location, text};
use warpline_core::record::{DeviceKind, StreamInfo, ZoneRecord};
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

use contexts::{Ids, Stage};
use order::{Order, Zone};
use rows::Rows;

/// Creates the sink, if the settings ask for it.
pub(crate) fn create(config: &Config) -> Option<Box<dyn Sink>> {
    config.tracy.then(|| Box::new(TracySink::new()) as _)
}

/// A sink that shows zones live in Tracy.
///
/// Connect Tracy's viewer or its `tracy-capture`, 0.14 or another version with the same protocol, to this process. Each stream has a
/// timeline. Launches, host zones and the waits of threads for semaphores are zones of their threads, with label and fields as their text. Collectives, kernels, replays of CUDA graphs and the waits of a stream have timelines of their own beside the stream's.
///
/// The process keeps at most 192 of Tracy's GPU contexts, and leaves the others to the application. A timeline takes one, and
/// one more for each zone that overlaps another. Zones that cannot be shown are counted, and the
/// [`Report`](warpline_report::Report) says how many and why.
///
/// It is `Send` and not `Sync`: a session's collector owns it.
pub struct TracySink {
    calls: Option<Box<dyn Calls>>,
    show: Show,
}

/// The streams of a session, and the numbers of zones that are not shown.
struct Show {
    streams: HashMap<u32, Stream>,
    ids: &'static Ids,
    /// The number of batches.
    batches: u64,
    /// The timelines beside those of streams.
    rows: Rows,
    /// Zones in the order in which they may be shown. The list is kept to reuse its memory.
    ready: Vec<Zone>,
    lost: Lost,
}

struct Stream {
    order: Order,
    stage: Stage,
    /// The number of the stream's last batch.
    used: u64,
}

/// The maximum number of known streams. Above it, the least recently used streams that hold nothing back are removed.
const STREAMS: usize = if cfg!(test) { 8 } else { 1024 };

/// Zones that Tracy does not show, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    /// No viewer was connected.
    no_viewer: u64,
    /// All contexts were in use.
    no_context: u64,
    /// Tracy can hold no more source locations.
    no_location: u64,
    /// Host zones that ended on another thread, or while no viewer was connected.
    host: u64,
}

impl Lost {
    fn total(&self) -> u64 {
        self.no_viewer + self.no_context + self.no_location + self.host
    }
}

impl TracySink {
    /// Creates a sink for Tracy. Tracy's client starts with the program, or, with its feature `manual-lifetime`, with the session.
    pub fn new() -> TracySink {
        TracySink { calls: None, show: Show::new(Ids::of_process()) }
    }
}

impl Default for TracySink {
    fn default() -> TracySink {
        TracySink::new()
    }
}

impl fmt::Debug for TracySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracySink").finish_non_exhaustive()
    }
}

impl Sink for TracySink {
    fn name(&self) -> String {
        "tracy".to_owned()
    }

    fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
        self.calls.get_or_insert_with(|| Box::new(Live::start()));
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(calls) = self.calls.as_deref_mut() else { return Err(not_started()) };
        self.show.write(calls, batch, Instant::now());
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(calls) = self.calls.as_deref_mut() else { return Err(not_started()) };
        self.show.progress(calls, Instant::now());
        if calls.listener().is_some() {
            calls.plot(Plot::Ring, (progress.fullest_ring * 100.0).round() as i64);
            calls.plot(Plot::Dropped, progress.dropped as i64);
        }
        Ok(())
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        let Some(calls) = self.calls.as_deref_mut() else { return Err(not_started()) };
        self.show.finish(calls);
        self.show.lost.host += launch::take_not_shown();
        // Threads stop showing their zones, and the contexts are free for the next session.
        self.calls = None;
        self.show.streams.clear();
        self.show.rows.clear();
        self.show.lost.error()
    }

    fn lost(&self) -> u64 {
        self.show.lost.total()
    }
}

impl Show {
    fn new(ids: &'static Ids) -> Show {
        let rows = Rows::new(ids);
        Show { streams: HashMap::new(), ids, batches: 0, rows, ready: Vec::new(), lost: Lost::default() }
    }

    fn write(&mut self, calls: &mut dyn Calls, batch: Batch<'_>, now: Instant) {
        let Show { rows, lost, .. } = self;
        match batch {
            Batch::Zones(zones) => {
                rows.collectives(calls, zones, now);
                self.records(calls, zones, now);
            }
            Batch::Kernels(kernels) => rows.kernels(calls, kernels, now, lost),
            Batch::Replays(replays) => rows.replays(calls, replays, now, lost),
            Batch::Waits(waits) => rows.waits(calls, waits, now, lost),
            _ => {}
        }
    }

    /// Shows what has waited for long enough.
    fn progress(&mut self, calls: &mut dyn Calls, now: Instant) {
        self.release(calls, |order, ready| order.give_up_waiting(now, ready));
        self.rows.release(calls, Some(now), &mut self.lost);
    }

    /// Shows everything.
    fn finish(&mut self, calls: &mut dyn Calls) {
        self.release(calls, Order::finish);
        self.rows.release(calls, None, &mut self.lost);
    }

    fn records(&mut self, calls: &mut dyn Calls, batch: &[ZoneRecord], now: Instant) {
        // The records are all of one stream, or are host zones, which their threads have shown.
        let Some(info) = batch.first().and_then(|record| record.stream.as_deref()) else { return };
        self.make_room(info);
        self.batches += 1;
        let new = || Stream { order: Order::default(), stage: Stage::new(display_name(info), self.ids), used: 0 };
        let stream = self.streams.entry(info.id).or_insert_with(new);
        stream.used = self.batches;
        // The entries of a batch have no time of their own; the batch is shown, and its entries among the collectives.
        for record in batch.iter().filter(|record| record.entry.is_none()) {
            let (Some(location), Some(span)) = (location(calls, record), record.gpu) else {
                // The zone still has its place in the sequence.
                stream.order.leave_out(record.sequence, now, &mut self.ready);
                self.lost.no_location += 1;
                continue;
            };
            let lane = record.named_lane();
            let zone = Zone { location, span, sequence: record.sequence, lane, is_record: true };
            stream.order.add(zone, now, &mut self.ready);
        }
        stream.order.give_up_waiting(now, &mut self.ready);
        stream.stage.show(calls, &mut self.ready, &mut self.lost);
    }

    /// Makes room for this stream, if it is new. Streams that hold nothing back are removed if there are too many, and release their
    /// contexts if Tracy has none left.
    fn make_room(&mut self, info: &StreamInfo) {
        if self.streams.contains_key(&info.id) {
            return;
        }
        if self.streams.len() >= STREAMS {
            let idle = self.streams.iter().filter(|(_, stream)| stream.order.is_empty());
            let mut idle: Vec<_> = idle.map(|(id, stream)| (stream.used, *id)).collect();
            idle.sort_unstable();
            for (_, id) in idle.iter().take(STREAMS / 2) {
                self.streams.remove(id);
            }
        }
        if self.ids.are_used_up(&display_name(info)) {
            for stream in self.streams.values_mut().filter(|stream| stream.order.is_empty()) {
                stream.stage.give_back();
            }
            self.rows.give_back();
        }
    }

    /// Shows the zones that each stream releases.
    fn release(&mut self, calls: &mut dyn Calls, release_ready: impl Fn(&mut Order, &mut Vec<Zone>)) {
        for stream in self.streams.values_mut() {
            release_ready(&mut stream.order, &mut self.ready);
            stream.stage.show(calls, &mut self.ready, &mut self.lost);
        }
    }
}

impl Lost {
    /// Returns an error with the numbers of zones that Tracy does not show.
    fn error(self) -> io::Result<()> {
        let reasons = [
            (self.no_viewer, "while no viewer was connected"),
            (self.no_context, "because the process had used up the GPU contexts that Tracy leaves it"),
            (self.no_location, "because Tracy can hold no more ranges"),
            (self.host, "on the host, which ended on another thread or while no viewer was connected"),
        ];
        let reasons: Vec<_> =
            reasons.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
        if reasons.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!("zones that Tracy does not show: {}", reasons.join(", "))))
    }
}

/// Returns the location of a zone: that of its range, or one that says that its end is not timed, if Tracy has room for it.
fn location(calls: &mut dyn Calls, record: &ZoneRecord) -> Option<Location> {
    if record.is_bounded() {
        let name = text::end_not_timed(record.range.name());
        let name = Name { name: &name, text: "", range: Some(record.range) };
        if let Some(location) = calls.named(&name) {
            return Some(location);
        }
    }
    calls.location(record.range)
}

/// Returns the name of a stream, with its device.
fn display_name(info: &StreamInfo) -> String {
    let device = &info.device;
    match device.kind {
        DeviceKind::Host => format!("{}: {}", device.name, info.name),
        DeviceKind::Other(kind) => format!("{kind} {} {}: {}", device.ordinal, device.name, info.name),
        _ => format!("GPU {} {}: {}", device.ordinal, device.name, info.name),
    }
}
