//! One session has one report: what it says at its end is what `warpline report` says of its Perfetto trace and of its
//! Chrome trace, figure by figure. With `WARPLINE_EQUAL=DIR`, the traces stay there: the step `query` of the checks
//! asks SQL for the same figures.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::Value;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::report::Report;
use warpline::sink::{Batch, Sink};
use warpline::timeline::Semaphore;
use warpline::{HostStream, Session, SessionBuilder, gpu_zone, host_zone};
use warpline_core::record::ZoneRecord;
use warpline_core::replay::{ReplayRecord, ReplayedZone};
use warpline_report::builder::{CameBy, SessionFigures};
use warpline_report::fixture::{self, ATTENTION, STEP};
use warpline_trace::write::chrome::ChromeSink;
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::alone;

warpline::range! {
    SUM = "cli.equal.sum": "Sums.", kind = collective;
    BATCH = "cli.equal.batch": "Several sums at once.", kind = collective;
    OUTER = "cli.equal.outer": "Is around others that begin at the same time.";
    LANE = "cli.equal.lane": "Is on a lane.";
}

const US: Duration = Duration::from_micros(1);

/// Spins, which is shorter than a sleep.
fn spin(time: Duration) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Works on a stream.
#[gpu_zone("cli.equal.part", stream = stream, bytes = 4_096, fields(us = time.as_micros() as u64))]
fn part(stream: &HostStream, time: Duration) {
    stream.launch(move || spin(time));
}

/// Has two parts inside.
#[gpu_zone("cli.equal.whole", stream = stream)]
fn whole(stream: &HostStream) {
    part(stream, 60 * US);
    part(stream, 30 * US);
}

/// Works on its thread.
#[host_zone("cli.equal.load")]
fn load() {
    spin(20 * US);
}

/// Fails.
#[host_zone("cli.equal.fails", err)]
fn fails() -> Result<(), &'static str> {
    Err("no memory")
}

/// Is suspended between its parts.
#[gpu_zone("cli.equal.decode", stream = stream)]
async fn decode(stream: &HostStream, turns: u32) {
    for _ in 0..turns {
        part(stream, 20 * US);
        yield_once().await;
    }
}

/// Is pending once.
async fn yield_once() {
    let mut is_over = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Polls two futures in turns on this thread, as an executor does.
fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut cx = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (false, false);
    while !(first && second) {
        first = first || one.as_mut().poll(&mut cx).is_ready();
        second = second || other.as_mut().poll(&mut cx).is_ready();
    }
}

/// Records a program, and returns the report of the session and those of its two traces.
fn reports(settings: impl FnOnce(SessionBuilder) -> SessionBuilder, program: impl FnOnce()) -> [Value; 3] {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let [perfetto, chrome] = ["t.pftrace", "t.json"].map(|name| folder.path().join(name));
    let builder = settings(Session::builder().quiet().perfetto(&perfetto).chrome(&chrome));
    let session = builder.start().expect("no other session");
    program();
    let report = session.finish();
    let of_session = serde_json::from_str(&report.to_json()).expect("JSON");
    [of_session, report_of(&perfetto), report_of(&chrome)]
}

/// Leaves a trace for SQL, if that is wanted.
fn leave(trace: &Path) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Some(folder) = std::env::var_os("WARPLINE_EQUAL") else { return };
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let ending = trace.extension().unwrap_or_default().to_string_lossy();
    let name = format!("{test}-{}.{ending}", NUMBER.fetch_add(1, Ordering::Relaxed));
    std::fs::copy(trace, Path::new(&folder).join(name)).expect("the folder takes it");
}

fn report_of(trace: &Path) -> Value {
    leave(trace);
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
    let output = command.args(["report", "--format", "json"]).arg(trace).output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The values of a report by their paths; of a table, by the name and the place of each row.
fn flat(value: &Value, path: String, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| flat(value, format!("{path}/{name}"), into));
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let of = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
                let place = match item.get("name") {
                    Some(_) => [of("name"), of("on"), of("device"), of("group"), of("stream")].join("|"),
                    None => at.to_string(),
                };
                flat(item, format!("{path}/{place}"), into);
            }
        }
        value => drop(into.insert(path, value.clone())),
    }
}

/// Asserts that the three say the same. Sinks are of the session alone, and so are its settings' notes on it.
#[track_caller]
fn assert_equal(reports: [Value; 3]) -> Value {
    let [session, perfetto, chrome] = reports.map(|mut report| {
        let lines = report["account"].as_array_mut().expect("lines");
        lines.retain(|line| !line.as_str().is_some_and(|line| line.contains("sink ")));
        let _ = report.as_object_mut().expect("members").remove("sinks");
        report
    });
    for (name, trace) in [("Perfetto", &perfetto), ("Chrome", &chrome)] {
        let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
        flat(&session, String::new(), &mut a);
        flat(trace, String::new(), &mut b);
        let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
        let differ: Vec<_> = keys
            .into_iter()
            .filter(|key| a.get(*key) != b.get(*key))
            .map(|key| format!("{key}: {:?} in the session, {:?} in the trace", a.get(key), b.get(key)))
            .collect();
        assert!(differ.is_empty(), "{name}: {} of {}:\n{}", differ.len(), a.len(), differ.join("\n"));
    }
    session
}

fn names(report: &Value, table: &str) -> Vec<String> {
    let rows = report[table].as_array().into_iter().flatten();
    rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn of_a_pipeline_with_steps_waits_and_nested_zones() {
    let report = assert_equal(reports(
        |builder| builder,
        || {
            let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
            let (staged, used) = (Semaphore::named("staged", 0), Semaphore::named("used", 0));
            for step in 1..=20_u64 {
                warpline::step(step);
                load();
                if step > 1 {
                    used.wait_on(&copy, step - 1).unwrap();
                }
                part(&copy, 40 * US);
                staged.signal_on(&copy, step).unwrap();
                staged.wait_on(&compute, step).unwrap();
                whole(&compute);
                used.signal_on(&compute, step).unwrap();
            }
            used.wait(20, Duration::from_secs(60)).unwrap();
        },
    ));
    assert_eq!(names(&report, "streams"), ["compute", "copy"]);
    assert!(report["critical_path"].as_array().is_some_and(|path| path.len() > 2), "{report}");
}

#[test]
fn of_collectives_alone_and_in_batches() {
    let report = assert_equal(reports(
        |builder| builder,
        || {
            let (compute, comm) = (HostStream::new("compute"), HostStream::new("comm"));
            let groups = [ProcessGroup::new("tp", [0, 1], 0), ProcessGroup::new("dp", 0..16, 3)];
            let message =
                |kind, count, group: &ProcessGroup| Message::new(kind).count(count).dtype(DataType::F32).group(group);
            for turn in 0..10_u64 {
                part(&compute, 80 * US);
                let zone = SUM.zone(&comm).message(message(CollectiveKind::AllReduce, 1_000 + turn, &groups[0]));
                comm.launch(|| spin(50 * US));
                drop(zone);
                let mut batch = BATCH.batch(&comm);
                batch.add(&SUM, || message(CollectiveKind::AllReduce, 100, &groups[0]));
                batch.add(&SUM, || message(CollectiveKind::AllGather, 300, &groups[1]));
                comm.launch(|| spin(40 * US));
                drop(batch);
            }
            compute.synchronize().unwrap();
            comm.synchronize().unwrap();
        },
    ));
    assert_eq!(report["collectives"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn of_zones_that_begin_together_of_lanes_and_of_futures() {
    let report = assert_equal(reports(
        |builder| builder,
        || {
            let stream = HostStream::new("compute");
            for turn in 0..30 {
                // The clock of a host may not tick between the two.
                let outer = OUTER.zone(&stream);
                part(&stream, 10 * US);
                drop(outer);
                let lane = LANE.zone(&stream).lane(if turn % 2 == 0 { "even" } else { "odd" });
                stream.launch(|| spin(10 * US));
                drop(lane);
                both(decode(&stream, 3), decode(&stream, 2));
            }
            stream.synchronize().unwrap();
        },
    ));
    assert_eq!(names(&report, "streams"), ["compute"]);
}

#[test]
fn of_a_filter_and_a_stop() {
    let report = assert_equal(reports(
        |builder| builder.filter("cli.equal.part"),
        || {
            let stream = HostStream::new("compute");
            for _ in 0..10 {
                whole(&stream);
                load();
            }
            stream.synchronize().unwrap();
        },
    ));
    assert_eq!(names(&report, "ranges"), ["cli.equal.part"]);
}

#[test]
fn of_a_sample_and_of_zones_that_fail() {
    assert_equal(reports(
        |builder| builder.sample(0.5),
        || {
            let stream = HostStream::new("compute");
            for _ in 0..200 {
                part(&stream, 5 * US);
                let _ = fails();
            }
            stream.synchronize().unwrap();
        },
    ));
}

#[test]
fn of_a_budget() {
    let report = assert_equal(reports(
        |builder| builder.budget(0.05),
        || {
            let stream = HostStream::new("compute");
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(600) {
                root(&stream);
                stream.synchronize().unwrap();
            }
        },
    ));
    assert!(report["account"].to_string().contains(" windows"), "{report}");
}

/// Is a root: a window of a budget begins and ends with it.
#[host_zone("cli.equal.root")]
fn root(stream: &HostStream) {
    whole(stream);
}

/// An outer zone and its inner one that begin in the same tick of the clock are one row of one stream.
#[test]
fn of_zones_that_begin_in_one_tick() {
    let (stream, main) = (fixture::stream(1, "compute"), fixture::main_thread());
    let of = |range, depth, begin, end| {
        let span = fixture::span;
        // The outer one begins first, whatever the clock says.
        let sequence = 2 * begin as u64 + u64::from(depth);
        ZoneRecord {
            depth,
            sequence,
            ..fixture::zone(
                range,
                Some(&stream),
                &main,
                span(begin - 9 + i64::from(depth), begin),
                Some(span(begin, end)),
            )
        }
    };
    let zones: Vec<_> = (0..50_i64)
        .flat_map(|turn| {
            let at = 1_000 + turn * 1_000;
            [of(&ATTENTION, 1, at, at + 400), of(&STEP, 0, at, at + 400 + turn % 2 * 300)]
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let [perfetto, chrome] = ["t.pftrace", "t.json"].map(|name| folder.path().join(name));
    write(&mut PerfettoSink::create(&perfetto).expect("a file"), &zones);
    write(&mut ChromeSink::create(&chrome).expect("a file"), &zones);
    for trace in [&perfetto, &chrome] {
        let report = report_of(trace);
        assert_eq!(names(&report, "streams"), ["compute"], "{}", trace.display());
        let of_range = |name: &str| {
            let rows = report["ranges"].as_array().expect("ranges");
            let row = rows.iter().find(|row| row["name"] == name).expect("the range");
            (row["total_ns"].as_i64(), row["self_ns"].as_i64())
        };
        assert_eq!(of_range(STEP.name()), (Some(50 * 550), Some(25 * 300)), "{}", trace.display());
        assert_eq!(of_range(ATTENTION.name()), (Some(50 * 400), Some(50 * 400)), "{}", trace.display());
    }
}

/// Zones of graphs are in the replays. A driver is not needed to record some.
#[test]
fn of_replays_of_graphs() {
    let (stream, main) = (fixture::stream(1, "compute"), fixture::main_thread());
    let span = fixture::span;
    let mut batches = Vec::new();
    for replay in 0..40_i64 {
        let at = 10_000 + 20_000 * replay;
        let of = |range, depth, begin, end| ReplayedZone {
            zone: ZoneRecord {
                depth,
                ..fixture::zone(range, Some(&stream), &main, span(at - 500, at - 100), Some(span(at + begin, at + end)))
            },
            lane: None,
            kernels: 1,
            captured_on: 1,
        };
        let zones = vec![of(&LANE, 1, 1_000, 4_000 + replay), of(&OUTER, 0, 500, 9_000)];
        let record =
            ReplayRecord { correlation: 20 + replay as u32, ..fixture::replay(&stream, span(at, at + 9_500), zones) };
        let eager = fixture::zone(
            &OUTER,
            Some(&stream),
            &main,
            span(at + 9_000, at + 9_100),
            Some(span(at + 10_000, at + 12_000)),
        );
        batches.push((eager, record));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [perfetto, chrome] = ["t.pftrace", "t.json"].map(|name| folder.path().join(name));
    let mut figures = SessionFigures::new(false, None);
    let mut sinks: [Box<dyn Sink>; 2] = [
        Box::new(PerfettoSink::create(&perfetto).expect("a file")),
        Box::new(ChromeSink::create(&chrome).expect("a file")),
    ];
    sinks.iter_mut().for_each(|sink| sink.start(&fixture::session()).expect("the file takes it"));
    for (eager, replay) in &batches {
        for batch in [Batch::Zones(std::slice::from_ref(eager)), Batch::Replays(std::slice::from_ref(replay))] {
            figures.add(batch);
            sinks.iter_mut().for_each(|sink| sink.write(batch).expect("the file takes it"));
        }
    }
    let mut report = Report { begun: 40, recorded: 40, duration: Duration::from_micros(802), ..Report::default() };
    figures.add_to(&mut report, CameBy::Counted);
    sinks.iter_mut().for_each(|sink| sink.finish(&report).expect("the file takes it"));
    drop(sinks);
    let session = serde_json::from_str(&report.to_json()).expect("JSON");
    let report = assert_equal([session, report_of(&perfetto), report_of(&chrome)]);
    let replayed = report["ranges"].as_array().expect("ranges").iter().filter(|row| row["on"] == "replay");
    let found: Vec<_> =
        replayed.map(|row| (row["name"].as_str(), row["count"].as_u64(), row["self_ns"].as_i64())).collect();
    // 0 to 39 ns more, each once.
    let inner = 40 * 3_000 + 39 * 40 / 2;
    let expected = [(OUTER.name(), 40 * 8_500 - inner), (LANE.name(), inner)];
    assert_eq!(found, expected.map(|(name, ns)| (Some(name), Some(40), Some(ns))));
}

/// Futures that a runtime of several threads polls, as it likes.
#[test]
fn of_tasks_of_tokio() {
    for threads in [1, 3] {
        let report = assert_equal(reports(
            |builder| builder,
            || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().expect("threads");
                let streams = ["one", "other"].map(|name| Arc::new(HostStream::new(name)));
                let tasks: Vec<_> = (0..24)
                    .map(|number: usize| {
                        let stream = Arc::clone(&streams[number % 2]);
                        runtime.spawn(async move { task(&stream, number as u32 % 4).await })
                    })
                    .collect();
                runtime.block_on(async {
                    for task in tasks {
                        task.await.expect("no panic");
                    }
                });
                streams.iter().for_each(|stream| stream.synchronize().unwrap());
            },
        ));
        assert_eq!(names(&report, "streams"), ["one", "other"]);
    }
}

/// Is suspended between its parts, and goes on on another thread.
#[gpu_zone("cli.equal.task", stream = stream)]
async fn task(stream: &HostStream, turns: u32) {
    for _ in 0..=turns {
        part(stream, 20 * US);
        tokio::task::yield_now().await;
        load();
    }
}

/// Two processes, one for each rank: each report is that of its traces, and that of both traces has the zones of both.
#[test]
fn of_the_processes_of_two_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "equal::rank", "--ignored"]).env("FOLDER", folder.path()).env("RANK", rank);
        command
            .env("WORLD_SIZE", "2")
            .env_remove("WARPLINE")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let ranks = ["0", "1"].map(start);
    ranks.into_iter().for_each(|mut rank| assert!(rank.wait().expect("it ends").success()));
    let file = |rank: u32, ending: &str| folder.path().join(format!("{rank}.{ending}"));
    let mut zones = 0;
    for rank in [0, 1] {
        let said = std::fs::read(file(rank, "report")).expect("a report");
        let said = serde_json::from_slice(&said).expect("JSON");
        let report = assert_equal([said, report_of(&file(rank, "pftrace")), report_of(&file(rank, "json"))]);
        zones += report["zones"]["recorded"].as_u64().expect("a number");
    }
    let mut both = Command::new(env!("CARGO_BIN_EXE_warpline"));
    both.args(["report", "--format", "json"]).args([file(0, "pftrace"), file(1, "json")]);
    let both: Value = serde_json::from_slice(&both.output().expect("the command starts").stdout).expect("JSON");
    assert_eq!((both["zones"]["recorded"].as_u64(), zones), (Some(zones), 2 * 20 * 3));
}

#[test]
#[ignore = "a rank, which another test starts"]
fn rank() {
    let folder = std::path::PathBuf::from(std::env::var_os("FOLDER").expect("a folder"));
    let rank = std::env::var("RANK").expect("a number");
    let file = |ending: &str| folder.join(format!("{rank}.{ending}"));
    let session = Session::builder().quiet().perfetto(file("pftrace")).chrome(file("json")).start().expect("a session");
    let stream = HostStream::new("compute");
    for step in 0..20 {
        warpline::step(step);
        whole(&stream);
        stream.synchronize().unwrap();
    }
    std::fs::write(file("report"), session.finish().to_json()).expect("the folder takes it");
}

fn write(sink: &mut dyn Sink, zones: &[ZoneRecord]) {
    sink.start(&fixture::session()).expect("the file takes it");
    // As the collector reads them: the outer one in a later pass.
    zones.chunks(1).for_each(|zones| sink.write(Batch::Zones(zones)).expect("the file takes it"));
    let count = zones.len() as u64;
    sink.finish(&Report { begun: count, recorded: count, ..Report::default() }).expect("the file takes it");
}
