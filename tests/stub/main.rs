//! Warpline on doubles of what it calls: a CUDA driver and NCCL, CUPTI, a HIP runtime, a tool for NVTX, Tracy's client. No GPU is needed.
//!
//! Nearly every test runs again in a process of its own, which finds the stub where a program looks for the library.
#![cfg(target_os = "linux")]

mod harness;

#[cfg(all(feature = "cuda", feature = "timeline"))]
#[macro_use]
#[path = "../support/timelines/mod.rs"]
mod timelines;

#[cfg(feature = "cupti")]
mod control_kernels;
#[cfg(all(feature = "cuda", feature = "timeline"))]
mod cuda_arrows;
#[cfg(feature = "cuda")]
mod cuda_bounds;
#[cfg(feature = "cuda")]
mod cuda_ends;
#[cfg(feature = "cuda")]
mod cuda_graph;
#[cfg(feature = "cuda")]
mod cuda_launching;
#[cfg(all(feature = "cuda", feature = "timeline"))]
mod cuda_lifetimes;
#[cfg(feature = "cuda")]
mod cuda_live;
#[cfg(all(feature = "cuda", feature = "timeline"))]
mod cuda_memory;
#[cfg(feature = "cuda")]
mod cuda_nccl;
#[cfg(feature = "cuda")]
mod cuda_own_events;
#[cfg(feature = "cuda")]
mod cuda_reading;
#[cfg(feature = "cuda")]
mod cuda_replays;
#[cfg(feature = "cuda")]
mod cuda_rules;
#[cfg(feature = "cuda")]
mod cuda_stamps;
#[cfg(feature = "cuda")]
mod cuda_stream_names;
mod cuda_stub;
#[cfg(all(feature = "cuda", feature = "timeline"))]
mod cuda_timeline;
#[cfg(feature = "cuda")]
mod cuda_times;
#[cfg(feature = "cuda")]
mod cuda_trace;
#[cfg(feature = "cupti")]
mod cupti;
#[cfg(feature = "cupti")]
mod cupti_conditional;
#[cfg(feature = "cupti")]
mod cupti_replays;
#[cfg(feature = "cupti")]
mod cupti_trace;
#[cfg(feature = "enable")]
mod growth;
#[cfg(feature = "hip")]
mod hip;
#[cfg(feature = "hip")]
mod hip_roctx;
#[cfg(feature = "enable")]
mod nvtx;
#[cfg(all(feature = "enable", feature = "timeline"))]
mod nvtx_payloads;
#[cfg(feature = "enable")]
mod nvtx_tools;
#[cfg(feature = "enable")]
mod privileges;
#[cfg(feature = "cuda")]
#[path = "../support/told.rs"]
mod told;
#[cfg(all(feature = "cuda", feature = "timeline"))]
#[path = "../support/trace.rs"]
mod trace;
#[cfg(feature = "tracy")]
mod tracy;

warpline::namespace!("stub", "zones of the tests on stubs");

#[global_allocator]
static ALLOCATOR: warpline_tests::counting::Counting = warpline_tests::counting::Counting;
