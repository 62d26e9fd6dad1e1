//! `warpline record PID --open` serves what it has recorded, as `warpline open` does.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::target::{Target, complaint, runtime_dir, state, until, warpline};

const OPEN: [&str; 4] = ["--open", "--no-browser", "--port", "0"];

/// Starts a recording that is opened.
fn recording(dir: &Path, args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = warpline(dir, &[args, &OPEN].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, out)
}

/// Reads up to the address, and returns what was said before it, the host and the path.
fn address(out: &mut impl BufRead) -> (String, String, String) {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).expect("a line") > 0, "no address: {said}");
        if let Some((_, url)) = line.split_once("/#!/?url=http://") {
            let (host, path) = url.split_once('/').expect("a path");
            return (said, host.to_owned(), format!("/{}", path.split_once('&').expect("commands").0));
        }
        said += &line;
    }
}

fn served(host: &str, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(host).expect("a connection");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    answer.split_off(end + 4)
}

#[test]
fn a_recording_is_served_when_it_ends() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let (mut child, mut out) =
        recording(dir.path(), &["record", &pid, "--for", "200ms", "-o", trace.to_str().expect("UTF-8")]);
    let (said, host, path) = address(&mut out);
    assert!(said.contains(" recorded") && !said.contains("open it with"), "{said}");
    assert!(path.ends_with("/t.pftrace"), "{path}");
    assert_eq!(state(dir.path(), &pid), "records nothing");
    assert!(served(&host, &path) == fs::read(&trace).expect("a trace"));
    assert!(child.wait().expect("it ends").success());
    target.is_unharmed();
    target.end();
}

#[test]
fn ctrl_c_ends_the_recording_and_then_the_server() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let (mut child, mut out) = recording(dir.path(), &["record", &pid, "-o", trace.to_str().expect("UTF-8")]);
    let interrupt = |child: &Child| {
        kill_process(Pid::from_raw(child.id().cast_signed()).expect("a process"), Signal::INT).expect("it is there");
    };
    until("it records", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
    interrupt(&child);
    let (_, host, _) = address(&mut out);
    assert!(TcpStream::connect(host).is_ok() && child.try_wait().expect("a child").is_none());
    interrupt(&child);
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    target.end();
}

#[test]
fn a_port_in_use_is_found_before_anything_is_recorded() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let path = trace.to_str().expect("UTF-8");
    let said = complaint(dir.path(), &["record", &pid, "--open", "--port", &port, "-o", path]);
    assert!(said.contains("is in use") && !trace.exists(), "{said}");
    // The options of `open` are none of a recording that is not opened.
    let output = warpline(dir.path(), &["record", &pid, "--keep"]).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.code() == Some(2) && said.contains("--open"), "{said}");
    target.end();
}
