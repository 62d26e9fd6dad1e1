//! `warpline open`: serves one trace on the loopback address, and opens Perfetto's UI with it.
//!
//! The UI runs in the browser and reads the trace from this server, so nothing leaves the machine. The address holds a random word, which
//! no other page and no other user of the machine knows. The server ends when the trace has been read once.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tiny_http::{Header, Method, Request, Response, Server};

use crate::output::{self, OutputError};

/// Why a trace is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{}: {error}; name a trace", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: not a file; name a trace, such as one that `WARPLINE=perfetto=FILE` writes", path.display())]
    NotAFile { path: PathBuf },
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

/// What to open, and how.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) trace: PathBuf,
    /// The address of the UI.
    pub(crate) ui: String,
    pub(crate) port: u16,
    pub(crate) no_browser: bool,
    /// Serve until the command is interrupted.
    pub(crate) keep: bool,
}

/// Serves the trace until it has been read.
pub(crate) fn open(opening: &Opening) -> Result<(), OpenError> {
    check(&opening.trace)?;
    let origin = origin(&opening.ui).ok_or_else(|| OpenError::Ui(opening.ui.clone()))?;
    let server = listen(opening.port)?;
    let port = server.server_addr().to_ip().map_or(opening.port, |address| address.port());
    let served = Served {
        trace: opening.trace.clone(),
        path: format!("/{}/{}", random_word(), file_name(&opening.trace)),
        hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
        origin: origin.to_owned(),
    };
    let address = format!("{}/#!/?url=http://127.0.0.1:{port}{}", opening.ui.trim_end_matches('/'), served.path);
    output::write(&format!("{address}\n"), None)?;
    // A browser that prints to the terminal does not belong in the output.
    if !opening.no_browser && open::that_detached(&address).is_err() {
        output::complain("no browser was found; open the address above in one, on this machine");
    }
    output::complain("serving the trace until the browser has read it; Ctrl-C ends it earlier");
    serve(server, served, opening.keep);
    Ok(())
}

fn check(trace: &Path) -> Result<(), OpenError> {
    let file = File::open(trace).and_then(|file| file.metadata());
    let file = file.map_err(|error| OpenError::Read { path: trace.to_owned(), error })?;
    if file.is_file() { Ok(()) } else { Err(OpenError::NotAFile { path: trace.to_owned() }) }
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
    trace: PathBuf,
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
            Method::Get => match File::open(&self.trace) {
                // With its length, by which the UI shows progress.
                Ok(file) => {
                    let whole = Response::from_file(file).with_chunked_threshold(usize::MAX);
                    return request.respond(self.allowed(whole)).is_ok();
                }
                Err(error) => {
                    output::complain(format_args!("warning: {}: {error}", self.trace.display()));
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

/// The begin of an address up to its path, such as `https://ui.perfetto.dev`.
fn origin(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())?;
    let is_host = host.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter));
    is_host.then(|| &address[..address.len() - rest.len() + host.len()])
}

/// The name of the trace, which the UI shows.
fn file_name(trace: &Path) -> String {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' })
        .collect()
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
    fn names_of_traces_are_part_of_an_address() {
        assert_eq!(file_name(Path::new("runs/step 1.pftrace.gz")), "step_1.pftrace.gz");
        assert_ne!(random_word(), random_word());
    }
}
