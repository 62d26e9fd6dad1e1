//! Several threads that use one capturing stream: what they capture has no order that anybody could rely on, but nothing breaks,
//! and every zone is accounted for. The array that says where a stream stands is the driver's own, and goes with the next call
//! for the stream; the stub driver unmaps it then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use warpline_tests::this_test;

use super::{ATTENTION, LAYER, kernel, paths};
use crate::harness::driver::*;
use crate::harness::graphs::{begin, end, register};
use crate::harness::zones::*;

#[test]
fn a_question_that_another_thread_overtakes_is_asked_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        kernel(driver, stream); // 0
        driver.stub_overtake(1);
        let zone = ATTENTION.zone(&raw(stream)); // 1, of the other thread, before the zone
        kernel(driver, stream); // 2
        driver.stub_overtake(2);
        drop(zone); // 3 and 4, of the other thread, before the end of the zone
        kernel(driver, stream); // 5
        let graph = end(driver, stream);
        assert_eq!(paths(&register(graph, 0)), ["", "", "attention", "attention", "attention", ""]);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured), (1, 1), "{report}");
    });
}

#[test]
fn a_zone_that_is_overtaken_each_time_is_counted() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        kernel(driver, stream);
        driver.stub_overtake(u64::MAX);
        drop(ATTENTION.zone(&raw(stream)));
        driver.stub_overtake(0);
        drop(LAYER.zone(&raw(stream)));
        end(driver, stream);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured, report.dropped.capture_failed), (2, 1, 1), "{report}");
    });
}

#[test]
fn threads_that_capture_with_one_stream_break_nothing() {
    const ROUNDS: usize = 300;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        begin(driver, stream);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let marks = scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let _layer = LAYER.zone(&raw(stream));
                    drop(ATTENTION.zone(&raw(stream)));
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    kernel(driver, stream);
                    drop(ATTENTION.zone(&raw(stream)));
                }
            });
            let joined = marks.join();
            is_over.store(true, Ordering::Relaxed);
            joined.expect("no panic");
        });
        let _zones = register(end(driver, stream), 0);
        let report = session.finish();
        assert_exact(&report);
        assert!(report.begun >= 2 * ROUNDS as u64, "{report}");
        assert_eq!(report.captured + report.dropped.capture_failed, report.begun, "{report}");
        assert_eq!(driver.stub_misuse(), 0);
    });
}
