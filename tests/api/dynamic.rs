//! Zones that are named at run time: in records, reports and traces, under filters, beyond the bound, and in a zone that stalls.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, dynamic};
use warpline_tests::{alone, empty_folder, in_a_process_of_its_own, this_test};

fn counts(zones: &[ZoneRecord]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    zones.iter().for_each(|zone| *counts.entry(zone.range.name()).or_default() += 1);
    counts
}

#[test]
fn a_name_of_run_time_is_in_records_reports_and_traces() {
    let _turn = alone();
    let folder = empty_folder("dynamic");
    let (packets, json) = (folder.join("a.pftrace"), folder.join("a.json"));
    let zones = MemorySink::new(100);
    let session = Session::builder().perfetto(&packets).chrome(&json).sink(zones.clone()).start();
    let session = session.expect("no other session");
    let stream = HostStream::new("jit");
    for n in 0..3 {
        let _host = dynamic::host("api dynamic: compile", "jit.rs", 3, "compile");
        let _zone = dynamic::zone(&stream, &format!("fused_add_{n}"), "model.py", 12 + n, "forward").field("n", n);
        stream.launch(|| ());
    }
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (6, 6), "{report}");
    let zones = zones.take();
    assert_eq!(
        counts(&zones),
        [("api dynamic: compile", 3), ("fused_add_0", 1), ("fused_add_1", 1), ("fused_add_2", 1)].into()
    );
    let zone = zones.iter().find(|zone| zone.range.name() == "fused_add_2").expect("it is there");
    assert_eq!((zone.range.file(), zone.range.line(), zone.range.module()), ("model.py", 14, "forward"));
    assert!(zone.gpu.is_some() && zone.fields.get("n").is_some(), "{zone:?}");
    assert!(report.ranges.iter().any(|range| range.name == "fused_add_1"), "{report}");
    assert!(report.sinks.iter().all(|sink| sink.errors == 0 && sink.lost == 0), "{report}");
    for trace in [&packets, &json] {
        let bytes = fs::read(trace).expect("it is there");
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("fused_add_2") && has("api dynamic: compile"), "{}", trace.display());
        assert!(trace == &json || has("model.py"), "{}", trace.display());
    }
    let known = dynamic::ranges();
    assert!(known.iter().any(|range| std::ptr::eq(*range, zone.range)));
    assert!(warpline::catalog().iter().all(|range| !std::ptr::eq(range, zone.range)));
}

#[test]
fn a_filter_holds_for_names_that_come_later_too() {
    let _turn = alone();
    let stream = HostStream::new("jit");
    let early = dynamic::range("later.early", "a.py", 1, "f");
    let zones = MemorySink::new(100);
    let session = Session::builder().filter("later.*").filter("!later.not").sink(zones.clone()).start();
    let session = session.expect("no other session");
    let all = || {
        drop(early.zone(&stream));
        drop(dynamic::zone(&stream, "later.new", "a.py", 2, "f"));
        drop(dynamic::zone(&stream, "later.not", "a.py", 3, "f"));
        drop(dynamic::zone(&stream, "other.new", "a.py", 4, "f"));
    };
    all();
    let report = session.finish();
    assert_eq!(counts(&zones.take()), [("later.early", 1), ("later.new", 1)].into(), "{report}");
    assert!(report.left_out.ranges >= 2, "{report}");
    let session = Session::builder().filter("other.*").sink(zones.clone()).start().expect("no other session");
    all();
    session.finish();
    assert_eq!(counts(&zones.take()), [("other.new", 1)].into());
    // Nothing is looked up without a session.
    drop(dynamic::zone(&stream, "never.named", "a.py", 5, "f"));
    assert!(dynamic::ranges().iter().all(|range| range.name() != "never.named"));
}

#[test]
fn names_beyond_the_bound_count_as_more() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    const MANY: usize = 65_536;
    let names: Vec<_> = (0..MANY).map(|n| dynamic::range(&format!("kernel {n}"), "", 0, "")).collect();
    let zones = MemorySink::new(100);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("jit");
    drop(names[MANY - 1].zone(&stream));
    for n in 0..3 {
        drop(dynamic::zone(&stream, &format!("new {n}"), "", 0, ""));
    }
    // Those that are known stay what they are.
    drop(dynamic::zone(&stream, "kernel 7", "", 0, ""));
    let report = session.finish();
    let expected = [("(more)", 3), ("kernel 65535", 1), ("kernel 7", 1)].into();
    assert_eq!((counts(&zones.take()), report.dropped.total()), (expected, 0), "{report}");
    assert_eq!(dynamic::ranges().len(), MANY + 1);
}

#[test]
fn threads_that_name_at_once_get_one_range() {
    let _turn = alone();
    let ranges: Vec<usize> = std::thread::scope(|scope| {
        let name = || {
            let range = |n: u32| std::ptr::from_ref(dynamic::range("raced", "a.py", n, "f")) as usize;
            (0..500).map(range).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(name)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut distinct = ranges.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((ranges.len(), distinct.len()), (2_000, 500));
}

#[cfg(unix)]
#[test]
fn a_flight_recorder_names_the_zone_that_stalls() {
    let _turn = alone();
    let folder = empty_folder("dynamic-stall");
    let (file, trace) = (folder.join("flight"), folder.join("stall.pftrace"));
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).stall(Duration::from_millis(200)).start();
    let session = session.expect("no other session");
    let stream = HostStream::new("jit");
    {
        let _zone = dynamic::zone(&stream, "api dynamic: stalled", "model.py", 99, "forward");
        stream.launch(|| std::thread::sleep(Duration::from_millis(900)));
    }
    let since = Instant::now();
    let found = || {
        let files = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        files.filter_map(|path| fs::read(path).ok()).any(|bytes| {
            let text = b"api dynamic: stalled";
            bytes.windows(text.len()).any(|part| part == text)
        })
    };
    while !trace.exists() && since.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(found(), "{:?}", warpline_tests::names(&folder));
    session.finish();
}
