//! Speaks with one program: a request, and the frames that come back. It never waits for a program that does not answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use warpline::__private::protocol::{Decoder, Kind, MAX_REPLY_BYTES, Request, VERSION, frame};

use super::{find, flight};
use crate::place::PlaceError;
use crate::recover::RecoverFileError;

/// A program that has not answered by then does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Why a program could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("there is no process {process}; `warpline ps` lists those that listen")]
    NoProcess { process: u32 },
    #[error("process {process} belongs to another user, {user}: run `warpline` as that user")]
    AnotherUser { process: u32, user: u32 },
    #[error("process {process} does not listen: start it with `WARPLINE=control`, alone or with other settings")]
    NotListening { process: u32 },
    #[error(
        "process {process} was started with `WARPLINE=control` and does not listen: it has no session yet, or no more, or it \
         runs with `off`, or it was built without warpline's feature `enable`; ask while it has a session, or start it so"
    )]
    NotYet { process: u32 },
    #[error("process {process} cannot be reached: {fault}; remove what stands in its way, and start it again")]
    Directory { process: u32, fault: String },
    #[error("process {process} cannot be reached: {fault}; run `warpline` as the same user in the same container")]
    Hidden { process: u32, fault: String },
    #[error("process {process} cannot be reached at {}: {error}", socket.display())]
    Connect { process: u32, socket: PathBuf, error: io::Error },
    #[error("{} is not process {process}'s: user {user} listens there; tell the machine's administrator", socket.display())]
    Impostor { process: u32, socket: PathBuf, user: u32 },
    #[error("process {process} does not answer: it is stopped, or has no time; {remedy}")]
    NoAnswer { process: u32, remedy: String },
    #[error("process {process} ended, or closed the connection")]
    Gone { process: u32 },
    #[error("there is no process {process}; {remedy}")]
    NothingToDump { process: u32, remedy: String },
    #[error("process {process} says what this `warpline` does not understand: {what}; use the one of its version")]
    Strange { process: u32, what: String },
    #[error(
        "process {process} speaks another version of the protocol than this `warpline`, which is {}: {text}",
        env!("CARGO_PKG_VERSION")
    )]
    Version { process: u32, text: String },
    #[error("process {process}: {text}")]
    Refused { process: u32, text: String },
    #[error("`{range}` is a pattern; name one range in full: `warpline catalog /proc/{process}/exe` lists them")]
    Pattern { process: u32, range: String },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("process {process}: its flight recorder {file}: {error}")]
    Dump { process: u32, file: String, error: Box<RecoverFileError> },
    #[error("cannot show anything on this terminal: {0}")]
    Terminal(io::Error),
    #[error("standard output is no terminal; `warpline status {process}` prints what a script can read")]
    NoTerminal { process: u32 },
}

impl ControlError {
    /// What can still be had of a program that does not answer is told with that.
    pub(super) fn no_answer(process: u32) -> ControlError {
        let remedy = flight::of_silent(process).unwrap_or_else(|| "try again".to_owned());
        ControlError::NoAnswer { process, remedy }
    }
}

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
    stream: UnixStream,
    decoder: Decoder,
}

/// Says that no more is wanted: the program ends what it does, and tells what came of it.
pub(super) struct Ender(UnixStream);

impl Ender {
    pub(super) fn end(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

impl Client {
    /// Finds the process and asks it.
    pub(super) fn ask(process: u32, request: &Request) -> Result<Client, ControlError> {
        Client::ask_at(process, &find::of(process)?, request)
    }

    /// Asks at a socket.
    pub(super) fn ask_at(process: u32, socket: &Path, request: &Request) -> Result<Client, ControlError> {
        let stream = connect(process, socket)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| ControlError::Connect {
            process,
            socket: socket.to_owned(),
            error: error.into(),
        })?;
        let user = peer.uid.as_raw();
        if user != find::user() {
            return Err(ControlError::Impostor { process, socket: socket.to_owned(), user });
        }
        let mut bytes = Vec::new();
        frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
        let mut client = Client { process, stream, decoder: Decoder::new(MAX_REPLY_BYTES) };
        client.wait(Some(ANSWERS_WITHIN));
        client.stream.write_all(&bytes).map_err(|_| ControlError::Gone { process })?;
        Ok(client)
    }

    /// From now on waits for a reply no longer than that.
    pub(super) fn wait(&mut self, time: Option<Duration>) {
        let _ = self.stream.set_read_timeout(time);
        let _ = self.stream.set_write_timeout(Some(ANSWERS_WITHIN));
    }

    pub(super) fn ender(&self) -> Option<Ender> {
        self.stream.try_clone().ok().map(Ender)
    }

    /// The next reply; a refusal is an error.
    pub(super) fn next(&mut self) -> Result<Reply, ControlError> {
        let process = self.process;
        loop {
            let next = self.decoder.take();
            match next.map_err(|error| ControlError::Strange { process, what: error.to_string() })? {
                Some((Kind::Trace, bytes)) => return Ok(Reply::Trace(bytes)),
                Some((Kind::Json, body)) => return self.judge(&body),
                None => {}
            }
            let mut bytes = vec![0; self.decoder.room().min(64 << 10)];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ControlError::Gone { process }),
                Ok(count) => self.decoder.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(ControlError::no_answer(process));
                }
                Err(_) => return Err(ControlError::Gone { process }),
            }
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
    let (say, said) = mpsc::channel();
    let path = socket.to_owned();
    std::thread::spawn(move || {
        let _ = say.send(UnixStream::connect(path));
    });
    match said.recv_timeout(ANSWERS_WITHIN) {
        Ok(Ok(stream)) => Ok(stream),
        // It was killed, and its number is not used again yet; or it has just ended.
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            Err(ControlError::Gone { process })
        }
        Ok(Err(error)) => Err(ControlError::Connect { process, socket: socket.to_owned(), error }),
        Err(_) => Err(ControlError::no_answer(process)),
    }
}
