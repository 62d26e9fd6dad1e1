//! Work that marks declare: `bytes` and `flops` become rates in records, reports and traces.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, block, gpu_zone, host_zone};
use warpline_tests::{alone, empty_folder};

const MB: u64 = 1_000_000;

/// Adds numbers: three of them are moved for each addition.
#[gpu_zone("api.work.add", bytes = 3 * size_of_val(x), flops = x.len(), fields(bytes = 7))]
fn add(stream: &HostStream, x: &[f32]) {
    stream.launch(|| thread::sleep(Duration::from_millis(2)));
}

/// Reads a file.
#[host_zone("api.work.read", bytes = bytes)]
fn read(bytes: u64) {
    thread::sleep(Duration::from_millis(1));
}

/// Multiplies matrices of this size.
fn multiply(stream: &HostStream, n: u32) {
    let n = f64::from(n);
    block::gpu_zone!("api.work.multiply", stream, description = "Multiplies.", flops = 2.0 * n * n * n, {
        stream.launch(|| thread::sleep(Duration::from_millis(1)));
    });
}

warpline::range! {
    COPY = "api.work.copy": "Copies.";
    PLAIN = "api.work.plain": "Declares nothing.";
}

fn of<'a>(zones: &'a [ZoneRecord], name: &str) -> &'a ZoneRecord {
    zones.iter().find(|zone| zone.range.name() == name).expect("recorded")
}

#[test]
fn declared_work_by_its_time_is_a_rate_in_records_reports_and_traces() {
    let _turn = alone();
    let folder = empty_folder("work");
    let (chrome, records) = (folder.join("work.json"), MemorySink::new(1_000));
    let session = Session::builder().sink(records.clone()).chrome(&chrome).start().expect("no other session");
    let stream = HostStream::new("work");
    for _ in 0..3 {
        add(&stream, &[0.0; 1_000]);
    }
    read(5 * MB);
    multiply(&stream, 100);
    {
        let _zone = COPY.zone(&stream).bytes(-1).flops(0);
        stream.launch(|| ());
    }
    {
        let _zone = PLAIN.zone(&stream);
        stream.launch(|| ());
    }
    stream.synchronize().expect("no panic");
    let report = session.finish();
    let zones = records.take();

    let one = of(&zones, "api.work.add");
    assert_eq!((one.work().bytes, one.work().flops), (Some(12_000), Some(1_000)));
    let seconds = one.gpu_ns_corrected().expect("on a stream") as f64 * 1e-9;
    let rates = one.work_rates();
    assert!((rates.bytes_per_s.expect("declared") * seconds / 12_000.0 - 1.0).abs() < 1e-9, "{rates:?}");
    assert!((rates.flops_per_s.expect("declared") * seconds / 1_000.0 - 1.0).abs() < 1e-9, "{rates:?}");
    let of_host = of(&zones, "api.work.read");
    assert_eq!((of_host.work().bytes, of_host.work().flops), (Some(5 * MB), None));
    assert!(of_host.work_rates().bytes_per_s.expect("on its thread") <= 5e9, "{of_host:?}");
    assert_eq!(of(&zones, "api.work.multiply").work().flops, Some(2_000_000));
    assert_eq!(of(&zones, "api.work.copy").work().bytes, Some(0), "no negative work");
    assert!(of(&zones, "api.work.plain").work().is_none());

    let stats = |name: &str| report.ranges.iter().find(|range| range.name == name).expect("in the report");
    let work = stats("api.work.add").work.clone().expect("declared");
    let all_ns: i64 =
        zones.iter().filter(|zone| zone.range.name() == "api.work.add").filter_map(ZoneRecord::gpu_ns_corrected).sum();
    let wanted = 36_000.0 / (all_ns as f64 * 1e-9);
    assert!((work.rates.bytes_per_s.expect("declared") / wanted - 1.0).abs() < 1e-9, "{work:?}");
    // Nobody states a peak of threads.
    assert_eq!((work.bytes_share(), work.flops_share(), &work.peak), (None, None, &None));
    assert_eq!(work.device, one.stream.as_ref().expect("on a stream").device.name);
    assert!(stats("api.work.plain").work.is_none());
    let text = report.to_string();
    let row =
        text.lines().skip_while(|line| !line.starts_with("declared work")).find(|line| line.contains("api.work.add"));
    let row = row.unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains("B/s") && row.contains("FLOP/s") && row.contains('–'), "no share of a peak: {row}");
    assert!(text.contains(&format!("the peak of {} is not known", work.device)), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let figures: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let rows = figures["work"].as_array().expect("a table");
    let row = rows.iter().find(|row| row["name"] == "api.work.add").expect("a row");
    assert_eq!((&row["on"], &row["device"]), (&"stream".into(), &"host".into()));
    assert_eq!(row["bytes_per_s"].as_f64(), work.rates.bytes_per_s);
    let intensity = row["flops_per_byte"].as_f64().expect("both are declared");
    assert!((intensity - 1.0 / 12.0).abs() < 1e-12, "{row}");
    assert!(row["peak_bytes_per_s"].is_null() && row["bytes_share"].is_null(), "no peak is made up: {row}");
    assert!(report.to_markdown().contains("## Declared work") && report.to_csv().contains("\nwork,api.work.add,"));

    let trace: Value = serde_json::from_slice(&std::fs::read(&chrome).expect("it was written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    // A zone on a stream has a slice of its launch, too.
    let of_name =
        |name: &'static str| events.iter().filter(move |event| event["name"] == name).map(|event| &event["args"]);
    let args = |name| of_name(name).find(|args| args.get("gb_per_s").is_some()).expect("a slice with a rate");
    let add = args("api.work.add");
    assert_eq!((&add["bytes"], &add["flops"]), (&Value::from(12_000), &Value::from(1_000)));
    assert_eq!(add["field.bytes"], 7, "a field of that name keeps its value: {add}");
    let (gb, tflop) = (add["gb_per_s"].as_f64(), add["tflop_per_s"].as_f64());
    assert!(
        gb.expect("a rate") > 0.0 && (gb.expect("a rate") * 1e9 / 12.0 - tflop.expect("a rate") * 1e12).abs() < 1.0
    );
    let names = ["bytes", "flops", "gb_per_s", "tflop_per_s"];
    assert!(of_name("api.work.plain").all(|plain| names.iter().all(|name| plain.get(*name).is_none())), "{events:?}");
}
