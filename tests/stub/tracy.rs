//! A session that writes to Tracy, with Tracy's real client and no viewer: it takes every record, two sessions in one
//! process go together, and so does an application that uses Tracy itself.

use std::time::Duration;

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::{HostStream, Session, collective, gpu_zone, host_zone};
use warpline_tests::alone;

warpline::range! {
    GRADIENTS = "stub.tracy_tests.gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "stub.tracy_tests.gradient": "Sums one gradient.", kind = collective;
}

/// Sums over the group.
#[collective("stub.tracy_tests.sum", kind = "all_reduce", count = 8, dtype = f32, group = group, fields(layer = 7))]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| ());
}

/// Launches on a stream.
#[host_zone("stub.tracy_tests.launch")]
fn launch(stream: &HostStream, zones: u64) {
    for zone in 0..zones {
        outer(stream, zone);
    }
}

/// Has a zone in it.
#[gpu_zone("stub.tracy_tests.outer", label = format_args!("zone {zone}"))]
fn outer(stream: &HostStream, zone: u64) {
    inner(stream);
}

/// Is in a zone.
#[gpu_zone("stub.tracy_tests.inner", color = 0x2060C0)]
fn inner(stream: &HostStream) {
    stream.launch(|| ());
}

#[test]
fn two_sessions_show_all_their_zones() {
    let _turn = alone();
    for _ in 0..2 {
        let session = Session::builder()
            .settings("tracy,ring=65536")
            .and_then(|session| session.start())
            .expect("tracy is built in");
        let streams = ["compute", "copy"].map(HostStream::new);
        std::thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| launch(stream, 500));
            }
        });
        for stream in &streams {
            stream.synchronize().expect("nothing panicked");
        }
        // Long enough for the collector to say how the session stands.
        std::thread::sleep(Duration::from_millis(250));
        let report = session.finish();
        assert_eq!((report.recorded, report.dropped.total()), (2_002, 0));
        let [tracy] = &report.sinks[..] else { panic!("one sink: {:?}", report.sinks) };
        assert_eq!((tracy.name.as_str(), tracy.taken, tracy.lost), ("tracy", 2_002, 0));
        assert_eq!(tracy.first_error, None);
    }
}

#[test]
fn zones_that_cannot_be_shown_are_in_the_report() {
    let _turn = alone();
    let session = Session::builder().tracy().start().expect("tracy is built in");
    let any_thread = warpline::catalog().find("stub.tracy_tests.launch").expect("it is marked").async_host();
    std::thread::spawn(move || drop(any_thread)).join().expect("nothing panicked");
    let report = session.finish();
    let [tracy] = &report.sinks[..] else { panic!("one sink: {:?}", report.sinks) };
    assert_eq!((tracy.taken, tracy.lost, tracy.errors), (0, 1, 1));
    let error = tracy.first_error.as_deref().unwrap_or_default();
    assert!(error.contains("1 on the host, which ended on another thread"), "{error}");
}

#[test]
fn an_application_shows_zones_of_its_own() {
    let _turn = alone();
    let client = tracy_client::Client::start();
    let context = client.clone().new_gpu_context(Some("own"), tracy_client::GpuContextType::Vulkan, 0, 1.0);
    let context = context.expect("warpline takes none of the first ids");
    let session = Session::builder().tracy().start().expect("tracy is built in");
    let stream = HostStream::new("beside");
    {
        let _span = tracy_client::span!("own span");
        let mut own = context.span(tracy_client::span_location!("own zone")).expect("there is room");
        outer(&stream, 1);
        own.end_zone();
    }
    stream.synchronize().expect("nothing panicked");
    let report = session.finish();
    assert_eq!((report.sinks[0].taken, report.sinks[0].lost), (2, 0));
}

#[cfg(feature = "timeline")]
#[test]
fn collectives_and_waits_are_shown_beside_the_zones() {
    use warpline::timeline::Semaphore;

    let _turn = alone();
    let session = Session::builder().tracy().start().expect("tracy is built in");
    let (stream, copies) = (HostStream::new("compute"), HostStream::new("copies"));
    let (group, done) = (ProcessGroup::new("tp0", [0, 1], 0), Semaphore::named("done", 0));
    for step in 1..=100 {
        sum(&stream, &group);
        {
            let mut batch = GRADIENTS.batch(&stream);
            for count in [10_u64, 20] {
                batch.add(&GRADIENT, || {
                    Message::new(CollectiveKind::Broadcast).count(count).dtype(DataType::Bf16).group(&group)
                });
            }
        }
        done.signal_on(&stream, 2 * step - 1).expect("it grows");
        done.wait_on(&copies, 2 * step - 1).expect("submitted");
        done.signal(2 * step).expect("it grows");
        done.wait(2 * step, Duration::MAX).expect("signalled");
    }
    stream.synchronize().and_then(|()| copies.synchronize()).expect("nothing panicked");
    let report = session.finish();
    // A zone for each sum, a batch and its entries, a wait of the stream and one of the thread.
    assert_eq!((report.recorded, report.waits.recorded), (400, 200), "{report}");
    let [tracy] = &report.sinks[..] else { panic!("one sink: {:?}", report.sinks) };
    assert_eq!((tracy.taken, tracy.lost, tracy.first_error.as_deref()), (600, 0, None));
}

#[cfg(feature = "cupti")]
#[test]
fn kernels_and_replays_are_shown_beside_the_zones() {
    use crate::harness::cupti::{Launch, kernel, number, with_cupti};
    use crate::harness::graphs::{self, Captured, exec_id};
    use crate::harness::zones::{boot_ns, raw};

    with_cupti(warpline_tests::this_test!(), |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let session = Session::builder().kernels(true).tracy().start().expect("no other session");
        let stream = driver.stream();
        let begin_ns = boot_ns().cast_unsigned();
        for n in 0..100 {
            let _zone = GRADIENTS.zone(&raw(stream));
            let begin_ns = begin_ns + 20_000 * n;
            let launch =
                Launch { stream: number(stream), begin_ns, end_ns: begin_ns + 10_000, ..kernel(c"_Z4gemmPfS_i") };
            cupti.launch(launch);
        }
        let captured = Captured::new(driver, stream, || {
            let _zone = GRADIENT.zone(&raw(stream));
            graphs::kernel(driver, stream, 0);
        });
        let Captured { exec, zones: _zones, .. } = captured;
        let exec = exec_id(driver, exec);
        (0..3).for_each(|n| cupti.replay(stream, exec, 1, begin_ns + 3_000_000 + 100_000 * n, 10_000));
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_eq!(report.kernels.recorded, 103, "{report}");
        let [tracy] = &report.sinks[..] else { panic!("one sink: {:?}", report.sinks) };
        // The zones, the kernels, and the replays.
        assert_eq!((tracy.taken, tracy.lost, tracy.first_error.as_deref()), (100 + 103 + 3, 0, None));
    });
}
