//! How the ends of zones on CUDA streams are found by default, and what a change of that costs, on a stub driver.
//!
//! A device has eight hardware queues by default: ends are timed while at most four of its streams have zones.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use warpline::record::EndSource;
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_ends.work": "Work on a stream.";
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = WORK.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

#[test]
fn every_end_of_a_short_program_with_few_streams_is_timed() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder);
        let streams = [(); 4].map(|()| driver.stream());
        for stream in streams {
            launch(driver, stream, 40 * US);
            // The collector has no time to count anything.
            launch(driver, stream, 20 * US);
        }
        streams.into_iter().for_each(|stream| assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS));
        let report = session.finish();
        assert_exact(&report);
        let zones = zones.take();
        assert_eq!(zones.len(), 8);
        for zone in zones {
            assert_eq!((zone.end, zone.end_early_by_ns), (EndSource::Event, 0), "{zone:?}");
        }
        assert_clean(driver);
    });
}

/// The driver's calls that measure a clock, from other threads than this one.
fn calls_of_others(driver: &Stub) -> u64 {
    // SAFETY: the call takes no argument.
    let tid = unsafe { libc::gettid() };
    ["cuEventRecord", "cuEventElapsedTime", "cuStreamCreate"]
        .iter()
        .map(|symbol| driver.calls(symbol) - driver.calls_on(symbol, tid))
        .sum()
}

#[test]
fn the_collector_leaves_the_driver_to_the_first_zones_until_they_pause() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let is_undisturbed = |_: &usize| {
            let (session, _zones) = start(|builder| builder);
            let (begin, before) = (Instant::now(), calls_of_others(driver));
            let (mut last, mut longest) = (begin, Duration::ZERO);
            while begin.elapsed() < Duration::from_millis(3) {
                launch(driver, stream, US);
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            let calls = calls_of_others(driver) - before;
            thread::sleep(Duration::from_millis(30));
            let is_measured = calls_of_others(driver) > before;
            assert_exact(&session.finish());
            // A thread that the system stops pauses, too, and on a busy host the collector may look late.
            let paused = longest >= Duration::from_micros(900);
            assert!(paused || calls == 0, "{calls} calls beside zones at most {longest:?} apart");
            is_measured && calls == 0
        };
        let undisturbed = (0..40).filter(is_undisturbed).count();
        assert!(undisturbed >= 20, "{undisturbed} of 40: {}", "the clock is measured in the pause, and not before");
        assert_clean(driver);
    });
}

#[test]
fn a_fifth_stream_makes_ends_lazy_at_once_and_those_of_another_device_stay_timed() {
    on_stub(this_test!(), |driver| {
        driver.stub_devices(2);
        let first = driver.start();
        let (session, zones) = start(|builder| builder);
        let streams = [(); 4].map(|()| driver.stream());
        streams.into_iter().for_each(|stream| launch(driver, stream, 10 * US));
        let fifth = driver.stream();
        launch(driver, fifth, 10 * US);
        streams.into_iter().for_each(|stream| launch(driver, stream, 10 * US));
        let second = made(|context| driver.cuDevicePrimaryCtxRetain(context, 1));
        assert_eq!(driver.cuCtxSetCurrent(second), SUCCESS);
        let elsewhere = driver.stream();
        launch(driver, elsewhere, 10 * US);
        assert_eq!(driver.cuCtxSetCurrent(first), SUCCESS);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.recorded, 10, "{report}");
        let mut zones = zones.take();
        zones.sort_by_key(|zone| zone.host.begin_ns);
        let timed: Vec<_> = zones.iter().map(|zone| zone.end == EndSource::Event).collect();
        assert_eq!(timed, [true, true, true, true, false, false, false, false, false, true]);
    });
}

#[test]
fn ends_become_timed_again_when_streams_are_gone_and_the_last_lazy_zone_ends_where_the_next_begins() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let context = CudaContext::new(0).expect("the stub has a device");
        let (session, zones) = start(|builder| builder);
        let stream = driver.stream();
        let others: Vec<_> = (0..4).map(|_| context.new_stream().expect("a stream")).collect();
        let on_others = || others.iter().for_each(|other| drop(WORK.zone(other)));
        launch(driver, stream, 10 * US);
        on_others();
        launch(driver, stream, 10 * US);
        let before = wait_for(&zones, 6);
        assert!(before.iter().any(|zone| zone.end != EndSource::Event), "{before:?}");
        // The zone at the change has its end on the device long after the ends became timed.
        let hold = driver.stub_hold(stream);
        launch(driver, stream, 20 * US);
        drop(others);
        let (since, other) = (Instant::now(), driver.stream());
        loop {
            launch(driver, other, 10 * US);
            if wait_for(&zones, 1)[0].end == EndSource::Event {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(30), "ends stay lazy with two streams");
            thread::sleep(Duration::from_millis(20));
        }
        driver.stub_launch(stream, 500 * US);
        launch(driver, stream, 30 * US);
        launch(driver, stream, 30 * US);
        driver.stub_release(hold);
        let zones = wait_for(&zones, 3);
        let (last_lazy, first_timed) = (zones[0].gpu.unwrap(), zones[1].gpu.unwrap());
        assert_eq!(zones.iter().map(|zone| zone.end.as_str()).collect::<Vec<_>>(), ["boundary", "event", "event"]);
        assert!((first_timed.begin_ns - last_lazy.end_ns).abs() <= 64, "{last_lazy:?}, then {first_timed:?}");
        assert_exact(&session.finish());
    });
}

#[test]
fn a_stream_is_read_on_while_its_ends_change() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder);
        let stream = driver.stream();
        let mut count = 0;
        // No rest, in which the last timed zone could be read alone.
        for more in 0..2 {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(150) {
                launch(driver, stream, 10 * US);
                thread::sleep(Duration::from_micros(100));
                count += 1;
            }
            (0..more * 4).for_each(|_| launch(driver, driver.stream(), 10 * US));
        }
        for _ in 0..200 {
            launch(driver, stream, 10 * US);
        }
        let report = session.finish();
        assert_eq!((report.begun, report.recorded), (count + 204, count + 204), "{report}");
        let ends: BTreeSet<_> = zones.take().iter().map(|zone| zone.end.as_str()).collect();
        assert!(ends.contains("boundary") && ends.contains("event"), "both kinds were there: {ends:?}");
    });
}

#[test]
fn a_change_of_ends_takes_no_event_beyond_the_budget_and_no_pair_from_it() {
    const EVENTS: usize = 256;
    const CLOCKS: usize = 64;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder.event_budget(EVENTS));
        let stream = driver.stream();
        let burst = |count: usize| {
            let hold = driver.stub_hold(stream);
            (0..count).for_each(|_| launch(driver, stream, 0));
            driver.stub_release(hold);
            wait_for(&zones, count)
        };
        let timed = burst(40);
        assert!(timed.iter().all(|zone| zone.end == EndSource::Event));
        (0..4).for_each(|_| launch(driver, driver.stream(), 0));
        wait_for(&zones, 4);
        // A first error of the driver is not the last word.
        driver.fail("cuEventCreate", 0, 1, OUT_OF_MEMORY);
        launch(driver, stream, 0);
        driver.fail("cuEventCreate", 0, 0, OUT_OF_MEMORY);
        // Twice as many zones as pairs: half of the budget's events are begins.
        let hold = driver.stub_hold(stream);
        (0..EVENTS).for_each(|_| launch(driver, stream, 0));
        driver.stub_release(hold);
        let report = session.finish();
        assert_exact(&report);
        let waited = zones.take();
        assert!(waited.len() >= EVENTS / 2 - 1, "{} zones of {}: {report}", waited.len(), EVENTS / 2);
        assert!(waited.iter().all(|zone| zone.end != EndSource::Event), "{waited:?}");
        assert!(driver.stub_peak_events() as usize <= EVENTS + CLOCKS, "{} events", driver.stub_peak_events());
        assert_clean(driver);
    });
}

#[test]
fn the_end_of_a_lazy_zone_behind_which_the_program_rests_is_bounded_by_a_look_soon_after_it() {
    const LENGTH: u64 = 40 * MS;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder.ends(EndMode::Lazy));
        let stream = driver.stream();
        let (begin, mut bounds) = (Instant::now(), Vec::new());
        // Other work on the host can delay looks, not all of them.
        while bounds.iter().filter(|(early_by_ns, _)| *early_by_ns <= LENGTH as i64 / 20).count() < 2 {
            assert!(begin.elapsed() < Duration::from_secs(60), "no look is soon: bounds and lengths {bounds:?}");
            launch(driver, stream, LENGTH);
            let zone = wait_for(&zones, 1).remove(0);
            assert_eq!(zone.end, EndSource::Observed);
            let length_ns = zone.gpu.unwrap().duration_ns();
            assert!(length_ns - zone.end_early_by_ns <= LENGTH as i64 + 10_000, "{zone:?}");
            bounds.push((zone.end_early_by_ns, length_ns));
            thread::sleep(Duration::from_millis(30));
        }
        assert_exact(&session.finish());
    });
}
