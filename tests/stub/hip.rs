//! Zones on HIP streams, on a stub of the runtime: lengths and positions, devices and threads, captures, failures that are counted. Not run
//! on hardware.

use std::thread;
use std::time::Duration;

use warpline::record::{DeviceKind, EndSource, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HipStream, Session, SessionBuilder, Value, gpu_zone};

use crate::harness::hip::{ILLEGAL_ADDRESS, OUT_OF_MEMORY, PER_THREAD, Runtime, Stub, on_stub, raw, with};
use crate::harness::zones::{boot_ns, wait_for};

warpline::range! {
    ELSEWHERE = "stub.hip.elsewhere": "A zone that may end on another thread.";
}

/// Work of a length on a stream.
#[gpu_zone("stub.hip.work", stream = stream, fields(ns = ns))]
fn work(stub: &Stub, stream: &HipStream, ns: i64) {
    stub.stub_hip_launch(stream.as_ptr() as usize, ns);
}

/// A zone on a stream without a runtime.
#[gpu_zone("stub.hip.alone")]
fn alone(stream: &HipStream) {}

/// Records what another thread launches, so that no thread keeps the session's state.
fn recorded_with(
    settings: impl FnOnce(SessionBuilder) -> SessionBuilder,
    launch: impl FnOnce() + Send,
) -> (Vec<ZoneRecord>, Report) {
    let zones = MemorySink::new(10_000);
    let session = settings(Session::builder().quiet().sink(zones.clone())).start().expect("no other session");
    // Joined, because a scope does not wait for what the thread's local values drop.
    thread::scope(|scope| scope.spawn(launch).join()).expect("it launches");
    let report = session.finish();
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
    (zones.take(), report)
}

fn recorded(launch: impl FnOnce() + Send) -> (Vec<ZoneRecord>, Report) {
    recorded_with(|settings| settings, launch)
}

/// Nothing of ours is left in the runtime, and no handle was used after its end.
fn assert_clean(stub: &Stub, streams: u64) {
    let left = (stub.stub_hip_live_events(), stub.stub_hip_live_streams(), stub.stub_hip_misuses());
    assert_eq!(left, (0, streams, 0), "events, streams, misused handles");
}

/// How long a stream works before what a test measures: longer than a busy machine takes to launch that.
const AHEAD_NS: i64 = 1_000_000_000;

/// The lengths of `zones`, and what each says that it should be.
fn assert_lengths(zones: &[ZoneRecord]) {
    for zone in zones {
        let Some(&Value::I64(ns)) = zone.fields.get("ns") else { panic!("{zone:?}") };
        let length = zone.gpu_ns().expect("a time");
        // The runtime gives 32-bit floats of milliseconds.
        assert!((length - ns).abs() <= 1 + ns / 8_000_000, "{length} for {ns}");
        assert_eq!((zone.end, zone.end_early_by_ns), (EndSource::Event, 0));
    }
}

#[test]
fn zones_have_the_lengths_of_their_work_and_stand_where_it_ran() {
    on_stub("hip::zones_have_the_lengths_of_their_work_and_stand_where_it_ran", |stub| {
        let stream = stub.stream();
        let mut before_ns = 0;
        let (zones, report) = recorded(|| {
            before_ns = boot_ns();
            // The queue is ahead of the host, so that nothing but the work is between two events.
            stub.stub_hip_launch(stream, AHEAD_NS);
            (0..200).for_each(|n| work(stub, &raw(stream), 5_000 + n * 1_037));
        });
        assert_eq!((zones.len(), report.dropped.total()), (200, 0), "{report}");
        assert_lengths(&zones);
        let device = &zones[0].stream.as_ref().expect("on a stream").device;
        assert_eq!((device.kind, device.name.as_str(), device.ordinal), (DeviceKind::Hip, "AMD Instinct Stub 0", 0));
        let spans: Vec<_> = zones.iter().map(|zone| zone.gpu.expect("a time")).collect();
        let clock = &report.clocks[0];
        for pair in spans.windows(2) {
            // One zone begins where the other ends, up to the drift that the clock corrects.
            assert!((pair[1].begin_ns - pair[0].end_ns).abs() < 20_000, "{pair:?}");
        }
        let begin_ns = spans[0].begin_ns - AHEAD_NS;
        let launch = before_ns..zones[0].host.begin_ns;
        let off_ns = (launch.start - begin_ns).max(begin_ns - launch.end);
        assert!(off_ns < clock.uncertainty_ns + 10_000_000, "{off_ns} ns off, ±{} ns", clock.uncertainty_ns);
        assert_eq!(stub.calls("hipStreamIsCapturing"), 1 + 2 * 200, "one for the stream, two for each zone");
        assert_clean(stub, 1);
    });
}

#[test]
fn each_device_has_its_clock_and_threads_keep_their_device() {
    on_stub("hip::each_device_has_its_clock_and_threads_keep_their_device", |stub| {
        let streams = [0, 1].map(|device| {
            assert_eq!(stub.hipSetDevice(device), 0);
            stub.stream()
        });
        let (zones, report) = recorded(|| {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|number| {
                        scope.spawn(move || {
                            // Threads of both devices launch on both.
                            stub.hipSetDevice(number % 2);
                            for n in 0..50 {
                                work(stub, &raw(streams[n as usize % 2]), 1_000 + n);
                            }
                            let mut device = -1;
                            assert_eq!((stub.hipGetDevice(&mut device), device), (0, number % 2));
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().expect("it launches"));
            });
        });
        assert_eq!((zones.len(), report.dropped.total()), (200, 0), "{report}");
        for ordinal in 0..2 {
            let of_device = |zone: &&ZoneRecord| zone.stream.as_ref().is_some_and(|s| s.device.ordinal == ordinal);
            assert_eq!(zones.iter().filter(of_device).count(), 100);
        }
        assert_eq!(report.clocks.len(), 2, "{report}");
        assert_clean(stub, 2);
    });
}

#[test]
fn default_streams_are_those_of_the_current_device() {
    on_stub("hip::default_streams_are_those_of_the_current_device", |stub| {
        let (zones, report) = recorded(|| {
            for device in 0..2 {
                stub.hipSetDevice(device);
                work(stub, &raw(0), 3_000);
                work(stub, &raw(PER_THREAD), 3_000);
            }
            let zone = ELSEWHERE.async_zone(&raw(PER_THREAD));
            thread::scope(|scope| scope.spawn(|| drop(zone)).join()).expect("it ends");
        });
        let mut names: Vec<_> = zones
            .iter()
            .filter_map(|zone| zone.stream.as_ref())
            .map(|stream| format!("{} {}", stream.device.ordinal, stream.name.split(" of ").next().unwrap_or_default()))
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["0 default stream", "0 per-thread default stream", "1 default stream", "1 per-thread default stream"]
        );
        assert_eq!(report.dropped.event_failed, 1, "a per-thread stream is another one on another thread: {report}");
        assert_clean(stub, 0);
    });
}

#[test]
fn a_capture_gets_nothing_and_its_zones_are_counted() {
    on_stub("hip::a_capture_gets_nothing_and_its_zones_are_counted", |stub| {
        let (captured, other) = (stub.stream(), stub.stream());
        let (zones, report) = recorded(|| {
            work(stub, &raw(captured), 2_000);
            let across = warpline::dynamic::zone(&raw(captured), "across", "hip.rs", 2, "a test");
            stub.stub_hip_capture(captured, true);
            drop(across);
            for _ in 0..10 {
                work(stub, &raw(captured), 1_000);
                // The ring of another stream grows, and the collector queries its events.
                work(stub, &raw(other), 1_000);
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(stub.stub_hip_capture(captured, false), 0, "calls that put something into the graph");
            work(stub, &raw(captured), 2_000);
        });
        assert_eq!((report.captured, report.dropped.capture_failed, zones.len()), (10, 1, 12), "{report}");
        assert_eq!(stub.stub_hip_broken_captures(), 0, "calls that would have invalidated the capture");
        assert_clean(stub, 2);
    });
}

#[test]
fn events_that_cannot_be_made_or_recorded_are_counted() {
    on_stub("hip::events_that_cannot_be_made_or_recorded_are_counted", |stub| {
        let stream = stub.stream();
        let (zones, report) = recorded(|| {
            work(stub, &raw(stream), 1_000);
            stub.fail_here("hipEventRecord", 1, OUT_OF_MEMORY);
            work(stub, &raw(stream), 1_000);
            work(stub, &raw(stream), 1_000);
        });
        assert_eq!((report.begun, zones.len(), report.dropped.event_failed), (3, 2, 1), "{report}");
        assert_clean(stub, 1);
        stub.fail("hipEventCreateWithFlags", u64::MAX, OUT_OF_MEMORY);
        let (zones, report) = recorded(|| (0..5).for_each(|_| work(stub, &raw(stream), 1_000)));
        assert_eq!((zones.len(), report.dropped.total()), (0, 5), "{report}");
        stub.fail("hipEventCreateWithFlags", 0, 0);
        assert_clean(stub, 1);
    });
}

#[test]
fn a_device_that_fails_is_reported_with_the_runtimes_word_and_the_next_session_works() {
    on_stub("hip::a_device_that_fails_is_reported_with_the_runtimes_word_and_the_next_session_works", |stub| {
        let stream = stub.stream();
        let (zones, report) = recorded(|| {
            stub.stub_hip_launch(stream, 30_000_000);
            work(stub, &raw(stream), 1_000);
            stub.fail("hipEventQuery", u64::MAX, ILLEGAL_ADDRESS);
        });
        assert_eq!((zones.len(), report.dropped.stream_failed), (0, 1), "{report}");
        let said = |text: &str| report.notes.iter().any(|note| note.contains(text));
        assert!(said("`hipEventQuery` gave an illegal memory access was encountered (700)"), "{report}");
        stub.fail("hipEventQuery", 0, 0);
        let (zones, report) = recorded(|| work(stub, &raw(stream), 1_000));
        assert_eq!((zones.len(), report.dropped.total()), (1, 0), "{report}");
        assert_clean(stub, 1);
    });
}

#[test]
fn a_session_has_no_more_events_than_it_may() {
    on_stub("hip::a_session_has_no_more_events_than_it_may", |stub| {
        let stream = stub.stream();
        let (zones, report) = recorded_with(
            |settings| settings.event_budget(64),
            || {
                stub.stub_hip_launch(stream, 1_000_000_000);
                (0..100).for_each(|_| work(stub, &raw(stream), 1_000));
                // Meanwhile, the collector gives back the slots of zones without events.
                thread::sleep(Duration::from_millis(50));
                (0..100).for_each(|_| work(stub, &raw(stream), 1_000));
            },
        );
        assert_eq!((zones.len(), report.dropped.ring_full), (32, 168), "two events each: {report}");
        assert_clean(stub, 1);
    });
}

#[test]
fn events_that_one_stream_has_given_back_are_used_by_another() {
    on_stub("hip::events_that_one_stream_has_given_back_are_used_by_another", |stub| {
        let zones = MemorySink::new(100);
        let session =
            Session::builder().quiet().sink(zones.clone()).event_budget(64).start().expect("no other session");
        // Joined, because a scope does not wait for what the thread's local values drop.
        let launch = || {
            for stream in [stub.stream(), stub.stream()] {
                stub.stub_hip_launch(stream, 100_000_000);
                (0..32).for_each(|_| work(stub, &raw(stream), 1_000));
                // They are read, so their events are free.
                assert_eq!(wait_for(&zones, 32).len(), 32);
            }
        };
        thread::scope(|scope| scope.spawn(launch).join()).expect("it launches");
        let live = stub.stub_hip_live_events();
        let report = session.finish();
        assert_eq!((report.recorded, report.dropped.total()), (64, 0), "{report}");
        // The clock has its own.
        assert!((64..128).contains(&live), "{live} events");
        assert_clean(stub, 2);
    });
}

#[test]
fn a_runtime_of_rocm_5_without_the_newer_functions_times_zones() {
    with("hip::a_runtime_of_rocm_5_without_the_newer_functions_times_zones", Runtime::Old, |stub| {
        let stub = stub.expect("it is there under its version's name");
        let (stream, other) = (stub.stream(), stub.stream());
        let (zones, report) = recorded(|| {
            for stream in [stream, other] {
                stub.stub_hip_launch(stream, AHEAD_NS);
                (0..20).for_each(|n| work(stub, &raw(stream), 4_000 + n));
            }
            work(stub, &raw(0), 1_000);
        });
        assert_eq!((zones.len(), report.dropped.total()), (41, 0), "{report}");
        // Behind the work that is ahead: on the default stream, the launches take longer than the work.
        let queued = |zone: &&ZoneRecord| zone.fields.get("ns") != Some(&Value::I64(1_000));
        let queued: Vec<ZoneRecord> = zones.iter().filter(queued).cloned().collect();
        assert_eq!(queued.len(), 40);
        assert_lengths(&queued);
        let streams: std::collections::HashSet<_> =
            zones.iter().filter_map(|zone| zone.stream.as_ref()).map(|stream| stream.id).collect();
        assert_eq!(streams.len(), 3);
        assert_clean(stub, 2);
    });
}

#[test]
fn a_runtime_that_the_program_has_loaded_comes_before_another() {
    with("hip::a_runtime_that_the_program_has_loaded_comes_before_another", Runtime::Two, |stub| {
        let stub = stub.expect("the stub is there");
        let stream = stub.stream();
        let (zones, report) = recorded(|| (0..3).for_each(|_| alone(&raw(stream))));
        assert_eq!((zones.len(), report.dropped.total()), (3, 0), "{report}");
        assert!(stub.calls("hipEventRecord") > 0, "the other runtime was called");
    });
}

#[test]
fn without_a_runtime_zones_are_counted_and_the_report_says_what_to_install() {
    let test = "hip::without_a_runtime_zones_are_counted_and_the_report_says_what_to_install";
    with(test, Runtime::Unloadable, |stub| {
        assert!(stub.is_none());
        let (zones, report) = recorded(|| (0..3).for_each(|_| alone(&raw(0x1000))));
        assert_eq!((zones.len(), report.dropped.event_failed), (0, 3), "{report}");
        let notes: Vec<_> = report.notes.iter().filter(|note| note.contains("there is no HIP runtime: ")).collect();
        assert!(notes.len() == 1 && notes[0].contains("/libamdhip64.so: file too short; install ROCm"), "{report}");
    });
}
