//! The server's thread: it sleeps until a socket is ready or a deadline passes, and does a bounded amount of work per connection.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::{Connection, Shared};
use super::socket::{self, Socket};
use super::sys;
use super::waker::Waker;
use crate::collector::engine;
use crate::settings::Config;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::socket_peer::out_of_descriptors;
use warpline_core::threads;
use warpline_trace::control::protocol::Refusal;

/// The maximum number of open connections. Further ones are refused at once.
const CONNECTIONS: usize = 16;

/// Rate limit: at most this many connections are accepted in each period of [`AFTER`], so that a flood costs a small share of a
/// core.
const IN_A_ROW: u32 = 32;
const AFTER: Duration = Duration::from_millis(20);

/// How long the end of a session waits for clients that still read.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The server of this process, if it is running.
static LISTENING: PerProcess<Mutex<Weak<Inner>>> = PerProcess::new(Mutex::default);

/// A handle to the server of this process. The server runs until the last handle is dropped.
pub(crate) struct Listening(Arc<Inner>);

struct Inner {
    process: Process,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Listening {
    /// Starts the server, or returns a handle to the one that is running. A requested recording uses the settings `base` if the
    /// program has no session.
    ///
    /// # Errors
    /// The reason and the remedy.
    pub(crate) fn start(base: &Config) -> Result<Listening, String> {
        let mut listening = lock(&LISTENING);
        if let Some(inner) = listening.upgrade().filter(|inner| inner.process.is_this()) {
            return Ok(Listening(inner));
        }
        let socket = Socket::listen()?;
        let (waker, woken) = Waker::pair().map_err(|error| {
            let other = || format!("cannot create a pair of sockets: {error}; close files, and start a session again");
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server {
            socket,
            woken,
            stop: Arc::clone(&stop),
            shared: Shared { base: base.clone(), waker: Arc::clone(&waker) },
            connections: Vec::new(),
            row: 0,
            row_began: Instant::now(),
        };
        let thread = threads::spawn("warpline-ctl", move || server.run());
        let thread = thread.map_err(|error| {
            format!("cannot start the thread that listens: {error}; raise `ulimit -u`, or end threads")
        })?;
        let inner = Arc::new(Inner { process: Process::this(), stop, waker, thread: Mutex::new(Some(thread)) });
        *listening = Arc::downgrade(&inner);
        Ok(Listening(inner))
    }
}

impl Drop for Listening {
    /// Stops the server when the last handle is dropped.
    fn drop(&mut self) {
        if !self.0.process.is_this() {
            // This process was forked: the thread, and possibly the holder of the lock, exist only in the parent.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        // Holding the lock keeps a new server from starting before the socket is removed.
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
    /// Connections accepted since `row_began`.
    row: u32,
    row_began: Instant,
}

impl Server {
    fn run(mut self) {
        warpline_core::reentrancy::stay();
        let mut ending: Option<Instant> = None;
        loop {
            let now = Instant::now();
            // The program's session is over: recorded data is still sent, until the deadline.
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
            let is_unused = self.connections.iter().all(|connection| connection.subscriber().is_none());
            if is_unused && engine::current().is_some_and(|engine| engine.is_held) {
                engine::end_held();
            }
            if is_open && polls.get(1).is_some_and(|poll| poll.revents != 0) {
                self.accept(now);
            }
        }
        // The program does not wait any longer: drop the connections and end a held engine.
        self.connections.clear();
        engine::end_held();
    }

    /// Ends every recording, watch and armed request with this reason.
    fn stop_recordings(&mut self, why: &'static str, now: Instant) {
        self.connections.iter_mut().for_each(|connection| connection.stop(why, now));
    }

    fn accept(&mut self, now: Instant) {
        while self.row < IN_A_ROW {
            let accepted = match self.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Retrying at once would fail again: wait for the next period.
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

    /// Drains the waker's bytes.
    fn hear(&mut self) {
        let mut calls = [0; 64];
        while matches!((&self.woken).read(&mut calls), Ok(count) if count == calls.len()) {}
    }
}
