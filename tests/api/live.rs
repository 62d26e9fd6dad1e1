//! A session that stops, starts and changes what it records while the program runs: from any thread, in the middle of zones.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use warpline::catalog::Level;
use warpline::report::Report;
use warpline::sink::{Batch, Change, MemorySink, Sink};
use warpline::{HostStream, Session};
use warpline_tests::alone;

warpline::range! {
    STEP = "api.live.step": "A step.";
    MLP = "api.live.feed": "A part of a step.";
    NORM = "api.live.norm": "A small part of a step.", level = fine;
    LOAD = "api.live.load": "Work with no stream.", kind = host;
    SYNC = "api.live.sync": "What ranks match by number.", kind = collective;
}

fn memory() -> (Session, MemorySink) {
    let zones = MemorySink::new(1_000_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    (session, zones)
}

fn assert_exact(report: &Report) {
    assert_eq!(report.recorded + report.dropped.total(), report.begun, "{report}");
}

fn names(zones: &MemorySink) -> Vec<&'static str> {
    let mut names: Vec<_> = zones.take().iter().map(|zone| zone.range.name()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_session_stops_and_starts_again_with_the_same_sinks() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, zones) = memory();
    session.start();
    for _ in 0..100 {
        let whole = STEP.zone(&stream);
        session.stop();
        session.stop();
        assert!(!session.is_recording());
        let missed = MLP.zone(&stream);
        assert!(!missed.is_active());
        session.start();
        assert!(session.is_recording());
        drop(LOAD.host());
        drop(missed);
        drop(whole);
    }
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (200, 200), "what straddles a stop is whole: {report}");
    let names = names(&zones);
    assert_eq!(names.iter().filter(|name| **name == "api.live.step").count(), 100);
    assert_eq!(names.iter().filter(|name| **name == "api.live.load").count(), 100);
}

#[test]
fn any_thread_stops_and_starts_in_the_middle_of_zones() {
    const CYCLES: u64 = 200;
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, zones) = memory();
    let (is_over, active) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let step = STEP.zone(&stream);
                    let mlp = MLP.zone(&stream);
                    active.fetch_add(u64::from(step.is_active()) + u64::from(mlp.is_active()), Ordering::Relaxed);
                    drop((mlp, step));
                    std::thread::yield_now();
                }
            });
        }
        let togglers: Vec<_> = [false, true]
            .into_iter()
            .map(|stops| {
                let session = &session;
                scope.spawn(move || {
                    for _ in 0..CYCLES {
                        if stops {
                            session.stop()
                        } else {
                            session.start()
                        }
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        togglers.into_iter().for_each(|toggler| toggler.join().expect("no call panics"));
        session.start();
        is_over.store(true, Ordering::Relaxed);
    });
    // The ring may be full on a busy machine: then it is dropped, like others.
    let last = STEP.zone(&stream);
    let active = active.into_inner() + u64::from(last.is_active());
    drop(last);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.begun, active + report.dropped.ring_full, "each zone that was active, and no other");
    assert_eq!((report.recorded, report.dropped.unfinished), (active, 0), "{report}");
    assert_eq!(zones.take().len() as u64, report.recorded);
}

/// Keeps what it is told was changed of the session.
struct Told(Arc<Mutex<Vec<Change>>>);

impl Sink for Told {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if let Batch::Changes(changes) = batch {
            self.0.lock().expect("nobody panics").extend(changes.iter().map(|change| change.what.clone()));
        }
        Ok(())
    }
}

#[test]
fn stops_and_starts_of_two_threads_are_told_as_they_were_made() {
    // No more than wait for the sinks, and so often that the two meet.
    const EACH: usize = 500;
    const SESSIONS: usize = 40;
    let _turn = alone();
    for _ in 0..SESSIONS {
        let told = Arc::new(Mutex::new(Vec::new()));
        let session = Session::builder().sink(Told(Arc::clone(&told))).start().expect("no other session");
        let there = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for is_stop in [true, false] {
                let (session, there) = (&session, &there);
                scope.spawn(move || {
                    there.fetch_add(1, Ordering::Relaxed);
                    // Not a barrier: the one that it wakes comes when the other is through.
                    while there.load(Ordering::Relaxed) < 2 {
                        std::thread::yield_now();
                    }
                    for _ in 0..EACH {
                        if is_stop { session.stop() } else { session.start() }
                    }
                });
            }
        });
        let is_recording = session.is_recording();
        session.finish();
        let told = told.lock().expect("nobody panics");
        assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "a stop and a start in turn: {told:?}");
        assert_eq!(told.last().is_none_or(|last| *last == Change::Started), is_recording);
    }
}

#[test]
fn filters_and_levels_change_while_zones_begin() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, zones) = memory();
    let once = |session: &Session| {
        [&STEP, &MLP, &NORM].into_iter().for_each(|range| drop(range.zone(&stream)));
        drop(LOAD.host());
        // What the sinks have by now is not all that there will be, so each look is at a count of its own.
        let active = [&STEP, &MLP, &NORM].map(|range| range.zone(&stream).is_active());
        assert!(session.is_recording());
        (active, LOAD.host().is_active())
    };
    assert_eq!(once(&session), ([true, true, true], true));
    session.set_filter("api.live.*,!api.live.feed").expect("patterns");
    assert_eq!(once(&session), ([true, false, true], true));
    session.set_level(Level::Coarse);
    assert_eq!(once(&session), ([true, false, false], true));
    session.set_filter("").expect("all");
    assert_eq!(once(&session), ([true, true, false], true));
    session.set_level(Level::Fine);
    session.set_filter(" api.live.norm ").expect("a pattern");
    assert_eq!(once(&session), ([false, false, true], false));
    let error = session.set_filter("api.live.*,Live").expect_err("no pattern").to_string();
    assert!(error.contains("`filter=Live`") && error.ends_with("write `filter=live`"), "{error}");
    assert_eq!(once(&session), ([false, false, true], false), "an error changes nothing");
    session.set_filter("").expect("all");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.recorded, 2 * (4 + 3 + 2 + 3 + 1 + 1), "{report}");
    assert_eq!(names(&zones).len() as u64, report.recorded);
    drop(NORM.zone(&stream));
}

#[test]
fn filters_change_under_load_and_no_zone_is_lost_or_made_up() {
    let _turn = alone();
    let (session, zones) = memory();
    let (is_over, active) = (AtomicBool::new(false), AtomicU64::new(0));
    let ready = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let stream = HostStream::new("compute");
                ready.wait();
                while !is_over.load(Ordering::Relaxed) {
                    for range in [&STEP, &MLP, &NORM] {
                        active.fetch_add(u64::from(range.zone(&stream).is_active()), Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        ready.wait();
        for round in 0..300 {
            session.set_filter(["", "api.live.feed", "!api.live.feed", "none.*"][round % 4]).expect("patterns");
            session.set_level([Level::Fine, Level::Coarse][round / 4 % 2]);
            session.set_sample([1.0, 0.5, 0.01][round % 3]).expect("a share");
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let report = session.finish();
    assert_exact(&report);
    let active = active.into_inner();
    assert_eq!((report.begun - report.dropped.ring_full, report.recorded), (active, active), "{report}");
    for zone in zones.take() {
        assert!(zone.sample_share > 0.0 && zone.sample_share <= 1.0, "{}", zone.sample_share);
    }
}

#[test]
fn a_change_of_the_sample_does_not_concern_zones_that_were_drawn_before_it() {
    let _turn = alone();
    let zones = MemorySink::new(1_000);
    let session = Session::builder().sample(0.5).sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("compute");
    let drawn = std::iter::repeat_with(|| warpline::__private::begin(&STEP)).flatten().next().expect("one of two");
    session.set_sample(0.01).expect("a share");
    drop(drawn.on(&stream).expect("a slot").start());
    session.finish();
    let [zone] = &zones.take()[..] else { panic!("one zone") };
    assert!((zone.sample_share - 0.5).abs() < 1e-3, "{}", zone.sample_share);
}

#[test]
fn a_sample_is_unbiased_changes_while_recording_and_leaves_collectives_whole() {
    const EACH: u64 = 20_000;
    let _turn = alone();
    let zones = MemorySink::new(1_000_000);
    let builder = Session::builder().ring(1 << 16).sample(0.1).sink(zones.clone());
    let session = builder.start().expect("no other session");
    let stream = HostStream::new("compute");
    let begin = Instant::now();
    for share in [0.1, 0.5, 1.0] {
        session.set_sample(share).expect("a share");
        for _ in 0..EACH {
            drop(STEP.zone(&stream));
        }
        (0..10).for_each(|_| drop(SYNC.zone(&stream)));
        // The ring has room for all of one share.
        stream.synchronize().expect("nothing panics");
    }
    for share in [0.0, 1.1, f64::NAN] {
        let error = session.set_sample(share).expect_err("no share").to_string();
        assert!(error.contains("a sample is a share of each range's zones"), "{error}");
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.dropped.total(), 0, "in {:?}: {report}", begin.elapsed());
    assert_eq!(report.not_sampled, 3 * EACH + 30 - report.begun);
    let of = |name: &str| report.ranges.iter().find(|range| range.name == name).expect("it came by");
    assert_eq!((of("api.live.sync").count, of("api.live.sync").seen), (30, 30));
    assert_eq!(of("api.live.step").seen, 3 * EACH);
    let steps = zones.take();
    let steps = steps.iter().filter(|zone| zone.range.name() == "api.live.step");
    let mut shares = [0_u64; 3];
    for zone in steps.clone() {
        shares[[0.1_f32, 0.5, 1.0]
            .iter()
            .position(|share| (share - zone.sample_share).abs() < 1e-3)
            .expect("one of them")] += 1;
    }
    assert!((1_700..2_300).contains(&shares[0]), "{shares:?} of {EACH} each");
    assert!((9_500..10_500).contains(&shares[1]) && shares[2] == EACH, "{shares:?} of {EACH} each");
    let estimate: f64 = steps.map(|zone| 1.0 / f64::from(zone.sample_share)).sum();
    assert!((0.9..1.1).contains(&(estimate / (3 * EACH) as f64)), "{estimate}");
    assert!(Session::builder().sample(2.0).start().is_err());
}

#[test]
fn a_budget_does_not_undo_a_filter() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let zones = MemorySink::new(1_000_000);
    let session =
        Session::builder().budget(1.0).filter("!api.live.feed").sink(zones.clone()).start().expect("no other");
    let begin = Instant::now();
    // The budget adjusts the chances several times meanwhile.
    while begin.elapsed().as_millis() < 300 {
        drop(MLP.zone(&stream));
        drop(STEP.zone(&stream));
        std::thread::yield_now();
    }
    session.set_filter("api.live.feed").expect("a pattern");
    let before = names(&zones);
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 300 {
        drop(MLP.zone(&stream));
        std::thread::yield_now();
    }
    let report = session.finish();
    assert_exact(&report);
    assert!(!before.is_empty() && !before.contains(&"api.live.feed"));
    assert!(
        names(&zones).contains(&"api.live.feed"),
        "a range that was left out at the start is sampled as others are"
    );
}

#[test]
fn a_session_that_is_off_takes_all_of_it_and_does_nothing() {
    let _turn = alone();
    let session = Session::builder().settings("off").expect("a setting").start().expect("off");
    session.start();
    session.set_level(Level::Coarse);
    session.set_filter("api.live.*").expect("a pattern");
    session.set_sample(0.5).expect("a share");
    assert!(!session.is_recording());
    assert_eq!(session.finish().begun, 0);
}
