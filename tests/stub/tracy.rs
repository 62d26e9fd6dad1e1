//! A session that writes to Tracy, with Tracy's real client and no viewer: it takes every record, two sessions in one
//! process go together, and so does an application that uses Tracy itself.

use std::time::Duration;

use warpline::{HostStream, Session, gpu_zone, host_zone};
use warpline_tests::alone;

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
