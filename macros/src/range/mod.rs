//! `range!`: ranges that several places share.

mod args;
mod expand;

use proc_macro2::TokenStream;

use crate::key::Key;
use crate::options::Grammar;

const GRAMMAR: Grammar = Grammar {
    name: "range!",
    keys: &[Key::Kind, Key::Fields, Key::Level, Key::Lane, Key::Color, Key::Crate],
    without: &[],
    field_values: false,
    is_collective: false,
    refuse: |key| match key {
        Key::Description => "the description comes after the name; write `NAME = \"demo.add\": \"…\";`",
        Key::Stream => "a mark says on which stream; remove `stream`",
        Key::Label => "an instance has a label, a range has none; move `label` to the mark",
        Key::Begin => "`begin` says how a marked place launches; move it to the mark",
        Key::Bytes | Key::Flops => "a mark declares the work of its zone; move `bytes` and `flops` to the mark",
        Key::Step => "a mark says that its zone is a step; move `step` to the mark",
        _ => "`err` belongs to a marked function; move it to the mark",
    },
};

/// The statics, with an error in the place of each that is wrong.
pub fn expand(input: TokenStream) -> TokenStream {
    args::declarations(&GRAMMAR, input).into_iter().map(expand::declaration).collect()
}
