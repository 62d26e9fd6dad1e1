//! `warpline report` on large traces: memory depends on the numbers of ranges and rows, not on that of slices, and ten million take seconds.
//!
//! `cargo test --release -p warpline-cli --test report_large -- --ignored --nocapture` writes the large trace with the sink of sessions, which takes
//! a gigabyte of disk, and prints the figures.
#![cfg(target_os = "linux")]

#[path = "support/peak.rs"]
mod peak;

use std::fs;
use std::path::Path;
use std::time::Duration;

use peak::Ran;
use warpline::record::ZoneRecord;
use warpline::sink::{Batch, Sink};
use warpline_core::step::StepRecord;
use warpline_report::Report;
use warpline_report::fixture::{ATTENTION, STEP, main_thread, session, span, stream, zone};
use warpline_trace::write::perfetto::PerfettoSink;

const BATCH: i64 = 1_000;

/// Zones of a step.
const OF_STEP: i64 = 10_000;

/// Writes a trace of so many zones. Each is a slice on its stream, and its launch one on its thread.
fn write(path: &Path, zones: i64) {
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&session()).unwrap();
    let (main, streams) = (main_thread(), [stream(1, "compute"), stream(2, "side")]);
    for batch in 0..zones / BATCH {
        let records: Vec<ZoneRecord> = (0..BATCH)
            .map(|n| {
                let at = batch * BATCH + n;
                // One zone in ten has the nine before it inside.
                let (range, begin) = if at % 10 == 9 { (&STEP, (at - 9) * 1_000) } else { (&ATTENTION, at * 1_000) };
                let gpu = span(begin + 400, at * 1_000 + 900 + at % 7);
                let host = span(at * 1_000, at * 1_000 + 300);
                let mut zone = zone(range, Some(&streams[(at / 10 % 2) as usize]), &main, host, Some(gpu));
                zone.sequence = at as u64;
                zone.fields.push("layer", at % 32);
                zone
            })
            .collect();
        sink.write(Batch::Zones(&records)).unwrap();
        let done = (batch + 1) * BATCH;
        if done % OF_STEP == 0 {
            let host = span((done - OF_STEP) * 1_000, done * 1_000);
            let step = StepRecord { number: (done / OF_STEP) as u64, thread: main.clone(), host };
            sink.write(Batch::Steps(&[step])).unwrap();
        }
        sink.flush().unwrap();
    }
    let duration = Duration::from_nanos((zones * 1_000) as u64);
    let (begun, recorded) = (zones as u64, zones as u64);
    sink.finish(&Report { begun, recorded, duration, ..Report::default() }).unwrap();
}

fn report(trace: &Path, html: Option<&Path>) -> Ran {
    let html = html.into_iter().flat_map(|html| ["--html".as_ref(), html.as_os_str()]);
    let ran = peak::warpline(["report".as_ref(), trace.as_os_str()].into_iter().chain(html));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    ran
}

#[test]
fn ten_times_the_slices_take_the_same_memory() {
    let folder = tempfile::tempdir().unwrap();
    let [small, large, page] = ["small.pftrace", "large.pftrace", "page.html"].map(|name| folder.path().join(name));
    write(&small, 50_000);
    write(&large, 500_000);
    // A row keeps its latest slices, a name its histogram, and the path its latest zones: all of that is there after 10^5 slices. The page also keeps
    // the zones of a row that may have others around them, up to a limit.
    for (html, more_kib) in [(None, 4 << 10), (Some(&*page), 20 << 10)] {
        let [few, many] = [&small, &large].map(|trace| report(trace, html));
        assert!(many.stdout.contains("500000 zones begun, 500000 recorded"), "{}", many.stdout);
        println!("{} KiB for 10^5 slices, {} KiB for 10^6 in {:?}", few.peak_kib, many.peak_kib, many.wall);
        let most_kib = few.peak_kib + more_kib;
        assert!(few.peak_kib > 0 && many.peak_kib <= most_kib, "{} KiB, not {}", many.peak_kib, few.peak_kib);
    }
    let bytes = fs::metadata(&page).unwrap().len();
    assert!(bytes < 1 << 20, "the page has {bytes} bytes");
}

#[test]
#[ignore = "writes a gigabyte, and measures a release build"]
fn ten_million_slices_take_seconds_and_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let [path, page] = ["large.pftrace", "page.html"].map(|name| folder.path().join(name));
    write(&path, 5_000_000);
    let bytes = fs::metadata(&path).unwrap().len();
    for html in [None, Some(&*page)] {
        let Ran { stdout: text, wall, peak_kib, .. } = report(&path, html);
        assert!(text.contains("4500000"), "{text}");
        println!("{text}\n{bytes} bytes, {wall:?}, {} MiB at most, page: {}", peak_kib >> 10, html.is_some());
        assert!(wall < Duration::from_secs(60), "{wall:?}");
    }
    println!("the page has {} bytes", fs::metadata(&page).unwrap().len());
}

/// A trace of profilers may name each slice differently. What is kept of a name is bounded, and the rest is counted together.
#[test]
fn ever_new_names_take_bounded_memory_and_are_counted_together() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("names.json");
    let write = |names: u64| {
        let slices = (0..names).map(|at| {
            let (begin, length) = (10 * at, 1 + at % 9);
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"n{at}","pid":1,"tid":1,"ts":{begin},"dur":{length}}}"#
            )
        });
        fs::write(&trace, format!("[{}]", slices.collect::<Vec<_>>().join(","))).unwrap();
        report(&trace, None)
    };
    let (some, many) = (write(20_000), write(80_000));
    assert!(many.peak_kib < some.peak_kib + (60 << 10), "{} and {} KiB", some.peak_kib, many.peak_kib);
    let says = "71808 ranges beyond 8192 are counted together as `(more)`; record fewer names";
    assert!(many.stdout.contains(says), "{}", many.stdout.lines().last().unwrap());
    let row = many.stdout.lines().find(|line| line.starts_with("(more)")).expect("a row");
    assert!(row.contains("71808"), "{row}");
    assert!(!write(8_192).stdout.contains("(more)"));
}

/// The sink of sessions cuts a name that no reader would take.
#[test]
fn a_zone_on_a_stream_with_a_very_long_name_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pftrace");
    let mut sink = PerfettoSink::create(&trace).unwrap();
    sink.start(&session()).unwrap();
    let long = stream(1, &"é".repeat(1 << 20));
    let zones = [0, 1_000]
        .map(|ns| zone(&ATTENTION, Some(&long), &main_thread(), span(ns, ns + 100), Some(span(ns + 200, ns + 900))));
    sink.write(Batch::Zones(&zones)).unwrap();
    let report_of_session =
        Report { begun: 2, recorded: 2, duration: Duration::from_nanos(2_000), ..Report::default() };
    sink.finish(&report_of_session).unwrap();
    let ran = report(&trace, None);
    assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
    let row = ran.stdout.lines().find(|line| line.starts_with("\u{e9}\u{e9}") && line.contains("% busy"));
    assert!(row.is_some() || ran.stdout.contains("éééé"), "{}", &ran.stdout[..ran.stdout.len().min(3_000)]);
}
