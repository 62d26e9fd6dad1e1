//! Programs that end without finishing their session: whatever runs at the end of a program finishes it, and what cannot run is said.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session};
use warpline_tests::{again, alone, empty_folder, this_test};

warpline::range! {
    STEP = "api.endings.step": "A step.";
}

/// Tells the process how it ends.
const HOW: &str = "WARPLINE_TEST_ENDS_BY";
const TRACE: &str = "WARPLINE_TEST_ENDS_TRACE";
const ZONES: u64 = 50;

/// What a process that records left: how it ended, its standard output and error, and the report in its file.
struct Left {
    status: ExitStatus,
    stderr: String,
    report: Option<serde_json::Value>,
}

impl Left {
    #[track_caller]
    fn is_complete(&self) {
        let report = self.report.as_ref().unwrap_or_else(|| panic!("no report: {}", self.stderr));
        let zones = &report["zones"];
        assert_eq!((&zones["begun"], &zones["recorded"]), (&ZONES.into(), &ZONES.into()), "{report}");
        assert!(self.stderr.contains("wrote `"), "{}", self.stderr);
    }
}

/// A program that ends as it is told; it starts a session like one that never thinks of its end.
fn program() -> ! {
    let how = env::var(HOW).expect("it was told");
    // Whoever starts the tests in the background may ignore interrupts.
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: it sets the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let folder = env::var(TRACE).expect("it was told");
    let (trace, report) = (format!("{folder}/t.pftrace"), format!("{folder}/r.json"));
    let builder = Session::builder().perfetto(trace).summary_file(report);
    let builder = if how == "opted out" { builder.finish_on_signal(false) } else { builder };
    let builder = match how.as_str() {
        "sink" => builder.sink(Ends),
        "hangs" => builder.sink(Hangs),
        _ => builder,
    };
    if how == "handled" {
        handle(libc::SIGTERM);
    }
    let session = builder.start().expect("no other session");
    let stream = HostStream::new("compute");
    for _ in 0..ZONES {
        let _zone = STEP.zone(&stream);
        stream.launch(|| ());
    }
    stream.synchronize().expect("nothing panics");
    match how.as_str() {
        "exit" => std::mem::forget(session),
        "exit on a thread" => {
            std::mem::forget(session);
            thread::spawn(|| std::process::exit(3)).join().expect("it does not come back");
        }
        "static" => {
            static SESSION: OnceLock<Session> = OnceLock::new();
            SESSION.set(session).expect("it is the first");
        }
        "finished" => drop(session.finish()),
        "abort" => std::process::abort(),
        "daemon" => {
            std::mem::forget(session);
            let before = std::process::id() as libc::pid_t;
            // SAFETY: the parent ends at once, and the child starts no thread.
            if unsafe { libc::fork() } > 0 {
                // SAFETY: the call takes a number.
                unsafe { libc::_exit(3) };
            }
            // SAFETY: the signal 0 only asks whether the process is there.
            while unsafe { libc::kill(before, 0) } == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            drop(STEP.zone(&stream));
        }
        "sink" => drop(session.finish()),
        "handled later" => handle(libc::SIGTERM),
        _ => {}
    }
    if matches!(how.as_str(), "signal" | "finished" | "handled" | "handled later" | "opted out" | "hangs") {
        println!("\nready");
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(100));
            if CAME.load(Ordering::Relaxed) {
                // As long as the session would need to be finished.
                thread::sleep(Duration::from_millis(300));
                // SAFETY: the call takes a number.
                unsafe { libc::_exit(7) };
            }
        }
        std::process::abort();
    }
    std::process::exit(3)
}

/// Ends the program from the collector's thread.
struct Ends;

impl Sink for Ends {
    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        std::process::exit(3)
    }
}

/// Never takes anything.
struct Hangs;

impl Sink for Hangs {
    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        loop {
            thread::park();
        }
    }
}

/// Whether the program's own handler ran.
static CAME: AtomicBool = AtomicBool::new(false);

/// The handler that was there before the program's.
static EARLIER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Handles the signal as a program that ends in its own way, and calls the handler that was there before, as `signal-hook` does.
fn handle(signal: libc::c_int) {
    extern "C" fn come(signal: libc::c_int) {
        CAME.store(true, Ordering::Relaxed);
        let earlier = EARLIER.load(Ordering::Relaxed);
        if earlier != libc::SIG_DFL {
            // SAFETY: it was the signal's handler.
            let earlier = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(earlier) };
            earlier(signal);
        }
    }
    // SAFETY: the handler only sets a flag and calls the earlier one.
    let earlier = unsafe { libc::signal(signal, come as *const () as libc::sighandler_t) };
    EARLIER.store(earlier, Ordering::Relaxed);
}

/// Runs the program, sends it the signals when it is ready, and reads what it left.
fn ends(test: &str, how: &str, signals: &[libc::c_int]) -> Left {
    if env::var_os(HOW).is_some() {
        program();
    }
    let folder = empty_folder(&format!("endings-{}", how.replace(' ', "-")));
    let mut child = again(test, HOW, how)
        .env(TRACE, &folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test can run itself");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    if !signals.is_empty() {
        assert!(stdout.any(|line| line.expect("UTF-8") == "ready"), "it ended early");
    }
    for (nth, &signal) in signals.iter().enumerate() {
        if nth > 0 {
            thread::sleep(Duration::from_millis(300));
        }
        // SAFETY: the call takes numbers; the process is not waited for yet.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    }
    // Before its output ends: another process may go on with it.
    let status = child.wait().expect("it ends");
    let mut stderr = String::new();
    child.stderr.take().expect("it is a pipe").read_to_string(&mut stderr).expect("UTF-8");
    Left { status, stderr, report: report(&folder.join("r.json")) }
}

fn report(file: &Path) -> Option<serde_json::Value> {
    let text = fs::read_to_string(file).ok().filter(|text| !text.is_empty())?;
    Some(serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn a_session_that_is_not_dropped_is_finished_by_exit() {
    let _turn = alone();
    for how in ["exit", "exit on a thread", "static"] {
        let left = ends(this_test!(), how, &[]);
        assert_eq!(left.status.code(), Some(3), "{how}: {}", left.stderr);
        left.is_complete();
        assert_eq!(left.stderr.matches("wrote `").count(), 2, "{how}: {}", left.stderr);
    }
}

#[test]
fn signals_that_the_program_does_not_handle_finish_the_session_and_end_it() {
    let _turn = alone();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let left = ends(this_test!(), "signal", &[signal]);
        assert_eq!(left.status.signal(), Some(signal), "{}", left.stderr);
        left.is_complete();
    }
}

#[test]
fn a_signal_that_the_program_handles_is_the_programs() {
    let _turn = alone();
    for how in ["handled", "handled later"] {
        let left = ends(this_test!(), how, &[libc::SIGTERM]);
        assert_eq!((left.status.code(), left.report.is_none()), (Some(7), true), "{how}: {}", left.stderr);
    }
    let left = ends(this_test!(), "opted out", &[libc::SIGTERM]);
    assert_eq!((left.status.signal(), left.report.is_none()), (Some(libc::SIGTERM), true), "{}", left.stderr);
}

#[test]
fn a_second_signal_does_not_wait_for_the_session() {
    let _turn = alone();
    let begin = Instant::now();
    let left = ends(this_test!(), "hangs", &[libc::SIGTERM, libc::SIGTERM]);
    assert_eq!((left.status.signal(), left.report.is_none()), (Some(libc::SIGTERM), true), "{}", left.stderr);
    assert!(begin.elapsed() < Duration::from_secs(4), "it waited for {:?}", begin.elapsed());
}

#[test]
fn a_finished_session_leaves_signals_as_they_were() {
    let _turn = alone();
    let left = ends(this_test!(), "finished", &[libc::SIGINT]);
    assert_eq!(left.status.signal(), Some(libc::SIGINT), "{}", left.stderr);
    left.is_complete();
}

#[test]
fn an_end_from_the_collectors_own_thread_does_not_wait_for_it() {
    let _turn = alone();
    let begin = Instant::now();
    let left = ends(this_test!(), "sink", &[]);
    assert_eq!(left.status.code(), Some(3), "{}", left.stderr);
    let said = "warpline: the session is not finished: a sink of the program ended the program";
    assert!(left.stderr.contains(said) && begin.elapsed() < Duration::from_secs(4), "{}", left.stderr);
}

#[test]
fn a_daemon_says_that_its_session_stayed_behind() {
    let _turn = alone();
    let left = ends(this_test!(), "daemon", &[]);
    assert_eq!((left.status.code(), left.report.is_none()), (Some(3), true), "{}", left.stderr);
    let (said, remedy) = ("nothing of this process was recorded: process ", "start the session after the fork, here");
    assert!(left.stderr.contains(said) && left.stderr.contains(remedy), "{}", left.stderr);
}
