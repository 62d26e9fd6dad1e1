//! Programs that answer for ever, or nearly so: each command ends, within a bounded time and with bounded files.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use warpline_trace::control::protocol::{Kind, frame};

use crate::support::fake;
use crate::support::target::{Target, runtime_dir, until, warpline, warpline_by};

/// Far more than any command takes: the longest has 16 s, and `ps` has 12 s. It tells a command that ends from one that does not.
const BOUND: Duration = Duration::from_secs(90);

/// Starts the command as a shell does in the foreground. A shell starts background jobs with SIGINT ignored, and children inherit that.
fn start(dir: &Path, args: &[&str]) -> Child {
    let mut with_default = Command::new("env");
    with_default.args(["--default-signal=INT", env!("CARGO_BIN_EXE_warpline")]);
    let mut command = warpline_by(with_default, dir, args);
    command.current_dir(dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

/// How the command ends, which it does within the bound. What it writes is read meanwhile.
fn end(child: Child) -> (Option<i32>, String, String) {
    let process = Pid::from_raw(child.id().cast_signed()).expect("a process");
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || say.send(child.wait_with_output()));
    let ended = said.recv_timeout(BOUND).unwrap_or_else(|_| {
        let _ = kill_process(process, Signal::KILL);
        panic!("it does not end");
    });
    let Output { status, stdout, stderr } = ended.expect("it ended");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn send(stream: &UnixStream, bytes: &[u8]) -> bool {
    (&*stream).write_all(bytes).is_ok()
}

/// A long reply, a byte each half second.
fn drip(_: Value, stream: &UnixStream) {
    let mut bytes = Vec::new();
    frame(Kind::Json, " ".repeat(100_000).as_bytes(), &mut bytes);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next()
        && send(stream, &[*byte])
    {
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// A packet of a trace, with nothing in it.
fn packet(bytes: usize) -> Vec<u8> {
    // Field 1 of a trace, its length in two bytes; field 900 of a packet, unknown to every reader.
    let body = bytes - 3;
    let mut packet = vec![0x0a, (body & 0x7f | 0x80) as u8, (body >> 7) as u8];
    packet.extend([0xa2, 0x38, ((body - 4) & 0x7f | 0x80) as u8, ((body - 4) >> 7) as u8]);
    packet.resize(bytes, 0);
    packet
}

const PACKET: usize = 1_000;

/// Begins a recording and never ends it: pieces that end in the middle of a packet, as fast as they are read.
fn flood(request: Value, stream: &UnixStream) {
    assert_eq!(request["ask"], "record");
    let mut bytes = fake::replies(&[json!({"is": "started", "session": "held", "notes": []})]);
    let packets = packet(PACKET).repeat(700);
    packets.chunks(999).for_each(|piece| frame(Kind::Trace, piece, &mut bytes));
    while send(stream, &bytes) {
        bytes.clear();
        packets.chunks(999).for_each(|piece| frame(Kind::Trace, piece, &mut bytes));
    }
}

/// The file is a trace: whole packets and nothing else.
fn packets(path: &Path) -> usize {
    let bytes = fs::read(path).expect("a trace");
    assert!(bytes.chunks(PACKET).all(|chunk| chunk == packet(PACKET)), "the last packet is whole");
    bytes.len()
}

#[test]
fn a_byte_now_and_then_is_no_answer() {
    let dir = runtime_dir();
    let pid = fake::listen(dir.path(), drip);
    let commands = [
        &["status", &pid][..],
        &["stop", &pid],
        &["dump", &pid],
        &["arm", &pid, "a.b", "--within", "1s"],
        &["record", &pid, "--for", "1s"],
    ];
    let children: Vec<_> = commands.iter().map(|args| start(dir.path(), args)).collect();
    for (args, child) in commands.iter().zip(children) {
        let (status, said, complained) = end(child);
        assert_eq!((status, &*said), (Some(2), ""), "{args:?}");
        assert!(complained.contains(&format!("process {pid} does not answer")), "{args:?}: {complained}");
    }
    assert!(!dir.path().join(format!("warpline-{pid}.pftrace")).exists(), "no recording began");
}

#[test]
fn one_that_is_slow_costs_the_list_only_its_own_line() {
    let dir = runtime_dir();
    let pid = fake::listen(dir.path(), drip);
    let target = Target::start(dir.path(), "control");
    let (status, list, _) = end(start(dir.path(), &["ps"]));
    let line = |pid: &str| list.lines().find(|line| line.trim_start().starts_with(pid)).expect("a line").to_owned();
    assert_eq!(status, Some(0));
    assert!(line(&pid).contains(" does not answer ") && line(&target.pid()).contains(" records nothing "), "{list}");
    target.end();
}

#[test]
fn a_list_of_very_many_sockets_ends() {
    let dir = runtime_dir();
    let folder = fake::sockets_dir(dir.path());
    // More than may be open at one time: those that do not answer are asked in turns, and at last no more.
    let silent: Vec<_> = (0..600)
        .map(|n| std::os::unix::net::UnixListener::bind(folder.join(format!("{}-{n}-1.sock", 10_000 + n))))
        .collect();
    let mut command = warpline(dir.path(), &["ps"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let (status, list, complained) = end(child);
    assert_eq!(status, Some(0), "{complained}");
    let listed = list.lines().filter(|line| line.contains(folder.to_str().expect("UTF-8")));
    assert_eq!(listed.count(), 600, "{list}");
    drop(silent);
}

#[test]
fn a_recording_that_never_ends_is_bounded_in_time() {
    let dir = runtime_dir();
    let slowly = |_: Value, stream: &UnixStream| {
        let mut bytes = fake::replies(&[json!({"is": "started", "session": "held", "notes": []})]);
        frame(Kind::Trace, &packet(PACKET), &mut bytes);
        while send(stream, &bytes) {
            bytes.clear();
            frame(Kind::Trace, &packet(PACKET), &mut bytes);
            frame(Kind::Json, br#"{"is":"nothing"}"#, &mut bytes);
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let pid = fake::listen(dir.path(), slowly);
    let (status, said, complained) = end(start(dir.path(), &["record", &pid, "--for", "200ms", "-o", "t.pftrace"]));
    assert_eq!((status, &*said), (Some(2), ""), "{complained}");
    assert!(
        complained
            .contains(&format!("process {pid} does not end the recording; everything that it sent is in t.pftrace")),
        "{complained}"
    );
    assert!(packets(&dir.path().join("t.pftrace")) > 0);
}

#[test]
fn a_recording_that_never_ends_is_bounded_in_size() {
    let dir = runtime_dir();
    let pid = fake::listen(dir.path(), flood);
    let args = ["record", &pid, "--for", "1h", "--limit", "3MiB", "-o", "t.pftrace"];
    let (status, said, complained) = end(start(dir.path(), &args));
    assert_eq!((status, &*said), (Some(2), ""), "{complained}");
    assert!(complained.contains("does not end the recording; everything that it sent is in t.pftrace"), "{complained}");
    let bytes = packets(&dir.path().join("t.pftrace"));
    // What a program still has to send when it is asked for the end is taken, and no more.
    assert!((3 << 20..3 << 20 | 64 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_program_whose_recording_reaches_the_limit_ends_it_whole() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let (status, said, complained) = end(start(dir.path(), &["record", &pid, "--limit", "20KiB", "-o", "t.pftrace"]));
    assert_eq!(status, Some(0), "{complained}");
    assert!(
        said.contains(" zones recorded, ")
            && said.contains("the recording ended at the limit of 20 KiB; raise it with `--limit`\n"),
        "{said}"
    );
    let trace = fs::read(dir.path().join("t.pftrace")).expect("a trace");
    assert!(trace.windows(12).any(|bytes| bytes == b"session ends"), "it is whole");
    target.end();
}

#[test]
fn what_is_no_trace_is_not_written() {
    let dir = runtime_dir();
    let pid = fake::listen(dir.path(), |_: Value, stream: &UnixStream| {
        let mut bytes = fake::replies(&[json!({"is": "started", "session": "held", "notes": []})]);
        frame(Kind::Trace, &[b'x'; 60_000], &mut bytes);
        while send(stream, &bytes) {}
    });
    let (status, _, complained) = end(start(dir.path(), &["record", &pid, "--for", "1h", "-o", "t.pftrace"]));
    assert_eq!(status, Some(2));
    assert!(
        complained.contains("sent a reply that this `warpline` does not understand: no packet of a trace"),
        "{complained}"
    );
    assert_eq!(fs::metadata(dir.path().join("t.pftrace")).expect("a file").len(), 0);
}

#[test]
fn a_signal_ends_every_command_and_leaves_a_trace_that_is_one() {
    let dir = runtime_dir();
    let silent = |request: Value, stream: &UnixStream| {
        if request["ask"] == "record" {
            flood(request, stream);
        } else {
            let _ = (&*stream).read(&mut [0]);
        }
    };
    let pid = fake::listen(dir.path(), silent);
    for signal in [Signal::TERM, Signal::INT] {
        let record = ["record", &pid, "-o", "t.pftrace", "--limit", "100GiB"];
        for args in [&["ps"][..], &["status", &pid], &["stop", &pid], &["dump", &pid], &["arm", &pid, "a.b"], &record] {
            let trace = dir.path().join("t.pftrace");
            let _ = fs::remove_file(&trace);
            let child = start(dir.path(), args);
            if args[0] == "record" {
                until("it writes", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
            } else {
                until("it waits", || is_waiting(child.id()));
            }
            let process = Pid::from_raw(child.id().cast_signed()).expect("a process");
            kill_process(process, signal).expect("it is there");
            let (done, is_done) = mpsc::channel::<()>();
            if (args[0], signal) == ("record", Signal::INT) {
                // The first one asks for the end, and a program may take its time for that; a second one does not wait. Those that
                // come before the first is seen are one.
                std::thread::spawn(move || {
                    while is_done.recv_timeout(Duration::from_millis(50)) == Err(mpsc::RecvTimeoutError::Timeout) {
                        let _ = kill_process(process, signal);
                    }
                });
            }
            let (status, said, complained) = end(child);
            drop(done);
            if args[0] == "record" {
                let by_signal = if signal == Signal::INT { 130 } else { 143 };
                assert_eq!(status, Some(by_signal), "{said}{complained}");
            } else {
                // It does not come to saying that there was no answer.
                assert!(matches!(status, None | Some(130)), "{args:?}: {status:?} {complained}");
            }
            if args[0] == "record" {
                assert!(packets(&trace) > 0, "{complained}");
            }
        }
    }
}

/// Whether a command has asked and waits for the answer: its threads are asleep, and a socket is open.
fn is_waiting(process: u32) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    // The state follows the name, which is in parentheses.
    let sleeps = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    tasks.flatten().all(|task| fs::read_to_string(task.path().join("stat")).is_ok_and(sleeps))
        && handles
            .flatten()
            .any(|handle| fs::read_link(handle.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")))
}
