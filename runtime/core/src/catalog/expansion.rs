//! The expansion of the macros in `declare.rs`. Not a public interface; it may change in any release.

pub use linkme;
pub use warpline_macros::{__claim as claim, __package as package, __version as version};

pub use super::record::Note;
pub use super::shape::Shape;
pub use super::spec::{NAMESPACES, NamespaceSpec, RANGES, RangeMeta, refused};
