//! The thread that listens: it sleeps until somebody connects, and does a bounded amount of work for each who does.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::{Connection, Shared};
use super::host::{self, Hold};
use super::socket::{self, Socket};
use super::sys;
use super::waker::Waker;
use crate::settings::Config;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::peer::out_of_descriptors;
use warpline_core::process::Process;
use warpline_trace::control::protocol::Refusal;

/// The most connections at one time; more are sent away at once.
const CONNECTIONS: usize = 16;

/// So many connections are looked at in a row; then the listener is left alone for a while, so that a flood of them costs a
/// small share of a core.
const IN_A_ROW: u32 = 32;
const AFTER: Duration = Duration::from_millis(20);

/// The longest that the end of a session waits for who still reads.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The one that listens in this process, if any does.
static LISTENING: PerProcess<Mutex<Weak<Inner>>> = PerProcess::new(Mutex::default);

/// As long as somebody has one, this process listens.
pub(crate) struct Listening(Arc<Inner>);

struct Inner {
    process: Process,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Listening {
    /// Listens, or takes part in what listens already. A recording that is asked for goes by the settings `base`; where the program
    /// has no session, `hold` starts one for it.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub(crate) fn start(base: &Config, hold: Hold) -> Result<Listening, String> {
        let mut listening = lock(&LISTENING);
        if let Some(inner) = listening.upgrade().filter(|inner| inner.process.is_this()) {
            return Ok(Listening(inner));
        }
        let socket = Socket::listen()?;
        let (waker, woken) = Waker::pair().map_err(|error| {
            let other = || format!("cannot make a pair of sockets: {error}; close files, and start a session again");
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server {
            socket,
            woken,
            stop: Arc::clone(&stop),
            shared: Shared { base: base.clone(), hold, waker: Arc::clone(&waker) },
            connections: Vec::new(),
            seats: 0,
            row: 0,
            row_began: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("warpline-ctl".to_owned()).spawn(move || server.run());
        let thread = thread.map_err(|error| {
            format!("cannot start the thread that listens: {error}; raise `ulimit -u`, or end threads")
        })?;
        let inner = Arc::new(Inner { process: Process::this(), stop, waker, thread: Mutex::new(Some(thread)) });
        *listening = Arc::downgrade(&inner);
        Ok(Listening(inner))
    }
}

impl Drop for Listening {
    /// The last one ends it.
    fn drop(&mut self) {
        if !self.0.process.is_this() {
            // The thread, and whoever holds the lock, are in the process that this one was forked from.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        // Under the lock, so that nobody listens anew before the socket is gone.
        let mut listening = lock(&LISTENING);
        if Arc::strong_count(&self.0) > 1 {
            return;
        }
        *listening = Weak::new();
        self.0.stop.store(true, Ordering::Release);
        self.0.waker.wake();
        if let Some(thread) = lock(&self.0.thread).take() {
            let _ = thread.join();
        }
        drop(listening);
    }
}

struct Server {
    socket: Socket,
    woken: UnixStream,
    stop: Arc<AtomicBool>,
    shared: Shared,
    connections: Vec<Connection>,
    /// How many of them are in a session.
    seats: usize,
    /// Connections since the listener was last left alone.
    row: u32,
    row_began: Instant,
}

impl Server {
    fn run(mut self) {
        warpline_core::inside::stay();
        let mut ending: Option<Instant> = None;
        loop {
            let now = Instant::now();
            // The program's session is over: what was recorded of it is still sent, if that takes no time.
            if ending.is_none() && self.stop.load(Ordering::Acquire) {
                ending = Some(now + ENDS_WITHIN);
                self.connections.retain(|connection| !connection.is_asking());
                self.stop_recordings("session", now);
            }
            if ending.is_some_and(|ending| now >= ending || self.connections.is_empty()) {
                break;
            }
            if now.duration_since(self.row_began) >= AFTER {
                (self.row, self.row_began) = (0, now);
            }
            let is_open = self.row < IN_A_ROW && ending.is_none();
            let opens = ending.or((!is_open).then(|| self.row_began + AFTER));
            let until = self.connections.iter().filter_map(Connection::wants_turn).chain(opens).min();
            let mut polls = vec![sys::interest(&self.woken, sys::IN)];
            polls.push(sys::interest(self.socket.listener(), if is_open { sys::IN } else { 0 }));
            polls.extend(self.connections.iter().map(Connection::interest));
            sys::poll(&mut polls, until.map(|until| until.saturating_duration_since(now)));
            self.hear();
            let now = Instant::now();
            let mut stops = false;
            for (index, poll) in polls.iter().skip(2).enumerate() {
                let (before, rest) = self.connections.split_at_mut(index);
                let Some((connection, after)) = rest.split_first_mut() else { break };
                let others = before.iter().chain(&*after);
                stops |= connection.turn(poll.revents, now, &self.shared, others);
            }
            if stops {
                self.stop_recordings("stopped", now);
            }
            self.connections.retain(|connection| !connection.is_done());
            let seats = self.connections.iter().filter(|connection| connection.seat().is_some()).count();
            if seats == 0 && (self.seats > 0 || host::holds_one()) {
                host::release_session();
            }
            self.seats = seats;
            if is_open && polls.get(1).is_some_and(|poll| poll.revents != 0) {
                self.accept(now);
            }
        }
        // The program comes first: what was asked for is cut, and what was held ends.
        self.connections.clear();
        host::release_session();
    }

    /// Every recording ends, for this reason.
    fn stop_recordings(&mut self, why: &'static str, now: Instant) {
        for index in 0..self.connections.len() {
            let (before, rest) = self.connections.split_at_mut(index);
            let Some((connection, after)) = rest.split_first_mut() else { break };
            connection.stop(why, now, before.iter().chain(&*after));
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.row < IN_A_ROW {
            let accepted = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Asking again at once would find the same.
                Err(_) => {
                    (self.row, self.row_began) = (IN_A_ROW, now);
                    break;
                }
            };
            self.row += 1;
            let Some(stream) = accepted else { continue };
            if self.connections.len() < CONNECTIONS {
                self.connections.push(Connection::new(stream, now));
            } else {
                socket::refuse(
                    &stream,
                    &Refusal::new("busy", format!("{CONNECTIONS} connections are open already; try again")),
                );
            }
        }
    }

    /// Takes what woke it, all at once.
    fn hear(&mut self) {
        let mut calls = [0; 64];
        while matches!((&self.woken).read(&mut calls), Ok(count) if count == calls.len()) {}
    }
}
