//! What a collective moves: its kind, its elements, and the ranks that take part.
//!
//! `kind` is the list of operations, `dtype` the types of elements, `group` the ranks, `message` all of it for one call,
//! `arguments` what a trace says of it, `traffic` a session's figures.
//! Plain data: marks fill it in while a zone records, sinks and reports read it.

pub mod arguments;
mod dtype;
mod group;
mod kind;
mod message;

pub use dtype::{DataType, Element, IntoDataType};
pub use group::ProcessGroup;
pub use kind::{CollectiveKind, ReduceOp};
pub use message::{Bandwidth, IntoCount, Message};
