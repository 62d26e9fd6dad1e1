//! `#[collective]` and `block::collective!`: a zone that says what it moves between ranks.
//!
//! `kinds` is what each operation needs and has, `message` the options that say it and the value that they make.

mod kinds;
mod message;

use crate::options::{Grammar, Key};
use crate::{block, mark};

pub use kinds::Operation;
pub use message::Message;

/// The options that say what is moved.
pub const MESSAGE: &[Key] = &[
    Key::Count,
    Key::CountOut,
    Key::Dtype,
    Key::Group,
    Key::Root,
    Key::Peer,
    Key::Op,
    Key::Seq,
    Key::InSplit,
    Key::OutSplit,
    Key::IsAsync,
];

/// `#[collective]`: what `#[gpu_zone]` takes, and what is moved.
pub const MARK: Grammar = Grammar { name: "collective", is_collective: true, ..mark::GPU };

/// `block::collective!`, likewise.
pub const BLOCK: Grammar = Grammar {
    name: "block::collective",
    is_collective: true,
    refuse: |key| match key {
        Key::Stream => "the stream of a block follows its name; write `collective!(\"demo.sync\", <stream>, …, { … })`",
        _ => "`err` is for marked functions: a `?` in a block leaves the function, not the block; take it away",
    },
    ..block::GPU
};
