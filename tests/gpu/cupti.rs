//! Kernels through CUPTI, on a real GPU: whole, in their zones, on their streams, and with the times that the device says.
//!
//! Each test has a process of its own: a process opens CUPTI once, and a profiler that has been there leaves its marks.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, result, sys};
use gpu::DeviceMemory;
use warpline::Session;
use warpline::graph::GraphZones;
use warpline::profile::{self, SubmittedWork};
use warpline::record::{KernelRecord, KernelWork, SyncKind, SyncRecord, ZoneRecord};
use warpline::report::Report;
use warpline::timing::EndMode;

use warpline_tests::this_test;

use super::{INNER, KERNEL, MS, OUTER, US, alone_in_a_process, assert_exact, device, start};

/// What a session saw of `work`: the report, its zones and its kernels, both in order.
fn recorded(work: impl FnOnce()) -> (Report, Vec<ZoneRecord>, Vec<KernelRecord>) {
    let (session, sink) = start(Session::builder().kernels(true).ends(EndMode::Eager));
    work();
    device().context.synchronize().expect("no error");
    let report = session.finish();
    assert_exact(&report);
    assert!(super::notes(&report).is_empty(), "{report}");
    let (mut zones, mut kernels) = (sink.take(), sink.take_kernels());
    assert_eq!((kernels.len() as u64, report.kernels.lost()), (report.kernels.recorded, 0), "{report}");
    zones.sort_by_key(|zone| zone.host.begin_ns);
    kernels.sort_by_key(|kernel| kernel.gpu.begin_ns);
    (report, zones, kernels)
}

/// Whether the kernel was launched in the zone.
pub(super) fn is_of(kernel: &KernelRecord, zone: &ZoneRecord) -> bool {
    kernel.zone.is_some_and(|of| {
        std::ptr::eq(of.range, zone.range)
            && of.sequence == zone.sequence
            && of.stream == zone.stream.as_ref().map(|stream| stream.id)
    })
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_kernel_is_in_its_zone_and_on_its_stream() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let streams = gpu.streams(2).expect("streams");
        let spin = |stream: &Arc<CudaStream>| gpu.spin(stream, 50 * US, None).expect("launched");
        let (_, zones, kernels) = recorded(|| {
            for _ in 0..200 {
                let _outer = OUTER.zone(&streams[0]);
                spin(&streams[0]);
                {
                    let _inner = INNER.zone(&streams[1]);
                    spin(&streams[1]);
                }
                spin(&streams[0]);
            }
            spin(&streams[0]);
        });
        // What the session itself launches, if anything, is no spin.
        let kernels: Vec<_> = kernels.iter().filter(|kernel| kernel.name.contains("spin")).collect();
        assert_eq!((zones.len(), kernels.len()), (400, 601));
        for zone in &zones {
            let own: Vec<_> = kernels.iter().filter(|kernel| is_of(kernel, zone)).collect();
            assert_eq!(own.len(), if std::ptr::eq(zone.range, &OUTER) { 2 } else { 1 }, "{zone:?}");
            let (stream, gpu) = (zone.stream.as_ref().expect("on a stream"), zone.gpu.expect("timed"));
            for kernel in own {
                assert_eq!(&kernel.stream, stream);
                // Two clocks, each within some µs of the host's.
                assert!(gpu.begin_ns - kernel.gpu.begin_ns < 20_000, "{kernel:?} begins before {zone:?}");
                assert!(kernel.gpu.end_ns - gpu.end_ns < 20_000, "{kernel:?} ends after {zone:?}");
                assert!((50_000..70_000).contains(&kernel.duration_ns()), "{kernel:?}");
                let launch = kernel.launch.as_ref().expect("the call is known");
                assert!(
                    launch.host.begin_ns >= zone.host.begin_ns - 20_000 && launch.thread == zone.thread,
                    "{launch:?}"
                );
            }
        }
        assert_eq!(kernels.iter().filter(|kernel| kernel.zone.is_none()).count(), 1);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_and_sets_say_their_bytes() {
    alone_in_a_process(this_test!(), || {
        const BYTES: usize = 1 << 20;
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let memory = DeviceMemory::zeroed(BYTES).expect("memory");
        let mut host = vec![7_u8; BYTES];
        let (_, zones, kernels) = recorded(|| {
            let _zone = KERNEL.zone(&stream);
            // SAFETY: the memory is as large, and both live until the synchronisation behind this.
            unsafe {
                result::memcpy_htod_async(memory.0, &host, stream.cu_stream()).expect("copied");
                result::memset_d8_async(memory.0, 3, BYTES / 2, stream.cu_stream()).expect("set");
                result::memcpy_dtoh_async(&mut host, memory.0, stream.cu_stream()).expect("copied");
            }
            stream.synchronize().expect("no error");
        });
        assert!(host[..BYTES / 2].iter().all(|byte| *byte == 3));
        let said: Vec<_> = kernels
            .iter()
            .filter_map(|kernel| {
                let kind = match kernel.work {
                    KernelWork::Memcpy { kind, .. } => kind,
                    KernelWork::Memset { .. } => "set",
                    _ => return None,
                };
                assert!(is_of(kernel, &zones[0]), "{kernel:?}");
                Some((kind, kernel.work.bytes()))
            })
            .collect();
        let bytes = |bytes: usize| Some(bytes as u64);
        assert_eq!(said, [("HtoD", bytes(BYTES)), ("set", bytes(BYTES / 2)), ("DtoH", bytes(BYTES))]);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn each_replay_of_a_graph_has_its_correlation_and_every_node_an_id() {
    alone_in_a_process(this_test!(), || {
        const NODES: usize = 16;
        const REPLAYS: usize = 5;
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (_, zones, kernels) = recorded(|| {
            // The session is there before the graph is.
            stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).expect("the capture begins");
            for _ in 0..NODES {
                gpu.spin(&stream, 5 * US, None).expect("captured");
            }
            let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).expect("the capture ends").expect("a graph");
            for _ in 0..REPLAYS {
                let _zone = OUTER.zone(&stream);
                graph.launch().expect("launched");
            }
            stream.synchronize().expect("no error");
        });
        let kernels: Vec<_> = kernels.iter().filter(|kernel| kernel.graph.is_some()).collect();
        assert_eq!(kernels.len(), NODES * REPLAYS);
        let mut correlations = BTreeSet::new();
        for (replay, zone) in kernels.chunks(NODES).zip(&zones) {
            assert!(replay.iter().all(|kernel| kernel.correlation == replay[0].correlation && is_of(kernel, zone)));
            assert!(correlations.insert(replay[0].correlation));
            let nodes: BTreeSet<_> = replay.iter().filter_map(|kernel| Some(kernel.graph?.node)).collect();
            assert_eq!(nodes.len(), NODES);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_replay_has_the_zones_that_were_captured_into_it() {
    alone_in_a_process(this_test!(), || {
        const REPLAYS: usize = 5;
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        let spin = || gpu.spin(&stream, 20 * US, None).expect("captured");
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).expect("the capture begins");
        spin();
        {
            let _outer = OUTER.zone(&stream);
            (0..3).for_each(|_| spin());
            let _inner = INNER.zone(&stream);
            (0..2).for_each(|_| spin());
        }
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).expect("the capture ends").expect("a graph");
        let zones = GraphZones::for_graph(&graph).expect("a graph that is alive");
        for _ in 0..REPLAYS {
            let _zone = KERNEL.zone(&stream);
            graph.launch().expect("launched");
        }
        stream.synchronize().expect("no error");
        let report = session.finish();
        assert_exact(&report);
        let (kernels, replays) = (sink.take_kernels(), sink.take_replays());
        assert_eq!(replays.len(), REPLAYS, "{report}: {:?}", zones.nodes().map(|node| node.kind).collect::<Vec<_>>());
        for replay in &replays {
            let own: Vec<_> = kernels.iter().filter(|kernel| kernel.correlation == replay.correlation).collect();
            assert_eq!((own.len(), replay.kernels), (6, 6));
            assert_eq!(replay.zone.map(|zone| zone.range.name()), Some(KERNEL.name()));
            let zones: Vec<_> = (replay.zones.iter())
                .map(|replayed| (replayed.zone.range.name(), replayed.zone.depth, replayed.kernels))
                .collect();
            assert_eq!(zones, [(OUTER.name(), 0, 5), (INNER.name(), 1, 2)]);
            // Each zone is as long as its kernels, by CUPTI's own times.
            for replayed in &replay.zones {
                let gpu = replayed.zone.gpu.expect("it has kernels");
                let inside = own.iter().filter(|own| own.gpu.begin_ns >= gpu.begin_ns && own.gpu.end_ns <= gpu.end_ns);
                assert_eq!(inside.count(), replayed.kernels as usize, "{replayed:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_session_with_kernels_after_another_records_as_much() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        for _ in 0..5 {
            let (_, zones, kernels) = recorded(|| {
                for _ in 0..1_000 {
                    let _zone = KERNEL.zone(&stream);
                    gpu.null(&stream).expect("launched");
                }
                stream.synchronize().expect("no error");
            });
            let of_zones = kernels.iter().filter(|kernel| kernel.zone.is_some()).count();
            assert_eq!((zones.len(), of_zones), (1_000, 1_000));
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn more_threads_launch_than_there_are_buffers() {
    alone_in_a_process(this_test!(), || {
        const THREADS: usize = 100;
        const LAUNCHES: usize = 20;
        let gpu = device();
        let streams = gpu.streams(4).expect("streams");
        let launch_graph = || {
            let stream = &streams[0];
            stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).expect("the capture begins");
            gpu.null(stream).expect("captured");
            let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).expect("the capture ends").expect("a graph");
            graph.launch().expect("launched");
            stream.synchronize().expect("no error");
        };
        // CUPTI is ended after the first session. After the second, in which a graph is launched, it stays.
        for round in 0..3 {
            let (session, sink) = start(Session::builder().kernels(true).ends(EndMode::Eager));
            let all = Barrier::new(THREADS);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (stream, all) = (&streams[thread % streams.len()], &all);
                    scope.spawn(move || {
                        let gpu = device();
                        all.wait();
                        for _ in 0..LAUNCHES {
                            let _zone = KERNEL.zone(stream);
                            gpu.null(stream).expect("launched");
                        }
                        // A thread that ends would give its buffer back.
                        all.wait();
                    });
                }
            });
            if round == 1 {
                launch_graph();
            }
            gpu.context.synchronize().expect("no error");
            let report = session.finish();
            assert_exact(&report);
            assert_eq!((report.kernels.buffers_refused, report.kernels.lost()), (0, 0), "{report}");
            let kernels = sink.take_kernels();
            let of_zones = kernels.iter().filter(|kernel| kernel.zone.is_some()).count();
            assert_eq!(of_zones, THREADS * LAUNCHES, "session {round}: {report}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_session_does_not_wait_for_a_kernel_that_runs_past_its_end() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        gpu.spin(&stream, 2_000 * MS, None).expect("launched");
        let since = std::time::Instant::now();
        let report = session.finish();
        assert!(since.elapsed().as_millis() < 1_500, "the end of the session waited for the device");
        assert!(sink.take_kernels().iter().all(|kernel| !kernel.name.contains("spin")));
        // CUPTI says that there is a kernel without a time, or nothing of it yet.
        assert!(report.kernels.lost() <= 1, "{report}");
        stream.synchronize().expect("no error");
    });
}

/// What a session saw of threads' waits during `work`.
fn synchronized(work: impl FnOnce()) -> (Report, Vec<SyncRecord>) {
    let (session, sink) = start(Session::builder().synchronizations(true));
    work();
    let report = session.finish();
    assert_exact(&report);
    let mut syncs = sink.take_synchronizations();
    syncs.sort_by_key(|sync| sync.host.begin_ns);
    assert_eq!((syncs.len() as u64, sink.take_kernels().len()), (report.synchronizations.recorded, 0), "{report}");
    (report, syncs)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn waits_of_threads_last_as_long_as_the_device_works() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let streams = gpu.streams(2).expect("streams");
        let event = gpu.context.new_event(None).expect("an event");
        let spin = |stream: &Arc<CudaStream>| gpu.spin(stream, 20 * MS, None).expect("launched");
        let begin = Instant::now();
        let (report, syncs) = synchronized(|| {
            {
                let _outer = OUTER.zone(&streams[0]);
                spin(&streams[0]);
                streams[0].synchronize().expect("no error");
            }
            spin(&streams[0]);
            event.record(&streams[0]).expect("recorded");
            streams[1].wait(&event).expect("queued");
            event.synchronize().expect("no error");
            spin(&streams[1]);
            gpu.context.synchronize().expect("no error");
            // Queries are no waits.
            assert!(event.is_complete());
        });
        let most_ns = begin.elapsed().as_nanos() as i64;
        let kinds: Vec<_> = syncs.iter().map(|sync| sync.kind).collect();
        let wanted = [
            SyncKind::StreamSynchronize,
            SyncKind::StreamWaitEvent,
            SyncKind::EventSynchronize,
            SyncKind::ContextSynchronize,
        ];
        assert_eq!(kinds, wanted, "{report}");
        let here = syncs[0].thread.id;
        for (sync, kind) in syncs.iter().zip(wanted) {
            assert_eq!((sync.thread.id, sync.kind), (here, kind));
            let waits = if kind.is_on_thread() { 15_000_000..most_ns } else { 0..10_000_000 };
            assert!(waits.contains(&sync.duration_ns()), "{sync:?}");
        }
        assert_eq!(syncs[0].zone.map(|zone| zone.range.name()), Some(OUTER.name()));
        assert!(syncs[1..].iter().all(|sync| sync.zone.is_none()));
        // A zone has begun on the stream, so its device is known.
        assert!(syncs[0].stream.is_some(), "{:?}", syncs[0]);
        assert_eq!(report.host_waits.len(), 3, "{report}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_next_submission_is_timed_whatever_it_is() {
    alone_in_a_process(this_test!(), || {
        const LONG: Duration = Duration::from_secs(20);
        let gpu = device();
        let streams = gpu.streams(2).expect("streams");
        let event = gpu.context.new_event(None).expect("an event");
        let memory = DeviceMemory::zeroed(1 << 20).expect("memory");
        for is_in_session in [false, true] {
            let session = is_in_session.then(|| start(Session::builder().kernels(true).ends(EndMode::Eager)));
            gpu.spin(&streams[0], 5 * MS, None).expect("launched");
            let pending = profile::next_submission(&streams[0]);
            gpu.spin(&streams[1], MS, None).expect("launched");
            gpu.spin(&streams[0], 2 * MS, None).expect("launched");
            let found = pending.wait(LONG).expect("it was launched");
            assert!(found.name.contains("spin"), "{found:?}");
            assert!((2 * MS as i64..4 * MS as i64).contains(&found.gpu_ns().expect("it ran")), "{found:?}");

            let pending = profile::next_submission(&streams[0]);
            // SAFETY: the memory is as large, and lives until the synchronisation behind this.
            unsafe { result::memset_d8_async(memory.0, 3, 1 << 20, streams[0].cu_stream()).expect("set") };
            let found = pending.wait(LONG).expect("it was launched");
            assert!(
                matches!(found.work, SubmittedWork::Single(KernelWork::Memset { bytes: 1_048_576, .. })),
                "{found:?}"
            );

            // CUPTI delivers the wait while the kernel before it still runs.
            gpu.spin(&streams[1], 300 * MS, None).expect("launched");
            event.record(&streams[1]).expect("recorded");
            let pending = profile::next_submission(&streams[0]);
            streams[0].wait(&event).expect("queued");
            gpu.spin(&streams[0], MS, None).expect("launched");
            let found = pending.wait(LONG).expect("it was queued");
            assert_eq!(found.work, SubmittedWork::Barrier(SyncKind::StreamWaitEvent), "{found:?}");
            assert_eq!(found.gpu, None);

            gpu.context.synchronize().expect("no error");
            if let Some((session, _)) = session {
                let report = session.finish();
                assert_exact(&report);
                assert_eq!(report.synchronizations.recorded, 0, "{report}");
            }
        }
    });
}
