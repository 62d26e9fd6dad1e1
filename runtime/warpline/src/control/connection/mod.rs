//! One who connected: what came from there, and what is still to be sent.
//!
//! A connection has one request. Whoever says no more (the end of what they send), goes away, or does not read for a while,
//! ends what was begun for them. `begin` begins what was asked for, `state` is what has been begun, `progress` goes on with it
//! until it is over, `sink` is a trace for who records. Nothing here waits.

mod begin;
mod progress;
mod sink;
mod state;

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::answers;
use super::host::{Hold, Seat};
use super::sys;
use super::waker::Waker;
use crate::settings::Config;
use warpline_core::fork::NotInChildren;
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Decoder, Kind, MAX_REQUEST_BYTES, Refusal, Request};

use state::{LEAVES_WITHIN, Leaving, State};

/// A request is there within this time, or never.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// Who takes nothing for so long does not read.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// A reader takes what is left within this time once nothing more is to come.
const TAKES_ALL_WITHIN: Duration = Duration::from_secs(30);

/// What every connection is served with.
pub(super) struct Shared {
    pub(super) base: Config,
    pub(super) hold: Hold,
    pub(super) waker: Arc<Waker>,
}

pub(super) struct Connection {
    /// The other end hears when this process ends, although a forked one lives.
    _not_in_children: NotInChildren,
    stream: UnixStream,
    state: State,
    out: Vec<u8>,
    sent: usize,
    /// When it last took something, or had nothing to take.
    took: Instant,
    /// When the last of what there is to send was ready.
    told: Option<Instant>,
    /// There was nothing left to take at the last turn.
    has_all: bool,
    /// The other end says no more.
    is_heard: bool,
    /// The other end is gone, or not worth listening to.
    is_gone: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, now: Instant) -> Connection {
        let state = State::Asking { decoder: Decoder::new(MAX_REQUEST_BYTES), until: now + ASKS_WITHIN };
        Connection {
            _not_in_children: NotInChildren::new(&stream),
            stream,
            state,
            out: Vec::new(),
            sent: 0,
            took: now,
            told: None,
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
            State::Recording(of) if of.seat.tie().outcome().is_some() => None,
            State::Recording(of) => leaves(&of.leaving).or(of.until),
            State::Watching(of) => leaves(&of.leaving).or(Some(of.last + of.every)),
            State::Arming(of) => Some(of.next),
            State::Dumping(of) => Some(of.next),
            State::Telling => None,
        };
        let reads = (self.has_to_send() && !self.is_gone).then(|| self.took + READS_WITHIN);
        let takes_all = self.told.filter(|_| !self.is_gone).map(|told| told + TAKES_ALL_WITHIN);
        own.into_iter().chain(reads).chain(takes_all).min()
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

    /// Whether all that there will be to send is ready.
    fn is_told(&self) -> bool {
        match &self.state {
            State::Telling => true,
            State::Recording(of) => of.seat.tie().outcome().is_some(),
            _ => false,
        }
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
        if self.is_told() && now.duration_since(*self.told.get_or_insert(now)) >= TAKES_ALL_WITHIN {
            self.is_gone = true;
        }
        self.go_on(now, others.clone());
        self.send(now);
        // With the last piece of a trace on its way nothing else may come that makes a turn: its end is told in this one.
        if !self.has_to_send() && matches!(&self.state, State::Recording(of) if of.seat.tie().outcome().is_some()) {
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

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_the_last_of_it_slowly_has_so_long_and_no_longer() {
        let (stream, other) = UnixStream::pair().expect("a pair of sockets");
        stream.set_nonblocking(true).expect("a socket");
        let (waker, _woken) = Waker::pair().expect("a pair of sockets");
        let hold: Hold = |_, _| Err(crate::error::Error::AlreadyRecording);
        let (begin, shared) = (Instant::now(), Shared { base: Config::default(), hold, waker });
        let mut connection = Connection::new(stream, begin);
        (connection.state, connection.out) = (State::Telling, vec![0; 8 << 20]);
        let ends = (0..60).find(|second| {
            if *second > 0 {
                (&other).read_exact(&mut [0; 100_000]).expect("there is more");
            }
            connection.turn(sys::OUT, begin + Duration::from_secs(*second), &shared, std::iter::empty());
            connection.is_done()
        });
        assert_eq!(ends, Some(TAKES_ALL_WITHIN.as_secs()), "it takes something each second");
    }
}
