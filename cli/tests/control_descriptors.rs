//! Out of file descriptors: the program and the command say so, and go on when there are some again.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use warpline::Session;

use crate::support::target::{Target, complaint, runtime_dir, sockets, state, until};

/// Takes every descriptor that this process may have.
fn take_all() -> Vec<File> {
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(4096) }).expect("a lower limit");
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
#[ignore = "a program without a free descriptor, which the other tests start"]
fn starts_without_descriptors() {
    if std::env::var_os("WARPLINE_TEST_DESCRIPTORS").is_none() {
        return;
    }
    let taken = take_all();
    let session = Session::from_env();
    drop(taken);
    drop(session.finish());
}

#[test]
fn a_program_that_starts_without_a_descriptor_says_so_and_does_not_blame_proc() {
    let dir = runtime_dir();
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["control_descriptors::starts_without_descriptors", "--exact", "--ignored", "--nocapture"]);
    command
        .env("WARPLINE_TEST_DESCRIPTORS", "1")
        .env("WARPLINE", "control,budget=100%")
        .env("XDG_RUNTIME_DIR", dir.path());
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("cannot be controlled from outside"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("no file descriptor is left") && line.contains("raise `ulimit -n`"), "{line}");
    assert!(!line.contains("mount"), "{line}");
}

/// Ticks of 10 ms that the thread that listens has taken.
fn ticks(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let stat = stats.into_iter().find(|stat| stat.contains("(warpline-ctl)")).expect("it listens");
    let fields: Vec<_> = stat.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
    fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks")
}

#[test]
fn a_program_that_runs_out_of_descriptors_says_so_and_goes_on_when_there_are_some() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let pid = target.pid();
    target.tell("full");
    target.wait_for("full");
    let said = complaint(dir.path(), &["status", &pid]);
    assert!(said.contains("it has no file descriptor left") && said.contains("`ulimit -n`"), "{said}");
    // Again and again, and many who wait cost it little.
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let before = ticks(target.child.id());
    let waiting: Vec<_> = (0..100).map(|_| UnixStream::connect(socket).expect("it listens")).collect();
    std::thread::sleep(Duration::from_secs(2));
    assert!(ticks(target.child.id()) - before < 50, "it spins");
    drop(waiting);
    assert!(complaint(dir.path(), &["status", &pid]).contains("it has no file descriptor left"));
    target.tell("free");
    target.wait_for("free");
    until("it answers", || state(dir.path(), &pid) == "records nothing");
    target.is_unharmed();
    target.end();
}

#[test]
fn a_command_without_descriptors_says_so_and_blames_nobody_else() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let mut is_short = 0;
    for limit in 4..12 {
        for args in [&["status", &pid][..], &["ps"], &["record", &pid, "--for", "50ms", "-o", "t.pftrace"]] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_warpline")]);
            command.args(args).env("XDG_RUNTIME_DIR", dir.path()).current_dir(dir.path());
            let output = command.stdin(Stdio::null()).output().expect("it runs");
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if text.contains("error while loading shared libraries") || text.contains("GLIBC") {
                continue;
            }
            for wrong in
                ["does not listen", "no program of this user", "/proc", "choose another file", "there is no process"]
            {
                assert!(!text.contains(wrong), "{limit} {args:?}: {text}");
            }
            let is_out = text.contains("no file descriptor is left") && text.contains("`ulimit -n`");
            assert!(is_out || output.status.success(), "{limit} {args:?}: {text}");
            is_short += u32::from(is_out);
        }
    }
    assert!(is_short > 0, "none ran out of them");
    target.end();
}
