//! Asking for single zones: by this thread on this stream, by range, and where no mark is; with a session and without one.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, Message, ProcessGroup};
use warpline::profile::{PendingZone, ProfileError};
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, Value, profile};
use warpline_tests::{alone, in_a_process_of_its_own, in_time, this_test, threads, waker_that_calls};

warpline::range! {
    STEP = "api.profile.step": "A step.";
    MLP = "api.profile.mlp": "A part of a step.";
    LOAD = "api.profile.load": "Work with no stream.", kind = host;
    SYNC = "api.profile.sync": "A collective.", kind = collective;
    PART = "api.profile.part": "A part of several collectives.", kind = collective;
}

/// Far more than it takes on the slowest of machines.
const LONG: Duration = Duration::from_secs(20);

fn start() -> (Session, MemorySink) {
    let zones = MemorySink::new(1_000_000);
    (Session::builder().sink(zones.clone()).start().expect("no other session"), zones)
}

/// Waits for what others do.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn until_idle() {
    until("the collector has ended", || threads("warpline-profile") == 0);
}

#[test]
fn the_next_zone_of_this_thread_comes_without_a_session() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    drop(STEP.zone(&stream));
    let pending = profile::next(&stream);
    assert!(pending.try_get().is_none());
    let timed_out = pending.wait(Duration::ZERO).expect_err("none has begun");
    assert_eq!(timed_out, ProfileError::TimedOut { has_begun: false, captured: 0 });
    assert!(timed_out.to_string().contains("is the code marked"), "{timed_out}");
    {
        let step = STEP.zone(&stream).field("n", 3_u32);
        assert!(step.is_active());
        assert!(!MLP.zone(&stream).is_active(), "one zone, and no other");
        stream.launch(|| thread::sleep(Duration::from_millis(20)));
    }
    assert!(!STEP.zone(&stream).is_active());
    let zone = pending.wait(LONG).expect("the stream is sound");
    assert_eq!((zone.range.name(), zone.depth, zone.sample_share), ("api.profile.step", 0, 1.0));
    assert_eq!(zone.fields.get("n"), Some(&Value::U64(3)));
    assert!(zone.duration_ns() >= 20_000_000, "{zone:?}");
    assert_eq!(zone.stream.as_ref().expect("on a stream").name, "compute");
    let again = pending.try_get().expect("it stays").expect("as it was");
    assert_eq!(again.gpu, zone.gpu);
    drop(pending);
    until_idle();
}

#[test]
fn a_session_records_the_zone_and_answers_with_the_same_record() {
    // It counts the threads of the process.
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    until_idle();
    let stream = HostStream::new("compute");
    let (session, zones) = start();
    let pending = profile::next_n(&stream, 2);
    for _ in 0..3 {
        let _step = STEP.zone(&stream);
        drop(MLP.zone(&stream));
    }
    let asked: Vec<_> = pending.wait(LONG).into_iter().map(|zone| zone.expect("it is recorded")).collect();
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (6, 6), "{report}");
    let recorded = zones.take();
    let names: Vec<_> = asked.iter().map(|zone| zone.range.name()).collect();
    assert_eq!(
        names,
        ["api.profile.mlp", "api.profile.step"],
        "the first two that began, in the order in which they ended"
    );
    for zone in asked {
        let twin = recorded.iter().find(|twin| twin.sequence == zone.sequence).expect("it is in the session, too");
        assert_eq!((twin.gpu, twin.host, twin.depth), (zone.gpu, zone.host, zone.depth));
    }
    assert_eq!(threads("warpline-profile"), 0, "nobody but the session was needed");
}

#[test]
fn a_zone_that_the_session_leaves_out_is_timed_all_the_same() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (session, zones) = start();
    session.set_filter("!api.profile.mlp").expect("a pattern");
    let left_out = profile::next(&stream);
    drop(MLP.zone(&stream));
    session.stop();
    let stopped = profile::next(&stream);
    drop(STEP.zone(&stream));
    session.start();
    let inner = profile::range(&MLP, 1);
    {
        let _step = STEP.zone(&stream);
        drop(MLP.zone(&stream));
        drop(STEP.zone(&stream));
    }
    assert_eq!(left_out.wait(LONG).expect("it is timed").range.name(), "api.profile.mlp");
    assert_eq!(stopped.wait(LONG).expect("it is timed").range.name(), "api.profile.step");
    assert!(inner.wait(LONG)[0].is_ok());
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (2, 2), "the session has its own, and those alone: {report}");
    let mut depths: Vec<_> = zones.take().iter().map(|zone| zone.depth).collect();
    depths.sort_unstable();
    assert_eq!(depths, [0, 1], "what no session has takes no part in the nesting");
}

/// Threads that hammer one stream, and one that asks for its own zones among theirs.
fn hammer(threads: u64, rounds: u64, at_once: usize) {
    let stream = HostStream::new("hammered");
    let is_over = AtomicBool::new(false);
    let ready = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for n in 1..threads {
            let (stream, is_over, ready) = (&stream, &is_over, &ready);
            scope.spawn(move || {
                ready.wait();
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..8 {
                        drop(STEP.zone(stream).field("thread", n));
                    }
                    thread::yield_now();
                }
            });
        }
        ready.wait();
        let mut round = 0;
        while round < rounds {
            let batch = rounds.min(round + at_once as u64);
            let pending: Vec<_> = (round..batch)
                .map(|round| {
                    let pending = profile::next(&stream);
                    drop(STEP.zone(&stream).field("round", round));
                    (round, pending)
                })
                .collect();
            for (round, pending) in pending {
                let zone = pending.wait(LONG).unwrap_or_else(|error| panic!("round {round}: {error}"));
                assert_eq!(
                    zone.fields.get("round"),
                    Some(&Value::U64(round)),
                    "another zone was taken for it: {zone:?}"
                );
            }
            round = batch;
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn of_sixteen_threads_on_one_stream_each_request_gets_its_own_threads_zone() {
    let _turn = alone();
    hammer(16, 10_000, 100);
    until_idle();
}

#[test]
fn the_same_while_a_session_records_them_all() {
    let _turn = alone();
    let session = Session::builder().ring(1 << 16).start().expect("no other session");
    hammer(4, 2_000, 50);
    let report = session.finish();
    assert_eq!(report.recorded + report.dropped.total(), report.begun, "{report}");
    assert!(report.recorded >= 2_000, "{report}");
}

#[test]
fn every_thread_may_ask_at_once() {
    let _turn = alone();
    let stream = HostStream::new("shared");
    thread::scope(|scope| {
        for n in 0..8_u64 {
            let stream = &stream;
            scope.spawn(move || {
                for round in 0..200 {
                    let pending = profile::next(stream);
                    drop(STEP.zone(stream).field("thread", n).field("round", round));
                    let zone = pending.wait(LONG).expect("the stream is sound");
                    assert_eq!(zone.fields.get("thread"), Some(&Value::U64(n)));
                    assert_eq!(zone.fields.get("round"), Some(&Value::I64(round)));
                }
            });
        }
    });
}

#[test]
fn another_stream_and_another_thread_are_not_meant() {
    let _turn = alone();
    let (stream, other) = (HostStream::new("this"), HostStream::new("other"));
    let pending = profile::next(&stream);
    assert!(!STEP.zone(&other).is_active());
    assert!(!LOAD.host().is_active(), "a host zone is on no stream");
    thread::scope(|scope| {
        let others = scope.spawn(|| STEP.zone(&stream).is_active());
        assert!(!others.join().expect("it does not panic"));
    });
    assert!(pending.try_get().is_none());
    drop(MLP.zone(&stream));
    assert_eq!(pending.wait(LONG).expect("it is timed").range.name(), "api.profile.mlp");
}

#[test]
fn who_asks_twice_gets_the_zone_twice() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (first, second, range) =
        (profile::next(&stream), profile::next(&stream), profile::range("api.profile.step", 1));
    drop(STEP.zone(&stream));
    assert!(!STEP.zone(&stream).is_active());
    let (first, second) = (first.wait(LONG).expect("timed"), second.wait(LONG).expect("timed"));
    let third = range.next(LONG).expect("one is to come").expect("timed");
    assert!(first.gpu == second.gpu && second.gpu == third.gpu);
    assert!(range.next(LONG).is_none() && range.to_come() == 0);
}

#[test]
fn a_range_is_found_on_any_thread_and_any_stream() {
    let _turn = alone();
    let pending = profile::range("api.profile.mlp", 40);
    let host = profile::range(&LOAD, 1);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            scope.spawn(move || {
                let stream = HostStream::new(&format!("stream {n}"));
                for _ in 0..50 {
                    let _step = STEP.zone(&stream);
                    drop(MLP.zone(&stream));
                }
                drop(LOAD.host());
            });
        }
    });
    let zones: Vec<ZoneRecord> = pending.wait(LONG).into_iter().map(|zone| zone.expect("timed")).collect();
    assert_eq!(zones.len(), 40);
    assert!(zones.iter().all(|zone| zone.range.name() == "api.profile.mlp"));
    let host = host.wait(LONG);
    assert!(host.len() == 1 && host[0].as_ref().is_ok_and(|zone| zone.stream.is_none()), "{host:?}");
}

#[test]
fn what_is_not_there_is_said() {
    let _turn = alone();
    let error =
        |name: &str| profile::range(name, 3).wait(LONG).remove(0).expect_err("there is no such range").to_string();
    assert_eq!(
        error("api.profile.mpl"),
        "this program has no range `api.profile.mpl`; did you mean `api.profile.mlp`?"
    );
    assert_eq!(error("mlp"), "this program has no range `mlp`; did you mean `api.profile.mlp`?");
    assert_eq!(error("else.ware"), "this program has no range `else.ware`; `warpline catalog` lists those that it has");
    assert!(profile::range(&MLP, 0).wait(LONG).is_empty(), "nothing was asked for");
}

#[test]
fn dropping_the_handle_takes_the_request_back() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    drop(profile::next(&stream));
    drop(profile::range(&MLP, 5));
    assert!(!STEP.zone(&stream).is_active() && !MLP.zone(&stream).is_active());
    // From another thread, and while the zone is open.
    let pending = profile::next(&stream);
    let open = STEP.zone(&stream);
    assert!(open.is_active());
    thread::spawn(move || drop(pending)).join().expect("it does not panic");
    drop(open);
    until_idle();
    let next = profile::next(&stream);
    drop(STEP.zone(&stream));
    assert!(next.wait(LONG).is_ok(), "the next request finds all in order");
}

#[test]
fn a_stream_that_is_dropped_or_fails_answers() {
    let _turn = alone();
    let stream = HostStream::new("gone");
    let (one, several) = (profile::next(&stream), profile::next_n(&stream, 3));
    drop(STEP.zone(&stream));
    drop(stream);
    assert!(one.wait(LONG).is_ok(), "the work of a dropped stream is done first");
    let (timed, failed): (Vec<_>, Vec<_>) = several.wait(LONG).into_iter().partition(Result::is_ok);
    let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
    assert_eq!((timed.len(), failed), (1, vec![ProfileError::StreamGone]), "one answer stands for all that are left");

    let failing = HostStream::new("failing");
    let (release, wait) = mpsc::channel::<()>();
    failing.launch(move || _ = wait.recv());
    let pending = profile::next(&failing);
    drop(STEP.zone(&failing));
    let timed_out = pending.wait(Duration::from_millis(20)).expect_err("the stream is busy");
    assert_eq!(timed_out, ProfileError::TimedOut { has_begun: true, captured: 0 });
    failing.faults().fail_stream("an illegal address was used");
    drop(release);
    let error = pending.wait(LONG).expect_err("the stream has failed").to_string();
    assert!(error.contains("an illegal address was used"), "{error}");

    let refusing = HostStream::new("refusing");
    refusing.faults().fail_records(1);
    let pending = profile::next(&refusing);
    assert!(!STEP.zone(&refusing).is_active());
    assert_eq!(pending.wait(LONG).expect_err("no event"), ProfileError::EventFailed);
}

#[test]
fn a_zone_that_its_session_drops_says_why() {
    let _turn = alone();
    let stream = HostStream::new("hung");
    let session = Session::builder().finish_timeout(Duration::from_millis(50)).start().expect("no other session");
    let (release, wait) = mpsc::channel::<()>();
    stream.launch(move || _ = wait.recv());
    let pending = profile::next(&stream);
    drop(STEP.zone(&stream));
    let open = profile::next(&stream);
    let zone = STEP.zone(&stream);
    assert_eq!(session.finish().dropped.unfinished, 2);
    assert_eq!(pending.wait(LONG).expect_err("the session is over"), ProfileError::Unfinished);
    drop(zone);
    assert_eq!(open.wait(LONG).expect_err("the session is over"), ProfileError::Unfinished);
    drop(release);
}

#[test]
fn a_thread_that_ends_answers() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let pending = thread::scope(|scope| scope.spawn(|| profile::next(&stream)).join().expect("it does not panic"));
    assert_eq!(pending.wait(LONG).expect_err("it began no zone"), ProfileError::ThreadEnded);
}

#[test]
fn a_panic_in_a_mark_answers_and_one_in_the_zone_is_said() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let caught = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    let pending = profile::next(&stream);
    marked(&stream, true);
    assert_eq!(pending.wait(LONG).expect_err("it never started"), ProfileError::Unfinished);
    let pending = profile::next(&stream);
    assert!(caught(&|| {
        let _step = STEP.zone(&stream);
        panic!("on purpose");
    }));
    assert_eq!(pending.wait(LONG).expect("it is timed").status, warpline::record::Status::Panicked);
}

/// A mark whose field may panic.
#[warpline::gpu_zone("api.profile.marked", fields(n = if fails { panic!("as told") } else { 1 }))]
fn marked(stream: &HostStream, fails: bool) {
    stream.launch(|| ());
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A plain executor. Says how often it polled, too.
fn block_on<T>(future: impl Future<Output = T>) -> (T, usize) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let mut polls = 1;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return (value, polls),
            Poll::Pending => thread::park_timeout(LONG),
        }
        polls += 1;
    }
}

#[test]
fn a_handle_is_a_future_of_any_executor() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (release, wait) = mpsc::channel::<()>();
    stream.launch(move || _ = wait.recv());
    let (one, several) = (profile::next(&stream), profile::next_n(&stream, 10));
    for _ in 0..10 {
        drop(STEP.zone(&stream));
    }
    let begin = Instant::now();
    let releaser = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(release);
    });
    let (zone, polls) = block_on(one);
    assert!(zone.is_ok() && begin.elapsed() < LONG, "it was woken");
    assert!(polls >= 2, "it had to wait");
    let (zones, _) = block_on(async { several.await.into_iter().collect::<Result<Vec<_>, _>>() });
    assert_eq!(zones.expect("all are timed").len(), 10);
    releaser.join().expect("it does not panic");
    assert!(begin.elapsed() < LONG);
}

#[test]
fn unmarked_code_is_timed_where_it_stands() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let time = |session: Option<&Session>| {
        let (value, pending) = warpline::time!(&stream, {
            stream.launch(|| thread::sleep(Duration::from_millis(10)));
            drop(STEP.zone(&stream));
            "done"
        });
        let zone = pending.wait(LONG).expect("it is timed");
        assert_eq!((value, zone.range.name(), zone.range.id()), ("done", "warpline.time", None));
        assert!(zone.range.file().ends_with("profile.rs") && zone.range.line() > 0);
        assert!(zone.duration_ns() >= 10_000_000, "{zone:?}");
        assert_eq!(zone.depth, 0);
        session.is_some()
    };
    assert!(!time(None));
    let (session, zones) = start();
    assert!(time(Some(&session)));
    assert_eq!(session.finish().begun, 1, "what is timed here is in no trace");
    assert_eq!(zones.take()[0].depth, 0);
    // Who leaves early waits for nothing.
    let leave = || -> Option<PendingZone> { Some(warpline::time!(&stream, None::<()>?).1) };
    assert!(leave().is_none());
    until_idle();
}

#[test]
fn collectives_keep_their_numbers() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let message = || Message::new(CollectiveKind::AllReduce).count(8_u32).group(&group);
    let pending = profile::range(&SYNC, 1);
    let mut batch = SYNC.batch(&stream);
    batch.add(&PART, message);
    drop(batch);
    assert!(pending.wait(LONG)[0].as_ref().is_ok_and(|zone| zone.entry.is_none()), "the batch itself");
    let pending = profile::range(&SYNC, 1);
    drop(SYNC.zone(&stream).message(message()));
    let zone = pending.wait(LONG).remove(0).expect("it is timed");
    assert_eq!(zone.message.as_ref().and_then(|message| message.count), Some(8));
    assert_eq!(zone.message.as_ref().and_then(|message| message.seq), None, "only sessions count");
    let (session, zones) = start();
    drop(SYNC.zone(&stream).message(message()));
    session.finish();
    let first = zones.take()[0].message.as_ref().and_then(|message| message.seq);
    let fresh = ProcessGroup::new("dp", [0, 1], 0);
    let (session, zones) = start();
    drop(SYNC.zone(&stream).message(Message::new(CollectiveKind::AllReduce).count(8_u32).group(&fresh)));
    session.finish();
    assert_eq!(
        first,
        zones.take()[0].message.as_ref().and_then(|message| message.seq),
        "the first of a session is the first"
    );
}

#[test]
fn nothing_is_left_when_nobody_waits() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    for _ in 0..3 {
        let pending = profile::next(&stream);
        drop(STEP.zone(&stream));
        assert!(pending.wait(LONG).is_ok());
        // The answer is there; nobody has to drop the handle.
        until_idle();
        assert!(!STEP.zone(&stream).is_active());
    }
}

#[test]
fn a_zone_that_was_asked_for_may_begin_where_a_waker_is_cloned() {
    let _turn = alone();
    in_time(|| {
        let stream = Arc::new(HostStream::new("compute"));
        let mut pending = profile::range(&MLP, 2);
        let its = Arc::clone(&stream);
        let waker = waker_that_calls(move || drop(MLP.zone(&*its)));
        let mut context = Context::from_waker(&waker);
        // Its clone begins one of the zones that this waits for.
        let _ = std::pin::Pin::new(&mut pending).poll(&mut context);
        drop(MLP.zone(&*stream));
        until("both have come", || pending.to_come() == 0);
        assert!(std::pin::Pin::new(&mut pending).poll(&mut context).is_ready());
    });
}
