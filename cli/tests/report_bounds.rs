//! `warpline report` on zones and waits whose ends are not timed: no bound is a length. Its figures are those of the session's own report of the same run,
//! and the page names bounds as such.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use warpline::backend::{
    Backend, BackendError, BackendStream, Call, Clock, EventPair, Points, Reader, Reading, Refused, Scope, Space,
    StreamRef, new_space, now_ns,
};
use warpline::collective::ProcessGroup;
use warpline::record::{DeviceInfo, DeviceKind, EndSource, Span, ZoneRecord};
use warpline::report::Report;
use warpline::sink::{Batch, ChromeSink, MemorySink, PerfettoSink, Sink};
use warpline::{AsStream, Session, block, collective, gpu_zone};
use warpline_core::wait::{SignalInfo, WaitOutcome, WaitRecord};
use warpline_report::fixture::{self, span};
use warpline_report::path::critical_path;

use crate::support::alone;

/// A device whose time only its work advances, and whose ends are seen late where a program says so.
struct Device {
    space: Space,
    time: AtomicI64,
    early_by_ns: AtomicI64,
}

/// A stream of it.
struct LateStream {
    device: Arc<Device>,
    number: u64,
    name: &'static str,
}

impl LateStream {
    fn work(&self, ns: i64) {
        self.device.time.fetch_add(ns, Ordering::SeqCst);
    }

    /// Works for the rest of a zone, of which the end is seen so much later.
    fn end_late(&self, ns: i64, early_by_ns: i64) {
        self.work(ns + early_by_ns);
        self.device.early_by_ns.store(early_by_ns, Ordering::SeqCst);
    }
}

impl AsStream for LateStream {
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::of_backend(Ok(self.device.space.key(self.number)), self)
    }
}

impl BackendStream for LateStream {
    fn backend(&self, _: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        Ok(Arc::new(OfStream(Arc::clone(&self.device), self.name)))
    }
}

struct OfStream(Arc<Device>, &'static str);

impl Backend for OfStream {
    fn name(&self) -> Option<String> {
        Some(self.1.to_owned())
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { ordinal: 0, name: "late".to_owned(), kind: DeviceKind::Other("late") }
    }

    fn clock_space(&self) -> u64 {
        self.0.space.id()
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        Ok(EventPair::new(LatePoints { device: Arc::clone(&self.0), begin_ns: 0, end_ns: 0, early_by_ns: 0 }))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(LateReader)
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(SameClock))
    }
}

struct LatePoints {
    device: Arc<Device>,
    begin_ns: i64,
    end_ns: i64,
    early_by_ns: i64,
}

impl Points for LatePoints {
    fn begin(&mut self, _: Call) -> Result<(), Refused> {
        self.begin_ns = self.device.time.load(Ordering::SeqCst);
        Ok(())
    }

    fn end(&mut self, _: Call) -> Result<(), Refused> {
        self.end_ns = self.device.time.load(Ordering::SeqCst);
        self.early_by_ns = self.device.early_by_ns.swap(0, Ordering::SeqCst);
        Ok(())
    }
}

struct LateReader;

impl Reader for LateReader {
    fn is_complete(&mut self, _: &EventPair) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn read(&mut self, points: &EventPair, _: Span, _: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        let points: &LatePoints = points.get().ok_or_else(|| BackendError::new("foreign points"))?;
        let end = if points.early_by_ns > 0 { EndSource::Boundary } else { EndSource::Event };
        let gpu = Span { begin_ns: points.begin_ns, end_ns: points.end_ns };
        Ok(Some(Reading { gpu, end, end_early_by_ns: points.early_by_ns }))
    }
}

struct SameClock;

impl Clock for SameClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        0
    }
}

/// Is timed, with declared work.
#[gpu_zone("cli.bounds.timed", stream = stream, bytes = 4_000, flops = 80_000)]
fn timed(stream: &LateStream, ns: i64) {
    stream.work(ns);
}

/// Is sometimes seen late.
#[gpu_zone("cli.bounds.sometimes", stream = stream, bytes = 4_000, flops = 80_000)]
fn sometimes(stream: &LateStream, ns: i64, early_by_ns: i64) {
    stream.end_late(ns, early_by_ns);
}

/// Is always seen late.
#[gpu_zone("cli.bounds.late", stream = stream)]
fn late(stream: &LateStream, ns: i64, early_by_ns: i64) {
    stream.end_late(ns, early_by_ns);
}

/// Is late by less than 5 % of its length.
#[gpu_zone("cli.bounds.a_little", stream = stream)]
fn a_little(stream: &LateStream) {
    stream.end_late(100_000, 4_000);
}

/// Has others inside.
#[gpu_zone("cli.bounds.outer", stream = stream)]
fn outer(stream: &LateStream, early_by_ns: i64) {
    stream.work(5_000);
    sometimes(stream, 20_000, early_by_ns);
    timed(stream, 10_000);
    stream.end_late(5_000, 0);
}

/// Sums the gradients.
#[collective("cli.bounds.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, stream = stream)]
fn sum(stream: &LateStream, group: &ProcessGroup, ns: i64, early_by_ns: i64) {
    stream.end_late(ns, early_by_ns);
}

const STEPS: u32 = 12;

/// Runs a program, and returns the session's report. The last zone is one whose end is not timed.
fn run(folder: &Path, zones: &MemorySink) -> Report {
    let _turn = alone();
    let session = Session::builder()
        .perfetto(folder.join("t.pftrace"))
        .chrome(folder.join("t.json"))
        .sink(zones.clone())
        .quiet()
        .start()
        .unwrap();
    let device =
        Arc::new(Device { space: new_space(), time: AtomicI64::new(now_ns()), early_by_ns: AtomicI64::new(0) });
    let stream = |number, name| LateStream { device: Arc::clone(&device), number, name };
    let (compute, comm) = (stream(1, "compute"), stream(2, "comm"));
    let group = ProcessGroup::new("dp0", [0, 1], 0);
    for number in 0..STEPS {
        warpline::step(number);
        let is_late = number % 3 == 0;
        timed(&compute, 20_000 + i64::from(number) * 100);
        sometimes(&compute, 30_000, if is_late { 3_000_000 } else { 0 });
        late(&compute, 25_000, 3_700_000);
        a_little(&compute);
        outer(&compute, if is_late { 400_000 } else { 0 });
        sum(&comm, &group, 50_000, if number % 2 == 0 { 2_000_000 } else { 0 });
    }
    block::gpu_zone!("cli.bounds.last", &compute, description = "Is seen late.", {
        compute.end_late(10_000, 900_000);
    });
    session.finish()
}

fn warpline(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).env_remove("WARPLINE").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn figures_of_zones_with_late_ends_are_those_of_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let zones = MemorySink::new(1_000);
    let said = run(folder.path(), &zones);
    let own: Value = serde_json::from_str(&said.to_json()).unwrap();
    let zones = zones.take();
    assert_eq!(zones.iter().filter(|zone| zone.is_bounded()).count(), 4 + 12 + 4 + 6 + 1);
    for trace in ["t.pftrace", "t.json"] {
        let trace = folder.path().join(trace);
        let trace = trace.to_str().unwrap();
        // In Chrome traces, the name of a collective begins with that of a kernel.
        let plain = |text: String| text.replace("ncclDevKernel_AllReduce ", "");
        let told = plain(warpline(&["report", "--format", "json", trace]));
        let told: Value = serde_json::from_str(&told).unwrap();
        for table in ["ranges", "range_steps", "ends", "collectives"] {
            assert_eq!(told[table], own[table], "{trace}: {table}");
        }
        let of_work = |told: &Value| -> Vec<Value> {
            let rates = |row: &Value| json!([row["name"], row["bytes_per_s"], row["flops_per_s"]]);
            told["work"].as_array().unwrap().iter().map(rates).collect()
        };
        assert_eq!((of_work(&told), of_work(&told).len()), (of_work(&own), 2), "{trace}");

        let text = warpline(&["report", trace]);
        let tables = |text: &str| -> Vec<String> {
            let heads = ["on streams", "in a step", "collective", "declared work"];
            let blocks = text.split("\n\n").filter(|block| heads.iter().any(|head| block.starts_with(head)));
            blocks.map(str::to_owned).collect()
        };
        if trace.ends_with(".pftrace") {
            assert_eq!((tables(&text), tables(&text).len()), (tables(&said.to_string()), 4), "{text}\n{said}");
        }
        // The bound of a range all of whose ends are seen late is printed as a bound.
        let on_streams = text.split("\n\n").find(|block| block.starts_with("on streams")).unwrap();
        let (_, late) = on_streams.split_once("cli.bounds.late").unwrap();
        assert!(late.trim_start().starts_with("12  ≤44.7 ms "), "{on_streams}");
        assert!(late.contains("≤3.73 ms        –  ≤3.73 ms") && !late.contains(" 3.73 ms"), "{on_streams}");

        // A session has no streams and no path without its feature `timeline`.
        let streams = text.split("\n\n").find(|block| block.starts_with("stream ")).unwrap();
        let compute = streams.lines().find(|line| line.starts_with("compute ")).unwrap();
        let cells: Vec<&str> = compute.split_whitespace().collect();
        assert_eq!(cells[..7], ["compute", "≤61.5", "ms", "0", "ns", "≥12.6", "ms"], "{streams}");
        let on_compute = zones.iter().filter(|zone| zone.stream.as_ref().is_some_and(|on| on.name == "compute"));
        let tails: i64 = on_compute.filter_map(|zone| zone.uncertain_tail()).map(|tail| tail.duration_ns()).sum();
        let compute = told["streams"].as_array().unwrap().iter().find(|stream| stream["name"] == "compute").unwrap();
        assert_eq!((&compute["uncertain_ns"], &compute["busy_is_bound"]), (&tails.into(), &true.into()), "{compute}");
        let path = critical_path(&zones, &[], &[], None).unwrap();
        assert_eq!(path.early_by_ns, 900_000);
        let parts = told["critical_path"].as_array().unwrap();
        assert_eq!(parts.len(), path.parts.len(), "{trace}: {parts:?}");
        for part in &path.parts {
            assert!(
                parts.iter().any(|told| told["name"] == *part.name && told["total_ns"] == part.ns),
                "{part:?}: {parts:?}"
            );
        }
        assert!(path.parts.iter().any(|part| part.name == "(end not timed)"), "{path:?}");
    }
}

#[test]
fn a_rate_that_an_older_version_wrote_for_a_bound_is_no_rate() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &MemorySink::new(1_000));
    let work = |name: &str| {
        let path = folder.path().join(name);
        let told = warpline(&["report", "--format", "json", path.to_str().unwrap()]);
        serde_json::from_str::<Value>(&told).unwrap()["work"].clone()
    };
    let trace = fs::read_to_string(folder.path().join("t.json")).unwrap();
    let of_bound = r#""end_early_by_ns":3000000"#;
    assert_eq!(trace.matches(of_bound).count(), 4);
    let old = trace.replace(of_bound, &format!(r#"{of_bound},"gb_per_s":0.1,"tflop_per_s":0.1"#));
    fs::write(folder.path().join("old.json"), old).unwrap();
    assert_eq!(work("old.json"), work("t.json"));
}

#[test]
fn the_page_shows_bounds_as_bounds() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &MemorySink::new(1_000));
    let page = folder.path().join("t.html");
    warpline(&["report", folder.path().join("t.pftrace").to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    // `tests/pages/report.test.mjs` opens it.
    if let Some(pages) = std::env::var_os("WARPLINE_PAGES") {
        fs::write(Path::new(&pages).join("report-bounds.html"), &page).unwrap();
    }
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let details = &data["details"];
    let name = |at: &Value| details["names"][at.as_u64().unwrap() as usize].as_str().unwrap();
    // Histograms have timed zones alone.
    let bars = |of: &str| -> Option<u64> {
        let ranges = details["histograms"]["ranges"].as_array().unwrap();
        let bars = ranges.iter().find(|range| range["name"] == of)?["bars"].as_array().unwrap();
        Some(bars.iter().map(|bar| bar[2].as_u64().unwrap()).sum())
    };
    assert_eq!(
        (bars("cli.bounds.late"), bars("cli.bounds.sometimes"), bars("cli.bounds.timed")),
        (None, Some(16), Some(24))
    );
    // Time in which a zone may have ended is no time of its range.
    let nodes = details["calls"][0]["nodes"].as_array().unwrap();
    let of_late: Vec<&Value> = nodes.iter().filter(|node| name(&node[1]).starts_with("cli.bounds.late")).collect();
    assert_eq!((of_late.len(), name(&of_late[0][1])), (1, "cli.bounds.late (end not timed)"));
    assert_eq!((&of_late[0][2], &of_late[0][4]), (&12.into(), &(12 * 25_000).into()));
    let at = nodes.iter().position(|node| node == of_late[0]).unwrap();
    assert_eq!((name(&nodes[at + 1][1]), &nodes[at + 1][3]), ("(end not timed)", &(12_i64 * 3_700_000).into()));
    // So do slices of a timeline.
    let slices = details["timelines"][0]["slices"].as_array().unwrap();
    let has = |text: &str| slices.iter().any(|slice| name(&slice[1]) == text);
    assert!(has("cli.bounds.late (end not timed)") && has("cli.bounds.timed") && !has("cli.bounds.late"), "{slices:?}");
    // Of those, the drawing knows the shortest possible length, and how much of what it shows is uncertain. The window ends behind what is certain.
    let members = |text: &str| -> Vec<Vec<i64>> {
        let of_name = slices.iter().filter(|slice| name(&slice[1]) == text);
        of_name.map(|slice| slice.as_array().unwrap()[4..].iter().filter_map(Value::as_i64).collect()).collect()
    };
    let late = members("cli.bounds.late (end not timed)");
    assert!(late.contains(&vec![3_725_000, 3_725_000, 25_000, 3_700_000]), "{late:?}");
    assert!(late.iter().all(|one| one[3] == one[0].min(3_700_000)), "{late:?}");
    assert_eq!(members("cli.bounds.a_little")[0], [104_000]);
}

/// Writes zones and waits of two streams, whose times are known: `side` waits for `compute`, and the ends of three of its waits are not timed.
fn write_waits(sink: &mut dyn Sink) {
    sink.start(&fixture::session()).unwrap();
    let (main, compute, side) = (fixture::main_thread(), fixture::stream(1, "compute"), fixture::stream(2, "side"));
    let mut sequence = 0;
    let mut zone = |stream, begin, end| {
        sequence += 1;
        let zone = fixture::zone(&fixture::STEP, Some(stream), &main, span(0, 1), Some(span(begin, end)));
        ZoneRecord { sequence, ..zone }
    };
    let wait = |semaphore: &str, begin, end, signal, early_by_ns| WaitRecord {
        semaphore: semaphore.into(),
        value: Some(1),
        stream: Some(Arc::clone(&side)),
        thread: Arc::clone(&main),
        queue: None,
        sequence: 0,
        host: span(1, 2),
        gpu: Some(span(begin, end)),
        end: if early_by_ns > 0 { EndSource::Boundary } else { EndSource::Event },
        end_early_by_ns: early_by_ns,
        outcome: WaitOutcome::Reached,
        signal: Some(SignalInfo {
            value: Some(1),
            stream: Some(Arc::clone(&compute)),
            thread: Arc::clone(&main),
            queue: None,
            host_ns: span(1, 1).begin_ns,
            at_ns: span(signal, signal).begin_ns,
            early_by_ns: 0,
        }),
    };
    let zones = [zone(&compute, 0, 5_000), zone(&compute, 5_000, 8_000)];
    sink.write(Batch::Zones(&zones)).unwrap();
    // Timed, known within 5 %, and a bound.
    let waits = [
        wait("timed", 0, 1_000, 1_000, 0),
        wait("known", 1_000, 5_000, 4_000, 200),
        wait("late", 5_000, 9_000, 8_000, 700),
    ];
    sink.write(Batch::Waits(&waits)).unwrap();
    sink.write(Batch::Zones(&[zone(&side, 9_000, 10_000)])).unwrap();
    sink.finish(&Report { begun: 3, recorded: 3, duration: Duration::from_micros(10), ..Report::default() }).unwrap();
}

#[test]
fn a_wait_whose_end_is_seen_late_is_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    write_waits(&mut PerfettoSink::create(folder.path().join("w.pftrace")).unwrap());
    write_waits(&mut ChromeSink::create(folder.path().join("w.json")).unwrap());
    for name in ["w.pftrace", "w.json"] {
        let trace = folder.path().join(name);
        let trace = trace.to_str().unwrap();
        let told: Value = serde_json::from_str(&warpline(&["report", "--format", "json", trace])).unwrap();
        let side = told["streams"].as_array().unwrap().iter().find(|stream| stream["name"] == "side").unwrap();
        let keys = ["busy_ns", "uncertain_ns", "waiting_ns", "waiting_early_ns", "idle_ns"];
        assert_eq!(keys.map(|key| side[key].as_i64()), [1_000, 0, 9_000, 700, 0].map(Some), "{name}: {side}");
        let flags = ["busy_is_bound", "waiting_is_bound", "rest_is_bound"].map(|key| side[key].as_bool());
        assert_eq!(flags, [false, true, true].map(Some), "{name}: {side}");
        let waited = &told["stream_waits"][0];
        assert_eq!((&waited["total_ns"], &waited["total_is_bound"]), (&9_000.into(), &true.into()), "{name}: {waited}");
        let semaphore = |name: &str| {
            let rows = told["semaphores"].as_array().unwrap();
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            (row["total_ns"].as_i64().unwrap(), row["total_is_bound"].as_bool().unwrap())
        };
        let semaphores = ["timed", "known", "late"].map(semaphore);
        assert_eq!(semaphores, [(1_000, false), (4_000, false), (4_000, true)], "{name}");
        let text = warpline(&["report", trace]);
        let line = text.lines().find(|line| line.starts_with("side ")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, ["side", "1.00", "µs", "≤9.00", "µs", "≥0", "ns", "compute"], "{name}: {text}");
        // Chrome traces have no arrows of waits that the reader follows.
        if name == "w.pftrace" {
            let parts = told["critical_path"].as_array().unwrap();
            let part = |name: &str| parts.iter().find(|part| part["name"] == name && part["on"] == "side");
            assert_eq!(part("(launch or signal delay)").unwrap()["total_ns"], 300, "{parts:?}");
            assert_eq!(part("(end not timed)").unwrap()["total_ns"], 700, "{parts:?}");
        }
    }
}
