//! What `kill -9` leaves of a Chrome trace: a document that readers accept, with every zone that was flushed.
//!
//! A test runs itself in processes of its own and kills each at another moment: while it starts, while it records under light and
//! under heavy load, and while it finishes. `WARPLINE_ATTACK_SECONDS` is the time for each test; without it, a test takes about
//! two seconds.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::Value;
use warpline::sink::{Batch, ChromeSink, Sink};
use warpline::{HostStream, Session};
use warpline_tests::{again, this_test};

warpline::range! {
    STEP = "api.killed_chrome.step": "A step.";
}

/// Names the trace, and tells the process that it is there to be killed.
const TRACE: &str = "WARPLINE_TEST_KILLED";

/// What the process does until then.
const LOAD: &str = "WARPLINE_TEST_LOAD";

/// How long each test may take, in seconds.
const SECONDS: &str = "WARPLINE_ATTACK_SECONDS";

/// Processes at once.
const AT_ONCE: u64 = 4;

/// The least number of kills in a test, on a machine of any speed.
const AT_LEAST: u64 = 12;

/// Behind the trace in the list of sinks: what it reports has been flushed to the file.
struct Witness {
    zones: u64,
}

impl Sink for Witness {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.zones += batch.zones().len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Past the test harness, which would keep the output.
        writeln!(io::stdout(), "\nflushed {}", self.zones)
    }
}

/// A process that is there to be killed never returns.
fn record_if_told() {
    let Ok(trace) = env::var(TRACE) else { return };
    let load = env::var(LOAD).expect("it is set with the trace");
    let start = || {
        // A session begins with an empty file.
        writeln!(io::stdout(), "\nflushed 0").expect("somebody listens");
        let sink = ChromeSink::create(&trace).expect("the file can be made");
        Session::builder().sink(sink).sink(Witness { zones: 0 }).start().expect("no other session")
    };
    let record = |thread: u64, zones: u64| {
        let stream = HostStream::new(&format!("stream {thread}"));
        for n in 0..zones {
            let zone = STEP.zone(&stream).field("n", n).field("thread", thread).label("the label of a \"step\"");
            stream.launch(|| ());
            drop(zone);
            if n % 64 == 63 {
                stream.synchronize().expect("nothing panics");
            }
            if load == "light" {
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    writeln!(io::stdout(), "\nbegun").expect("somebody listens");
    loop {
        let session = start();
        match &*load {
            "light" => record(0, u64::MAX),
            "heavy" => thread::scope(|scope| {
                (0..4).for_each(|thread| drop(scope.spawn(move || record(thread, u64::MAX))));
            }),
            _ => {
                record(0, 200);
                session.finish();
            }
        }
    }
}

/// What a killed process left.
struct Killed {
    /// How many zones its last session had flushed.
    flushed: u64,
    text: String,
}

/// Runs the test in a process of its own and kills it after this time.
fn kill(test: &str, load: &str, trace: &Path, after: Duration) -> Killed {
    let mut command = again(test, TRACE, trace.to_str().expect("UTF-8"));
    command.env(LOAD, load).env("WARPLINE", "off").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the test can run itself");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while line.trim_end() != "begun" {
        line.clear();
        assert!(said.read_line(&mut line).expect("UTF-8") > 0, "it ended by itself");
    }
    // The moment is what differs from kill to kill; nothing waits for anything here.
    thread::sleep(after);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let mut lines = String::new();
    said.read_to_string(&mut lines).expect("UTF-8");
    let flushed = lines.lines().filter_map(|line| line.strip_prefix("flushed ")?.parse().ok()).next_back();
    let text = fs::read_to_string(trace).unwrap_or_default();
    keep(trace, text.is_empty());
    Killed { flushed: flushed.unwrap_or(0), text }
}

/// The last trace of each kind stays for `cargo xtask gate`, which has the folder for it.
fn keep(trace: &Path, is_empty: bool) {
    let name = trace.file_name().expect("a name");
    let kept = env::var_os("WARPLINE_GATE_DIR").map(|folder| Path::new(&folder).join(name));
    if let Some(kept) = kept.filter(|_| !is_empty) {
        fs::copy(trace, kept).expect("the folder is there");
    }
    let _ = fs::remove_file(trace);
}

/// The events of what is in the file: a whole document, or an array that lacks its closing bracket. A session that ends leaves an
/// array with the document's last members behind it for an instant, which readers skip.
fn events(text: &str) -> Result<Vec<Value>, String> {
    if text.starts_with('{') {
        let mut document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return match document["traceEvents"].take() {
            Value::Array(events) => Ok(events),
            other => Err(format!("no events: {other}")),
        };
    }
    let text = text.split_once("\n]").map_or(text, |(array, _)| array);
    serde_json::from_str(&format!("{text}\n]")).map_err(|error| error.to_string())
}

/// Kills processes under this load until the time is over, and looks at what each leaves. Returns how many were killed.
fn storm(test: &str, load: &'static str, longest: Duration, look: impl Fn(&Killed, &[Value]) + Sync) {
    record_if_told();
    let seconds = env::var(SECONDS).ok().map_or(2, |text| text.parse().expect("a number of seconds"));
    let (end, kills, faults) =
        (Instant::now() + Duration::from_secs(seconds), AtomicU64::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for worker in 0..AT_ONCE {
            let (kills, faults, look) = (&kills, &faults, &look);
            scope.spawn(move || {
                let trace =
                    env::temp_dir().join(format!("warpline-killed-{}-{load}-{worker}.json", std::process::id()));
                let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker + 1);
                while Instant::now() < end || kills.load(Ordering::Relaxed) < AT_LEAST {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let after = longest.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64);
                    let killed = kill(test, load, &trace, after);
                    kills.fetch_add(1, Ordering::Relaxed);
                    // A process may be killed before it has made the file, or before it has written its first bytes.
                    if killed.text.is_empty() && killed.flushed == 0 {
                        continue;
                    }
                    match events(&killed.text) {
                        Ok(events) => look(&killed, &events),
                        Err(error) => {
                            let tail: String =
                                killed.text.chars().skip(killed.text.chars().count().saturating_sub(120)).collect();
                            faults.lock().expect("no panics").push(format!("after {after:?}: {error}: …{tail}"));
                        }
                    }
                }
            });
        }
    });
    let (kills, faults) = (kills.into_inner(), faults.into_inner().expect("no panics"));
    println!("{kills} processes were killed under {load} load; {} traces are unreadable", faults.len());
    assert!(faults.is_empty(), "{} of {kills} traces are unreadable:\n{}", faults.len(), faults.join("\n"));
}

/// The zones on streams, by the stream's thread and the zone's number.
fn numbers(events: &[Value]) -> HashSet<(u64, u64)> {
    let zones = events.iter().filter(|event| event["cat"] == "gpu_user_annotation");
    zones.filter_map(|zone| Some((zone["args"]["thread"].as_u64()?, zone["args"]["n"].as_u64()?))).collect()
}

#[test]
fn under_light_load_a_killed_process_leaves_a_readable_trace() {
    let test = this_test!();
    storm(test, "light", Duration::from_millis(400), |killed, events| {
        let numbers = numbers(events);
        assert!((0..killed.flushed).all(|n| numbers.contains(&(0, n))), "{} zones were flushed", killed.flushed);
    });
}

#[test]
fn under_heavy_load_a_killed_process_leaves_a_readable_trace() {
    let test = this_test!();
    storm(test, "heavy", Duration::from_millis(300), |killed, events| {
        let zones = numbers(events).len() as u64;
        assert!(zones >= killed.flushed, "{zones} of {} zones", killed.flushed);
    });
}

#[test]
fn a_process_that_is_killed_while_it_finishes_leaves_a_readable_trace() {
    let test = this_test!();
    storm(test, "finishing", Duration::from_millis(120), |_, events| {
        assert!(events.iter().any(|event| event["name"] == "process_name"), "a reader knows the process");
    });
}
