//! The flight recorder: the last zones are in a file, whatever becomes of the program, and a trace of them names what was
//! open.
//!
//! What ends a program runs in a process of its own: the test starts itself again. That the traces are what Perfetto
//! reads is tested by the gate.

mod files;
mod panics;
mod signals;
mod stalls;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpline::recovery::{Recovered, recover};
use warpline::sink::Batch;
use warpline::{HostStream, Session, block, gpu_zone};
use warpline_tests::{alone, this_test};

use crate::child::{self, Child, scratch, when_killed};
use crate::trace::{self, Slice, slices};

warpline::range! {
    STEP = "api.flight.step": "A step.";
    HUNG = "api.flight.hung": "A zone that does not end.";
    OUTER = "api.flight.outer": "A zone around others.", fields(n);
    LOAD = "api.flight.load": "Work with no stream.", kind = host;
}

/// As long as anything may take on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// What is in a recorder's file, as a trace.
fn recovered(path: &Path) -> (Recovered, Vec<Slice>) {
    let (found, trace) = recovered_bytes(path);
    (found, slices(&trace))
}

fn recovered_bytes(path: &Path) -> (Recovered, Vec<u8>) {
    let mut trace = Vec::new();
    let found = recover(&mut fs::File::open(path).expect("the file is there"), &mut trace).expect("it has zones");
    (found, trace)
}

fn read(path: &Path) -> Vec<Slice> {
    slices(&fs::read(path).expect("the trace is there"))
}

/// Waits until there is such a file.
fn appears(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < LONG, "no `{}`", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn beside(path: &Path, what: &str) -> PathBuf {
    PathBuf::from(format!("{}.{what}", path.display()))
}

/// The slice of this open zone.
#[track_caller]
fn open<'a>(slices: &'a [Slice], name: &str) -> &'a Slice {
    let is_it = |slice: &&Slice| slice.name == name && slice.argument("status") == Some("open");
    slices.iter().find(is_it).unwrap_or_else(|| panic!("no open `{name}` in {slices:#?}"))
}

/// The argument `n` of the zones on streams with this name.
fn numbers(slices: &[Slice], name: &str) -> Vec<u64> {
    let is_it = |slice: &&Slice| slice.name == name && slice.argument("status").is_none();
    slices.iter().filter(is_it).filter_map(|slice| slice.argument("n")?.parse().ok()).collect()
}

fn steps(stream: &HostStream, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let zone = STEP.zone(stream).field("n", n);
        stream.launch(|| ());
        drop(zone);
        if n % 64 == 63 {
            stream.synchronize().expect("nothing panics");
        }
    }
    stream.synchronize().expect("nothing panics");
}

#[test]
fn kill_9_leaves_the_last_zones_and_those_that_were_open() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        // All steps fit: the collector may not come to run meanwhile.
        let session =
            Session::builder().budget(1.0).flight_at(1 << 20, &file).ring(8_192).start().expect("no other session");
        let (stream, stuck) = (HostStream::new("compute"), HostStream::new("stuck"));
        let _outer = OUTER.zone(&stream).field("epoch", 3_u64).field("kind", "forward").field("share", 0.25);
        let _load = LOAD.host().label("shard 7");
        // Its mark ends, and its stream does not come to its end.
        let hung = HUNG.zone(&stuck).field("layer", 12_i64);
        stuck.launch(|| std::thread::sleep(LONG));
        drop(hung);
        steps(&stream, 0..5_000);
        // What the file has by now is what a kill leaves. On a loaded machine the collector may take longer than a dump waits.
        let begin = Instant::now();
        let found = loop {
            let found = session.dump(beside(file.as_ref(), "dump")).expect("it is written");
            if found.problems.is_empty() {
                break found;
            }
            assert!(begin.elapsed() < LONG, "{found:?}");
        };
        assert!(found.open_zones == 3 && found.zones > 0, "{found:?}");
        child::kill_me();
    }
    let file = scratch(test);
    let child = Child::start(test, &file);
    child.wait_until_killed();
    let (found, bytes) = recovered_bytes(&file);
    trace::keep_for_gate("killed", &bytes);
    trace::keep_for_gate("dump", &fs::read(beside(&file, "dump")).expect("it is there"));
    let slices = slices(&bytes);
    assert!(!found.has_incident && found.damaged == 0 && found.missing == 0, "{found:?}");
    assert_eq!(found.open_zones, 3, "{found:?}");
    let outer = open(&slices, "api.flight.outer");
    for (name, value) in [
        ("epoch", "3"),
        ("kind", "forward"),
        ("share", "0.25"),
        ("stream", "compute"),
        ("open", "the mark has not ended"),
        ("description", "A zone around others."),
    ] {
        assert_eq!(outer.argument(name), Some(value), "{name}");
    }
    assert!(outer.argument("began_at").is_some_and(|at| at.contains("flight/mod.rs:")), "{outer:?}");
    assert!(outer.argument("thread").is_some_and(|thread| thread.contains("kill_9")), "{outer:?}");
    assert_eq!(outer.track, "compute (host, device 0)");
    let hung = open(&slices, "api.flight.hung");
    assert_eq!(hung.argument("open"), Some("the stream has not come to its end"));
    assert_eq!((hung.argument("layer"), hung.argument("stream")), (Some("12"), Some("stuck")));
    let load = open(&slices, "api.flight.load");
    assert_eq!((load.argument("label"), load.argument("stream")), (Some("shard 7"), None));
    let numbers = numbers(&slices, "api.flight.step");
    assert_eq!(numbers.len() as u64, found.zones, "each zone that the file says it has");
    assert_eq!(numbers.last(), Some(&4_999));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "with no hole");
    assert_eq!(found.zones_before, numbers[0], "what made room is counted exactly");
}

/// A sink that takes nothing until it is let go.
struct Held {
    has_come: std::sync::mpsc::Sender<()>,
    go: std::sync::mpsc::Receiver<()>,
}

impl warpline::sink::Sink for Held {
    fn write(&mut self, _: Batch<'_>) -> std::io::Result<()> {
        let _ = self.has_come.send(());
        let _ = self.go.recv();
        Ok(())
    }
}

#[test]
fn a_dump_that_the_collector_did_not_come_to_says_so() {
    let _turn = alone();
    let file = scratch("a_dump_that_the_collector_did_not_come_to");
    let (has_come, comes) = std::sync::mpsc::channel();
    let (go, goes) = std::sync::mpsc::channel();
    let builder = Session::builder().budget(1.0).flight_at(256 << 10, &file).sink(Held { has_come, go: goes });
    let session = builder.start().expect("no other session");
    drop(LOAD.host());
    comes.recv_timeout(LONG).expect("the collector hands the zone on");
    drop(LOAD.host());
    let dump = || session.dump(beside(&file, "dump.pftrace"));
    let late = "the trace may lack the last zones: a slow sink or a loaded machine kept the collector from writing it within 1 s; \
                dump again";
    // Whether there is something in the file yet depends on the order of sinks.
    if let Ok(found) = dump() {
        assert_eq!(found.problems, [late]);
    }
    drop(go);
    let begin = Instant::now();
    let found = loop {
        let found = dump().expect("it is written");
        if found.problems.is_empty() {
            break found;
        }
        assert!(begin.elapsed() < LONG, "{found:?}");
    };
    assert_eq!(found.zones, 2, "{found:?}");
    session.finish();
}

const MARK: u32 = line!() + 1;
#[gpu_zone(OUTER, fields(n = 1_u64))]
fn marked(stream: &HostStream, then: impl FnOnce()) {
    then();
}

/// As a library may have it: what it begins, its caller has begun.
#[track_caller]
fn by_caller(stream: &HostStream) -> warpline::Zone {
    OUTER.zone(stream).field("n", 2_u64)
}

#[test]
fn an_open_zone_names_the_place_where_it_began_and_not_that_of_its_range() {
    let _turn = alone();
    let file = scratch("an_open_zone_names_the_place");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    let (stream, trace) = (HostStream::new("compute"), beside(&file, "dump.pftrace"));
    let (one, one_at) = (by_caller(&stream), line!());
    let (two, two_at) = (OUTER.zone(&stream).field("n", 3_u64), line!());
    let (three, three_at) = (OUTER.zone(&stream).field("n", 4_u64), line!());
    let (four, four_at) = (OUTER.async_zone(&stream).field("n", 5_u64), line!());
    let (five, five_at) = (LOAD.host().field("n", 6_u64), line!());
    let (six, six_at) = (LOAD.async_host().field("n", 7_u64), line!());
    let (seven, seven_at) = (OUTER.batch(&stream), line!());
    let block_at = line!() + 1;
    block::gpu_zone!(OUTER, &stream, fields(n = 8_u64), {
        marked(&stream, || drop(session.dump(&trace).expect("it is written")));
    });
    drop((one, two, three, four, five, six, seven));
    session.finish();
    let slices = read(&trace);
    let mut began: Vec<_> = slices
        .iter()
        .filter(|slice| slice.argument("status") == Some("open"))
        .map(|slice| (slice.argument("n").unwrap_or("batch"), slice.argument("began_at").unwrap_or("nowhere")))
        .collect();
    began.sort_unstable();
    let places = [
        ("1", MARK),
        ("2", one_at),
        ("3", two_at),
        ("4", three_at),
        ("5", four_at),
        ("6", five_at),
        ("7", six_at),
        ("8", block_at),
        ("batch", seven_at),
    ]
    .map(|(n, line)| (n, format!("{}:{line}", file!())));
    assert_eq!(began, places.each_ref().map(|(n, at)| (*n, at.as_str())), "{slices:#?}");
}

#[test]
fn sigusr2_writes_a_trace_and_the_programs_own_handler_runs() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        let its = child::count_sigusr2();
        let settings = format!("flight=1MiB:{file},dump_on=sigusr2,budget=100%");
        let session = Session::builder().settings(&settings).expect("settings").start().expect("no other session");
        let stream = HostStream::new("compute");
        steps(&stream, 0..200);
        let _outer = OUTER.zone(&stream).field("epoch", 1_u64);
        let trace = beside(file.as_ref(), "sigusr2.pftrace");
        for signals in 1..=2 {
            child::raise_sigusr2();
            appears(&trace);
            assert_eq!(its(), signals);
            assert_eq!(numbers(&read(&trace), "api.flight.step").len(), 200);
            assert_eq!(open(&read(&trace), "api.flight.outer").argument("epoch"), Some("1"));
            fs::remove_file(&trace).expect("it is ours");
        }
        session.finish();
        child::raise_sigusr2();
        assert_eq!(its(), 3, "it ends no program, also behind the session");
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

/// Dumps what is recorded until now. On a busy host a dump may say that the collector was kept from writing; another one has the rest.
fn dump(session: &Session, trace: &Path) -> Recovered {
    let begin = Instant::now();
    loop {
        let found = session.dump(trace).expect("it is written");
        let is_early = found.problems.iter().any(|problem| problem.ends_with("dump again"));
        if !is_early {
            return found;
        }
        assert!(begin.elapsed() < LONG, "{found:?}");
    }
}

#[test]
fn a_dump_has_what_is_recorded_until_then_and_the_account_is_exact() {
    let _turn = alone();
    let file = scratch("a_dump_has_what_is_recorded");
    let session =
        Session::builder().budget(1.0).flight_at(256 << 10, &file).ring(1 << 16).start().expect("no other session");
    let stream = HostStream::new("compute");
    let mut last = 0;
    for round in 1..=5 {
        steps(&stream, last..round * 4_000);
        last = round * 4_000;
        stream.synchronize().expect("nothing panics");
        let trace = beside(&file, "dump.pftrace");
        let found = dump(&session, &trace);
        assert_eq!(found.zones_before + found.zones, last, "{found:?}");
        let numbers = numbers(&read(&trace), "api.flight.step");
        assert_eq!(numbers, (found.zones_before..last).collect::<Vec<_>>());
        assert_eq!((found.damaged, found.open_zones), (0, 0), "{found:?}");
    }
    // Several threads write to one place, beside a link that somebody has put there: one of the traces is there, whole.
    let foreign = beside(&file, "foreign");
    fs::write(&foreign, "what somebody wrote").expect("written");
    let trace = beside(&file, "shared.pftrace");
    for number in 0..20 {
        let name = format!("shared.pftrace.unfinished-{}-{number}", std::process::id());
        std::os::unix::fs::symlink(&foreign, beside(&file, &name)).expect("a link");
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| session.dump(&trace).expect("it is written"));
        }
    });
    assert_eq!(numbers(&read(&trace), "api.flight.step").last(), Some(&(last - 1)));
    assert_eq!(fs::read_to_string(&foreign).expect("it is there"), "what somebody wrote");
    let error = session.dump("/no/such/folder/last.pftrace").expect_err("no folder").to_string();
    assert!(error.contains("/no/such/folder/last.pftrace") && error.contains("choose another place"), "{error}");
    let report = session.finish();
    assert_eq!((report.recorded, report.dropped.total()), (last, 0), "{report}");
    let sink = report.sinks.iter().find(|sink| sink.name == "flight").expect("the recorder is a sink");
    assert_eq!((sink.kept.files.len(), sink.taken, sink.lost), (1, last, 0));
    assert_eq!(sink.kept.files[0].zones + sink.kept.removed_zones, last, "what is there and what made room");
    let (found, slices) = recovered(&file);
    assert_eq!((found.zones, found.zones_before), (sink.kept.files[0].zones, sink.kept.removed_zones));
    assert!(slices.iter().any(|slice| slice.name == "session ends"), "a session that finished says so");
}
