//! `warpline stragglers` on the traces of two ranks, each a process of its own, whose collectives wait for one another.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, thread};

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::{HostStream, Session, collective};

warpline::namespace!("late", "two ranks, one of them late");

/// Ends on no rank before all have begun it.
#[collective("late.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, group: &ProcessGroup, meeting: &Meeting) {
    let meeting = Arc::clone(meeting);
    stream.launch(move || tell_and_wait(&meeting));
}

/// Says no more than what it is.
#[collective("late.bare", kind = "broadcast", count = 8)]
fn bare(stream: &HostStream) {
    stream.launch(|| ());
}

warpline::range! {
    BATCH = "late.batch": "Several sums at once.", kind = collective;
    PART = "late.part": "One of them.", kind = collective;
}

/// Where a rank meets the others.
type Meeting = Arc<Mutex<TcpStream>>;

/// Say to a child which rank it is, where it meets the others, and where its trace goes.
const RANK: &str = "WARPLINE_TEST_RANK";
const MEETING: &str = "WARPLINE_TEST_MEETING";
const TRACE: &str = "WARPLINE_TEST_TRACE";

const COLLECTIVES: u64 = 16;
/// Of the batch that follows them.
const ENTRIES: u64 = 3;
/// Rank 1 comes late to this one.
const LATE: u64 = 5;
const DELAY: Duration = Duration::from_millis(300);

fn tell_and_wait(meeting: &Meeting) {
    let mut meeting = meeting.lock().expect("nothing panics");
    meeting.write_all(&[1]).expect("the test listens");
    meeting.read_exact(&mut [0]).expect("the test answers");
}

/// What a rank does.
fn run(rank: u32) {
    let meeting = TcpStream::connect(env::var(MEETING).expect("the test said it")).expect("the test listens");
    let meeting = Arc::new(Mutex::new(meeting));
    let session = Session::builder().perfetto(env::var(TRACE).expect("the test said it")).start().expect("no other");
    let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [0, 1], rank).with_comm_id(99));
    for seq in 0..COLLECTIVES {
        if (rank, seq) == (1, LATE) {
            let meeting = Arc::clone(&meeting);
            stream.launch(move || {
                // When rank 0 waits already.
                tell_and_wait(&meeting);
                thread::sleep(DELAY);
            });
        }
        sum(&stream, &group, &meeting);
    }
    let mut batch = BATCH.batch(&stream);
    for _ in 0..ENTRIES {
        batch.add(&PART, || Message::new(CollectiveKind::AllReduce).count(8_u32).dtype(DataType::F32).group(&group));
    }
    stream.launch(move || tell_and_wait(&meeting));
    drop(batch);
    let report = session.finish();
    let zones = COLLECTIVES + 1 + ENTRIES;
    assert_eq!((report.begun, report.recorded), (zones, zones), "{report}");
}

/// Lets two ranks run, and meet.
fn record(folder: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let ranks = [0, 1].map(|rank| {
        let child = Command::new(env::current_exe().expect("this test has a file"))
            .args(["--exact", "the_late_rank_is_named", "--nocapture"])
            .env(RANK, rank.to_string())
            .env(MEETING, listener.local_addr().expect("it is bound").to_string())
            .env(TRACE, folder.join(format!("rank{rank}.pftrace")))
            .env_remove("WARPLINE")
            .stdout(Stdio::null())
            .spawn()
            .expect("the test runs again");
        // One after the other, so that the first to connect is rank 0.
        (child, listener.accept().expect("the rank connects").0)
    });
    let [(child0, mut rank0), (child1, mut rank1)] = ranks;
    let hear = |rank: &mut TcpStream| rank.read_exact(&mut [0]).expect("the rank tells");
    let answer = |rank: &mut TcpStream| rank.write_all(&[1]).expect("the rank listens");
    for seq in 0..=COLLECTIVES {
        hear(&mut rank0);
        hear(&mut rank1);
        if seq == LATE {
            answer(&mut rank1);
            hear(&mut rank1);
        }
        answer(&mut rank0);
        answer(&mut rank1);
    }
    for mut child in [child0, child1] {
        assert!(Child::wait(&mut child).expect("it ran").success());
    }
}

fn stragglers(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).arg("stragglers").args(args).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, &str, &str) {
    let text = |bytes| str::from_utf8(bytes).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_late_rank_is_named() {
    if let Some(rank) = env::var(RANK).ok().and_then(|rank| rank.parse().ok()) {
        return run(rank);
    }
    let folder = tempfile::tempdir().unwrap();
    record(folder.path());

    let output = stragglers(folder.path(), &["rank0.pftrace", "rank1.pftrace", "--format", "json"]);
    let (status, json, complaints) = said(&output);
    assert_eq!((status, complaints), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let group = &json["groups"][0];
    assert_eq!((&group["group"], &group["missing"]), (&"tp0 [0,1]".into(), &serde_json::json!([])), "{json}");
    // Two ranks that begin at the same nanosecond are none that was late.
    let left_out = |reason| group["left_out"][reason].as_u64().unwrap();
    assert_eq!(group["judged"].as_u64().unwrap() + left_out("too_close"), COLLECTIVES + 1, "{json}");
    assert_eq!(left_out("batch_entries"), ENTRIES - 1, "{json}");
    let late = json["worst"].as_array().unwrap().iter().find(|late| late["seq"] == LATE).expect("it was judged");
    assert_eq!((&late["group"], &late["kind"]), (&"tp0 [0,1]".into(), &"all_reduce".into()), "{late}");
    assert_eq!((&late["late_rank"], &late["range"], &late["one_clock"]), (&1.into(), &"late.sum".into(), &true.into()));
    // Rank 0 waited for all of it; rank 1 may have been held up by the machine for a little.
    let nearly = DELAY.as_nanos() as i64 / 2;
    assert!(late["late_by_ns"].as_i64().unwrap() > nearly, "{late}");
    assert_eq!(late["uncertain_ns"], 0, "in-process streams have the host's clock: {late}");

    let output = stragglers(folder.path(), &["rank1.pftrace", "rank0.pftrace", "--top", "100", "-o", "late.txt"]);
    assert_eq!(said(&output), (Some(0), "", ""));
    let text = fs::read_to_string(folder.path().join("late.txt")).unwrap();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.iter().any(|words| words.starts_with(&["all_reduce", "tp0", "[0,1]", "5", "1"])), "{text}");
    // Whom it names depends on what else held up the ranks on a busy machine.
    assert_eq!(text.lines().next(), json["summary"].as_str(), "{text}");
    assert!(text.starts_with("rank ") && json["verdict"]["times"].as_u64().is_some_and(|times| times > 0), "{text}");

    // The second is cut short as a killed process leaves it.
    let second = fs::read(folder.path().join("rank1.pftrace")).unwrap();
    fs::write(folder.path().join("half.pftrace"), &second[..second.len() / 2]).unwrap();
    let output = stragglers(folder.path(), &["rank0.pftrace", "half.pftrace"]);
    let (status, text, complaints) = said(&output);
    assert_eq!(status, Some(0), "{complaints}");
    // Half of it may end between the begin of a slice and its end.
    let cut = "the trace is cut off, as after a killed program; the figures cover only what was read";
    assert!(complaints.lines().all(|line| line.starts_with("warning: half.pftrace: ")), "{complaints}");
    assert_eq!(complaints.lines().filter(|line| line.ends_with(cut)).count(), 1, "{complaints}");
    assert!(text.contains("that not every rank has"), "{text}");
    folders_and_compressed_files_are_read(folder.path());
}

/// The folder has the traces of both ranks.
fn folders_and_compressed_files_are_read(folder: &Path) {
    let whole = stragglers(folder, &["rank0.pftrace", "rank1.pftrace"]);
    let run = folder.join("run/host0");
    fs::create_dir_all(&run).unwrap();
    let [first, second] = ["rank0.pftrace", "rank1.pftrace"].map(|name| fs::read(folder.join(name)).unwrap());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&first).unwrap();
    fs::write(run.join("rank0.pftrace.gz"), packed.finish().unwrap()).unwrap();
    let packed = ruzstd::encoding::compress_to_vec(&*second, ruzstd::encoding::CompressionLevel::Fastest);
    fs::write(run.join("rank1.pftrace.zst"), &packed).unwrap();
    let output = stragglers(folder, &["run"]);
    assert_eq!(said(&output), said(&whole), "a folder of compressed traces");
    // A broken file is named, and the others are judged.
    fs::write(run.join("rank2.pftrace"), b"no trace").unwrap();
    let output = stragglers(folder, &["run"]);
    let (status, text, complaints) = said(&output);
    assert_eq!((status, text), (Some(2), said(&whole).1));
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(complaints.starts_with("error: run/host0/rank2.pftrace: not a Perfetto trace; "), "{complaints}");
    // A compressed file that is cut gives what is whole, with a warning.
    fs::remove_file(run.join("rank2.pftrace")).unwrap();
    fs::write(run.join("rank1.pftrace.zst"), &packed[..packed.len() / 2]).unwrap();
    let output = stragglers(folder, &["run", "--top", "1"]);
    assert!(output.stdout.iter().filter(|byte| **byte == b'\n').count() <= 11, "{output:?}");
}

#[test]
fn a_collective_that_does_not_describe_itself_is_listed_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let check = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_warpline"))
            .arg("check")
            .args(args)
            .arg(env::current_exe().unwrap())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (status, text, complaints) = said(&output);
        (status, text.to_owned(), complaints.to_owned())
    };
    let (status, text, complaints) = check(&["--strict"]);
    assert_eq!((status, &*complaints, text.lines().count()), (Some(1), "", 1), "{text}");
    let (before, after) = text.split_once(" (").unwrap();
    assert!(before.ends_with(": collective `late.bare` does not give `dtype`, `group` and `root`"), "{text}");
    let expected = "; reports and traces lack the figures that depend on them; add them to its mark\n";
    assert!(after.contains("stragglers.rs:") && after.ends_with(expected), "{text}");
    let (status, text, _) = check(&[]);
    assert!(status == Some(0) && text.ends_with("4 ranges in 1 namespace, no faults\n"), "{text}");
    // The mark is used.
    bare(&HostStream::new("comm"));
}

#[test]
fn what_cannot_be_read_ends_with_2_and_its_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("trace.json"), b"{\"traceEvents\":[]}").unwrap();
    // A sequence id and nothing else.
    fs::write(folder.path().join("empty.pftrace"), b"\x0A\x02\x50\x01").unwrap();
    fs::create_dir(folder.path().join("none")).unwrap();
    let not_there = "error: missing.pftrace: No such file or directory";
    let no_trace = "error: trace.json: not a Perfetto trace; record one with `WARPLINE=perfetto=FILE`";
    for (args, lines) in [
        (&["trace.json"][..], &[no_trace][..]),
        (&["missing.pftrace"], &[not_there]),
        (
            &["missing.pftrace", "trace.json"],
            &[not_there, no_trace, "error: no trace could be read; the lines above name each with the reason"],
        ),
        (&["none"], &["error: none: no file in the folder has a name that ends in `.pftrace`"]),
        (&["empty.pftrace"], &["error: no collective in the trace; mark them with `#[collective]`"]),
        (&["empty.pftrace", "empty.pftrace"], &["error: no collective in the 2 traces; mark them"]),
    ] {
        let output = stragglers(folder.path(), args);
        let (status, text, complaints) = said(&output);
        assert_eq!((status, text, complaints.lines().count()), (Some(2), "", lines.len()), "{complaints}");
        assert!(complaints.lines().zip(lines).all(|(line, begin)| line.starts_with(begin)), "{complaints}");
    }
    assert_eq!(said(&stragglers(folder.path(), &[])).0, Some(2));
}

#[test]
fn traces_whose_collectives_have_no_group_are_not_called_empty() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder().perfetto(folder.path().join("bare.pftrace")).quiet().start().unwrap();
    bare(&HostStream::new("comm"));
    session.finish();
    let output = stragglers(folder.path(), &["bare.pftrace"]);
    let (status, text, complaints) = said(&output);
    assert_eq!((status, text), (Some(2), ""), "{complaints}");
    let lines: Vec<&str> = complaints.lines().collect();
    let [warning, error] = lines[..] else { panic!("a warning and an error: {complaints}") };
    assert!(warning.contains("no group") && warning.contains("add `group = …`"), "{warning}");
    assert_eq!(error, "error: every collective in the trace is left out; the warnings say why and what to do");
}
