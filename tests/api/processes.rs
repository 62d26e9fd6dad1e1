//! Several processes with the same settings: each leaves files that can be read, with all that it recorded, and none destroys what
//! another one writes or has written.
//!
//! A test runs itself in processes of their own. Each says when its session has started and goes on when it is told to, so that
//! all sessions are there at once.
#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use warpline::{HostStream, Session};
use warpline_tests::{again, alone, in_a_process_of_its_own, names, this_test};

use crate::child;
use crate::trace;

warpline::range! {
    STEP = "api.processes.step": "A step.";
}

/// Tells the process that it is one of several.
const ONE_OF_SEVERAL: &str = "WARPLINE_TEST_ONE_OF_SEVERAL";

const ROUNDS: usize = 3;
const PROCESSES: usize = 4;
const ZONES: u64 = 500;

/// A folder for a test, with nothing in it.
fn folder(test: &str) -> PathBuf {
    warpline_tests::empty_folder(&format!("processes-{}", test.replace("::", "-")))
}

fn steps(count: u64) {
    let stream = HostStream::new("compute");
    for n in 0..count {
        let zone = STEP.zone(&stream).field("n", n).field("process", u64::from(std::process::id()));
        stream.launch(|| ());
        drop(zone);
    }
    stream.synchronize().expect("nothing panics");
}

/// In a process of its own: records as `WARPLINE` says, beside the others.
fn run_if_one_of_several() -> bool {
    if env::var_os(ONE_OF_SEVERAL).is_none() {
        return false;
    }
    let session = Session::from_env();
    writeln!(io::stdout(), "\nstarted").expect("somebody listens");
    io::stdin().read_line(&mut String::new()).expect("somebody says when");
    steps(ZONES);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (ZONES, ZONES), "{report}");
    assert!(report.sinks.iter().all(|sink| sink.lost + sink.errors == 0), "{report}");
    report.sinks.iter().for_each(|sink| println!("sink {}", sink.name));
    report.notes.iter().for_each(|note| println!("note: {note}"));
    true
}

struct Process {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

/// What a process said until its end.
struct Said {
    id: u32,
    stdout: String,
    stderr: String,
}

impl Process {
    /// Starts the test again in this folder, with these settings.
    fn begin(test: &str, folder: &Path, settings: &str, rank: usize) -> Process {
        let mut command = again(test, ONE_OF_SEVERAL, "");
        command.env("WARPLINE", settings).env("RANK", rank.to_string()).current_dir(folder);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the test can run itself");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Process { child, said }
    }

    /// Until its session has started.
    fn wait_until_started(&mut self) {
        let mut line = String::new();
        while line.trim() != "started" {
            line.clear();
            if self.said.read_line(&mut line).expect("UTF-8") == 0 {
                let mut stderr = String::new();
                let _ = self.child.stderr.take().expect("piped").read_to_string(&mut stderr);
                panic!("it did not start: {stderr}");
            }
        }
    }

    fn go_on(&mut self) {
        self.child.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
    }

    fn end(mut self) -> Said {
        let mut stdout = String::new();
        self.said.read_to_string(&mut stdout).expect("UTF-8");
        let id = self.child.id();
        let output = self.child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(output.status.success(), "{stdout}{stderr}");
        Said { id, stdout, stderr }
    }
}

/// So many processes with these settings, all of whose sessions are there at once.
fn at_once(test: &str, folder: &Path, settings: &str) -> Vec<Said> {
    let mut processes: Vec<_> = (0..PROCESSES).map(|rank| Process::begin(test, folder, settings, rank)).collect();
    processes.iter_mut().for_each(Process::wait_until_started);
    processes.iter_mut().for_each(Process::go_on);
    processes.into_iter().map(Process::end).collect()
}

/// The process whose zones a Perfetto trace has; all of them, and those of no other one.
fn process_in(trace: &[u8], path: &Path) -> u64 {
    let slices: Vec<_> = trace::slices(trace).into_iter().filter(|slice| slice.name == "api.processes.step").collect();
    let on_stream: Vec<_> = slices.iter().filter(|slice| slice.track == "compute").collect();
    let numbers: BTreeSet<u64> = on_stream.iter().map(|slice| number(slice.argument("n"))).collect();
    assert_eq!((on_stream.len() as u64, numbers.len() as u64), (ZONES, ZONES), "{}", path.display());
    let processes: BTreeSet<u64> = on_stream.iter().map(|slice| number(slice.argument("process"))).collect();
    assert_eq!(processes.len(), 1, "{}", path.display());
    *processes.first().expect("one")
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).expect("a number")
}

/// The same of a Chrome trace.
fn process_in_chrome(path: &Path) -> u64 {
    let trace = fs::read_to_string(path).expect("it is there");
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    assert_eq!(trace["otherData"]["recorded"], ZONES, "{path:?}");
    let events = trace["traceEvents"].as_array().expect("a list");
    let zones: Vec<_> = events.iter().filter(|event| event["args"]["n"].is_u64()).collect();
    let processes: BTreeSet<u64> = zones.iter().filter_map(|event| event["args"]["process"].as_u64()).collect();
    assert!(zones.len() as u64 >= ZONES && processes.len() == 1, "{path:?}");
    *processes.first().expect("one")
}

#[test]
fn processes_with_one_setting_leave_a_readable_trace_each() {
    if run_if_one_of_several() {
        return;
    }
    let test = this_test!();
    for _ in 0..ROUNDS {
        let folder = folder(test);
        let said = at_once(test, &folder, "perfetto=t.pftrace,chrome=t.json");
        let ids: BTreeSet<u64> = said.iter().map(|said| u64::from(said.id)).collect();
        let mut perfetto = BTreeSet::new();
        let mut chrome = BTreeSet::new();
        for name in names(&folder) {
            let path = folder.join(&name);
            let is_chrome = name.ends_with(".json");
            let id = match is_chrome {
                true => process_in_chrome(&path),
                false => process_in(&fs::read(&path).expect("it is there"), &path),
            };
            // The process that has one of the names may not have the other.
            let is_first = if is_chrome { chrome.insert(id) } else { perfetto.insert(id) };
            assert!(is_first, "{name}");
            assert!(
                ["t.pftrace".into(), format!("t.{id}.pftrace"), "t.json".into(), format!("t.{id}.json")]
                    .contains(&name)
            );
        }
        assert_eq!((&perfetto, &chrome), (&ids, &ids));
        // Each file under another name is said once, on standard error and in the report.
        let moved = |text: &str| text.matches("another trace is being written to `t.").count();
        let on_stderr: usize = said.iter().map(|said| moved(&said.stderr)).sum();
        let in_report: usize = said.iter().map(|said| moved(&said.stdout)).sum();
        assert_eq!((on_stderr, in_report), (2 * (PROCESSES - 1), 2 * (PROCESSES - 1)));
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}

#[test]
fn placeholders_give_each_process_names_of_its_own() {
    if run_if_one_of_several() {
        return;
    }
    let test = this_test!();
    let folder = folder(test);
    let said = at_once(test, &folder, "perfetto=t.{rank}.pftrace,chrome={pid}.json,flight=256KiB:{{{rank}}}.flight");
    let mut expected: Vec<String> = (0..PROCESSES)
        .zip(&said)
        .flat_map(|(rank, said)| {
            [format!("t.{rank}.pftrace"), format!("{}.json", said.id), format!("{{{rank}}}.flight")]
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(names(&folder), expected);
    for (rank, said) in said.iter().enumerate() {
        let path = folder.join(format!("t.{rank}.pftrace"));
        assert_eq!(process_in(&fs::read(&path).expect("it is there"), &path), u64::from(said.id));
        assert_eq!(process_in_chrome(&folder.join(format!("{}.json", said.id))), u64::from(said.id));
        assert!(!said.stderr.contains("another trace"), "{}", said.stderr);
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn flight_recorders_and_rotated_traces_of_several_processes_are_kept_apart() {
    if run_if_one_of_several() {
        return;
    }
    let test = this_test!();
    for _ in 0..ROUNDS {
        let folder = folder(test);
        let said = at_once(test, &folder, "flight=1MiB:t.flight,perfetto=t.pftrace,rotate=64KiB,keep=100");
        let ids: BTreeSet<u64> = said.iter().map(|said| u64::from(said.id)).collect();
        let flights: Vec<_> = names(&folder).into_iter().filter(|name| name.ends_with(".flight")).collect();
        let recovered = flights.iter().map(|name| {
            let (mut file, mut trace) = (fs::File::open(folder.join(name)).expect("it is there"), Vec::new());
            let found =
                warpline::recovery::recover(&mut file, &mut trace).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found.zones, ZONES, "{name}");
            u64::from(found.process_id)
        });
        assert_eq!(recovered.collect::<BTreeSet<_>>(), ids, "{flights:?}");
        let mut zones = std::collections::BTreeMap::<u64, BTreeSet<u64>>::new();
        for name in names(&folder).into_iter().filter(|name| name.ends_with(".pftrace")) {
            let trace = fs::read(folder.join(&name)).expect("it is there");
            let mut processes = BTreeSet::new();
            for slice in trace::slices(&trace) {
                if slice.name == "api.processes.step" && slice.track == "compute" {
                    let process = number(slice.argument("process"));
                    processes.insert(process);
                    zones.entry(process).or_default().insert(number(slice.argument("n")));
                }
            }
            assert_eq!(processes.len(), 1, "{name}");
        }
        assert_eq!(zones.keys().copied().collect::<BTreeSet<_>>(), ids);
        assert!(zones.values().all(|numbers| numbers.len() as u64 == ZONES));
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}

#[test]
fn a_session_that_does_not_start_leaves_every_file_as_it_was() {
    let _turn = alone();
    let folder = folder("a_session_that_does_not_start");
    let at = |name: &str| folder.join(name);
    for name in ["t.pftrace", "t.json", "notes.txt"] {
        fs::write(at(name), "of an earlier run").expect("the folder is there");
    }
    let builders = [
        Session::builder().perfetto(at("t.pftrace")).chrome(at("t.json")).flight_at(1 << 20, at("notes.txt")),
        Session::builder().perfetto(at("t.pftrace")).perfetto(at("new.pftrace")).chrome(at("none/t.json")),
        Session::builder().perfetto(at("t.pftrace")).chrome(at("t.{node}.json")),
        Session::builder().perfetto(at("new.pftrace")).rotate(1 << 20).chrome(at("none/t.json")),
    ];
    for builder in builders {
        let error = builder.start().expect_err("one of its files cannot be written").to_string();
        assert_eq!(names(&folder), ["notes.txt", "t.json", "t.pftrace"], "{error}");
        for name in names(&folder) {
            assert_eq!(fs::read_to_string(at(&name)).expect("it is there"), "of an earlier run", "{name}: {error}");
        }
    }
    let session = Session::builder().perfetto(at("t.pftrace")).start().expect("nothing was left behind");
    session.finish();
    assert!(fs::metadata(at("t.pftrace")).expect("it is there").len() > 100, "the next run writes over it");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// The files of a folder, each with its content.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    names(folder).into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).expect("it is there"))).collect()
}

/// A folder with a file of each kind that earlier sessions have left.
fn folder_of_earlier_runs(test: &str) -> PathBuf {
    let folder = folder(test);
    let settings = "perfetto={}/t.pftrace,chrome={}/t.json,flight=256KiB:{}/t.flight"
        .replace("{}", folder.to_str().expect("UTF-8"));
    for _ in 0..2 {
        let session = Session::builder().settings(&settings).expect("settings").start().expect("no other session");
        steps(10);
        session.finish();
    }
    let rotated = Session::builder().perfetto(folder.join("r.pftrace")).rotate(1 << 20).start().expect("it starts");
    steps(10);
    rotated.finish();
    folder
}

#[test]
fn a_start_that_fails_changes_no_file_whatever_fails_and_in_whatever_order() {
    // It counts the threads of the process.
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let folder = folder_of_earlier_runs("a_start_that_fails");
    fs::write(folder.join("notes.txt"), "somebody's").expect("the folder is there");
    let before = contents(&folder);
    assert_eq!(before.len(), 6, "{:?}", before.keys());
    let good = ["perfetto={}/t.pftrace", "chrome={}/t.json", "flight=256KiB:{}/t.flight", "perfetto={}/new.pftrace"];
    let bad = [
        "perfetto={}/none/t.pftrace",
        "chrome={}/none/t.json",
        "perfetto={}",
        "chrome={}",
        "flight=256KiB:{}/notes.txt",
        "flight=256KiB:{}/none/t.flight",
        "flight=1000000GiB:{}/t.flight",
    ];
    for bad in bad {
        for rotates in [false, true] {
            for at in 0..=good.len() {
                // There is one flight recorder.
                let others = good.iter().filter(|good| !(good.starts_with("flight") && bad.starts_with("flight")));
                let mut settings: Vec<&str> = others.copied().collect();
                settings.insert(at.min(settings.len()), bad);
                settings.extend(rotates.then_some("rotate=1MiB"));
                let line = settings.join(",").replace("{}", folder.to_str().expect("UTF-8"));
                let start = Session::builder().settings(&line).and_then(|builder| builder.start());
                let error = start.expect_err(&line).to_string();
                assert!(contents(&folder) == before, "{line}: {error}: {:?}", names(&folder));
                // A joined thread leaves `/proc` a moment later.
                let end = Instant::now() + Duration::from_secs(10);
                while warpline_tests::threads("warpline") > 0 {
                    assert!(Instant::now() < end, "{line}: a thread is left");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
    // No lock is left behind: each file is the next session's under its own name.
    let line = good.join(",").replace("{}", folder.to_str().expect("UTF-8"));
    let session = Session::builder().settings(&line).expect("settings").start().expect("nothing is wrong");
    steps(1);
    let report = session.finish();
    assert!(report.notes.is_empty(), "{report}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
#[cfg(target_os = "linux")]
fn a_trace_that_cannot_be_emptied_costs_the_flight_recorders_file_of_an_earlier_run_nothing() {
    use std::os::fd::FromRawFd;
    let _turn = alone();
    let folder = folder_of_earlier_runs("cannot_be_emptied");
    // A file that can be written and not cut.
    // SAFETY: the name ends with NUL; the descriptor is a new one.
    let sealed = unsafe { fs::File::from_raw_fd(libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    (&sealed).write_all(b"somebody's").expect("there is memory");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&sealed);
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    let start = |flight: &str| {
        let builder = Session::builder().perfetto(format!("/proc/self/fd/{fd}"));
        builder.flight_at(256 << 10, folder.join(flight)).start().expect_err("it cannot be emptied").to_string()
    };
    for flight in ["new.flight", "t.flight"] {
        let mut expected = contents(&folder);
        let error = start(flight);
        assert!(error.contains("cannot write the Perfetto trace"), "{error}");
        if flight == "t.flight" {
            // It has made room for the later one, which is under its own name again.
            expected.remove("t.flight.previous");
        }
        assert!(contents(&folder) == expected, "{error}: {:?}", names(&folder));
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_session_that_gets_no_thread_leaves_every_file_as_it_was() {
    let test = this_test!();
    let settings = "perfetto=t.pftrace,chrome=t.json,flight=256KiB:t.flight";
    if env::var_os(ONE_OF_SEVERAL).is_some() {
        let error =
            Session::builder().settings(settings).expect("settings").start().expect_err("no thread").to_string();
        return println!("\nsays: {error}");
    }
    let _turn = alone();
    let folder = folder_of_earlier_runs("gets_no_thread");
    let before = contents(&folder);
    let mut command = again(test, ONE_OF_SEVERAL, "");
    // Larger than the address space.
    let output = command.env("RUST_MIN_STACK", (1_u64 << 48).to_string()).current_dir(&folder).output();
    let output = output.expect("the test can run itself");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("says: cannot start the collector's thread"), "{said}");
    assert!(contents(&folder) == before, "{:?}", names(&folder));
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_forked_process_with_a_session_of_its_own_writes_beside_its_parent() {
    let _turn = alone();
    let folder = folder("a_forked_process");
    let start = || Session::builder().perfetto(folder.join("t.pftrace")).chrome(folder.join("t.json")).start();
    let session = start().expect("no other session");
    steps(ZONES / 2);
    let session = child::forked(session, |session| {
        drop(session.finish());
        let session = start().expect("the parent's is not this process's");
        steps(ZONES);
        let report = session.finish();
        report.recorded == ZONES && report.notes.len() == 2
    });
    let stream = HostStream::new("compute");
    for n in ZONES / 2..ZONES {
        let zone = STEP.zone(&stream).field("n", n).field("process", u64::from(std::process::id()));
        stream.launch(|| ());
        drop(zone);
    }
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (ZONES, ZONES), "{report}");
    let mut processes = BTreeSet::new();
    for name in names(&folder) {
        let path = folder.join(&name);
        let id = match name.ends_with(".json") {
            true => process_in_chrome(&path),
            false => process_in(&fs::read(&path).expect("it is there"), &path),
        };
        let is_parents = id == u64::from(std::process::id());
        assert_eq!(name.matches('.').count(), if is_parents { 1 } else { 2 }, "{name}");
        processes.insert((id, name));
    }
    assert_eq!(processes.len(), 4, "{processes:?}");
    fs::remove_dir_all(&folder).expect("it is ours");
}
