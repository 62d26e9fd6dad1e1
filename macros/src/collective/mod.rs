//! What a zone of `#[collective]` or `block::collective!` says that it moves between ranks.
//!
//! `kinds` is what each operation needs and has, `message` the options that say it and the value that they make.

mod kinds;
mod message;

pub use kinds::Operation;
pub use message::Message;
