//! A run of `warpline open`, and the requests of its tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of `warpline open`.
pub struct Opened {
    pub child: Child,
    pub address: SocketAddr,
    pub path: String,
    pub line: String,
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(["open", "--no-browser"]).args(args);
    command
}

pub fn opened(trace: &Path, args: &[&str]) -> Opened {
    let mut child = command(args)
        .args(["--port", "0"])
        .arg(trace)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let query = line.trim_end().split_once("/#!/?url=http://").expect("an address").1;
    let (url, commands) = query.split_once("&startupCommands=").expect("commands for the UI");
    assert!(commands.starts_with("%5B%7B%22id%22%3A%22dev.perfetto.ExpandTracksByRegex%22%2C"), "{commands}");
    let (address, path) = url.split_once('/').expect("a path");
    Opened { child, address: address.parse().expect("an address"), path: format!("/{path}"), line: line.clone() }
}

impl Opened {
    /// The head and the body of the answer.
    pub fn ask(&self, method: &str, path: &str, host: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://ui.perfetto.dev\r\nConnection: close\r\n\r\n"
        )
        .expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).expect("text"), body)
    }

    pub fn status(&self, method: &str, path: &str, host: &str) -> String {
        self.ask(method, path, host).0.split(' ').nth(1).expect("a status").to_owned()
    }

    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn ends(&mut self) -> Option<i32> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
