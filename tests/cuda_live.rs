//! What warpline asks of a CUDA driver while a session stops and starts: nothing, once it has stopped. The driver is a stub
//! that counts every call; no GPU is needed.
#![cfg(target_os = "linux")]

#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::thread;
use std::time::Duration;

use stub::*;
use warpline::Ends;
use zones::*;

warpline::namespace!("cuda_live", "zones of sessions that stop and start on a stub driver");

warpline::range! {
    WORK = "cuda_live.work": "Work on a stream.";
}

const US: u64 = 1_000;

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = WORK.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

/// The application launches; nobody else calls the driver meanwhile, on no thread.
fn assert_left_alone(driver: &Stub, stream: Handle, during: Duration) {
    let calls = driver.all_calls();
    for _ in 0..20 {
        launch(driver, stream, US);
        thread::sleep(during / 20);
    }
    let others = driver.all_calls() - calls - 20;
    assert_eq!(others, 0, "calls that nobody asked for, among {:?}", driver.last_calls(40));
}

#[test]
fn a_stopped_session_asks_the_driver_nothing() {
    on_stub("a_stopped_session_asks_the_driver_nothing", |driver| {
        driver.start();
        for ends in [Ends::Eager, Ends::Lazy, Ends::Auto] {
            let stream = driver.stream();
            let (session, zones) = start(|builder| builder.ends(ends));
            for cycle in 0..12 {
                session.start();
                let open = WORK.zone(&raw(stream));
                (0..40).for_each(|_| launch(driver, stream, 5 * US));
                session.stop();
                launch(driver, stream, 5 * US);
                drop(open);
                wait_for(&zones, 41);
                // Once long enough for the collector's rests, and for whatever it does now and then.
                let millis = if cycle == 0 { 1_500 } else { 20 };
                assert_left_alone(driver, stream, Duration::from_millis(millis));
            }
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.begun, report.recorded), (12 * 41, 12 * 41), "{report}");
            assert_clean(driver);
        }
    });
}

#[test]
fn a_hundred_cycles_under_load_leave_nothing_behind() {
    on_stub("a_hundred_cycles_under_load_leave_nothing_behind", |driver| {
        let context = driver.start();
        let mut begun = 0;
        for cycle in 0..100 {
            let (session, zones) = start(|builder| builder);
            thread::scope(|scope| {
                let threads: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(|| {
                            driver.cuCtxSetCurrent(context);
                            let stream = driver.stream();
                            (0..20).for_each(|_| launch(driver, stream, 5 * US));
                            stream
                        })
                    })
                    .collect();
                session.stop();
                if cycle % 2 == 0 {
                    session.start();
                }
                for thread in threads {
                    let stream = thread.join().expect("no thread panics");
                    assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
                    assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
                }
            });
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.recorded, report.dropped.total()), (zones.take().len() as u64, 0), "{report}");
            begun += report.begun;
            assert_clean(driver);
        }
        assert!(begun > 0);
        let stream = driver.stream();
        assert_left_alone(driver, stream, Duration::from_millis(300));
    });
}
