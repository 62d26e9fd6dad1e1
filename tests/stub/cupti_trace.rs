//! A trace with kernels, written on the stub driver and the stub CUPTI: `cargo xtask gate --self-test` reads it as Perfetto
//! does.

use std::path::PathBuf;
use std::{env, fs};

use serde_json::Value;
use warpline::Session;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_tests::this_test;

use crate::harness::cupti::*;
use crate::harness::graphs::{self, Captured, exec_id};
use crate::harness::zones::{boot_ns, raw};

warpline::range! {
    STEP = "stub.cupti_trace.step": "A step of kernels.";
    COPY = "stub.cupti_trace.copy": "A copy beside the step.", lane = "copies";
    LAYER = "stub.cupti_trace.layer": "A layer of a captured graph.", fields(layer);
    ATTENTION = "stub.cupti_trace.attention": "Attention.", lane = "attention";
    MLP = "stub.cupti_trace.mlp": "Feed-forward.", lane = "mlp";
    REDUCE = "stub.cupti_trace.reduce": "Sums over the group.", kind = collective;
}

const US: u64 = 1_000;
const STEPS: u64 = 4;

/// Where the traces go: the gate says it; otherwise nobody looks at them but this test.
fn folder() -> PathBuf {
    env::var_os("WARPLINE_GATE_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

#[test]
fn traces_for_the_gate() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let path = |suffix: &str| folder().join(format!("kernels.{suffix}"));
        let (packets, json) = (path("pftrace"), path("json"));
        let builder = Session::builder().kernels(true).perfetto(&packets).chrome(&json);
        let session = builder.start().expect("no other session");
        let (compute, copy) = (driver.stream(), driver.stream());
        let first_ns = boot_ns().cast_unsigned();
        for step in 0..STEPS {
            let on = |stream, launch: Launch, from: u64, us: u64| Launch {
                stream: number(stream),
                begin_ns: first_ns + (step * 100 + from) * US,
                end_ns: first_ns + (step * 100 + from + us) * US,
                ..launch
            };
            {
                let _step = STEP.zone(&raw(compute));
                driver.stub_launch(compute, 50 * US);
                cupti.launch(on(compute, kernel(c"_Z4gemmPfS_i"), 0, 20));
                // Begins before the other is over: both are kept as they were.
                cupti.launch(on(compute, Launch { graph: 3, node: 3 << 32 | step, ..kernel(c"_Z4gelu\"Pf") }, 15, 20));
            }
            let _copy = COPY.zone(&raw(copy));
            driver.stub_launch(copy, 40 * US);
            cupti.launch(on(copy, Launch { kind: MEMCPY, bytes: 400_000, ..kernel(c"") }, 0, 40));
        }
        // On a stream without a zone, in none.
        cupti.launch(Launch { stream: 3, begin_ns: first_ns, end_ns: first_ns + US, kind: MEMSET, ..kernel(c"") });
        driver.cuStreamSynchronize(compute);
        driver.cuStreamSynchronize(copy);
        let report = session.finish();
        assert_eq!((report.recorded, report.kernels.recorded), (2 * STEPS, 3 * STEPS + 1), "{report}");
        assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
        assert!(fs::metadata(&packets).is_ok_and(|file| file.len() > 1_000));
        check_json(&fs::read_to_string(&json).unwrap());
    });
}

#[test]
fn traces_of_replays_for_the_gate() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        driver.stub_tells_ids(true);
        let path = |suffix: &str| folder().join(format!("replays.{suffix}"));
        let (packets, json) = (path("pftrace"), path("json"));
        let builder = Session::builder().kernels(true).perfetto(&packets).chrome(&json);
        let session = builder.start().expect("no other session");
        let stream = driver.stream();
        let kernels = |count| (0..count).for_each(|_| graphs::kernel(driver, stream, 0));
        let Captured { exec, zones, .. } = Captured::new(driver, stream, || {
            for layer in 0..2_u32 {
                let _layer = LAYER.zone(&raw(stream)).label(format_args!("layer {layer}")).field("layer", layer);
                {
                    let _attention = ATTENTION.zone(&raw(stream));
                    kernels(2);
                }
                {
                    let _mlp = MLP.zone(&raw(stream));
                    kernels(1);
                }
                let group = ProcessGroup::new("tp0", [0, 1], 0);
                let message =
                    Message::new(CollectiveKind::AllReduce).count(1_024_u32).dtype(DataType::F32).group(&group);
                let _reduce = REDUCE.zone(&raw(stream)).message(message);
                kernels(1);
            }
        });
        let _zones = zones.named("block");
        let (exec, first_ns) = (exec_id(driver, exec), boot_ns().cast_unsigned());
        for replay in 0..5 {
            let _step = STEP.zone(&raw(stream));
            cupti.replay(stream, exec, 8, first_ns + replay * 100 * US, 10 * US);
        }
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_eq!((report.recorded, report.kernels.recorded), (5, 40), "{report}");
        assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
        let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).expect("a JSON document");
        let events = document["traceEvents"].as_array().expect("events");
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        assert_eq!((named("graph 1 (block)").len(), named("launch of graph 1 (block)").len()), (5, 5));
        let reduces = named("stub.cupti_trace.reduce");
        assert_eq!(reduces.len(), 10);
        assert_eq!((&reduces[0]["dur"], &reduces[0]["args"]["Process Group Name"]), (&10.0.into(), &"tp0".into()));
        let row = named("thread_name").into_iter().find(|row| row["tid"] == reduces[0]["tid"]).expect("a row");
        assert_eq!(row["args"]["name"], "stream 1: replays: comm: tp0 [0,1]");
    });
}

/// Kernels as PyTorch's profiler writes them.
fn check_json(text: &str) {
    let document: Value = serde_json::from_str(text).expect("a JSON document");
    let events = document["traceEvents"].as_array().expect("events");
    let of = |category: &str| events.iter().filter(|event| event["cat"] == category).collect::<Vec<_>>();
    let (kernels, copies, sets) = (of("kernel"), of("gpu_memcpy"), of("gpu_memset"));
    assert_eq!((kernels.len(), copies.len(), sets.len()), (8, 4, 1));
    let gemm = kernels.iter().find(|kernel| kernel["name"] == "gemm(float*, float*, int)").expect("the kernel");
    assert_eq!(gemm["dur"].to_string(), "20.0");
    let args = &gemm["args"];
    for (name, value) in [
        ("device", "0"),
        ("context", "1"),
        ("stream", "1"),
        ("registers per thread", "40"),
        ("shared memory", "3072"),
        ("grid", "[8,4,2]"),
        ("block", "[128,2,1]"),
        ("zone", "\"stub.cupti_trace.step\""),
        ("zone sequence", "0"),
        ("zone stream", "1"),
    ] {
        assert_eq!(args[name].to_string(), value, "{name} of {gemm}");
    }
    let gelu = kernels.iter().find(|kernel| kernel["name"] == "_Z4gelu\"Pf").expect("the other kernel");
    assert_eq!((&gelu["args"]["graph id"], &gelu["args"]["graph node id"]), (&3.into(), &(3_u64 << 32).into()));
    assert_eq!(copies[0]["args"]["bytes"], 400_000);
    assert_eq!(copies[0]["args"]["kind"], "HtoD");
    assert_eq!(copies[0]["args"]["memory bandwidth (GB/s)"], 10.0);
    assert!(sets[0]["args"]["zone"].is_null());
    assert_eq!(document["otherData"]["kernels"]["recorded"], 13);
    // A zone stands in for no kernel where there are kernels.
    assert!(of("gpu_user_annotation").iter().all(|zone| zone["args"]["correlation"].is_null()));
}
