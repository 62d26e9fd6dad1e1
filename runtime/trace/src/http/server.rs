//! The server: one thread that accepts, and a short-lived thread for each of a few connections.
//!
//! A connection has a deadline for its request and a text, however slowly its client sends or reads; a stream goes on while its client takes some of
//! it. Beyond [`MOST_CONNECTIONS`], a new connection ends the oldest one that has no stream. Slow clients therefore keep no
//! other client out, and they interrupt no transfer.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use warpline_core::lock::lock;
use warpline_core::threads;

use super::answer::{Answer, left};
use super::hosts::Hosts;
use super::request::{self, Head, HttpRequest};

/// The most connections at once.
const MOST_CONNECTIONS: usize = 8;

/// The most threads of connections: those of connections that were ended may need a moment.
const MOST_THREADS: usize = 2 * MOST_CONNECTIONS;

/// How often the thread that accepts looks whether they have ended.
const MOMENT: Duration = Duration::from_millis(1);

/// The longest time of a connection, but for a stream.
const DEADLINE: Duration = Duration::from_secs(5);

/// The time until the next try to accept where the system refuses.
const REFUSED: Duration = Duration::from_millis(50);

/// What a server serves. Its methods run on the server's threads.
pub trait Pages: Send + Sync + 'static {
    /// The stack of a thread that answers.
    const STACK: usize = 128 << 10;

    /// Answers a request that names one of the server's hosts.
    fn answer(&self, request: &HttpRequest) -> Answer;

    /// A stream has reached its client whole.
    fn sent(&self) {}

    /// A stream could not be read to its end. Its client notices that, too.
    fn failed(&self, _error: &io::Error) {}

    /// No connection can be accepted, for want of descriptors or memory. The server tries again, and says it once until it succeeds.
    fn cannot_accept(&self, error: &io::Error);
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    open: Arc<Open>,
}

/// The open connections.
#[derive(Default)]
struct Open {
    is_over: AtomicBool,
    threads: AtomicUsize,
    /// Oldest first.
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    number: u64,
    socket: Arc<TcpStream>,
    has_stream: bool,
}

/// What the threads of a server share.
struct Shared<P> {
    open: Arc<Open>,
    hosts: Hosts,
    pages: P,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(listener: TcpListener, hosts: Hosts, pages: impl Pages) -> io::Result<Server> {
        let (listener, open) = (Arc::new(listener), Arc::<Open>::default());
        let server =
            Server { address: listener.local_addr()?, listener: Arc::clone(&listener), open: Arc::clone(&open) };
        let shared = Arc::new(Shared { open, hosts, pages });
        spawn("warpline-http", 128 << 10, move || accept(&listener, &shared))?;
        Ok(server)
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops to listen, and ends the connections. Waits for no client.
    pub fn stop(&self) {
        self.open.is_over.store(true, Ordering::Release);
        stop_listening(&self.listener, self.address);
        for connection in lock(&self.open.connections).drain(..) {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Starts a thread of the server, on which nothing is recorded.
fn spawn(name: &str, stack: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run = move || {
        warpline_core::reentrancy::stay();
        run();
    };
    threads::spawn_with_stack(name, stack, run).map(drop)
}

/// Ends the listening, also for a child process that was forked and holds the socket too, and wakes the thread that accepts.
#[cfg(target_os = "linux")]
fn stop_listening(listener: &TcpListener, _address: SocketAddr) {
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

/// Wakes the thread that accepts, which then closes the socket.
#[cfg(not(target_os = "linux"))]
fn stop_listening(_listener: &TcpListener, mut address: SocketAddr) {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let _ = TcpStream::connect_timeout(&address, Duration::from_millis(200));
}

/// Accepts connections until the server stops.
fn accept<P: Pages>(listener: &TcpListener, shared: &Arc<Shared<P>>) {
    let mut is_said = false;
    for number in 0.. {
        let accepted = listener.accept();
        if shared.open.is_over.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((socket, _)) => {
                is_said = false;
                serve(Arc::new(socket), number, shared);
            }
            // The client is gone already.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                if !std::mem::replace(&mut is_said, true) {
                    shared.pages.cannot_accept(&error);
                }
                thread::sleep(REFUSED);
            }
        }
    }
}

/// Answers a connection on a thread of its own, once there is room for one.
fn serve<P: Pages>(socket: Arc<TcpStream>, number: u64, shared: &Arc<Shared<P>>) {
    let open = &shared.open;
    open.add(Connection { number, socket: Arc::clone(&socket), has_stream: false });
    while open.threads.load(Ordering::Acquire) >= MOST_THREADS {
        thread::sleep(MOMENT);
    }
    open.threads.fetch_add(1, Ordering::AcqRel);
    let (shared, answering) = (Arc::clone(shared), Answering { open: Arc::clone(open), number });
    let run = move || {
        shared.converse(&socket, number);
        drop(answering);
    };
    // Without a thread, the connection ends here.
    let _ = spawn("warpline-answer", P::STACK, run);
}

/// A connection that a thread answers. It ends with the thread, however that ends: a damaged trace may make its reader panic.
struct Answering {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Answering {
    fn drop(&mut self) {
        lock(&self.open.connections).retain(|connection| connection.number != self.number);
        self.open.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Open {
    /// Adds a connection, and ends one that it has no room for.
    fn add(&self, connection: Connection) {
        let mut connections = lock(&self.connections);
        if connections.len() >= MOST_CONNECTIONS {
            let oldest = connections.iter().position(|connection| !connection.has_stream).unwrap_or(0);
            let _ = connections.remove(oldest).socket.shutdown(Shutdown::Both);
        }
        connections.push(connection);
    }

    /// Marks that a connection has a stream.
    fn begin_stream(&self, number: u64) {
        let mut connections = lock(&self.connections);
        if let Some(connection) = connections.iter_mut().find(|connection| connection.number == number) {
            connection.has_stream = true;
        }
    }
}

impl<P: Pages> Shared<P> {
    /// Reads one request and answers it.
    fn converse(&self, socket: &TcpStream, number: u64) {
        let deadline = Instant::now() + DEADLINE;
        let Ok(head) = read(socket, deadline) else { return };
        let (answer, with_body) = match &head {
            Head::Whole(request) => (self.answer(request, socket), request.method != "HEAD"),
            Head::Refused(status) => (Answer::refusal(status), true),
            Head::Partial => return,
        };
        if answer.is_stream() {
            self.open.begin_stream(number);
        }
        match answer.send(socket, deadline, with_body) {
            Ok(true) => self.pages.sent(),
            Ok(false) => {}
            Err(error) => self.pages.failed(&error),
        }
    }

    fn answer(&self, request: &HttpRequest, socket: &TcpStream) -> Answer {
        let local = socket.local_addr().ok().map(|local| local.ip());
        if self.hosts.have(request.host.as_deref(), local) {
            return self.pages.answer(request);
        }
        let text = format!("The request names none of this server's hosts; {}.\n", self.hosts.remedy);
        Answer::text("403 Forbidden", text)
    }
}

/// Reads the head of a request; partial where the client ends before it does.
fn read(mut socket: &TcpStream, deadline: Instant) -> io::Result<Head> {
    let mut head = Vec::new();
    loop {
        match request::read(&head) {
            Head::Partial => {}
            whole => return Ok(whole),
        }
        let mut bytes = [0; 1024];
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut bytes)? {
            0 => return Ok(Head::Partial),
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
}
