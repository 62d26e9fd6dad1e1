//! Streams that fail or stand still: the trace is written while the program runs, and names the zone.

use std::fs;
use std::time::{Duration, Instant};

use warpline::{HostStream, Session};
use warpline_tests::alone;

use super::{HUNG, LOAD, LONG, appears, beside, numbers, open, read, recovered, steps};
use crate::child::scratch;
use crate::trace;

#[test]
fn a_stream_that_fails_leaves_a_trace_that_names_the_zone() {
    let _turn = alone();
    let file = scratch("a_stream_that_fails");
    let trace = beside(&file, "stream_failed.pftrace");
    let _ = fs::remove_file(&trace);
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..100);
    let (hold, held) = std::sync::mpsc::channel::<()>();
    {
        let _zone = HUNG.zone(&stream).field("layer", 4_u64);
        stream.launch(move || {
            let _ = held.recv();
        });
    }
    // What waits is known to the file before it fails.
    assert_eq!(session.dump(beside(&file, "before.pftrace")).expect("it is written").open_zones, 1);
    stream.faults().fail_stream("an illegal address was used");
    drop(hold);
    appears(&trace);
    let slices = read(&trace);
    assert_eq!(open(&slices, "api.flight.hung").argument("layer"), Some("4"));
    let said = "stream `compute` failed: an illegal address was used; it was at `api.flight.hung` (layer = 4)";
    assert!(slices.iter().any(|slice| slice.name.starts_with(said)), "{slices:#?}");
    assert_eq!(numbers(&slices, "api.flight.step").len(), 100);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.stream_failed), (101, 100, 1), "{report}");
    let (found, slices) = recovered(&file);
    assert!(found.has_incident, "the file says it, too");
    open(&slices, "api.flight.hung");
}

#[test]
fn a_stream_that_stands_still_is_told_and_the_zone_is_named() {
    let _turn = alone();
    let file = scratch("a_stream_that_stands_still");
    let trace = beside(&file, "stall.pftrace");
    let _ = fs::remove_file(&trace);
    // A loaded machine gives no thread its time for a while.
    let limit = Duration::from_secs(2);
    let begin = Instant::now();
    let session =
        Session::builder().budget(1.0).flight_at(256 << 10, &file).stall(limit).start().expect("no other session");
    let (stream, other) = (HostStream::new("stuck"), HostStream::new("well"));
    steps(&stream, 0..10);
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let (zone, line) = (HUNG.zone(&stream).field("rank", 1_u64), line!());
    stream.launch(move || {
        let _ = held.recv();
    });
    drop(zone);
    let mut n = 1_000;
    while !trace.exists() {
        // Another stream goes on meanwhile, and a host zone may wait for whatever it wants.
        steps(&other, n..n + 1);
        n += 1;
        std::thread::sleep(Duration::from_millis(5));
        assert!(begin.elapsed() < LONG);
    }
    assert!(begin.elapsed() >= limit, "{:?}", begin.elapsed());
    let slices = read(&trace);
    trace::keep_for_gate("stall", &fs::read(&trace).expect("it is there"));
    assert_eq!(open(&slices, "api.flight.hung").argument("rank"), Some("1"));
    let what = slices.iter().find(|slice| slice.name.starts_with("stream `stuck` has finished no zone for"));
    let what = &what.unwrap_or_else(|| panic!("{slices:#?}")).name;
    assert!(what.contains("it is at `api.flight.hung` (rank = 1), which thread `"), "{what}");
    assert!(what.ends_with(&format!(" s ago at {}:{line}", file!())), "{what}");
    hold.send(()).expect("the stream waits");
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "it went on: {report}");
    assert!(report.notes.iter().any(|note| note.contains("is at `api.flight.hung`")), "{report}");
    let _ = fs::remove_file(&trace);
}

#[test]
fn a_zone_that_is_open_on_its_thread_stands_still_and_an_idle_stream_does_not() {
    let _turn = alone();
    let file = scratch("a_zone_that_is_open_on_its_thread");
    let trace = beside(&file, "stall.pftrace");
    let _ = fs::remove_file(&trace);
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).stall(Duration::from_secs(2)).start();
    let session = session.expect("no other session");
    let stream = HostStream::new("compute");
    let host = LOAD.host();
    steps(&stream, 0..10);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!trace.exists(), "nothing is open on a stream");
    drop(host);
    let zone = HUNG.zone(&stream).field("n", 77_u64);
    appears(&trace);
    assert_eq!(open(&read(&trace), "api.flight.hung").argument("n"), Some("77"));
    drop(zone);
    session.finish();
}

#[test]
fn each_of_several_streams_that_stand_still_is_told_once() {
    let _turn = alone();
    let file = scratch("each_of_several_streams");
    let trace = beside(&file, "stall.pftrace");
    let _ = fs::remove_file(&trace);
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).stall(Duration::from_millis(500)).start();
    let session = session.expect("no other session");
    let hang = |name: &str, rank: u64| {
        let stream = HostStream::new(name);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let _zone = HUNG.zone(&stream).field("rank", rank);
        stream.launch(move || {
            let _ = held.recv();
        });
        (stream, hold)
    };
    let first: Vec<_> = [("left", 1), ("middle", 2), ("right", 3)].map(|(name, rank)| hang(name, rank)).into();
    appears(&trace);
    let slices = read(&trace);
    // Another one, when there has just been a trace.
    let last = hang("last", 4);
    let begin = Instant::now();
    let incident = || {
        let (_, slices) = recovered(&file);
        slices.into_iter().find(|slice| slice.name.contains("`last` has finished no zone for"))
    };
    while incident().is_none() {
        assert!(begin.elapsed() < LONG, "the report of the stall does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (stream, hold) in first.iter().chain([&last]) {
        hold.send(()).expect("the stream waits");
        stream.synchronize().expect("nothing panics");
    }
    let report = session.finish();
    for (name, rank) in [("left", 1), ("middle", 2), ("right", 3), ("last", 4)] {
        let said = format!("stream `{name}` has finished no zone for ");
        let notes: Vec<_> = report.notes.iter().filter(|note| note.starts_with(&said)).collect();
        assert_eq!(notes.len(), 1, "{name}: {report}");
        assert!(notes[0].contains(&format!("is at `api.flight.hung` (rank = {rank})")), "{}", notes[0]);
    }
    let told: usize = slices.iter().filter(|slice| slice.name.contains("has finished no zone for")).count();
    assert_eq!(told, 1, "those that are found at one look are one incident: {slices:#?}");
    assert_eq!(report.recorded, report.begun, "{report}");
}

#[test]
fn a_trace_that_cannot_be_written_is_told_by_the_report_and_by_the_next_dump() {
    let _turn = alone();
    let file = scratch("a_trace_that_cannot_be_written");
    // A folder stands where the trace would be.
    let trace = beside(&file, "stall.pftrace");
    fs::create_dir_all(&trace).expect("a folder");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).stall(Duration::from_millis(100)).start();
    let session = session.expect("no other session");
    let stream = HostStream::new("stuck");
    let (hold, held) = std::sync::mpsc::channel::<()>();
    {
        let _zone = HUNG.zone(&stream);
        stream.launch(move || {
            let _ = held.recv();
        });
    }
    let said = format!("the trace of the last zones was not written to `{}`: ", trace.display());
    let begin = Instant::now();
    let problems = loop {
        let found = session.dump(beside(&file, "dump.pftrace")).expect("it is written");
        if found.problems.iter().any(|problem| problem.starts_with(&said)) {
            break found.problems;
        }
        assert!(begin.elapsed() < LONG, "the dump says nothing");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(problems[0].starts_with(&said), "{problems:?}");
    assert!(problems[0].contains("choose another place"), "{problems:?}");
    hold.send(()).expect("the stream waits");
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    assert!(report.notes.contains(&problems[0]), "{report}");
    fs::remove_dir(&trace).expect("it is the test's, and empty");
}
