//! Matrices on streams: the library half of the quickstart.
//!
//! It shows what a library does with warpline: it depends on it with no features, names its namespace, and marks each
//! operation where it queues its work. Whether anything is recorded is the application's choice. Its operations only
//! queue: a matrix holds its result once the stream has reached the operation.
//!
//! A [`Device`] makes the streams and the matrices: the host's, or with feature `cuda` those of an NVIDIA GPU. What an
//! application does with them is the same on both.
//!
//! Ranks that work together, each on a device of its own, share a [`Comm`]: of NCCL between GPUs, and of a reference
//! implementation between in-process streams.
//!
//! What a stream of a GPU is given can be captured as a `Graph` (with feature `cuda`), marks and all.
#![deny(unsafe_code)]

mod cuda;
mod device;
mod error;
#[cfg(feature = "cuda")]
mod graph;
mod heads;
mod matrix;
mod ops;
mod packed;
mod product;
mod ranks;
mod stream;

pub use device::Device;
pub use error::Error;
#[cfg(feature = "cuda")]
pub use graph::Graph;
pub use heads::{Heads, join_heads, split_heads};
pub use matrix::Matrix;
pub use ops::{add, attend, embed, gelu, layernorm, matmul, scores, softmax};
pub use packed::{Packed, unpack};
pub use product::{Batch, Blas, product, products};
pub use ranks::{Comm, Rendezvous, all_reduce, all_reduce_each, broadcast, nccl_version};
pub use stream::Stream;

warpline::namespace!("tensor", "matrices on streams");
