//! `warpline recover` with a Chrome trace of a program that was killed: an array without its end becomes the document that strict
//! parsers read. `warpline annotate` reads such an array as it is.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use proptest::prelude::*;
use serde_json::{Value, json};
use warpline::Session;
use warpline::sink::{Batch, ChromeSink, Sink};

use crate::support::alone;

warpline::range! {
    LOAD = "cli.recover_chrome.load": "Work with no stream.", kind = host;
}

const ZONES: u64 = 500;

/// The sink of a session that does not come to its end.
struct Unfinished(ChromeSink);

impl Sink for Unfinished {
    fn start(&mut self, session: &warpline::sink::SessionInfo) -> std::io::Result<()> {
        self.0.start(session)
    }

    fn write(&mut self, batch: Batch<'_>) -> std::io::Result<()> {
        self.0.write(batch)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }

    fn finish(&mut self, _: &warpline::report::Report) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// What a session of so many zones leaves, and what it leaves if it is killed.
fn traces(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    let _turn = alone();
    let (finished, killed) = (dir.join("finished.json"), dir.join("killed.json"));
    let sink = Unfinished(ChromeSink::create(&killed).unwrap());
    let session =
        Session::builder().chrome(&finished).sink(sink).ring(10_000).settings("quiet").unwrap().start().unwrap();
    for n in 0..ZONES {
        drop(LOAD.host().field("n", n));
    }
    assert_eq!(session.finish().recorded, ZONES);
    (fs::read(&finished).unwrap(), fs::read(&killed).unwrap())
}

fn warpline(file: &Path, output: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    let Output { status, stdout, stderr } = command.arg("recover").arg(file).arg("-o").arg(output).output().unwrap();
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_trace_of_a_killed_program_becomes_a_whole_document() {
    let dir = tempfile::tempdir().unwrap();
    let (_, killed) = traces(dir.path());
    assert!(serde_json::from_slice::<Value>(&killed).is_err(), "it has no end");
    let (file, output) = (dir.path().join("killed.json"), dir.path().join("whole-{pid}.json"));
    let (status, text) = warpline(&file, &output);
    assert_eq!(status, 0, "{text}");
    let output = dir.path().join(format!("whole-{}.json", std::process::id()));
    assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
    assert!(text.contains("open it with `warpline open ") && !text.contains("warning"), "{text}");
    let (found, finished) = (document(&output), document(&dir.path().join("finished.json")));
    assert_eq!(found["traceEvents"], finished["traceEvents"]);
    for name in ["distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "schemaVersion"] {
        assert_eq!(found[name], finished[name], "{name}");
    }
    let text = fs::read_to_string(&output).unwrap();
    assert!(text.lines().any(|line| line.contains("\"rank\": 0")), "as HolisticTraceAnalysis looks for it");
    assert_eq!(fs::read(&file).unwrap(), killed, "it stays as it is");
}

#[test]
fn a_cut_event_is_left_out_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let (finished, killed) = traces(dir.path());
    let (file, output) = (dir.path().join("cut.json"), dir.path().join("whole.json"));
    let all = document(&dir.path().join("finished.json"))["traceEvents"].as_array().unwrap().len();
    // In its last event, behind its last comma, and while it is finished: before, in and behind the last members.
    let behind = &finished[killed.len()..];
    for (content, events, is_cut) in [
        (killed[..killed.len() - 9].to_vec(), all - 1, true),
        ([&killed[..], b",\n"].concat(), all, false),
        ([&killed[..], &behind[..2]].concat(), all, false),
        ([&killed[..], &behind[..behind.len() / 2]].concat(), all, true),
        ([&killed[..], behind].concat(), all, false),
        // Of another tool, or from a disk that was full.
        (finished[..killed.len() - 9].to_vec(), all - 1, true),
        // What no strict parser takes.
        ([&killed[..], b",\n{\"name\":\"\xFF\"},\n{}"].concat(), all, true),
        // What a crash of the machine leaves.
        ([&killed[..], &[0; 100]].concat(), all, true),
    ] {
        fs::write(&file, &content).unwrap();
        let (status, text) = warpline(&file, &output);
        assert_eq!(status, 0, "{text}");
        assert_eq!(document(&output)["traceEvents"].as_array().unwrap().len(), events, "{text}");
        assert_eq!(text.contains("warning: ") && text.contains("is left out"), is_cut, "{text}");
        assert!(text.contains(&format!(": {events} events of ")), "{text}");
    }
}

#[test]
fn what_cannot_be_recovered_is_said_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (finished, _) = traces(dir.path());
    let (killed, whole, other) =
        (dir.path().join("killed.json"), dir.path().join("finished.json"), dir.path().join("o.json"));
    let note = dir.path().join("note.json");
    fs::write(&note, "{\"cells\": [").unwrap();
    for (file, output, says) in [
        (&whole, &other, "finished.json: the trace is complete; open it directly"),
        (&killed, &killed, "choose another output with `-o`"),
        (&killed, &dir.path().join("o.pftrace"), "o.pftrace: the name must end with `.json`"),
        (&killed, &dir.path().join("no/such/o.json"), "no/such/o.json: No such file"),
        (&note, &other, "note.json: it contains no events"),
    ] {
        let (status, text) = warpline(file, output);
        assert!(status == 2 && text.contains(says), "{text}");
        assert!(!other.exists(), "{text}");
    }
    assert_eq!(fs::read(&whole).unwrap(), finished);
}

#[test]
fn annotate_reads_the_trace_of_a_killed_program() {
    let dir = tempfile::tempdir().unwrap();
    let base = 7_u64 << 32;
    fs::write(dir.path().join("a.json"), json!({ (base | 2).to_string(): [{"name": "attention"}] }).to_string())
        .unwrap();
    let kernel = json!({
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": 1, "dur": 2,
        "args": {"graph node id": base | 2, "graph id": 7, "correlation": 1},
    });
    let killed = format!("[               \n{kernel},\n{kernel},\n{{\"ph\":\"X\",\"cat\":\"ker");
    fs::write(dir.path().join("killed.json"), killed).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    command.args(["annotate", "--annotations", "a.json", "--trace", "killed.json", "-o", "out.json"]);
    let Output { status, stdout, stderr } = command.current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(status.success(), "{text}");
    assert!(text.contains("2 events read") && text.contains("the incomplete event is left out"), "{text}");
    let events = document(&dir.path().join("out.json"))["traceEvents"].take();
    let annotated = events.as_array().unwrap().iter().filter(|event| event["args"]["zone"] == "attention");
    assert_eq!(annotated.count(), 2, "{events}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cut anywhere, a trace has an answer, and what is recovered is a document of its first events.
    #[test]
    fn a_trace_that_is_cut_anywhere_has_an_answer(is_finished in any::<bool>(), cut in 0.0_f64..1.0, flip in prop::option::of(any::<u8>())) {
        static TRACES: std::sync::OnceLock<(Vec<u8>, Vec<u8>)> = std::sync::OnceLock::new();
        let (finished, killed) = TRACES.get_or_init(|| traces(tempfile::tempdir().unwrap().path()));
        let dir = tempfile::tempdir().unwrap();
        let (file, output) = (dir.path().join("t.json"), dir.path().join("o.json"));
        let trace = if is_finished { finished } else { killed };
        let mut content = trace[..(trace.len() as f64 * cut) as usize].to_vec();
        if let (Some(flip), Some(byte)) = (flip, content.last_mut()) {
            *byte = flip;
        }
        fs::write(&file, &content).unwrap();
        let (status, text) = warpline(&file, &output);
        prop_assert!(!text.contains("panicked"), "{}", text);
        match status {
            0 => {
                let all: Value = serde_json::from_slice(finished).unwrap();
                let found = document(&output);
                let (all, found) = (all["traceEvents"].as_array().unwrap(), found["traceEvents"].as_array().unwrap());
                // The flipped byte may be in the last one.
                let sure = found.len().saturating_sub(1);
                prop_assert!(found.len() <= all.len() && found[..sure] == all[..sure], "{}", text);
            }
            _ => prop_assert!(status == 2 && text.contains("t.json"), "{}", text),
        }
    }
}
