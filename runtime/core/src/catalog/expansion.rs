//! What the macros of `declare.rs` expand to. Not for people; it may change in any release.

pub use linkme;
pub use warpline_macros::{__claim as claim, __package as package, __version as version};

pub use super::record::Note;
pub use super::shape::Shape;
pub use super::spec::{NamespaceSpec, RangeMeta, WARPLINE_NAMESPACES_V2, WARPLINE_RANGES_V2, refused};
