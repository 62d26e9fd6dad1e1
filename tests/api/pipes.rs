//! Traces that go to what is no regular file: a pipe without a reader, with a slow one, and with one that goes away; and devices. Also a
//! regular file that has no name.
//! Nothing waits for a reader without a bound, nothing ends the program, and what nobody read is counted.
//!
//! Each test runs itself in a process of its own, in which a pipe that nobody reads ends the program unless warpline sees to it.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, thread};

use warpline::report::{Report, SinkReport};
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session};
use warpline_tests::{again, names, this_test};

use crate::trace;

warpline::range! {
    STEP = "api.pipes.step": "A step.";
}

/// Tells the process which folder is its.
const FOLDER: &str = "WARPLINE_TEST_FOLDER";

/// More than a pipe holds.
const ZONES: u64 = 4_000;

/// Runs it in a process of its own, in a folder with a pipe.
fn in_its_own_process(test: &str, run: impl FnOnce(&Path)) {
    if let Some(folder) = env::var_os(FOLDER) {
        // SAFETY: the default is what a program has that was not started by Rust, and a test that waits for ever fails.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::alarm(60);
        }
        run(&PathBuf::from(folder).join("pipe"));
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(7) };
    }
    let folder = warpline_tests::empty_folder(&format!("pipes-{}", test.replace("::", "-")));
    let pipe = std::ffi::CString::new(folder.join("pipe").to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: the path ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let output = again(test, FOLDER, folder.to_str().expect("UTF-8")).output().expect("the test can run itself");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{}: {said}", output.status);
    assert_eq!(names(&folder), ["pipe"], "no file is made");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// A reader of the pipe, which needs no writer to be there.
fn reader(pipe: &Path) -> File {
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(pipe).expect("it is there");
    // SAFETY: the file is open.
    assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    reader
}

fn steps(numbers: std::ops::Range<u64>) {
    let stream = HostStream::new("compute");
    for n in numbers {
        let zone = STEP.zone(&stream).field("n", n);
        stream.launch(|| ());
        drop(zone);
    }
    stream.synchronize().expect("nothing panics");
}

fn start(pipe: &Path) -> Session {
    Session::builder().perfetto(pipe).ring(100_000).start().expect("it has a reader")
}

fn trace_in(report: &Report) -> &SinkReport {
    report.sinks.iter().find(|sink| sink.name.contains('=')).expect("the trace is a sink")
}

/// Counts flushes: each comes beside one of the trace.
#[derive(Clone, Default)]
struct Flushes(Arc<AtomicU64>);

impl Sink for Flushes {
    fn write(&mut self, _: Batch<'_>) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// Each zone is counted as taken or as lost, and the error is this one.
#[track_caller]
fn assert_lost(report: &Report, error: &str) {
    let sink = trace_in(report);
    assert_eq!(sink.taken + sink.lost, report.recorded, "{report}");
    assert!(report.recorded >= ZONES && sink.lost > 0, "{report}");
    assert!(sink.first_error.as_deref().is_some_and(|first| first.contains(error)), "{report}");
    assert!(!report.notes.iter().any(|note| note.contains("in time")), "the sink came to its end: {report}");
}

#[test]
fn a_pipe_without_a_reader_is_an_error_that_says_what_to_do() {
    in_its_own_process(this_test!(), |pipe| {
        for builder in [Session::builder().perfetto(pipe), Session::builder().chrome(pipe)] {
            let error = builder.start().expect_err("it has no reader").to_string();
            let text = format!(
                "`{}`: it is a pipe that no process reads; start the reader before this program",
                pipe.display()
            );
            assert!(error.ends_with(&text), "{error}");
        }
    });
}

#[test]
fn a_pipe_with_a_reader_gets_the_whole_trace() {
    in_its_own_process(this_test!(), |pipe| {
        let mut reader = reader(pipe);
        let session = start(pipe);
        let read = thread::spawn(move || {
            let mut trace = Vec::new();
            reader.read_to_end(&mut trace).expect("it can be read");
            trace
        });
        steps(0..ZONES);
        let report = session.finish();
        assert_eq!((trace_in(&report).taken, trace_in(&report).errors), (ZONES, 0), "{report}");
        let slices = trace::slices(&read.join().expect("it reads to the end"));
        let zones = slices.iter().filter(|slice| slice.name == "api.pipes.step" && slice.track == "compute");
        assert_eq!(zones.count() as u64, ZONES);
    });
}

#[test]
fn a_pipe_with_a_reader_gets_a_whole_array_of_chromes_events() {
    in_its_own_process(this_test!(), |pipe| {
        let mut reader = reader(pipe);
        let session = Session::builder().chrome(pipe).ring(100_000).start().expect("it has a reader");
        let read = thread::spawn(move || {
            let mut trace = Vec::new();
            reader.read_to_end(&mut trace).expect("it can be read");
            trace
        });
        steps(0..ZONES);
        let report = session.finish();
        assert_eq!((report.sinks[0].taken, report.sinks[0].errors), (ZONES, 0), "{report}");
        let trace: serde_json::Value =
            serde_json::from_slice(&read.join().expect("it reads to the end")).expect("a whole document");
        let events = trace.as_array().expect("an array");
        let zones = events.iter().filter(|event| event["cat"] == "gpu_user_annotation");
        assert_eq!(zones.count() as u64, ZONES);
    });
}

#[test]
fn a_reader_that_stalls_costs_zones_and_no_time_without_a_bound() {
    in_its_own_process(this_test!(), |pipe| {
        let _reader = reader(pipe);
        let session = start(pipe);
        steps(0..ZONES);
        assert_lost(&session.finish(), "the reader of the pipe is too slow; use a faster one, or a file");
    });
}

#[test]
fn a_chrome_trace_in_a_pipe_waits_for_no_reader_without_a_bound() {
    in_its_own_process(this_test!(), |pipe| {
        let _reader = reader(pipe);
        let session = Session::builder().chrome(pipe).ring(100_000).start().expect("it has a reader");
        steps(0..ZONES);
        assert_lost(&session.finish(), "the reader of the pipe is too slow; use a faster one, or a file");
    });
}

#[test]
fn a_reader_that_goes_away_costs_zones_and_ends_no_program() {
    in_its_own_process(this_test!(), |pipe| {
        let first = reader(pipe);
        let flushes = Flushes::default();
        let session = Session::builder().perfetto(pipe).ring(100_000).sink(flushes.clone()).start();
        let session = session.expect("it has a reader");
        drop(first);
        steps(0..ZONES / 2);
        // Of two flushes, the trace had one that began after those zones.
        let until = flushes.0.load(Ordering::Acquire) + 2;
        while flushes.0.load(Ordering::Acquire) < until {
            steps(0..1);
            thread::yield_now();
        }
        // Another reader that comes later gets what the pipe still has, and none of what follows a hole.
        let mut second = reader(pipe);
        steps(ZONES / 2..ZONES);
        let report = session.finish();
        assert_lost(&report, "the pipe has lost its reader: the rest of the trace is lost");
        assert_eq!(trace_in(&report).lost, report.recorded, "{report}");
        let mut trace = Vec::new();
        second.read_to_end(&mut trace).expect("nobody writes");
        assert!(!trace::slices(&trace).iter().any(|slice| slice.name == "api.pipes.step"), "{} bytes", trace.len());
    });
}

#[test]
fn a_file_without_a_name_gets_the_whole_trace() {
    use std::os::fd::FromRawFd;
    in_its_own_process(this_test!(), |_| {
        // SAFETY: the name ends with NUL; the descriptor is a new one.
        let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"trace".as_ptr(), 0)) };
        let session = start(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
        steps(0..ZONES);
        let report = session.finish();
        assert_eq!((trace_in(&report).taken, trace_in(&report).errors), (ZONES, 0), "{report}");
        let mut trace = Vec::new();
        file.read_to_end(&mut trace).expect("it can be read");
        let slices = trace::slices(&trace);
        let zones = slices.iter().filter(|slice| slice.name == "api.pipes.step" && slice.track == "compute");
        assert_eq!(zones.count() as u64, ZONES);
    });
}

#[test]
fn rotation_is_refused_for_what_is_no_regular_file() {
    in_its_own_process(this_test!(), |pipe| {
        let folder = pipe.parent().expect("a folder");
        for (path, kind) in
            [(Path::new("/dev/full"), "no regular file"), (pipe, "no regular file"), (folder, "a folder")]
        {
            let error =
                Session::builder().perfetto(path).rotate(1 << 20).start().expect_err("it is no file").to_string();
            let text = format!(
                "cannot write the Perfetto trace to `{}`: it is {kind}, and `rotate` makes numbered files of a regular one; leave \
                 out `rotate`",
                path.display()
            );
            assert_eq!(error, text);
        }
        assert!(!Path::new("/dev/full.0001").exists());
        let beside = names(folder.parent().expect("another one"));
        let own = folder.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        assert!(!beside.iter().any(|name| name.starts_with(own) && name != own), "{beside:?}");
    });
}
