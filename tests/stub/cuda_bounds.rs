//! Zones on CUDA streams whose ends no event times: what a session says of lengths that are only bounds.

use std::thread;
use std::time::Duration;

use warpline::record::ZoneRecord;
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_bounds.work": "Work on a stream.";
}

const US: u64 = 1_000;
const MANY: usize = 12;

/// Short kernels on a stream that rests behind each of them.
fn short_kernels(driver: &Stub) {
    let stream = driver.stream();
    for _ in 0..MANY {
        let zone = WORK.zone(&raw(stream));
        driver.stub_launch(stream, 20 * US);
        drop(zone);
        driver.cuStreamSynchronize(stream);
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_length_that_is_only_a_bound_is_in_no_figure_of_the_report() {
    on_stub(this_test!(), |driver| {
        driver.start();
        for ends in [EndMode::Lazy, EndMode::Eager] {
            let (session, zones) = start(|builder| builder.ends(ends));
            short_kernels(driver);
            let report = session.finish();
            assert_exact(&report);
            let zones = zones.take();
            let (bounded, timed): (Vec<ZoneRecord>, Vec<ZoneRecord>) =
                zones.into_iter().partition(|zone| zone.end_early_by_ns * 20 > zone.duration_ns());
            let ns = |zones: &[ZoneRecord]| zones.iter().map(ZoneRecord::duration_ns).sum::<i64>();
            let [stats] = &report.ranges[..] else { panic!("{report}") };
            let counts = (report.ends.bounded, stats.count, stats.bounded, stats.recorded_ns, stats.bounded_total_ns);
            let of_zones = (bounded.len() as u64, MANY as u64, bounded.len() as u64, ns(&timed), ns(&bounded));
            assert_eq!(counts, of_zones, "{ends:?}: {report}");
            assert_eq!(stats.max_ns, timed.iter().map(ZoneRecord::duration_ns).max().unwrap_or(0), "{report}");
            let text = report.to_string();
            if ends == EndMode::Eager {
                assert!(bounded.is_empty() && !text.contains('≤'), "{report}");
                continue;
            }
            // A lazy end is never known to 1 µs here: the collector comes by less often.
            assert!(!bounded.is_empty(), "{report}");
            assert!(text.contains(" ≤") && text.contains("late by more than 5 % of the length"), "{report}");
            if timed.is_empty() {
                let table = text.split("\n\n").next().expect("a table");
                assert_eq!(table.matches('≤').count(), 4, "total, share, mean and the longest: {table}");
            }
        }
    });
}
