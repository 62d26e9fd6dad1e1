//! Sessions that stop and start, and single zones, on a real GPU.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, sys};
use gpu::Gpu;
use warpline::profile::{PendingZone, ProfileError};
use warpline::{RawEvent, Value, profile};
use warpline_tests::alone;

use super::{CAPTURED, MS, US, assert_exact, capture, device, gpu_ns, memory};

warpline::range! {
    STEP = "cuda_tests.live_step": "A step.";
    PART = "cuda_tests.live_part": "A part of a step.";
    SHARED = "cuda_tests.live_shared": "A zone on a stream that many threads use.";
}

const LONG: Duration = Duration::from_secs(20);

/// A step of a few dozen small kernels. How long the launching thread and the device took for it together.
fn step(gpu: &Gpu, stream: &Arc<CudaStream>) -> Duration {
    let begin = Instant::now();
    {
        let _step = STEP.zone(stream);
        for _ in 0..48 {
            let _part = PART.zone(stream);
            gpu.spin(stream, 10 * US, None).expect("launched");
        }
    }
    stream.synchronize().expect("no error");
    begin.elapsed()
}

fn median(gpu: &Gpu, stream: &Arc<CudaStream>) -> f64 {
    let mut steps: Vec<_> = (0..800).map(|_| step(gpu, stream).as_secs_f64()).collect();
    steps.sort_by(f64::total_cmp);
    steps[steps.len() / 2]
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_step_takes_as_long_after_a_hundred_cycles_as_before_the_first() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    median(gpu, &stream);
    let never = median(gpu, &stream);
    let (session, zones) = memory();
    for _ in 0..100 {
        session.start();
        step(gpu, &stream);
        session.stop();
        step(gpu, &stream);
    }
    let stopped = median(gpu, &stream);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, zones.take().len()), (4_900, 4_900), "{report}");
    for _ in 0..100 {
        let (session, _zones) = memory();
        step(gpu, &stream);
        assert_eq!(session.finish().recorded, 49);
    }
    let finished = median(gpu, &stream);
    println!(
        "a step took {:.1} µs before, {:.4} of that while stopped, {:.4} after 100 sessions",
        never * 1e6,
        stopped / never,
        finished / never
    );
    for ratio in [stopped / never, finished / never] {
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_single_zone_is_timed_without_a_session() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    // On an idle stream the launch is in the zone, however long the host takes for it.
    let is_so = |ns: i64, begin: Instant| {
        let most_ns = begin.elapsed().as_nanos() as i64;
        assert!((MS as i64..most_ns).contains(&ns), "{ns} ns for a kernel of 1 ms, in {most_ns} ns");
    };
    for _ in 0..10 {
        let begin = Instant::now();
        let pending = profile::next(&stream);
        for _ in 0..3 {
            let _part = PART.zone(&stream);
            gpu.spin(&stream, MS, None).expect("launched");
        }
        is_so(gpu_ns(&pending.wait(LONG).expect("it is timed")), begin);
        stream.synchronize().expect("no error");
        let begin = Instant::now();
        let (launched, pending) = warpline::time!(&stream, gpu.spin(&stream, MS, None));
        launched.expect("launched");
        is_so(gpu_ns(&pending.wait(LONG).expect("it is timed")), begin);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn of_sixteen_threads_on_one_stream_each_request_gets_its_own_threads_zone() {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 10_000;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (is_over, ready) = (AtomicBool::new(false), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for n in 1..THREADS {
            let (stream, is_over, ready) = (&stream, &is_over, &ready);
            scope.spawn(move || {
                let gpu = device();
                ready.wait();
                while !is_over.load(Ordering::Relaxed) {
                    let _zone = SHARED.zone(stream).field("thread", n);
                    gpu.null(stream).expect("launched");
                    // Without a rest they fill the stream, and every launch waits for room on it.
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
        }
        ready.wait();
        let answer = |(round, pending): (u64, PendingZone)| {
            let zone = pending.wait(LONG).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(zone.fields.get("round"), Some(&Value::U64(round)));
        };
        // The stream has launches of the others before each zone: many are waited for at a time.
        let mut waiting = VecDeque::new();
        for round in 0..ROUNDS {
            waiting.push_back((round, profile::next(&stream)));
            let zone = SHARED.zone(&stream).field("round", round);
            gpu.null(&stream).expect("launched");
            drop(zone);
            if waiting.len() > 200 {
                waiting.pop_front().into_iter().for_each(answer);
            }
        }
        waiting.into_iter().for_each(answer);
        is_over.store(true, Ordering::Relaxed);
    });
    stream.synchronize().expect("no error");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_is_whole_while_zones_are_asked_for() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (pending, range) = (profile::next(&stream), profile::range(&PART, 1));
    let marked = capture(&stream, || {
        let refused = profile::next(&stream);
        let _part = PART.zone(&stream);
        gpu.null(&stream).expect("captured");
        assert_eq!(refused.wait(LONG).expect_err("it is captured"), ProfileError::Captured);
    });
    let unmarked = capture(&stream, || gpu.null(&stream).expect("captured"));
    assert_eq!(marked, unmarked, "nothing was added to the graph");
    let error = pending.wait(Duration::ZERO).expect_err("nothing else came by");
    assert_eq!(error, ProfileError::TimedOut { has_begun: false, captured: CAPTURED as u64 });
    {
        let _part = PART.zone(&stream);
        gpu.spin(&stream, 50 * US, None).expect("launched");
    }
    assert!(gpu_ns(&pending.wait(LONG).expect("it is timed")) >= 50 * US as i64);
    assert!(range.wait(LONG).iter().all(Result::is_ok));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_callers_event_is_behind_the_zone_and_before_what_follows() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    for is_in_session in [false, true] {
        let session = is_in_session.then(memory);
        let event = gpu.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)).expect("an event");
        // SAFETY: the event lives until the end of the round.
        let raw = unsafe { RawEvent::from_ptr(event.cu_event().cast()) };
        let pending = profile::next_with_event(&stream, raw);
        let begin = Instant::now();
        {
            let _step = STEP.zone(&stream);
            gpu.spin(&stream, 20 * MS, None).expect("launched");
        }
        gpu.spin(&stream, 400 * MS, None).expect("launched");
        event.synchronize().expect("the event was recorded");
        let took = begin.elapsed();
        assert!((Duration::from_millis(20)..Duration::from_millis(300)).contains(&took), "{took:?}");
        stream.synchronize().expect("no error");
        let zone = pending.wait(LONG).expect("the stream is sound");
        assert!((20 * MS as i64..60 * MS as i64).contains(&gpu_ns(&zone)), "{zone:?}");
        if let Some((session, _)) = session {
            assert_exact(&session.finish());
        }
    }
}
