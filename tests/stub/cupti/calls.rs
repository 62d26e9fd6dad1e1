//! The calls that CUPTI records: whichever call launches a kernel, the kernel has its host span and its zone.

use warpline::record::KernelRecord;
use warpline_tests::this_test;

use super::{OUTER, finish, is_of, start};
use crate::harness::cupti::*;
use crate::harness::zones::{self, assert_exact, boot_ns, raw};

/// What launches kernels, as `cupti_driver_cbid.h` of CUDA 13.5 numbers it: cuLaunch, cuLaunchGrid, cuLaunchGridAsync, cuLaunchKernel,
/// cuLaunchCooperativeKernel and cuLaunchKernelEx.
const OF_DRIVER: [u32; 10] = [115, 116, 117, 307, 442, 477, 478, 480, 652, 653];

/// What launches kernels, as `cupti_runtime_cbid.h` numbers it: cudaLaunch, cudaLaunchKernel, cudaLaunchCooperativeKernel,
/// cudaLaunchKernelExC, and what nvcc of CUDA 13 makes of `<<<>>>`: `__cudaLaunchKernel` and `__cudaLaunchKernel_ptsz`.
const OF_RUNTIME: [u32; 11] = [13, 211, 213, 214, 269, 270, 272, 430, 431, 505, 506];

/// The kernel that one launch in a zone leads to.
fn launched(driver: &crate::harness::driver::Stub, cupti: &Cupti) -> KernelRecord {
    let stream = driver.stream();
    let (session, sink) = start();
    {
        let _zone = OUTER.zone(&raw(stream));
        let begin_ns = boot_ns().cast_unsigned();
        cupti.launch(Launch { begin_ns, end_ns: begin_ns + 10_000, ..kernel(c"k") });
    }
    let (report, zones, mut kernels) = finish(session, &sink);
    assert_eq!((zones.len(), kernels.len()), (1, 1), "{report}");
    assert!(is_of(kernels[0].zone, &zones[0]), "{:?} of {:?}", kernels[0], zones[0]);
    kernels.remove(0)
}

#[test]
fn each_call_that_launches_gives_its_kernel_a_host_span_and_a_zone() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let host_ns = |kernel: &KernelRecord| kernel.launch.as_ref().map(|launch| launch.host.duration_ns());
        for call in OF_DRIVER {
            cupti.stub_cupti_launch_calls(call, 0);
            assert_eq!(host_ns(&launched(driver, cupti)), Some(3_000), "call {call} of the driver");
        }
        for call in OF_RUNTIME {
            cupti.stub_cupti_launch_calls(307, call);
            // Alone, and around the driver's call, of which it is the outer one.
            for runtime in [1, 2] {
                cupti.stub_cupti_runtime(runtime);
                let kernel = launched(driver, cupti);
                assert_eq!(host_ns(&kernel), Some(3_000), "call {call} of the runtime, {runtime} calls");
            }
        }
    });
}

#[test]
fn each_call_that_makes_streams_wait_is_a_wait() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = zones::start(|builder| builder.synchronizations(true));
        // cuStreamWaitEvent, cuGreenCtxWaitEvent, cuCtxWaitEvent; cudaStreamWaitEvent, cudaExecutionCtxWaitEvent.
        let calls = [(0, 295), (0, 436), (0, 750), (0, 756), (1, 147), (1, 247), (1, 544)];
        for (is_of_runtime, call) in calls {
            cupti.sync(Sync { sync_type: 2, call, is_of_runtime, event: 5, ..stream_sync(7, 4) });
        }
        // cuStreamQuery has a record of the same kind, and does not wait.
        cupti.sync(Sync { call: 125, ..stream_sync(7, 4) });
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(sink.take_synchronizations().len(), calls.len(), "{report}");
    });
}
