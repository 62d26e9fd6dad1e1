//! What a launching thread waits for in the stub driver: nothing that another thread does there.

use std::thread;
use std::time::{Duration, Instant};

use warpline_tests::{in_time, this_test};

use crate::harness::driver::*;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_launching.work": "Work on a stream.";
}

#[test]
fn a_zone_begins_while_another_thread_creates_events() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder);
        let (first, second) = (driver.stream(), driver.stream());
        driver.stop_at("cuEventCreate");
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| drop(WORK.zone(&raw(first))));
            while !driver.stub_is_stopped() {
                assert!(began.elapsed() < Duration::from_secs(20), "nobody creates events");
                thread::sleep(Duration::from_millis(1));
            }
            let second = raw(second);
            let launched = std::panic::catch_unwind(|| in_time(move || drop(WORK.zone(&second))));
            driver.stub_go_on();
            assert!(launched.is_ok(), "it waits for the thread that is in the driver");
        });
        driver.cuStreamSynchronize(second);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(zones.take().len(), 2, "{report}");
    });
}
