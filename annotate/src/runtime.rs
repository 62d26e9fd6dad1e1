//! The items that the joiner takes from the crates below `warpline`: Perfetto's wire format, and counts with their nouns.

pub(crate) use warpline_core::plural::{counted, counted_as};
pub(crate) use warpline_trace::write::perfetto::proto;
