//! Names of CUDA streams: in records, over the driver's default names, and in an NVTX tool.

use warpline::name_stream;
use warpline::timing::EndMode;
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::nvtx;
use crate::harness::zones::*;

warpline::range! {
    WORK = "stub.cuda_stream_names.work": "Work on a stream.";
}

const US: u64 = 1_000;

/// A zone around a kernel.
fn launch(driver: &Stub, stream: Handle, ns: u64) {
    let _zone = WORK.zone(&raw(stream));
    assert_eq!(driver.stub_launch(stream, ns), SUCCESS);
}

/// The names of the streams of all zones, without repetition.
fn names(zones: &warpline::sink::MemorySink) -> Vec<String> {
    let mut names: Vec<_> =
        zones.take().iter().map(|zone| zone.stream.as_ref().expect("a stream").name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn records_have_the_names_that_the_application_gives() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (copy, compute, unnamed) = (driver.stream(), driver.stream(), driver.stream());
        assert!(name_stream(&raw(copy), "copy"));
        let compute = raw(compute).named("first").named("compute");
        for ends in [EndMode::Eager, EndMode::Lazy] {
            let (session, zones) = start(|builder| builder.ends(ends));
            launch(driver, copy, US);
            launch(driver, compute.as_ptr() as Handle, US);
            launch(driver, unnamed, US);
            // The session has seen the stream, so the next session uses this name.
            assert!(name_stream(&raw(unnamed), if ends == EndMode::Eager { "late" } else { "later" }));
            launch(driver, unnamed, US);
            driver.cuCtxSynchronize();
            let report = session.finish();
            assert_exact(&report);
            let third = if ends == EndMode::Eager { "stream 3" } else { "late" };
            let mut expected = ["compute", "copy", third];
            expected.sort_unstable();
            assert_eq!(names(&zones), expected, "{report}");
        }
        assert_clean(driver);
    });
}

#[test]
fn a_new_stream_at_the_address_of_an_old_one_has_no_name() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let old = driver.stream();
        assert!(name_stream(&raw(old), "old"));
        driver.cuStreamDestroy_v2(old);
        let new = driver.stream();
        let (session, zones) = start(|builder| builder);
        launch(driver, new, US);
        driver.cuCtxSynchronize();
        assert_exact(&session.finish());
        assert_eq!(names(&zones), ["stream 1"]);
    });
}

#[test]
fn a_stream_in_a_capture_is_not_named_and_stays_in_its_capture() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (stream, mut graph) = (driver.stream(), 0);
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        assert!(!name_stream(&raw(stream), "captured"));
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
        assert!(name_stream(&raw(stream), "captured"));
    });
}

#[test]
fn a_tool_gets_the_names_of_the_application_without_a_session() {
    let library = nvtx::library();
    on_stub(this_test!(), |driver| {
        // SAFETY: no other thread of this process looks at the environment now.
        unsafe { std::env::set_var(nvtx::PATH, &library) };
        driver.start();
        let stream = driver.stream();
        assert!(name_stream(&raw(stream), "copy"));
        // The handle of a default stream means another stream in each context.
        assert!(name_stream(&raw(LEGACY), "legacy"));
        let tool = nvtx::Tool::open(library.as_os_str());
        let named = |tool: &nvtx::Tool| -> Vec<String> {
            tool.log().into_iter().filter(|line| line.call == "stream").map(|line| line.arguments.join(" ")).collect()
        };
        assert_eq!(named(&tool), [format!("{stream} copy")]);
        let (session, _zones) = start(|builder| builder);
        launch(driver, stream, 0);
        driver.cuCtxSynchronize();
        assert_exact(&session.finish());
        assert_eq!(named(&tool), [format!("{stream} copy"), format!("{stream} copy")], "the session names it, too");
    });
}
