//! What a program gets on a real GPU that sets nothing: timed ends from its first zone on, bounds where five streams share the device's
//! queues, and positions after a rest.

use std::thread::sleep;
use std::time::Duration;

use warpline::record::EndSource;
use warpline_tests::alone;

use super::{KERNEL, US, all_recorded, device, gpu_ns, memory};

/// What a pair of events adds to a kernel on an idle stream, with its launch in it, at most.
const PAIR_NS: i64 = 30_000;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_first_zones_of_a_program_have_their_lengths() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    gpu.null(&stream).expect("launched");
    stream.synchronize().expect("no error");
    let (session, zones) = memory();
    for _ in 0..3 {
        let _zone = KERNEL.zone(&stream);
        gpu.spin(&stream, 500 * US, None).expect("launched");
    }
    stream.synchronize().expect("no error");
    all_recorded(session, 3);
    for zone in zones.take() {
        assert_eq!((zone.end, zone.end_early_by_ns), (EndSource::Event, 0), "{zone:?}");
        let longer_ns = gpu_ns(&zone) - 500 * US as i64;
        assert!((0..PAIR_NS).contains(&longer_ns), "{longer_ns} ns longer than its kernel: {zone:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_fifth_stream_makes_ends_bounds_that_hold() {
    let _turn = alone();
    let gpu = device();
    let streams = gpu.streams(5).expect("streams");
    let (session, zones) = memory();
    for stream in &streams {
        for _ in 0..2 {
            let _zone = KERNEL.zone(stream);
            gpu.spin(stream, 500 * US, None).expect("launched");
        }
    }
    gpu.context.synchronize().expect("no error");
    all_recorded(session, 10);
    let zones = zones.take();
    let lazy = zones.iter().filter(|zone| zone.end != EndSource::Event).count();
    assert_eq!(lazy, 2, "the zones of the fifth stream: {zones:?}");
    for zone in zones {
        let (most_ns, kernel_ns) = (gpu_ns(&zone), 500 * US as i64);
        let least_ns = most_ns - zone.end_early_by_ns;
        assert!(least_ns <= kernel_ns + PAIR_NS && most_ns >= kernel_ns, "from {least_ns} to {most_ns} ns: {zone:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zones_that_end_a_rest_begin_after_their_launch() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (session, zones) = memory();
    let rests = [0, 2, 5, 60];
    for rest in rests {
        sleep(Duration::from_secs(rest));
        let _zone = KERNEL.zone(&stream);
        gpu.spin(&stream, 200 * US, None).expect("launched");
        stream.synchronize().expect("no error");
    }
    let report = all_recorded(session, rests.len() as u64);
    let mut zones = zones.take();
    zones.sort_by_key(|zone| zone.host.begin_ns);
    for (zone, rest) in zones.iter().zip(rests) {
        let span = zone.gpu.expect("it is timed");
        let behind_ns = span.begin_ns - zone.host.begin_ns;
        assert!((-10_000..1_000_000).contains(&behind_ns), "{behind_ns} ns behind its launch after {rest} s: {report}");
        let longer_ns = span.duration_ns() - 200 * US as i64;
        // The launch is in it, which is slow after a rest.
        assert!((0..300_000).contains(&longer_ns), "{longer_ns} ns longer than its kernel after {rest} s");
    }
    let worst_ns = report.clocks[0].worst_uncertainty_ns;
    assert!(worst_ns < 50_000, "positions within {worst_ns} ns: {report}");
}
