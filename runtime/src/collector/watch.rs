//! What the collector does for a flight recorder: it writes down what is open, sees which stream stands still, and
//! answers those who want a trace.
//!
//! Ten times a second it reads the notes of open zones, which their threads write without waiting. What is open is in the
//! file from then on, whatever becomes of the program. It asks no device anything.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Collector;
use super::stream::Stream;
use crate::backend::BackendError;
use crate::clock::now_ns;
use crate::flight::{Flight, Incident, OpenZone, Reason};
use crate::lock::lock;
use crate::record::open::{OpenState, OpenZoneRecord};
use crate::stream::note::Note;
use crate::stream::recorder::Recorder;
use crate::tell::tell;

/// Between two looks at what is open.
const EVERY: Duration = Duration::from_millis(100);

/// Of one stream, so many zones are written down that its end has not come to, the oldest, and so many whose marks have not
/// ended.
const MOST: usize = 32;

/// The most notes in the report of incidents.
const NOTES: usize = 16;

/// Of streams that stand still at one look, so many are named.
const NAMED: usize = 16;

/// A stream that stands still again and again is told on standard error so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What has been told of a stream that stands still.
#[derive(Default)]
pub(super) struct Stall {
    /// It stands still, and that has been told.
    is_known: bool,
    /// When standard error was told last.
    told: Option<Instant>,
}

/// What is known of the flight recorder.
pub(super) struct Watch {
    flight: Arc<Flight>,
    looked: Instant,
    /// What happened, in the report.
    notes: usize,
}

impl Collector {
    /// Watches for this recorder.
    pub(crate) fn watch_for(&mut self, flight: Arc<Flight>) {
        self.watch = Some(Watch { flight, looked: Instant::now(), notes: 0 });
    }

    /// Looks at what is open when it is time to, and answers who asks.
    pub(super) fn watch(&mut self) {
        let Some(watch) = &self.watch else { return };
        let flight = Arc::clone(&watch.flight);
        let requests = flight.take_requests();
        for request in requests {
            self.pass();
            self.pass_spans();
            self.pass_kernels();
            self.pass_changes();
            self.flush();
            self.write_open(&flight);
            match &request.incident {
                Some(incident) if incident.reason == Reason::Signal => flight.write_out_aside(incident.clone()),
                Some(incident) => self.write_incident(&flight, incident, std::slice::from_ref(&incident.title)),
                None => {}
            }
            request.answer();
        }
        if self.watch.as_ref().is_some_and(|watch| watch.looked.elapsed() >= EVERY) {
            self.write_open(&flight);
            self.look_for_stalls(&flight);
            if let Some(watch) = &mut self.watch {
                watch.looked = Instant::now();
            }
        }
    }

    /// Writes down what is open now.
    fn write_open(&mut self, flight: &Flight) {
        let (zones, more) = self.open_zones();
        // What keeps it from being written keeps zones from it, too, and the sink says so.
        let _ = flight.write_open(&zones, more);
        flight.harm().for_each(|text| self.tally.warn(text));
    }

    /// Writes down what happened, and says it in the report in so many notes.
    fn write_incident(&mut self, flight: &Flight, incident: &Incident, notes: &[String]) {
        let (zones, more) = self.open_zones();
        let _ = flight.write_incident(incident, &zones, more);
        notes.iter().for_each(|note| self.note(note));
    }

    fn note(&mut self, title: &str) {
        let Some(watch) = &mut self.watch else { return };
        watch.notes += 1;
        match watch.notes {
            ..=NOTES => lock(&self.tally.notes).push(title.to_owned()),
            more if more == NOTES + 1 => {
                lock(&self.tally.notes).push("more happened than is told here: see standard error".to_owned());
            }
            _ => {}
        }
    }

    /// Writes down what is open when the session ends.
    pub(super) fn watch_last(&mut self) {
        if let Some(watch) = &self.watch {
            let flight = Arc::clone(&watch.flight);
            self.write_open(&flight);
        }
    }

    /// All that is open, by stream, and how many zones more.
    fn open_zones(&mut self) -> (Vec<OpenZone>, u64) {
        let (mut zones, mut more) = (Vec::new(), 0);
        for stream in &mut self.streams {
            more += stream.open_zones(&self.recorder, &mut zones);
        }
        (zones, more)
    }

    /// Each stream that has open zones and finishes none is told, once until it goes on. Those that are found at one look
    /// share a trace.
    fn look_for_stalls(&mut self, flight: &Arc<Flight>) {
        let Some(limit) = flight.stall else { return };
        let (mut titles, mut names, mut more) = (Vec::new(), Vec::new(), 0);
        let mut is_news = false;
        for stream in &mut self.streams {
            // A host zone may wait for whatever it wants.
            if stream.context.info.is_none() || !stream.has_stood_still(limit) || stream.stall.is_known {
                continue;
            }
            stream.stall.is_known = true;
            if stream.stall.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                stream.stall.told = Some(Instant::now());
                is_news = true;
            }
            if titles.len() == NAMED {
                more += 1;
                continue;
            }
            titles.push(stream.stands_at(&self.recorder));
            names.extend(stream.context.info.as_ref().map(|info| ("stream", info.name.clone())));
        }
        if more > 0 {
            titles.push(format!("{more} more streams stand still"));
        }
        if titles.is_empty() {
            return;
        }
        let incident = Incident { reason: Reason::Stall, ns: now_ns(), title: titles.join("; "), args: names };
        self.flush();
        self.write_open(flight);
        self.write_incident(flight, &incident, &titles);
        if flight.is_due(Reason::Stall) {
            flight.write_out_aside(incident);
        } else if is_news {
            tell(format!("{}; no trace of its own, since there is one a minute at most", incident.title));
        }
    }

    /// A stream has failed: what waits on it is still known.
    pub(super) fn tell_failure(&mut self, stream: &mut Stream, error: &BackendError) {
        let Some(watch) = &self.watch else { return };
        let flight = Arc::clone(&watch.flight);
        let name = stream.context.info.as_ref().map_or("", |info| info.name.as_str()).to_owned();
        let mut zones = Vec::new();
        let more = stream.open_zones(&self.recorder, &mut zones);
        if zones.is_empty() || stream.context.stream_failed.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut title = format!("stream `{name}` failed: {error}");
        title.extend(zones.first().map(|zone| format!("; it stood at {}", said(zone))));
        let args = vec![("stream", name), ("error", error.to_string())];
        let incident = Incident { reason: Reason::StreamFailed, ns: now_ns(), title, args };
        // An error that a whole device has comes from each of its streams; the first is the one to look at.
        if !flight.is_due(incident.reason) {
            return;
        }
        let _ = flight.write_incident(&incident, &zones, more);
        self.flush();
        flight.write_out_aside(incident);
    }
}

impl Stream {
    /// Adds what is open on it, oldest first, and says how many zones there are besides.
    fn open_zones(&mut self, recorder: &Recorder, zones: &mut Vec<OpenZone>) -> u64 {
        self.context.add_notes(&mut self.notes);
        let mut open: Vec<OpenZoneRecord> =
            self.notes.iter().filter(|note| note.is_open()).filter_map(|note| Note::read(note)).collect();
        open.sort_by_key(|open| (open.begin_ns, open.sequence));
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

    /// Whether it has had open zones for so long and finished none.
    fn has_stood_still(&mut self, limit: Duration) -> bool {
        let recorded = self.context.recorded.load(Ordering::Relaxed);
        self.context.add_notes(&mut self.notes);
        if recorded != self.moved.1 || !self.notes.iter().any(|note| note.is_open()) {
            self.moved = (Instant::now(), recorded);
            self.stall.is_known = false;
        }
        self.moved.0.elapsed() >= limit
    }

    /// Since when it stands still, and where, in a sentence.
    fn stands_at(&mut self, recorder: &Recorder) -> String {
        let mut zones = Vec::new();
        self.open_zones(recorder, &mut zones);
        let name = self.context.info.as_ref().map_or("", |info| info.name.as_str());
        let since = self.moved.0.elapsed();
        let mut title = format!("stream `{name}` has finished no zone for {:.1} s", since.as_secs_f64());
        // The one that its end has not come to is what it stands at.
        let at = zones.iter().find(|zone| zone.open.state == OpenState::OnStream).or(zones.first());
        title.extend(at.map(|zone| format!("; it stands at {}", said(zone))));
        title
    }
}

/// A zone in a sentence: its range, what it carries, and who began it, when and where.
fn said(zone: &OpenZone) -> String {
    let OpenZoneRecord { place, fields, begin_ns, label, .. } = &zone.open;
    let fields = fields.iter().map(|(name, value)| format!("{name} = {value}"));
    let carried: Vec<_> = label.iter().cloned().chain(fields).collect();
    let carried = if carried.is_empty() { String::new() } else { format!(" ({})", carried.join(", ")) };
    let place = place.map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let since = (now_ns() - begin_ns).max(0) as f64 * 1e-9;
    format!("`{}`{carried}, which thread `{}` began {since:.1} s ago{place}", zone.name(), zone.thread)
}
