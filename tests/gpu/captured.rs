//! What the tests of captured graphs share: modes, captures, and zones in them.

use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};
use gpu::{Event, Gpu, Graph, Result};
use warpline::RangeSpec;
use warpline::graph::GraphZones;

use super::US;

pub use sys::CUstreamCaptureMode::{
    CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
};

pub fn capture(stream: &Arc<CudaStream>, work: impl FnOnce() -> Result) -> Graph {
    Graph::capture(stream, THREAD_LOCAL, work).expect("the capture succeeds")
}

pub fn register(graph: &Graph, exec: usize) -> GraphZones {
    GraphZones::for_graph(&graph.raw(exec)).expect("the driver tells the nodes")
}

/// The stream's work waits for the other one's.
pub fn wait(stream: &Arc<CudaStream>, event: &Event, recorded_on: &Arc<CudaStream>) -> Result {
    event.record(recorded_on)?;
    event.wait(stream)?;
    Ok(())
}

/// A zone with one kernel that runs so long.
pub fn zone(gpu: &Gpu, range: &'static RangeSpec, stream: &Arc<CudaStream>, us: u64) -> Result {
    let _zone = range.zone(stream).field("us", us);
    gpu.spin(stream, us * US, None)
}
