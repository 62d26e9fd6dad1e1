//! A connection to one program that listens: sends a request and reads the frames of the reply. The commands call it.
//!
//! The program is not trusted. The kernel must confirm which process listens, and each exchange as a whole has a
//! deadline and a limit of bytes, however slowly the bytes arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::error::{ControlError, MOST_BYTES};
use super::find;
use crate::runtime::protocol::{CHANGING, ControlRequest, Decoder, Kind, MAX_REPLY_BYTES, VERSION, frame};
use crate::runtime::socket_peer::Peer;

/// The time from connecting to the last byte of the first reply. A program that takes longer does not answer.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A reply of a program.
pub(super) enum Reply {
    Json(Value),
    Trace(Vec<u8>),
}

impl Reply {
    /// The kind of the reply.
    pub(super) fn is(&self) -> &str {
        match self {
            Reply::Json(value) => value["is"].as_str().unwrap_or(""),
            Reply::Trace(_) => "trace",
        }
    }
}

/// A connection to one program.
pub(super) struct Client {
    process: u32,
    /// Whether the kernel has confirmed that this process listens.
    is_known: bool,
    stream: UnixStream,
    decoder: Decoder,
    /// The deadline of the replies, and how many more bytes they may have.
    until: Option<Instant>,
    left: u64,
}

impl Client {
    /// Finds the process and sends it the request.
    pub(super) fn ask(process: u32, request: &ControlRequest) -> Result<Client, ControlError> {
        let program = find::program(process)?;
        let (mut client, listener) = Client::connect(process, &program.socket).map_err(|error| match error {
            ControlError::NoAnswer { .. } => ControlError::no_answer(process),
            error => error,
        })?;
        if listener.is_none() || listener != program.number {
            return Err(ControlError::Other { process, socket: program.socket, listener });
        }
        client.is_known = true;
        client.send(request);
        Ok(client)
    }

    /// Connects to a socket of this user. Returns the process that listens, as its number in this process's PID
    /// namespace. The name of the socket proves nothing: anyone can choose it.
    pub(super) fn connect(process: u32, socket: &Path) -> Result<(Client, Option<u32>), ControlError> {
        let until = Instant::now() + ANSWERS_WITHIN;
        let stream = connect(process, socket)?;
        let failed = |error| ControlError::Connect { process, socket: socket.to_owned(), error };
        let peer = Peer::from_stream(&stream).map_err(failed)?;
        if peer.user != find::user() {
            return Err(ControlError::Impostor { process, socket: socket.to_owned(), user: peer.user });
        }
        let decoder = Decoder::new(MAX_REPLY_BYTES);
        let client = Client { process, is_known: false, stream, decoder, until: Some(until), left: MOST_BYTES };
        Ok((client, peer.process))
    }

    /// Sets the process, once the kernel has confirmed it.
    pub(super) fn is_process(&mut self, process: u32) {
        (self.process, self.is_known) = (process, true);
    }

    /// Sends a request. If that fails, the program has closed the connection, and its earlier replies can still be
    /// read.
    pub(super) fn send(&mut self, request: &ControlRequest) {
        let mut bytes = Vec::new();
        frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
        let _ = self.stream.set_write_timeout(Some(ANSWERS_WITHIN));
        let _ = self.stream.write_all(&bytes);
    }

    /// Limits the time and the bytes of all further replies together. Without a time there is no deadline.
    pub(super) fn bound(&mut self, time: Option<Duration>, bytes: u64) {
        self.until = time.and_then(|time| Instant::now().checked_add(time));
        self.left = bytes;
    }

    /// The connection, so that another thread can close it.
    pub(super) fn stream(&self) -> Result<UnixStream, ControlError> {
        self.stream.try_clone().map_err(|error| {
            ControlError::of_descriptors(&error).unwrap_or(ControlError::Gone { process: self.process })
        })
    }

    /// Asks the program to stop: it ends the recording and sends the result.
    pub(super) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next reply. A refusal is an error.
    pub(super) fn next(&mut self) -> Result<Reply, ControlError> {
        let process = self.process;
        loop {
            let next = self.decoder.take();
            match next.map_err(|error| ControlError::Strange { process, what: error.to_string() })? {
                Some((Kind::Trace, bytes)) => return Ok(Reply::Trace(bytes)),
                Some((Kind::Json, body)) => return self.judge(&body),
                None => self.read()?,
            }
        }
    }

    /// Reads more bytes. The deadline is that of the exchange, not of one read, so a program cannot extend it byte by
    /// byte.
    fn read(&mut self) -> Result<(), ControlError> {
        let process = self.process;
        let late = || match self.is_known {
            true => ControlError::no_answer(process),
            false => ControlError::NoAnswer { process, remedy: "try again".to_owned() },
        };
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(late());
        }
        if self.left == 0 {
            return Err(ControlError::TooMuch { process });
        }
        let _ = self.stream.set_read_timeout(left);
        let room = self.decoder.room().min(64 << 10).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut bytes = vec![0; room];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ControlError::Gone { process }),
            Ok(count) => {
                self.left -= count as u64;
                self.decoder.feed(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(late()),
            Err(_) => Err(ControlError::Gone { process }),
        }
    }

    fn judge(&self, body: &[u8]) -> Result<Reply, ControlError> {
        let process = self.process;
        let strange = |what: String| ControlError::Strange { process, what };
        let value: Value = serde_json::from_slice(body).map_err(|error| strange(error.to_string()))?;
        if value["is"] == "error" {
            let text = value["text"].as_str().unwrap_or("it gave no reason").to_owned();
            return Err(match value["code"].as_str() {
                Some("protocol") => ControlError::Version { process, text },
                Some(CHANGING) => ControlError::Changing { process, text },
                Some("no_range") => ControlError::Refused { process, text: no_range(process, &text) },
                _ => ControlError::Refused { process, text },
            });
        }
        match value["protocol"].as_u64() {
            None | Some(VERSION) => Ok(Reply::Json(value)),
            Some(other) => Err(ControlError::Version {
                process,
                text: format!("it speaks {other}, and this one speaks {VERSION}"),
            }),
        }
    }

    /// The next reply, which must be of this kind.
    pub(super) fn expect<T: for<'a> Deserialize<'a>>(&mut self, is: &str) -> Result<T, ControlError> {
        let process = self.process;
        match self.next()? {
            Reply::Json(value) if value["is"] == is => serde_json::from_value(value)
                .map_err(|error| ControlError::Strange { process, what: error.to_string() }),
            other => Err(ControlError::Strange { process, what: format!("`{}` in place of `{is}`", other.is()) }),
        }
    }
}

/// The message for an unknown range, with the command that lists the known ones.
fn no_range(process: u32, text: &str) -> String {
    let lists = format!("`warpline catalog /proc/{process}/exe` lists them");
    match text.split_once("; `warpline catalog`") {
        Some((text, _)) => format!("{text}; {lists}"),
        None => format!("{text} {lists}"),
    }
}

/// Connects in a thread of its own: `connect` blocks forever if the program is stopped and its backlog is full.
fn connect(process: u32, socket: &Path) -> Result<UnixStream, ControlError> {
    let path = socket.to_owned();
    match find::within(ANSWERS_WITHIN, move || UnixStream::connect(path)) {
        Ok(stream) => Ok(stream),
        // The process was killed or has just ended.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            Err(ControlError::Gone { process })
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(ControlError::NoAnswer { process, remedy: "try again".to_owned() })
        }
        Err(error) => Err(ControlError::of_descriptors(&error).unwrap_or_else(|| ControlError::Connect {
            process,
            socket: socket.to_owned(),
            error,
        })),
    }
}
