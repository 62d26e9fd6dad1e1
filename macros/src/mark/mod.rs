//! `#[gpu_zone]`, `#[host_zone]` and `#[collective]`: a zone that spans a function.

mod args;
mod exits;
mod expand;
mod future;
mod item;
mod linted;
mod outcome;

use proc_macro2::TokenStream;

use crate::key::{Key, MARK};
use crate::options::Grammar;

/// `#[gpu_zone]`.
pub const GPU: Grammar = Grammar {
    name: "gpu_zone",
    keys: MARK,
    without: &[Key::Infer],
    field_values: true,
    is_collective: false,
    refuse: |_| "`#[gpu_zone]` times a GPU stream; remove `kind`, or mark with `#[host_zone]`",
};

/// `#[host_zone]`.
pub const HOST: Grammar = Grammar {
    name: "host_zone",
    without: &[Key::Infer, Key::Stream, Key::Begin],
    refuse: |key| match key {
        Key::Stream => "a host zone has no stream; remove `stream`, or mark with `#[gpu_zone]`",
        Key::Begin => "a host zone begins on its thread; remove `begin`, or mark with `#[gpu_zone]`",
        _ => "`#[host_zone]` times a thread; remove `kind`, or mark with `#[gpu_zone]`",
    },
    ..GPU
};

/// `#[collective]`: the options of `#[gpu_zone]`, those of the message, and `infer`.
pub const COLLECTIVE: Grammar = Grammar {
    name: "collective",
    without: &[Key::Step, Key::Bytes, Key::Flops],
    is_collective: true,
    refuse: |key| match key {
        Key::Step => "a collective is a part of a step; remove `step`, or give it to the mark around the step",
        Key::Bytes => "the size of a collective follows from `count` and `dtype`; remove `bytes`",
        Key::Flops => "a collective declares what it moves; remove `flops`, or mark the computation with `#[gpu_zone]`",
        key => (GPU.refuse)(key),
    },
    ..GPU
};

/// The marked function. For an invalid mark: the error, and the function without its mark.
pub fn expand(grammar: &Grammar, args: TokenStream, item: TokenStream) -> TokenStream {
    let (error, item) = match item::Function::parse(grammar.name, item.clone()) {
        Ok(function) => {
            let unmarked = function.unmarked();
            match args::Args::parse(grammar, args).and_then(|args| expand::function(grammar, args, function)) {
                Ok(marked) => return marked,
                Err(error) => (error, unmarked),
            }
        }
        Err(error) => (error, item),
    };
    let mut tokens = error.into_compile_error();
    tokens.extend(item);
    tokens
}
