//! What a flight recorder leaves where a thread panics, and what its hook does in a program with hooks of its own.

use std::fs;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use warpline::{HostStream, Session};
use warpline_tests::this_test;

use super::{HUNG, LOAD, LONG, OUTER, beside, numbers, open, read, recovered, steps};
use crate::child::{self, Child, scratch, when_killed};
use crate::trace;

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
        assert!(what.argument("at").is_some_and(|at| at.contains("panics.rs:")), "{what:?}");
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
