//! The parts that the command uses of the crates below `warpline`: text that is safe to print, the names of files, and
//! the protocol of programs that listen.

pub(crate) use warpline_core::file_name;
#[cfg(target_os = "linux")]
pub(crate) use warpline_core::peer;
pub(crate) use warpline_core::suggest::{counted, counted_as};
pub(crate) use warpline_core::text::{printable, printable_json, printable_lines};
#[cfg(target_os = "linux")]
pub(crate) use warpline_trace::control::{figures, place, protocol};
