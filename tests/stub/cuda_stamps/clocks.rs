//! The clock of a device with stamps: when it is compared, and where it places replays and, with the events that join it, zones.

use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// How long a stream is busy while more is put on it.
const BUSY_US: u64 = 20_000;

/// A replay right behind an event that has the driver's true time, and how far apart the two are in the trace.
fn off_ns(driver: &Stub, captured: &Captured, stream: Handle, sink: &MemorySink) -> i64 {
    // The stream is busy until both are on it.
    kernel(driver, stream, BUSY_US);
    let begin = driver.record(stream);
    captured.launch(driver, stream, 1);
    assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
    let replay = wait_for_replays(sink, 1).remove(0);
    let truth_ns = driver.stub_event_ns(begin);
    driver.cuEventDestroy_v2(begin);
    (replay.gpu.begin_ns - truth_ns).abs()
}

#[test]
fn replays_that_end_a_rest_are_where_they_ran() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        let mut off = Vec::new();
        for drift in [200, -200, 200, -200] {
            off.push(off_ns(driver, &captured, stream, &sink));
            // While the session is stopped, nothing compares the clocks.
            session.stop();
            driver.stub_drift(drift);
            thread::sleep(Duration::from_millis(2_500));
            session.start();
        }
        off.push(off_ns(driver, &captured, stream, &sink));
        let report = session.finish();
        assert_all_timed(&report);
        let within_ns = report.graph_timing.uncertainty_ns;
        assert!(off.iter().all(|off| *off <= within_ns + 1_000), "{off:?} ns off, ±{within_ns} ns");
        // 400 ppm of 2.5 s are a ms. The host can be slow once.
        off.sort_unstable();
        assert!(off[3] < 100_000, "{off:?} ns off");
    });
}

#[test]
fn the_clock_is_compared_by_its_own_timer_while_the_session_records_and_not_while_it_is_stopped() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink, stream, captured) = one_zone(driver);
        off_ns(driver, &captured, stream, &sink);
        let asked = || driver.calls("cuLaunchKernel");
        let (before, since) = (asked(), Instant::now());
        while asked() < before + 2 {
            assert!(since.elapsed() < Duration::from_secs(20), "no comparison without stamps");
            thread::sleep(Duration::from_millis(20));
        }
        session.stop();
        thread::sleep(Duration::from_millis(300));
        let stopped = asked();
        thread::sleep(Duration::from_millis(2_600));
        assert_eq!(asked(), stopped, "a stopped session asks the device nothing");
        assert_all_timed(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_zone_and_the_replay_behind_it_meet_at_one_time() {
    on_stub(this_test!(), |driver| {
        driver.start();
        driver.stub_drift(-40);
        let (session, sink, stream, captured) = one_zone(driver);
        let mut apart = Vec::new();
        for _ in 0..40 {
            {
                let _zone = EAGER.zone(&raw(stream));
                kernel(driver, stream, BUSY_US);
            }
            captured.launch(driver, stream, 1);
            let replay = wait_for_replays(&sink, 1).remove(0);
            let zone = wait_for(&sink, 1).remove(0);
            apart.push((replay.gpu.begin_ns - zone.gpu.expect("it is timed").end_ns).abs());
            thread::sleep(Duration::from_millis(40));
        }
        let report = session.finish();
        assert_exact(&report);
        let within_ns = report.graph_timing.uncertainty_ns + report.clocks[0].worst_uncertainty_ns;
        assert!(apart.iter().all(|apart| *apart <= within_ns + 1_000), "{apart:?} ns apart, within {within_ns} ns");
        assert_clean(driver);
    });
}
