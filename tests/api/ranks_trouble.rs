//! What a rank writes where something goes wrong: a hang, a kill, a folder that goes away, no room.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::{HostStream, Session};
use warpline_tests::{alone, empty_folder};

use crate::child::{Child, kill_me, scratch, when_killed};
use crate::tables::{files, rows, rows_of};

warpline::range! {
    OUTER = "api.ranks_trouble.outer": "What the hang is in.", kind = host;
    PART = "api.ranks_trouble.part": "A part of a step.";
    SYNC = "api.ranks_trouble.sync": "What hangs.", kind = collective;
}

/// The progress file, once it is as expected.
fn progress(root: &Path, is_expected: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let found = files(root, "progress");
        let text = found.first().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if is_expected(&value) {
            assert!(text.len() <= 4096, "{text}");
            return value;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn message(group: &ProcessGroup, count: u64) -> Message {
    Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(group)
}

#[test]
fn a_rank_that_hangs_says_where() {
    let _turn = alone();
    let root = empty_folder("ranks_hang");
    let session = Session::builder().ranks(&root).start().expect("no other session");
    let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("dp", 0..8, 3));
    warpline::step(41_u64);
    let outer = OUTER.host();
    for count in 0..3 {
        drop(SYNC.zone(&stream).message(message(&group, count)));
    }
    stream.synchronize().expect("no panic");
    let (go_on, waits) = mpsc::channel::<()>();
    let line = line!() + 1;
    let hanging = SYNC.zone(&stream).message(message(&group, 77)).field("layer", 5_u32);
    stream.launch(move || {
        let _ = waits.recv();
    });
    let said = progress(&root, |value| value["open"]["seq"] == 3 && value["comms"][0]["completed"] == 2);
    assert_eq!(
        (&said["version"], &said["ended"], &said["step"], &said["rank"]),
        (&1.into(), &false.into(), &41.into(), &0.into())
    );
    assert_eq!((&said["pid"], &said["truncated"]), (&std::process::id().into(), &false.into()));
    let comm = &said["comms"][0];
    assert_eq!(
        (comm["comm"].as_str(), &comm["size"], comm["members"].as_str()),
        (Some(group.comm()), &8.into(), Some("0-7"))
    );
    assert_eq!((&comm["entered"], &comm["completed"]), (&3.into(), &2.into()));
    let recent = comm["recent"].as_array().expect("a list");
    let last = &recent[recent.len() - 1];
    assert_eq!(
        (&last[0], last[1].as_str(), last[2].as_str(), &last[3], &last[4]),
        (&3.into(), Some("all_reduce"), Some("f32"), &77.into(), &Value::Null)
    );
    assert_eq!(last[5], comm["signature"]);
    let open = &said["open"];
    assert_eq!(
        (open["name"].as_str(), &open["line"], &open["comm"]),
        (Some("api.ranks_trouble.sync"), &line.into(), &comm["comm"])
    );
    assert!(open["file"].as_str().is_some_and(|file| file.ends_with("ranks_trouble.rs")), "{open}");
    assert_eq!((open["fields"]["layer"].as_str(), &open["launched"]), (Some("5"), &false.into()));
    assert!(open["thread"].as_str().is_some_and(|thread| thread.contains("a_rank_that_hangs")), "{open}");
    drop(hanging);
    // The mark has ended, and its stream has not.
    progress(&root, |value| value["open"]["seq"] == 3 && value["open"]["launched"] == true);
    drop(go_on);
    stream.synchronize().expect("no panic");
    progress(&root, |value| value["open"]["name"] == "api.ranks_trouble.outer" && value["comms"][0]["completed"] == 3);
    drop(outer);
    session.finish();
    assert_eq!(progress(&root, |value| value["ended"] == true)["open"], Value::Null);
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn many_groups_do_not_make_the_file_larger() {
    let _turn = alone();
    let root = empty_folder("ranks_groups");
    let session = Session::builder().ranks(&root).start().expect("no other session");
    let stream = HostStream::new("comm");
    let groups: Vec<_> =
        (0..100).map(|n| ProcessGroup::new(format!("group_with_a_long_name_{n}"), [0, 1], 0)).collect();
    for group in &groups {
        drop(SYNC.zone(&stream).message(message(group, 9)));
    }
    stream.synchronize().expect("no panic");
    let said = progress(&root, |value| value["truncated"] == true);
    assert!(said["comms"].as_array().is_some_and(|comms| !comms.is_empty()), "{said}");
    session.finish();
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn a_folder_that_goes_away_stops_nothing_and_the_loss_is_said() {
    let _turn = alone();
    let root = empty_folder("ranks_gone");
    let session =
        Session::builder().ranks(&root).ranks_window(Duration::from_millis(100)).start().expect("no other session");
    let stream = HostStream::new("compute");
    let since = Instant::now();
    while files(&root, "windows").is_empty() && since.elapsed() < Duration::from_secs(20) {
        drop(PART.zone(&stream));
        thread::sleep(Duration::from_millis(5));
    }
    // The writer may make a file meanwhile.
    while root.exists() {
        let _ = std::fs::remove_dir_all(&root);
    }
    for _ in 0..60 {
        drop(PART.zone(&stream));
        thread::sleep(Duration::from_millis(5));
    }
    stream.synchronize().expect("no panic");
    let report = session.finish();
    let sink = report.sinks.iter().find(|sink| sink.name.starts_with("ranks=")).expect("its account");
    assert!(sink.errors > 0 && sink.lost > 0 && sink.lost <= sink.taken + sink.lost, "{sink:?}");
    let why = sink.first_error.as_deref().expect("a reason");
    assert!(why.contains("lost: ") && why.contains("was removed while the session ran; put it back"), "{why}");
    assert_eq!(report.begun, report.recorded + report.dropped.total());
    assert!(!root.exists(), "it is not made again");
}

#[test]
fn a_folder_that_cannot_be_made_stops_nothing() {
    let _turn = alone();
    let file = empty_folder("ranks_file").join("file");
    std::fs::write(&file, "").expect("a file");
    let session = Session::builder().ranks(file.join("run")).start().expect("no other session");
    let stream = HostStream::new("compute");
    (0..10).for_each(|_| drop(PART.zone(&stream)));
    stream.synchronize().expect("no panic");
    let report = session.finish();
    let sink = report.sinks.iter().find(|sink| sink.name.starts_with("ranks=")).expect("its account");
    assert_eq!((sink.errors, sink.lost), (1, 10), "{sink:?}");
    assert!(report.to_string().contains("1 window with 10 records lost"), "{report}");
}

#[test]
fn settings_of_the_tables_are_checked() {
    let says = |line: &str| {
        Session::builder().settings(line).and_then(|builder| builder.start()).expect_err("wrong").to_string()
    };
    assert!(says("summary,ranks_window=60s").contains("needs tables of ranks, as in `ranks=run,ranks_window=60s`"));
    assert!(says("ranks=run,ranks_window=1ms").contains("a window lasts at least 100 ms"));
}

#[test]
fn a_killed_rank_leaves_whole_files() {
    const TEST: &str = "ranks_trouble::a_killed_rank_leaves_whole_files";
    if let Some(file) = when_killed(TEST) {
        let root = Path::new(&file).with_extension("ranks");
        let session = Session::builder().ranks(&root).ranks_window(Duration::from_millis(100)).start().expect("alone");
        let stream = HostStream::new("compute");
        for number in 0_u64.. {
            warpline::step(number);
            drop(PART.zone(&stream));
            thread::sleep(Duration::from_millis(2));
            if number % 50 == 0 && rows(&root, "steps").len() > 100 {
                kill_me();
            }
        }
        drop(session);
        return;
    }
    let file = scratch(TEST);
    Child::start(TEST, &file).wait_until_killed();
    let root = file.with_extension("ranks");
    for table in ["windows", "steps", "ranges", "sketches"] {
        let files = files(&root, table);
        assert!(!files.is_empty(), "{table}");
        assert!(files.iter().all(|file| !rows_of(file).is_empty()), "each file is whole: {table}");
    }
    let steps: Vec<_> = rows(&root, "steps").iter().map(|row| row.int("step")).collect();
    assert_eq!(steps, (0..steps.len() as i64).collect::<Vec<_>>(), "no step is missing before the kill");
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn steps_that_are_too_many_for_the_queue_are_counted() {
    const STEPS: u64 = 300_000;
    let _turn = alone();
    let root = empty_folder("ranks_many_steps");
    let session = Session::builder().ranks(&root).start().expect("no other session");
    (0..STEPS).for_each(warpline::step);
    let report = session.finish();
    let (rows, windows) = (rows(&root, "steps").len() as u64, rows(&root, "windows"));
    let sum = |column: &str| windows.iter().map(|window| window.int(column) as u64).sum::<u64>();
    assert_eq!((sum("steps"), sum("steps_dropped")), (rows, STEPS - 1 - rows), "the last step is cut by the end");
    assert!(sum("steps_dropped") > 0);
    assert_eq!(report.steps.dropped, sum("steps_dropped"));
}
