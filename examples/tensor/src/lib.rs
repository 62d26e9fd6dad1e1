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
#![deny(unsafe_code)]

mod cuda;
mod device;
mod error;
mod matrix;
mod ops;
mod packed;
mod ranks;
mod stream;

pub use device::Device;
pub use error::Error;
pub use matrix::Matrix;
pub use ops::{add, attend, embed, gelu, layernorm, matmul, scores, softmax};
pub use packed::{Packed, unpack};
pub use ranks::{Comm, Rendezvous, all_reduce, all_reduce_each, broadcast, nccl_version};
pub use stream::Stream;

warpline::namespace!("tensor", "matrices on streams");
