//! A client's connection: its request, its state, and the bytes to send.
//!
//! A connection carries one request. The request ends early when the client closes its sending side, disconnects, or stops reading.
//! `begin` starts the request, `state` holds its state, `progress` advances it until it is done, and `sink` writes the trace of a
//! recording. Nothing here blocks.

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
use super::sys;
use super::waker::Waker;
use crate::collector::engine::Subscriber;
use crate::settings::Config;
use warpline_core::fork::NotInChildren;
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{ControlRequest, Decoder, Kind, MAX_REQUEST_BYTES, Refusal};

use state::{ConnectionState, LEAVES_WITHIN, Leaving};

/// Deadline for receiving the request.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// A client that accepts no bytes for this long is dropped.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// Deadline for sending the rest once the last reply is ready.
const TAKES_ALL_WITHIN: Duration = Duration::from_secs(30);

/// The state that all connections share.
pub(super) struct Shared {
    pub(super) base: Config,
    pub(super) waker: Arc<Waker>,
}

pub(super) struct Connection {
    /// Closes the socket in forked children, so that the client sees the end of this process.
    _not_in_children: NotInChildren,
    stream: UnixStream,
    state: ConnectionState,
    out: Vec<u8>,
    sent: usize,
    /// When the client last accepted bytes, or had nothing pending.
    took: Instant,
    /// When the last reply became ready.
    told: Option<Instant>,
    /// Whether nothing was left to send after the last turn.
    has_all: bool,
    /// Whether the client has closed its sending side.
    is_heard: bool,
    /// Whether the client has disconnected, or the connection must be dropped.
    is_gone: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, now: Instant) -> Connection {
        let state = ConnectionState::Asking { decoder: Decoder::new(MAX_REQUEST_BYTES), until: now + ASKS_WITHIN };
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

    /// Returns the time at which the connection needs a turn without an event.
    pub(super) fn wants_turn(&self) -> Option<Instant> {
        let leaves = |leaving: &Option<Leaving>| leaving.map(|leaving| leaving.since + LEAVES_WITHIN);
        let own = match &self.state {
            ConnectionState::Asking { until, .. } => Some(*until),
            // A finished recording has only bytes to send.
            ConnectionState::Recording(of) if of.subscriber.outcome().is_some() => None,
            ConnectionState::Recording(of) => leaves(&of.leaving).or(of.until),
            ConnectionState::Watching(of) => leaves(&of.leaving).or(Some(of.last + of.every)),
            ConnectionState::Arming(of) => Some(of.next),
            ConnectionState::Dumping(of) => Some(of.next),
            ConnectionState::Telling => None,
        };
        let reads = (self.has_to_send() && !self.is_gone).then(|| self.took + READS_WITHIN);
        let takes_all = self.told.filter(|_| !self.is_gone).map(|told| told + TAKES_ALL_WITHIN);
        own.into_iter().chain(reads).chain(takes_all).min()
    }

    /// Returns the connection's subscription, until its end has been reported.
    pub(super) fn subscriber(&self) -> Option<&Subscriber> {
        match &self.state {
            ConnectionState::Recording(of) => Some(&of.subscriber),
            ConnectionState::Watching(of) => Some(&of.subscriber),
            _ => None,
        }
    }

    /// Returns whether the request is still incomplete.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, ConnectionState::Asking { .. })
    }

    /// Returns whether everything that will be sent is ready.
    fn is_told(&self) -> bool {
        match &self.state {
            ConnectionState::Telling => true,
            ConnectionState::Recording(of) => of.subscriber.outcome().is_some(),
            _ => false,
        }
    }

    /// Returns whether the connection can be closed.
    pub(super) fn is_done(&self) -> bool {
        match &self.state {
            ConnectionState::Telling => self.is_gone || !self.has_to_send(),
            ConnectionState::Asking { .. } | ConnectionState::Arming(_) | ConnectionState::Dumping(_) => self.is_gone,
            ConnectionState::Recording(_) | ConnectionState::Watching(_) => false,
        }
    }

    /// Handles events and deadlines. Returns true if the client requested the end of all recordings.
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
        let stops = request == Some(ControlRequest::Stop);
        if let Some(request) = request {
            self.carry_out(request, now, shared, others);
        }
        if self.has_to_send() && now.duration_since(self.took) >= READS_WITHIN {
            self.is_gone = true;
        }
        if self.is_told() && now.duration_since(*self.told.get_or_insert(now)) >= TAKES_ALL_WITHIN {
            self.is_gone = true;
        }
        self.go_on(now);
        self.send(now);
        // After the last piece of a trace no further event may arrive, so the end is reported in this turn.
        if !self.has_to_send()
            && matches!(&self.state, ConnectionState::Recording(of) if of.subscriber.outcome().is_some())
        {
            self.go_on(now);
            self.send(now);
        }
        self.has_all = !self.has_to_send();
        stops
    }

    /// Ends the connection's recording, watch or armed request, with the reason to report.
    pub(super) fn stop(&mut self, why: &'static str, now: Instant) {
        if matches!(self.state, ConnectionState::Arming(_)) {
            self.tell_last(&answers::over(why));
        }
        self.leave(why, now);
        self.send(now);
    }

    /// Reads from the socket. Returns the request when it is complete.
    fn hear(&mut self) -> Option<ControlRequest> {
        let ConnectionState::Asking { decoder, .. } = &mut self.state else {
            let mut any = [0; 1];
            match (&self.stream).read(&mut any) {
                Ok(0) => self.is_heard = true,
                // A connection carries one request: further data is a protocol error.
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
            Ok(Some(_)) if !decoder.is_empty() => Err(Refusal::new("request", "a connection accepts one request")),
            Ok(Some((Kind::Json, body))) => ControlRequest::parse(&body),
            Ok(Some((Kind::Trace, _))) => Err(Refusal::new("request", "a request is JSON")),
            Err(error) => Err(Refusal::new("frame", error.to_string())),
        };
        parsed.map_err(|refusal| self.refuse(&refusal)).ok()
    }

    fn refuse(&mut self, refusal: &Refusal) {
        protocol::frame(Kind::Json, refusal.to_json().as_bytes(), &mut self.out);
        self.state = ConnectionState::Telling;
    }

    fn tell(&mut self, reply: &Value) {
        protocol::frame(Kind::Json, reply.to_string().as_bytes(), &mut self.out);
    }

    fn tell_last(&mut self, reply: &Value) {
        self.tell(reply);
        self.state = ConnectionState::Telling;
    }

    fn has_to_send(&self) -> bool {
        let waits = matches!(&self.state, ConnectionState::Recording(of) if !of.rest.is_empty() || !of.pipe.is_empty());
        self.sent < self.out.len() || waits
    }

    /// Sends as much as the socket accepts: replies first, then pieces of the trace.
    fn send(&mut self, now: Instant) {
        if self.is_gone {
            return;
        }
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                if let ConnectionState::Recording(of) = &mut self.state {
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
        let (begin, shared) = (Instant::now(), Shared { base: Config::default(), waker });
        let mut connection = Connection::new(stream, begin);
        (connection.state, connection.out) = (ConnectionState::Telling, vec![0; 8 << 20]);
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
