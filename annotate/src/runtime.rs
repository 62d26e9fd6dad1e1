//! What the joiner takes from the crates below `warpline`: Perfetto's wire format, and numbers with their nouns.

pub(crate) use warpline_core::suggest::{counted, counted_as};
pub(crate) use warpline_trace::perfetto::proto;
