//! Steps of the program: where they are seen, and which of them a schedule records.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use warpline::record::ZoneRecord;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, SessionBuilder, gpu_zone, host_zone};
use warpline_tests::{alone, empty_folder};

use crate::trace::slices;

warpline::range! {
    PART = "api.steps.part": "A part of a step.";
}

/// One iteration, numbered from 0.
#[gpu_zone("api.steps.counted", step)]
fn counted(stream: &HostStream) {
    drop(PART.zone(stream));
}

/// One iteration with a number.
#[host_zone("api.steps.numbered", step = number, fields(number = number))]
fn numbered(stream: &HostStream, number: u32) {
    let _part = PART.zone(stream).field("step", number);
}

/// One iteration that may fail, and awaits.
#[host_zone("api.steps.awaited", step = number + 1, err)]
async fn awaited(number: u32) -> Result<(), String> {
    std::future::ready(()).await;
    Err("no batch".to_owned())
}

fn started(builder: SessionBuilder) -> (Session, MemorySink) {
    let records = MemorySink::new(100_000);
    (builder.sink(records.clone()).start().expect("no other session"), records)
}

fn assert_exact(report: &Report) {
    assert_eq!(report.begun, report.recorded + report.captured + report.dropped.total(), "{report}");
}

/// The value of the field `step` of each part.
fn parts(zones: &[ZoneRecord]) -> Vec<u64> {
    let parts = zones.iter().filter(|zone| zone.range.name() == "api.steps.part");
    let step =
        |zone: &ZoneRecord| zone.fields.iter().find(|(name, _)| *name == "step").map(|(_, value)| value.to_string());
    parts.map(|zone| step(zone).and_then(|text| text.parse().ok()).expect("it has a number")).collect()
}

#[test]
fn steps_are_in_records_report_and_traces() {
    let _turn = alone();
    let folder = empty_folder("steps");
    let (perfetto, chrome) = (folder.join("t.pftrace"), folder.join("t.json"));
    let (session, records) = started(Session::builder().perfetto(&perfetto).chrome(&chrome).quiet());
    let stream = HostStream::new("compute");
    for number in 17..21_u64 {
        session.step(number);
        drop(PART.zone(&stream));
        thread::sleep(Duration::from_millis(2));
    }
    stream.synchronize().expect("no panic");
    let report = session.finish();
    let steps = records.take_steps();
    // The last one has no end.
    assert_eq!(steps.iter().map(|step| step.number).collect::<Vec<_>>(), [17, 18, 19]);
    assert!(steps.windows(2).all(|pair| pair[0].host.end_ns == pair[1].host.begin_ns), "{steps:?}");
    assert!(steps.iter().all(|step| step.duration_ns() >= 2_000_000 && step.thread.id == warpline_tests::tid() as u64));
    let stats = report.steps;
    assert_eq!((stats.count, stats.cut, stats.left_out, stats.dropped), (3, 1, 0, 0));
    assert!(stats.min_ns <= stats.p50_ns && stats.p50_ns <= stats.p99_ns && stats.p99_ns <= stats.max_ns, "{stats:?}");
    assert_eq!(stats.min_ns, steps.iter().map(|step| step.duration_ns()).min().expect("some"));
    assert!(report.to_string().contains("3 steps recorded: p50 ") && report.to_string().contains("1 cut"), "{report}");
    let trace = std::fs::read(&perfetto).expect("the trace");
    let slices = slices(&trace);
    let of_steps: Vec<_> = slices.iter().filter(|slice| slice.track == "steps").collect();
    assert_eq!(of_steps.iter().map(|slice| slice.name.as_str()).collect::<Vec<_>>(), ["step 17", "step 18", "step 19"]);
    assert_eq!(of_steps[0].argument("step"), Some("17"));
    let document: Value = serde_json::from_slice(&std::fs::read(&chrome).expect("the trace")).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    let named: Vec<_> = events
        .iter()
        .filter(|event| event["name"].as_str().is_some_and(|name| name.starts_with("ProfilerStep#")))
        .collect();
    assert_eq!(
        named.iter().map(|event| event["name"].as_str().expect("text")).collect::<Vec<_>>(),
        ["ProfilerStep#17", "ProfilerStep#18", "ProfilerStep#19"]
    );
    assert!(
        named.iter().all(|event| event["cat"] == "user_annotation"
            && event["ph"] == "X"
            && event["tid"] == warpline_tests::tid())
    );
    std::fs::remove_dir_all(folder).expect("a folder");
}

#[test]
fn a_mark_makes_each_of_its_zones_a_step() {
    let _turn = alone();
    let (session, records) = started(Session::builder());
    let stream = HostStream::new("compute");
    (0..3).for_each(|_| counted(&stream));
    (40..42).for_each(|number| numbered(&stream, number));
    let mut failing = Box::pin(awaited(99));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(failing.as_mut().poll(&mut context).is_ready());
    drop(failing);
    stream.synchronize().expect("no panic");
    let report = session.finish();
    let (steps, zones) = (records.take_steps(), records.take());
    assert_eq!(steps.iter().map(|step| step.number).collect::<Vec<_>>(), [0, 1, 2, 40, 41, 100]);
    let outer: Vec<_> = zones.iter().filter(|zone| zone.range.name() != "api.steps.part").collect();
    assert_eq!(outer.len(), steps.len());
    for step in &steps {
        let inside =
            |zone: &&&ZoneRecord| step.host.begin_ns <= zone.host.begin_ns && zone.host.end_ns <= step.host.end_ns;
        assert_eq!(outer.iter().filter(inside).count(), 1, "the zone is inside its step");
    }
    assert_eq!((report.steps.count, report.steps.cut), (6, 0), "a mark ends its step");
    assert_exact(&report);
}

#[test]
fn a_schedule_records_whole_steps_and_counts_the_others() {
    let _turn = alone();
    let (session, records) = started(Session::builder().wait(2).warmup(1).active(2).repeat(2));
    let stream = HostStream::new("compute");
    numbered_before(&stream);
    for number in 0..14 {
        numbered(&stream, number);
    }
    stream.synchronize().expect("no panic");
    assert!(!session.is_recording(), "both cycles are over");
    let report = session.finish();
    let expected = [3, 4, 8, 9];
    assert_eq!(records.take_steps().iter().map(|step| step.number).collect::<Vec<_>>(), expected);
    let zones = records.take();
    assert_eq!(parts(&zones).into_iter().collect::<BTreeSet<_>>(), expected.into());
    assert_eq!((zones.len(), report.recorded, report.begun), (8, 8, 8), "each step has two zones");
    assert_eq!((report.steps.count, report.steps.left_out, report.steps.cut), (4, 10, 0));
    assert!(!report.is_complete());
    assert!(report.to_string().contains("10 left out by the schedule"), "{report}");
    assert_exact(&report);
}

/// A zone before the first step of a schedule is not recorded.
fn numbered_before(stream: &HostStream) {
    drop(PART.zone(stream));
}

#[test]
fn a_stop_cuts_its_step_and_a_schedule_does_not_undo_it() {
    let _turn = alone();
    let (session, records) = started(Session::builder().wait(1).active(2));
    let stream = HostStream::new("compute");
    for number in 0..9_u32 {
        warpline::step(number);
        if number == 4 {
            session.stop();
        }
        let _part = PART.zone(&stream).field("step", number);
        if number == 6 {
            session.start();
        }
    }
    stream.synchronize().expect("no panic");
    let report = session.finish();
    // Steps 0, 3 and 6 wait; 4 is cut by the stop, 5 runs while the session is stopped, 8 by the end.
    assert_eq!(records.take_steps().iter().map(|step| step.number).collect::<Vec<_>>(), [1, 2, 7]);
    assert_eq!(parts(&records.take()), [1, 2, 7, 8]);
    assert_eq!((report.steps.count, report.steps.cut), (3, 3), "{report}");
    assert_exact(&report);
}

#[test]
fn without_a_session_a_step_is_nothing() {
    let _turn = alone();
    warpline::step(5_u64);
    let stream = HostStream::new("compute");
    counted(&stream);
    let (session, records) = started(Session::builder());
    counted(&stream);
    drop(session);
    assert_eq!(records.take_steps().iter().map(|step| step.number).collect::<Vec<_>>(), [0]);
}

#[test]
fn settings_of_a_schedule_need_steps_to_record() {
    let says = |line: &str| {
        Session::builder().settings(line).and_then(|builder| builder.start()).expect_err("wrong").to_string()
    };
    assert!(says("summary,wait=3").contains("needs steps to record, as in `wait=10,active=3`"));
    assert!(says("summary,active=0").contains("a cycle records at least one step"));
    assert!(says("summary,active=3,budget=1%").contains("leave one of them out"));
    assert!(says("summary,warmup=x,active=1").contains("is a whole number"));
}
