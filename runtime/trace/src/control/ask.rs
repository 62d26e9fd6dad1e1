//! Asks a running program one thing and waits for its answer. `warpline-ranks hang` does; the command `warpline` has a
//! client with longer exchanges.
//!
//! The program is not trusted: the kernel says who listens, and the time and the bytes of the answer are bounded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::protocol::{ControlRequest, Decoder, Kind, MAX_REPLY_BYTES, frame};
use super::socket::{self, ProcessView, SocketOwner};
use warpline_core::socket_peer::Peer;
use warpline_core::threads;

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Runs,
    /// It has ended.
    Ended,
    /// It is in another PID namespace, or `/proc` does not show it.
    Unknown,
}

/// Returns whether a process runs: a process of this machine, and not one that has got its number since.
pub fn fate(owner: &SocketOwner) -> Fate {
    match ProcessView::read() {
        Ok(here) if here.is_over(owner) => Fate::Ended,
        Ok(here) if here.owner.namespace == owner.namespace => Fate::Runs,
        _ => Fate::Unknown,
    }
}

/// Returns the socket of a process of this user; none if it has none.
pub fn socket(owner: &SocketOwner) -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR");
    let directories = [socket::directory(given.as_deref(), user), socket::directory(None, user)];
    let is_safe = |directory: &PathBuf| {
        std::fs::symlink_metadata(directory).is_ok_and(|metadata| socket::fault(&metadata, user).is_none())
    };
    let sockets = directories.into_iter().filter(is_safe).map(|directory| directory.join(owner.socket_name()));
    sockets
        .into_iter()
        .find(|socket| std::fs::symlink_metadata(socket).is_ok_and(|metadata| socket::is_socket_of(&metadata, user)))
}

/// Sends a request to a socket on which a process of this user listens, and returns the first answer.
///
/// # Errors
/// The program does not answer in time, another user's process listens, or the answer is a refusal, whose text is the
/// error.
pub fn ask(socket: &Path, request: &ControlRequest, within: Duration) -> io::Result<Value> {
    let until = Instant::now() + within;
    let stream = connect(socket, within)?;
    if Peer::from_stream(&stream)?.user != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("another user's process listens there"));
    }
    let mut bytes = Vec::new();
    frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
    let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    stream.set_write_timeout(left())?;
    (&stream).write_all(&bytes)?;
    let mut decoder = Decoder::new(MAX_REPLY_BYTES);
    loop {
        if let Some((kind, body)) = decoder.take().map_err(|error| io::Error::other(error.to_string()))? {
            return answer(kind, &body);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(left())?;
        let mut bytes = vec![0; decoder.room().min(64 << 10)];
        match (&stream).read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => decoder.feed(&bytes[..count]),
        }
    }
}

fn answer(kind: Kind, body: &[u8]) -> io::Result<Value> {
    let value: Value = match kind {
        Kind::Json => serde_json::from_slice(body)?,
        Kind::Trace => return Err(io::Error::other("the answer is a trace, not JSON")),
    };
    match value["is"].as_str() {
        Some("error") => Err(io::Error::other(value["text"].as_str().unwrap_or("it gave no reason").to_owned())),
        _ => Ok(value),
    }
}

/// Connects in a thread of its own: `connect` blocks forever if the program is stopped and its backlog is full.
fn connect(socket: &Path, within: Duration) -> io::Result<UnixStream> {
    let (say, said) = mpsc::channel();
    let path = socket.to_owned();
    threads::spawn("warpline-ask", move || drop(say.send(UnixStream::connect(path))))?;
    said.recv_timeout(within).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
