//! CUDA graphs through cudarc, for [`Graph`](crate::Graph).

use std::ffi::c_void;
use std::fmt;

use cudarc::driver::{CudaGraph, DriverError, sys};
use warpline::graph::{AsGraph, GraphRef};

use super::on::{Gpu, Queue};
use crate::error::Error;

pub(crate) struct Graph {
    graph: CudaGraph,
    /// Its kernels are loaded as long as this is there.
    _gpu: Gpu,
}

impl Graph {
    pub(crate) fn capture<E: From<Error>>(queue: &Queue, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        let refused = |error: DriverError| E::from(error.into());
        // Of this thread alone: other threads may allocate and load while it captures.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        queue.stream.begin_capture(mode).map_err(refused)?;
        let worked = work();
        // Also where it failed: a stream is not left in the middle of a capture.
        let graph = queue.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        worked?;
        match graph.map_err(refused)? {
            Some(graph) => Ok(Graph { graph, _gpu: queue.gpu.clone() }),
            None => Err(Error::Driver("that the capture has no graph".to_owned()).into()),
        }
    }

    pub(crate) fn launch(&self) -> Result<(), Error> {
        Ok(self.graph.launch()?)
    }

    pub(crate) fn exec(&self) -> *mut c_void {
        self.graph.cu_graph_exec().cast()
    }

    pub(crate) fn as_graph(&self) -> GraphRef<'_> {
        self.graph.as_graph()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}
