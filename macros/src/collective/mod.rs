//! The message of a `#[collective]` or `block::collective!` zone: what it transfers between ranks.
//!
//! `dtype` lists the element types, and `kinds` the options of each operation; `message` parses them and builds the message;
//! `infer` reads what is left out from a function's parameters.

mod dtype;
mod infer;
mod kinds;
mod message;

pub use kinds::Operation;
pub use message::Message;
