//! Zones that CUPTI's records time, on a real GPU: their lengths are the kernels' own, and streams overlap as without zones.
//!
//! Each test has a process of its own: a process opens CUPTI once, and a profiler that has been there leaves its marks.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use warpline::Session;
use warpline::record::EndSource;
use warpline::timing::{EndMode, Timing};

use warpline_tests::{taken, this_test};

use super::cupti::is_of;
use super::{INNER, KERNEL, MS, OUTER, US, alone_in_a_process, assert_exact, device, start};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zones_last_as_long_as_their_kernels_to_the_nanosecond() {
    alone_in_a_process(this_test!(), || {
        const STEPS: usize = 2_000;
        let gpu = device();
        let streams = gpu.streams(2).expect("streams");
        let spin = |stream: &Arc<CudaStream>, ns| gpu.spin(stream, ns, None).expect("launched");
        // The module is loaded, and the device awake.
        spin(&streams[0], MS);
        gpu.context.synchronize().expect("no error");
        let (session, sink) = start(Session::builder().timing(Timing::Kernels).kernels(true));
        for step in 0..STEPS {
            let _outer = OUTER.zone(&streams[0]);
            spin(&streams[0], US);
            {
                // On a stream that the zone does not name.
                let _inner = INNER.zone(&streams[0]);
                spin(&streams[step % 2], 2 * US);
            }
            if step % 100 == 0 {
                drop(KERNEL.zone(&streams[1]));
            }
        }
        gpu.context.synchronize().expect("no error");
        // CUPTI delivers them while the session runs: no zone waits for its end.
        let zones = taken(2 * STEPS + STEPS / 100, || sink.take());
        let report = session.finish();
        println!("{report}");
        assert_exact(&report);
        let (rest, kernels) = (sink.take(), sink.take_kernels());
        assert!(rest.is_empty());
        assert_eq!(kernels.len(), 2 * STEPS, "{report}");
        assert_eq!(report.kernel_timing.timed, 2 * STEPS as u64, "{report}");
        assert_eq!((report.kernel_timing.without_work, report.kernel_timing.lost), (STEPS as u64 / 100, 0), "{report}");
        let mut kernels: Vec<_> = kernels.iter().collect();
        kernels.sort_by_key(|kernel| kernel.correlation);
        for zone in &zones {
            if std::ptr::eq(zone.range, &KERNEL) {
                assert_eq!((zone.gpu, zone.end), (None, EndSource::NoWork));
                continue;
            }
            // The step's number: each has two kernels, in the order of their launches.
            let of_inner = std::ptr::eq(zone.range, &INNER);
            let own = kernels.iter().position(|kernel| is_of(kernel, zone)).expect("a kernel of the zone");
            let work = &kernels[own..own + if of_inner { 1 } else { 2 }];
            let begin = work.iter().map(|kernel| kernel.gpu.begin_ns).min().expect("work");
            let end = work.iter().map(|kernel| kernel.gpu.end_ns).max().expect("work");
            let gpu = zone.gpu.expect("timed");
            assert_eq!((gpu.begin_ns, gpu.end_ns, zone.end), (begin, end, EndSource::Kernels), "{zone:?}");
            assert_eq!((zone.bracket_ns, zone.end_early_by_ns), (0, 0));
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn streams_overlap_as_without_zones_and_launches_cost_little_more() {
    alone_in_a_process(this_test!(), || {
        const STREAMS: usize = 16;
        let gpu = device();
        let streams = gpu.streams(STREAMS).expect("streams");
        let overlap = || {
            let begin = Instant::now();
            for _ in 0..40 {
                for stream in &streams {
                    let _zone = KERNEL.zone(stream);
                    // So long that the streams' work takes longer than its launches.
                    gpu.spin(stream, 300 * US, None).expect("launched");
                }
            }
            gpu.context.synchronize().expect("no error");
            begin.elapsed().as_secs_f64() * 1e3
        };
        // A step that is bound by its launches: 23 kernels, 11 zones.
        let steps = || {
            let begin = Instant::now();
            for _ in 0..2_000 {
                let _outer = OUTER.zone(&streams[0]);
                for zone in 0..10 {
                    let _inner = INNER.zone(&streams[0]);
                    for _ in 0..if zone < 3 { 3 } else { 2 } {
                        gpu.spin(&streams[0], 0, None).expect("launched");
                    }
                }
            }
            gpu.context.synchronize().expect("no error");
            begin.elapsed().as_secs_f64() * 1e6 / 2_000.0
        };
        let best = |run: &dyn Fn() -> f64| (0..5).map(|_| run()).fold(f64::MAX, f64::min);
        let all = || (best(&overlap), best(&steps));
        let _warm = all();
        let none = all();
        let mut said = vec![("none", none)];
        let ways = [
            ("lazy", Session::builder().ends(EndMode::Lazy)),
            ("eager", Session::builder().ends(EndMode::Eager)),
            ("timing=kernels", Session::builder().timing(Timing::Kernels)),
        ];
        for (name, builder) in ways {
            let (session, _sink) = start(builder);
            said.push((name, all()));
            let report = session.finish();
            println!("{name}: {report}");
            assert_exact(&report);
            if name == "timing=kernels" {
                assert_eq!((report.dropped.total(), report.kernel_timing.lost), (0, 0), "{report}");
                assert!(report.kernel_timing.timed > 0 && report.kernel_timing.without_work == 0, "{report}");
            }
        }
        said.push(("none again", all()));
        for (name, (overlap_ms, step_us)) in &said {
            println!("{name:>16}: 16 streams {overlap_ms:.2} ms, a step {step_us:.1} us");
        }
        // A machine changes its speed meanwhile: right behind it, nothing is recorded again.
        let without_ms = none.0.max(said[4].1.0);
        assert!(said[3].1.0 <= 1.1 * without_ms, "streams overlap less: {said:?}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn without_cupti_zones_are_timed_by_lazy_events() {
    alone_in_a_process(this_test!(), || {
        // SAFETY: no other thread reads the environment yet.
        unsafe { std::env::set_var("WARPLINE_CUPTI", "/nowhere/libcupti.so") };
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().timing(Timing::Kernels));
        for _ in 0..10 {
            let _zone = KERNEL.zone(&stream);
            gpu.spin(&stream, 100 * US, None).expect("launched");
        }
        gpu.context.synchronize().expect("no error");
        let report = session.finish();
        assert_exact(&report);
        assert!(report.notes.iter().any(|note| note.starts_with("zones are timed by events")), "{report}");
        assert!(sink.take().iter().all(|zone| zone.gpu.is_some() && zone.end != EndSource::Kernels));
    });
}
