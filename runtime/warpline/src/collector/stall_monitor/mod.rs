//! The collector's work for a flight recorder: it writes open zones to the file, detects stalled streams and allocations that fail, and answers
//! requests for a trace.
//!
//! Ten times a second it reads the snapshots of open zones, which their threads write without waiting. From then on the open zones are
//! in the file, even if the program crashes. It queries no device.

mod out_of_memory;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::context::Context;
use super::stream::Stream;
use crate::flight::{Flight, FlushRequest};
use warpline_core::backend::BackendError;
use warpline_core::clock::now_ns;
use warpline_core::record::open::{OpenState, OpenZoneRecord};
use warpline_core::sorting;
use warpline_core::stderr;
use warpline_core::stream::recorder::Recorder;
use warpline_core::stream::snapshot::OpenZoneSnapshot;
use warpline_trace::flight::open::{Incident, OpenZone, Reason};

/// The time between two looks at the open zones.
const EVERY: Duration = Duration::from_millis(100);

/// The maximum number of zones written per stream and state: the oldest whose end the stream has not reached, and the oldest that have
/// not ended on their thread.
const MOST: usize = 32;

/// The maximum number of notes in the report of incidents.
const NOTES: usize = 16;

/// The maximum number of stalled streams that one look names.
const NAMED: usize = 16;

/// The minimum time between two messages on standard error about one stream that stalls repeatedly.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Watches the streams for a flight recorder.
pub(super) struct StallMonitor {
    flight: Arc<Flight>,
    looked: Instant,
    /// The number of incidents noted in the report.
    notes: usize,
    /// The requests of this round.
    requests: Vec<FlushRequest>,
}

impl StallMonitor {
    pub(super) fn new(flight: Arc<Flight>) -> StallMonitor {
        StallMonitor { flight, looked: Instant::now(), notes: 0, requests: Vec::new() }
    }

    /// Returns whether everything must be read and flushed in this round, because a caller waits for it.
    pub(super) fn wants_all(&mut self) -> bool {
        self.requests = self.flight.take_requests();
        !self.requests.is_empty()
    }

    /// Answers requests, and looks at the open zones when that is due. Runs at the end of a round: records are handed on, and the sinks are
    /// flushed if that was due.
    pub(super) fn end_round(&mut self, cx: &mut Context) {
        for request in std::mem::take(&mut self.requests) {
            self.write_open(cx);
            match &request.incident {
                Some(incident) if incident.reason == Reason::Signal => self.flight.write_out_aside(incident.clone()),
                Some(incident) => self.write_incident(cx, incident, std::slice::from_ref(&incident.title)),
                None => {}
            }
            request.answer();
        }
        self.look_for_refusals(cx);
        if self.looked.elapsed() >= EVERY {
            self.write_open(cx);
            self.look_for_stalls(cx);
            self.looked = Instant::now();
        }
    }

    /// Reports a failed stream while its pending zones are still known.
    pub(super) fn stream_failed(&mut self, cx: &mut Context, stream: &mut Stream, error: &BackendError) {
        let name = stream.context.info.as_ref().map_or("", |info| info.name.as_str()).to_owned();
        let mut zones = Vec::new();
        let more = stream.open_zones(&cx.recorder, &mut zones);
        if zones.is_empty() || stream.context.stream_failed.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut title = format!("stream `{name}` failed: {error}");
        title.extend(zones.first().map(|zone| format!("; it was at {}", describe(zone))));
        let args = vec![("stream", name), ("error", error.to_string())];
        let incident = Incident { reason: Reason::StreamFailed, ns: now_ns(), title, args };
        // An error of a whole device comes from each of its streams; the first is the one to look at.
        if !self.flight.is_due(incident.reason) {
            return;
        }
        let _ = self.flight.write_incident(&incident, &zones, more);
        cx.flush();
        self.flight.write_out_aside(incident);
    }

    /// Writes the open zones when the session ends.
    pub(super) fn finish(&mut self, cx: &mut Context) {
        self.look_for_refusals(cx);
        self.write_open(cx);
    }

    /// Writes the zones that are open now.
    fn write_open(&mut self, cx: &mut Context) {
        let (zones, more) = open_zones(cx);
        // A failure here also affects zones, and the sink reports it.
        let _ = self.flight.write_open(&zones, more);
        self.flight.harm().for_each(|text| cx.stats.warn(text));
    }

    /// Writes an incident, and adds the notes to the report.
    fn write_incident(&mut self, cx: &mut Context, incident: &Incident, notes: &[String]) {
        let (zones, more) = open_zones(cx);
        let _ = self.flight.write_incident(incident, &zones, more);
        notes.iter().for_each(|note| self.note(cx, note));
    }

    fn note(&mut self, cx: &Context, title: &str) {
        self.notes += 1;
        match self.notes {
            ..=NOTES => cx.note(title),
            more if more == NOTES + 1 => cx.note("more happened than is reported here: see standard error"),
            _ => {}
        }
    }

    /// Reports allocations that failed for lack of memory.
    fn look_for_refusals(&mut self, cx: &mut Context) {
        let Some(incident) = out_of_memory::incident(cx) else { return };
        if !self.flight.is_due(incident.reason) {
            return;
        }
        cx.flush();
        self.write_open(cx);
        self.write_incident(cx, &incident, std::slice::from_ref(&incident.title));
        self.flight.write_out_aside(incident);
    }

    /// Reports each stream that has open zones and finishes none, once until it continues. Streams found at one look share a trace.
    fn look_for_stalls(&mut self, cx: &mut Context) {
        let Some(limit) = self.flight.stall else { return };
        let (mut titles, mut names, mut more) = (Vec::new(), Vec::new(), 0);
        let mut is_news = false;
        for stream in &mut cx.streams.all {
            // A host zone may wait for anything.
            if stream.context.info.is_none() || !stream.has_stood_still(limit) || stream.watched.is_stalled {
                continue;
            }
            stream.watched.is_stalled = true;
            if stream.watched.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                stream.watched.told = Some(Instant::now());
                is_news = true;
            }
            if titles.len() == NAMED {
                more += 1;
                continue;
            }
            titles.push(stream.stands_at(&cx.recorder));
            names.extend(stream.context.info.as_ref().map(|info| ("stream", info.name.clone())));
        }
        if more > 0 {
            titles.push(format!("{more} more streams are stalled"));
        }
        if titles.is_empty() {
            return;
        }
        let incident = Incident { reason: Reason::Stall, ns: now_ns(), title: titles.join("; "), args: names };
        cx.flush();
        self.write_open(cx);
        self.write_incident(cx, &incident, &titles);
        if self.flight.is_due(Reason::Stall) {
            self.flight.write_out_aside(incident);
        } else if is_news {
            stderr::line(format!("{}; no separate trace, because at most one is written a minute", incident.title));
        }
    }
}

/// Returns all open zones, by stream, and the number of further ones.
fn open_zones(cx: &mut Context) -> (Vec<OpenZone>, u64) {
    let (mut zones, mut more) = (Vec::new(), 0);
    for stream in &mut cx.streams.all {
        more += stream.open_zones(&cx.recorder, &mut zones);
    }
    (zones, more)
}

impl Stream {
    /// Adds the open zones of the stream, oldest first, and returns the number of further ones.
    fn open_zones(&mut self, recorder: &Recorder, zones: &mut Vec<OpenZone>) -> u64 {
        self.context.add_snapshots(&mut self.watched.snapshots);
        let mut open: Vec<OpenZoneRecord> = self
            .watched
            .snapshots
            .iter()
            .filter(|note| note.is_open())
            .filter_map(|note| OpenZoneSnapshot::read(note))
            .collect();
        sorting::sort_by_key(&mut open, |open| (open.begin_ns, open.sequence));
        let all = open.len();
        for state in [OpenState::OnStream, OpenState::OnThread] {
            let mut seen = 0;
            open.retain(|open| {
                seen += usize::from(open.state == state);
                open.state != state || seen <= MOST
            });
        }
        let more = (all - open.len()) as u64;
        zones.extend(open.into_iter().map(|open| {
            let thread = recorder.thread(open.thread);
            let thread = thread.name.clone().unwrap_or_else(|| format!("thread {}", open.thread));
            let stream = self.context.info.as_ref().map(|info| info.name.clone());
            let row = match &self.context.info {
                Some(info) => format!("{} ({}, device {})", info.name, info.device.name, info.device.ordinal),
                None => format!("{thread} ({})", open.thread),
            };
            OpenZone { row, stream, thread, open }
        }));
        more
    }

    /// Returns whether it has had open zones for `limit` and finished none.
    fn has_stood_still(&mut self, limit: Duration) -> bool {
        let recorded = self.context.recorded.load(Ordering::Relaxed);
        self.context.add_snapshots(&mut self.watched.snapshots);
        if recorded != self.watched.moved.1 || !self.watched.snapshots.iter().any(|note| note.is_open()) {
            self.watched.moved = (Instant::now(), recorded);
            self.watched.is_stalled = false;
        }
        self.watched.moved.0.elapsed() >= limit
    }

    /// Returns a sentence that says how long it has been stalled, and where.
    fn stands_at(&mut self, recorder: &Recorder) -> String {
        let mut zones = Vec::new();
        self.open_zones(recorder, &mut zones);
        let name = self.context.info.as_ref().map_or("", |info| info.name.as_str());
        let since = self.watched.moved.0.elapsed();
        let mut title = format!("stream `{name}` has finished no zone for {:.1} s", since.as_secs_f64());
        // The stream is at the zone whose end it has not reached.
        let at = zones.iter().find(|zone| zone.open.state == OpenState::OnStream).or(zones.first());
        title.extend(at.map(|zone| format!("; it is at {}", describe(zone))));
        title
    }
}

/// Returns a sentence about a zone: its range, what it carries, and the thread, time and place of its begin.
fn describe(zone: &OpenZone) -> String {
    let OpenZoneRecord { place, fields, begin_ns, label, .. } = &zone.open;
    let fields = fields.iter().map(|(name, value)| format!("{name} = {value}"));
    let carried: Vec<_> = label.iter().cloned().chain(fields).collect();
    let carried = if carried.is_empty() { String::new() } else { format!(" ({})", carried.join(", ")) };
    let place = place.map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let since = (now_ns() - begin_ns).max(0) as f64 * 1e-9;
    format!("`{}`{carried}, which thread `{}` began {since:.1} s ago{place}", zone.name(), zone.thread)
}
