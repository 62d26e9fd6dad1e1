//! A block with the graph that it was captured as.
#![allow(unsafe_code)]

use std::ffi::c_void;

use tensor::{Error, Graph};
use warpline::graph::{AsGraph, GraphRef};

use crate::block::Block;

/// A block, captured on its stream. With a group, every rank captures its own.
#[derive(Debug)]
pub struct Captured {
    graph: Graph,
    /// What the graph's kernels read and write.
    block: Block,
}

impl Captured {
    /// Captures the block; nothing of it runs. Run it once before: libraries set themselves up with the first call of a kind,
    /// and may do what a capture does not allow.
    ///
    /// # Errors
    /// It cannot be captured: there is no GPU, or the driver says why.
    pub fn new(block: Block) -> Result<Captured, Error> {
        Ok(Captured { graph: Graph::capture(block.stream(), || block.forward())?, block })
    }

    /// Queues the whole block, as one launch.
    ///
    /// # Errors
    /// What the driver says.
    pub fn replay(&self) -> Result<(), Error> {
        // SAFETY: the block is there as long as this, has all that its kernels use, and waits for its stream when it goes.
        unsafe { self.graph.launch() }
    }

    /// The block: its input, and what came of it.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The driver's handle of the executable graph, which lives as long as this.
    pub fn exec(&self) -> *mut c_void {
        self.graph.exec()
    }
}

impl AsGraph for Captured {
    fn as_graph(&self) -> GraphRef<'_> {
        self.graph.as_graph()
    }
}
