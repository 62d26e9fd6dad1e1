//! Tests that read traces back as JSON.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::ChromeSink;
use super::json::Micros;
use super::rows::{FIRST_DEVICE, FIRST_ROW};
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::catalog::{Kind, Level, RangeSpec};
use warpline_core::kernel::KernelLaunch;
use warpline_core::record::{DeviceInfo, DeviceKind, Span, StreamInfo};
use warpline_core::replay::ReplayRecord;
use warpline_report::fixture;
use warpline_report::fixture::{BEGIN_NS, LOAD, STEP, records, run, span, stream, thread, zone};
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink};

/// A file that belongs to one test and is removed when the test ends.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("warpline-{}-{test}.json", std::process::id())))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).expect("the file")
    }

    fn read(&self) -> Value {
        serde_json::from_str(&self.text()).expect("a whole document")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn slices(document: &Value) -> Vec<&Value> {
    document["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X").collect()
}

#[test]
fn the_file_lacks_only_its_end_after_every_flush() {
    let file = Scratch::new("flush");
    let mut sink = ChromeSink::create(&file.0).expect("a file");
    sink.start(&fixture::session()).expect("room");
    let mut expected = 0;
    let mut before = file.text();
    for batch in records() {
        sink.write(Batch::Zones(&batch)).expect("room");
        sink.flush().expect("room");
        expected += batch.iter().map(|record| 1 + usize::from(record.gpu.is_some())).sum::<usize>();
        let text = file.text();
        assert!(text.starts_with(&before), "it is only appended to");
        let events: Value = serde_json::from_str(&format!("{text}]")).expect("an array without its end");
        assert_eq!(events.as_array().expect("events").iter().filter(|event| event["ph"] == "X").count(), expected);
        assert_eq!(events[1]["args"]["catalog_hash"], "0x0123456789abcdef");
        before = text;
    }
    sink.finish(&fixture::report()).expect("room");
    let document = file.read();
    assert_eq!(slices(&document).len(), expected);
    assert_eq!(document["otherData"]["begun"], 12);
    assert_eq!(document["otherData"]["dropped"]["ring_full"], 2);
    let (head, events) = (before.find('\n').expect("a line"), before.trim_end().len());
    let text = file.text();
    assert_eq!(text[head..events], before[head..events], "no event is written twice");
    assert!(text.starts_with("{\"traceEvents\":[\n") && text.contains("\n\"distributedInfo\":{\"rank\": 0}"), "{text}");
}

#[test]
fn no_event_lies_across_two_pages() {
    let file = Scratch::new("pages");
    let mut sink = ChromeSink::create(&file.0).expect("a file");
    sink.start(&fixture::session()).expect("room");
    let mut record = zone(&LOAD, None, &thread(1, None), span(0, 1), None);
    for n in 0..2_000_usize {
        (record.fields, record.error) = Default::default();
        record.fields.push("text", "x".repeat(n * 7 % 400));
        // One event is larger than a page, and the batches have all sizes.
        if n == 1_000 {
            record.error = Some("y".repeat(9_000).into());
        }
        sink.write(Batch::Zones(std::slice::from_ref(&record))).expect("room");
        if n % 7 == 0 {
            sink.flush().expect("room");
        }
    }
    sink.finish(&fixture::report()).expect("room");
    assert_eq!(slices(&file.read()).len(), 2_000);
    let text = file.text();
    let mut at = 0;
    let mut across = Vec::new();
    for line in text.split_inclusive('\n') {
        // The comma before an event belongs to it; the blanks after it do not.
        let event = line.trim_end_matches([',', '\n', ' ']);
        let (begin, end) = (at, at + event.len());
        if event.starts_with("{\"ph\"") && begin / 4096 != (end - 1) / 4096 {
            across.push(event.len());
        }
        at += line.len();
    }
    assert!(across.len() == 1 && across[0] > 9_000, "{across:?}");
}

#[test]
fn dropped_zones_are_a_counter_while_the_session_runs() {
    let file = Scratch::new("drops");
    let mut sink = ChromeSink::create(&file.0).expect("a file");
    sink.start(&fixture::session()).expect("room");
    for dropped in [0, 3, 3, 5] {
        sink.progress(&Progress { dropped, ..Progress::default() }).expect("room");
    }
    let events: Value = serde_json::from_str(&format!("{}]", file.text())).expect("an array without its end");
    let counted: Vec<_> = (events.as_array().expect("events").iter())
        .filter(|event| event["ph"] == "C")
        .map(|event| (event["name"].as_str(), event["args"]["zones"].as_u64()))
        .collect();
    assert_eq!(counted, [(Some("zones dropped"), Some(3)), (Some("zones dropped"), Some(5))]);
}

#[test]
fn zones_of_streams_that_come_and_go_stand_on_the_rows_of_their_streams_and_do_not_overlap() {
    let file = Scratch::new("come_and_go");
    let main = thread(1, None);
    // There are forty streams, of which far fewer are known at once. Each zone overlaps the next zone of its stream.
    let on = |index: i64| {
        let stream = stream(1 + ((index * 7 + index / 9) % 40) as u32, "one of many");
        let gpu = span(10 * index, 10 * index + 15 + index % 7 * 10);
        vec![zone(&STEP, Some(&stream), &main, span(10 * index, 10 * index + 1), Some(gpu))]
    };
    let batches: Vec<_> = (0..400).map(on).collect();
    run(&mut ChromeSink::create(&file.0).expect("a file"), &batches).expect("room");
    let document = file.read();
    let slices: Vec<_> = slices(&document).into_iter().filter(|slice| slice["cat"] == "gpu_user_annotation").collect();
    assert_eq!(slices.len(), batches.len());
    let mut rows = std::collections::BTreeMap::<u64, Vec<(f64, f64)>>::new();
    let mut own = 0;
    for slice in slices {
        let (row, stream) =
            (slice["tid"].as_u64().expect("a row"), slice["args"]["stream"].as_u64().expect("a stream"));
        assert!(row == stream || row > FIRST_ROW, "{slice}");
        own += usize::from(row == stream);
        let begin = slice["ts"].as_f64().expect("a time");
        rows.entry(row).or_default().push((begin, begin + slice["dur"].as_f64().expect("a length")));
    }
    assert!(own > 50, "{own} on the rows of their streams");
    for (row, mut spans) in rows {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        for pair in spans.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            assert!(second.0 >= first.1 - 1e-6 || second.1 <= first.1 + 1e-6, "row {row}: {first:?} and {second:?}");
        }
    }
}

#[test]
fn every_value_is_valid_json() {
    let file = Scratch::new("values");
    let mut record = zone(&LOAD, None, &thread(1, Some("a \"thread\"\n")), span(0, 1_234_567), None);
    record.fields.push("nan", f64::NAN);
    record.fields.push("infinite", f64::NEG_INFINITY);
    record.fields.push("huge", u64::MAX);
    record.fields.push("label", "a field of a taken name");
    record.fields.push("text", "\u{0}\u{1f}\"\\".to_owned());
    record.fields.set_label("the label");
    run(&mut ChromeSink::create(&file.0).expect("a file"), &[vec![record]]).expect("room");
    let document = file.read();
    let slice = slices(&document)[0];
    assert_eq!(slice["args"]["nan"], "NaN");
    assert_eq!(slice["args"]["infinite"], "-inf");
    assert_eq!(slice["args"]["huge"], u64::MAX);
    assert_eq!(slice["args"]["field.label"], "a field of a taken name");
    assert_eq!(slice["args"]["text"], "\u{0}\u{1f}\"\\");
    assert_eq!(slice["args"]["label"], "the label");
    assert_eq!(slice["dur"], 1_234.567);
}

#[test]
fn a_graph_may_have_any_name() {
    for name in ["\"decode\"\n\\", "dé\u{1f}code", &"\"".repeat(10_000)] {
        let file = Scratch::new("graph_name");
        let (main, compute) = (thread(1, None), stream(1, "compute"));
        let replay = ReplayRecord {
            name: Some(name.into()),
            launch: Some(KernelLaunch { thread: main, host: span(0, 10) }),
            ..fixture::replay(&compute, span(100, 200), Vec::new())
        };
        let mut sink = ChromeSink::create(&file.0).expect("a file");
        sink.start(&fixture::session()).expect("room");
        sink.write(Batch::Replays(&[replay])).expect("room");
        sink.finish(&fixture::report()).expect("room");
        let document = file.read();
        let names: Vec<_> = slices(&document).iter().filter_map(|slice| slice["name"].as_str()).collect();
        assert_eq!(names, [format!("launch of graph 1 ({name})"), format!("graph 1 ({name})")]);
    }
}

#[test]
fn overlapping_slices_stand_on_rows_of_their_own() {
    let file = Scratch::new("overlap");
    let (main, compute) = (thread(1, None), stream(1, "compute"));
    let batch = [(0, 10), (5, 15), (7, 20), (15, 30)];
    let zones =
        batch.map(|(begin, end)| zone(&STEP, Some(&compute), &main, span(begin, begin + 1), Some(span(begin, end))));
    run(&mut ChromeSink::create(&file.0).expect("a file"), &[zones.to_vec()]).expect("room");
    let document = file.read();
    let rows: Vec<_> = (slices(&document).iter())
        .filter(|slice| slice["cat"] == "gpu_user_annotation")
        .filter_map(|slice| slice["tid"].as_u64())
        .collect();
    assert_eq!(rows, [1, FIRST_ROW + 1, FIRST_ROW + 2, 1]);
}

#[test]
fn no_device_has_the_number_of_a_process_or_of_another_device() {
    // The first process of a container and its thread have the numbers of the second device and of its stream.
    let devices = [(DeviceKind::Cuda, 1), (DeviceKind::Host, 0), (DeviceKind::Cuda, 0), (DeviceKind::Hip, 0)];
    let main = thread(1, None);
    let mut zones = vec![zone(&LOAD, None, &main, span(0, 100), None)];
    zones.extend((1..).zip(devices).map(|(id, (kind, ordinal))| {
        let device = DeviceInfo { ordinal, name: kind.name().to_owned(), kind };
        let stream = Arc::new(StreamInfo { id, name: "compute".to_owned(), device });
        zone(&STEP, Some(&stream), &main, span(10, 20), Some(span(50, 150)))
    }));
    let file = Scratch::new("devices");
    let mut sink = ChromeSink::create(&file.0).expect("a file");
    sink.start(&SessionInfo { process_id: 1, ..fixture::session() }).expect("room");
    sink.write(Batch::Zones(&zones)).expect("room");
    sink.finish(&fixture::report()).expect("room");
    let document = file.read();
    let events = document["traceEvents"].as_array().expect("events");
    let processes: Vec<_> = (events.iter().filter(|event| event["name"] == "process_name"))
        .map(|event| (event["pid"].as_u64().expect("a number"), event["args"]["name"].as_str().expect("a name")))
        .collect();
    let names = ["cuda (device 1)", "host (device 0)", "cuda (device 0)", "hip (device 0)"];
    let mut expected = vec![(1, "demo")];
    expected.extend((FIRST_DEVICE..).zip(names));
    assert_eq!(processes, expected);
    let on_streams = slices(&document).into_iter().filter(|slice| slice["cat"] == "gpu_user_annotation");
    let rows: Vec<_> = on_streams.map(|slice| (slice["pid"].as_u64(), slice["tid"].as_u64())).collect();
    assert_eq!(rows, [0, 1, 2, 3].map(|n| (Some(FIRST_DEVICE + n), Some(1 + n))));
}

#[test]
fn times_before_the_session_are_kept() {
    assert_eq!(Micros(-1_001).to_string(), "-1.001");
    let file = Scratch::new("early");
    let early = Span { begin_ns: BEGIN_NS - 500, end_ns: BEGIN_NS };
    let record = zone(&LOAD, None, &thread(1, None), early, None);
    run(&mut ChromeSink::create(&file.0).expect("a file"), &[vec![record]]).expect("room");
    assert_eq!(slices(&file.read())[0]["ts"], 999_999.5);
}

#[test]
fn spans_are_slices_and_events_are_instants() {
    let file = Scratch::new("spans");
    let mut sink = ChromeSink::create(&file.0).expect("a file");
    sink.start(&fixture::session()).expect("room");
    sink.write(Batch::Spans(&fixture::spans())).expect("room");
    sink.finish(&fixture::report()).expect("room");
    let document = file.read();
    let batch = slices(&document).into_iter().find(|slice| slice["args"]["rows"] == 128).expect("the slice");
    assert_eq!(
        (&batch["cat"], &batch[".file"], &batch[".line"]),
        (&"demo::train,DEBUG".into(), &"demo/src/train.rs".into(), &20.into())
    );
    assert_eq!((&batch["args"]["span_id"], &batch["args"]["parent"]), (&9.into(), &"train \"epoch\"".into()));
    let events = document["traceEvents"].as_array().expect("events");
    let instants: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert_eq!(instants.len(), 2);
    assert_eq!((&instants[0]["name"], &instants[0]["args"]["ms"]), (&"slow \"disk\"".into(), &12.into()));
    assert!(instants[0]["args"].get("message").is_none() && instants[0].get("dur").is_none(), "{}", instants[0]);
    assert_eq!(document["otherData"]["spans"]["dropped.buffer_full"], 2);
}

#[cfg(unix)]
mod pipes {
    use std::io::Read;

    use super::*;
    use crate::files::own::OwnFile;

    #[test]
    fn a_pipe_gets_an_array_of_events() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let pipe = OwnFile::unlocked(std::os::fd::OwnedFd::from(writer).into());
        let mut sink = ChromeSink::to_file(std::path::Path::new("/dev/stdout"), pipe);
        run(&mut sink, &records()).expect("the pipe holds it");
        drop(sink);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("UTF-8");
        let events: Vec<Value> = serde_json::from_str(&text).expect("a whole document");
        let slices = events.iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(
            slices,
            records().iter().flatten().map(|record| 1 + usize::from(record.gpu.is_some())).sum::<usize>()
        );
        assert_eq!((&events[0]["name"], &events[1]["name"]), (&"process_name".into(), &"warpline_session".into()));
    }
}

#[test]
fn a_finished_document_has_the_catalog() {
    let file = Scratch::new("catalog");
    run(&mut ChromeSink::create(&file.0).expect("a file"), &records()).expect("room");
    let said = &file.read()["otherData"];
    assert_eq!((&said["catalog_hash"], &said["begun"]), (&"0x0123456789abcdef".into(), &12.into()));
    let catalog = &said["catalog"];
    assert_eq!(catalog["format"], "warpline-catalog/1");
    let ranges = catalog["ranges"].as_array().expect("ranges");
    let names: Vec<_> = ranges.iter().map(|range| range["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["demo.attention", "demo.copy", "demo.load", "demo.step"]);
    let copy = &ranges[1];
    assert_eq!((&copy["kind"], &copy["lane"], &copy["line"]), (&"gpu".into(), &"copies".into(), &30.into()));
    assert_eq!((&copy["description"], &copy["file"]), (&"What the gate looks at.".into(), &"demo/src/model.rs".into()));
}

#[test]
fn slices_of_a_range_with_a_color_have_the_nearest_reserved_one() {
    let meta = |label, kind, color| RangeMeta {
        namespace: "demo",
        label,
        description: "Has a color.",
        kind,
        level: Level::Coarse,
        lane: None,
        color,
        fields: &[],
        undescribed: &[],
        module: "demo",
        version: "",
        file: "",
        line: 1,
    };
    static RANGES: OnceLock<[RangeSpec; 2]> = OnceLock::new();
    let [green, sum] = RANGES.get_or_init(|| {
        [
            RangeSpec::new(meta("demo.green\0", Kind::Gpu, Some(0x0076_b900))),
            RangeSpec::new(meta("demo.sum\0", Kind::Collective, Some(0x00ff_8c00))),
        ]
    });
    let (stream, thread) = (stream(1, "compute"), thread(1, None));
    let zones = [green, sum, &STEP].map(|range| zone(range, Some(&stream), &thread, span(0, 1), Some(span(2, 3))));
    let load = zone(green, None, &thread, span(5, 6), None);
    let file = Scratch::new("colors");
    run(&mut ChromeSink::create(&file.0).expect("a file"), &[zones.to_vec(), vec![load]]).expect("room");
    let document = file.read();
    let mut said: Vec<_> =
        slices(&document).into_iter().map(|slice| (slice["name"].as_str().expect("a name"), &slice["cname"])).collect();
    said.sort_by_key(|(name, _)| *name);
    let (green, orange, none) = ("cq_build_attempt_passed".into(), "thread_state_iowait".into(), Value::Null);
    let expected = [
        ("demo.green", &green),
        ("demo.green", &green),
        ("demo.green", &green),
        ("demo.step", &none),
        ("demo.step", &none),
        ("demo.sum", &orange),
        ("ncclDevKernel_Group demo.sum", &orange),
    ];
    assert_eq!(said, expected);
}
