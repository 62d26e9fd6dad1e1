//! A transformer block, captured once as a CUDA graph and replayed: the library half of the example `cuda_graph`, and what the
//! GPU tests of captured kernels look at.
//!
//! It has the sizes of the block in PyTorch's tutorial on graph annotations. Its sections are marked here, two of them with a
//! lane of their own, and know nothing of being captured; the operations that they are made of are marked in `tensor`. Ranks
//! share it as in tensor parallelism: each has some of the heads and some of the hidden units, and two all-reduces sum what
//! they have.
//!
//! [`Block`] runs on in-process streams, too. Only `Captured` needs a GPU.
#![deny(unsafe_code)]

mod block;
#[cfg(feature = "cuda")]
mod captured;
pub mod reference;
mod weights;

pub use block::{Block, Shape};
#[cfg(feature = "cuda")]
pub use captured::Captured;

warpline::namespace!("transformer", "a transformer block that is captured as a CUDA graph");
