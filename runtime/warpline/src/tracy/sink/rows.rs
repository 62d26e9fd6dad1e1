//! What Tracy shows beside the zones of a stream: collectives, kernels, replays and waits. Each kind has a timeline of its own for each
//! stream.
//!
//! These records have no sequence, and a later batch may contain earlier work. A timeline therefore holds what came for [`SETTLE`], and
//! shows it in the order of time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::contexts::{Ids, Stage};
use super::order::{MOST, Zone};
use super::{Lost, display_name};
use crate::tracy::Location;
use crate::tracy::gpu::Calls;
use crate::tracy::names::Name;
use crate::tracy::text;
use warpline_core::kernel::KernelRecord;
use warpline_core::record::{Span, StreamInfo, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::wait::{WaitOutcome, WaitRecord};

/// How long a timeline waits for earlier work.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// So many timelines are known at once. Of more, those that hold nothing are forgotten.
const TIMELINES: usize = 1024;

/// What a timeline shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowKind {
    Collectives,
    Kernels,
    Replays,
    Waits,
}

impl RowKind {
    fn as_str(self) -> &'static str {
        match self {
            RowKind::Collectives => "collectives",
            RowKind::Kernels => "kernels",
            RowKind::Replays => "replays",
            RowKind::Waits => "waits",
        }
    }
}

/// The timelines beside all streams.
pub(super) struct Rows {
    rows: HashMap<(u32, RowKind), TimelineRow>,
    ids: &'static Ids,
    /// The zones of the records so far, of which outer ones come before those in them.
    sequence: u64,
    /// A text. Kept for its memory.
    text: String,
    /// Zones that may be shown. Kept for its memory.
    ready: Vec<Zone>,
}

struct TimelineRow {
    held: ReorderBuffer,
    stage: Stage,
}

impl Rows {
    pub(super) fn new(ids: &'static Ids) -> Rows {
        Rows { rows: HashMap::new(), ids, sequence: 0, text: String::new(), ready: Vec::new() }
    }

    /// Takes the collectives of a batch of zones. The entries of a batch of collectives share its time, in their order.
    pub(super) fn collectives(&mut self, calls: &mut dyn Calls, zones: &[ZoneRecord], now: Instant) {
        let mut shares = Shares::default();
        for record in zones {
            if let (Some(stream), Some(gpu), Some(_)) = (&record.stream, record.gpu, &record.message) {
                let (location, span) = (self.collective(calls, record), shares.span(record, gpu));
                // The zone itself is shown, and counted, on its stream.
                self.add((stream, RowKind::Collectives), location, span, false, now);
            }
        }
    }

    pub(super) fn kernels(&mut self, calls: &mut dyn Calls, kernels: &[KernelRecord], now: Instant, lost: &mut Lost) {
        for kernel in kernels {
            let work = text::work(kernel);
            let range = kernel.zone.map(|zone| zone.range);
            let location = calls.named(&Name { name: &kernel.name, text: &work, range });
            lost.no_location += u64::from(location.is_none());
            self.add((&kernel.stream, RowKind::Kernels), location, kernel.gpu, true, now);
        }
    }

    /// Takes replays: each is a zone with the zones that were captured in it.
    pub(super) fn replays(&mut self, calls: &mut dyn Calls, replays: &[ReplayRecord], now: Instant, lost: &mut Lost) {
        for replay in replays {
            let location = calls.named(&Name { name: &replay.title(), text: replay.timed_by.as_str(), range: None });
            lost.no_location += u64::from(location.is_none());
            let row = (&*replay.stream, RowKind::Replays);
            self.add(row, location, replay.gpu, true, now);
            let mut shares = Shares::default();
            for captured in &replay.zones {
                let zone = &captured.zone;
                let Some(gpu) = zone.gpu else { continue };
                let location =
                    if zone.message.is_some() { self.collective(calls, zone) } else { super::location(calls, zone) };
                self.add(row, location, shares.span(zone, gpu), false, now);
            }
        }
    }

    /// Takes the waits of streams. Those of threads are zones of their threads.
    pub(super) fn waits(&mut self, calls: &mut dyn Calls, waits: &[WaitRecord], now: Instant, lost: &mut Lost) {
        for wait in waits {
            let (Some(stream), Some(gpu)) = (&wait.stream, wait.gpu) else { continue };
            // The value is left out: it grows, and Tracy keeps every text.
            let mut text =
                wait.signal.as_ref().map_or_else(String::new, |signal| format!("signalled by {}", signal.by()));
            if wait.outcome != WaitOutcome::Reached {
                text = wait.outcome.as_str().to_owned();
            }
            let mut name = format!("wait {}", wait.semaphore);
            if wait.is_bounded() {
                name = text::end_not_timed(&name);
            }
            let location = calls.named(&Name { name: &name, text: &text, range: None });
            lost.no_location += u64::from(location.is_none());
            self.add((stream, RowKind::Waits), location, gpu, true, now);
        }
    }

    /// Returns the location of a collective: its operation and its group, and its numbers beside them.
    fn collective(&mut self, calls: &mut dyn Calls, record: &ZoneRecord) -> Option<Location> {
        let message = record.message.as_ref()?;
        self.text.clear();
        text::message(&mut self.text, message);
        let mut name = text::collective(message);
        if record.is_bounded() {
            name = text::end_not_timed(&name);
        }
        calls.named(&Name { name: &name, text: &self.text, range: Some(record.range) })
    }

    fn add(
        &mut self,
        (stream, kind): (&StreamInfo, RowKind),
        location: Option<Location>,
        span: Span,
        is_record: bool,
        now: Instant,
    ) {
        let Some(location) = location else { return };
        if self.rows.len() >= TIMELINES && !self.rows.contains_key(&(stream.id, kind)) {
            self.rows.retain(|_, row| !row.held.is_empty());
        }
        let ids = self.ids;
        let new = || {
            let name = format!("{}, {}", display_name(stream), kind.as_str());
            TimelineRow { held: ReorderBuffer::default(), stage: Stage::beside(name, ids) }
        };
        let row = self.rows.entry((stream.id, kind)).or_insert_with(new);
        row.held.0.push((now, Zone { location, span, sequence: self.sequence, lane: None, is_record }));
        self.sequence += 1;
    }

    /// Shows what has been held for long enough, or all of it.
    pub(super) fn release(&mut self, calls: &mut dyn Calls, now: Option<Instant>, lost: &mut Lost) {
        for row in self.rows.values_mut() {
            row.held.release(now, &mut self.ready);
            row.stage.show(calls, &mut self.ready, lost);
        }
    }

    /// Gives the contexts back of timelines that hold nothing.
    pub(super) fn give_back(&mut self) {
        for row in self.rows.values_mut().filter(|row| row.held.is_empty()) {
            row.stage.give_back();
        }
    }

    /// Forgets all timelines.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }
}

/// How much of a batch's time the entries before the next one have.
#[derive(Default)]
struct Shares(f64);

impl Shares {
    /// Returns the span of a record with the span `gpu`: of an entry of a batch, the part that is its share.
    fn span(&mut self, record: &ZoneRecord, gpu: Span) -> Span {
        let Some(entry) = record.entry else { return gpu };
        let before = if entry.index == 0 { 0.0 } else { self.0 };
        self.0 = (before + entry.share).min(1.0);
        let at = |share: f64| gpu.begin_ns + (share * gpu.duration_ns() as f64).round() as i64;
        Span { begin_ns: at(before.min(1.0)), end_ns: at(self.0) }
    }
}

/// Zones with the times when they came.
#[derive(Debug, Default)]
struct ReorderBuffer(Vec<(Instant, Zone)>);

impl ReorderBuffer {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets go of zones that came [`SETTLE`] ago, and of those that begin before they end, so that no zone is separated from those in it.
    fn release(&mut self, now: Option<Instant>, ready: &mut Vec<Zone>) {
        let is_full = self.0.len() > MOST;
        let has_settled =
            |came: Instant| is_full || now.is_none_or(|now| now.saturating_duration_since(came) >= SETTLE);
        let settled = self.0.iter().filter(|(came, _)| has_settled(*came)).map(|(_, zone)| zone.span.end_ns);
        let Some(mut end_ns) = settled.max() else { return };
        self.0.sort_unstable_by_key(|(_, zone)| zone.span.begin_ns);
        let stays = self.0.iter().position(|(_, zone)| {
            let stays = zone.span.begin_ns > end_ns;
            end_ns = end_ns.max(zone.span.end_ns);
            stays
        });
        ready.extend(self.0.drain(..stays.unwrap_or(self.0.len())).map(|(_, zone)| zone));
    }
}
