//! `warpline ps`, `status`, `record`, `dump`, `stop` and `arm`, as a user runs them on a program that runs.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use warpline_trace::control::protocol::{Kind, frame};
use warpline_trace::control::socket::SocketOwner;

use crate::support::target::{HELD, Target, complaint, runtime_dir, said, sockets, state, until, warpline};
use crate::support::{lacks, target};

/// Whether a trace has a slice or an instant with this name. The catalog has all names, as arguments.
fn holds(trace: &[u8], text: &str) -> bool {
    let len = text.len() as u8;
    // A defined name, and the name of an event.
    [&[0x12, len][..], &[0xBA, 0x01, len]].into_iter().any(|head| {
        let name = [head, text.as_bytes()].concat();
        trace.windows(name.len()).any(|window| window == name)
    })
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

#[test]
fn a_running_program_is_listed_and_recorded_and_is_then_as_it_was() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let list = said(dir.path(), &["ps"]);
    let line = list.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap_or_else(|| panic!("{list}"));
    assert!(line.contains("records nothing") && line.contains("target"), "{line}");
    assert_eq!(state(dir.path(), &pid), "records nothing");
    let path = trace.to_str().expect("UTF-8");
    let text = said(dir.path(), &["record", &pid, "--for", "300ms", "-o", path]);
    let zones: u64 = text.split([' ', ':']).find_map(|word| word.parse().ok()).expect("a number of zones");
    assert!(zones > 10, "{text}");
    // And what took how long, in the form of the report.
    let head = text.lines().find(|line| line.starts_with("on streams")).unwrap_or_else(|| panic!("{text}"));
    let step = text.lines().find(|line| line.starts_with("cli.target.step")).unwrap_or_else(|| panic!("{text}"));
    assert!(["count", "total", "share", "mean", "p99"].iter().all(|column| head.contains(column)), "{text}");
    assert!(step.contains(" ms ") && !text.contains("of recorded zones only"), "{text}");
    assert!(text.find("cli.target.step") > text.find(" recorded"), "the path stands first: {text}");
    let text = said(dir.path(), &["record", &pid, "--for", "200ms", "--filter", "cli.target.step", "-o", path]);
    assert!(text.contains("of recorded zones only: a filter or a level left out "), "{text}");
    assert!(text.contains("cli.target.step") && !text.contains("cli.target.part"), "{text}");
    said(dir.path(), &["record", &pid, "--for", "200ms", "-o", path]);
    let trace = fs::read(&trace).expect("a trace");
    for name in ["cli.target.step", "cli.target.part", "cli.target.load", "session ends"] {
        assert!(holds(&trace, name), "{name}");
    }
    assert_eq!(state(dir.path(), &pid), "records nothing");
    target.is_unharmed();
    target.end();
    assert!(sockets(dir.path()).is_empty(), "a program that ends takes its socket away");
}

#[test]
fn a_recording_with_a_budget_says_which_share_of_the_time_it_has() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control,budget=1%");
    let trace = dir.path().join("t.pftrace");
    let text = said(dir.path(), &["record", &target.pid(), "--for", "1s", "-o", trace.to_str().expect("UTF-8")]);
    let note = text.lines().find(|line| line.starts_with("note: recorded ")).unwrap_or_else(|| panic!("{text}"));
    assert!(note.contains(" % of the time in ") && note.contains(" window"), "{text}");
    assert!(text.contains("≈") && holds(&fs::read(&trace).expect("a trace"), "cli.target.step"), "{text}");
    target.end();
}

#[test]
fn the_last_zones_of_a_flight_recorder_are_dumped_while_the_program_goes_on() {
    let dir = runtime_dir();
    let recorder = dir.path().join("run.flight");
    let mut target = Target::start(dir.path(), &format!("control,flight=1MiB:{}", recorder.display()));
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    assert_eq!(state(dir.path(), &pid), "records for itself");
    let path = trace.to_str().expect("UTF-8");
    for _ in 0..2 {
        let text = said(dir.path(), &["dump", &pid, "-o", path]);
        assert!(text.contains(&format!("(process {pid})")) && !text.contains("did not come"), "{text}");
        let trace = fs::read(&trace).expect("a trace");
        assert!(holds(&trace, "cli.target.step") && holds(&trace, "cli.target.part"), "{} bytes", trace.len());
        // It is the program's file, wherever somebody has put it.
        let _ = fs::rename(&recorder, dir.path().join("elsewhere.flight"));
    }
    target.is_unharmed();
    assert_eq!(state(dir.path(), &pid), "records for itself");
    target.end();
}

#[test]
fn without_a_flight_recorder_there_is_nothing_to_dump_and_no_file() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let said = complaint(dir.path(), &["dump", &pid, "-o", trace.to_str().expect("UTF-8")]);
    assert!(said.contains("no flight recorder") && said.contains("flight=64MiB"), "{said}");
    assert!(!trace.exists());
    target.is_unharmed();
    target.end();
}

#[test]
fn the_socket_is_this_users_alone() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let [socket] = &sockets(dir.path())[..] else { panic!("one socket") };
    let mode = |path| fs::symlink_metadata(path).expect("it is there").mode() & 0o7777;
    assert_eq!((mode(socket.as_path()), mode(socket.parent().expect("a directory"))), (0o600, 0o700));
    let owner = SocketOwner::of_name(socket.file_name().expect("a name")).expect("a socket's name");
    assert_eq!(Some(owner), SocketOwner::read(&target.pid()).ok());
    target.end();
}

/// A recording that has begun to write its trace.
fn record(runtime_dir: &Path, pid: &str, trace: &Path) -> Child {
    let mut command = warpline(runtime_dir, &["record", pid, "-o", trace.to_str().expect("UTF-8")]);
    let recording = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    until("it records", || fs::metadata(trace).is_ok_and(|file| file.len() > 0));
    recording
}

#[test]
fn ctrl_c_ends_a_recording_whole_and_a_killed_one_leaves_the_program_alone() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    for (sent, is_whole) in [(Signal::INT, true), (Signal::KILL, false)] {
        let _ = fs::remove_file(&trace);
        let mut recording = record(dir.path(), &pid, &trace);
        assert_eq!(state(dir.path(), &pid), "1 recording");
        signal(&recording, sent);
        assert_eq!(recording.wait().expect("it ends").success(), is_whole);
        if is_whole {
            assert!(holds(&fs::read(&trace).expect("a trace"), "session ends"));
        }
        until("it is as it was", || state(dir.path(), &pid) == "records nothing");
        target.is_unharmed();
    }
    target.end();
}

#[test]
fn a_recording_joins_the_programs_own_session_and_changes_nothing_of_it() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    target.tell("own");
    target.is_unharmed();
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    assert_eq!(state(dir.path(), &pid), "records for itself");
    let path = trace.to_str().expect("UTF-8");
    said(
        dir.path(),
        &["record", &pid, "--for", "200ms", "--filter", "cli.target.*", "--filter", "!cli.target.part", "-o", path],
    );
    let trace = fs::read(&trace).expect("a trace");
    assert!(holds(&trace, "cli.target.step") && holds(&trace, "session ends"));
    assert!(!holds(&trace, "cli.target.part"), "the filter is the recording's");
    assert_eq!(state(dir.path(), &pid), "records for itself");
    target.tell("finish");
    let own = target.wait_for("own: ");
    let numbers: Vec<u64> = own.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] > 0 && numbers[0] == numbers[1] && numbers[2] == 0, "{own}");
    target.end();
}

#[test]
fn what_is_open_when_a_recording_ends_is_in_it_or_counted_beside_a_session_of_the_program_or_not() {
    for is_own in [false, true] {
        let dir = runtime_dir();
        let mut target = Target::start(dir.path(), "control");
        if is_own {
            target.tell("own");
            target.is_unharmed();
        }
        let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
        for ends in [true, false] {
            let _ = fs::remove_file(&trace);
            let mut command = warpline(dir.path(), &["record", &pid, "-o", trace.to_str().expect("UTF-8")]);
            let recording = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
            until("it records", || fs::metadata(&trace).is_ok_and(|file| file.len() > 0));
            // It stays open, and others begin and end on its stream.
            target.tell("hold");
            target.wait_for("held");
            target.is_unharmed();
            signal(&recording, Signal::INT);
            if ends {
                target.tell("let go");
                target.wait_for("let go");
            }
            let output = recording.wait_with_output().expect("it ends");
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            // A label, which is the value of an argument.
            let is_in = fs::read(&trace).expect("a trace").windows(HELD.len()).any(|window| window == HELD.as_bytes());
            let is_counted = text.contains("(unfinished ");
            if ends {
                // A machine that has no time for it for a second counts it.
                assert!(is_in || is_counted, "own: {is_own}: {text}");
            } else {
                assert!(!is_in && is_counted, "own: {is_own}: {text}");
                target.tell("let go");
                target.wait_for("let go");
            }
        }
        target.end();
    }
}

#[test]
fn what_the_flight_recorder_could_not_write_is_told_by_status_and_dump() {
    let dir = runtime_dir();
    let (recorder, trace) = (dir.path().join("run.flight"), dir.path().join("t.pftrace"));
    let settings = format!("control,flight=1MiB:{},dump_on=sigusr2", recorder.display());
    let target = Target::start(dir.path(), &settings);
    let pid = target.pid();
    let well = said(dir.path(), &["status", &pid]);
    assert!(well.contains("  flight recorder in ") && !well.contains("warning"), "{well}");
    // A folder stands where the trace would be.
    let in_the_way = dir.path().join("run.flight.sigusr2.pftrace");
    fs::create_dir(&in_the_way).expect("a folder");
    signal(&target.child, Signal::USR2);
    let problem = format!("warning: the trace of the last zones was not written to `{}`: ", in_the_way.display());
    until("status tells", || said(dir.path(), &["status", &pid]).contains(&problem));
    let json = said(dir.path(), &["status", &pid, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(json["flight"]["problems"].as_array().map(Vec::len), Some(1), "{json}");
    let text = said(dir.path(), &["dump", &pid, "-o", trace.to_str().expect("UTF-8")]);
    assert!(text.contains(&problem), "{text}");
    target.end();
}

#[test]
fn a_session_of_the_program_comes_before_one_from_outside() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let recording = record(dir.path(), &pid, &trace);
    target.tell("own");
    let output = recording.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("began a session of its own"), "{text}");
    assert!(holds(&fs::read(&trace).expect("a trace"), "session ends"));
    // The recording gives its place to the session, which then starts.
    until("its session records", || state(dir.path(), &pid) == "records for itself");
    target.tell("finish");
    target.wait_for("own: ");
    target.end();
}

#[test]
fn a_recording_ends_with_the_session_that_listens_and_is_whole() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control,perfetto=/dev/null");
    let (pid, trace) = (target.pid(), dir.path().join("t.pftrace"));
    let recording = record(dir.path(), &pid, &trace);
    target.tell("over");
    target.wait_for("over: ");
    let output = recording.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("ended its session"), "{text}");
    assert!(holds(&fs::read(&trace).expect("a trace"), "session ends"));
    let said = complaint(dir.path(), &["status", &pid]);
    assert!(said.contains("its session has not begun yet or has ended, or it runs with `off`"), "{said}");
    assert!(said.ends_with("; ask while it has a session"), "{said}");
    target.end();
}

#[test]
fn two_recordings_at_one_time_have_each_what_it_asked_for() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let (pid, one, two) = (target.pid(), dir.path().join("1.pftrace"), dir.path().join("2.pftrace"));
    let start = |filter: &str, trace: &Path| {
        let args = ["record", &pid, "--filter", filter, "-o", trace.to_str().expect("UTF-8")];
        warpline(dir.path(), &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let grows = |trace: &Path, from: u64| fs::metadata(trace).is_ok_and(|file| file.len() > from);
    let mut recordings = [start("cli.target.load", &one), start("cli.target.part", &two)];
    until("both record", || grows(&one, 8 << 10) && grows(&two, 8 << 10));
    assert_eq!(state(dir.path(), &pid), "2 recordings");
    assert!(said(dir.path(), &["stop", &pid]).contains(": 2 requests ended"));
    recordings.iter_mut().for_each(|recording| assert!(recording.wait().expect("it ends").success()));
    let [one, two] = [one, two].map(|trace| fs::read(trace).expect("a trace"));
    assert!(holds(&one, "cli.target.load") && !holds(&one, "cli.target.part"));
    assert!(holds(&two, "cli.target.part") && !holds(&two, "cli.target.load"));
    assert!(said(dir.path(), &["stop", &pid]).contains("had no requests from outside"));
    target.end();
}

#[test]
fn recordings_with_different_filters_leave_out_what_none_of_them_takes() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let mut records_rare = || {
        target.tell("rare");
        target.wait_for("rare: ") == "rare: true"
    };
    let start = |filter: &str| {
        let args = ["record", &pid, "--filter", filter, "-o", "/dev/null"];
        warpline(dir.path(), &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let mut both = [start("cli.target.load"), start("cli.target.part")];
    until("both record", || state(dir.path(), &pid) == "2 recordings");
    assert!(!records_rare());
    let mut third = start("cli.target.r*,!cli.target.part");
    until("the third records", || state(dir.path(), &pid) == "3 recordings");
    until("its range is recorded", &mut records_rare);
    signal(&third, Signal::INT);
    assert!(third.wait().expect("it ends").success());
    assert!(!records_rare());
    assert!(said(dir.path(), &["stop", &pid]).contains(": 2 requests ended"));
    both.iter_mut().for_each(|recording| assert!(recording.wait().expect("it ends").success()));
    target.end();
}

#[test]
fn two_processes_at_one_time_are_told_apart() {
    let dir = runtime_dir();
    let targets = [Target::start(dir.path(), "control"), Target::start(dir.path(), "control")];
    let list = said(dir.path(), &["ps"]);
    assert!(targets.iter().all(|target| list.contains(&target.pid())), "{list}");
    assert_eq!(target::listed(dir.path()), 2);
    for target in &targets {
        let json = said(dir.path(), &["status", &target.pid(), "--format", "json"]);
        assert!(json.contains("\"state\": \"idle\""), "{json}");
        let first = said(dir.path(), &["status", &target.pid()]);
        assert!(first.starts_with(&format!("process {}: ", target.pid())), "{first}");
    }
    targets.into_iter().for_each(Target::end);
}

#[test]
fn the_next_zones_of_a_range_are_shown_as_they_come() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let lines = said(dir.path(), &["arm", &pid, "cli.target.part", "-n", "3", "--within", "60s"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("cli.target.part  ") && line.contains(" on `")), "{lines}");
    let json = said(dir.path(), &["arm", &pid, "cli.target.load", "--format", "json"]);
    let zone: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!((&zone["range"], &zone["gpu_ns"]), (&"cli.target.load".into(), &serde_json::Value::Null));
    assert_eq!(state(dir.path(), &pid), "records nothing");
    target.end();
}

#[test]
fn ctrl_c_takes_back_what_was_asked_of_a_range_and_leaves_the_program_as_it_was() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let is_asked = |target: &mut Target| {
        target.tell("rare");
        target.wait_for("rare: ") == "rare: true"
    };
    // It times single zones, and is there only while somebody waits for one; the kernel keeps 15 bytes of its name.
    let has_collector = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim_end() == "warpline-profil")
    };
    assert!(!is_asked(&mut target) && !has_collector());
    for sent in [Signal::INT, Signal::KILL] {
        // More than will ever come.
        let mut command = warpline(dir.path(), &["arm", &pid, "cli.target.rare", "-n", "10000", "--within", "1000s"]);
        let mut arming = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        until("it is asked for", || is_asked(&mut target));
        let mut line = String::new();
        BufReader::new(arming.stdout.take().expect("a pipe")).read_line(&mut line).expect("it is shown");
        assert!(line.starts_with("cli.target.rare  ") && has_collector(), "{line}");
        assert_eq!(state(dir.path(), &pid), "records nothing");
        signal(&arming, sent);
        assert!(!arming.wait().expect("it ends").success());
        until("nobody asks for it", || !is_asked(&mut target));
        until("nothing of it is left", || !has_collector());
        assert_eq!(state(dir.path(), &pid), "records nothing");
        target.is_unharmed();
    }
    assert!(said(dir.path(), &["stop", &pid]).contains("had no requests from outside"));
    target.end();
}

#[test]
fn every_message_names_the_process_and_the_remedy() {
    let dir = runtime_dir();
    let of = |args: &[&str]| complaint(dir.path(), args);
    let none = "4194304"; // above the greatest number that Linux gives
    assert_eq!(of(&["status", none]), "error: there is no process 4194304; `warpline ps` lists those that listen");
    assert_eq!(target::listed(dir.path()), 0);
    // Other programs of this user may listen outside of the runtime directory, or begin to.
    let is_alone = || said(dir.path(), &["ps", "--format", "json"]) == "[]\n";
    if is_alone() {
        let told = said(dir.path(), &["ps"]);
        assert!(
            told == "no program of this user listens; start one with `WARPLINE=control`\n" || !is_alone(),
            "{told}"
        );
    }
    let me = std::process::id().to_string();
    assert_eq!(
        of(&["record", &me, "-o", "/dev/null"]),
        format!("error: process {me} does not listen: start it with `WARPLINE=control`, alone or with other settings")
    );
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let said = of(&["record", &pid, "--filter", "Target", "-o", "/dev/null"]);
    let lower_case = "names of ranges are in lower case; write `filter=target`";
    assert_eq!(said, format!("error: process {pid}: `filter=Target`: {lower_case}"));
    let said = of(&["record", &pid, "--filter", "tar get", "-o", "/dev/null"]);
    assert!(said.starts_with(&format!("error: process {pid}: `filter=tar get`: a filter is ")), "{said}");
    let args = ["record", &pid, "--for", "1ms", "--filter", "cli.target.stp", "-o", "/dev/null"];
    let output = target::warpline(dir.path(), &args).output().expect("it runs");
    let warning = "warning: no range matches `cli.target.stp`; did you mean `cli.target.step`?";
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains(warning), "{output:?}");
    let said = of(&["record", &pid, "-o", "/no/such/folder/t.pftrace"]);
    assert!(
        said.contains("cannot write /no/such/folder/t.pftrace: No such file")
            && said.ends_with("choose another file with `-o`"),
        "{said}"
    );
    let said = of(&["top", &pid]);
    assert!(said.starts_with("error: standard output is not a terminal"), "{said}");
    until("what could not be written ends", || state(dir.path(), &pid) == "records nothing");
    target.end();
}

#[test]
fn a_process_of_another_user_is_named_so() {
    if !rustix::process::geteuid().is_root() {
        return lacks::skip("only root can start a process as another user; run the tests as root");
    }
    let dir = runtime_dir();
    let mut other = Command::new("sleep").arg("600").uid(65534).spawn().expect("sleep");
    let pid = other.id().to_string();
    let said = complaint(dir.path(), &["status", &pid]);
    other.kill().and_then(|()| other.wait()).expect("it ends");
    assert_eq!(said, format!("error: process {pid} belongs to another user, 65534: run `warpline` as that user"));
}

#[test]
fn another_version_of_the_protocol_is_named() {
    let dir = runtime_dir();
    let me = SocketOwner::read("self").expect("this process");
    let folder = dir.path().join("warpline");
    fs::create_dir(&folder).expect("a directory");
    rustix::fs::chmod(&folder, rustix::fs::Mode::RWXU).expect("a mode");
    let listener = UnixListener::bind(folder.join(me.socket_name())).expect("a socket");
    let replies = [
        r#"{"is":"error","protocol":2,"code":"protocol","text":"this program uses protocol 2 (warpline 9.0)"}"#,
        r#"{"is":"status","protocol":3}"#,
        r#"{"is":"status"}"#,
        r#"{"is":"what"}"#,
    ];
    let server = std::thread::spawn(move || {
        for reply in replies {
            let (mut stream, _) = listener.accept().expect("somebody");
            let mut request = [0; 4];
            stream.read_exact(&mut request).expect("a request");
            stream.read_exact(&mut vec![0; u32::from_le_bytes(request) as usize]).expect("all of it");
            let mut bytes = Vec::new();
            frame(Kind::Json, reply.as_bytes(), &mut bytes);
            stream.write_all(&bytes).expect("it reads");
        }
    });
    let ask = || complaint(dir.path(), &["status", &std::process::id().to_string()]);
    let said = ask();
    assert!(said.contains("another version of the protocol") && said.ends_with("protocol 2 (warpline 9.0)"), "{said}");
    assert!(ask().ends_with("it speaks 3, and this one speaks 1"));
    assert!(ask().contains("this `warpline` does not understand: missing field"));
    assert!(ask().contains("`what` in place of `status`"));
    server.join().expect("it answered");
}
