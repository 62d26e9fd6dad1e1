//! Numbers of processes: a socket is taken for a program's only if the kernel says that this program listens there.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use warpline_trace::control::socket::SocketOwner;

use crate::support::target::{PROGRAM, Target, complaint, runtime_dir, said, sockets};
use crate::support::{fake, lacks};

/// A process that has nothing to do with all this.
struct Innocent(Child);

impl Innocent {
    fn start() -> Innocent {
        Innocent(Command::new("sleep").arg("600").spawn().expect("it starts"))
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn listed(dir: &Path) -> Vec<Value> {
    below(dir, &said(dir, &["ps", "--format", "json"]))
}

/// The programs of a list whose sockets are below a directory: others of this user may run.
fn below(dir: &Path, list: &str) -> Vec<Value> {
    let mut list: Vec<Value> = serde_json::from_str(list).expect("JSON");
    list.retain(|program| Path::new(program["socket"].as_str().expect("a path")).starts_with(dir));
    list
}

#[test]
fn a_socket_with_the_number_of_another_process_is_not_taken_for_it() {
    let (dir, innocent) = (runtime_dir(), Innocent::start());
    let (pid, me) = (innocent.0.id().to_string(), std::process::id());
    let owner = SocketOwner::read(&pid).expect("it runs");
    let asked = Arc::new(AtomicU32::new(0));
    for name in [owner.socket_name(), SocketOwner { namespace: 1, ..owner }.socket_name()] {
        let socket = fake::sockets_dir(dir.path()).join(&name);
        let count = Arc::clone(&asked);
        fake::listen_as(&socket, move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        for command in ["status", "stop", "dump"] {
            let said = complaint(dir.path(), &[command, &pid]);
            let is_right = if name == owner.socket_name() {
                said.contains(&format!(
                    "{} is not the socket of process {pid}: process {me} listens there",
                    socket.display()
                ))
            } else {
                said.contains(&format!("process {pid} does not listen"))
            };
            assert!(is_right, "{said}");
        }
        let list = said(dir.path(), &["ps"]);
        let line = list.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{list}"));
        assert!(line.contains(&format!("process {me} listens there")) && !line.contains("sleep"), "{line}");
        let listed = listed(dir.path());
        assert!(listed[0]["process"].is_null() && listed[0]["command"].is_null(), "{listed:?}");
        assert_eq!(listed[0]["socket"], socket.to_str().expect("UTF-8"));
        std::fs::remove_file(socket).expect("a socket");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "nobody was asked in its name");
}

fn in_a_namespace(options: &[&str], program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).args(options).arg("--").arg(program);
    command
}

fn can_unshare() -> bool {
    let probe = in_a_namespace(&["--mount-proc"], Path::new("true")).stderr(Stdio::null()).status();
    let can = probe.is_ok_and(|status| status.success());
    if !can {
        lacks::skip(
            "`unshare --pid` (util-linux) makes no namespace of PIDs; run the tests as root, in a container with \
             `--cap-add SYS_ADMIN`",
        );
    }
    can
}

#[test]
fn a_program_in_another_namespace_has_the_number_that_it_has_here() {
    if !can_unshare() {
        return;
    }
    let me = std::env::current_exe().expect("this test");
    for options in [&["--mount-proc"][..], &[]] {
        let dir = runtime_dir();
        let mut command = in_a_namespace(options, &me);
        command.env("XDG_RUNTIME_DIR", dir.path()).env("WARPLINE", "control,budget=100%");
        let mut target = Target::run(command);
        let listed = listed(dir.path());
        let [program] = &listed[..] else { panic!("{options:?}: {listed:?}") };
        let pid = program["process"].as_u64().expect("a number").to_string();
        assert_eq!((&program["in_another_namespace"], &program["error"]), (&Value::Bool(true), &Value::Null));
        assert!(program["command"].as_str().expect("a command").contains(PROGRAM), "{program}");
        assert_ne!(pid, "1");
        // The number is one that every command takes.
        assert!(said(dir.path(), &["status", &pid]).contains("records nothing"));
        assert!(said(dir.path(), &["stop", &pid]).contains("had no requests from outside"));
        target.is_unharmed();
        target.end();
    }
}

#[test]
fn a_program_outside_is_known_by_its_socket_and_not_by_its_number() {
    if !can_unshare() {
        return;
    }
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let inside = |args: &[&str]| {
        let mut command = in_a_namespace(&["--mount-proc"], Path::new(env!("CARGO_BIN_EXE_warpline")));
        let output = command.args(args).env("XDG_RUNTIME_DIR", dir.path()).output().expect("it runs");
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        (output.status.code(), out, error)
    };
    let (status, list, complained) = inside(&["ps", "--format", "json"]);
    assert_eq!(status, Some(0), "{complained}");
    let list = below(dir.path(), &list);
    assert_eq!((&list[0]["process"], &list[0]["in_another_namespace"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(list[0]["socket"], socket.to_str().expect("UTF-8"));
    assert_eq!(list[0]["status"]["state"], "idle", "it answers");
    let (_, list, _) = inside(&["ps"]);
    assert!(list.contains(socket.to_str().expect("UTF-8")) && list.contains("records nothing"), "{list}");
    // The number of the program is nobody's there; the first process there has not its socket.
    for pid in [&target.pid(), "1"] {
        assert_eq!(inside(&["stop", pid]).0, Some(2));
    }
    assert!(socket.exists());
    target.is_unharmed();
    target.end();
}

/// `/proc` shows the numbers of a namespace outside: what it says of a number is of another process.
#[test]
fn with_another_namespaces_proc_nobodys_socket_is_removed() {
    if !can_unshare() {
        return;
    }
    let dir = runtime_dir();
    let mut command = in_a_namespace(&[], &std::env::current_exe().expect("this test"));
    command.env("XDG_RUNTIME_DIR", dir.path()).env("WARPLINE", "control,budget=100%");
    let mut first = Target::run(command);
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let outside = listed(dir.path())[0]["process"].as_u64();
    let namespace = |pid: u64| format!("--pid=/proc/{pid}/ns/pid");
    // The first process of the namespace: the child of `unshare`.
    let children = format!("/proc/{0}/task/{0}/children", first.child.id());
    let child = std::fs::read_to_string(children).expect("it runs").trim().parse::<u64>().expect("a number");
    assert!(outside.is_none_or(|outside| outside == child));
    let beside = |program: &Path| {
        let mut command = Command::new("nsenter");
        command.arg(namespace(child)).arg("--").arg(program).env("XDG_RUNTIME_DIR", dir.path());
        command
    };
    let output =
        beside(Path::new(env!("CARGO_BIN_EXE_warpline"))).args(["ps", "--format", "json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(socket.exists(), "a command beside it has removed the socket of a program that runs");
    let list = below(dir.path(), &String::from_utf8_lossy(&output.stdout));
    assert_eq!(list[0]["status"]["state"], "idle", "{list:?}");
    assert_eq!(list[0]["process"], child, "the number that `/proc` has");
    // And so does a program.
    let mut second = beside(&std::env::current_exe().expect("this test"));
    second.env("WARPLINE", "control,budget=100%");
    let second = Target::run(second);
    assert!(socket.exists(), "a program beside it has removed the socket of one that runs");
    assert_eq!(listed(dir.path()).len(), 2);
    second.end();
    first.is_unharmed();
    first.end();
}
