//! Matrices on an in-process stream: the library half of the quickstart.
//!
//! It shows what a library does with warpline: it depends on it with no features, names its namespace, and marks each
//! operation where it queues its work. Whether anything is recorded is the application's choice. Its operations only
//! queue: a matrix holds its result once the stream has reached the operation.
#![forbid(unsafe_code)]

mod event;
mod matrix;
mod ops;
mod packed;

pub use event::Event;
pub use matrix::{Matrix, ShapeMismatch};
pub use ops::{add, attend, embed, gelu, layernorm, matmul, scores, softmax};
pub use packed::{Packed, unpack};

warpline::namespace!("tensor", "matrices on an in-process stream");
