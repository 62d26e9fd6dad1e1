//! `block::gpu_zone!`, `block::host_zone!` and `block::collective!`: a zone around a part of a function.

mod args;
mod expand;

use proc_macro2::TokenStream;

use crate::key::{Key, MARK};
use crate::options::Grammar;

/// `block::gpu_zone!`.
pub const GPU: Grammar = Grammar {
    name: "block::gpu_zone",
    keys: MARK,
    without: &[Key::Infer, Key::Stream, Key::Err],
    field_values: true,
    is_collective: false,
    refuse: |key| match key {
        Key::Stream => "in a block, the stream comes after the name; write `gpu_zone!(\"demo.add\", <stream>, { … })`",
        Key::Err => "`err` is for marked functions: a `?` in a block leaves the function, not the block; remove it",
        _ => "`block::gpu_zone!` times a GPU stream; remove `kind`, or write `block::host_zone!`",
    },
};

/// `block::host_zone!`.
pub const HOST: Grammar = Grammar {
    name: "block::host_zone",
    without: &[Key::Infer, Key::Stream, Key::Err, Key::Begin],
    refuse: |key| match key {
        Key::Stream => "a host zone has no stream; remove `stream`, or write `block::gpu_zone!`",
        Key::Begin => "a host zone begins on its thread; remove `begin`, or write `block::gpu_zone!`",
        Key::Err => "`err` is for marked functions: a `?` in a block leaves the function, not the block; remove it",
        _ => "`block::host_zone!` times a thread; remove `kind`, or write `block::gpu_zone!`",
    },
    ..GPU
};

/// `block::collective!`: the options of `block::gpu_zone!`, and those of the message.
pub const COLLECTIVE: Grammar = Grammar {
    name: "block::collective",
    without: &[Key::Infer, Key::Stream, Key::Err, Key::Step, Key::Bytes, Key::Flops],
    is_collective: true,
    refuse: |key| match key {
        Key::Step => "a collective is a part of a step; remove `step`, or give it to the mark around the step",
        Key::Bytes => "the size of a collective follows from `count` and `dtype`; remove `bytes`",
        Key::Flops => {
            "a collective declares what it moves; remove `flops`, or write `block::gpu_zone!` around the computation"
        }
        Key::Stream => {
            "in a block, the stream comes after the name; write `collective!(\"demo.sync\", <stream>, …, { … })`"
        }
        _ => "`err` is for marked functions: a `?` in a block leaves the function, not the block; remove it",
    },
    ..GPU
};

/// What the block times: work on a stream, work of a thread, or a collective on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum On {
    Stream,
    Thread,
    Ranks,
}

/// The block with its zone. For invalid arguments: the error, and the unchanged block.
pub fn expand(on: On, input: TokenStream) -> TokenStream {
    let grammar = match on {
        On::Stream => &GPU,
        On::Thread => &HOST,
        On::Ranks => &COLLECTIVE,
    };
    let args = args::Args::parse(grammar, on, input.clone());
    args.and_then(expand::block).unwrap_or_else(|error| expand::refused(&error, input))
}
