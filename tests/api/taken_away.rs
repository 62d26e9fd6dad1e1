//! A file that somebody removes, replaces, cuts or moves while a session writes to it: it is noticed while the session runs, said
//! once, and what cannot be read any more is counted as lost.
//!
//! Each test runs itself in a process of its own, takes the file away and waits for the warning before it lets the process go on.
#![cfg(unix)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::{env, fs};

use warpline::{HostStream, Session};
use warpline_tests::{again, names, this_test};

use crate::trace;

warpline::range! {
    STEP = "api.taken_away.step": "A step.";
}

/// Tells the process that it is there to record.
const RECORDS: &str = "WARPLINE_TEST_RECORDS";

/// Zones before the file is taken away, and after it.
const BEFORE: u64 = 100;
const AFTER: u64 = 50;

fn steps(count: u64) {
    let stream = HostStream::new("compute");
    for n in 0..count {
        let zone = STEP.zone(&stream).field("n", n);
        stream.launch(|| ());
        drop(zone);
    }
    stream.synchronize().expect("nothing panics");
}

fn hear() {
    io::stdin().read_line(&mut String::new()).expect("somebody says when");
}

fn say(text: &str) {
    // Behind what the test's harness says.
    writeln!(io::stdout(), "\n{text}").expect("somebody listens");
}

/// In the process of its own: records as `WARPLINE` says, before the file is taken away and after it.
fn record_if_told() -> bool {
    if env::var_os(RECORDS).is_none() {
        return false;
    }
    // A test that waits for ever fails.
    // SAFETY: the call takes a number.
    unsafe { libc::alarm(60) };
    let session = Session::from_env();
    steps(BEFORE);
    say("ready");
    hear();
    steps(AFTER);
    let report = session.finish();
    assert_eq!(report.recorded, BEFORE + AFTER, "{report}");
    for sink in &report.sinks {
        let zones: u64 = sink.kept.files.iter().map(|file| file.zones).sum();
        say(&format!("taken {} lost {} kept {} removed {}", sink.taken, sink.lost, zones, sink.kept.removed_zones));
    }
    report.notes.iter().for_each(|note| say(&format!("note: {note}")));
    true
}

struct Process {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// What it has said on standard error.
    told: String,
}

/// What a process says of its one sink, in zones.
#[derive(Debug)]
struct Said {
    taken: u64,
    lost: u64,
    kept: u64,
    removed: u64,
    stdout: String,
    /// On standard error.
    told: String,
}

impl Process {
    /// It has recorded zones, and waits.
    fn begin(test: &str, folder: &Path, settings: &str) -> Process {
        let mut command = again(test, RECORDS, "");
        command.env("WARPLINE", settings).current_dir(folder);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut process = Process { child, said, stderr, told: String::new() };
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if process.said.read_line(&mut line).expect("UTF-8") == 0 {
                let _ = process.stderr.read_to_string(&mut process.told);
                panic!("it did not start: {}", process.told);
            }
        }
        process
    }

    /// Waits until it says so on standard error. It records nothing meanwhile.
    #[track_caller]
    fn wait_until_told(&mut self, text: &str) {
        while !self.told.contains(text) {
            let read = self.stderr.read_line(&mut self.told).expect("UTF-8");
            assert!(read > 0, "the process has ended and not said `{text}`: {}", self.told);
        }
    }

    fn end(mut self) -> Said {
        self.child.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
        let mut stdout = String::new();
        self.said.read_to_string(&mut stdout).expect("UTF-8");
        self.stderr.read_to_string(&mut self.told).expect("UTF-8");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {stdout}{}", self.told);
        let line = stdout.lines().find(|line| line.starts_with("taken ")).expect("the sink's account");
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [taken, lost, kept, removed] = numbers[..] else { panic!("{line}") };
        Said { taken, lost, kept, removed, stdout, told: self.told }
    }
}

/// A folder for a test, with nothing in it.
fn folder(test: &str) -> PathBuf {
    warpline_tests::empty_folder(&format!("taken-away-{test}"))
}

fn cut(path: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(len)).expect("it is there");
}

fn replace(path: &Path) {
    let other = path.with_extension("other");
    fs::write(&other, "of another program").and_then(|()| fs::rename(&other, path)).expect("it is there");
}

const REMOVED: &str = "was removed or replaced while this session wrote to it: its trace is lost; leave the file there";
const CHANGED: &str =
    "was truncated or written to by another program while this session wrote to it: its trace is lost";

#[test]
fn a_trace_that_somebody_removes_or_cuts_is_reported_while_the_session_runs_and_counted_as_lost() {
    let test = this_test!();
    if record_if_told() {
        return;
    }
    type Take = fn(&Path);
    let ways: [(&str, Take); 5] = [
        (REMOVED, |path| fs::remove_file(path).expect("it is there")),
        (REMOVED, replace),
        (CHANGED, |path| cut(path, 0)),
        (CHANGED, |path| cut(path, 100)),
        (CHANGED, |path| fs::write(path, vec![b' '; 1 << 20]).expect("it is there")),
    ];
    for (kind, name) in [("perfetto", "t.pftrace"), ("chrome", "t.json")] {
        for (warning, take) in ways {
            let folder = folder("lost");
            let path = folder.join(name);
            let mut process = Process::begin(test, &folder, &format!("{kind}={name}"));
            take(&path);
            let left = fs::read(&path).ok();
            process.wait_until_told(warning);
            let said = process.end();
            assert_eq!((said.taken, said.lost), (0, BEFORE + AFTER), "{said:#?}");
            let line = format!("`{}` {warning}", path.canonicalize().unwrap_or(path.clone()).display());
            assert_eq!(said.told.matches(&line).count(), 1, "{said:#?}");
            let account = format!("sink {kind}={name}: the file {warning}");
            let zones = BEFORE + AFTER;
            assert!(
                said.told.contains(&account) && said.told.contains(&format!("{zones} of {zones} zones")),
                "{said:#?}"
            );
            assert!(!said.told.contains("wrote `"), "{said:#?}");
            assert_eq!(fs::read(&path).ok(), left, "nothing is written to it or made in its place");
            fs::remove_dir_all(&folder).expect("it is ours");
        }
    }
}

#[test]
fn a_trace_that_somebody_moves_is_whole_where_it_was_moved_to() {
    let test = this_test!();
    if record_if_told() {
        return;
    }
    let folder = folder("moved");
    let process = Process::begin(test, &folder, "perfetto=t.pftrace");
    fs::rename(folder.join("t.pftrace"), folder.join("moved.pftrace")).expect("it is there");
    let said = process.end();
    assert_eq!((said.taken, said.lost), (BEFORE + AFTER, 0), "{said:#?}");
    assert!(
        said.stdout.contains("t.pftrace` was moved while this session wrote to it: the whole trace is in"),
        "{said:#?}"
    );
    assert_eq!(names(&folder), ["moved.pftrace"]);
    assert_eq!(zones_in(&folder.join("moved.pftrace")), BEFORE + AFTER);
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Zones in a Perfetto trace.
fn zones_in(path: &Path) -> u64 {
    let slices = trace::slices(&fs::read(path).expect("it is there"));
    slices.iter().filter(|slice| slice.name == "api.taken_away.step" && slice.track == "compute").count() as u64
}

#[test]
fn a_rotated_trace_loses_the_file_that_somebody_takes_away_and_goes_on_in_the_next_one() {
    let test = this_test!();
    if record_if_told() {
        return;
    }
    for (warning, is_cut) in [(REMOVED, false), (CHANGED, true)] {
        let folder = folder("rotated");
        let (first, second) = (folder.join("t.0001.pftrace"), folder.join("t.0002.pftrace"));
        let mut process = Process::begin(test, &folder, "perfetto=t.pftrace,rotate=1MiB,keep=2");
        if is_cut {
            cut(&first, 0);
        } else {
            fs::remove_file(&first).expect("it is there");
        }
        process.wait_until_told(warning);
        let said = process.end();
        assert_eq!(said.taken + said.lost, BEFORE + AFTER, "{said:#?}");
        assert!(said.taken >= AFTER, "{said:#?}");
        assert_eq!((said.kept, said.removed), (said.taken, 0), "{said:#?}");
        assert_eq!(zones_in(&second), said.taken, "{said:#?}");
        let there = names(&folder);
        assert_eq!(there.len(), if is_cut { 2 } else { 1 }, "{there:?}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}

#[test]
fn a_flight_recorder_counts_what_somebody_takes_away() {
    let test = this_test!();
    if record_if_told() {
        return;
    }
    for (warning, is_cut) in
        [("was removed while it was written", false), ("another program truncated the flight recorder's file", true)]
    {
        let folder = folder("flight");
        let file = folder.join("my.flight");
        let mut process = Process::begin(test, &folder, "flight=1MiB:my.flight,budget=100%");
        if is_cut {
            cut(&file, 0);
        } else {
            fs::remove_file(&file).expect("it is there");
        }
        process.wait_until_told(warning);
        let said = process.end();
        assert_eq!((said.taken, said.lost, said.kept), (0, BEFORE + AFTER, 0), "{said:#?}");
        assert_eq!(said.told.matches(warning).count(), 1, "{said:#?}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
