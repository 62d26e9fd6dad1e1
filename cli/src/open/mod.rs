//! `warpline open` and `record … --open`: serve traces on the loopback address, and open Perfetto's UI with them.
//!
//! The UI runs in the browser and reads the traces from this server, so nothing leaves the machine. The address holds a random word, which
//! no other page and no other user of the machine knows. The server ends when the traces have been read once. `content` is what it serves: one
//! file as it is, or several as one.

mod content;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tiny_http::{Header, Method, Request, Response, Server, StatusCode};

use crate::args::Serving;
use crate::inputs::InputError;
use crate::output::{self, OutputError};
use content::Content;

/// Opens the rows of the program's processes, devices and streams, which the UI shows closed. Kernels are below their streams, so their
/// repetition in the group `GPU` stays closed, and so do the facts about the session. The UI runs only commands of a list of its own at the
/// start; this one is on it.
const EXPAND: &str = r#"[{"id":"dev.perfetto.ExpandTracksByRegex","args":["^(?!(GPU|System|warpline)$)","name"]}]"#;

/// Why a trace is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{}: {error}; name a trace", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: not a file; name a trace, such as one that `WARPLINE=perfetto=FILE` writes", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: Chrome JSON opens alone, and {count} traces are named; name this one, or Perfetto traces", path.display())]
    NotAlone { path: PathBuf, count: usize },
    #[error("{}: not a trace; name Perfetto traces, such as those that `WARPLINE=perfetto=FILE` writes", path.display())]
    NotATrace { path: PathBuf },
    #[error("`{0}` is no address of a UI; write `--ui https://HOST`")]
    Ui(String),
    #[error(
        "port {port} of 127.0.0.1 is in use, and Perfetto's UI reads traces from no other; end the program that uses it, such as another \
         `warpline open`"
    )]
    Busy { port: u16 },
    #[error("cannot listen on port {port} of 127.0.0.1: {error}; choose another with `--port`, for a UI of your own")]
    Listen { port: u16, error: io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Serves the traces until they have been read.
///
/// # Errors
/// A trace cannot be read, the port is in use, or the address cannot be printed.
pub(crate) fn open(traces: &[PathBuf], serving: Serving) -> Result<(), OpenError> {
    let content = Content::new(traces)?;
    Listening::new(serving)?.serve_content(content)
}

/// A server that listens, and serves nothing yet.
pub(crate) struct Listening {
    server: Server,
    serving: Serving,
    /// The begin of the UI's address.
    origin: String,
}

impl Listening {
    /// Checks the options, and takes the port.
    ///
    /// # Errors
    /// The address of the UI is none, or the port is in use.
    pub(crate) fn new(serving: Serving) -> Result<Listening, OpenError> {
        let origin = origin(&serving.ui).ok_or_else(|| OpenError::Ui(serving.ui.clone()))?.to_owned();
        let server = listen(serving.port)?;
        Ok(Listening { server, serving, origin })
    }

    /// Serves a trace until it has been read.
    ///
    /// # Errors
    /// The trace cannot be read, or the address cannot be printed.
    #[cfg(target_os = "linux")]
    pub(crate) fn serve(self, trace: PathBuf) -> Result<(), OpenError> {
        let content = Content::new(&[trace])?;
        self.serve_content(content)
    }

    fn serve_content(self, content: Content) -> Result<(), OpenError> {
        let Listening { server, serving, origin } = self;
        let port = server.server_addr().to_ip().map_or(serving.port, |address| address.port());
        let served = Served {
            path: format!("/{}/{}", random_word(), content.name),
            content,
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            origin,
        };
        let (ui, path, commands) = (serving.ui.trim_end_matches('/'), &served.path, escaped(EXPAND));
        let address = format!("{ui}/#!/?url=http://127.0.0.1:{port}{path}&startupCommands={commands}");
        output::write(&format!("{address}\n"), None)?;
        // A browser that prints to the terminal does not belong in the output.
        if !serving.no_browser && open::that_detached(&address).is_err() {
            output::complain("no browser was found; open the address above in one, on this machine");
        }
        let until = if serving.keep { "until Ctrl-C" } else { "until the browser has read it; Ctrl-C ends it earlier" };
        output::complain(format_args!("serving {} {until}", served.path.rsplit('/').next().unwrap_or_default()));
        serve(server, served, serving.keep);
        Ok(())
    }
}

fn listen(port: u16) -> Result<Server, OpenError> {
    Server::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(|error| {
        let error =
            error.downcast::<io::Error>().map_or_else(|other| io::Error::other(other.to_string()), |error| *error);
        if error.kind() == ErrorKind::AddrInUse { OpenError::Busy { port } } else { OpenError::Listen { port, error } }
    })
}

/// What the server serves, and to whom.
struct Served {
    content: Content,
    path: String,
    /// The names by which a browser may know the server: a page of another name that resolves to this address is refused.
    hosts: [String; 2],
    /// The UI, the only page that may read the trace.
    origin: String,
}

fn serve(server: Server, served: Served, keep: bool) {
    let (server, served, is_read) = (Arc::new(server), Arc::new(served), Arc::new(AtomicBool::new(false)));
    while !is_read.load(Ordering::Relaxed) {
        let Ok(request) = server.recv() else { continue };
        let (server, served, is_read) = (server.clone(), served.clone(), is_read.clone());
        // A reader that stalls holds up no other.
        let answer = move || {
            if served.answer(request) && !keep {
                is_read.store(true, Ordering::Relaxed);
                server.unblock();
            }
        };
        if thread::Builder::new().spawn(answer).is_err() {
            output::complain("warning: no thread for a request; it is not answered");
        }
    }
}

impl Served {
    /// Answers a request. Returns whether it has got the whole trace.
    fn answer(&self, request: Request) -> bool {
        let host = request.headers().iter().find(|header| header.field.equiv("Host"));
        let is_local = host.is_some_and(|header| self.hosts.iter().any(|host| header.value.as_str() == host.as_str()));
        let status = match request.method() {
            _ if !is_local => 403,
            _ if request.url() != self.path => 404,
            Method::Get => match self.content.open() {
                // The answer would be put together in memory first: only one in chunks needs no length.
                Ok((_, None)) if !takes_chunks(&request) => 505,
                // With its length where it is known, by which the UI shows progress.
                Ok((reader, len)) => {
                    let len = len.and_then(|len| usize::try_from(len).ok());
                    let whole = Response::new(StatusCode(200), Vec::new(), reader, len, None);
                    return request.respond(self.allowed(whole.with_chunked_threshold(usize::MAX))).is_ok();
                }
                Err(error) => {
                    output::complain(format_args!("warning: {}: {error}", self.content.name));
                    404
                }
            },
            Method::Head | Method::Options => 204,
            _ => 405,
        };
        // The client may be gone, and needs no answer then.
        let _ = request.respond(self.allowed(Response::empty(status)));
        false
    }

    /// Adds what lets the UI, and no other page, read the answer.
    fn allowed<R: io::Read>(&self, response: Response<R>) -> Response<R> {
        let headers = [
            ("Access-Control-Allow-Origin", self.origin.as_str()),
            ("Access-Control-Allow-Private-Network", "true"),
            ("Cache-Control", "no-store"),
            ("Content-Type", "application/octet-stream"),
        ];
        let headers = headers.iter().filter_map(|(name, value)| Header::from_bytes(*name, *value).ok());
        headers.fold(response, |response, header| response.with_header(header))
    }
}

/// Whether the answer to a request may come in chunks, as every browser takes it.
fn takes_chunks(request: &Request) -> bool {
    *request.http_version() >= (1, 1) && !request.headers().iter().any(|header| header.field.equiv("TE"))
}

/// The begin of an address up to its path, such as `https://ui.perfetto.dev`.
fn origin(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())?;
    let is_host = host.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter));
    is_host.then(|| &address[..address.len() - rest.len() + host.len()])
}

/// The text as a part of an address.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// 128 random bits: the standard library's hashers have keys from the operating system.
fn random_word() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ui_has_an_origin() {
        assert_eq!(origin("https://ui.perfetto.dev"), Some("https://ui.perfetto.dev"));
        assert_eq!(origin("http://127.0.0.1:10000/v52/index.html"), Some("http://127.0.0.1:10000"));
        for wrong in ["", "ui.perfetto.dev", "https://", "ftp://host", "https://a b", "https://a\r\nb"] {
            assert_eq!(origin(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_has_no_other_letters() {
        assert_eq!(escaped(r#"[{"a-b":"^(?!é)"}]"#), "%5B%7B%22a-b%22%3A%22%5E%28%3F%21%C3%A9%29%22%7D%5D");
        assert_ne!(random_word(), random_word());
    }
}
