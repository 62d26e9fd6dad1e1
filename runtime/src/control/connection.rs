//! One who connected: what is asked for, what has become of it, what is still to be sent.
//!
//! A connection has one request. Whoever says no more (the end of what they send), goes away, or does not read for a while,
//! ends what was begun for them. Nothing here waits.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answers;
use super::host::{self, Seat};
use super::pipe::{Pipe, Writer};
use super::protocol::{self, Decoder, Kind, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Refusal, Request};
use super::server::Waker;
use super::sys;
use super::watch::{Watch, WatchSink};
use crate::catalog::catalog;
use crate::clock::now_ns;
use crate::collector::{Guest, Over, Tie, lock};
use crate::flight::Flight;
use crate::kernel::KernelRecord;
use crate::profile::{PendingZones, ProfileError, profile_range};
use crate::record::{SpanRecord, ZoneRecord};
use crate::replay::ReplayRecord;
use crate::session::Report;
use crate::session::config::{Config, Filter};
use crate::sink::{PerfettoSink, SessionChange, SessionInfo, Sink};
use crate::wait::{QueueDepth, WaitRecord};

/// A request is there within this time, or never.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// Who takes nothing for so long does not read.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// A session sees a guest off within this time; a sink of the program's may keep it from that.
const LEAVES_WITHIN: Duration = Duration::from_secs(4);

/// Between two looks for zones that were asked for.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// A collector comes to it within this time; a sink of the program's may keep it from that.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// The most recordings and watchers at one time, so that their memory is bounded.
const SEATS: usize = 4;

/// A piece of a trace, and how many of them a connection gets at once.
const PIECE: usize = 64 << 10;

/// What every connection is served with.
pub(super) struct Shared {
    pub(super) base: Config,
    pub(super) waker: Arc<Waker>,
}

pub(super) struct Connection {
    stream: UnixStream,
    state: State,
    out: Vec<u8>,
    sent: usize,
    /// When it last took something, or had nothing to take.
    took: Instant,
    /// There was nothing left to take at the last turn.
    has_all: bool,
    /// The other end says no more.
    is_heard: bool,
    /// The other end is gone, or not worth listening to.
    is_gone: bool,
}

enum State {
    Asking {
        decoder: Decoder,
        until: Instant,
    },
    Recording(Recording),
    Watching(Watching),
    Arming(Arming),
    Dumping(Dumping),
    /// What is left to send, and no more.
    Telling,
}

struct Recording {
    seat: Seat,
    pipe: Arc<Pipe>,
    until: Option<Instant>,
    leaving: Option<Leaving>,
    /// Of what was taken out of the pipe, what is not sent yet.
    rest: Vec<u8>,
}

struct Watching {
    seat: Seat,
    watch: Arc<Mutex<Watch>>,
    every: Duration,
    last: Instant,
    leaving: Option<Leaving>,
}

#[derive(Clone, Copy)]
struct Leaving {
    since: Instant,
    why: &'static str,
}

struct Arming {
    pending: PendingZones,
    until: Instant,
    next: Instant,
}

/// The collector writes down what it knows.
struct Dumping {
    flight: Arc<Flight>,
    written: Receiver<()>,
    until: Instant,
    next: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, now: Instant) -> Connection {
        let state = State::Asking { decoder: Decoder::new(MAX_REQUEST_BYTES), until: now + ASKS_WITHIN };
        Connection {
            stream,
            state,
            out: Vec::new(),
            sent: 0,
            took: now,
            has_all: true,
            is_heard: false,
            is_gone: false,
        }
    }

    pub(super) fn interest(&self) -> sys::Poll {
        if self.is_gone {
            return sys::Poll { fd: -1, events: 0, revents: 0 };
        }
        let (hears, tells) = (!self.is_heard, self.has_to_send());
        sys::interest(&self.stream, if hears { sys::IN } else { 0 } | if tells { sys::OUT } else { 0 })
    }

    /// When it has something to do though nothing comes.
    pub(super) fn wants_turn(&self) -> Option<Instant> {
        let leaves = |leaving: &Option<Leaving>| leaving.map(|leaving| leaving.since + LEAVES_WITHIN);
        let own = match &self.state {
            State::Asking { until, .. } => Some(*until),
            // What is over has only to be sent.
            State::Recording(of) if of.seat.tie().over().is_some() => None,
            State::Recording(of) => leaves(&of.leaving).or(of.until),
            State::Watching(of) => leaves(&of.leaving).or(Some(of.last + of.every)),
            State::Arming(of) => Some(of.next),
            State::Dumping(of) => Some(of.next),
            State::Telling => None,
        };
        let reads = (self.has_to_send() && !self.is_gone).then(|| self.took + READS_WITHIN);
        own.into_iter().chain(reads).min()
    }

    /// Its place in a session, as long as it has one.
    pub(super) fn seat(&self) -> Option<&Seat> {
        match &self.state {
            State::Recording(of) => Some(&of.seat),
            State::Watching(of) => Some(&of.seat),
            _ => None,
        }
    }

    /// Whether it has not said yet what it wants.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking { .. })
    }

    /// Whether there is nothing left to do for it.
    pub(super) fn is_done(&self) -> bool {
        match &self.state {
            State::Telling => self.is_gone || !self.has_to_send(),
            State::Asking { .. } | State::Arming(_) | State::Dumping(_) => self.is_gone,
            State::Recording(_) | State::Watching(_) => false,
        }
    }

    /// Does what there is to do now. Says whether it asks for all recordings to end.
    pub(super) fn turn<'a>(
        &mut self,
        events: i16,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) -> bool {
        if events & sys::GONE != 0 {
            self.is_gone = true;
        }
        if self.has_all {
            self.took = now;
        }
        let request = if events & sys::IN != 0 { self.hear() } else { None };
        let stops = request == Some(Request::Stop);
        if let Some(request) = request {
            self.carry_out(request, now, shared, others.clone());
        }
        if self.has_to_send() && now.duration_since(self.took) >= READS_WITHIN {
            self.is_gone = true;
        }
        self.go_on(now, others.clone());
        self.send(now);
        // With the last piece of a trace on its way nothing else may come that makes a turn: its end is told in this one.
        if !self.has_to_send() && matches!(&self.state, State::Recording(of) if of.seat.tie().over().is_some()) {
            self.go_on(now, others);
            self.send(now);
        }
        self.has_all = !self.has_to_send();
        stops
    }

    /// Ends what it has begun: somebody asked for that, or the session is over.
    pub(super) fn stop<'a>(&mut self, why: &'static str, now: Instant, others: impl Iterator<Item = &'a Connection>) {
        if matches!(self.state, State::Arming(_)) {
            self.tell_last(&answers::over(why));
        }
        self.leave(why, now, others);
        self.send(now);
    }

    /// Reads what came; gives the request when it is whole.
    fn hear(&mut self) -> Option<Request> {
        let State::Asking { decoder, .. } = &mut self.state else {
            let mut any = [0; 1];
            match (&self.stream).read(&mut any) {
                Ok(0) => self.is_heard = true,
                // One request a connection: what else comes is nothing that has to be understood.
                Ok(_) => self.is_gone = true,
                Err(error) => self.is_gone |= !is_passing(&error),
            }
            return None;
        };
        let mut bytes = [0; 4096];
        let room = decoder.room().min(bytes.len());
        match (&self.stream).read(&mut bytes[..room]) {
            Ok(0) => self.is_gone = true,
            Ok(count) => decoder.feed(&bytes[..count]),
            Err(error) => self.is_gone |= !is_passing(&error),
        }
        let parsed = match decoder.take() {
            Ok(None) => return None,
            Ok(Some(_)) if !decoder.is_empty() => Err(Refusal::new("request", "there is one request a connection")),
            Ok(Some((Kind::Json, body))) => Request::parse(&body),
            Ok(Some((Kind::Trace, _))) => Err(Refusal::new("request", "a request is JSON")),
            Err(error) => Err(Refusal::new("frame", error.to_string())),
        };
        parsed.map_err(|refusal| self.refuse(&refusal)).ok()
    }

    fn carry_out<'a>(
        &mut self,
        request: Request,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) {
        let begun = match request {
            Request::Status => {
                let recordings = others.clone().filter(|other| matches!(other.state, State::Recording(_))).count();
                let watchers = others.filter(|other| matches!(other.state, State::Watching(_))).count();
                self.tell_last(&answers::status(host::current().as_ref(), recordings, watchers));
                Ok(())
            }
            Request::Stop => {
                let ends = others.filter(|other| other.seat().is_some() || matches!(other.state, State::Arming(_)));
                self.tell_last(&json!({"is": "stopped", "ended": ends.count()}));
                Ok(())
            }
            Request::Record { for_ms, filter, kernels } => {
                let until = for_ms.map(|ms| now + Duration::from_millis(ms));
                self.record(until, &filter, kernels, shared, others)
            }
            Request::Watch { every_ms } => self.watch(Duration::from_millis(every_ms), now, shared, others),
            Request::Arm { range, zones, for_ms } => {
                let pending = profile_range(range.as_str(), zones);
                self.tell(&json!({"is": "armed"}));
                self.state = State::Arming(Arming { pending, until: now + Duration::from_millis(for_ms), next: now });
                Ok(())
            }
            Request::Dump => self.dump(now),
        };
        if let Err(refusal) = begun {
            self.refuse(&refusal);
        }
    }

    fn record<'a>(
        &mut self,
        until: Option<Instant>,
        filter: &str,
        kernels: bool,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) -> Result<(), Refusal> {
        let filters = Filter::parse_all(filter).map_err(|error| Refusal::new("filter", error.to_string()))?;
        let pipe = Pipe::new(Arc::clone(&shared.waker));
        let sink = RecordSink { sink: PerfettoSink::new(Writer(Arc::clone(&pipe))), pipe: Arc::clone(&pipe) };
        let seat = take_seat(Box::new(sink), filters, kernels, shared, others)?;
        let session = seat.session();
        let mut notes = Vec::new();
        let mut note = |text: &str| notes.push(text.to_owned());
        if !session.is_held && !session.is_recording() {
            note("the program's own session is stopped: nothing comes until the program starts it again");
        }
        if kernels {
            match (&session.kernels, session.is_held) {
                (Some(Ok(())), _) => {}
                (Some(Err(why)), _) => note(&format!("no kernels are recorded: {why}")),
                (None, _) if cfg!(not(feature = "cupti")) => {
                    note("no kernels are recorded: this program was built without warpline's feature `cupti`");
                }
                (None, true) => {
                    note("no kernels are recorded: another recording without them is on; try again when it is over");
                }
                (None, false) => {
                    note("no kernels are recorded: the program's own session records none; start it with `kernels`");
                }
            }
        }
        self.tell(&answers::started(session, &notes));
        self.state = State::Recording(Recording { seat, pipe, until, leaving: None, rest: Vec::new() });
        Ok(())
    }

    /// Has the collector write down what it knows. Who asked reads the file then; this process copies nothing.
    fn dump(&mut self, now: Instant) -> Result<(), Refusal> {
        let flight = host::current().and_then(|session| session.flight);
        let flight = flight.ok_or_else(|| {
            Refusal::new("no_flight", "it has no flight recorder; start it with `control,flight=64MiB`")
        })?;
        let written = flight.ask_for_all();
        self.state = State::Dumping(Dumping { flight, written, until: now + WRITES_WITHIN, next: now });
        Ok(())
    }

    fn watch<'a>(
        &mut self,
        every: Duration,
        now: Instant,
        shared: &Shared,
        others: impl Iterator<Item = &'a Connection> + Clone,
    ) -> Result<(), Refusal> {
        let watch = Arc::<Mutex<Watch>>::default();
        let seat = take_seat(Box::new(WatchSink(Arc::clone(&watch))), Vec::new(), false, shared, others)?;
        self.tell(&answers::started(seat.session(), &[]));
        self.state = State::Watching(Watching { seat, watch, every, last: now, leaving: None });
        Ok(())
    }

    /// What goes on without a word from the other end.
    fn go_on<'a>(&mut self, now: Instant, others: impl Iterator<Item = &'a Connection>) {
        let ends = match &self.state {
            State::Asking { until, .. } if now >= *until => {
                self.is_gone = true;
                return;
            }
            State::Recording(Recording { until: Some(until), .. }) if now >= *until => Some("time"),
            State::Recording(_) | State::Watching(_) if self.is_gone || self.is_heard => Some("asked"),
            _ => None,
        };
        if let Some(why) = ends {
            self.leave(why, now, others);
        }
        match &mut self.state {
            State::Recording(of) => {
                let (over, is_late) = (of.seat.tie().over(), is_late(of.leaving, now));
                let is_over = over.is_some();
                let is_sent = of.rest.is_empty() && of.pipe.is_empty() && self.out.len() == self.sent;
                if self.is_gone && (over.is_some() || is_late) {
                    self.state = State::Telling;
                } else if let Some(over) = over.filter(|_| is_sent) {
                    let why = why(&over, of.leaving, &of.seat);
                    self.tell_last(&answers::ended(why, &over));
                } else if is_late && !is_over {
                    self.refuse(&Refusal::new("late", "the program's session did not end the recording in time"));
                }
            }
            State::Watching(of) => {
                let over = of.seat.tie().over();
                if let Some(over) = over {
                    let why = why(&over, of.leaving, &of.seat);
                    self.tell_last(&answers::over(why));
                } else if is_late(of.leaving, now) {
                    self.state = State::Telling;
                } else if of.leaving.is_none() && now >= of.last + of.every {
                    let tick = of.look(now);
                    // Who has not read the last figures misses these.
                    if !self.has_to_send() {
                        self.tell(&tick);
                    }
                }
            }
            State::Arming(_) => self.look_for_zones(now),
            State::Dumping(of) => {
                of.next = now + LOOKS_EVERY;
                let answer = of.written.try_recv();
                if answer != Err(TryRecvError::Empty) || now >= of.until {
                    let found = answers::flight(of.flight.ring(), answer.is_ok());
                    self.tell_last(&found);
                }
            }
            State::Asking { .. } | State::Telling => {}
        }
    }

    fn look_for_zones(&mut self, now: Instant) {
        if self.is_heard {
            self.is_gone = true;
        }
        let State::Arming(of) = &mut self.state else { return };
        of.next = now + LOOKS_EVERY;
        let mut zones = Vec::new();
        // What is not read yet is enough for now.
        while self.out.len() < MAX_REPLY_BYTES {
            let Some(zone) = of.pending.try_next() else { break };
            if let Err(error @ ProfileError::NoSuchRange { .. }) = &zone {
                self.refuse(&Refusal::new("no_range", error.to_string()));
                return;
            }
            protocol::frame(Kind::Json, answers::zone(&zone).to_string().as_bytes(), &mut self.out);
            zones.push(());
        }
        let (to_come, is_late) = (of.pending.to_come(), now >= of.until);
        if zones.is_empty() && (to_come == 0 || is_late) {
            let mut end = answers::over(if to_come == 0 { "done" } else { "time" });
            if to_come > 0
                && let Some(Err(error)) = of.pending.next(Duration::ZERO)
            {
                (end["to_come"], end["text"]) = (to_come.into(), error.to_string().into());
                end["code"] = answers::why_not(&error).into();
            }
            self.tell_last(&end);
        }
    }

    fn leave<'a>(&mut self, why: &'static str, now: Instant, others: impl Iterator<Item = &'a Connection>) {
        let (seat, leaving) = match &mut self.state {
            State::Recording(of) => (&of.seat, &mut of.leaving),
            State::Watching(of) => (&of.seat, &mut of.leaving),
            _ => return,
        };
        // One that is over already ended for another reason.
        if leaving.is_none() && seat.tie().over().is_none() {
            *leaving = Some(Leaving { since: now, why });
            seat.leave(&staying(others));
        }
    }

    fn refuse(&mut self, refusal: &Refusal) {
        protocol::frame(Kind::Json, refusal.to_json().as_bytes(), &mut self.out);
        self.state = State::Telling;
    }

    fn tell(&mut self, reply: &Value) {
        protocol::frame(Kind::Json, reply.to_string().as_bytes(), &mut self.out);
    }

    fn tell_last(&mut self, reply: &Value) {
        self.tell(reply);
        self.state = State::Telling;
    }

    fn has_to_send(&self) -> bool {
        let waits = matches!(&self.state, State::Recording(of) if !of.rest.is_empty() || !of.pipe.is_empty());
        self.sent < self.out.len() || waits
    }

    /// Sends what there is room for, pieces of a trace behind what is told.
    fn send(&mut self, now: Instant) {
        if self.is_gone {
            return;
        }
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                if let State::Recording(of) = &mut self.state {
                    of.next_piece(&mut self.out);
                }
                if self.out.is_empty() {
                    return;
                }
            }
            match sys::send(&self.stream, &self.out[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.took = now;
                }
                Err(error) => {
                    self.is_gone |= !is_passing(&error);
                    return;
                }
            }
        }
    }
}

impl Recording {
    fn next_piece(&mut self, out: &mut Vec<u8>) {
        if self.rest.is_empty() {
            self.rest = self.pipe.take();
        }
        let piece = self.rest.len().min(PIECE);
        if piece > 0 {
            protocol::frame(Kind::Trace, &self.rest[..piece], out);
            self.rest.drain(..piece);
        }
    }
}

impl Watching {
    fn look(&mut self, now: Instant) -> Value {
        let length_ns = answers::since_ns(self.last, now);
        self.last = now;
        let (devices, ranges) = lock(&self.watch).look(now_ns(), length_ns);
        let session = self.seat.session();
        json!({
            "is": "figures",
            "seconds": length_ns as f64 / 1e9,
            "session": if session.is_held { "held" } else { "own" },
            "is_recording": session.is_recording(),
            "zones": answers::account(&session.recorder.account()),
            "devices": devices,
            "ranges": ranges,
            "ranges_in_catalog": catalog().len(),
        })
    }
}

fn take_seat<'a>(
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    kernels: bool,
    shared: &Shared,
    others: impl Iterator<Item = &'a Connection> + Clone,
) -> Result<Seat, Refusal> {
    if others.clone().filter(|other| other.seat().is_some()).count() >= SEATS {
        let text =
            format!("{SEATS} recordings and watchers are on already; `warpline stop {}` ends them", std::process::id());
        return Err(Refusal::new("busy", text));
    }
    let waker = Arc::clone(&shared.waker);
    let tie = Tie::new(move || waker.wake());
    let info = SessionInfo::now(catalog().records().catalog_hash());
    host::seat(Guest { sink, filters, info, tie }, &shared.base, kernels, &staying(others))
}

/// The seats of those who are in a session that is held, and stay.
fn staying<'a>(connections: impl Iterator<Item = &'a Connection>) -> Vec<&'a Seat> {
    let seats = connections.filter_map(|connection| match &connection.state {
        State::Recording(of) if of.leaving.is_none() => Some(&of.seat),
        State::Watching(of) if of.leaving.is_none() => Some(&of.seat),
        _ => None,
    });
    seats.filter(|seat| seat.session().is_held).collect()
}

fn is_late(leaving: Option<Leaving>, now: Instant) -> bool {
    leaving.is_some_and(|leaving| now.duration_since(leaving.since) >= LEAVES_WITHIN)
}

/// Why it ended: as was asked, or because its session did.
fn why(over: &Over, leaving: Option<Leaving>, seat: &Seat) -> &'static str {
    match leaving {
        Some(leaving) => leaving.why,
        None if over.with_session && seat.session().is_held => "yielded",
        None => "session",
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A trace for a connection.
struct RecordSink {
    sink: PerfettoSink,
    pipe: Arc<Pipe>,
}

impl Sink for RecordSink {
    fn start(&mut self, session: &SessionInfo) -> std::io::Result<()> {
        self.sink.start(session)
    }

    fn records(&mut self, batch: &[ZoneRecord]) -> std::io::Result<()> {
        self.sink.records(batch)
    }

    fn spans(&mut self, batch: &[SpanRecord]) -> std::io::Result<()> {
        self.sink.spans(batch)
    }

    fn kernels(&mut self, batch: &[KernelRecord]) -> std::io::Result<()> {
        self.sink.kernels(batch)
    }

    fn replays(&mut self, batch: &[ReplayRecord]) -> std::io::Result<()> {
        self.sink.replays(batch)
    }

    fn waits(&mut self, batch: &[WaitRecord]) -> std::io::Result<()> {
        self.sink.waits(batch)
    }

    fn depths(&mut self, batch: &[QueueDepth]) -> std::io::Result<()> {
        self.sink.depths(batch)
    }

    fn changes(&mut self, batch: &[SessionChange]) -> std::io::Result<()> {
        self.sink.changes(batch)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }

    fn finish(&mut self, report: &Report) -> std::io::Result<()> {
        self.pipe.end();
        self.sink.finish(report)
    }
}
