//! Names that the program gives streams through NVTX, where CUPTI is NVTX's tool: on the stub CUPTI.

use std::env;
use std::time::{Duration, Instant};

use warpline::record::StreamInfo;
use warpline::timing::Timing;
use warpline_tests::{taken, this_test};

use super::OUTER;
use crate::harness::cupti::*;
use crate::harness::zones::{self, raw};

const NAME: u32 = 11;
const TOOL: &str = "NVTX_INJECTION64_PATH";

#[test]
fn streams_have_the_names_that_other_tools_calls_gave_them() {
    with_cupti(this_test!(), |driver, cupti| {
        // SAFETY: no other thread reads the environment yet.
        unsafe { env::set_var(TOOL, library()) };
        driver.start();
        let (session, sink) = zones::start(|builder| builder.kernels(true));
        assert!(cupti.stub_cupti_is_on(NAME));
        let (named, own, late) = (driver.stream(), driver.stream(), driver.stream());
        drop(OUTER.zone(&raw(late)));
        for (stream, name) in [(named, c"theirs"), (own, c"theirs as well"), (late, c"too late")] {
            cupti.stub_cupti_name(1, number(stream), name.as_ptr());
        }
        cupti.stub_cupti_name(1, 77, c"of no zone".as_ptr());
        warpline::name_stream(&raw(own), "ours");
        // CUPTI delivers names as it delivers kernels: once this kernel is here, the names are.
        cupti.launch(Launch { stream: 77, ..kernel(c"k") });
        let kernels = taken(1, || sink.take_kernels());
        assert_eq!(kernels[0].stream.name, "of no zone");
        for stream in [named, own, late] {
            drop(OUTER.zone(&raw(stream)));
        }
        session.finish();
        let mut names: Vec<_> = sink.take().into_iter().filter_map(|zone| zone.stream).map(name_of).collect();
        names.sort();
        names.dedup();
        assert_eq!(names, ["ours", "stream 1", "theirs"]);
    });
}

#[test]
fn names_are_recorded_only_where_nvtx_has_a_tool() {
    with_cupti(this_test!(), |driver, cupti| {
        // SAFETY: as above.
        unsafe { env::remove_var(TOOL) };
        driver.start();
        let (session, sink) = zones::start(|builder| builder.timing(Timing::Kernels));
        assert!(!cupti.stub_cupti_is_on(NAME));
        let stream = driver.stream();
        cupti.stub_cupti_name(1, number(stream), c"theirs".as_ptr());
        let flushes = cupti.calls("cuptiActivityFlushAll");
        let begin = Instant::now();
        while cupti.calls("cuptiActivityFlushAll") < flushes + 2 {
            assert!(begin.elapsed() < Duration::from_secs(20), "CUPTI is not flushed");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(OUTER.zone(&raw(stream)));
        session.finish();
        let names: Vec<_> = sink.take().into_iter().filter_map(|zone| zone.stream).map(name_of).collect();
        assert_eq!(names, ["stream 1"]);
    });
}

fn name_of(stream: std::sync::Arc<StreamInfo>) -> String {
    stream.name.clone()
}
