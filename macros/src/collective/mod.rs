//! `#[collective]` and `block::collective!`: a zone that says what it moves between ranks.
//!
//! `kinds` is what each operation needs and has, `message` the options that say it and the value that they make.

mod kinds;
mod message;

use crate::options::{Grammar, Key};

pub use kinds::Operation;
pub use message::Message;

/// The options that say what is moved.
pub const MESSAGE: [Key; 11] = [
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

/// `#[collective]`.
pub const MARK: Grammar = Grammar {
    name: "collective",
    keys: &[
        Key::Kind,
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
        Key::Stream,
        Key::Description,
        Key::Fields,
        Key::Level,
        Key::Lane,
        Key::Color,
        Key::Err,
        Key::Label,
        Key::Begin,
        Key::Crate,
    ],
    field_values: true,
    is_collective: true,
    refuse: |_| "`#[collective]` does not take this",
};

/// `block::collective!`.
pub const BLOCK: Grammar = Grammar {
    name: "block::collective",
    keys: &[
        Key::Kind,
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
        Key::Description,
        Key::Fields,
        Key::Level,
        Key::Lane,
        Key::Color,
        Key::Label,
        Key::Begin,
        Key::Crate,
    ],
    field_values: true,
    is_collective: true,
    refuse: |key| match key {
        Key::Stream => "the stream of a block follows its name; write `collective!(\"demo.sync\", <stream>, …, { … })`",
        _ => "`err` is for marked functions: a `?` in a block leaves the function, not the block; take it away",
    },
};
