//! What a program gets on a real GPU that sets nothing: timed ends from its first zone on, bounds where five streams share the device's
//! queues, and positions after a rest.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs, slice};

use cudarc::driver::CudaStream;
use gpu::Gpu;
use warpline::Session;
use warpline::record::EndSource;
use warpline_tests::{again, alone, this_test};

use super::{KERNEL, US, all_recorded, device, gpu_ns, memory};

/// What a pair of events adds to a kernel on an idle stream, with its launch in it, at most.
const PAIR_NS: i64 = 60_000;

/// Launches the kernel once on each stream: the driver loads a kernel at its first launch, which may take longer than the kernel.
fn load(gpu: &Gpu, streams: &[Arc<CudaStream>]) {
    for stream in streams {
        gpu.spin(stream, US, None).expect("launched");
    }
    gpu.context.synchronize().expect("no error");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_first_zones_of_a_program_have_their_lengths() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    load(gpu, slice::from_ref(&stream));
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
    load(gpu, &streams);
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

/// Says to the test that runs itself again where its program writes its report.
const EXITS: &str = "WARPLINE_TEST_GPU_EXITS";

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_program_that_exits_with_its_session_keeps_every_zone() {
    if let Some(report) = env::var_os(EXITS) {
        // Before CUDA, so that CUDA's own handler is registered later than the first of the session's.
        let session = Session::builder().summary_file(Path::new(&report)).start().expect("no other session");
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        for _ in 0..50 {
            let _zone = KERNEL.zone(&stream);
            gpu.spin(&stream, 20 * US, None).expect("launched");
        }
        stream.synchronize().expect("no error");
        std::mem::forget(session);
        std::process::exit(3);
    }
    let file = env::temp_dir().join(format!("warpline-gpu-exit-{}.json", std::process::id()));
    let output = again(this_test!(), EXITS, &file).output().expect("the test can run itself");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("it is written")).expect("JSON");
    let _ = fs::remove_file(&file);
    let (zones, range) = (&report["zones"], &report["ranges"][0]);
    assert_eq!((&zones["begun"], &zones["recorded"]), (&50.into(), &50.into()), "{report}");
    assert_eq!((&range["count"], &range["bounded"]), (&50.into(), &0.into()), "{report}");
}
