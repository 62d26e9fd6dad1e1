//! Programs that do not answer, or answer no more: how each command ends, and the way to their last zones.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::target::{Target, complaint, runtime_dir, said, warpline};

fn signal(target: &Target, signal: Signal) {
    let pid = Pid::from_raw(target.child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

/// Runs the command that a message ends with, in this folder, and gives the trace.
fn run_remedy(dir: &Path, said: &str) -> Vec<u8> {
    let command = said.strip_suffix('`').and_then(|said| said.rsplit_once('`')).expect("a command").1;
    let words: Vec<_> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
    assert_eq!((words[0], words.len()), ("warpline", 5), "{said}");
    let output = warpline(dir, &words[1..]).current_dir(dir).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(dir.join(words[4])).expect("a trace")
}

#[test]
fn the_recorder_of_a_program_that_is_stopped_is_named_and_recovered() {
    let dir = runtime_dir();
    let recorder = dir.path().join("run.flight");
    let target = Target::start(dir.path(), &format!("control,flight=1MiB:{}", recorder.display()));
    let pid = target.pid();
    // By then it has written down what it did first.
    said(dir.path(), &["dump", &pid, "-o", dir.path().join("first.pftrace").to_str().expect("UTF-8")]);
    signal(&target, Signal::STOP);
    let stopped = complaint(dir.path(), &["dump", &pid]);
    let wanted = format!(
        "error: process {pid} does not answer: it is stopped or too busy; its flight recorder can be read without an answer: \
         `warpline recover {} -o last.pftrace`",
        recorder.display()
    );
    assert_eq!(stopped, wanted);
    assert!(run_remedy(dir.path(), &stopped).windows(17).any(|bytes| bytes == b"\x12\x0Fcli.target.step"));
    // Where its name is another file's, or nobody's, the process itself has it.
    fs::rename(&recorder, dir.path().join("moved.flight")).expect("a file");
    fs::write(&recorder, "another").expect("a file");
    let moved = complaint(dir.path(), &["dump", &pid]);
    assert!(moved.contains("/moved.flight -o"), "{moved}");
    fs::remove_file(dir.path().join("moved.flight")).expect("a file");
    let gone = complaint(dir.path(), &["dump", &pid]);
    assert!(gone.contains(&format!("`warpline recover /proc/{pid}/fd/")), "{gone}");
    assert!(run_remedy(dir.path(), &gone).windows(17).any(|bytes| bytes == b"\x12\x0Fcli.target.step"));
    signal(&target, Signal::CONT);
    target.end();
}

#[test]
fn where_a_program_that_was_killed_left_its_recorder_is_said() {
    let dir = runtime_dir();
    for is_here in [false, true] {
        let mut target = Target::start(dir.path(), "control");
        let pid = target.pid();
        let name = format!("warpline-{pid}.flight");
        signal(&target, Signal::KILL);
        if is_here {
            fs::write(dir.path().join(&name), "warpline flight and so on").expect("a file");
        }
        let ask = || {
            let output = warpline(dir.path(), &["dump", &pid]).current_dir(dir.path()).output().expect("it runs");
            assert_eq!(output.status.code(), Some(2));
            String::from_utf8(output.stderr).expect("UTF-8").trim_end().to_owned()
        };
        // Nobody has asked yet how it ended; then somebody has.
        let first = ask();
        target.child.wait().expect("it ended");
        for said in [first, ask()] {
            let way_out = if is_here {
                "its flight recorder is here".to_owned()
            } else {
                format!(
                    "if it had a flight recorder, its file is `{name}` in the program's working directory, or the file of the setting `flight=`"
                )
            };
            assert_eq!(
                said,
                format!("error: there is no process {pid}; {way_out}: `warpline recover {name} -o last.pftrace`")
            );
        }
    }
}

#[test]
fn a_list_with_a_program_that_is_stopped_says_so_in_a_word_and_whom_it_waits_for() {
    let dir = runtime_dir();
    let recorder = dir.path().join("run.flight");
    let stopped = Target::start(dir.path(), &format!("control,flight=1MiB:{}", recorder.display()));
    let target = Target::start(dir.path(), "control");
    signal(&stopped, Signal::STOP);
    let output = warpline(dir.path(), &["ps"]).output().expect("it runs");
    let [list, waits] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    let line = |pid: String| list.lines().find(|line| line.trim_start().starts_with(&pid)).expect("a line").to_owned();
    assert!(line(stopped.pid()).contains(" does not answer ") && !list.contains("try again"), "{list}");
    assert!(line(target.pid()).contains(" records nothing "), "{list}");
    assert_eq!(waits, format!("waiting some seconds for an answer of process {}\n", stopped.pid()));
    let output = warpline(dir.path(), &["ps", "--format", "json"]).output().expect("it runs");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |pid: String| {
        let mut programs = list.as_array().expect("a list").iter();
        programs.find(|program| program["process"].as_u64() == pid.parse().ok()).expect("it is there").clone()
    };
    assert!(
        of(stopped.pid())["error"].as_str().expect("why").contains("run.flight")
            && of(stopped.pid())["status"].is_null()
    );
    assert_eq!((&of(target.pid())["status"]["state"], &of(target.pid())["error"]), (&"idle".into(), &().into()));
    signal(&stopped, Signal::CONT);
    let status = said(dir.path(), &["status", &stopped.pid()]);
    assert!(status.ends_with(&format!("  flight recorder in {}\n", recorder.display())), "{status}");
    [stopped, target].into_iter().for_each(Target::end);
}
