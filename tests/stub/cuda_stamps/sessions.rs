//! Stamps that nobody reads: of executable graphs that outlive their session, of a session that is stopped or too slow, and of a
//! context that is gone.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use warpline::sink::{Batch, Sink};
use warpline::timing::GraphTiming;
use warpline_tests::this_test;

use super::{ATTENTION, assert_all_timed, assert_length, one_zone, stamped};
use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

/// Holds the collector in it until it is told to go on.
struct Held {
    enters: Sender<()>,
    leave: Receiver<()>,
}

impl Sink for Held {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if let Batch::Replays(_) = batch {
            let _ = self.enters.send(());
            let _ = self.leave.recv();
        }
        Ok(())
    }
}

#[test]
fn stamps_that_come_faster_than_they_are_read_are_counted_to_the_last_one() {
    on_stub(this_test!(), |driver| {
        const REPLAYS: usize = 10_000;
        driver.start();
        let ((enters, entered), (leaves, leave)) = (channel(), channel());
        let (session, sink) = start(|builder| {
            builder.graph_timing(GraphTiming::Stamps).sink(Held { enters, leave }).finish_timeout(MUCH_TO_READ)
        });
        let stream = driver.stream();
        let captured = Captured::new(driver, stream, || (0..32).for_each(|_| zone(driver, &ATTENTION, stream, 0)));
        let before = driver.stub_stamps();
        captured.launch(driver, stream, 1);
        entered.recv_timeout(Duration::from_secs(10)).expect("the collector comes to it");
        // 33 stamps each: more than the ring holds, while nobody reads it.
        captured.launch(driver, stream, REPLAYS - 1);
        drop(leaves);
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!(counts.stamps + counts.lost, driver.stub_stamps() - before, "{report}");
        assert!(counts.lost > 0 && counts.replays > 1_000, "{report}");
        // What was lost was whole replays, but for those at its border.
        assert!(counts.replays + counts.lost / 33 + 2 >= REPLAYS as u64, "{report}");
        assert_eq!(counts.replays as usize, sink.take_replays().len());
        assert!(report.to_string().contains("stamps lost"), "{report}");
        assert_eq!(counts.mixed, 0, "{report}");
    });
}

#[test]
fn an_executable_graph_that_outlives_its_session_writes_to_memory_that_is_there() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        captured.launch(driver, stream, 1);
        wait_for_replays(&sink, 1);
        session.finish();
        let (calls, stamps) = (driver.all_calls(), driver.stub_stamps());
        captured.launch(driver, stream, 100);
        assert_eq!(driver.stub_stamps() - stamps, 200);
        assert_eq!(driver.all_calls() - calls, 100, "no session, no call");
        // The next session takes what comes from now on.
        let (session, sink) = stamped();
        captured.launch(driver, stream, 3);
        let replays = wait_for_replays(&sink, 3);
        assert_length(&replays[0], &ATTENTION, 10, 1);
        let report = session.finish();
        assert_all_timed(&report);
        assert_eq!((report.graph_timing.stamps, report.graph_timing.captured), (6, 0), "{report}");
    });
}

#[test]
fn a_session_that_is_stopped_leaves_replays_out_and_takes_them_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        captured.launch(driver, stream, 2);
        wait_for_replays(&sink, 2);
        session.stop();
        // By so much the clocks may be off.
        std::thread::sleep(Duration::from_millis(20));
        captured.launch(driver, stream, 10);
        // Longer than the collector rests.
        std::thread::sleep(Duration::from_millis(300));
        assert!(sink.take_replays().is_empty());
        session.start();
        std::thread::sleep(Duration::from_millis(300));
        captured.launch(driver, stream, 3);
        wait_for_replays(&sink, 3);
        let report = session.finish();
        assert_eq!((report.graph_timing.replays, report.graph_timing.mixed), (5, 0), "{report}");
    });
}

#[test]
fn replays_that_ended_before_the_session_was_stopped_are_taken_and_later_ones_counted() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        captured.launch(driver, stream, 1);
        wait_for_replays(&sink, 1);
        // The collector has come to rest: what is made now it reads after the stop.
        std::thread::sleep(Duration::from_millis(200));
        for round in 0..5 {
            captured.launch(driver, stream, 3);
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
            // By so much the clocks may be off.
            std::thread::sleep(Duration::from_millis(20));
            session.stop();
            std::thread::sleep(Duration::from_millis(20));
            captured.launch(driver, stream, 2);
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS, "{round}");
            std::thread::sleep(Duration::from_millis(20));
            session.start();
            std::thread::sleep(Duration::from_millis(20));
        }
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!((counts.replays, counts.stopped), (16, 20), "{report}");
        assert_eq!((counts.incomplete, counts.mixed, counts.stamps), (0, 0, 52), "{report}");
        assert!(
            report.to_string().contains("20 times of replays that began while the session was stopped"),
            "{report}"
        );
    });
}

#[test]
fn a_graph_that_nobody_registers_is_counted() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = stamped();
        let stream = driver.stream();
        let graph = capture(driver, stream, GLOBAL, || zone(driver, &ATTENTION, stream, 10));
        let exec = instantiate(driver, graph);
        launch(driver, exec, stream, 4);
        let report = session.finish();
        assert!(sink.take_replays().is_empty());
        assert_eq!((report.graph_timing.unknown, report.graph_timing.replays), (8, 0), "{report}");
    });
}

#[test]
fn a_context_that_is_gone_is_asked_nothing() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let mut context = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut context, 0, 0), SUCCESS);
        let (session, sink, stream, captured) = one_zone(driver);
        captured.launch(driver, stream, 1);
        wait_for_replays(&sink, 1);
        assert_eq!(driver.cuCtxDestroy_v2(context), SUCCESS);
        std::thread::sleep(Duration::from_millis(100));
        assert_all_timed(&session.finish());
        assert_eq!(driver.stub_orphan_uses(), 0);
    });
}
