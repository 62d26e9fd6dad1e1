//! `warpline open` and `record … --open`: serve traces on the loopback address, and open Perfetto's UI with them.
//!
//! The UI runs in the browser and reads the traces from this server, so nothing leaves the machine. The address holds a
//! random word, which no other page and no other user of the machine knows. The server ends when a client has taken the
//! traces to their end. `content` is what it serves: one file as it is, or several as one.

mod content;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use warpline_trace::http::{Answer, Body, Hosts, HttpRequest, Pages, Server};

use crate::args::Serving;
use crate::inputs::InputError;
use crate::output::{self, OutputError};
use content::Content;

/// Opens the rows of the program's processes, devices and streams, which the UI shows closed. Kernels are below their
/// streams, so their repetition in the group `GPU` stays closed, and so do the facts about the session. The UI runs
/// only commands of a list of its own at the start; this one is on it.
const EXPAND: &str = r#"[{"id":"dev.perfetto.ExpandTracksByRegex","args":["^(?!(GPU|System|warpline)$)","name"]}]"#;

/// The remedy for a client whose `Host` is not this machine.
const REMEDY: &str = "open the address that `warpline open` has printed";

/// Why a trace is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{}: {error}; name a trace", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: not a file; name a trace, such as one that `WARPLINE=perfetto=FILE` writes", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: a Chrome trace can only be opened alone, and {count} traces are named; name this one alone, or Perfetto traces", path.display())]
    NotAlone { path: PathBuf, count: usize },
    #[error("{}: not a trace; name Perfetto traces, such as those that `WARPLINE=perfetto=FILE` writes", path.display())]
    NotATrace { path: PathBuf },
    #[error("`{0}` is not the address of a UI; write `--ui https://HOST`")]
    Ui(String),
    #[error(
        "port {port} of 127.0.0.1 is in use, and Perfetto's UI reads traces from no other; end the program that uses it, such as another \
         `warpline open`"
    )]
    Busy { port: u16 },
    #[error("cannot listen on port {port} of 127.0.0.1: {error}; choose another with `--port`, for a UI of your own")]
    Listen { port: u16, error: io::Error },
    #[error("cannot start a thread for the server: {0}; end other programs, or raise `ulimit -u`")]
    Thread(io::Error),
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
    listener: TcpListener,
    serving: Serving,
    /// The beginning of the UI's address.
    origin: String,
}

impl Listening {
    /// Checks the options, and takes the port.
    ///
    /// # Errors
    /// The address of the UI is none, or the port is in use.
    pub(crate) fn new(serving: Serving) -> Result<Listening, OpenError> {
        let origin = origin(&serving.ui).ok_or_else(|| OpenError::Ui(serving.ui.clone()))?.to_owned();
        let listener = listen(serving.port)?;
        Ok(Listening { listener, serving, origin })
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
        let Listening { listener, serving, origin } = self;
        let port = listener.local_addr().map_or(serving.port, |address| address.port());
        let (is_sent, sent) = sync_channel(1);
        let served = Served { path: format!("/{}/{}", random_word(), content.name), content, origin, is_sent };
        let path = served.path.clone();
        let name = served.content.name.clone();
        let server = Server::start(listener, Hosts::new(Vec::new(), REMEDY), served).map_err(OpenError::Thread)?;
        let (ui, commands) = (serving.ui.trim_end_matches('/'), escaped(EXPAND));
        let address = format!("{ui}/#!/?url=http://127.0.0.1:{port}{path}&startupCommands={commands}");
        output::write(&format!("{address}\n"), None)?;
        // A browser that prints to the terminal does not belong in the output.
        if !serving.no_browser && open::that_detached(&address).is_err() {
            output::complain("no browser was found; open the address above in one, on this machine");
        }
        let until = if serving.keep { "until Ctrl-C" } else { "until the browser has read it; Ctrl-C ends it earlier" };
        output::complain(format_args!("serving {name} {until}"));
        wait(&sent, serving.keep);
        server.stop();
        Ok(())
    }
}

fn listen(port: u16) -> Result<TcpListener, OpenError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => OpenError::Busy { port },
        _ => OpenError::Listen { port, error },
    })
}

/// Waits until a client has the trace, or until Ctrl-C.
fn wait(sent: &Receiver<()>, keep: bool) {
    while sent.recv().is_ok() && keep {}
}

/// The content that the server serves, and the page that may read it.
struct Served {
    content: Content,
    path: String,
    /// The UI, the only page that may read the trace.
    origin: String,
    /// Has a message once a client has taken the trace to its end.
    is_sent: SyncSender<()>,
}

impl Pages for Served {
    /// Decompression has large frames without optimisation.
    const STACK: usize = 1 << 20;

    fn answer(&self, request: &HttpRequest) -> Answer {
        let (status, body) = match request.method.as_str() {
            _ if request.path != self.path => ("404 Not Found", Body::Empty),
            "GET" => match self.content.open() {
                // The client could not distinguish its end from a broken connection.
                Ok((_, None)) if !request.takes_chunks => ("505 HTTP Version Not Supported", Body::Empty),
                // With its length where it is known, by which the UI shows progress.
                Ok((reader, len)) => ("200 OK", Body::Stream(reader, len)),
                Err(error) => {
                    self.failed(&error);
                    ("404 Not Found", Body::Empty)
                }
            },
            "HEAD" | "OPTIONS" => ("204 No Content", Body::Empty),
            _ => ("405 Method Not Allowed", Body::Empty),
        };
        self.allowed(status, body)
    }

    fn sent(&self) {
        // A message that is already there says the same.
        let _ = self.is_sent.try_send(());
    }

    fn failed(&self, error: &io::Error) {
        output::complain(format_args!("warning: {}: {error}", self.content.name));
    }

    fn cannot_accept(&self, error: &io::Error) {
        output::complain(format_args!("warning: no connection is accepted: {error}; raise `ulimit -n`"));
    }
}

impl Served {
    /// Returns an answer that the UI, and no other page, can read.
    fn allowed(&self, status: &'static str, body: Body) -> Answer {
        let headers = [
            ("Access-Control-Allow-Origin", self.origin.as_str()),
            ("Access-Control-Allow-Private-Network", "true"),
            ("Cache-Control", "no-store"),
            ("Content-Type", "application/octet-stream"),
        ];
        Answer { status, headers: headers.map(|(name, value)| (name, value.to_owned())).into(), body }
    }
}

/// The beginning of an address up to its path, such as `https://ui.perfetto.dev`.
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
