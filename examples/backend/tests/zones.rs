//! What the traits promise to a backend outside of warpline: exact lengths, positions on the host's clock, several streams, dropped
//! streams, failures that are counted, captures, and traces.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pool_backend::{Pool, PoolDevice, PoolStream, ReadClock, drifting_clock};
use warpline::backend::{Backend, BackendError, BackendStream, NoKey, Scope, StreamRef, now_ns};
use warpline::record::{DeviceKind, EndSource, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{AsStream, Session, block, gpu_zone};

warpline::namespace!("pool_test", "tests of a backend outside of warpline");

/// A process has one session.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the zones of `work`.
fn recorded(work: impl FnOnce()) -> (Vec<ZoneRecord>, Report) {
    let zones = MemorySink::new(10_000);
    let session = Session::builder().quiet().sink(zones.clone()).start().expect("no other session");
    work();
    let report = session.finish();
    (zones.take(), report)
}

fn pool(workers: usize, clock: ReadClock) -> PoolDevice {
    PoolDevice::new(Pool::new(workers, clock).expect("there are threads"))
}

/// A clock that only the work advances.
fn by_hand() -> (Arc<AtomicI64>, ReadClock) {
    let time = Arc::new(AtomicI64::new(1 << 40));
    let read = Arc::clone(&time);
    (time, Arc::new(move || read.load(Ordering::SeqCst)))
}

/// Advances a clock.
#[gpu_zone("pool_test.advance", fields(ns = ns))]
fn advance(stream: &PoolStream, time: &Arc<AtomicI64>, ns: i64) {
    let time = Arc::clone(time);
    let _ = stream.launch(move || {
        time.fetch_add(ns, Ordering::SeqCst);
    });
}

/// Runs a closure.
#[gpu_zone("pool_test.run")]
fn run(stream: &PoolStream, work: impl FnOnce() + Send + 'static) {
    let _ = stream.launch(work);
}

#[test]
fn a_zone_is_exactly_as_long_as_its_work_by_the_pools_clock() {
    let _alone = alone();
    let (time, read) = by_hand();
    let lengths_ns: Vec<i64> = (0..200).map(|n| 1_000 + n * 37).collect();
    let (zones, report) = recorded(|| {
        let pool = pool(1, read);
        let stream = pool.stream("exact");
        lengths_ns.iter().for_each(|ns| advance(&stream, &time, *ns));
        stream.synchronize();
    });
    let measured_ns: Vec<i64> = zones.iter().filter_map(ZoneRecord::gpu_ns).collect();
    assert_eq!(measured_ns, lengths_ns);
    assert_eq!((report.begun, report.recorded, report.dropped.total()), (200, 200, 0), "{report}");
    assert!(zones.iter().all(|zone| zone.end == EndSource::Event && zone.end_early_by_ns == 0));
}

#[test]
fn positions_come_from_a_clock_that_drifts_and_began_elsewhere() {
    let _alone = alone();
    let inside = Arc::new(Mutex::new(Vec::new()));
    let (zones, report) = recorded(|| {
        let pool = pool(2, drifting_clock(31_536_000_000_000_000, 200.0));
        let stream = pool.stream("drift");
        for _ in 0..30 {
            let inside = Arc::clone(&inside);
            run(&stream, move || {
                let begin_ns = now_ns();
                std::thread::sleep(Duration::from_millis(20));
                inside.lock().expect("no panic").push((begin_ns, now_ns()));
            });
        }
        stream.synchronize();
    });
    let inside = inside.lock().expect("no panic");
    assert_eq!((zones.len(), inside.len()), (30, 30), "{report}");
    let clock = report.clocks.iter().find(|clock| clock.device == "thread pool").expect("the pool has a clock");
    for (zone, (begin_ns, end_ns)) in zones.iter().zip(&*inside) {
        let gpu = zone.gpu.expect("the pool timed it");
        // The stamps enclose the work. Over 600 ms, an unrelated clock of 200 ppm would be 120 µs off, and another epoch a year.
        let off_ns = (*begin_ns - gpu.begin_ns, gpu.end_ns - *end_ns);
        let late_ns = 60_000;
        let least_ns = -clock.uncertainty_ns - late_ns;
        assert!(off_ns.0 >= least_ns && off_ns.1 >= least_ns, "{off_ns:?} ns, ±{} ns", clock.uncertainty_ns);
        assert!(gpu.begin_ns >= zone.host.begin_ns - late_ns, "{zone:?}");
    }
    assert!(zones.is_sorted_by_key(|zone| zone.gpu.map(|gpu| gpu.begin_ns)));
}

#[test]
fn two_streams_of_one_pool_overlap_and_keep_their_own_order() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        let pool = pool(2, drifting_clock(0, 0.0));
        let streams = [pool.stream("one"), pool.stream("two")];
        let meet = Arc::new(std::sync::Barrier::new(2));
        for _ in 0..10 {
            for stream in &streams {
                let meet = Arc::clone(&meet);
                run(stream, move || {
                    meet.wait();
                });
            }
        }
        streams.iter().for_each(PoolStream::synchronize);
    });
    assert_eq!(report.recorded, 20, "{report}");
    let of = |name: &str| -> Vec<_> {
        let stream = zones.iter().filter(|zone| zone.stream.as_ref().is_some_and(|stream| stream.name == name));
        stream.filter_map(|zone| zone.gpu).collect()
    };
    let (one, two) = (of("one"), of("two"));
    assert_eq!((one.len(), two.len()), (10, 10));
    assert!(one.windows(2).chain(two.windows(2)).all(|pair| pair[0].end_ns <= pair[1].begin_ns), "in order");
    assert!(one.iter().zip(&two).all(|(one, two)| one.overlap_ns(*two) > 0), "they meet in each step");
    let device = &zones[0].stream.as_ref().expect("on a stream").device;
    assert_eq!((device.kind, device.name.as_str()), (DeviceKind::Other("pool"), "thread pool"));
    assert_eq!(report.clocks.len(), 1, "one pool has one clock: {report}");
}

#[test]
fn a_dropped_stream_loses_no_zone_and_is_forgotten_before_the_session_ends() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        let pool = pool(2, drifting_clock(0, 0.0));
        // Each thread remembers the streams that it used last, until it ends.
        std::thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|n| run(&pool.stream(&format!("short-lived {n}")), || ())));
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.pool().queues() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(pool.pool().queues(), 0, "the session still holds streams that the application dropped");
    });
    assert_eq!((zones.len(), report.recorded, report.dropped.total()), (50, 50, 0), "{report}");
}

#[test]
fn a_stream_may_be_dropped_while_a_zone_is_open_on_it() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        let pool = pool(1, drifting_clock(0, 0.0));
        let stream = pool.stream("gone");
        let zone = warpline::dynamic::zone(&stream, "open", "tests.rs", 1, "a test");
        let _ = stream.launch(|| std::thread::sleep(Duration::from_millis(2)));
        drop(stream);
        drop(zone);
    });
    assert_eq!((zones.len(), report.dropped.total()), (1, 0), "{report}");
    assert!(zones[0].gpu_ns() >= Some(2_000_000), "{zones:?}");
}

#[test]
fn what_a_failed_stream_loses_is_counted_by_the_reason_and_other_streams_go_on() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        let pool = pool(2, drifting_clock(0, 0.0));
        let (good, bad) = (pool.stream("good"), pool.stream("bad"));
        let (hold, held) = std::sync::mpsc::channel::<()>();
        run(&bad, move || {
            let _ = held.recv();
        });
        (0..3).for_each(|_| run(&bad, || ()));
        bad.fail("the device is lost");
        drop(hold);
        (0..5).for_each(|_| run(&bad, || ()));
        (0..7).for_each(|_| run(&good, || ()));
        good.synchronize();
        bad.synchronize();
    });
    assert_eq!((report.begun, report.recorded, zones.len()), (16, 7, 7), "{report}");
    assert_eq!((report.dropped.stream_failed, report.dropped.event_failed), (4, 5), "{report}");
    assert!(report.notes.iter().any(|note| note.contains("`bad`") && note.contains("the device is lost")), "{report}");
}

#[test]
fn an_operation_after_the_pool_is_an_error_that_is_counted() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        let pool = pool(1, drifting_clock(0, 0.0));
        let stream = pool.stream("orphan");
        run(&stream, || ());
        drop(pool);
        run(&stream, || ());
    });
    assert_eq!((zones.len(), report.dropped.event_failed), (1, 1), "{report}");
}

/// A stream that is being captured, or that its device does not know.
struct Unusable(NoKey);

impl BackendStream for Unusable {
    fn backend(&self, _: &Scope) -> Result<std::sync::Arc<dyn Backend>, BackendError> {
        Err(BackendError::new("the device does not know the stream: create it again"))
    }
}

impl AsStream for Unusable {
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::of_backend(Err(self.0), self)
    }
}

#[test]
fn zones_of_a_capture_are_counted_and_an_unknown_stream_is_refused_once_with_the_reason() {
    let _alone = alone();
    let (zones, report) = recorded(|| {
        (0..3).for_each(|_| block::gpu_zone!("pool_test.captured", &Unusable(NoKey::Captured), description = "C.", {}));
        (0..2).for_each(|_| block::gpu_zone!("pool_test.unknown", &Unusable(NoKey::Unknown), description = "U.", {}));
    });
    assert!(zones.is_empty(), "{zones:?}");
    assert_eq!((report.begun, report.captured, report.dropped.event_failed), (5, 3, 2), "{report}");
    let said = report.notes.iter().filter(|note| note.contains("create it again")).count();
    assert_eq!(said, 1, "{report}");
}

#[test]
fn requests_for_single_zones_are_answered() {
    let _alone = alone();
    let pool = pool(1, drifting_clock(0, 0.0));
    let stream = pool.stream("profiled");
    let timed = warpline::profile::next(&stream);
    run(&stream, || std::thread::sleep(Duration::from_millis(1)));
    let record = timed.wait(Duration::from_secs(20)).expect("the zone ends");
    assert!(record.gpu_ns() >= Some(1_000_000), "{record:?}");
}

#[test]
fn both_trace_formats_hold_the_zones_and_the_device() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (perfetto, chrome) = (folder.path().join("pool.pftrace"), folder.path().join("pool.json"));
    let session = Session::builder().quiet().perfetto(&perfetto).chrome(&chrome).start().expect("no other session");
    let pool = pool(1, drifting_clock(0, 0.0));
    let stream = pool.stream("copy");
    run(&stream, || ());
    stream.synchronize();
    let report = session.finish();
    assert!(report.is_complete(), "{report}");
    for file in [perfetto, chrome] {
        let bytes = std::fs::read(&file).expect("it is written");
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("pool_test.run") && has("thread pool") && has("copy"), "{}", file.display());
    }
}
