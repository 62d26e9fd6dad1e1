//! What others send or put in the way: nothing hangs, nobody gets in, no file outside of the directory is touched, and the
//! program works on.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use warpline_trace::control::protocol::{ControlRequest, Decoder, Kind, MAX_REPLY_BYTES, frame};
use warpline_trace::control::socket::SocketOwner;

use crate::support::target::{PROGRAM, SOON, Target, complaint, runtime_dir, said, sockets, state, until};
use crate::support::{lacks, target};

fn connect(dir: &Path) -> UnixStream {
    let [socket] = &sockets(dir)[..] else { panic!("one socket") };
    let stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a time");
    stream
}

fn request(request: &ControlRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
    bytes
}

fn record() -> Vec<u8> {
    request(&ControlRequest::Record { for_ms: None, filter: String::new(), kernels: false })
}

/// Everything until the other end closes. One that closes with something unread resets.
fn rest(mut stream: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it does not close: {error}"),
        _ => bytes,
    }
}

/// Processor time of a thread of the process, in ticks of 10 ms; none before it has its name.
fn ticks(pid: u32, thread: &str) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let stat = stats.into_iter().find(|stat| stat.contains(&format!("({thread})")))?;
    let fields: Vec<_> = stat.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
    Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
}

fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_ascii_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}

#[test]
fn garbage_and_half_messages_are_refused_or_closed() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let whole = request(&ControlRequest::Status);
    let too_long = [&u32::MAX.to_le_bytes()[..], b"J"].concat();
    let two = [&whole[..], &whole].concat();
    let deep = {
        let mut bytes = Vec::new();
        frame(Kind::Json, "[".repeat(16 << 10).as_bytes(), &mut bytes);
        bytes
    };
    for sent in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &too_long, &two, &deep, b"\x05\0\0\0T1234", b"\x03\0\0\0J{}"]
    {
        let stream = connect(dir.path());
        // It may close before it has all.
        let _ = (&stream).write_all(sent);
        let reply = String::from_utf8_lossy(&rest(&stream)).into_owned();
        assert!(reply.is_empty() || reply.contains(r#""is":"error""#), "{sent:?}: {reply}");
    }
    // Half a request, and no more: closed when its time is up. And one that ends in the middle: closed at once.
    let half = connect(dir.path());
    (&half).write_all(&whole[..whole.len() / 2]).expect("it listens");
    let ended = connect(dir.path());
    (&ended).write_all(&whole[..3]).expect("it listens");
    ended.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!((rest(&ended).len(), rest(&half).len()), (0, 0));
    // One byte at a time is a request all the same.
    let slow = connect(dir.path());
    whole.iter().for_each(|byte| (&slow).write_all(&[*byte]).expect("it listens"));
    assert!(String::from_utf8_lossy(&rest(&slow)).contains(r#""is":"status""#));
    target.is_unharmed();
    assert_eq!(state(dir.path(), &target.pid()), "records nothing");
    target.end();
}

#[test]
fn who_sends_on_and_on_is_closed_and_takes_no_memory() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let before = resident_kb(target.child.id());
    for first in [Vec::new(), record(), request(&ControlRequest::Watch { every_ms: 100 })] {
        let stream = connect(dir.path());
        stream.set_write_timeout(Some(SOON)).expect("a time");
        (&stream).write_all(&first).expect("it listens");
        let mut sent = 0_usize;
        // At most what a request may have, and what the kernel takes for it.
        let error = loop {
            match (&stream).write(&[b'x'; 64 << 10]) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
            assert!(sent < 16 << 20, "it reads on");
        };
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    }
    until("nothing is left", || state(dir.path(), &target.pid()) == "records nothing");
    let after = resident_kb(target.child.id());
    assert!(after < before + (32 << 10), "{before} kB, then {after}");
    target.is_unharmed();
    target.end();
}

#[test]
fn a_reader_that_never_reads_costs_bounded_memory_and_is_sent_away() {
    let dir = runtime_dir();
    // A busy machine may not run the collector for seconds.
    let mut target = Target::start(dir.path(), "control,ring=32768");
    target.tell("own");
    target.is_unharmed();
    let silent: Vec<_> = (0..3)
        .map(|_| {
            let stream = connect(dir.path());
            (&stream).write_all(&record()).expect("it listens");
            stream
        })
        .collect();
    // Who reads gets all the same; and after ten seconds in which they took nothing the others are gone.
    let trace = dir.path().join("t.pftrace");
    let path = trace.to_str().expect("UTF-8");
    let text = said(dir.path(), &["record", &target.pid(), "--for", "300ms", "-o", path]);
    assert!(text.contains(" zones recorded, 0 dropped"), "{text}");
    until("those who do not read are gone", || state(dir.path(), &target.pid()) == "records for itself");
    drop(silent);
    target.is_unharmed();
    target.tell("finish");
    let own = target.wait_for("own: ");
    let numbers: Vec<u64> = own.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == numbers[1], "the program's own session has all: {own}");
    target.end();
}

#[test]
fn thousands_of_connections_cost_a_small_share_of_a_core_and_keep_nobody_out_for_long() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let (pid, begin) = (target.child.id(), Instant::now());
    until("it has a name", || ticks(pid, "warpline-ctl").is_some());
    let spent = || ticks(pid, "warpline-ctl").expect("it runs");
    let before = spent();
    let mut kept = Vec::new();
    for n in 0..3_000 {
        let stream = UnixStream::connect(socket).expect("it listens");
        // Some stay, some leave without a word, some ask.
        match n % 3 {
            0 if kept.len() < 100 => kept.push(stream),
            1 => drop((&stream).write_all(&request(&ControlRequest::Status))),
            _ => {}
        }
    }
    // The program closes the last one after it has accepted all before it, 32 in each 20 ms. A busy machine takes longer, and
    // none is faster.
    let last = connect(dir.path());
    rest(&last);
    let (spent, took) = (Duration::from_millis(10) * u32::try_from(spent() - before).expect("a time"), begin.elapsed());
    let least = Duration::from_millis(20) * (3_000 / 32 - 1);
    assert!(took >= least, "{took:?}, not {least:?}");
    assert!(spent * 2 < took + Duration::from_millis(200), "{spent:?} of {took:?}");
    target.is_unharmed();
    // Who connected and says nothing has no more than two seconds.
    until("somebody else is heard", || {
        let stream = connect(dir.path());
        let asked = (&stream).write_all(&request(&ControlRequest::Status)).is_ok();
        asked && String::from_utf8_lossy(&rest(&stream)).contains(r#""is":"status""#)
    });
    drop(kept);
    target.end();
}

#[test]
fn nobody_has_more_than_a_few_recordings() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let recordings: Vec<_> = (0..4).map(|_| connect(dir.path())).collect();
    recordings.iter().for_each(|mut stream| stream.write_all(&record()).expect("it listens"));
    until("four record", || state(dir.path(), &target.pid()) == "4 recordings");
    let said = complaint(dir.path(), &["record", &target.pid(), "--for", "1s", "-o", "/dev/null"]);
    assert!(said.contains("4 recordings and watchers are running already; `warpline stop"), "{said}");
    // Who goes away makes room, also in the middle of a trace.
    drop(recordings);
    until("they are gone", || state(dir.path(), &target.pid()) == "records nothing");
    target.end();
}

#[test]
fn who_finds_no_room_among_the_connections_is_told_so() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let arm = request(&ControlRequest::Arm { range: "cli.target.rare".to_owned(), zones: 1, for_ms: 600_000 });
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let stream = connect(dir.path());
            (&stream).write_all(&arm).expect("it listens");
            // Its connection is one of those that are open.
            (&stream).read_exact(&mut [0; 4]).expect("it is armed");
            stream
        })
        .collect();
    let said = complaint(dir.path(), &["status", &target.pid()]);
    assert!(said.ends_with(": 16 connections are open already; try again"), "{said}");
    drop(waiting);
    until("there is room", || {
        target::warpline(dir.path(), &["status", &target.pid()]).output().expect("it runs").status.success()
    });
    target.end();
}

#[test]
fn another_user_gets_no_answer_even_where_the_files_would_let_him() {
    if !rustix::process::geteuid().is_root() {
        return lacks::skip("only root can be another user; run the tests as root");
    }
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let python = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  s.settimeout(60)\n\
                  try:\n    s.connect(sys.argv[1])\n\
                  except PermissionError:\n    print('refused'); sys.exit()\n\
                  try:\n    s.sendall(bytes.fromhex(sys.argv[2])); print(s.recv(100))\n\
                  except (ConnectionError, BrokenPipeError):\n    print(b'')\n";
    let hex: String = request(&ControlRequest::Status).iter().map(|byte| format!("{byte:02x}")).collect();
    let as_nobody = || {
        let mut command = Command::new("python3");
        command.args(["-c", python]).arg(socket).arg(&hex).uid(65534).gid(65534).current_dir("/");
        String::from_utf8(command.output().expect("python3").stdout).expect("UTF-8")
    };
    assert_eq!(as_nobody(), "refused\n", "by the file system");
    // Whoever opens the files by mistake still lets nobody in.
    for (path, mode) in [(dir.path(), 0o755), (socket.parent().expect("a directory"), 0o755), (socket, 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }
    assert_eq!(as_nobody(), "b''\n", "by the program itself");
    let said = complaint(dir.path(), &["status", &target.pid()]);
    assert!(said.contains("others may use it: its mode is 0755"), "{said}");
    target.is_unharmed();
    target.end();
}

#[test]
fn links_in_place_of_the_directory_are_refused_and_not_followed() {
    let dir = runtime_dir();
    let elsewhere = runtime_dir();
    symlink(elsewhere.path(), dir.path().join("warpline")).expect("a link");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([PROGRAM, "--exact", "--ignored", "--nocapture"]).env("WARPLINE_TEST_TARGET", "1");
    command.env("XDG_RUNTIME_DIR", dir.path()).env("WARPLINE", "control,budget=100%").stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("it is a symlink; remove it, or set XDG_RUNTIME_DIR"), "{text}");
    assert!(text.contains("warpline: the program cannot be controlled from outside: "), "it runs, and says so: {text}");
    assert_eq!(fs::read_dir(elsewhere.path()).expect("a directory").count(), 0, "nothing was made there");
    let me = std::process::id().to_string();
    assert!(complaint(dir.path(), &["status", &me]).contains("it is a symlink"));
    let output = target::warpline(dir.path(), &["ps"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is a symlink; its sockets are ignored"));
}

#[test]
fn links_and_files_in_place_of_sockets_are_left_alone() {
    let dir = runtime_dir();
    let (folder, precious) = (dir.path().join("warpline"), dir.path().join("precious"));
    fs::create_dir(&folder).expect("a directory");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("a mode");
    fs::write(&precious, "precious").expect("a file");
    let other = UnixListener::bind(dir.path().join("other")).expect("a socket");
    let here = SocketOwner::read("self").expect("this process");
    let over = |process| SocketOwner { process, started: 1, ..here }.socket_name();
    symlink(&precious, folder.join(over(1))).expect("a link");
    symlink(dir.path().join("other"), folder.join(over(2))).expect("a link");
    fs::write(folder.join(over(3)), "a file").expect("a file");
    drop(UnixListener::bind(folder.join("of another program")).expect("a socket"));
    drop(UnixListener::bind(folder.join(over(4))).expect("a socket that nobody listens on"));
    let names = || {
        let entries = fs::read_dir(&folder).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort_unstable();
        names
    };
    let mut left = [over(1), over(2), over(3), "of another program".to_owned()];
    left.sort_unstable();
    // Only what was a socket of a program that is over is gone, whoever looks first.
    let target = Target::start(dir.path(), "control");
    let socket = SocketOwner::read(&target.pid()).expect("it runs").socket_name();
    let mut with_its = [&left[..], std::slice::from_ref(&socket)].concat();
    with_its.sort_unstable();
    assert_eq!(names(), with_its);
    // A link in place of its own socket is not taken for it.
    fs::rename(folder.join(&socket), folder.join("away")).expect("a socket");
    symlink(folder.join("away"), folder.join(&socket)).expect("a link");
    let said = complaint(dir.path(), &["status", &target.pid()]);
    assert!(said.contains("is not a socket of this user; correct this"), "{said}");
    fs::remove_file(folder.join(&socket))
        .and_then(|()| fs::rename(folder.join("away"), folder.join(&socket)))
        .expect("back");
    target.end();
    assert_eq!(names(), left);
    assert_eq!(fs::read_to_string(&precious).expect("a file"), "precious");
    assert!(UnixStream::connect(dir.path().join("other")).is_ok());
    drop(other);
}

#[test]
fn a_socket_that_a_killed_program_left_is_no_program_and_goes() {
    let dir = runtime_dir();
    for looks in [true, false] {
        let mut target = Target::start(dir.path(), "control");
        let pid = target.pid();
        target.child.kill().and_then(|()| target.child.wait()).expect("it ends");
        assert_eq!(sockets(dir.path()).len(), 1, "nobody has taken it away yet");
        if looks {
            assert_eq!(target::listed(dir.path()), 0);
        } else {
            assert!(complaint(dir.path(), &["status", &pid]).contains("there is no process"));
            Target::start(dir.path(), "control").end();
        }
        assert!(sockets(dir.path()).is_empty());
    }
}

#[test]
fn a_program_that_is_stopped_is_waited_for_no_longer_than_some_seconds() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(target.child.id().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it is there");
    };
    signal(rustix::process::Signal::STOP);
    let said = complaint(dir.path(), &["status", &target.pid()]);
    assert!(said.ends_with("does not answer: it is stopped or too busy; try again"), "{said}");
    signal(rustix::process::Signal::CONT);
    target.end();
}

/// A program that sees other files under the same names, as in a container.
#[test]
fn a_program_in_another_namespace_of_the_file_system_is_reached_by_its_number() {
    let dir = runtime_dir();
    let unshare = |program: &Path, args: &[&str]| {
        let mut command = Command::new("unshare");
        // A fresh file system over the runtime directory: what is made in it is seen nowhere else.
        let script = "mount -t tmpfs -o mode=0700 none \"$XDG_RUNTIME_DIR\" && exec \"$0\" \"$@\"";
        command.args(["--mount", "--", "sh", "-c", script]).arg(program).args(args);
        command.env("XDG_RUNTIME_DIR", dir.path()).env("WARPLINE", "control,budget=100%");
        command
    };
    let probe = unshare(Path::new("true"), &[]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return lacks::skip(
            "`unshare --mount` (util-linux) makes no namespace of the file system; run the tests as root, in a container with \
             `--cap-add SYS_ADMIN`",
        );
    }
    let mut target = Target::run(unshare(&std::env::current_exe().expect("this test"), &[]));
    assert!(!dir.path().join("warpline").exists(), "it is seen nowhere else");
    assert_eq!(state(dir.path(), &target.pid()), "records nothing");
    assert_eq!(target::listed(dir.path()), 0);
    target.is_unharmed();
    target.end();
}

#[test]
fn every_reply_is_a_frame() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    for asked in [ControlRequest::Status, ControlRequest::Stop, ControlRequest::Dump] {
        let stream = connect(dir.path());
        (&stream).write_all(&request(&asked)).expect("it listens");
        let mut decoder = Decoder::new(MAX_REPLY_BYTES);
        decoder.feed(&rest(&stream));
        let (kind, body) = decoder.take().expect("a frame").expect("a whole one");
        let reply: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert!(kind == Kind::Json && reply["is"].is_string() && decoder.is_empty(), "{reply}");
    }
    target.end();
}
