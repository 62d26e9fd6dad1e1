//! What a stream of a GPU was given, captured as a CUDA graph, to be launched as often as one likes.
#![allow(unsafe_code)]

use std::ffi::c_void;

use warpline::graph::{AsGraph, GraphRef};

use crate::cuda;
use crate::error::Error;
use crate::stream::{Kind, Stream};

/// A captured graph and the executable one that was made of it. It stays on the thread that captured it.
#[derive(Debug)]
pub struct Graph(cuda::Graph);

impl Graph {
    /// Captures what `work` queues on a stream; nothing of it runs. Other threads may do what they like meanwhile.
    ///
    /// # Errors
    /// In-process streams have no graphs; `work` fails, or the driver says that it cannot be captured.
    pub fn capture<E: From<Error>>(stream: &Stream, work: impl FnOnce() -> Result<(), E>) -> Result<Graph, E> {
        match &stream.0 {
            Kind::Host(_) => Err(Error::NoGraphs.into()),
            Kind::Gpu(queue) => Ok(Graph(cuda::Graph::capture(queue, work)?)),
        }
    }

    /// Queues all of it on the stream that it was captured on.
    ///
    /// # Safety
    /// The matrices that the captured operations read and write are there until the stream has run it, and so are the `Blas`
    /// and the `Comm` that they used.
    ///
    /// # Errors
    /// The driver refuses it.
    pub unsafe fn launch(&self) -> Result<(), Error> {
        self.0.launch()
    }

    /// The driver's handle of the executable graph, which lives as long as this.
    pub fn exec(&self) -> *mut c_void {
        self.0.exec()
    }
}

impl AsGraph for Graph {
    fn as_graph(&self) -> GraphRef<'_> {
        self.0.as_graph()
    }
}
