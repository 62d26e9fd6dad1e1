//! `warpline open` serves one trace to one page, and refuses all other requests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of `warpline open`.
struct Opened {
    child: Child,
    address: SocketAddr,
    path: String,
    line: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(["open", "--no-browser"]).args(args);
    command
}

fn opened(trace: &Path, args: &[&str]) -> Opened {
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
    fn ask(&self, method: &str, path: &str, host: &str) -> (String, Vec<u8>) {
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

    fn status(&self, method: &str, path: &str, host: &str) -> String {
        self.ask(method, path, host).0.split(' ').nth(1).expect("a status").to_owned()
    }

    fn host(&self) -> String {
        self.address.to_string()
    }

    fn ends(&mut self) -> Option<i32> {
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

#[test]
fn the_ui_reads_the_trace_once_and_the_command_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("step 1.pftrace");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&trace, &content).expect("a trace");
    let mut opened = opened(&trace, &[]);
    assert!(opened.line.starts_with("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:"), "{}", opened.line);
    assert!(opened.path.ends_with("/step_1.pftrace"), "{}", opened.path);
    // A look before, as browsers do, ends nothing.
    let (head, _) = opened.ask("OPTIONS", &opened.path, &opened.host());
    assert!(head.starts_with("HTTP/1.1 204") && head.contains("Access-Control-Allow-Private-Network: true"), "{head}");
    let (head, body) = opened.ask("GET", &opened.path, &opened.host());
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
    assert!(head.contains("Cache-Control: no-store") && head.contains("Content-Length: 1200000"), "{head}");
    assert!(body == content, "{} of {} bytes", body.len(), content.len());
    assert_eq!(opened.ends(), Some(0));
}

#[test]
fn other_pages_and_other_paths_get_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("secret.pftrace");
    fs::write(&trace, "secret").expect("a trace");
    let opened = opened(&trace, &["--keep", "--ui", "https://perfetto.example:8443/v52/"]);
    let (path, host) = (opened.path.clone(), opened.host());
    let guessed = format!("/{}/secret.pftrace", "0".repeat(32));
    for path in ["/", "/secret.pftrace", &guessed, "/../secret.pftrace", &format!("{path}?x")] {
        assert_eq!(opened.status("GET", path, &host), "404", "{path}");
    }
    assert_eq!(opened.status("POST", &path, &host), "405");
    // A name that somebody lets resolve to this machine.
    let (head, body) = opened.ask("GET", &path, "evil.example");
    assert!(head.starts_with("HTTP/1.1 403") && body.is_empty(), "{head}");
    for _ in 0..2 {
        let (head, body) = opened.ask("GET", &path, &host);
        assert!(head.contains("Access-Control-Allow-Origin: https://perfetto.example:8443\r\n"), "{head}");
        assert_eq!(body, b"secret");
    }
}

#[test]
fn what_cannot_be_opened_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.pftrace");
    fs::write(&trace, "trace").expect("a trace");
    let refused = |args: &[&str], trace: &Path, because: &str| {
        let output = command(args).arg(trace).output().expect("the command runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && said.lines().count() == 1 && said.contains(because), "{said}");
    };
    refused(
        &[],
        &folder.path().join("none.pftrace"),
        "none.pftrace: No such file or directory (os error 2); name a trace",
    );
    refused(&[], Path::new("/dev/null"), "/dev/null: not a file; name a trace");
    refused(&["--ui", "ui.perfetto.dev"], &trace, "`ui.perfetto.dev` is no address of a UI; write `--ui https://HOST`");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    refused(
        &["--port", &port],
        &trace,
        "is in use, and Perfetto's UI reads traces from no other; end the program that uses it",
    );
}
