//! The traces of `warpline record` and `dump`: under which name they are, what is never overwritten, and what is said of them.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use warpline_trace::control::protocol::{Kind, frame};
use warpline_trace::control::socket::SocketOwner;

use crate::support::target::{Target, runtime_dir, warpline};

/// The command in this folder: its status, and what it says on standard output and on standard error.
fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = warpline(dir, args).current_dir(dir).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("it ends"), text(stdout), text(stderr))
}

fn traces(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.retain(|name| name.contains(".pftrace") || name.contains(".part"));
    names.sort_unstable();
    names
}

/// Whether the file is a trace: whole packets, each the field 1 of a message. How many there are depends on how often the
/// program ran while it was recorded.
fn is_trace(path: &Path) -> bool {
    let bytes = fs::read(path).expect("a file");
    let mut rest = &bytes[..];
    while let [0x0a, body @ ..] = rest {
        let Some(last) = body.iter().position(|byte| byte & 0x80 == 0) else { return false };
        let length = body[..=last].iter().rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let Some(next) = body.get(last + 1 + length..) else { return false };
        rest = next;
    }
    rest.is_empty() && !bytes.is_empty()
}

#[test]
fn a_trace_that_nobody_named_overwrites_nothing() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), &format!("control,flight=1MiB:{}", dir.path().join("run.flight").display()));
    let pid = target.pid();
    for (args, name) in [
        (&["dump", &pid][..], format!("warpline-{pid}.last.pftrace")),
        (&["record", &pid, "--for", "50ms"], format!("warpline-{pid}.pftrace")),
        (&["record", &pid, "--for", "50ms"], format!("warpline-{pid}.2.pftrace")),
        (&["dump", &pid], format!("warpline-{pid}.last.2.pftrace")),
        (&["dump", &pid], format!("warpline-{pid}.last.3.pftrace")),
    ] {
        let before = traces(dir.path());
        let (status, said, complained) = run(dir.path(), args);
        assert_eq!(status, 0, "{complained}");
        assert_eq!(
            complained.contains(" for 0.05 s, beside the program's own session;"),
            args[0] == "record",
            "{complained}"
        );
        assert!(said.starts_with(&format!("{name}: ")) && said.contains("open it with `warpline open "), "{said}");
        let mut after = before.clone();
        after.push(name.clone());
        after.sort_unstable();
        assert_eq!(traces(dir.path()), after);
        assert!(is_trace(&dir.path().join(&name)), "{name}: {said}");
        // Whoever comes next would change this.
        fs::write(dir.path().join(&name), name.as_bytes()).expect("a file");
    }
    for name in traces(dir.path()) {
        assert_eq!(fs::read(dir.path().join(&name)).expect("a file"), name.as_bytes(), "it is as it was");
    }
    // What somebody names is meant.
    for args in [["dump", &pid, "-o", "mine.pftrace"], ["dump", &pid, "-o", "mine.pftrace"]] {
        assert_eq!(run(dir.path(), &args).0, 0);
    }
    fs::write(dir.path().join("mine.pftrace"), "old").expect("a file");
    assert_eq!(run(dir.path(), &["record", &pid, "--for", "50ms", "-o", "mine.pftrace"]).0, 0);
    assert!(is_trace(&dir.path().join("mine.pftrace")));
    target.end();
}

#[test]
fn placeholders_in_a_name_stand_for_the_program() {
    let dir = runtime_dir();
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.env("XDG_RUNTIME_DIR", dir.path()).env("RANK", "3");
    command.env("WARPLINE", format!("control,budget=100%,flight=1MiB:{}", dir.path().join("run.flight").display()));
    let target = Target::run(command);
    let pid = target.pid();
    let host = rustix::system::uname().nodename().to_str().expect("UTF-8").to_owned();
    for (args, name) in [
        (&["record", &pid, "--for", "50ms", "-o", "r{rank}-{pid}.{{a}.pftrace"][..], format!("r3-{pid}.{{a}}.pftrace")),
        (&["dump", &pid, "-o", "{host}.d{rank}-{pid}.pftrace"], format!("{host}.d3-{pid}.pftrace")),
    ] {
        let (status, said, complained) = run(dir.path(), args);
        assert_eq!(status, 0, "{complained}");
        assert!(said.starts_with(&format!("{name}: ")), "{said}");
        assert!(is_trace(&dir.path().join(&name)), "{name}: {said}");
    }
    assert_eq!(traces(dir.path()).len(), 2);
    for command in ["record", "dump"] {
        assert_eq!(
            run(dir.path(), &[command, &pid, "-o", "{node}.pftrace"]).2,
            "error: the name `{node}.pftrace` has no placeholder `{node}`; there are `{pid}`, `{rank}` and `{host}`; write `{{` \
             for a brace\n"
        );
    }
    target.end();
}

#[test]
fn a_trace_is_written_under_no_name_that_says_something_else() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), &format!("control,flight=1MiB:{}", dir.path().join("run.flight").display()));
    let pid = target.pid();
    for ask in [&["record", &pid, "--for", "50ms"][..], &["dump", &pid]] {
        for name in ["t.json", "d.txt", "-", "t"] {
            let (status, said, complained) = run(dir.path(), &[ask, &["-o", name]].concat());
            let wanted =
                format!("error: {name}: the name must end with `.pftrace`, because the output is a Perfetto trace\n");
            assert_eq!((status, &*said, complained), (2, "", wanted));
            assert!(!dir.path().join(name).exists());
        }
    }
    // A device takes what comes; what is made beside its place would take its place.
    assert_eq!(run(dir.path(), &["record", &pid, "--for", "50ms", "-o", "/dev/null"]).0, 0);
    assert_eq!(run(dir.path(), &["dump", &pid, "-o", "/dev/null"]).0, 2);
    assert!(traces(dir.path()).is_empty(), "{:?}", traces(dir.path()));
    target.end();
}

/// Answers one `record` as a program would whose CUPTI cannot be had, or ends in the middle.
fn answer(listener: &UnixListener, replies: &[String]) {
    let (mut stream, _) = listener.accept().expect("somebody");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a request");
    stream.read_exact(&mut vec![0; u32::from_le_bytes(length) as usize]).expect("all of it");
    let mut bytes = Vec::new();
    replies.iter().for_each(|reply| frame(Kind::Json, reply.as_bytes(), &mut bytes));
    stream.write_all(&bytes).expect("it reads");
}

#[test]
fn what_was_said_at_the_start_is_not_said_again_and_an_end_without_counts_is_said() {
    let dir = runtime_dir();
    let folder = dir.path().join("warpline");
    fs::create_dir(&folder).expect("a folder");
    rustix::fs::chmod(&folder, rustix::fs::Mode::RWXU).expect("a mode");
    let me = SocketOwner::read("self").expect("this process");
    let listener = UnixListener::bind(folder.join(me.socket_name())).expect("a socket");
    let started = r#"{"is":"started","session":"held","notes":["no kernels are recorded: there is no libcupti"]}"#;
    let ended = r#"{"is":"ended","why":"time","recorded":1,"captured":0,"dropped":{},"kernels":0,"kernels_lost":0,"lost":0,
        "seconds":0.1,"notes":["no kernels are recorded: there is no libcupti","another"]}"#;
    let both = [started, ended].map(str::to_owned);
    let server = std::thread::spawn(move || {
        answer(&listener, &both);
        answer(&listener, &both[..1]);
    });
    let pid = std::process::id().to_string();
    let (status, said, complained) = run(dir.path(), &["record", &pid, "--kernels", "-o", "t.pftrace"]);
    assert_eq!(status, 0, "{complained}");
    assert!(complained.contains("warning: no kernels are recorded: there is no libcupti\n"), "{complained}");
    assert!(said.contains("note: another\n") && !said.contains("libcupti"), "{said}");
    let (status, said, _) = run(dir.path(), &["record", &pid, "-o", "t.pftrace"]);
    assert_eq!(status, 2);
    let end =
        "the trace has everything up to then, without the final counts\nopen it with `warpline open t.pftrace` or at ";
    assert!(said.contains(end), "{said}");
    server.join().expect("it answered");
}

#[test]
fn a_program_without_cupti_says_so_once_where_kernels_are_asked_for() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let (status, said, complained) = run(dir.path(), &["record", &target.pid(), "--kernels", "--for", "50ms"]);
    assert_eq!(status, 0, "{complained}");
    // Built without the feature, as alone, or with it, as together with the other packages: then the machine has no CUPTI.
    let warnings: Vec<_> = complained.lines().skip(1).collect();
    let [warning] = warnings[..] else { panic!("{complained}") };
    let why = warning.strip_prefix("warning: no kernels are recorded: ").expect("why");
    let is_built_without = why == "this program was built without warpline's feature `cupti`";
    assert!(is_built_without || why.contains("libcupti"), "{why}");
    assert!(!said.contains("cupti"), "{said}");
    target.end();
}
