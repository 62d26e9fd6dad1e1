//! Kernels that are asked for from outside, on the stub CUPTI: that they come, and what is said where they cannot.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpline::Session;
use warpline::sink::MemorySink;
use warpline::timing::Timing;
use warpline_tests::this_test;
use warpline_trace::control::protocol::{ControlRequest, Decoder, Kind, MAX_REPLY_BYTES, frame};
use warpline_trace::control::socket::{SocketOwner, directory};

use crate::harness::cupti::{Launch, kernel, name_library, with_cupti};
use crate::harness::driver::{self, Stub, on_stub, scratch};
use crate::harness::zones::{self, raw};

warpline::range! {
    STEP = "stub.control_kernels.step": "A step.";
}

/// However loaded the machine is, it takes no longer.
const SOON: Duration = Duration::from_secs(60);

/// Gives this process a directory for its socket, before it listens.
fn runtime_dir() -> PathBuf {
    // A socket's path is short.
    let dir = PathBuf::from(format!("/tmp/wl-{}", std::process::id()));
    fs::create_dir(&dir).and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))).unwrap();
    // SAFETY: the child has begun its one test, and no other thread reads the environment yet.
    unsafe { env::set_var("XDG_RUNTIME_DIR", &dir) };
    dir
}

/// One who asked.
struct Asker {
    stream: UnixStream,
    decoder: Decoder,
    trace: Vec<u8>,
}

impl Asker {
    fn record(runtime_dir: &Path, kernels: bool) -> Asker {
        Asker::ask(runtime_dir, &ControlRequest::Record { for_ms: None, filter: String::new(), kernels })
    }

    fn ask(runtime_dir: &Path, request: &ControlRequest) -> Asker {
        let owner = SocketOwner::read("self").expect("this process");
        let socket = directory(Some(runtime_dir.as_os_str()), 0).join(owner.socket_name());
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a time");
        let mut bytes = Vec::new();
        frame(Kind::Json, request.to_json().as_bytes(), &mut bytes);
        stream.write_all(&bytes).expect("it reads");
        Asker { stream, decoder: Decoder::new(MAX_REPLY_BYTES), trace: Vec::new() }
    }

    /// The next reply that is so; pieces of the trace before it are kept.
    fn until(&mut self, is: &str) -> Value {
        loop {
            if let Some(reply) = self.next() {
                assert_eq!(reply["is"], is, "{reply}");
                return reply;
            }
        }
    }

    /// The next reply; none where it is a piece of the trace.
    fn next(&mut self) -> Option<Value> {
        loop {
            match self.decoder.take().expect("a frame") {
                Some((Kind::Trace, piece)) => {
                    self.trace.extend(piece);
                    return None;
                }
                Some((Kind::Json, body)) => return Some(serde_json::from_slice(&body).expect("JSON")),
                None => {
                    let mut bytes = vec![0; self.decoder.room().min(64 << 10)];
                    let count = self.stream.read(&mut bytes).expect("it answers");
                    assert!(count > 0, "it closed the connection");
                    self.decoder.feed(&bytes[..count]);
                }
            }
        }
    }

    /// Waits until the recording has begun in the session's collector, too: what began before is not waited for.
    fn until_it_records(&mut self) {
        while self.trace.is_empty() {
            if let Some(reply) = self.next() {
                panic!("{reply} where a trace begins");
            }
        }
    }

    /// What it notes as it begins.
    fn notes(&mut self) -> Vec<String> {
        let started = self.until("started");
        let notes = started["notes"].as_array().expect("notes");
        notes.iter().map(|note| note.as_str().expect("text").to_owned()).collect()
    }

    /// Asks for the end, and gives the trace and what it was.
    fn end(mut self) -> (Vec<u8>, Value) {
        self.stream.shutdown(Shutdown::Write).expect("it is open");
        let ended = self.until("ended");
        (self.trace, ended)
    }
}

fn holds(trace: &[u8], text: &str) -> bool {
    trace.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Waits until what was recorded for somebody is over.
fn until_idle(runtime_dir: &Path) {
    let since = Instant::now();
    while Asker::ask(runtime_dir, &ControlRequest::Status).until("status")["state"] != "idle" {
        assert!(since.elapsed() < SOON, "a session is left");
        thread::sleep(Duration::from_millis(5));
    }
}

fn listening() -> Session {
    Session::builder().control().budget(1.0).start().expect("no other session")
}

/// Runs `body` in a process with the stub driver, and with a library in CUPTI's place that is none.
fn without_cupti(test: &str, body: impl FnOnce(&Stub)) {
    on_stub(test, |driver| {
        let none = scratch(test);
        fs::write(&none, "no library").unwrap();
        name_library(&none);
        body(driver);
    });
}

#[test]
fn kernels_come_to_a_recording_that_asks_for_them_and_to_no_other() {
    with_cupti(this_test!(), |driver, cupti| {
        let dir = runtime_dir();
        driver.start();
        let session = listening();
        let stream = driver.stream();
        for kernels in [true, false] {
            let mut asker = Asker::record(&dir, kernels);
            assert_eq!(asker.notes(), [""; 0]);
            asker.until_it_records();
            for _ in 0..3 {
                let _step = STEP.zone(&raw(stream));
                cupti.launch(kernel(c"gemm_of_a_step"));
            }
            let (trace, ended) = asker.end();
            assert_eq!((&ended["recorded"], &ended["dropped"]), (&3.into(), &serde_json::json!({})), "{ended}");
            assert_eq!(ended["kernels"], if kernels { 3 } else { 0 }, "{ended}");
            assert!(holds(&trace, "stub.control_kernels.step"));
            assert_eq!(holds(&trace, "gemm_of_a_step"), kernels);
            until_idle(&dir);
        }
        assert_eq!(cupti.stub_cupti_on(), 0, "nothing is left on");
        let calls = ["cuptiSubscribe", "cuptiFinalize"].map(|call| cupti.calls(call));
        assert_eq!((calls, cupti.stub_cupti_is_attached()), ([1, 1], false), "for the one that asked for kernels");
        session.finish();
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn a_recording_has_the_zones_that_a_session_times_by_kernels_with_their_times() {
    with_cupti(this_test!(), |driver, cupti| {
        let dir = runtime_dir();
        driver.start();
        let (session, sink) = zones::start(|builder| builder.control().timing(Timing::Kernels));
        let stream = driver.stream();
        let mut asker = Asker::record(&dir, false);
        assert_eq!(asker.notes(), [""; 0]);
        asker.until_it_records();
        for _ in 0..3 {
            let _step = STEP.zone(&raw(stream));
            thread::sleep(Duration::from_micros(100));
            let begin_ns = zones::boot_ns().cast_unsigned() + 3_500;
            cupti.launch(Launch { begin_ns, end_ns: begin_ns + 7_000, ..kernel(c"gemm_of_a_step") });
            thread::sleep(Duration::from_micros(100));
        }
        // It ends before CUPTI has handed over what was launched last.
        let (trace, ended) = asker.end();
        assert_eq!((&ended["recorded"], &ended["kernels"]), (&3.into(), &0.into()), "{ended}");
        assert!(holds(&trace, "stub.control_kernels.step") && holds(&trace, "kernels"));
        let report = session.finish();
        assert_eq!((report.kernel_timing.timed, sink.take().len()), (3, 3), "{report}");
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn what_a_recording_from_outside_leaves_in_the_program_is_said_there() {
    with_cupti(this_test!(), |driver, cupti| {
        let dir = runtime_dir();
        driver.start();
        let session = listening();
        let stream = driver.stream();
        let mut asker = Asker::record(&dir, true);
        assert_eq!(asker.notes(), [""; 0]);
        asker.until_it_records();
        let said = driver::scratch("left-by-a-recording");
        let stderr = zones::StandardError::to(&said);
        drop(STEP.zone(&raw(stream)));
        cupti.replay(stream, 9, 2, 1_000_000, 1_000);
        asker.end();
        until_idle(&dir);
        drop(stderr);
        let said = fs::read_to_string(said).expect("it is there");
        assert!(said.contains("CUPTI stays in this process"), "{said}");
        assert_eq!(cupti.calls("cuptiFinalize"), 0);
        session.finish();
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn where_cupti_cannot_be_had_that_is_the_reason_and_no_other() {
    without_cupti(this_test!(), |driver| {
        let dir = runtime_dir();
        driver.start();
        for own in [false, true] {
            let session =
                if own { Session::builder().control().budget(1.0).kernels(true).start().unwrap() } else { listening() };
            let mut asker = Asker::record(&dir, true);
            let notes = asker.notes();
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(
                notes[0].starts_with("no kernels are recorded: ") && notes[0].contains("WARPLINE_CUPTI"),
                "{notes:?}"
            );
            let (_, ended) = asker.end();
            assert_eq!(ended["notes"][0], notes[0].as_str(), "it is the session's own reason");
            session.finish();
        }
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn beside_a_recording_without_kernels_there_are_none() {
    with_cupti(this_test!(), |driver, _| {
        let dir = runtime_dir();
        driver.start();
        let session = listening();
        let mut first = Asker::record(&dir, false);
        assert_eq!(first.notes(), [""; 0]);
        let mut second = Asker::record(&dir, true);
        let why = "no kernels are recorded: another recording without kernels is running; try again when it has ended";
        assert_eq!(second.notes(), [why]);
        second.end();
        first.end();
        session.finish();
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn beside_a_session_without_kernels_there_are_none_and_nothing_while_it_is_stopped() {
    let test = this_test!();
    with_cupti(test, |driver, _| {
        let dir = runtime_dir();
        driver.start();
        let session = Session::builder().control().budget(1.0).sink(MemorySink::new(1)).start().unwrap();
        let why = "no kernels are recorded: the program's own session records none; start it with `kernels`";
        let mut asker = Asker::record(&dir, true);
        assert_eq!(asker.notes(), [why]);
        asker.end();
        session.stop();
        let mut asker = Asker::record(&dir, true);
        let stopped = "the program's own session is stopped: nothing is recorded until the program starts it again";
        assert_eq!(asker.notes(), [stopped, why]);
        asker.end();
        session.finish();
        fs::remove_dir_all(dir).unwrap();
    });
}

#[test]
fn a_recording_that_ends_at_once_has_what_began_in_it() {
    with_cupti(this_test!(), |driver, _| {
        let dir = runtime_dir();
        driver.start();
        let session = listening();
        let stream = driver.stream();
        for _ in 0..20 {
            let mut asker = Asker::record(&dir, false);
            assert_eq!(asker.notes(), [""; 0]);
            asker.until_it_records();
            (0..3).for_each(|_| drop(STEP.zone(&raw(stream))));
            let (_, ended) = asker.end();
            assert_eq!((&ended["begun"], &ended["recorded"]), (&3.into(), &3.into()), "{ended}");
            until_idle(&dir);
        }
        session.finish();
        fs::remove_dir_all(dir).unwrap();
    });
}
