//! An NVIDIA GPU: its memory, its streams, and the kernels of `kernels.cu`.
//!
//! `on` does it. `off` is what the other rooms find without feature `cuda`: the same names, as types that have no value,
//! so that no operation needs to know which of the two it is.
#![allow(unsafe_code)]

#[cfg(feature = "cuda")]
mod blas;
#[cfg(feature = "cuda")]
mod graph;
#[cfg(not(feature = "cuda"))]
mod off;
#[cfg(feature = "cuda")]
mod on;

#[cfg(feature = "cuda")]
pub(crate) use self::blas::Blas;
#[cfg(feature = "cuda")]
pub(crate) use graph::Graph;
#[cfg(not(feature = "cuda"))]
pub(crate) use off::{Blas, Gpu, Memory, Queue, Ranks};
#[cfg(feature = "cuda")]
pub(crate) use on::{Gpu, Memory, Queue, Ranks};

/// The kernels of `kernels.cu`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    Embed,
    Matmul,
    Layernorm,
    Scores,
    Softmax,
    Attend,
    Gelu,
    Add,
    Unpack,
    SplitHeads,
    JoinHeads,
}

/// How the threads of a kernel share its output.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "nothing is launched"))]
pub(crate) enum Grid {
    /// A thread for each of so many elements.
    Elements(usize),
    /// A block of threads for each of so many rows.
    Rows(usize),
    /// A block of threads for each tile of so many rows and columns.
    Tiles(usize, usize),
}

/// The tokens of one launch. They travel with it: there is nothing to copy, and nothing to keep until it has run.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Tokens([u32; Tokens::MOST]);

impl Tokens {
    /// So many go into one launch.
    pub(crate) const MOST: usize = 256;

    /// The first of `tokens`, up to so many as go into one launch.
    pub(crate) fn new(tokens: &[usize]) -> Tokens {
        Tokens(std::array::from_fn(|i| tokens.get(i).map_or(0, |token| *token as u32)))
    }
}
