//! The thread that turns finished events into [`ZoneRecord`]s and hands them to the sinks.
//!
//! It is the only one that asks a backend whether an event is complete, and the only one that calls sinks. It never makes
//! a launching thread wait: what it has not come to stays in the rings. `stream` is one stream with what waits on it,
//! `sinks` hands on what is recorded, `spans` takes the spans of `tracing`, `kernels` what CUPTI says, `stamps` what replayed
//! graphs do, `waits` what waited for timelines, `timelines` is what the report says of them, `guests` lets sinks come and go,
//! `watch` sees for the flight recorder what is open, `tally` is what is known of the session meanwhile.

mod guests;
#[cfg(feature = "cupti")]
mod kernels;
mod sinks;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "cuda")]
mod stamps;
mod stream;
mod tally;
#[cfg(feature = "timeline")]
mod timelines;
#[cfg(feature = "timeline")]
mod waits;
#[cfg(unix)]
mod watch;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::{Backend, BackendError, Clock};
use crate::budget::Budget;
use crate::clock::now_ns;
use crate::profile::ProfileError;
use crate::record::{DeviceInfo, StreamInfo, ThreadInfo, ZoneRecord};
use crate::session::{ClockFigures, Ends, SinkReport};
use crate::sink::{SessionInfo, Sink};
use crate::stream::context::StreamContext;
use crate::stream::recorder::Recorder;

use guests::Seated;
pub(crate) use guests::{Guest, Guests, Over, Tie};
use stream::{Stream, complete_prefix};
pub(crate) use tally::{Tally, lock};

/// Between two looks at the rings: short while zones complete, longer while they do not, twice as long each time while there
/// is none. Every few hundred zones wake the collector, and so does the first one after a long rest.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LAUNCHING_PAUSE: Duration = Duration::from_millis(2);
const LONG_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A program that launches without a pause is read so often at least, and as soon as a quarter of a ring waits: every call
/// that reads a device makes the calls that launch on it wait.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Streams that still come keep ends lazy until none has come for so long.
const SETTLED: Duration = Duration::from_millis(50);

/// What a zone costs its thread, while nothing is known of the device.
const UNKNOWN_ZONE_NS: i64 = 4_000;

/// Slots of a ring that the collector makes for a stream with more than a few zones.
const SLOTS_AHEAD: usize = 1024;
const FEW: u64 = 16;

/// After so many zones of one stream, the others are looked after before they are read.
const MANY: usize = 256;

/// So many zones before a zone is read, its slot is asked for.
const AHEAD: usize = 4;

/// A sink gets no more records than this at once, but for the entries of one batch of collectives.
const BATCH: usize = 1024;

/// A device on which no zone has begun for so long is left alone.
const RESTS: Duration = Duration::from_secs(1);

/// A GPU stream that rests so long is let go of; where there are more than a few hundred, much sooner.
const LONG_REST: Duration = Duration::from_secs(10);
const SHORT_REST: Duration = Duration::from_millis(5);
const CROWD: usize = 256;

pub(crate) struct Collector {
    recorder: Arc<Recorder>,
    tally: Arc<Tally>,
    begin_ns: i64,
    sinks: Vec<Box<dyn Sink>>,
    /// Sinks that come and go, and where they come in.
    guests: Vec<Seated>,
    door: Arc<Guests>,
    streams: Vec<Stream>,
    generation: u64,
    clocks: Vec<SpaceClock>,
    ends: Ends,
    budget: Option<Budget>,
    /// What reading a zone takes while the program is launching, lately.
    read_ns: f64,
    /// When a stream was met last, until it is long ago.
    settling: Option<Instant>,
    /// When the streams were read last.
    passed: Instant,
    threads: HashMap<u64, Arc<ThreadInfo>>,
    batch: Vec<ZoneRecord>,
    #[cfg(feature = "tracing")]
    spans: Vec<crate::record::SpanRecord>,
    /// How many had begun at the last pass.
    #[cfg(feature = "tracing")]
    spans_begun: u64,
    #[cfg(feature = "cupti")]
    kernels: Option<kernels::Side>,
    #[cfg(feature = "cuda")]
    stamps: Option<stamps::Side>,
    #[cfg(feature = "timeline")]
    waits: waits::Waits,
    flushed: Instant,
    dirty: bool,
    #[cfg(unix)]
    watch: Option<watch::Watch>,
}

/// The clock of the streams of one space.
struct SpaceClock {
    space: u64,
    device: DeviceInfo,
    clock: Result<Box<dyn Clock>, BackendError>,
    /// Its place in the report's figures.
    figures: usize,
}

impl Collector {
    /// Starts the sinks; one that fails is left out, and the report says so.
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        tally: Arc<Tally>,
        sinks: Vec<Box<dyn Sink>>,
        info: &SessionInfo,
        ends: Ends,
        budget: Option<Budget>,
    ) -> Collector {
        let mut collector = Collector {
            recorder,
            tally,
            begin_ns: info.begin_ns,
            sinks: Vec::new(),
            guests: Vec::new(),
            door: Arc::default(),
            streams: Vec::new(),
            generation: 0,
            clocks: Vec::new(),
            ends,
            budget,
            read_ns: UNKNOWN_ZONE_NS as f64,
            settling: None,
            passed: Instant::now(),
            threads: HashMap::new(),
            batch: Vec::with_capacity(BATCH),
            #[cfg(feature = "tracing")]
            spans: Vec::new(),
            #[cfg(feature = "tracing")]
            spans_begun: 0,
            #[cfg(feature = "cupti")]
            kernels: None,
            #[cfg(feature = "cuda")]
            stamps: None,
            #[cfg(feature = "timeline")]
            waits: waits::Waits::default(),
            flushed: Instant::now(),
            dirty: false,
            #[cfg(unix)]
            watch: None,
        };
        for sink in sinks {
            let index = collector.sinks.len();
            let name = catch_unwind(AssertUnwindSafe(|| sink.name())).unwrap_or_else(|_| "a sink".to_owned());
            lock(&collector.tally.sinks).push(SinkReport { name, ..SinkReport::default() });
            collector.sinks.push(sink);
            collector.call_sink(index, |sink| sink.start(info));
        }
        collector
    }

    /// Collects until the session is over, then drains, and completes the sinks.
    pub(crate) fn run(mut self) {
        #[cfg(feature = "tracing")]
        crate::spans::mute();
        let mut pause = SHORTEST_PAUSE;
        let deadline = loop {
            self.pass_guests();
            let is_launching = self.look();
            let collected = match (is_launching, self.budget.is_some()) {
                (true, _) if !self.must_read() => 0,
                (true, true) => self.pass_timed(),
                _ => self.pass(),
            } + self.pass_spans()
                + self.pass_kernels()
                + self.pass_stamps(false);
            self.pass_changes();
            self.flush_when_due();
            self.watch();
            if let Some(deadline) = *lock(&self.tally.deadline) {
                break deadline;
            }
            let is_waiting = self.streams.iter().any(|stream| !stream.pending.is_empty()) || self.holds_waits();
            pause = match () {
                () if is_launching => LAUNCHING_PAUSE,
                () if is_waiting && collected > 0 => SHORTEST_PAUSE,
                () if is_waiting => (pause * 2).clamp(SHORTEST_PAUSE, LAUNCHING_PAUSE),
                () if collected > 0 => LAUNCHING_PAUSE,
                () if self.is_settling() => LONG_PAUSE,
                () => (pause * 2).clamp(LAUNCHING_PAUSE, LONGEST_PAUSE),
            };
            self.rest(pause);
        };
        self.drain(deadline);
        self.watch_last();
        if !self.tally.abandoned.load(Ordering::Acquire) {
            let duration = Duration::from_nanos((now_ns() - self.begin_ns).max(0) as u64);
            let report = self.tally.report(&self.recorder, duration);
            for index in 0..self.sinks.len() {
                self.finish_sink(index, &report);
            }
        }
        self.end_guests();
        // Last, because a device that hangs may hang this, too.
        self.let_devices_go();
    }

    /// Pauses, unless it would be long and zones have begun meanwhile.
    fn rest(&self, pause: Duration) {
        if pause <= LONG_PAUSE {
            return std::thread::park_timeout(pause);
        }
        self.recorder.waker.rest();
        let has_begun = |stream: &Stream| stream.context.ring().taken() != stream.active.1;
        let has_begun = self.streams.iter().any(has_begun) || self.has_new_spans();
        if self.recorder.generation.load(Ordering::Acquire) == self.generation && !has_begun {
            std::thread::park_timeout(pause);
        }
        self.recorder.waker.rise();
    }

    /// Gives back what the session holds on devices.
    fn let_devices_go(&mut self) {
        self.clocks.clear();
        self.streams.clear();
        #[cfg(feature = "cuda")]
        {
            self.stamps = None;
        }
        self.recorder.close_shared();
    }

    /// Closes the rings and collects what was published, until nothing waits or the time is up.
    fn drain(&mut self, deadline: Instant) {
        self.recorder.close();
        // Some zones take two looks.
        self.pass();
        loop {
            self.pass();
            self.pass_spans();
            let waiting = self.streams.iter().any(|stream| !stream.pending.is_empty());
            if !waiting || Instant::now() >= deadline || self.tally.abandoned.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(SHORTEST_PAUSE);
        }
        self.pass_waits(true);
        self.end_kernels();
        self.pass_stamps(true);
        self.pass_changes();
        let mut notes = Vec::new();
        for stream in &mut self.streams {
            let Some(info) = &stream.context.info else { continue };
            let ring = stream.context.ring();
            let zones: Vec<_> = stream.pending.iter_mut().filter_map(|token| ring.slot(token)?.range).collect();
            if let (Some(range), waiting) = (zones.first(), zones.len()) {
                notes.push(format!(
                    "stream `{}` was still busy when the session ended: {waiting} zones are missing, the first is `{}`; \
                     synchronise before `finish`, or give it a longer `timeout`",
                    info.name,
                    range.name()
                ));
            }
        }
        lock(&self.tally.notes).extend(notes);
        // Nobody reads them any more: their events go back.
        for stream in &mut self.streams {
            for token in &mut stream.pending {
                let Some(slot) = stream.context.ring().slot(token) else { continue };
                slot.ticket = None;
                if let Some(points) = &mut slot.points {
                    points.release();
                }
            }
        }
    }

    /// A look that asks no device anything: whether GPU zones have begun since the last one.
    fn look(&mut self) -> bool {
        self.meet_streams();
        let now = Instant::now();
        let mut is_launching = false;
        for stream in &mut self.streams {
            let begun = stream.context.ring().taken();
            if begun != stream.active.1 {
                stream.active = (now, begun);
                is_launching |= stream.is_cuda();
                if begun > FEW {
                    stream.context.provide(SLOTS_AHEAD);
                }
            }
        }
        self.provide(&self.streams);
        if let Some(budget) = &mut self.budget {
            let costs = self.clocks.iter().filter_map(|space| Some(space.clock.as_ref().ok()?.zone_ns()));
            let zone_ns = costs.max().unwrap_or(UNKNOWN_ZONE_NS) + self.read_ns as i64;
            // What comes by while the session is stopped is nobody's rate.
            if self.recorder.is_on() { budget.adjust(zone_ns) } else { budget.rest() }
        }
        if self.is_settling() && self.settling.is_some_and(|since| now.duration_since(since) >= SETTLED) {
            self.settling = None;
            self.choose_ends();
        }
        is_launching
    }

    /// Whether it is still to be seen how many streams there are. A session that is stopped has time for that later.
    fn is_settling(&self) -> bool {
        self.settling.is_some() && self.recorder.is_on()
    }

    /// Whether what waits has to be read although the program is launching.
    fn must_read(&self) -> bool {
        self.passed.elapsed() >= BUSY_PAUSE
            || self.streams.iter().any(|stream| {
                let waiting = stream.context.ring().taken().saturating_sub(stream.given_back);
                waiting as usize * 4 > stream.context.ring().capacity()
                    || stream.context.backend.as_ref().is_some_and(|backend| backend.is_short())
            })
    }

    /// As [`pass`](Self::pass), while the program is launching: its calls wait for the collector's as long as those take,
    /// and the budget has to pay for it.
    fn pass_timed(&mut self) -> usize {
        let begin = Instant::now();
        let recorded = self.pass();
        if recorded > 0 {
            let ns = begin.elapsed().as_nanos() as f64 / recorded as f64;
            self.read_ns += (ns - self.read_ns) * 0.25;
        }
        recorded
    }

    /// Reads what is complete on every stream. Says how many zones were recorded.
    fn pass(&mut self) -> usize {
        self.meet_streams();
        self.passed = Instant::now();
        self.renew_clocks();
        let mut recorded = 0;
        let mut streams = std::mem::take(&mut self.streams);
        for index in 0..streams.len() {
            let read = self.pass_stream(&mut streams[index]);
            // A long read is time in which launching threads need more slots and events on every stream.
            if read >= MANY {
                self.provide(&streams);
            }
            recorded += read;
        }
        self.let_go(&streams);
        streams.retain(|stream| {
            let is_gone = self.retire(stream);
            if is_gone {
                self.forget_stream(stream);
            }
            !is_gone
        });
        self.streams = streams;
        self.threads.clear();
        recorded + self.pass_waits(false)
    }

    fn meet_streams(&mut self) {
        let generation = self.recorder.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        for context in self.recorder.contexts() {
            if self.streams.iter().any(|stream| Arc::ptr_eq(&stream.context, &context)) {
                continue;
            }
            let (reader, clock) = match (&context.info, &context.backend) {
                (Some(info), Some(backend)) => (Some(backend.reader()), self.clock(info, backend.as_ref())),
                _ => (None, usize::MAX),
            };
            let active = (Instant::now(), 0);
            self.streams.push(Stream {
                context,
                pending: VecDeque::new(),
                reader,
                given_back: 0,
                clock,
                active,
                notes: Vec::new(),
                moved: (Instant::now(), 0),
                is_stalled: false,
            });
        }
        self.settling = Some(Instant::now());
        self.choose_ends();
        lock(&self.tally.notes).extend(self.recorder.take_refusals());
    }

    /// Tells every stream how many share its device now.
    fn choose_ends(&self) {
        let mut shares: HashMap<&DeviceInfo, usize> = HashMap::new();
        for info in self.streams.iter().filter_map(|stream| stream.context.info.as_ref()) {
            *shares.entry(&info.device).or_default() += 1;
        }
        for stream in &self.streams {
            if let (Some(backend), Some(info)) = (&stream.context.backend, &stream.context.info) {
                let settled = self.settling.is_none().then(|| shares.get(&info.device).copied().unwrap_or(1));
                backend.choose_ends(self.ends, settled);
            }
        }
    }

    fn clock(&mut self, info: &StreamInfo, backend: &dyn Backend) -> usize {
        let space = backend.clock_space();
        let same = |known: &SpaceClock| known.space == space && known.device.kind == info.device.kind;
        if let Some(known) = self.clocks.iter().position(same) {
            return known;
        }
        let clock = backend.clock();
        let mut figures = lock(&self.tally.clocks);
        let place = figures.len();
        match &clock {
            Ok(clock) => {
                let bracket = clock.bracket();
                figures.push(ClockFigures {
                    device: info.device.name.clone(),
                    uncertainty_ns: clock.uncertainty_ns(),
                    bracket_ns: bracket.idle_ns,
                    busy_bracket_ns: bracket.busy_ns,
                });
            }
            Err(error) => lock(&self.tally.notes)
                .push(format!("device `{}` gave no clock, its zones are dropped: {error}", info.device.name)),
        }
        drop(figures);
        self.clocks.push(SpaceClock { space, device: info.device.clone(), clock, figures: place });
        self.clocks.len() - 1
    }

    /// Clocks that are old are measured anew, where zones come by; one that cannot be keeps what it knows.
    fn renew_clocks(&mut self) {
        let is_on = self.recorder.is_on();
        for (index, space) in self.clocks.iter_mut().enumerate() {
            let is_fresh = |stream: &Stream| is_on && stream.active.0.elapsed() < RESTS;
            let is_used = |stream: &Stream| is_fresh(stream) || !stream.pending.is_empty();
            if !self.streams.iter().any(|stream| stream.clock == index && is_used(stream)) {
                continue;
            }
            if let Ok(clock) = &mut space.clock {
                let _ = clock.renew();
                if let Some(figures) = lock(&self.tally.clocks).get_mut(space.figures) {
                    let bracket = clock.bracket();
                    figures.uncertainty_ns = clock.uncertainty_ns();
                    (figures.bracket_ns, figures.busy_bracket_ns) = (bracket.idle_ns, bracket.busy_ns);
                }
            }
        }
    }

    fn pass_stream(&mut self, stream: &mut Stream) -> usize {
        let Stream { context, pending, reader, .. } = stream;
        if let Some(reader) = reader {
            reader.pass(pending.len());
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
            && let Some(points) = stream.context.ring().slot(newest).and_then(|slot| slot.points.as_ref())
            && let Some(reader) = &mut stream.reader
        {
            reader.seen(points);
        }
        for _ in 0..complete {
            if let Some(later) = stream.pending.get(AHEAD) {
                stream.context.ring().prefetch(later);
            }
            match self.record_first(stream) {
                Ok(true) => {}
                // Two threads can publish in another order than they recorded, and a zone's end may be found better at the
                // next look: then one more pass is needed.
                Ok(false) => break,
                Err(error) => {
                    self.fail_stream(stream, &error);
                    break;
                }
            }
            if self.batch.len() >= BATCH {
                recorded += self.deliver(&stream.context);
            }
        }
        recorded += self.deliver(&stream.context);
        recorded
    }

    /// Turns the oldest pending zone into a record; false if its events are not complete after all.
    fn record_first(&mut self, stream: &mut Stream) -> Result<bool, BackendError> {
        let Some(token) = stream.pending.front_mut() else { return Ok(false) };
        let Some(slot) = stream.context.ring().slot(token) else { return Ok(false) };
        let reading = match (&mut slot.points, &mut stream.reader, self.clocks.get_mut(stream.clock)) {
            (Some(points), Some(reader), Some(SpaceClock { clock: Ok(clock), .. })) => {
                let Some(reading) = reader.read(points, slot.host, clock.as_mut())? else { return Ok(false) };
                Some((reading, clock.bracket().busy_ns))
            }
            (Some(_), _, Some(SpaceClock { clock: Err(error), .. })) => return Err(error.clone()),
            _ => None,
        };
        let thread = slot.thread;
        let thread = self.threads.entry(thread).or_insert_with(|| self.recorder.thread(thread));
        #[cfg(feature = "timeline")]
        if let Some(waited) = slot.wait.take() {
            let thread = Arc::clone(thread);
            let context = Arc::clone(&stream.context);
            self.take_wait(slot, *waited, thread, &context, reading);
            self.give_back_first(stream);
            return Ok(true);
        }
        if let Some(record) = slot.take_record(Arc::clone(thread), stream.context.info.clone(), reading) {
            if let Some(ticket) = slot.ticket.take() {
                ticket.deliver(&record);
            }
            #[cfg(feature = "timeline")]
            self.waits.saw(&record);
            if slot.entries.is_empty() {
                self.batch.push(record);
            } else {
                let entries: Vec<_> = slot.take_entries(&record).collect();
                self.batch.push(record);
                self.batch.extend(entries);
            }
        }
        self.give_back_first(stream);
        Ok(true)
    }

    fn give_back_first(&mut self, stream: &mut Stream) {
        if let Some(mut token) = stream.pending.pop_front() {
            if let Some(slot) = stream.context.ring().slot(&mut token) {
                slot.clear();
            }
            stream.context.ring().give(token);
            stream.given_back += 1;
        }
    }

    /// Drops what waits on a stream that failed, and says so once.
    fn fail_stream(&mut self, stream: &mut Stream, error: &BackendError) {
        self.tell_failure(stream, error);
        let (mut lost, mut lost_waits) = (0, 0);
        while let Some(token) = stream.pending.front_mut() {
            if let Some(slot) = stream.context.ring().slot(token) {
                lost += slot.entries.len() as u64;
                if slot.is_wait() {
                    lost_waits += 1;
                    self.give_back_first(stream);
                    continue;
                }
                if let Some(ticket) = slot.ticket.take() {
                    ticket.fail(&ProfileError::Stream(error.to_string()));
                }
            }
            lost += 1;
            self.give_back_first(stream);
        }
        #[cfg(feature = "timeline")]
        stream.context.waits().add_stream_failed(lost_waits);
        #[cfg(not(feature = "timeline"))]
        let _: u64 = lost_waits;
        if stream.context.stream_failed.fetch_add(lost, Ordering::Relaxed) == 0 && lost > 0 {
            let name = stream.context.info.as_ref().map_or("", |info| info.name.as_str());
            lock(&self.tally.notes)
                .push(format!("stream `{name}` failed: {error}; zones that waited on it are dropped"));
        }
    }

    fn deliver(&mut self, context: &StreamContext) -> usize {
        if self.batch.is_empty() {
            return 0;
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_by_key(|record| record.gpu.unwrap_or(record.host).end_ns);
        lock(&self.tally.summary).add(&batch);
        lock(&self.tally.traffic).add(&batch);
        #[cfg(feature = "timeline")]
        lock(&self.tally.timelines).add_zones(&batch);
        self.hand_out(batch.len(), |sink| sink.records(&batch));
        let recorded = batch.len();
        context.recorded.fetch_add(recorded as u64, Ordering::Relaxed);
        batch.clear();
        self.batch = batch;
        recorded
    }

    /// Makes ahead what launching threads would have to make, unless nobody begins zones.
    fn provide(&self, streams: &[Stream]) {
        if !self.recorder.is_on() {
            return;
        }
        for stream in streams {
            if let Some(backend) = &stream.context.backend {
                backend.provide();
            }
            stream.context.grow_ahead(stream.given_back);
        }
    }

    /// Lets go of streams that the application has let go of, and of GPU streams that rest: a destroyed one cannot be told
    /// from one that is not used, and one that is used again is met anew.
    fn let_go(&self, streams: &[Stream]) {
        let crowded = streams.len() > CROWD;
        let now = Instant::now();
        for stream in streams {
            let rests = now.duration_since(stream.active.0) >= if crowded { SHORT_REST } else { LONG_REST };
            let is_over = stream.context.forgotten.load(Ordering::Acquire) || (stream.is_cuda() && rests);
            if is_over
                && !stream.context.is_retired()
                && stream.pending.is_empty()
                && stream.context.account().is_settled()
            {
                self.recorder.let_go(&stream.context);
            }
        }
    }

    /// Forgets a stream that was let go of, once every zone that began on it is accounted for.
    fn retire(&self, stream: &Stream) -> bool {
        stream.context.is_retired() && stream.pending.is_empty() && self.recorder.retire(&stream.context)
    }
}

/// Without the feature there are none.
#[cfg(not(feature = "timeline"))]
impl Collector {
    fn pass_waits(&mut self, _: bool) -> usize {
        0
    }

    fn holds_waits(&self) -> bool {
        false
    }

    fn forget_stream(&mut self, _: &Stream) {}
}

/// Without the feature there are none.
#[cfg(not(feature = "cupti"))]
impl Collector {
    fn pass_kernels(&mut self) -> usize {
        0
    }

    fn end_kernels(&mut self) {}
}

/// There is no flight recorder.
#[cfg(not(unix))]
impl Collector {
    fn watch(&mut self) {}

    fn watch_last(&mut self) {}

    fn tell_failure(&mut self, _: &mut Stream, _: &BackendError) {}
}

/// Without the feature there are none.
#[cfg(not(feature = "cuda"))]
impl Collector {
    fn pass_stamps(&mut self, _last: bool) -> usize {
        0
    }
}

/// Without the feature there are none.
#[cfg(not(feature = "tracing"))]
impl Collector {
    fn has_new_spans(&self) -> bool {
        false
    }

    fn pass_spans(&mut self) -> usize {
        0
    }
}
