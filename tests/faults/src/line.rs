//! What the driver and its ranks say to each other: lines of text over a socket.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// One end.
pub struct Line {
    socket: TcpStream,
    heard: Receiver<String>,
}

impl Line {
    pub fn new(socket: TcpStream) -> io::Result<Line> {
        socket.set_nodelay(true)?;
        let lines = BufReader::new(socket.try_clone()?).lines();
        let (tell, heard) = channel();
        thread::Builder::new().name("line".to_owned()).spawn(move || {
            // The end of the connection is the end of the channel.
            lines.map_while(Result::ok).all(|text| tell.send(text).is_ok());
        })?;
        Ok(Line { socket, heard })
    }

    pub fn say(&self, text: &str) -> io::Result<()> {
        (&self.socket).write_all(format!("{text}\n").as_bytes())
    }

    /// The next line, without waiting.
    pub fn heard(&self) -> Result<Option<String>, String> {
        match self.heard.try_recv() {
            Ok(text) => Ok(Some(text)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the other end is gone".to_owned()),
        }
    }

    /// The next line.
    pub fn hear(&self, until: Instant) -> Result<String, String> {
        match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(text) => Ok(text),
            Err(RecvTimeoutError::Timeout) => Err("it says nothing in time".to_owned()),
            Err(RecvTimeoutError::Disconnected) => Err("it is gone".to_owned()),
        }
    }

    /// The rest of the next line, which has to begin so.
    pub fn expect(&self, begin: &str, until: Instant) -> Result<String, String> {
        let text = self.hear(until)?;
        match text.strip_prefix(begin) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(format!("it said `{text}`, not `{begin}`")),
        }
    }
}

/// No case takes longer than this many seconds, whatever happens: who waits for a peer that is gone ends then.
pub const PATIENCE: Duration = Duration::from_secs(60);
