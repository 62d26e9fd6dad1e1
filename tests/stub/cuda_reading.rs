//! Which driver calls read the zones of CUDA streams: those that wait for launching threads are not made beside one.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use warpline::record::EndSource;
use warpline::report::Report;
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::*;

warpline::range! {
    READ = "stub.cuda_reading.read": "Work on a stream.";
}

const US: u64 = 1_000;

/// How much two positions of a session's zones may be apart beyond the truth. A driver gives the time since the last anchor in ms as `f32`,
/// whose steps grow with the time: while the program is suspended, no event becomes the next anchor, which is otherwise within a second.
fn rounding_ns(report: &Report) -> i64 {
    const SHORT_NS: i64 = 64;
    let ms = report.duration.as_secs_f32() * 1e3;
    let step_ns = ((ms.next_up() - ms) * 1e6).ceil() as i64;
    if step_ns > SHORT_NS { SHORT_NS + step_ns } else { SHORT_NS }
}

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = READ.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

/// Records a stream on which a thread launches without a rest. Returns whether zones were read meanwhile, and without queries.
fn is_read_without_a_query(driver: &Stub, ends: EndMode) -> bool {
    const MANY: u64 = 20_000;
    let (session, zones) = start(|builder| builder.ends(ends));
    let stream = driver.stream();
    launch(driver, stream, 0);
    wait_for(&zones, 1);
    let queries = driver.calls("cuEventQuery");
    let read = driver.calls("cuEventElapsedTime_v2");
    (0..MANY).for_each(|_| launch(driver, stream, 0));
    let queries = driver.calls("cuEventQuery") - queries;
    let read = driver.calls("cuEventElapsedTime_v2") - read;
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, report.dropped.total()), (MANY + 1, 0), "{ends:?}: {report}");
    // Of a session of a second or more, the report says that zones cost a thread that does nothing but launch much of its time.
    let is_cost = |note: &String| note.starts_with("recording took about");
    let expected = usize::from(report.duration >= Duration::from_secs(1) && report.notes.first().is_some_and(is_cost));
    assert_eq!(report.notes.len(), expected, "{report}");
    let most = if ends == EndMode::Eager { 0 } else { MANY / 500 };
    queries <= most && read > MANY / 4
}

#[test]
fn a_stream_on_which_a_thread_launches_is_read_without_a_query() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let begin = Instant::now();
        for ends in [EndMode::Eager, EndMode::Lazy] {
            // A launching thread that the system suspends for some ms looks as if it rested. It is not suspended in all sessions.
            while !is_read_without_a_query(driver, ends) {
                assert!(begin.elapsed() < Duration::from_secs(60), "{ends:?}: it is not read, or by queries");
            }
        }
        assert_eq!(driver.calls("cuEventElapsedTime"), 0);
        assert_clean(driver);
    });
}

/// Nothing comes behind the zone, so only its marker can tell that it is over.
#[test]
fn a_lazy_zone_on_a_stream_that_rests_is_read_beside_a_thread_that_launches_on_another_one() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, zones) = start(|builder| builder.ends(EndMode::Lazy));
        let (rests, launches) = (driver.stream(), driver.stream());
        launch(driver, rests, 10 * US);
        let begin = Instant::now();
        let found = loop {
            (0..50).for_each(|_| launch(driver, launches, 0));
            let streams = zones.take().into_iter().filter_map(|zone| Some((zone.stream?.id, zone.end)));
            if let Some((_, end)) = streams.into_iter().find(|(id, _)| *id == 1) {
                break end;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "it was not read");
        };
        assert_eq!(found, EndSource::Observed);
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

#[test]
fn a_driver_without_the_newer_call_is_read_by_queries_and_the_report_states_it() {
    const MANY: usize = 200;
    in_child(this_test!(), Driver::ElapsedV1, || {
        let driver = &Stub::load();
        assert!(!driver.has("cuEventElapsedTime_v2") && driver.has("cuEventElapsedTime"));
        driver.start();
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let (session, zones) = start(|builder| builder.ends(ends));
            let (stream, other) = (driver.stream(), driver.stream());
            let (read, queries) = (driver.calls("cuEventElapsedTime"), driver.calls("cuEventQuery"));
            for n in 0..MANY {
                launch(driver, if n % 2 == 0 { stream } else { other }, 50 * US);
            }
            let zones = wait_for(&zones, MANY);
            assert!(driver.calls("cuEventElapsedTime") - read >= MANY as u64);
            assert!(driver.calls("cuEventQuery") > queries);
            let report = session.finish();
            assert_exact(&report);
            assert_eq!(report.recorded, MANY as u64, "{report}");
            let [note] = &report.notes[..] else { panic!("one note for the driver: {report}") };
            assert!(note.contains("has no `cuEventElapsedTime_v2`"), "{note}");
            for zone in zones {
                let ns = zone.gpu_ns().expect("it has times");
                assert!(ns >= 50_000 - 64, "{ends:?}: {zone:?}");
            }
        }
        assert_clean(driver);
    });
}

/// Each zone of a thread is as long as its number says, so the time of another zone is noticed.
fn eight_threads_launch_in_two_contexts(test: &str, driver: Driver) {
    const THREADS: usize = 8;
    const EACH: usize = 400;
    let work_ns = |at: usize| (at as u64 % 8 * 8 + 4) * US;
    in_child(test, driver, || {
        let driver = &Stub::load();
        let primary = driver.start();
        let mut second = 0;
        assert_eq!(driver.cuCtxCreate_v2(&mut second, 0, 0), SUCCESS);
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let (session, zones) = start(|builder| builder.ends(ends));
            let ready = Barrier::new(THREADS);
            thread::scope(|scope| {
                for n in 0..THREADS {
                    let ready = &ready;
                    scope.spawn(move || {
                        assert_eq!(driver.cuCtxSetCurrent(if n % 2 == 0 { primary } else { second }), SUCCESS);
                        let stream = driver.stream();
                        ready.wait();
                        (0..EACH).for_each(|at| launch(driver, stream, work_ns(at)));
                        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
                    });
                }
            });
            let report = session.finish();
            assert_exact(&report);
            let all = THREADS * EACH;
            assert_eq!((report.recorded, report.dropped.total()), (all as u64, 0), "{ends:?}: {report}");
            let mut zones = zones.take();
            zones.sort_by_key(|zone| (zone.stream.as_ref().map(|stream| stream.id), zone.sequence));
            for of_stream in zones.chunks(EACH) {
                for (at, zone) in of_stream.iter().enumerate() {
                    let ns = zone.gpu_ns().expect("it has times");
                    assert!(ns >= work_ns(at) as i64 - 64, "{ends:?}: {zone:?}");
                }
                for pair in of_stream.windows(2) {
                    let (one, next) = (pair[0].gpu.unwrap(), pair[1].gpu.unwrap());
                    assert!(next.begin_ns - one.end_ns >= -rounding_ns(&report), "{ends:?}: {one:?}, then {next:?}");
                }
            }
        }
        assert_clean(driver);
    });
}

#[test]
fn eight_threads_that_launch_in_two_contexts_lose_nothing_and_keep_their_times() {
    eight_threads_launch_in_two_contexts(this_test!(), Driver::Current);
}

#[test]
fn eight_threads_that_launch_in_two_contexts_are_read_by_a_driver_without_the_newer_call() {
    eight_threads_launch_in_two_contexts(this_test!(), Driver::ElapsedV1);
}
