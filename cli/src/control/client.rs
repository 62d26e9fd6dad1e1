//! Speaks with one program: a request, and the frames that come back.
//!
//! The program is not trusted. The kernel has to say that it is the one that is meant, an exchange as a whole has to end in
//! time, however slowly bytes come, and it has only so many bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::runtime::peer::Peer;
use crate::runtime::protocol::{Decoder, Kind, MAX_REPLY_BYTES, Request, VERSION, frame};
use serde::Deserialize;
use serde_json::Value;

use super::error::{ControlError, MOST_BYTES};
use super::find;

/// A program that has not answered by then does not: from the connection to the last byte of the first reply.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What a program says.
pub(super) enum Reply {
    Json(Value),
    Trace(Vec<u8>),
}

impl Reply {
    /// What kind of a reply it is.
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
    /// Whether the kernel says that this process listens.
    is_known: bool,
    stream: UnixStream,
    decoder: Decoder,
    /// When replies have to be there, and how many bytes more they may have.
    until: Option<Instant>,
    left: u64,
}

impl Client {
    /// Finds the process and asks it.
    pub(super) fn ask(process: u32, request: &Request) -> Result<Client, ControlError> {
        let program = find::of(process)?;
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

    /// Connects to a socket of this user. Gives who listens there, by the number that the process has in the namespace of this
    /// one: the name of a socket says only what somebody has written there.
    pub(super) fn connect(process: u32, socket: &Path) -> Result<(Client, Option<u32>), ControlError> {
        let until = Instant::now() + ANSWERS_WITHIN;
        let stream = connect(process, socket)?;
        let failed = |error| ControlError::Connect { process, socket: socket.to_owned(), error };
        let peer = Peer::of(&stream).map_err(failed)?;
        if peer.user != find::user() {
            return Err(ControlError::Impostor { process, socket: socket.to_owned(), user: peer.user });
        }
        let decoder = Decoder::new(MAX_REPLY_BYTES);
        let client = Client { process, is_known: false, stream, decoder, until: Some(until), left: MOST_BYTES };
        Ok((client, peer.process))
    }

    /// The process that is asked, once it is known.
    pub(super) fn is_process(&mut self, process: u32) {
        (self.process, self.is_known) = (process, true);
    }

    /// Asks. Where that fails the program has closed the connection, and what it said before is still to be read.
    pub(super) fn send(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
        let _ = self.stream.set_write_timeout(Some(ANSWERS_WITHIN));
        let _ = self.stream.write_all(&bytes);
    }

    /// From now on all replies together have this time, and at most so many bytes. Without a time they may take for ever.
    pub(super) fn bound(&mut self, time: Option<Duration>, bytes: u64) {
        self.until = time.and_then(|time| Instant::now().checked_add(time));
        self.left = bytes;
    }

    /// The connection, to end it from another thread.
    pub(super) fn stream(&self) -> Result<UnixStream, ControlError> {
        self.stream.try_clone().map_err(|error| {
            ControlError::of_descriptors(&error).unwrap_or(ControlError::Gone { process: self.process })
        })
    }

    /// Says that no more is wanted: the program ends what it does, and tells what came of it.
    pub(super) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next reply; a refusal is an error.
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

    /// Reads what comes next. The time is that of the exchange, and not of a read: a byte now and then is no answer.
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
                Some("no_range") => ControlError::Refused { process, text: no_range(process, &text) },
                _ => ControlError::Refused { process, text },
            });
        }
        match value["protocol"].as_u64() {
            None | Some(VERSION) => Ok(Reply::Json(value)),
            Some(other) => {
                Err(ControlError::Version { process, text: format!("it says {other}, and this one says {VERSION}") })
            }
        }
    }

    /// The next reply, which has to be of this kind.
    pub(super) fn expect<T: for<'a> Deserialize<'a>>(&mut self, is: &str) -> Result<T, ControlError> {
        let process = self.process;
        match self.next()? {
            Reply::Json(value) if value["is"] == is => serde_json::from_value(value)
                .map_err(|error| ControlError::Strange { process, what: error.to_string() }),
            other => Err(ControlError::Strange { process, what: format!("`{}` where `{is}` belongs", other.is()) }),
        }
    }
}

/// That there is no such range, and where those are that there are.
fn no_range(process: u32, text: &str) -> String {
    let lists = format!("`warpline catalog /proc/{process}/exe` lists them");
    match text.split_once("; `warpline catalog`") {
        Some((text, _)) => format!("{text}; {lists}"),
        None => format!("{text} {lists}"),
    }
}

/// Connects, in a thread of its own: where a program is stopped and many have connected before, it takes for ever.
fn connect(process: u32, socket: &Path) -> Result<UnixStream, ControlError> {
    let path = socket.to_owned();
    match find::within(ANSWERS_WITHIN, move || UnixStream::connect(path)) {
        Ok(stream) => Ok(stream),
        // It was killed, and its number is not used again yet; or it has just ended.
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
