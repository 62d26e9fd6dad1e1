//! A disk that is full: what is not in a trace is counted and said, and what is in it can be read.
//!
//! Each test runs itself in a process of its own, whose files may have so many bytes and no more.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs};

use warpline::{HostStream, Session};
use warpline_tests::{again, this_test};

warpline::range! {
    STEP = "api.full_disk.step": "A step.";
}

/// Tells the process that it is there to record, and how long its files may be.
const LIMIT: &str = "WARPLINE_TEST_LIMIT";

const ZONES: u64 = 4_000;

/// No file of this process gets longer. A thread that tries gets an error and a SIGXFSZ, which ends the process where nobody blocks,
/// ignores or handles it: the disposition stays the default one here, as in most programs.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is valid for the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(done, 0);
}

/// In the process of its own: records as `WARPLINE` says, and prints what became of each sink.
fn record_if_told() -> bool {
    let Ok(limit) = env::var(LIMIT) else { return false };
    limit_files(limit.parse().expect("a number"));
    let session = Session::from_env();
    let stream = HostStream::new("compute");
    for n in 0..ZONES {
        let zone = STEP.zone(&stream).field("n", n);
        stream.launch(|| ());
        drop(zone);
    }
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    for sink in &report.sinks {
        assert_eq!(sink.taken + sink.lost, sink_records(&report), "{report}");
        println!("\nin {} of {}", sink.taken, sink.taken + sink.lost);
        let zones: u64 = sink.kept.files.iter().map(|file| file.zones).sum();
        println!("kept {}", zones + sink.kept.removed_zones);
    }
    true
}

fn sink_records(report: &warpline::report::Report) -> u64 {
    report.recorded + report.waits.recorded
}

struct Recorded {
    status: std::process::ExitStatus,
    stdout: String,
    stderr: String,
    /// Records that are in the file, and all.
    whole: u64,
    all: u64,
    kept: u64,
}

fn record(test: &str, settings: &str, limit: u64) -> Recorded {
    let mut command = again(test, LIMIT, limit.to_string());
    command.env("WARPLINE", format!("quiet,ring=100000,{settings}")).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the test can run itself");
    let (stdout, stderr) = (String::from_utf8(stdout).expect("UTF-8"), String::from_utf8(stderr).expect("UTF-8"));
    let line = |begin: &str| {
        stdout.lines().find_map(|line| line.strip_prefix(begin)).unwrap_or_else(|| panic!("{stdout}{stderr}"))
    };
    let (whole, all) = line("in ").split_once(" of ").expect("two numbers");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (whole, all, kept) = (number(whole), number(all), number(line("kept ")));
    Recorded { status, stdout, stderr, whole, all, kept }
}

/// A folder for a test, with nothing in it.
fn folder(test: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("warpline-full-disk-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The test passed in the process of its own.
#[track_caller]
fn assert_passed(Output { status, stdout, stderr }: &Output) {
    let said = String::from_utf8_lossy(stdout);
    assert!(status.success() && said.contains("it passed"), "{status}: {said}{}", String::from_utf8_lossy(stderr));
}

/// What is said of a trace that lacks some of its records, and nothing else.
#[track_caller]
fn says_what_is_missing(recorded: &Recorded, sink: &str, error: &str) {
    let Recorded { status, stdout, stderr, whole, all, .. } = recorded;
    assert!(status.success(), "{stdout}{stderr}");
    let line = format!("warpline: sink {sink}: {error}; {} of {all} zones are not in it\n", all - whole);
    assert_eq!(*stderr, line, "{stdout}");
}

const TOO_LARGE: &str = "File too large (os error 27)";

fn documents(trace: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(trace).expect("it is there")).expect("a whole document")
}

#[test]
fn a_chrome_trace_on_a_full_disk_is_a_whole_document_with_every_zone_that_is_not_counted_as_lost() {
    if record_if_told() {
        return;
    }
    let test = this_test!();
    let folder = folder("chrome");
    let trace = folder.join("trace.json");
    let sink = format!("chrome={}", trace.display());
    for limit in [2_000, 50_001, 200_000] {
        let recorded = record(test, &sink, limit);
        says_what_is_missing(&recorded, &sink, TOO_LARGE);
        let document = documents(&trace);
        let slices = document["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
        // Each zone and its launch.
        assert_eq!(slices.count() as u64, recorded.whole * 2, "{}", recorded.stderr);
        assert!(recorded.whole > 0 && recorded.whole < recorded.all, "{}", recorded.stderr);
        assert!(fs::metadata(&trace).expect("it is there").len() <= limit);
    }
    // A document that has not even begun is none.
    assert_eq!(record(test, &sink, 20).whole, 0);
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_perfetto_trace_on_a_full_disk_says_without_being_asked_how_many_zones_are_not_in_it() {
    if record_if_told() {
        return;
    }
    let test = this_test!();
    let folder = folder("perfetto");
    let trace = folder.join("trace.pftrace");
    let sink = format!("perfetto={}", trace.display());
    for limit in [2_000, 50_001] {
        let recorded = record(test, &sink, limit);
        says_what_is_missing(&recorded, &sink, TOO_LARGE);
        assert!(recorded.whole > 0 && recorded.whole < recorded.all, "{}", recorded.stderr);
        assert_eq!(fs::metadata(&trace).expect("it is there").len(), limit, "it has what fits");
    }
    let recorded = record(test, &format!("summary=-,{sink}"), 2_000);
    assert!(recorded.stderr.contains("zones are not in it"), "with the report as well");
    let lost = format!("{} records lost; first: {TOO_LARGE}", recorded.all - recorded.whole);
    assert!(recorded.stdout.contains(&lost), "{}", recorded.stdout);
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn files_that_follow_one_another_on_a_full_disk_say_what_each_has() {
    if record_if_told() {
        return;
    }
    let test = this_test!();
    let folder = folder("rotate");
    let sink = format!("perfetto={}", folder.join("trace.pftrace").display());
    let recorded = record(test, &format!("{sink},rotate=256KiB"), 50_001);
    says_what_is_missing(&recorded, &sink, TOO_LARGE);
    assert_eq!(recorded.kept, recorded.whole, "each zone that is not lost is in a file");
    assert!(recorded.whole > 0 && recorded.whole < recorded.all, "{}", recorded.stderr);
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
#[cfg(all(target_os = "linux", feature = "timeline"))]
fn waits_that_are_not_in_a_trace_are_counted_with_its_zones() {
    let test = this_test!();
    if env::var(LIMIT).is_ok() {
        let session = Session::from_env();
        let stream = HostStream::new("compute");
        let ready = warpline::timeline::Semaphore::new(0);
        drop(STEP.zone(&stream));
        ready.signal_on(&HostStream::new("copy"), 1).expect("it only grows");
        ready.wait_on(&stream, 1).expect("it is submitted");
        stream.synchronize().expect("nothing panics");
        let report = session.finish();
        println!("\nin {} of {}", report.sinks[0].taken, sink_records(&report));
        return println!("kept 0");
    }
    for sink in ["perfetto=/dev/full", "chrome=/dev/full"] {
        let Recorded { stderr, whole, all, .. } = record(test, sink, 1 << 20);
        assert_eq!((whole, all), (0, 2), "a zone and a wait: {stderr}");
        assert!(stderr.ends_with("; 2 of 2 records (zones, waits) are not in it\n"), "{stderr}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_that_is_always_full_has_none_of_the_zones() {
    if record_if_told() {
        return;
    }
    let test = this_test!();
    for sink in ["perfetto=/dev/full", "chrome=/dev/full"] {
        let recorded = record(test, sink, 1 << 20);
        says_what_is_missing(&recorded, sink, "No space left on device (os error 28)");
        assert_eq!((recorded.whole, recorded.all), (0, ZONES));
    }
}

/// How often this program's own handler of SIGXFSZ ran.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Writes beyond the limit as a program would that knows nothing of warpline.
fn write_too_much(path: &Path) -> std::io::Result<()> {
    fs::write(path, vec![0; 1 << 20])
}

#[test]
fn the_programs_own_handler_stays_and_sees_its_own_signals_alone() {
    let test = this_test!();
    if let Ok(folder) = env::var(LIMIT) {
        let handler = handle as *const () as libc::sighandler_t;
        // SAFETY: the handler only adds to a number.
        unsafe { libc::signal(libc::SIGXFSZ, handler) };
        limit_files(20);
        let folder = PathBuf::from(folder);
        let at = |name: &str| folder.join(name);
        let session = Session::builder().perfetto(at("t.pftrace")).chrome(at("t.json")).start().expect("it starts");
        let stream = HostStream::new("compute");
        drop(STEP.zone(&stream));
        stream.synchronize().expect("nothing panics");
        let report = session.finish();
        assert!(report.sinks.iter().all(|sink| sink.errors > 0), "both threads wrote too much: {report}");
        assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
        write_too_much(&at("own")).expect_err("it is too much");
        assert_eq!(HANDLED.load(Ordering::Relaxed), 1, "the thread that started the session has its mask again");
        return println!("\nit passed");
    }
    let folder = folder("handler");
    let output = again(test, LIMIT, folder.to_str().expect("UTF-8")).output().expect("the test can run itself");
    assert_passed(&output);
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_flight_recorder_whose_limit_falls_while_it_runs_fails_and_ends_no_program() {
    let test = this_test!();
    if let Ok(folder) = env::var(LIMIT) {
        let folder = PathBuf::from(folder);
        let session = Session::builder()
            .budget(1.0)
            .flight_at(256 << 10, folder.join("my.flight"))
            .start()
            .expect("there is room");
        limit_files(500);
        let stream = HostStream::new("compute");
        for _ in 0..10 {
            drop(STEP.zone(&stream));
        }
        stream.synchronize().expect("nothing panics");
        session.dump(folder.join("dump.pftrace")).expect_err("it is larger than the limit");
        let report = session.finish();
        let sink = &report.sinks[0];
        assert_eq!((sink.taken, sink.lost, report.recorded), (0, 10, 10), "{report}");
        assert!(sink.first_error.as_deref().is_some_and(|error| error.contains(TOO_LARGE)), "{report}");
        return println!("\nit passed");
    }
    let folder = folder("flight");
    let output = again(test, LIMIT, folder.to_str().expect("UTF-8")).output().expect("the test can run itself");
    assert_passed(&output);
    assert_eq!(warpline_tests::names(&folder), ["my.flight"], "a dump that fails leaves no file");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_report_and_warnings_that_do_not_fit_into_their_file_end_no_program() {
    let test = this_test!();
    if env::var_os(LIMIT).is_some() {
        limit_files(200);
        let session = Session::from_env();
        drop(STEP.zone(&HostStream::new("compute")));
        drop(session.finish());
        // What the test's harness would print is too much as well. What standard output still holds is written here.
        std::process::exit(0);
    }
    let folder = folder("standard_streams");
    let create = |name: &str| fs::File::create(folder.join(name)).expect("the folder is there");
    let mut command = again(test, LIMIT, "");
    command.env("WARPLINE", format!("summary=-,filter=no.such,perfetto={}", folder.join("t.pftrace").display()));
    let status = command.stdout(create("out")).stderr(create("err")).status().expect("the test can run itself");
    assert!(status.success(), "{status}");
    for name in ["out", "err"] {
        assert_eq!(fs::metadata(folder.join(name)).expect("it is there").len(), 200, "{name} is cut");
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_standard_error_is_no_reason_to_fail() {
    if record_if_told() {
        return;
    }
    let test = this_test!();
    let mut command = again(test, LIMIT, "1000000");
    command
        .env("WARPLINE", "perfetto=/dev/full,ring=100000")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the test can run itself");
    // A pipe that nobody reads any more.
    drop(child.stderr.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
