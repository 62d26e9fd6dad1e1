//! The HTTP server: one thread that accepts, and a short-lived thread for each of a few connections.
//!
//! A connection has a deadline from its begin to its end, however slowly its client sends or reads. Beyond [`MOST_CONNECTIONS`], a new connection
//! ends the oldest one, so slow clients cannot keep Prometheus out. `tiny_http` waits without a limit, and for lines of any length.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::request::{self, Format, Request};
use crate::settings::ServeAt;
use warpline_core::lock::lock;

/// The most connections at once.
const MOST_CONNECTIONS: usize = 8;

/// The most threads of connections: those of connections that were ended may need a moment.
const MOST_THREADS: usize = 2 * MOST_CONNECTIONS;

/// How often the thread that accepts looks whether they have ended.
const MOMENT: Duration = Duration::from_millis(1);

/// The longest time of a connection.
const DEADLINE: Duration = Duration::from_secs(5);

/// The time in which what a client still sends is read, so that it gets the answer.
const LINGER: Duration = Duration::from_millis(200);

/// The stack of a thread that answers.
const STACK: usize = 128 << 10;

type Page = dyn Fn(Format) -> String + Send + Sync;

/// A running server.
pub(super) struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
}

struct Shared {
    is_over: AtomicBool,
    threads: AtomicUsize,
    /// The open connections, oldest first, each with a number.
    connections: Mutex<Vec<(u64, TcpStream)>>,
    page: Box<Page>,
}

impl Server {
    /// Starts the server at the first address that is free.
    ///
    /// # Errors
    /// None is free, or the system has no thread left.
    pub(super) fn start(at: ServeAt, page: impl Fn(Format) -> String + Send + Sync + 'static) -> io::Result<Server> {
        let listener = Arc::new(bind(at)?);
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            connections: Mutex::default(),
            page: Box::new(page),
        });
        let server = Server { address: listener.local_addr()?, listener, shared };
        let (listener, shared) = (Arc::clone(&server.listener), Arc::clone(&server.shared));
        let run = move || {
            warpline_core::inside::stay();
            accept(&listener, &shared);
        };
        thread::Builder::new().name("warpline-prom".to_owned()).stack_size(STACK).spawn(run)?;
        Ok(server)
    }

    /// Returns the address at which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops to listen, and ends the connections. Waits for no client.
    pub(super) fn stop(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        stop_listening(&self.listener, self.address);
        for (_, connection) in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Opens the first address that is free.
fn bind(at: ServeAt) -> io::Result<TcpListener> {
    let mut last = None;
    for address in at.addresses() {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into());
    let what = if at.first_port == at.last_port { "is" } else { "are all" };
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "`{at}` {what} taken by other sockets; name another port, a range of ports (`9464-9471`) or `0` for any free port"
        ),
        io::ErrorKind::AddrNotAvailable => format!("`{}` is no address of this host; name one of its own", at.ip),
        io::ErrorKind::PermissionDenied => {
            format!("`{at}` needs rights that this program lacks; name a port from 1024")
        }
        _ => format!("`{at}` cannot be opened: {error}"),
    };
    Err(io::Error::new(error.kind(), text))
}

/// Ends the listening, also for a child process that was forked and holds the socket too, and wakes the thread that accepts.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn stop_listening(listener: &TcpListener, _address: SocketAddr) {
    use std::os::fd::AsRawFd;

    // SAFETY: the call takes two numbers, and the listener keeps its descriptor open.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
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
    let _ = TcpStream::connect_timeout(&address, LINGER);
}

/// Accepts connections until the server stops.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for number in 0.. {
        let accepted = listener.accept();
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((connection, _)) => serve(connection, number, shared),
            // No descriptor is left, or the client is gone already. The next one may be luckier.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Answers a connection on a thread of its own, once there is room for one.
fn serve(connection: TcpStream, number: u64, shared: &Arc<Shared>) {
    let Ok(handle) = connection.try_clone() else { return };
    {
        let mut connections = lock(&shared.connections);
        if connections.len() >= MOST_CONNECTIONS {
            let (_, oldest) = connections.remove(0);
            let _ = oldest.shutdown(Shutdown::Both);
        }
        connections.push((number, handle));
    }
    while shared.threads.load(Ordering::Acquire) >= MOST_THREADS {
        thread::sleep(MOMENT);
    }
    shared.threads.fetch_add(1, Ordering::AcqRel);
    let its = Arc::clone(shared);
    let run = move || {
        warpline_core::inside::stay();
        // A client that goes away is its own affair.
        let _ = answer(connection, &*its.page);
        its.forget(number);
        its.threads.fetch_sub(1, Ordering::AcqRel);
    };
    if thread::Builder::new().name("warpline-scrape".to_owned()).stack_size(STACK).spawn(run).is_err() {
        shared.forget(number);
        shared.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    fn forget(&self, number: u64) {
        lock(&self.connections).retain(|(known, _)| *known != number);
    }
}

/// Reads one request and answers it.
fn answer(mut connection: TcpStream, page: &Page) -> io::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let mut head = Vec::new();
    let request = loop {
        match request::read(&head) {
            Request::Partial => {}
            request => break request,
        }
        let mut bytes = [0; 1024];
        connection.set_read_timeout(Some(left(deadline)?))?;
        let count = connection.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..count]);
    };
    let mut answer = response(&request, page).into_bytes();
    while !answer.is_empty() {
        connection.set_write_timeout(Some(left(deadline)?))?;
        let count = connection.write(&answer)?;
        if count == 0 {
            return Ok(());
        }
        answer.drain(..count);
    }
    connection.shutdown(Shutdown::Write)?;
    // A connection that is closed while its client sends loses the answer.
    let linger = deadline.min(Instant::now() + LINGER);
    let mut rest = [0; 1024];
    while let Ok(time) = left(linger) {
        connection.set_read_timeout(Some(time))?;
        if connection.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns the time until a deadline.
///
/// # Errors
/// It is over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns the response to a request, with its head.
fn response(request: &Request, page: &Page) -> String {
    let (status, kind, body, with_body) = match *request {
        Request::Metrics { format, with_body } => ("200 OK", format.content_type(), page(format), with_body),
        Request::Index => ("200 OK", "text/plain; charset=utf-8", "The metrics are at /metrics.\n".to_owned(), true),
        Request::Refused(status) => (status, "text/plain; charset=utf-8", format!("{status}\n"), true),
        Request::Partial => ("400 Bad Request", "text/plain; charset=utf-8", String::new(), true),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let body = if with_body { body } else { String::new() };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}X-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n{body}"
    )
}
