//! The data of a collective: its kind, its elements, and the participating ranks.
//!
//! `kind` lists the operations, `dtype` the element types, and `group` the ranks; `message` combines them for one call, `arguments`
//! formats it for traces, `infer` reads it from the parameters of a marked function, and `traffic` has a session's figures. All of it is plain data: marks fill it in while a zone records,
//! and sinks and reports read it.

pub mod arguments;
mod dtype;
mod group;
#[doc(hidden)]
pub mod infer;
mod kind;
#[doc(hidden)]
pub mod ledger;
mod message;

pub use dtype::{DataType, Element, IntoDataType};
pub use group::ProcessGroup;
#[doc(hidden)]
pub use group::groups;
pub use kind::{CollectiveKind, ReduceOp};
pub use message::{Bandwidth, IntoCount, Message};
