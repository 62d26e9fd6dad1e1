//! `warpline open` beside hostile clients, and a trace that somebody replaces while it is served.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::opened::{Opened, opened};

/// A folder with a trace.
fn folder_with(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.pftrace");
    fs::write(&trace, content).expect("a trace");
    (folder, trace)
}

/// More than the buffers of a connection hold.
fn large() -> Vec<u8> {
    (0..30_u32 << 18).flat_map(u32::to_le_bytes).collect()
}

/// Sends bytes, and returns the first line of the answer.
fn first_line(opened: &Opened, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(opened.address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    client.write_all(bytes).expect("it is connected");
    let mut answer = [0; 64];
    let count = client.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..count]).lines().next().unwrap_or_default().to_owned()
}

/// A client that has sent its request and reads nothing.
fn asked(opened: &Opened) -> TcpStream {
    let mut client = TcpStream::connect(opened.address).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    write!(client, "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", opened.path, opened.host()).expect("it is connected");
    client
}

#[track_caller]
fn serves(opened: &Opened, content: &[u8]) {
    let (head, body) = opened.ask("GET", &opened.path, &opened.host());
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body == content, "{} of {} bytes", body.len(), content.len());
}

#[test]
fn the_length_that_a_request_declares_costs_nothing() {
    let (_folder, trace) = folder_with(b"trace");
    let mut opened = opened(&trace, &[]);
    let (path, host) = (opened.path.clone(), opened.host());
    for length in ["99999999999", "18446744073709551615", "18446744073709551616", "-1"] {
        let post = |host: &str, path: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n")
        };
        assert_eq!(first_line(&opened, post("evil.example", "/").as_bytes()), "HTTP/1.1 403 Forbidden", "{length}");
        assert_eq!(first_line(&opened, post(&host, &path).as_bytes()), "HTTP/1.1 405 Method Not Allowed", "{length}");
    }
    let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; 1 << 20]].concat();
    let mut client = TcpStream::connect(opened.address).expect("it listens");
    let _ = client.write_all(&long);
    serves(&opened, b"trace");
    assert_eq!(opened.ends(), Some(0));
}

#[test]
fn idle_connections_do_not_keep_the_ui_out() {
    let (_folder, trace) = folder_with(b"trace");
    let mut opened = opened(&trace, &[]);
    let pid = Pid::from_child(&opened.child);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).expect("a lower limit");
    let idle: Vec<_> = (0..150).map(|_| TcpStream::connect(opened.address).expect("it listens")).collect();
    // A thread whose connection is over does not sleep. On a busy machine it may wait for a processor before it ends.
    let sleeps = |task: &Path| fs::read_to_string(task.join("stat")).is_ok_and(|stat| stat.contains(") S "));
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", opened.child.id())).expect("it runs");
        tasks.filter(|task| task.as_ref().is_ok_and(|task| sleeps(&task.path()))).count()
    };
    let most = thread::scope(|scope| {
        // It is answered when all that came before have been accepted.
        let asked = scope.spawn(|| opened.status("GET", "/none", &opened.host()));
        let mut most = threads();
        while !asked.is_finished() {
            most = most.max(threads());
            thread::sleep(Duration::from_millis(1));
        }
        most
    });
    assert!(most <= 18, "{most} threads");
    serves(&opened, b"trace");
    assert_eq!(opened.ends(), Some(0));
    drop(idle);
}

/// Idle connections close one another, and not that of the browser.
#[test]
fn idle_connections_do_not_end_a_transfer() {
    let content = large();
    let (_folder, trace) = folder_with(&content);
    let mut opened = opened(&trace, &[]);
    let mut client = asked(&opened);
    let mut answer = vec![0; 1000];
    client.read_exact(&mut answer).expect("the begin of the answer");
    let idle: Vec<_> = (0..100).map(|_| TcpStream::connect(opened.address).expect("it listens")).collect();
    client.read_to_end(&mut answer).expect("the rest of it");
    assert!(answer.ends_with(&content), "{} bytes", answer.len());
    drop((client, idle));
    assert_eq!(opened.ends(), Some(0));
}

#[test]
fn a_client_that_goes_away_has_not_read_the_trace() {
    // The second fits into the buffers of a connection, so the server has sent all of it.
    for content in [large(), vec![7; 60_000]] {
        let (_folder, trace) = folder_with(&content);
        let mut opened = opened(&trace, &[]);
        for _ in 0..3 {
            let mut client = asked(&opened);
            client.read_exact(&mut [0; 1000]).expect("the begin of the answer");
            drop(client);
        }
        thread::sleep(Duration::from_millis(500));
        assert!(opened.child.try_wait().expect("a child").is_none(), "nobody has read {} bytes", content.len());
        serves(&opened, &content);
        assert_eq!(opened.ends(), Some(0));
    }
}

/// Each request has the file that was named, whatever has its name now.
#[test]
fn the_trace_that_was_named_is_served_whatever_takes_its_place() {
    let in_place: [fn(&Path); 3] = [
        |trace| std::os::unix::fs::symlink("/etc/passwd", trace).expect("a link"),
        |trace| mknodat(CWD, trace, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe"),
        |trace| fs::write(trace, "another").expect("a file"),
    ];
    for put in in_place {
        let (_folder, trace) = folder_with(b"the trace");
        let opened = opened(&trace, &["--keep"]);
        serves(&opened, b"the trace");
        fs::remove_file(&trace).expect("the trace is there");
        put(&trace);
        serves(&opened, b"the trace");
        serves(&opened, b"the trace");
    }
}

/// The same holds for several traces, which are served as one.
#[test]
fn the_traces_that_were_named_are_served_whatever_takes_their_place() {
    // A packet of 3 bytes, with the time 1.
    let packet = [0x0A, 0x02, 0x40, 0x01];
    let folder = tempfile::tempdir().expect("a folder");
    let traces = ["a", "b"].map(|name| folder.path().join(name).with_extension("pftrace"));
    for trace in &traces {
        fs::write(trace, packet).expect("a trace");
    }
    let opened = opened(folder.path(), &["--keep"]);
    let chunked = |opened: &Opened| opened.ask("GET", &opened.path, &opened.host());
    let (head, body) = chunked(&opened);
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    assert!(body.ends_with(b"0\r\n\r\n"), "{body:?}");
    fs::remove_file(&traces[1]).expect("the trace is there");
    mknodat(CWD, &traces[1], FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let since = Instant::now();
    assert_eq!(chunked(&opened).1, body);
    assert!(since.elapsed() < Duration::from_secs(15));
}

/// A trace that somebody cuts while it is served ends before its declared length, which the browser shows as an error.
#[test]
fn a_trace_that_is_cut_meanwhile_has_not_been_read() {
    let content = large();
    let (_folder, trace) = folder_with(&content);
    let mut opened = opened(&trace, &[]);
    let mut client = asked(&opened);
    client.read_exact(&mut [0; 1000]).expect("the begin of the answer");
    File::options().write(true).open(&trace).and_then(|file| file.set_len(20 << 20)).expect("it can be cut");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("what is left");
    assert!(rest.len() < content.len() - 1000, "{} bytes", rest.len());
    drop(client);
    thread::sleep(Duration::from_millis(300));
    assert!(opened.child.try_wait().expect("a child").is_none(), "nobody has read it");
    fs::write(&trace, &content[..5 << 20]).expect("it can be written");
    serves(&opened, &content[..5 << 20]);
    assert_eq!(opened.ends(), Some(0));
}
