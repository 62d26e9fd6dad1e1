//! A stream that a session meets while CUPTI is paused: it has CUPTI's numbers from its next zone on.

use std::thread;
use std::time::{Duration, Instant};

use warpline::record::{EndSource, KernelRecord, ZoneRecord};
use warpline::report::Report;
use warpline::timing::Timing;
use warpline::{RawStream, SessionBuilder};
use warpline_tests::this_test;

use super::{INNER, OUTER, is_of};
use crate::harness::cupti::*;
use crate::harness::driver::Stub;
use crate::harness::zones::{self, assert_exact, boot_ns, raw};

/// What a session records of two zones on a stream: one begins while CUPTI is still paused, and one with a kernel, which `open` opens, when it
/// records again.
fn met_while_paused<Z>(
    driver: &Stub,
    cupti: &Cupti,
    change: impl FnOnce(SessionBuilder) -> SessionBuilder,
    open: impl FnOnce(&RawStream) -> Z,
) -> (Report, Vec<ZoneRecord>, Vec<KernelRecord>) {
    let (session, sink) = zones::start(change);
    let stream = driver.stream();
    let hold = cupti.hold_collector(true);
    session.stop();
    hold.wait();
    session.start();
    drop(OUTER.zone(&raw(stream)));
    drop(hold);
    let since = Instant::now();
    while !cupti.stub_cupti_is_on(KERNEL) {
        assert!(since.elapsed() < Duration::from_secs(20), "CUPTI does not record again");
        thread::sleep(Duration::from_millis(1));
    }
    // It is on a moment before it counts as on.
    thread::sleep(Duration::from_millis(50));
    {
        let _zone = open(&raw(stream));
        thread::sleep(Duration::from_micros(100));
        // The stub's call lasts from 5 to 2 µs before its work.
        let begin_ns = boot_ns().cast_unsigned() + 3_500;
        cupti.launch(Launch { begin_ns, end_ns: begin_ns + 10_000, stream: number(stream), ..kernel(c"k") });
        thread::sleep(Duration::from_micros(100));
    }
    driver.cuStreamSynchronize(stream);
    let report = session.finish();
    assert_exact(&report);
    let mut zones = sink.take();
    zones.sort_by_key(|zone| zone.host.begin_ns);
    assert_eq!(zones.len(), 2, "{report}");
    (report, zones, sink.take_kernels())
}

#[test]
fn kernels_on_a_stream_that_was_met_while_cupti_was_paused_are_on_its_row() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (report, zones, kernels) =
            met_while_paused(driver, cupti, |builder| builder.kernels(true), |stream| INNER.zone(stream));
        let [kernel] = &kernels[..] else { panic!("one kernel: {kernels:?}, {report}") };
        assert!(is_of(kernel.zone, &zones[1]), "{kernel:?} of {:?}", zones[1]);
        assert_eq!(Some(&kernel.stream), zones[1].stream.as_ref(), "one stream has one row");
    });
}

#[test]
fn zones_on_a_stream_that_was_met_while_cupti_was_paused_are_timed_by_kernels() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (report, zones, _) = met_while_paused(
            driver,
            cupti,
            |builder| builder.timing(Timing::Kernels),
            |stream| {
                // One that may end on another thread is timed by the work on its stream.
                INNER.async_zone(stream)
            },
        );
        assert_eq!(zones[1].end, EndSource::Kernels, "{report}");
        assert_eq!(zones[1].gpu.map(|gpu| gpu.duration_ns()), Some(10_000), "{report}");
    });
}
