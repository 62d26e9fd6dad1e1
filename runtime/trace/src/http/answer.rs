//! An answer, and how it reaches the client: a text by a deadline, a stream as long as the client takes some of it now and then.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The time in which what a client still sends is read, so that it gets the answer.
const LINGER: Duration = Duration::from_millis(200);

/// The longest time in which a client takes nothing of a stream. A browser may be busy with what it has.
const STALL: Duration = Duration::from_secs(60);

/// What is read of a stream at once.
const CHUNK: usize = 64 << 10;

/// An answer to a request.
pub struct Answer {
    /// The code and its words: `200 OK`.
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

/// What an answer carries.
pub enum Body {
    Empty,
    Text(String),
    /// Bytes of the length, or chunks where it is not known, for a client that takes them.
    Stream(Box<dyn Read + Send>, Option<u64>),
}

impl Answer {
    /// Returns an error, with a text that says it and nothing else.
    pub fn refusal(status: &'static str) -> Answer {
        Answer::text(status, format!("{status}\n"))
    }

    pub fn text(status: &'static str, text: String) -> Answer {
        let headers = vec![("Content-Type", "text/plain; charset=utf-8".to_owned())];
        Answer { status, headers, body: Body::Text(text) }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Answer {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.body, Body::Stream(..))
    }

    /// Returns the head. No header is about the body but those that are added here.
    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = match &self.body {
            Body::Empty if self.status.starts_with("204") => Ok(()),
            Body::Empty => write!(head, "Content-Length: 0\r\n"),
            Body::Text(text) => write!(head, "Content-Length: {}\r\n", text.len()),
            Body::Stream(_, Some(len)) => write!(head, "Content-Length: {len}\r\n"),
            Body::Stream(_, None) => write!(head, "Transfer-Encoding: chunked\r\n"),
        };
        head.push_str("X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
        head
    }

    /// Sends the answer, without its body to `HEAD`. Returns whether a stream has reached the client whole.
    ///
    /// # Errors
    /// The stream cannot be read to its end. That a client goes away is none.
    pub(super) fn send(self, client: &TcpStream, deadline: Instant, with_body: bool) -> io::Result<bool> {
        let head = self.head();
        match self.body {
            Body::Stream(stream, len) if with_body => match send_stream(client, head.as_bytes(), stream, len) {
                Ok(()) => Ok(is_taken(client)),
                Err(Failed::Read(error)) => Err(error),
                Err(Failed::Client) => Ok(false),
            },
            body => {
                let text = if let (Body::Text(text), true) = (body, with_body) { text } else { String::new() };
                // A client that goes away is its own affair.
                let _ = send_by(client, &[head.as_bytes(), text.as_bytes()].concat(), deadline);
                Ok(false)
            }
        }
    }
}

/// Why a stream did not reach its client.
enum Failed {
    Read(io::Error),
    Client,
}

fn send_stream(
    mut client: &TcpStream,
    head: &[u8],
    mut stream: Box<dyn Read + Send>,
    len: Option<u64>,
) -> Result<(), Failed> {
    let gone = |_| Failed::Client;
    client.set_write_timeout(Some(STALL)).map_err(gone)?;
    client.write_all(head).map_err(gone)?;
    let (mut left, mut bytes) = (len, vec![0; CHUNK]);
    while left != Some(0) {
        let most = left.map_or(CHUNK, |left| CHUNK.min(usize::try_from(left).unwrap_or(CHUNK)));
        let count = match stream.read(&mut bytes[..most]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failed::Read(error)),
        };
        match (&mut left, count) {
            (Some(_), 0) => return Err(Failed::Read(io::Error::other("it was cut while it was read"))),
            (Some(left), _) => *left -= count as u64,
            // The end of the chunks, which tells the client that it has all of them.
            (None, 0) => return client.write_all(b"0\r\n\r\n").map_err(gone),
            (None, _) => client.write_all(format!("{count:x}\r\n").as_bytes()).map_err(gone)?,
        }
        client.write_all(&bytes[..count]).map_err(gone)?;
        if len.is_none() {
            client.write_all(b"\r\n").map_err(gone)?;
        }
    }
    Ok(())
}

/// Ends a connection to which everything was sent, and waits until the client ends it, too. A client that ends it before it has read everything
/// makes that an error: what it takes from its own system is what counts, not what this one holds for it.
fn is_taken(client: &TcpStream) -> bool {
    client.shutdown(Shutdown::Write).is_ok() && drain(client, Instant::now() + STALL).is_ok()
}

/// Sends bytes, and reads for a moment what the client still sends: a connection that is closed meanwhile loses the answer.
fn send_by(mut client: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        client.set_write_timeout(Some(left(deadline)?))?;
        match client.write(bytes)? {
            0 => return Ok(()),
            count => bytes = &bytes[count..],
        }
    }
    client.shutdown(Shutdown::Write)?;
    drain(client, deadline.min(Instant::now() + LINGER))
}

/// Reads what a client sends until its end.
///
/// # Errors
/// The client breaks the connection off, or sends on until the time is over.
fn drain(mut client: &TcpStream, until: Instant) -> io::Result<()> {
    let mut rest = [0; 1024];
    loop {
        client.set_read_timeout(Some(left(until)?))?;
        match client.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the time until a deadline.
///
/// # Errors
/// It is over.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
