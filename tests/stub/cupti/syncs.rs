//! Synchronisations of a session, on the stub CUPTI: who waited how long and where, what is no wait, and who pays.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;
use warpline::Session;
use warpline::record::{SyncKind, SyncRecord};
use warpline::report::SyncCounts;
use warpline_tests::this_test;

use super::{HOST, INNER, OUTER};
use crate::harness::cupti::*;
use crate::harness::driver;
use crate::harness::zones::{self, assert_exact, raw};

const SYNCHRONIZATION: u32 = 38;

fn event_sync(event: u32, us: u64) -> Sync {
    Sync { sync_type: 1, call: 121, stream: NOT_APPLICABLE, event, ..stream_sync(0, us) }
}

fn context_sync(us: u64) -> Sync {
    // cudaDeviceSynchronize.
    Sync { sync_type: 4, call: 165, is_of_runtime: 1, ..event_sync(NOT_APPLICABLE, us) }
}

fn stream_wait(stream: u32, event: u32) -> Sync {
    Sync { sync_type: 2, call: 295, event, ..stream_sync(stream, 4) }
}

#[test]
fn each_wait_has_its_thread_its_time_and_its_zone() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // CUDA 12.0, 12.9, 13.5: the records differ in length.
        for version in [18, 28, 130_500] {
            cupti.stub_cupti_version(version);
            let (session, sink) = zones::start(|builder| builder.synchronizations(true));
            let (stream, unmarked) = (driver.stream(), 99);
            {
                let _outer = OUTER.zone(&raw(stream));
                cupti.sync(stream_sync(number(stream), 300));
                let _inner = INNER.zone(&raw(stream));
                cupti.sync(stream_wait(number(stream), 5));
            }
            {
                let _host = HOST.host();
                cupti.sync(event_sync(6, 200));
            }
            let other = thread::spawn({
                let sync = context_sync(100);
                let cupti = Cupti::open(&library());
                move || {
                    cupti.sync(sync);
                    driver::tid() as u64
                }
            });
            let other = other.join().expect("no panic");
            cupti.sync(stream_sync(unmarked, 50));
            let report = session.finish();
            assert_exact(&report);
            let mut syncs = sink.take_synchronizations();
            syncs.sort_by_key(|sync| sync.correlation);
            assert_eq!(report.synchronizations, SyncCounts { recorded: 5, ..SyncCounts::default() }, "{report}");
            let here = driver::tid() as u64;
            let said = |sync: &SyncRecord| {
                (
                    sync.kind,
                    sync.thread.id,
                    sync.duration_ns(),
                    sync.zone.map(|zone| zone.range.label()),
                    sync.cuda_stream,
                    sync.event,
                )
            };
            let (outer, inner, host) = (OUTER.label(), INNER.label(), HOST.label());
            let marked = Some(number(stream));
            assert_eq!(
                syncs.iter().map(said).collect::<Vec<_>>(),
                [
                    (SyncKind::StreamSynchronize, here, 300_000, Some(outer), marked, None),
                    (SyncKind::StreamWaitEvent, here, 4_000, Some(inner), marked, Some(5)),
                    (SyncKind::EventSynchronize, here, 200_000, Some(host), None, Some(6)),
                    (SyncKind::ContextSynchronize, other, 100_000, None, None, None),
                    (SyncKind::StreamSynchronize, here, 50_000, None, Some(unmarked), None),
                ],
                "{version}"
            );
            // The stream of zones, and none where nothing says on which device the stream is.
            let zone_stream = sink.take().into_iter().find_map(|zone| zone.stream);
            assert_eq!((&syncs[0].stream, &syncs[1].stream), (&zone_stream, &zone_stream));
            assert!(zone_stream.is_some() && syncs[4].stream.is_none());
            // A wait that a thread queues on a stream is no wait of the thread.
            let waits: Vec<_> =
                report.host_waits.iter().map(|row| (&*row.call, row.range.as_deref(), row.total_ns)).collect();
            assert_eq!(
                waits,
                [
                    ("cuStreamSynchronize", Some(OUTER.name()), 300_000),
                    ("cuEventSynchronize", Some(HOST.name()), 200_000),
                    ("cuCtxSynchronize", None, 100_000),
                    ("cuStreamSynchronize", None, 50_000),
                ]
            );
            let text = report.to_string();
            assert!(text.contains("\n5 synchronisations recorded, 0 dropped by CUPTI, 0 without a time"), "{text}");
            assert!(text.contains(": cuStreamSynchronize"), "{text}");
        }
    });
}

#[test]
fn queries_are_no_waits_and_what_cupti_could_not_time_is_counted() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = zones::start(|builder| builder.synchronizations(true));
        // cuEventQuery, cuStreamQuery.
        for is_incomplete in [0, 1] {
            cupti.sync(Sync { call: 120, is_incomplete, ..event_sync(5, 1) });
            cupti.sync(Sync { call: 125, is_incomplete, ..stream_sync(7, 1) });
        }
        cupti.sync(Sync { begin_ns: 0, end_ns: 0, ..stream_sync(7, 0) });
        cupti.stub_cupti_drop(3);
        let report = session.finish();
        assert_eq!(sink.take_synchronizations().len(), 0);
        let counts = SyncCounts { recorded: 0, dropped: 3, untimed: 1 };
        assert_eq!((report.synchronizations, report.kernels.lost()), (counts, 0), "{report}");
    });
}

#[test]
fn only_a_session_that_asks_records_synchronisations() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let kinds = [SYNCHRONIZATION, KERNEL, MEMCPY, MEMSET, MEMCPY2].map(|kind| move || cupti.stub_cupti_is_on(kind));
        let on = || kinds.each_ref().map(|is_on| is_on());
        let (session, sink) = zones::start(|builder| builder.kernels(true));
        assert_eq!(on(), [false, true, true, true, true]);
        cupti.sync(stream_sync(7, 10));
        session.finish();
        assert_eq!((sink.take_synchronizations().len(), cupti.calls("cuptiActivityEnableAllSyncRecords")), (0, 0));

        let (session, sink) = zones::start(|builder| builder.synchronizations(true));
        assert_eq!(on(), [true, false, false, false, false]);
        cupti.launch(kernel(c"k"));
        cupti.sync(stream_sync(7, 10));
        session.stop();
        // The collector turns CUPTI off.
        let deadline = Instant::now() + Duration::from_secs(10);
        while cupti.stub_cupti_is_on(SYNCHRONIZATION) {
            assert!(Instant::now() < deadline, "a stopped session records");
            thread::sleep(Duration::from_millis(5));
        }
        cupti.sync(stream_sync(7, 10));
        session.finish();
        assert_eq!((sink.take_kernels().len(), sink.take_synchronizations().len()), (0, 1));

        let (session, sink) = zones::start(|builder| builder.kernels(true).synchronizations(true));
        assert_eq!(on(), [true; 5]);
        cupti.launch(kernel(c"k"));
        cupti.sync(stream_sync(7, 10));
        let report = session.finish();
        let syncs = sink.take_synchronizations();
        // CUPTI has reported work of the context, so the stream's device is known.
        assert_eq!(syncs[0].stream.as_ref().map(|stream| &*stream.name), Some("CUDA stream 7"), "{report}");
        assert_eq!((sink.take_kernels().len(), syncs.len(), cupti.stub_cupti_on()), (1, 1, 0));
    });
}

#[test]
fn traces_show_waits_on_threads_and_queued_waits_below_streams() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let folder: PathBuf = env!("CARGO_TARGET_TMPDIR").into();
        let (packets, json) = (folder.join("syncs.pftrace"), folder.join("syncs.json"));
        let builder = Session::builder().synchronizations(true).perfetto(&packets).chrome(&json);
        let session = builder.start().expect("no other session");
        let stream = driver.stream();
        {
            let _outer = OUTER.zone(&raw(stream));
            cupti.sync(stream_sync(number(stream), 30));
            cupti.sync(stream_wait(number(stream), 5));
        }
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
        let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).expect("a JSON document");
        let events = document["traceEvents"].as_array().expect("events");
        let syncs: Vec<_> = events.iter().filter(|event| event["cat"] == "cuda_sync").collect();
        assert_eq!(syncs.len(), 2);
        let row = |event: &Value| {
            let is_row =
                |row: &&Value| row["name"] == "thread_name" && row["tid"] == event["tid"] && row["pid"] == event["pid"];
            events.iter().find(is_row).expect("a row")["args"]["name"].clone()
        };
        let [wait, queued] = ["Stream Sync", "Stream Wait Event"]
            .map(|name| syncs.iter().find(|event| event["name"] == name).expect(name));
        assert_eq!((wait["tid"].as_u64(), wait["dur"].as_f64()), (Some(driver::tid() as u64), Some(30.0)));
        assert_eq!((&wait["args"]["cuda_sync_kind"], &wait["args"]["zone"]), (&wait["name"], &OUTER.name().into()));
        assert_eq!(row(queued), "stream 1: waits for events");
        assert_eq!((&queued["args"]["wait_on_cuda_event_id"], &queued["args"]["stream"]), (&5.into(), &1.into()));
        assert_eq!(document["otherData"]["synchronizations"]["recorded"], 2);
        let trace = fs::read(&packets).unwrap();
        let has = |text: &str| trace.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        for text in ["cuStreamSynchronize", "cuStreamWaitEvent", "waits for events", "cuda_sync", "queued_by"] {
            assert!(has(text), "{text} is not in the trace");
        }
    });
}
