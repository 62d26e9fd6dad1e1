//! `testing::record`, and handles of in-process streams that tests share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warpline::{HostStream, Session, testing};
use warpline_tests::alone;

warpline::range! {
    OUTER = "api.testing.outer": "A zone around another.";
    INNER = "api.testing.inner": "A zone in another.";
}

fn nested(stream: &HostStream, label: usize) {
    let _outer = OUTER.zone(stream).label(label);
    drop(INNER.zone(stream).label(label));
}

#[test]
fn tests_that_record_side_by_side_get_their_own_zones_in_the_order_of_their_begin() {
    let _turn = alone();
    std::thread::scope(|scope| {
        for test in 0..4 {
            scope.spawn(move || {
                let stream = HostStream::new("compute");
                let zones = testing::record(|| {
                    (0..3).for_each(|_| nested(&stream, test));
                    stream.launch(|| std::thread::sleep(Duration::from_millis(5)));
                });
                let said: Vec<_> = zones.iter().map(|zone| (zone.range.name(), zone.fields.label())).collect();
                let label = test.to_string();
                let step = [("api.testing.outer", Some(&*label)), ("api.testing.inner", Some(&*label))];
                assert_eq!(said, step.repeat(3));
                assert!(zones.iter().all(|zone| zone.gpu.is_some()), "{zones:?}");
            });
        }
    });
}

#[test]
fn a_test_that_panics_takes_no_turn_of_others_and_a_session_that_runs_is_named() {
    let _turn = alone();
    let panics = |work: &mut dyn FnMut()| {
        let panic = catch_unwind(AssertUnwindSafe(|| testing::record(work))).expect_err("it panics");
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
    };
    assert_eq!(panics(&mut || panic!("a test fails")), "a test fails");
    let inside = panics(&mut || drop(testing::record(|| ())));
    assert!(inside.contains("is called inside of itself: call it once"), "{inside}");
    let session = Session::builder().start().expect("no other session");
    let running = panics(&mut || ());
    assert!(
        running.contains("cannot start a session: ") && running.contains("only through `testing::record`"),
        "{running}"
    );
    session.finish();
    assert_eq!(testing::record(|| nested(&HostStream::new("compute"), 0)).len(), 2);
}

#[test]
fn a_clone_of_a_stream_is_the_same_stream_and_the_last_handle_waits() {
    let _turn = alone();
    let stream = HostStream::new("shared");
    let zones = testing::record(|| {
        let clone = stream.clone();
        let worker = std::thread::spawn(move || nested(&clone, 1));
        worker.join().expect("it ends");
        nested(&stream, 2);
    });
    let ids: Vec<_> = zones.iter().map(|zone| zone.stream.as_ref().map(|stream| (stream.id, &*stream.name))).collect();
    assert_eq!(ids, [ids[0]; 4]);
    assert!(ids[0].is_some_and(|(_, name)| name == "shared"));

    static DONE: AtomicUsize = AtomicUsize::new(0);
    let clone = stream.clone();
    let work = || {
        std::thread::sleep(Duration::from_millis(50));
        DONE.fetch_add(1, Ordering::SeqCst);
    };
    stream.launch(work);
    drop(stream);
    clone.launch(work);
    assert_eq!((clone.name(), clone.is_idle()), ("shared", false));
    drop(clone);
    assert_eq!(DONE.load(Ordering::SeqCst), 2, "the last handle waits for both");
    // A closure may have the last handle of its own stream.
    let (sent, received) = std::sync::mpsc::channel();
    let own = HostStream::new("own");
    let last = own.clone();
    own.launch(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(last);
        sent.send(()).expect("the test waits");
    });
    drop(own);
    received.recv_timeout(Duration::from_secs(20)).expect("the worker goes on");
}
