//! The flight recorder: the last zones are in a file, whatever becomes of the program, and a trace of them names what was
//! open.
//!
//! What ends a program runs in a process of its own: the test starts itself again. That the traces are what Perfetto
//! reads is tested by the gate.

use std::fs;
use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpline::recovery::{Recovered, recover};
use warpline::sink::Batch;
use warpline::{Error, HostStream, Session, block, gpu_zone};
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
    assert!(outer.argument("began_at").is_some_and(|at| at.contains("flight.rs:")), "{outer:?}");
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
fn a_panic_that_ends_the_program_leaves_a_trace() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        let session = Session::builder().budget(1.0).flight_at(1 << 20, &file).start().expect("no other session");
        let stream = HostStream::new("compute");
        steps(&stream, 0..500);
        let before = beside(file.as_ref(), "before");
        std::thread::Builder::new()
            .name("trainer".to_owned())
            .spawn(move || {
                // As with `panic = "abort"`: the program's own hook is the last thing that runs.
                let earlier = panic::take_hook();
                panic::set_hook(Box::new(move |info| {
                    earlier(info);
                    std::process::abort();
                }));
                let _outer = OUTER.zone(&stream).field("epoch", 9_u64);
                let _inner = HUNG.zone(&stream);
                // A collector that gets no time when it panics has written them down.
                let begin = Instant::now();
                while session.dump(&before).map(|found| (found.zones, found.open_zones)).ok() != Some((500, 2)) {
                    assert!(begin.elapsed() < LONG);
                }
                panic!("the loss is NaN at step {}", 500);
            })
            .expect("a thread")
            .join()
            .expect_err("it aborts");
    }
    let file = scratch(test);
    let said = Child::start(test, &file).wait_until_aborted();
    let trace = beside(&file, "panic.pftrace");
    assert!(said.contains("warpline: `trainer` panicked; the last zones are in `"), "{said}");
    trace::keep_for_gate("panic", &fs::read(&trace).expect("it is there"));
    for slices in [read(&trace), recovered(&file).1] {
        assert_eq!(open(&slices, "api.flight.outer").argument("epoch"), Some("9"));
        assert_eq!(numbers(&slices, "api.flight.step").len(), 500);
        let what = slices.iter().find(|slice| slice.name == "`trainer` panicked").expect("it says what happened");
        assert_eq!(what.argument("message"), Some("the loss is NaN at step 500"));
        assert!(what.argument("at").is_some_and(|at| at.contains("flight.rs:")), "{what:?}");
    }
}

#[test]
fn a_second_panic_that_ends_the_program_leaves_the_first_one_its_trace() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        panic::set_hook(Box::new(|_| std::process::abort()));
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
        steps(&HostStream::new("compute"), 0..500);
        let together = Arc::new(std::sync::Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let together = Arc::clone(&together);
                std::thread::spawn(move || {
                    together.wait();
                    panic!("as the test asks");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        session.finish();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_aborted();
    assert_eq!(numbers(&read(&beside(&file, "panic.pftrace")), "api.flight.step").len(), 500);
}

#[test]
fn the_panic_hook_calls_the_earlier_one_and_does_nothing_more_without_a_session() {
    let test = this_test!();
    // Hooks belong to the whole process.
    if let Some(file) = when_killed(test) {
        hooks_of_a_program(file.as_ref());
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

fn hooks_of_a_program(file: &Path) {
    let calls = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&calls);
    panic::set_hook(Box::new(move |_| {
        its.fetch_add(1, Ordering::Relaxed);
    }));
    let fail = || drop(catch_unwind(AssertUnwindSafe(|| panic!("as the test asks"))));
    let trace = beside(file, "panic.pftrace");
    for sessions in 1..=2 {
        let session = Session::builder().budget(1.0).flight_at(256 << 10, file).start().expect("no other session");
        drop(LOAD.host());
        fail();
        assert!(trace.exists());
        fs::remove_file(&trace).expect("it is ours");
        fail();
        assert!(!trace.exists(), "a program that panics again and again is not held up each time");
        let report = session.finish();
        assert!(report.notes.iter().any(|note| note.contains("panicked")), "{report}");
        fail();
        assert!(!trace.exists(), "no session, no trace");
        assert_eq!(calls.load(Ordering::Relaxed), 3 * sessions);
    }
    // A hook that the program sets during the session stays.
    let session = Session::builder().budget(1.0).flight_at(256 << 10, file).start().expect("no other session");
    let (earlier, others) = (panic::take_hook(), Arc::new(AtomicU64::new(0)));
    let its = Arc::clone(&others);
    panic::set_hook(Box::new(move |info| {
        its.fetch_add(1, Ordering::Relaxed);
        earlier(info);
    }));
    session.finish();
    fail();
    assert_eq!((others.load(Ordering::Relaxed), calls.load(Ordering::Relaxed)), (1, 7));
    // It tells the next session, too; and where the program drops it, the next session sets another one.
    for is_dropped in [false, true] {
        if is_dropped {
            drop(panic::take_hook());
        }
        let session = Session::builder().budget(1.0).flight_at(256 << 10, file).start().expect("no other session");
        drop(LOAD.host());
        fail();
        assert!(trace.exists());
        fs::remove_file(&trace).expect("it is ours");
        session.finish();
    }
    assert_eq!((others.load(Ordering::Relaxed), calls.load(Ordering::Relaxed)), (2, 8));
}

#[test]
fn a_panic_hook_that_waits_for_the_thread_that_finishes_the_session_holds_nobody() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        let (say, said) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let may_go = std::sync::Mutex::new(may_go);
        panic::set_hook(Box::new(move |_| {
            say.send(()).expect("the test listens");
            let waited = may_go.lock().map(|may_go| may_go.recv_timeout(LONG));
            if !matches!(waited, Ok(Ok(()))) {
                std::process::abort();
            }
        }));
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
        let thread = std::thread::spawn(|| panic!("as the test asks"));
        said.recv_timeout(LONG).expect("the hook runs");
        session.finish();
        go.send(()).expect("the hook waits");
        thread.join().expect_err("it has panicked");
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

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
        assert!(begin.elapsed() < LONG, "nobody tells it");
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
    let said = format!("no trace of the last zones is in `{}`: ", trace.display());
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
        let found = session.dump(&trace).expect("it is written");
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

#[test]
fn the_file_of_no_place_goes_with_the_session_and_that_of_a_killed_one_is_put_aside() {
    let _turn = alone();
    let session = Session::builder().budget(1.0).flight(256 << 10).start().expect("no other session");
    let own = PathBuf::from(format!("warpline-{}.flight", std::process::id()));
    assert!(own.exists());
    drop(LOAD.host());
    session.finish();
    assert!(!own.exists(), "it goes with the session");
    let file = scratch("the_file_of_a_killed_one");
    for run in 1..=3_u64 {
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
        (0..run).for_each(|_| drop(LOAD.host()));
        session.finish();
        assert_eq!(recovered(&file).0.zones, run);
        if run > 1 {
            assert_eq!(recovered(&beside(&file, "previous")).0.zones, run - 1, "the last one before is there");
        }
    }
}

#[test]
fn what_is_in_the_way_is_told_with_the_remedy_and_nothing_starts() {
    let _turn = alone();
    let folder = scratch("what_is_in_the_way");
    let _ = fs::remove_file(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let foreign = folder.join("notes.txt");
    fs::write(&foreign, "what somebody wrote").expect("written");
    let start = |settings: String| Session::builder().settings(&settings)?.start().map(Session::finish);
    let told = |settings: String, says: &[&str]| {
        let error = start(settings).expect_err("it cannot start").to_string();
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    };
    told(format!("flight=256KiB:{}", foreign.display()), &["notes.txt", "not a flight recorder's; name another one"]);
    assert_eq!(fs::read_to_string(&foreign).expect("it is there"), "what somebody wrote");
    told(format!("flight=256KiB:{}", folder.display()), &["name a file"]);
    told(format!("flight=256KiB:{}/no/file", folder.display()), &["name a file in a folder that can be written"]);
    told("flight=256KiB:/dev/null".to_owned(), &["it is not a file; name one"]);
    told("flight=12".to_owned(), &["`flight=12`", "as in `flight=64MiB`"]);
    told("rotate=1MiB".to_owned(), &["`rotate`: needs a Perfetto trace to rotate"]);
    told("stall=10s".to_owned(), &["`stall`: needs a flight recorder"]);
    // Nor is what stands where the file of an earlier run would go.
    let (mine, others) = (folder.join("my.flight"), folder.join("my.flight.previous"));
    let settings = format!("flight=256KiB:{}", mine.display());
    fs::write(&others, "what somebody wrote").expect("written");
    start(settings.clone()).expect("there is no earlier run");
    told(
        settings.clone(),
        &["cannot be renamed", "my.flight.previous` is not a flight recorder's file; move one of the two"],
    );
    assert_eq!(fs::read_to_string(&others).expect("it is there"), "what somebody wrote");
    fs::remove_file(&others).expect("it is the test's");
    std::os::unix::fs::symlink(&foreign, &others).expect("a link");
    told(settings, &["move one of the two"]);
    // A link that leads nowhere is somebody's who says where a file would be made.
    let (link, target) = (folder.join("link.flight"), folder.join("elsewhere"));
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    told(format!("flight=256KiB:{}", link.display()), &["a link to a file that does not exist; remove the link"]);
    assert!(!target.exists());
    // What the disk has no room for is told at the start, and nothing of it is taken.
    let large = folder.join("large.flight");
    if child::free_bytes(&folder) < 60 << 30 {
        told(
            format!("flight=64GiB:{}", large.display()),
            &["no room for its 65537 MiB", "make it smaller, or name another"],
        );
        assert!(!large.exists());
        fs::write(&large, "").expect("written");
        told(format!("flight=64GiB:{}", large.display()), &["no room"]);
        assert_eq!(fs::metadata(&large).expect("an empty file that was there stays").len(), 0);
    }
    assert!(matches!(
        Session::builder().start().expect("it starts").dump(folder.join("t.pftrace")),
        Err(Error::NoFlight)
    ));
}

#[test]
fn a_file_that_may_not_grow_so_large_is_an_error_and_ends_no_program() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        child::limit_files(100 << 10);
        let error = Session::builder()
            .budget(1.0)
            .flight_at(256 << 10, &file)
            .start()
            .expect_err("it is too large")
            .to_string();
        assert!(error.contains("there is no room for its") && error.contains("make it smaller"), "{error}");
        assert!(!Path::new(&file).exists());
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

#[test]
fn a_forked_process_ends_at_once_and_takes_nothing_away() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        std::env::set_current_dir(Path::new(&file).parent().expect("a folder")).expect("it is there");
        let builder = Session::builder().budget(1.0).flight(1 << 20).finish_timeout(LONG);
        let session = builder.start().expect("no other session");
        let stream = HostStream::new("compute");
        steps(&stream, 0..10);
        let recorder = format!("warpline-{}.flight", std::process::id());
        let begin = Instant::now();
        let session = child::forked(session, |session| {
            let report = session.finish();
            // It may have one of its own.
            let own = Session::builder().start().is_ok();
            report.begun == 0 && report.notes.iter().any(|note| note.contains("was forked")) && own
        });
        assert!(begin.elapsed() < LONG / 2 && Path::new(&recorder).exists(), "{:?}", begin.elapsed());
        let session = child::forked(session, |session| {
            drop(session);
            true
        });
        assert!(begin.elapsed() < LONG / 2 && Path::new(&recorder).exists(), "{:?}", begin.elapsed());
        steps(&stream, 10..20);
        let report = session.finish();
        assert_eq!((report.begun, report.recorded), (20, 20), "{report}");
        assert!(!Path::new(&recorder).exists(), "it is the parent's to remove");
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

#[test]
fn a_second_process_records_beside_the_first() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("another name is free");
        drop(LOAD.host());
        drop(LOAD.host());
        let report = session.finish();
        let notice = format!("another trace is being written to `{file}`; this one is written to `");
        assert!(report.notes[0].starts_with(&notice), "{report}");
        child::kill_me();
    }
    let _turn = alone();
    let file = scratch(test);
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    drop(LOAD.host());
    let child = Child::start(test, &file);
    let beside = file.with_extension(format!("{}.flight", child.id()));
    child.wait_until_killed();
    session.finish();
    assert_eq!(recovered(&file).0.zones, 1, "the other has changed nothing");
    assert_eq!(recovered(&beside).0.zones, 2);
}

#[test]
fn somebody_who_cuts_or_removes_the_file_ends_no_program() {
    let _turn = alone();
    let file = scratch("somebody_who_cuts_the_file");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..4_000);
    fs::OpenOptions::new().write(true).open(&file).expect("it is there").set_len(0).expect("it is cut");
    steps(&stream, 4_000..4_010);
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("another program truncated the flight recorder's file")),
        "{report}"
    );
    let error = recover(&mut Cursor::new(fs::read(&file).expect("it is there")), &mut Vec::new()).expect_err("cut");
    assert!(!error.to_string().is_empty());
    fs::remove_file(&file).expect("it is ours");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    fs::remove_file(&file).expect("it is there");
    steps(&stream, 0..100);
    let trace = beside(&file, "dump.pftrace");
    let found = session.dump(&trace).expect("what is written is still known");
    let gone = |problem: &String| problem.contains("was removed while it was written");
    assert!(found.zones == 100 && found.problems.iter().any(gone), "{found:?}");
    let report = session.finish();
    assert!(report.recorded == 100 && report.notes.iter().any(gone), "{report}");
    assert!(!file.exists());
}
