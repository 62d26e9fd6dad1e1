//! Traces of zones on CUDA streams, written on the stub driver: `cargo xtask gate --self-test` reads them as Perfetto does.

use std::ffi::c_void;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, thread};

use warpline::Session;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::graph::{GraphZones, RawGraph};
use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::raw;

warpline::range! {
    STEP = "stub.cuda_trace.step": "A step of two kernels.";
    KERNEL = "stub.cuda_trace.kernel": "A kernel.", level = fine, fields(n);
    COPY = "stub.cuda_trace.copy": "A copy beside the step.", lane = "copies";
    SHORT = "stub.cuda_trace.short": "A kernel on an idle stream.";
    LAYER = "stub.cuda_trace.layer": "A layer of a captured graph.", fields(layer);
    ATTENTION = "stub.cuda_trace.attention": "Attention.", lane = "attention";
    REDUCE = "stub.cuda_trace.reduce": "Sums over the group.", kind = collective;
}

const US: u64 = 1_000;
const STEPS: u64 = 8;

/// Where the traces go: the gate says it; otherwise nobody looks at them but this test.
fn folder() -> PathBuf {
    env::var_os("WARPLINE_GATE_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

fn record(driver: &Stub, ends: EndMode, name: &str) {
    let path = |suffix: &str| folder().join(format!("{name}.{suffix}"));
    let (packets, json) = (path("pftrace"), path("json"));
    let session = Session::builder().ends(ends).perfetto(&packets).chrome(&json).start().expect("no other session");
    let (compute, copy) = (driver.stream(), driver.stream());
    for step in 0..STEPS {
        let _step = STEP.zone(&raw(compute)).label(format_args!("step {step}"));
        // On a device no two events have one time; here they would.
        driver.stub_launch(compute, 2 * US);
        for n in 0..2 {
            let _kernel = KERNEL.zone(&raw(compute)).field("n", n);
            driver.stub_launch(compute, 100 * US);
        }
        let _copy = COPY.zone(&raw(copy));
        driver.stub_launch(copy, 150 * US);
    }
    driver.cuStreamSynchronize(compute);
    driver.cuStreamSynchronize(copy);
    {
        let _short = SHORT.zone(&raw(compute)).begin_at_launch();
        // Until the stream has come to the zone, however slow the machine is.
        driver.cuStreamSynchronize(compute);
        thread::sleep(Duration::from_millis(5));
        driver.stub_launch(compute, 20_000 * US);
    }
    driver.cuStreamSynchronize(compute);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (4 * STEPS + 1, 4 * STEPS + 1), "{report}");
    assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
    assert!([packets, json].iter().all(|trace| fs::metadata(trace).is_ok_and(|file| file.len() > 1_000)));
}

#[test]
fn traces_for_the_gate() {
    on_stub(this_test!(), |driver| {
        driver.start();
        record(driver, EndMode::Eager, "eager");
        record(driver, EndMode::Lazy, "lazy");
    });
}

#[test]
fn a_trace_of_stamped_replays_for_the_gate() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let path = |suffix: &str| folder().join(format!("stamps.{suffix}"));
        let (packets, json) = (path("pftrace"), path("json"));
        let builder = Session::builder().graph_timing(GraphTiming::Stamps).perfetto(&packets).chrome(&json);
        let session = builder.start().expect("no other session");
        let stream = driver.stream();
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        let kernel = |us: u64| assert_eq!(driver.stub_launch(stream, us * US), SUCCESS);
        for layer in 0..2_u32 {
            let _layer = LAYER.zone(&raw(stream)).label(format_args!("layer {layer}")).field("layer", layer);
            {
                let _attention = ATTENTION.zone(&raw(stream));
                kernel(20);
                kernel(20);
            }
            kernel(5);
            let group = ProcessGroup::new("tp0", [0, 1], 0);
            let message = Message::new(CollectiveKind::AllReduce).count(1_024_u32).dtype(DataType::F32).group(&group);
            let _reduce = REDUCE.zone(&raw(stream)).message(message);
            kernel(10);
        }
        let (mut graph, mut exec) = (0, 0);
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
        assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
        // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
        let raw_graph = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
        let _zones = GraphZones::for_graph(&raw_graph).expect("a graph that is alive").named("block");
        for _ in 0..5 {
            let _step = STEP.zone(&raw(stream));
            assert_eq!(driver.cuGraphLaunch(exec, stream), SUCCESS);
        }
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        let counts = report.graph_timing;
        assert_eq!((report.recorded, counts.replays, counts.zones, counts.untimed()), (5, 5, 30, 0), "{report}");
        assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
        assert!([packets, json].iter().all(|trace| fs::metadata(trace).is_ok_and(|file| file.len() > 1_000)));
    });
}
