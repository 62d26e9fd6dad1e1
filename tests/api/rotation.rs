//! Traces in files that follow one another: each complete in itself, the oldest removed, every zone accounted for; and what
//! was changed of a session, in its traces.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{env, fs, io};

use warpline::catalog::Level;
use warpline::report::{Report, SinkReport};
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, host_zone};
use warpline_tests::{alone, in_a_process_of_its_own, names, resident_bytes, this_test};

use crate::child;
use crate::trace::{self, Slice, slices};

warpline::range! {
    STEP = "api.rotation.step": "A step.";
    LOAD = "api.rotation.load": "Work with no stream.", kind = host, lane = "loads";
}

/// A folder for a test, with nothing in it.
fn folder(test: &str) -> PathBuf {
    warpline_tests::empty_folder(&format!("rotation-{test}"))
}

fn steps(stream: &HostStream, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let zone = STEP.zone(stream).field("n", n).label("the label of a step");
        stream.launch(|| ());
        drop(zone);
        if n % 256 == 255 {
            stream.synchronize().expect("nothing panics");
            drop(LOAD.host().field("n", n));
        }
    }
}

fn numbers(slices: &[Slice], name: &str) -> Vec<u64> {
    slices.iter().filter(|slice| slice.name == name).filter_map(|slice| slice.argument("n")?.parse().ok()).collect()
}

fn rotated(report: &Report) -> &SinkReport {
    report.sinks.iter().find(|sink| sink.name.starts_with("perfetto=")).expect("the trace is a sink")
}

#[test]
fn each_file_is_complete_in_itself_and_the_account_is_exact() {
    const ZONES: u64 = 20_000;
    let _turn = alone();
    let folder = folder("complete");
    let settings = format!("perfetto={}/trace.pftrace,rotate=256KiB,keep=4,ring=100000", folder.display());
    let session = Session::builder().settings(&settings).expect("settings").start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..ZONES);
    let report = session.finish();
    let loads = ZONES / 256;
    assert_eq!((report.recorded, report.begun), (ZONES + loads, ZONES + loads), "{report}");
    let SinkReport { taken, lost, errors, kept, .. } = rotated(&report);
    assert_eq!((*taken, *lost, *errors), (ZONES + loads, 0, 0), "{report}");
    assert_eq!(kept.files.len(), 4);
    let there: u64 = kept.files.iter().map(|file| file.zones).sum();
    assert_eq!(there + kept.removed_zones, ZONES + loads, "what is there and what made room");
    let first = kept.removed + 1;
    let expected: Vec<_> = (first..first + 4).map(|number| format!("trace.{number:04}.pftrace")).collect();
    assert_eq!(names(&folder), expected);
    let mut next = None;
    let mut before = kept.removed_zones;
    for (index, file) in kept.files.iter().enumerate() {
        let bytes = fs::read(&file.path).expect("it is there");
        assert_eq!(bytes.len() as u64, file.bytes);
        assert!(bytes.len() <= 256 << 10, "{} bytes", bytes.len());
        // The reader panics where a file refers to what another one says.
        let slices = slices(&bytes);
        let steps = numbers(&slices, "api.rotation.step");
        assert_eq!(
            (steps.len() + numbers(&slices, "api.rotation.load").len()) as u64,
            file.zones,
            "{}",
            file.path.display()
        );
        assert!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "no hole in a file");
        assert!(next.is_none_or(|next| next == steps[0]), "no hole between files");
        next = steps.last().map(|last| last + 1);
        let said = |what: &str, name: &str| {
            let instant = format!("piece {} {what}", first + index as u64);
            let slice = slices.iter().find(|slice| slice.name == instant).unwrap_or_else(|| panic!("no `{instant}`"));
            slice.argument(name).map(str::to_owned)
        };
        assert_eq!(said("begins", "zones.before"), Some(before.to_string()));
        assert_eq!(said("ends", "zones.in_it"), Some(file.zones.to_string()));
        assert!(said("begins", "catalog_hash").is_some() && said("ends", "until_then.recorded").is_some());
        before += file.zones;
        assert_eq!(slices.iter().any(|slice| slice.name == "session ends"), index == 3);
    }
    assert_eq!(next, Some(ZONES));
    let files: Vec<_> = kept.files.iter().map(|file| fs::read(&file.path).expect("it is there")).collect();
    trace::keep_for_gate("rotated_first", &files[0]);
    trace::keep_for_gate("rotated_last", &files[3]);
    trace::keep_for_gate("rotated_all", &files.concat());
    assert!(report.to_string().contains("4 files with the last"), "{report}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn what_a_session_writes_stays_where_it_began_when_the_program_goes_to_another_folder() {
    let test = this_test!();
    // The folder belongs to the whole process.
    if let Some(own) = child::when_killed(test) {
        let own = Path::new(&own);
        let other = own.with_extension("other");
        fs::create_dir_all(own).and_then(|()| fs::create_dir_all(&other)).expect("folders");
        env::set_current_dir(own).expect("it is there");
        let settings = "perfetto=trace.pftrace,rotate=64KiB,keep=2,ring=100000,flight=256KiB";
        let session = Session::builder().settings(settings).expect("settings").start().expect("no other session");
        let recorder = format!("warpline-{}.flight", std::process::id());
        assert!(own.join(&recorder).exists());
        env::set_current_dir(&other).expect("it is there");
        steps(&HostStream::new("compute"), 0..2_000);
        std::thread::spawn(|| panic!("as the test asks")).join().expect_err("it has panicked");
        let report = session.finish();
        let SinkReport { lost, errors, kept, .. } = rotated(&report);
        assert_eq!((*lost, *errors, kept.files.len()), (0, 0, 2), "{report}");
        assert!(kept.removed > 0 && kept.files.iter().all(|file| file.path.parent() == Some(own)), "{report}");
        let mut expected: Vec<_> =
            kept.files.iter().filter_map(|file| file.path.file_name()?.to_str().map(str::to_owned)).collect();
        expected.push(format!("{recorder}.panic.pftrace"));
        assert_eq!(names(own), expected, "the recorder's file goes with the session");
        assert!(names(&other).is_empty());
        child::kill_me();
    }
    let own = child::scratch(test);
    child::Child::start(test, &own).wait_until_killed();
}

#[test]
fn no_file_is_touched_that_the_session_has_not_made() {
    let _turn = alone();
    let folder = folder("others");
    let others = [
        "trace.0007.pftrace",
        "trace.pftrace",
        "trace.0001.json",
        "other.0001.pftrace",
        "trace.12.pftrace.gz",
        "trace.x.pftrace",
    ];
    for other in others {
        fs::write(folder.join(other), other).expect("written");
    }
    let start = || {
        let builder = Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).keep(1).ring(100_000);
        builder.start().expect("no other session")
    };
    let stream = HostStream::new("compute");
    let session = start();
    steps(&stream, 0..2_000);
    let first = session.finish();
    let file = &rotated(&first).kept.files[0];
    assert!(file.path > folder.join("trace.0008.pftrace"), "it goes on behind what is there: {}", file.path.display());
    // Somebody puts another file in the place of the current one: it is not removed when its turn comes.
    let session = start();
    let current = names(&folder).into_iter().rfind(|name| name.starts_with("trace.00")).expect("it is there");
    fs::rename(folder.join(&current), folder.join("saved")).expect("it is there");
    fs::write(folder.join(&current), "somebody's").expect("written");
    steps(&stream, 0..2_000);
    let second = session.finish();
    assert!(rotated(&second).kept.removed > 1, "{second}");
    assert_eq!(fs::read_to_string(folder.join(&current)).expect("it is there"), "somebody's");
    assert!(fs::metadata(folder.join("saved")).expect("it is there").len() > 32 << 10);
    for other in others {
        assert_eq!(fs::read_to_string(folder.join(other)).expect("it is there"), other);
    }
    assert!(file.path.exists(), "what an earlier session has left stays");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn an_empty_file_that_a_killed_process_has_left_is_used_and_costs_no_other() {
    let _turn = alone();
    let folder = folder("left_empty");
    for number in 1..=3 {
        fs::write(folder.join(format!("trace.000{number}.pftrace")), "of an earlier run").expect("written");
    }
    let empty = folder.join("trace.0004.pftrace");
    fs::write(&empty, "").expect("written");
    let builder = || Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).keep(2);
    let error = builder().flight_at(256 << 10, folder.join("none/my.flight")).start().expect_err("no folder");
    assert!(
        names(&folder).len() == 3 && !empty.exists(),
        "of a session that does not start, only traces stay: {error}"
    );
    fs::write(&empty, "").expect("written");
    let session = builder().start().expect("no other session");
    steps(&HostStream::new("compute"), 0..10);
    let report = session.finish();
    let kept = &rotated(&report).kept;
    assert_eq!((kept.files.len(), kept.removed), (1, 0), "{report}");
    assert_eq!(kept.files[0].path, empty);
    assert_eq!(names(&folder).len(), 4);
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_complete_file_that_somebody_takes_counts_as_removed() {
    let _turn = alone();
    let folder = folder("taken");
    let builder = Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).keep(100).ring(100_000);
    let session = builder.start().expect("no other session");
    steps(&HostStream::new("compute"), 0..2_000);
    wait_for_piece(&folder, 2);
    fs::remove_file(folder.join("trace.0001.pftrace")).expect("it is there");
    let report = session.finish();
    let SinkReport { taken, lost, errors, kept, .. } = rotated(&report);
    assert_eq!((*taken, *lost, *errors, kept.removed), (report.recorded, 0, 0, 1), "{report}");
    let there: u64 = kept.files.iter().map(|file| file.zones).sum();
    assert_eq!(there + kept.removed_zones, *taken, "{report}");
    assert!(kept.removed_zones > 0 && kept.files.iter().all(|file| file.path.exists()), "{report}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_complete_file_that_somebody_cuts_counts_as_lost() {
    let _turn = alone();
    let folder = folder("cut");
    let builder = Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).keep(100).ring(100_000);
    let session = builder.start().expect("no other session");
    steps(&HostStream::new("compute"), 0..2_000);
    wait_for_piece(&folder, 2);
    let first = folder.join("trace.0001.pftrace");
    fs::OpenOptions::new().write(true).open(&first).and_then(|file| file.set_len(100)).expect("it is there");
    let report = session.finish();
    let SinkReport { taken, lost, first_error, kept, .. } = rotated(&report);
    assert!(*lost > 0 && *taken > 0 && taken + lost == report.recorded, "{report}");
    let error = "trace.0001.pftrace` was truncated or written to by another program after it was complete: its records are lost";
    assert!(first_error.as_deref().is_some_and(|first| first.contains(error)), "{report}");
    let there: u64 = kept.files.iter().map(|file| file.zones).sum();
    assert_eq!((there, kept.removed, kept.removed_zones), (*taken, 0, 0), "{report}");
    assert!(kept.files.iter().all(|file| file.path != first), "{report}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Waits until there is the file of this number, or a later one.
fn wait_for_piece(folder: &Path, number: usize) {
    let begin = std::time::Instant::now();
    let name = format!("trace.{number:04}.pftrace");
    while names(folder).last().is_none_or(|last| *last < name) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no `{name}`");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_process_that_is_killed_while_it_changes_files_leaves_as_many_that_can_be_read_as_it_was_to_keep() {
    const KEEP: usize = 2;
    let test = this_test!();
    if let Some(folder) = child::when_killed(test) {
        let path = Path::new(&folder).join("trace.pftrace");
        let builder = Session::builder().perfetto(path).rotate(64 << 10).keep(KEEP).ring(100_000);
        let _session = builder.start().expect("no other session");
        let stream = HostStream::new("compute");
        loop {
            steps(&stream, 0..256);
        }
    }
    let program = env::current_exe().expect("the test's own path");
    let program = program.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    for round in 0..20 {
        let folder = folder("killed");
        let child = child::Child::start(test, &folder);
        wait_for_piece(&folder, KEEP + 1 + round % 5);
        child.kill();
        let files: Vec<_> =
            names(&folder).iter().map(|name| fs::read(folder.join(name)).expect("it is there")).collect();
        // What a reader needs first stands in the first write of a file.
        let can_be_read = |bytes: &&Vec<u8>| bytes.windows(program.len()).any(|part| part == program.as_bytes());
        let (readable, all) = (files.iter().filter(can_be_read).count(), files.len());
        assert!((KEEP..=KEEP + 1).contains(&readable) && all <= KEEP + 1, "round {round}: {readable} of {all}");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}

#[test]
fn a_folder_that_goes_away_costs_records_and_says_so() {
    let _turn = alone();
    let folder = folder("gone");
    let builder = Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).keep(2).ring(100_000);
    let session = builder.start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..256);
    fs::remove_dir_all(&folder).expect("it is ours");
    steps(&stream, 256..4_000);
    let report = session.finish();
    let SinkReport { taken, lost, errors, first_error, kept, .. } = rotated(&report);
    assert_eq!(report.recorded, report.begun, "{report}");
    assert_eq!(taken + lost, report.recorded);
    assert!(*lost > 0 && *errors > 0 && first_error.is_some(), "{report}");
    let there: u64 = kept.files.iter().map(|file| file.zones).sum();
    assert_eq!(there + kept.removed_zones, *taken, "each that it has taken is in a file, or was");
    let error =
        Session::builder().perfetto(folder.join("trace.pftrace")).rotate(64 << 10).start().expect_err("no folder");
    assert!(error.to_string().contains("choose another path"), "{error}");
}

/// Fields and labels are cut, and the text of an error is not.
#[host_zone(LOAD, err)]
fn fails_at_length() -> Result<(), String> {
    Err("x".repeat(300_000))
}

#[test]
fn a_record_that_fits_into_no_file_is_lost_alone() {
    let _turn = alone();
    let folder = folder("large");
    let settings = "perfetto={}/trace.pftrace,rotate=64KiB,flight=256KiB:{}/my.flight,ring=100000"
        .replace("{}", folder.to_str().expect("UTF-8"));
    let session = Session::builder().settings(&settings).expect("settings").start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..100);
    let large = ["api.rotation.*".to_owned(), vec!["n".repeat(150); 2_000].join(",")].join(",");
    for _ in 0..3 {
        // A change is no record, and in no count.
        session.set_filter(&large).expect("patterns");
        fails_at_length().expect_err("it fails");
        session.set_level(Level::Fine);
    }
    steps(&stream, 100..200);
    let report = session.finish();
    for sink in &report.sinks {
        let SinkReport { name, taken, lost, errors, first_error, kept, .. } = sink;
        assert_eq!((*taken, *lost, kept.files.len(), kept.removed), (200, 3, 1, 0), "{name}: {report}");
        assert_eq!(kept.files[0].zones, 200, "{name}: {report}");
        assert!(*errors > 0, "{name}: {report}");
        let said = "a record is larger than a whole piece; make the pieces larger";
        assert!(first_error.as_deref().is_some_and(|error| error.contains(said)), "{name}: {report}");
    }
    let trace = slices(&fs::read(&rotated(&report).kept.files[0].path).expect("it is there"));
    assert_eq!(numbers(&trace, "api.rotation.step"), (0..200).collect::<Vec<_>>());
    assert_eq!(trace.iter().filter(|slice| slice.name == "level changed").count(), 3);
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// A sink that says when the first zones have come, and then waits until it may go on.
struct Holds(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Sink for Holds {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if !batch.zones().is_empty() && self.0.send(()).is_ok() {
            let _ = self.1.recv();
        }
        Ok(())
    }
}

#[test]
fn what_was_changed_of_a_session_is_in_its_traces() {
    let _turn = alone();
    let folder = folder("changes");
    let settings = "perfetto={}/trace.pftrace,chrome={}/trace.json,flight=4MiB:{}/my.flight"
        .replace("{}", folder.to_str().expect("UTF-8"));
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let holds = Holds(entered, may_leave);
    let builder = Session::builder().settings(&settings).expect("settings").sink(holds);
    let session = builder.start().expect("no other session");
    // The collector takes nothing meanwhile, however slow this thread is.
    steps(&HostStream::new("compute"), 0..1);
    has_entered.recv().expect("the zone comes to the sink");
    let change = || {
        session.start();
        session.stop();
        session.stop();
        session.start();
        session.set_filter("api.rotation.*, !api.rotation.load").expect("patterns");
        session.set_filter("Rotation").expect_err("no pattern");
        session.set_level(Level::Coarse);
        session.set_sample(0.5).expect("a share");
    };
    std::thread::scope(|scope| {
        std::thread::Builder::new().name("operator".to_owned()).spawn_scoped(scope, change).expect("a thread");
    });
    // More than anybody waits for: the first ones, how many, and the last one are there.
    (0..5_000).for_each(|_| session.set_level(Level::Fine));
    drop(leave);
    drop(session.finish());
    let expected = [
        ("session stopped", None),
        ("session started", None),
        ("filter changed", Some(("filter", "api.rotation.*,!api.rotation.load"))),
        ("level changed", Some(("level", "coarse"))),
        ("sample changed", Some(("sample", "0.5"))),
    ];
    let mut flight = Vec::new();
    warpline::recovery::recover(&mut fs::File::open(folder.join("my.flight")).expect("it is there"), &mut flight)
        .expect("a trace");
    for bytes in [fs::read(folder.join("trace.pftrace")).expect("it is there"), flight] {
        trace::keep_for_gate("changes", &bytes);
        let slices = slices(&bytes);
        let changes: Vec<_> = slices.iter().filter(|slice| slice.argument("thread_id").is_some()).collect();
        for (change, (name, says)) in changes.iter().zip(expected) {
            assert_eq!((change.name.as_str(), change.argument("thread")), (name, Some("operator")));
            assert!(says.is_none_or(|(name, value)| change.argument(name) == Some(value)), "{change:?}");
        }
        assert!(changes.len() > 1_000 && changes.len() < 5_005, "{}", changes.len());
        let more: u64 = changes.iter().filter_map(|change| change.argument("count")?.parse::<u64>().ok()).sum();
        let said = changes.iter().filter(|change| change.name != "more changes").count() as u64;
        assert_eq!(said + more, 5 + 5_000, "each change is told or counted");
    }
    let chrome = fs::read(folder.join("trace.json")).expect("it is there");
    let chrome: serde_json::Value = serde_json::from_slice(&chrome).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    for (name, says) in expected {
        let event = events.iter().find(|event| event["name"] == name).unwrap_or_else(|| panic!("no `{name}`"));
        assert_eq!(
            (&event["ph"], &event["s"], &event["args"]["thread"]),
            (&"i".into(), &"p".into(), &"operator".into())
        );
        assert!(says.is_none_or(|(name, value)| event["args"][name] == value), "{event}");
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Counts what is recorded on streams, so that the run goes no faster than it is.
#[derive(Clone, Default)]
struct Recorded(Arc<AtomicU64>);

impl Sink for Recorded {
    fn write(&mut self, batch: Batch<'_>) -> std::io::Result<()> {
        let on_stream = batch.zones().iter().filter(|record| record.stream.is_some()).count();
        self.0.fetch_add(on_stream as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// A long run through rotation and the flight recorder: memory is flat, what is kept is the newest without a hole, every
/// part of the run is recorded alike, and every zone is accounted for.
fn long_run(zones: u64, rotate: &str, flight: &str) {
    const RING: u64 = 16_384;
    let _turn = alone();
    let folder = folder("long");
    let settings = format!(
        "perfetto={0}/trace.pftrace,rotate={rotate},keep=3,flight={flight}:{0}/my.flight,ring={RING}",
        folder.display()
    );
    let is_recorded = Recorded::default();
    let builder = Session::builder().settings(&settings).expect("settings").sink(is_recorded.clone());
    let session = builder.start().expect("no other session");
    let stream = HostStream::new("compute");
    let begin = std::time::Instant::now();
    let (mut resident, mut recorded) = (Vec::new(), Vec::new());
    for part in 0..20 {
        let all = zones / 20 * part..zones / 20 * (part + 1);
        for first in all.clone().step_by(1_024) {
            steps(&stream, first..(first + 1_024).min(all.end));
            while first.saturating_sub(is_recorded.0.load(Ordering::Relaxed)) > RING / 4 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        // What is still on its way would count for the next part.
        let give_up = std::time::Instant::now() + Duration::from_secs(60);
        while is_recorded.0.load(Ordering::Relaxed) < all.end && std::time::Instant::now() < give_up {
            std::thread::sleep(Duration::from_micros(200));
        }
        let found = session.dump(folder.join("part.pftrace")).expect("it is written");
        assert_eq!(found.damaged, 0, "{found:?}");
        resident.push(resident_bytes());
        recorded.push(found.zones_before + found.zones);
    }
    let took = begin.elapsed();
    let report = session.finish();
    let all = zones + zones / 256;
    assert_eq!((report.begun, report.recorded, report.dropped.total()), (all, all, 0), "{report}");
    for sink in report.sinks.iter().filter(|sink| !sink.kept.files.is_empty()) {
        let there: u64 = sink.kept.files.iter().map(|file| file.zones).sum();
        assert_eq!((sink.lost, sink.errors), (0, 0), "{report}");
        assert_eq!(there + sink.kept.removed_zones, report.recorded, "{}: {report}", sink.name);
    }
    // Alike: each part of the run has its share of what is recorded.
    let shares: Vec<f64> = (0..20)
        .map(|part| (recorded[part] - if part == 0 { 0 } else { recorded[part - 1] }) as f64 / (all as f64 / 20.0))
        .collect();
    let (least, most) = (shares.iter().copied().fold(f64::MAX, f64::min), shares.iter().copied().fold(0.0, f64::max));
    println!(
        "{all} zones in {:.1} s, {} recorded, {} dropped; a part of the run has {least:.4} to {most:.4} of its zones; resident MiB {:?}",
        took.as_secs_f64(),
        report.recorded,
        report.dropped.total(),
        resident.iter().map(|bytes| bytes >> 20).collect::<Vec<_>>(),
    );
    println!("{report}");
    // The first half fills what the session keeps, which is bounded: files, rings, and the zones of the critical path.
    let (early, late) = (resident[10..15].iter().max().expect("some"), resident[15..].iter().max().expect("some"));
    assert!(late.saturating_sub(*early) < 6 << 20, "resident memory grew: {resident:?}");
    assert!(least > 0.95 && most < 1.05, "some part of the run is missing: {shares:?}");
    // What is kept is the newest.
    let mut last = Vec::new();
    for file in &rotated(&report).kept.files {
        last.extend(numbers(&slices(&fs::read(&file.path).expect("it is there")), "api.rotation.step"));
    }
    assert!(last.is_sorted(), "in the order in which they ran");
    assert!(last.last().is_some_and(|last| *last > zones - zones / 20));
    assert_eq!(last[last.len() - 1] - last[0] + 1, last.len() as u64, "with no hole");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_long_run_keeps_its_newest_zones_in_flat_memory() {
    if in_a_process_of_its_own(this_test!()) {
        long_run(400_000, "512KiB", "1MiB");
    }
}

/// `cargo test --release -p warpline-tests --test rotation -- --ignored --nocapture`
#[test]
#[ignore = "thirty million zones take minutes"]
fn thirty_million_zones_keep_their_newest_in_flat_memory() {
    if in_a_process_of_its_own(this_test!()) {
        long_run(30_000_000, "256MiB", "64MiB");
    }
}
